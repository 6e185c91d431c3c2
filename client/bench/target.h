// What a benchmark sends its operations to.

#ifndef RINGKV_CLIENT_BENCH_TARGET_H_
#define RINGKV_CLIENT_BENCH_TARGET_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client/bench/workload.h"

namespace ringkv::bench {

enum class Verdict : uint8_t {
  kDone,
  // For sure without effect, or a read.
  kFailed,
  // A write that may have taken effect, and nobody knows.
  kUnknown,
  // A read that found nothing of a record that was stored.
  kMissing,
  // A read that found a value of another record.
  kWrong,
  // A strict read that did not show what it had to; see History.
  kStale,
};

struct Outcome {
  Verdict verdict = Verdict::kDone;
  // Why it was not done.
  absl::Status status;
  // Was unknown at first; reading and writing again made it known. Part of
  // kDone.
  bool resolved = false;
  // A read that found more than one value.
  bool siblings = false;
  // Entries that a scan returned.
  uint32_t entries = 0;
};

class Completion {
 public:
  virtual ~Completion() = default;
  // Called once for each Start(), from any thread, even from inside Start().
  // May start other operations.
  virtual void Done(const Outcome& outcome) = 0;
};

// Thread-safe.
class Target {
 public:
  virtual ~Target() = default;
  // `completion` outlives the operation. May hold the request back until
  // Flush(), or until the completion inside which it was started has returned.
  virtual void Start(const Operation& operation, Completion* completion) = 0;
  virtual void Flush() = 0;
};

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_TARGET_H_
