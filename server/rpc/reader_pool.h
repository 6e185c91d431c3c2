// Threads for reads that may wait for the disk.

#ifndef RINGKV_SERVER_RPC_READER_POOL_H_
#define RINGKV_SERVER_RPC_READER_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "server/shard/events.h"
#include "storage/engine.h"

namespace ringkv {

// Thread-safe.
class ReaderPool {
 public:
  using Done = std::function<void(ReadDone)>;

  // `engine` outlives the pool. At most `queue_max` jobs wait.
  ReaderPool(const Engine& engine, int threads, size_t queue_max);
  ~ReaderPool();
  ReaderPool(const ReaderPool&) = delete;
  ReaderPool& operator=(const ReaderPool&) = delete;

  // Calls `done` on a thread of the pool; or at once, with RESOURCE_EXHAUSTED,
  // if too many jobs wait or the pool has stopped.
  void Post(ReadJob job, Done done);

  // Ends the threads after the jobs they are at; the others are dropped.
  void Stop();

  size_t waiting() const;

 private:
  struct Entry {
    ReadJob job;
    Done done;
  };
  void Run();
  ReadDone Read(const ReadJob& job) const;

  const Engine& engine_;
  const size_t queue_max_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> queue_;  // under mutex_
  bool stopping_ = false;    // under mutex_
  std::vector<std::thread> threads_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_READER_POOL_H_
