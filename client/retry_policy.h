// What may be repeated, where, how often and how soon. Plain values in, plain
// values out; the calls of the client library act on it.
//
// Sources: Brooker, "Exponential backoff and jitter" (full jitter); the retry
// throttling of gRPC's A6 proposal (token bucket).

#ifndef RINGKV_CLIENT_RETRY_POLICY_H_
#define RINGKV_CLIENT_RETRY_POLICY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ringkv {

// How often an operation may take effect without harm.
enum class Repeatable : uint8_t {
  // Reads: anywhere.
  kRead,
  // Writes with a context in a siblings keyspace: anywhere, since a repeat can
  // only add an equal sibling.
  kAnywhere,
  // Other writes: only at the same run of the same coordinator.
  kSameCoordinator,
};

// A write may be repeated anywhere only if it names a context and the keyspace
// is known to keep siblings.
Repeatable RepeatableWrite(bool has_context, bool siblings_keyspace);

// What one try says about its operation.
enum class TryVerdict : uint8_t {
  kDone,       // it took effect, or was answered
  kRefused,    // it did not take effect, and would not elsewhere either
  kNotDone,    // it did not take effect; another try may
  kAmbiguous,  // it may have taken effect (writes only)
};

struct TryReport {
  absl::StatusCode code = absl::StatusCode::kOk;
  // False if the request certainly never left this process.
  bool sent = true;
  // The node said that it refused before anything was done.
  bool said_not_done = false;
  // The node asked to come back after so long; 0: it did not.
  int retry_after_ms = 0;
  // The try named the run of the node that an earlier try went to.
  bool pinned = false;
};

TryVerdict Judge(Repeatable repeatable, const TryReport& report);

// Where the next try may go, after one with `verdict` (kNotDone or kAmbiguous).
enum class NextTry : uint8_t { kAnyNode, kSameRun, kNone };

// `ambiguous_before`: this or an earlier try was kAmbiguous. `run_known`: the
// first try went to a known run of a node.
NextTry WhereNext(Repeatable repeatable, bool ambiguous_before, bool run_known);

// Bounds retries to a share of the calls. Not thread-safe.
class RetryBudget {
 public:
  // Requires ratio in [0, 1] and burst >= 0.
  RetryBudget(double ratio, double burst)
      : ratio_(ratio), burst_(burst), tokens_(burst) {}

  // A call begins: earns `ratio` of a retry.
  void OnCall();
  // Takes one retry out of the budget; false if there is none.
  bool TakeRetry();
  double tokens() const { return tokens_; }

 private:
  double ratio_;
  double burst_;
  double tokens_;
};

// Delay before retry `n` (from 0): min(max, base * 2^n) times `uniform`, which
// is drawn from [0, 1).
absl::Duration FullJitter(absl::Duration base, absl::Duration max, int n,
                          double uniform);

// Recent quantile of latencies, without keeping them: moves up by q and down by
// 1-q steps, the step following the estimate. Not thread-safe. Source: Ma,
// Muthukrishnan, Sandler, "Frugal streaming for estimating quantiles".
class LatencyQuantile {
 public:
  explicit LatencyQuantile(double quantile) : quantile_(quantile) {}
  void Add(absl::Duration latency);
  // Zero before the first.
  absl::Duration Estimate() const { return absl::Seconds(seconds_); }

 private:
  double quantile_;
  double seconds_ = 0;
};

// When to ask a second node as well: 2 * p99, at least `least`, at most a third
// of what remains.
absl::Duration HedgeDelay(absl::Duration p99, absl::Duration least,
                          absl::Duration remaining);

// The status of a call that ended, as absl has it, with the unknown mark if
// `unknown` and with `detail` (where and how often it was tried) at the end.
absl::Status EndStatus(const absl::Status& last, bool unknown,
                       absl::string_view detail);

// Puts the mark that IsOutcomeUnknown() finds.
void MarkOutcomeUnknown(absl::Status& status);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_RETRY_POLICY_H_
