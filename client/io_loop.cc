#include "client/io_loop.h"

#include <utility>

namespace ringkv {
namespace {

thread_local bool on_loop_thread = false;

}  // namespace

IoLoop::IoLoop(int threads) {
  timers_.At(Instant{0}, [] { on_loop_thread = true; });
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      on_loop_thread = true;
      void* tag = nullptr;
      bool ok = false;
      while (queue_.Next(&tag, &ok)) {
        static_cast<CompletionTag*>(tag)->Complete(ok);
      }
    });
  }
}

IoLoop::~IoLoop() { Stop(); }

bool IoLoop::Begin(const std::shared_ptr<Activity>& activity) {
  MutexLock lock(mutex_);
  if (stopping_) return false;
  active_.emplace(activity.get(), activity);
  return true;
}

void IoLoop::End(Activity* activity) {
  bool last = false;
  {
    MutexLock lock(mutex_);
    active_.erase(activity);
    last = stopping_ && active_.empty();
  }
  if (last) ended_.notify_all();
}

void IoLoop::Stop() {
  std::vector<std::shared_ptr<Activity>> running;
  {
    MutexLock lock(mutex_);
    if (stopping_ && threads_.empty()) return;
    stopping_ = true;
    for (const auto& [activity, weak] : active_) {
      if (std::shared_ptr<Activity> strong = weak.lock()) {
        running.push_back(std::move(strong));
      }
    }
  }
  for (const std::shared_ptr<Activity>& activity : running) activity->Cancel();
  running.clear();
  {
    std::unique_lock<Mutex> lock(mutex_);
    while (!active_.empty()) ended_.wait(lock);
  }
  timers_.Stop();
  queue_.Shutdown();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool IoLoop::OnLoopThread() { return on_loop_thread; }

}  // namespace ringkv
