#include "server/rpc/loop_thread.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/codec/data_codec.h"
#include "server/rpc/clock_system.h"

namespace ringkv {
namespace {

// While the engine stalls, the kept batch is tried again after this.
constexpr absl::Duration kStallRetry = absl::Milliseconds(5);
// Calls that wait for a stalled engine for longer are refused.
constexpr absl::Duration kStallPatience = absl::Milliseconds(250);
constexpr absl::Duration kStatsInterval = absl::Seconds(1);

size_t CallBytes(const ClientCall& call) {
  size_t bytes = 256;
  if (const PutCall* put = std::get_if<PutCall>(&call)) {
    bytes += put->key.size() + put->value.size() +
             (put->context.has_value() ? put->context->size() : 0);
  }
  return bytes;
}

ClientAnswer Refusal(absl::Status status) {
  ClientAnswer answer;
  answer.status = std::move(status);
  return answer;
}

}  // namespace

CallSink::CallSink()
    : serial_([] {
        static std::atomic<uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
      }()) {}

LoopThread::LoopThread(std::unique_ptr<Shard> shard, Engine& engine,
                       Limits limits, Hooks hooks)
    : shard_(std::move(shard)),
      turn_(*shard_, engine),
      hooks_(std::move(hooks)),
      mailbox_(limits.mailbox_items_max, limits.mailbox_bytes_max) {}

LoopThread::~LoopThread() { Stop(); }

void LoopThread::Start() {
  thread_ = std::thread([this] { Run(); });
}

void LoopThread::Stop() {
  stopping_ = true;
  mailbox_.Wake();
  if (thread_.joinable()) thread_.join();
}

bool LoopThread::Offer(PostedCall&& call) {
  const size_t bytes = CallBytes(call.call);
  Item item(std::move(call));
  if (mailbox_.Offer(std::move(item), bytes)) return true;
  call = std::move(std::get<PostedCall>(item));
  refused_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

bool LoopThread::Offer(MessageArrived&& message) {
  const size_t bytes = DataBytes(message.message);
  if (mailbox_.Offer(std::move(message), bytes)) return true;
  dropped_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void LoopThread::Cancel(CallId first, uint64_t count) {
  mailbox_.Push(CancelCalls{first, count});
}
void LoopThread::CancelAll(uint64_t sink_serial) {
  mailbox_.Push(CancelSink{sink_serial});
}
void LoopThread::Adopt(RingAdopted ring, std::function<void()> adopted) {
  mailbox_.Push(AdoptRing{std::move(ring), std::move(adopted)});
}
void LoopThread::PeersChange(PeersChanged peers) {
  mailbox_.Push(std::move(peers));
}
void LoopThread::Begin(BeginTransfers begin) { mailbox_.Push(begin); }
void LoopThread::SetReadOnly(bool read_only) {
  mailbox_.Push(ReadOnlyChanged{read_only});
}
void LoopThread::ReadEnds(ReadDone done) { mailbox_.Push(std::move(done)); }
void LoopThread::Drain() { mailbox_.Push(DrainNow{}); }
void LoopThread::GiveUp() { mailbox_.Push(GiveUpNow{}); }

void LoopThread::Synced(uint64_t sequence) {
  uint64_t before = synced_.load();
  while (before < sequence &&
         !synced_.compare_exchange_weak(before, sequence)) {
  }
  mailbox_.Wake();
}

ShardStats LoopThread::Stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

void LoopThread::Run() {
  std::vector<Item> items;
  Released released;
  while (!stopping_) {
    // While the engine stalls the shard takes no input: what comes waits, for a
    // time, and is then refused.
    if (turn_.stalled()) {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(kStallRetry));
      const Instant now = SystemInstant();
      if (stalled_since_ == Instant{}) stalled_since_ = now;
      if (gave_up_ || now - stalled_since_ >= kStallPatience) RefuseWaiting();
    } else {
      stalled_since_ = {};
      items = std::move(kept_);
      kept_.clear();
      if (items.empty()) {
        mailbox_.Take(items, std::min(shard_->NextTimer(), stats_due_));
      }
    }
    const Time time = SystemTime();
    released.Clear();
    for (Item& item : items) Accept(std::move(item), time.now);
    items.clear();
    if (!turn_.stalled() && shard_->NextTimer() <= time.now) {
      events_.push_back(TimerFired{});
    }
    const uint64_t synced = synced_.load();
    if (synced > synced_told_) {
      synced_told_ = synced;
      turn_.Synced(synced, released);
    }
    if (absl::Status status = turn_.Turn(events_, time, released);
        !status.ok()) {
      hooks_.failed(std::move(status));
      break;
    }
    turns_.fetch_add(1, std::memory_order_relaxed);
    pulse_.Beat(time.now);
    if (turn_.stalled()) stalls_.fetch_add(1, std::memory_order_relaxed);
    HandOut(released);
    in_flight_ = std::max(shard_->in_flight(), calls_.size());
    drained_ = draining_;
    if (time.now >= stats_due_) PublishStats(time.now);
    hooks_.check_clock();
  }
  pulse_.End();
  EndCalls();
}

void LoopThread::Accept(Item&& item, Instant now) {
  if (PostedCall* call = std::get_if<PostedCall>(&item)) {
    Accept(std::move(*call), now);
  } else if (MessageArrived* message = std::get_if<MessageArrived>(&item)) {
    events_.push_back(std::move(*message));
  } else if (ReadDone* read = std::get_if<ReadDone>(&item)) {
    events_.push_back(std::move(*read));
  } else if (const CancelCalls* cancel = std::get_if<CancelCalls>(&item)) {
    for (CallId id = cancel->first; id < cancel->first + cancel->count; ++id) {
      Fail(id, absl::CancelledError("the client went away"));
    }
  } else if (const CancelSink* cancel = std::get_if<CancelSink>(&item)) {
    std::vector<CallId> ids;
    for (const auto& [id, handle] : calls_) {
      if (handle.sink->serial() == cancel->serial) ids.push_back(id);
    }
    for (const CallId id : ids) {
      Fail(id, absl::CancelledError("the client went away"));
    }
  } else if (AdoptRing* adopt = std::get_if<AdoptRing>(&item)) {
    self_ = adopt->ring.self;
    adoptions_.emplace_back(adopt->ring.ring->epoch(),
                            std::move(adopt->adopted));
    events_.push_back(std::move(adopt->ring));
  } else if (ReadOnlyChanged* changed = std::get_if<ReadOnlyChanged>(&item)) {
    events_.push_back(*changed);
  } else if (PeersChanged* peers = std::get_if<PeersChanged>(&item)) {
    peers_ = peers->peers;
    events_.push_back(std::move(*peers));
  } else if (std::holds_alternative<GiveUpNow>(item)) {
    gave_up_ = true;
    AnswerAll();
  } else if (const auto* begin = std::get_if<BeginTransfers>(&item)) {
    events_.push_back(*begin);
  } else {
    shard_->Drain();
    draining_ = true;
  }
}

void LoopThread::Accept(PostedCall&& call, Instant now) {
  if (call.deadline <= now) {
    Answer(call.handle, Refusal(absl::DeadlineExceededError(
                            "the deadline passed before the call was begun")));
    return;
  }
  calls_.emplace(call.id, call.handle);
  events_.push_back(CallArrived{call.id, std::move(call.call), call.deadline});
}

void LoopThread::RefuseWaiting() {
  std::vector<Item> items;
  mailbox_.Wake();
  mailbox_.Take(items, Instant{});
  for (Item& item : items) {
    if (const auto* call = std::get_if<PostedCall>(&item)) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      Answer(call->handle,
             Refusal(gave_up_
                         ? absl::UnavailableError(
                               "this node stops; nothing was done, use another "
                               "node")
                         : absl::ResourceExhaustedError(
                               "the store stalls, or its disk is full; nothing "
                               "was done, try again later")));
    } else if (std::holds_alternative<GiveUpNow>(item)) {
      gave_up_ = true;
      AnswerAll();
    } else if (std::holds_alternative<MessageArrived>(item)) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
    } else {
      kept_.push_back(std::move(item));
    }
  }
  FlushSinks();
}

