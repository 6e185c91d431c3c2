// Runs functions after a delay, on one thread of its own.

#ifndef RINGKV_CLIENT_TIMER_QUEUE_H_
#define RINGKV_CLIENT_TIMER_QUEUE_H_

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/time.h"

namespace ringkv {

// The client's monotonic clock.
inline Instant Now() {
  return Instant{std::chrono::duration_cast<std::chrono::nanoseconds>(
                     std::chrono::steady_clock::now().time_since_epoch())
                     .count()};
}

// Timers are not cancelled: a function that is no longer wanted finds out by
// itself (it holds a weak reference), which keeps arming cheap. Thread-safe.
class TimerQueue {
 public:
  using Function = absl::AnyInvocable<void()>;

  TimerQueue();
  ~TimerQueue();

  // Runs `function` at `when` or soon after, unless Stop() comes first; then it
  // is destroyed without being run. It may not block.
  void At(Instant when, Function function);

  // Drops what is left and waits for the function that runs. Must not be called
  // from a timer.
  void Stop();

 private:
  struct Entry {
    Instant when;
    uint64_t order;
    Function function;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.when != b.when ? a.when > b.when : a.order > b.order;
    }
  };

  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::vector<Entry> heap_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_order_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_TIMER_QUEUE_H_
