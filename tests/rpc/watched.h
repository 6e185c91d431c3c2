// Lets a test wait for what another thread does.

#ifndef RINGKV_TESTS_RPC_WATCHED_H_
#define RINGKV_TESTS_RPC_WATCHED_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

namespace ringkv {

template <class T>
class Watched {
 public:
  void Set(T value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
    changed_.notify_all();
  }
  void Update(const std::function<void(T&)>& change) {
    const std::lock_guard lock(mutex_);
    change(value_);
    changed_.notify_all();
  }
  // False if it does not come true within twenty seconds.
  bool WaitFor(const std::function<bool(const T&)>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [&] { return condition(value_); });
  }
  T Get() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  T value_{};
};

}  // namespace ringkv

#endif  // RINGKV_TESTS_RPC_WATCHED_H_
