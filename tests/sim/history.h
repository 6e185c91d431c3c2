// What clients did and were told, by key. The checkers judge a run from this
// alone: they know nothing of dots, contexts' bytes or the code they check.
//
// Each put writes a value that names its own operation, so that whatever shows
// up anywhere can be traced to the one write it comes from.

#ifndef RINGKV_TESTS_SIM_HISTORY_H_
#define RINGKV_TESTS_SIM_HISTORY_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/sim/scheduler.h"

namespace ringkv::sim {

// Names an operation within one run; a put's value carries it.
using OperationId = uint32_t;
inline constexpr OperationId kNoOperation = UINT32_MAX;

enum class OperationKind : uint8_t {
  kGet,
  kPut,
  kDelete,
  kScan,  // what one page of a scan showed of one key
};

enum class Outcome : uint8_t {
  kUnknown,  // no answer, or one that says it may still take effect
  kOk,
  kRefused,  // certainly without effect
};

// A value that an answer showed.
struct Shown {
  OperationId writer = kNoOperation;  // kNoOperation: a value nobody wrote
  uint64_t hlc = 0;
  std::string raw;  // kept for values that nobody wrote
};

struct Operation {
  OperationId id = kNoOperation;
  OperationKind kind = OperationKind::kGet;
  int client = 0;
  WorldTime invoked = 0;
  // When the answer came. Reads without one tell nothing; writes without one
  // may take effect at any later time.
  WorldTime ended = kForever;
  Outcome outcome = Outcome::kUnknown;
  bool strict = false;
  // Writes.
  bool blind = false;
  bool expires = false;   // has a time to live: may vanish by itself
  bool repeated = false;  // sent more than once: may stand under several dots
  // Whether the request carried a context, and from which operation's answer it
  // was taken.
  std::optional<OperationId> context_from;
  // Answers.
  std::vector<Shown> shown;
  bool answered_context = false;
  uint32_t unresolved_siblings = 0;
  uint32_t replica_acks = 0;
  uint32_t stand_in_acks = 0;
  uint32_t acks_needed = 0;

  bool IsWrite() const {
    return kind == OperationKind::kPut || kind == OperationKind::kDelete;
  }
  bool IsRead() const { return !IsWrite(); }
  bool MayHaveRun() const { return outcome != Outcome::kRefused; }
};

// The value that operation `id` writes: its id in readable form, padded to
// `bytes` in a way that `WriterOf` verifies.
std::string ValueOf(OperationId id, size_t bytes);
// The operation whose value this is; kNoOperation for anything ValueOf never
// made.
OperationId WriterOf(absl::string_view value);

// All that happened to one key, in order of invocation.
struct KeyHistory {
  std::string keyspace;
  std::string key;
  bool lww = false;
  std::vector<Operation> operations;
  // The ring changed, and at some time no more nodes than this were sure to
  // hold what was acknowledged: as many lost disks may have taken it for good,
  // and the nodes that answer since then never had it. 0: the ring stayed.
  uint32_t least_copies = 0;
  // Values that are left in hints for nodes that are gone: no read finds them
  // before those nodes are replaced. A delete has no value to be known by.
  bool hints_left = false;
  std::set<OperationId> in_hints;
};

// At `at` a node lost power, its disk, or one record: of what it wrote after
// `from`, any suffix is gone.
struct Loss {
  WorldTime from = 0;
  WorldTime at = 0;
  int node = -1;  // -1: one that has no other loss
  // The node goes on answering as if nothing was missing. One that never
  // answers again takes no strict quorum with it: R and W shrink alike with N.
  bool serves_on = true;
};

// The losses that may have taken something of one key with them.
struct Losses {
  std::vector<Loss> losses;
  // Of writes made between `from` and `until`, how many nodes may have lost
  // theirs.
  int Within(WorldTime from, WorldTime until) const {
    int count = 0;
    uint64_t nodes = 0;
    for (const Loss& loss : losses) {
      if (loss.at < from || loss.from > until) continue;
      if (loss.node < 0) {
        ++count;
      } else if (((nodes >> loss.node) & 1) == 0) {
        nodes |= 1ull << loss.node;
        ++count;
      }
    }
    return count;
  }
  // Whether one of them answers reads all the same.
  bool ServedWithin(WorldTime from, WorldTime until) const {
    for (const Loss& loss : losses) {
      if (loss.serves_on && loss.at >= from && loss.from <= until) return true;
    }
    return false;
  }
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_HISTORY_H_
