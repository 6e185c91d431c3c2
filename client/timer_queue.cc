#include "client/timer_queue.h"

#include <algorithm>
#include <utility>

namespace ringkv {

TimerQueue::TimerQueue() : thread_([this] { Run(); }) {}

TimerQueue::~TimerQueue() { Stop(); }

void TimerQueue::At(Instant when, Function function) {
  bool first = false;
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    first = heap_.empty() || when < heap_.front().when;
    heap_.push_back({when, next_order_++, std::move(function)});
    std::push_heap(heap_.begin(), heap_.end(), Later());
  }
  if (first) changed_.notify_one();
}

void TimerQueue::Stop() {
  std::vector<Entry> dropped;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(heap_);
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void TimerQueue::Run() {
  std::unique_lock<Mutex> lock(mutex_);
  while (!stopping_) {
    if (heap_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Instant next = heap_.front().when;
    if (Now() < next) {
      changed_.wait_until(lock, std::chrono::steady_clock::time_point(
                                    std::chrono::nanoseconds(next.nanos)));
      continue;
    }
    std::pop_heap(heap_.begin(), heap_.end(), Later());
    Function function = std::move(heap_.back().function);
    heap_.pop_back();
    lock.unlock();
    function();
    function = nullptr;
    lock.lock();
  }
}

}  // namespace ringkv
