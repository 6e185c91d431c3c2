#include "server/rpc/reader_pool.h"

#include <utility>

namespace ringkv {

ReaderPool::ReaderPool(const Engine& engine, int threads, size_t queue_max)
    : engine_(engine), queue_max_(queue_max) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

ReaderPool::~ReaderPool() { Stop(); }

void ReaderPool::Post(ReadJob job, Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_ && queue_.size() < queue_max_) {
      queue_.push_back({std::move(job), std::move(done)});
      wake_.notify_one();
      return;
    }
  }
  const absl::Status status =
      absl::ResourceExhaustedError("too many reads wait for the disk");
  ReadDone refused;
  refused.job = job.job;
  refused.result.outcome = ReadResult::Outcome::kFailed;
  refused.result.status = status;
  refused.range = status;
  done(std::move(refused));
}

void ReaderPool::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

size_t ReaderPool::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void ReaderPool::Run() {
  while (true) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    entry.done(Read(entry.job));
  }
}

ReadDone ReaderPool::Read(const ReadJob& job) const {
  ReadDone done;
  done.job = job.job;
  if (job.is_range) {
    done.range = engine_.Range(job.family, job.begin, job.end, job.limits);
  } else {
    done.result = engine_.Get(job.family, job.begin, ReadTier::kAll);
  }
  return done;
}

}  // namespace ringkv
