#include "client/ring_watcher.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringkv {
namespace {

// A node that takes longer for its first ring is passed over.
constexpr absl::Duration kFirstRingTimeout = absl::Seconds(1);

constexpr absl::Duration kStaggerMax = absl::Milliseconds(100);

constexpr absl::Duration kPauseBase = absl::Milliseconds(50);
constexpr absl::Duration kPauseMax = absl::Seconds(2);

}  // namespace

RingWatcher::RingWatcher(ClusterView& view, IoLoop& io)
    : view_(view), io_(io), thread_([this] { Run(); }) {}

absl::Status RingWatcher::WaitForRing(absl::Duration timeout) {
  const Instant until = Now() + timeout;
  const std::vector<std::shared_ptr<Node>> candidates = view_.WatchCandidates();
  // One at a time, so that a fleet that restarts does not ask every node at
  // once; but soon the next, since a frozen node says nothing.
  const absl::Duration stagger = std::min(
      kStaggerMax, timeout / static_cast<double>(candidates.size() + 2));
  size_t asked = 0;
  std::unique_lock<Mutex> lock(mutex_);
  while (view_.epoch() == 0 && Now() < until) {
    // All have said that they are in no cluster: that will not pass by itself.
    if (last_errors_.size() == candidates.size() &&
        std::all_of(last_errors_.begin(), last_errors_.end(),
                    [](const auto& error) {
                      return absl::IsFailedPrecondition(error.second);
                    })) {
      break;
    }
    const absl::Duration left = until - Now();
    changed_.wait_for(
        lock, absl::ToChronoNanoseconds(
                  asked < candidates.size() ? std::min(stagger, left) : left));
    if (view_.epoch() == 0 && asked < candidates.size()) {
      const std::shared_ptr<Node> node = candidates[asked++];
      lock.unlock();
      AskForRing(io_, node, until - Now(),
                 [this, node](absl::StatusOr<v1::WatchRingResponse> answer) {
                   absl::Status status = answer.status();
                   if (answer.ok()) status = view_.Adopt(*answer, *node);
                   MutexLock lock(mutex_);
                   if (!status.ok()) last_errors_[node->address()] = status;
                   changed_.notify_all();
                 });
      lock.lock();
    }
  }
  if (view_.epoch() != 0) return absl::OkStatus();
  bool formed = true;
  std::string reasons;
  for (const auto& [address, status] : last_errors_) {
    if (absl::IsFailedPrecondition(status)) formed = false;
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", address, ": ",
                    status.message());
  }
  if (!formed) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no cluster was formed yet (kvctl init does that): ", reasons));
  }
  return absl::UnavailableError(
      absl::StrCat("no node gave a ring within ", absl::FormatDuration(timeout),
                   ": ", reasons.empty() ? "none answered" : reasons));
}

void RingWatcher::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void RingWatcher::Run() {
  int failures = 0;
  size_t next = 0;
  std::vector<std::shared_ptr<Node>> candidates;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
    }
    if (next >= candidates.size()) {
      candidates = view_.WatchCandidates();
      next = 0;
    }
    if (Watch(candidates[next])) {
      failures = 0;
      candidates.clear();
    }
    ++next;
    // Once around without a pause: one dead node must not delay the rest.
    if (next < candidates.size() && view_.epoch() == 0) continue;
    const absl::Duration bound =
        std::min(kPauseMax, kPauseBase * (1 << std::min(failures, 10)));
    Pause(bound * view_.RandomDouble());
    ++failures;
  }
}

bool RingWatcher::Watch(const std::shared_ptr<Node>& node) {
  auto context = std::make_shared<grpc::ClientContext>();
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    context_ = context;
  }
  ++watches_;
  // A frozen node accepts the connection and says nothing.
  auto answered = std::make_shared<std::atomic<bool>>(false);
  io_.timers().At(Now() + kFirstRingTimeout, [answered, context] {
    if (!*answered) context->TryCancel();
  });
  const std::unique_ptr<grpc::ClientReader<v1::WatchRingResponse>> reader =
      node->NextConnection().stub->WatchRing(context.get(),
                                             v1::WatchRingRequest());
  v1::WatchRingResponse response;
  absl::Status error;
  bool adopted = false;
  while (reader->Read(&response)) {
    *answered = true;
    error = view_.Adopt(response, *node);
    if (!error.ok()) {
      context->TryCancel();
      break;
    }
    adopted = true;
    node->Trust();
    {
      MutexLock lock(mutex_);
      last_errors_.clear();
    }
    changed_.notify_all();
  }
  const absl::Status status = FromGrpc(reader->Finish());
  {
    MutexLock lock(mutex_);
    context_ = nullptr;
    if (!error.ok()) {
      last_errors_[node->address()] = error;
    } else if (!status.ok() && !*answered) {
      last_errors_[node->address()] =
          absl::IsCancelled(status)
              ? absl::UnavailableError("did not answer in time")
              : status;
    }
    changed_.notify_all();
  }
  return adopted;
}

void RingWatcher::Pause(absl::Duration delay) {
  const auto until =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(delay);
  std::unique_lock<Mutex> lock(mutex_);
  while (!stopping_ &&
         changed_.wait_until(lock, until) != std::cv_status::timeout) {
  }
}

}  // namespace ringkv
