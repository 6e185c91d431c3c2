// Judges one key's history against the promises P1 (no acknowledged write is
// lost), P2 (what was replaced stays so), P3 (concurrent writes are kept; in
// `lww` the later one wins) and P5 (strict reads).
//
// Decided from values and from which answer a context was taken, never from the
// contexts' bytes. The reasoning, for `siblings`:
//
// - The first write that covers X in any object has a context that was read off
//   an object in which X was a sibling. So a client's context covers X first
//   only if the answer it came from showed X, and a coordinator's own read only
//   if it may have met X: X was invoked before that put ended. Such a write
//   `may cover` X; a blind put covers nothing.
// - If an object's clock covers X and X is no sibling in it, the first write
//   that covered X is in that clock too, and is a sibling or was covered in its
//   turn, or is a delete. So from an X that is gone there is a chain of writes,
//   each of which may cover the one before, that ends in a value that is there
//   or in a delete.
// - A write with a context that showed X covers X for certain if it ran, and so
//   does a strict put or delete without a context that began after X was
//   acknowledged at strict. Covered values never show beside or after it.
//
// What this cannot decide exactly: a plain put may be taken to have seen a
// concurrent value that it did not see. Workloads mix in blind puts and
// contexts, for which the judgement is exact. Source of the idea: Adya,
// "Weak Consistency", 1999, and the Jepsen checkers.

#ifndef RINGKV_TESTS_SIM_KEY_CHECKER_H_
#define RINGKV_TESTS_SIM_KEY_CHECKER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/history.h"

namespace ringkv::sim {

struct Violation {
  std::string check;  // "P1", "P5" ...
  std::string text;
  std::string key;  // keyspace/key, or empty
  WorldTime at = 0;
  std::vector<OperationId> operations;
};

// Appends what `history` breaks. `final_read` was made when all faults were
// over, from all N replicas; null if the run did not get that far.
void CheckKey(const KeyHistory& history, const Losses& losses,
              const Operation* final_read, std::vector<Violation>& violations);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_KEY_CHECKER_H_
