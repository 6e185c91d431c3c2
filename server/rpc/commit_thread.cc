#include "server/rpc/commit_thread.h"

#include <utility>

#include "absl/status/statusor.h"
#include "server/rpc/clock_system.h"

namespace ringkv {

CommitThread::CommitThread(Engine& engine, absl::Duration interval, Hooks hooks)
    : engine_(engine),
      interval_(interval),
      hooks_(std::move(hooks)),
      thread_([this] { Run(); }) {}

CommitThread::~CommitThread() { Stop(); }

void CommitThread::Request() {
  const std::lock_guard lock(mutex_);
  if (requested_) return;
  requested_ = true;
  wake_.notify_one();
}

void CommitThread::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void CommitThread::Run() {
  uint64_t synced = 0;
  bool stopping = false;
  while (!stopping) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_until(lock, ToSteady(SystemInstant() + interval_),
                       [this] { return requested_ || stopping_; });
      requested_ = false;
      stopping = stopping_;
    }
    if (engine_.LastSequence() <= synced) continue;
    const Instant begin = SystemInstant();
    absl::StatusOr<uint64_t> sequence = engine_.Sync();
    if (!sequence.ok()) {
      hooks_.failed(sequence.status());
      return;
    }
    synced = *sequence;
    syncs_.fetch_add(1, std::memory_order_relaxed);
    sync_nanos_.fetch_add(SystemInstant().nanos - begin.nanos,
                          std::memory_order_relaxed);
    hooks_.synced(synced);
  }
}

}  // namespace ringkv