void LoopThread::Answer(const CallHandle& handle, ClientAnswer&& answer) {
  if (handle.sink->OnAnswer(handle.tag, handle.kind, std::move(answer))) {
    flushes_.push_back(handle.sink);
  }
}

void LoopThread::Fail(CallId id, absl::Status status) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  const CallHandle handle = found->second;
  calls_.erase(found);
  events_.push_back(CallCancelled{id});
  Answer(handle, Refusal(std::move(status)));
}

void LoopThread::HandOut(Released& released) {
  for (OutgoingMessage& out : released.messages) {
    outgoing_[out.to].push_back(std::move(out.message));
  }
  for (auto& [node, messages] : outgoing_) {
    if (messages.empty()) continue;
    if (node == self_) {
      hooks_.send_self(self_, std::move(messages));
    } else {
      LinkId link = kNoLink;
      if (peers_ != nullptr) {
        const auto peer = peers_->find(node);
        if (peer != peers_->end()) link = peer->second.data_link;
      }
      if (link == kNoLink) {
        dropped_.fetch_add(messages.size(), std::memory_order_relaxed);
      } else {
        hooks_.send(link, std::move(messages));
      }
    }
    messages.clear();
  }
  for (OutgoingAnswer& out : released.answers) {
    const auto found = calls_.find(out.id);
    if (found == calls_.end()) continue;  // cancelled
    const CallHandle handle = found->second;
    calls_.erase(found);
    Answer(handle, std::move(out.answer));
  }
  FlushSinks();
  for (ReadJob& job : released.reads) hooks_.read(std::move(job));
  if (released.wants_sync) hooks_.wants_sync();
  if (released.wants_ring) hooks_.wants_ring(released.wants_ring_from);
  if (released.adopted != 0) TellAdopted(released.adopted);
  if (released.transfers.has_value()) hooks_.transfers(*released.transfers);
}

