// What other threads hand to a loop. Any number of writers, one reader, which
// takes everything at once.
//
// Bounded in items and bytes for what may be refused (Offer); what the loop
// must hear (Push) always gets in, and its senders are bounded by other means.
// A writer pays for a wake-up only when the reader sleeps.

#ifndef RINGKV_SERVER_RPC_MAILBOX_H_
#define RINGKV_SERVER_RPC_MAILBOX_H_

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "base/time.h"
#include "server/rpc/clock_system.h"

namespace ringkv {

template <class Item>
class Mailbox {
 public:
  Mailbox(size_t items_max, size_t bytes_max)
      : items_max_(items_max), bytes_max_(bytes_max) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // False, and `item` is left as it was, if a bound is reached.
  bool Offer(Item&& item, size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (items_.size() >= items_max_ || bytes_ + bytes > bytes_max_) {
      return false;
    }
    items_.push_back(std::move(item));
    bytes_ += bytes;
    WakeLocked();
    return true;
  }

  void Push(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    WakeLocked();
  }

  // Makes the present or next Take return at once.
  void Wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    WakeLocked();
  }

  // Waits for an item, Wake() or `until`, then swaps all items into `out`,
  // which must be empty.
  void Take(std::vector<Item>& out, Instant until) {
    std::unique_lock lock(mutex_);
    if (items_.empty() && !woken_) {
      sleeping_ = true;
      const auto ready = [this] { return !items_.empty() || woken_; };
      if (until == Instant::Infinite()) {
        wake_.wait(lock, ready);
      } else {
        wake_.wait_until(lock, ToSteady(until), ready);
      }
      sleeping_ = false;
    }
    woken_ = false;
    bytes_ = 0;
    out.swap(items_);
  }

  size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  void WakeLocked() {
    if (!sleeping_) return;
    sleeping_ = false;
    wake_.notify_one();
  }

  const size_t items_max_;
  const size_t bytes_max_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  // All below under mutex_.
  std::vector<Item> items_;
  size_t bytes_ = 0;
  bool sleeping_ = false;
  bool woken_ = false;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_MAILBOX_H_
