#include "server/rpc/commit_thread.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "server/rpc/clock_system.h"

namespace ringkv {
namespace {

// A sync for which the disk has no room is tried again after this.
constexpr absl::Duration kRetry = absl::Milliseconds(50);

}  // namespace

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
      const absl::Duration pause =
          retrying_ ? std::min(interval_, kRetry) : interval_;
      wake_.wait_until(lock, ToSteady(SystemInstant() + pause), [this] {
        return (requested_ && !retrying_) || stopping_;
      });
      retrying_ = false;
      requested_ = false;
      stopping = stopping_;
    }
    if (engine_.LastSequence() <= synced) continue;
    const Instant begin = SystemInstant();
    absl::StatusOr<uint64_t> sequence = engine_.Sync();
    if (absl::IsResourceExhausted(sequence.status())) {
      // The disk is full: whoever waits goes on waiting. The pause of the next
      // round keeps this from spinning; a stop does not wait for space.
      const std::lock_guard lock(mutex_);
      retrying_ = true;
      continue;
    }
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