void LoopThread::TellAdopted(RingEpoch epoch) {
  // In the order of their epochs.
  size_t told = 0;
  while (told < adoptions_.size() && adoptions_[told].first <= epoch) {
    adoptions_[told++].second();
  }
  adoptions_.erase(adoptions_.begin(),
                   adoptions_.begin() + static_cast<std::ptrdiff_t>(told));
}

void LoopThread::FlushSinks() {
  for (CallSink* sink : flushes_) sink->Flush();
  flushes_.clear();
}

void LoopThread::PublishStats(Instant now) {
  ShardStats stats = shard_->Stats();
  stats_due_ = now + kStatsInterval;
  const std::lock_guard lock(stats_mutex_);
  stats_ = std::move(stats);
}

void LoopThread::EndCalls() {
  // Also what nobody took out of the mailbox: each call is answered once. (What
  // was kept holds no calls.)
  std::vector<Item> items;
  mailbox_.Wake();
  mailbox_.Take(items, Instant{});
  for (Item& item : items) {
    if (PostedCall* call = std::get_if<PostedCall>(&item)) {
      calls_.emplace(call->id, call->handle);
    }
  }
  AnswerAll();
}

void LoopThread::AnswerAll() {
  const absl::flat_hash_map<CallId, CallHandle> calls = std::move(calls_);
  calls_.clear();
  for (const auto& [id, handle] : calls) {
    Answer(handle, Refusal(absl::UnavailableError(
                       "this node stops; the call may have taken effect")));
  }
  FlushSinks();
}

}  // namespace ringkv
