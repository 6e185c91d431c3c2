// The threads of a client: a gRPC completion queue, a timer queue, and the list
// of what is under way, so that Stop() can end it all and wait.

#ifndef RINGKV_CLIENT_IO_LOOP_H_
#define RINGKV_CLIENT_IO_LOOP_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "client/timer_queue.h"

namespace ringkv {

// Completion queue tags are of this type.
class CompletionTag {
 public:
  virtual ~CompletionTag() = default;
  // Called once for each operation started with this tag. May delete the tag.
  virtual void Complete(bool ok) = 0;
};

// Something under way that Stop() must be able to end soon.
class Activity {
 public:
  virtual ~Activity() = default;
  // Makes the activity end soon, on its own. May be called at any time and more
  // than once.
  virtual void Cancel() = 0;
};

// Thread-safe.
class IoLoop {
 public:
  explicit IoLoop(int threads);
  ~IoLoop();

  grpc::CompletionQueue* queue() { return &queue_; }
  TimerQueue& timers() { return timers_; }

  // False once Stop() has begun: do not start. Every Begin that was true needs
  // an End; after End the activity starts nothing on the queue any more.
  bool Begin(const std::shared_ptr<Activity>& activity);
  void End(Activity* activity);

  // Cancels what is under way, waits for its End and for the threads.
  void Stop();

  // True on a thread that runs completions: it must not wait for another.
  static bool OnLoopThread();

 private:
  grpc::CompletionQueue queue_;
  TimerQueue timers_;
  Mutex mutex_;
  CondVar ended_;
  absl::flat_hash_map<Activity*, std::weak_ptr<Activity>> active_
      ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_IO_LOOP_H_
