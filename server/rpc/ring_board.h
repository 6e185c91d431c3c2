// The newest ring as clients get it, and those who watch it.

#ifndef RINGKV_SERVER_RPC_RING_BOARD_H_
#define RINGKV_SERVER_RPC_RING_BOARD_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "ringkv/v1/kv.pb.h"

namespace ringkv {

using RingNotice = std::shared_ptr<const v1::WatchRingResponse>;

class RingWatcher {
 public:
  virtual ~RingWatcher() = default;
  // Newer than any before. Called under the board's lock: must not call back.
  virtual void OnRing(const RingNotice& notice) = 0;
  // The node stops.
  virtual void OnClose() = 0;
};

// Thread-safe.
class RingBoard {
 public:
  // Replaces the notice and tells every watcher.
  void Publish(RingNotice notice) {
    const std::lock_guard lock(mutex_);
    notice_ = std::move(notice);
    for (RingWatcher* watcher : watchers_) watcher->OnRing(notice_);
  }

  // Tells `watcher` the present notice at once, unless its epoch is
  // `known_epoch` or there is none. One without a ring says that this node is
  // in none. False if the board is closed.
  bool Add(RingWatcher* watcher, uint64_t known_epoch) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    watchers_.insert(watcher);
    if (notice_ != nullptr &&
        (!notice_->has_ring() || notice_->ring().epoch() > known_epoch)) {
      watcher->OnRing(notice_);
    }
    return true;
  }
  void Remove(RingWatcher* watcher) {
    const std::lock_guard lock(mutex_);
    watchers_.erase(watcher);
  }

  // Ends all watches; later ones are refused.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (RingWatcher* watcher : watchers_) watcher->OnClose();
  }

  size_t watchers() const {
    const std::lock_guard lock(mutex_);
    return watchers_.size();
  }

 private:
  mutable std::mutex mutex_;
  bool closed_ = false;
  RingNotice notice_;
  std::set<RingWatcher*> watchers_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_RING_BOARD_H_
