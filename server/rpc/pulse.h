// When a loop last turned, for whoever asks whether it is stuck. Thread-safe.

#ifndef RINGKV_SERVER_RPC_PULSE_H_
#define RINGKV_SERVER_RPC_PULSE_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/time.h"

namespace ringkv {

class Pulse {
 public:
  // The loop turns.
  void Beat(Instant now) { last_.store(now.nanos, std::memory_order_relaxed); }
  // It has ended: silence means nothing any more.
  void End() { last_.store(kNone, std::memory_order_relaxed); }

  // Time since the last beat; zero before the first, and after the end.
  absl::Duration Silence(Instant now) const {
    const int64_t last = last_.load(std::memory_order_relaxed);
    return last == kNone || now.nanos < last ? absl::ZeroDuration()
                                             : now - Instant{last};
  }

 private:
  static constexpr int64_t kNone = INT64_MIN;
  std::atomic<int64_t> last_{kNone};
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_PULSE_H_
