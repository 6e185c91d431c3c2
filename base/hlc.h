// Hybrid logical clock: timestamps that follow causality and stay near the wall
// clock. Source: Kulkarni et al., "Logical Physical Clocks", OPODIS 2014.

#ifndef RINGKV_BASE_HLC_H_
#define RINGKV_BASE_HLC_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/time.h"

namespace ringkv {

// Milliseconds since 1970 in the upper 48 bits, a counter in the lower 16. The
// integer order is the clock's order. 0 is "never".
enum class HlcTimestamp : uint64_t {};
inline constexpr HlcTimestamp kNeverHlc{0};

constexpr uint64_t ToInt(HlcTimestamp t) { return static_cast<uint64_t>(t); }
constexpr HlcTimestamp HlcFromMillis(int64_t millis) {
  return HlcTimestamp{static_cast<uint64_t>(millis) << 16};
}
constexpr int64_t HlcMillis(HlcTimestamp t) {
  return static_cast<int64_t>(ToInt(t) >> 16);
}

// The node's one clock, shared by all its loops. Never gives a timestamp twice,
// nor one above `bound()`, which is on disk before it is raised here: so a
// restart that begins at the stored bound never repeats or undercuts what was
// given. Thread-safe (lock-free).
class Hlc {
 public:
  // `persisted_bound` is the bound read from disk at start, or kNeverHlc.
  explicit Hlc(HlcTimestamp persisted_bound)
      : last_(ToInt(persisted_bound)), bound_(ToInt(persisted_bound)) {}

  // A fresh timestamp above all that were given or observed, and above `floor`.
  // UNAVAILABLE while the bound on disk is not far enough ahead.
  absl::StatusOr<HlcTimestamp> Now(WallTime wall,
                                   HlcTimestamp floor = kNeverHlc);

  // Makes every later timestamp exceed `seen`.
  void Observe(HlcTimestamp seen);

  // The greatest timestamp given or observed so far.
  HlcTimestamp Last() const {
    return HlcTimestamp{last_.load(std::memory_order_acquire)};
  }

  HlcTimestamp bound() const {
    return HlcTimestamp{bound_.load(std::memory_order_acquire)};
  }

  // Allows timestamps up to `bound`. Requires that it is durable already.
  void RaiseBound(HlcTimestamp bound);

 private:
  std::atomic<uint64_t> last_;
  std::atomic<uint64_t> bound_;
};

}  // namespace ringkv

#endif  // RINGKV_BASE_HLC_H_
