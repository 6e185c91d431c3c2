// Makes writes durable: one thread that calls Engine::Sync() for all loops, so
// that one fsync serves every turn that ended before it began.
//
// Syncs at once when asked, and every `interval` if something was written since
// the last one. While the disk is full it tries again and again. Thread-safe.

#ifndef RINGKV_SERVER_RPC_COMMIT_THREAD_H_
#define RINGKV_SERVER_RPC_COMMIT_THREAD_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "storage/engine.h"

namespace ringkv {

class CommitThread {
 public:
  struct Hooks {
    // All writes up to `sequence` are durable. On the commit thread.
    std::function<void(uint64_t sequence)> synced;
    // The engine can no longer be trusted. At most once; the thread has ended.
    std::function<void(absl::Status)> failed;
  };

  // Starts the thread. `engine` outlives this.
  CommitThread(Engine& engine, absl::Duration interval, Hooks hooks);
  ~CommitThread();
  CommitThread(const CommitThread&) = delete;
  CommitThread& operator=(const CommitThread&) = delete;

  // Everything written so far is to be durable soon; `synced` tells.
  void Request();

  // Ends the thread after a last sync of what was written; waits for it.
  void Stop();

  uint64_t syncs() const { return syncs_.load(std::memory_order_relaxed); }
  absl::Duration sync_time() const {
    return absl::Nanoseconds(sync_nanos_.load(std::memory_order_relaxed));
  }

 private:
  void Run();

  Engine& engine_;
  const absl::Duration interval_;
  const Hooks hooks_;
  std::atomic<uint64_t> syncs_{0};
  std::atomic<int64_t> sync_nanos_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool requested_ = false;  // under mutex_
  bool retrying_ = false;   // under mutex_
  bool stopping_ = false;   // under mutex_
  std::thread thread_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_COMMIT_THREAD_H_
