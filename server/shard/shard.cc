#include "server/shard/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/status.h"
#include "base/token.h"
#include "server/coordinator/common.h"
#include "server/coordinator/forward.h"
#include "server/coordinator/get.h"
#include "server/coordinator/locate.h"
#include "server/coordinator/put.h"
#include "server/coordinator/scan.h"
#include "server/handoff/handoff.h"
#include "server/replica/rebuild.h"
#include "server/replica/replica.h"
#include "server/shard/core.h"
#include "server/streaming/slice.h"
#include "server/streaming/source.h"
#include "server/streaming/streaming.h"

namespace ringkv {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
// Messages that wait for a newer ring; beyond it they are dropped, as a network
// may drop them.
constexpr size_t kParkedMax = 1024;

// Of what a repeat must have in common with the first try.
uint64_t Fingerprint(const PutCall& put) {
  std::string text = absl::StrCat(
      put.keyspace.size(), ":", put.keyspace, put.key.size(), ":", put.key,
      put.is_delete ? "D" : "P", put.context.has_value() ? "C" : "-");
  if (put.context.has_value()) absl::StrAppend(&text, *put.context);
  absl::StrAppend(&text, ":", put.value);
  return Hash64(text);
}

// Where the answer to a put goes.
struct Caller {
  CallId call = 0;
  NodeNumber from{};  // forwarded by it, under `operation`
  uint64_t operation = 0;
};

}  // namespace

class Shard::Impl {
 public:
  Impl(ShardOptions options, const Engine& engine, Hlc& hlc, Random& random)
      : core_(std::move(options), engine, hlc, random),
        handoff_(core_),
        rebuilds_(core_),
        streaming_(core_) {}

  absl::Status Recover() {
    RETURN_IF_ERROR(core_.hints_.Recover(core_.engine_));
    return streaming_.Recover(core_.engine_);
  }

  void Step(ShardEvent&& event, Time time, Effects& effects) {
    RINGKV_CHECK(time.now >= core_.time_.now);
    if (!started_) {
      started_ = true;
      core_.outcomes_ = Outcomes(time.now, core_.options_.outcomes_kept,
                                 core_.options_.outcome_bytes_max);
    }
    core_.time_ = time;
    core_.effects_ = &effects;
    std::visit([this](auto& e) { On(std::move(e)); }, event);
    DrainLocal();
    FailDroppedLoads();
    rebuilds_.Start();
    DrainLocal();
    core_.ended_.clear();
    core_.effects_ = nullptr;
  }

  void TurnCommitted(uint64_t sequence) {
    for (auto& overlay : core_.overlay_) {
      if (!overlay.empty()) overlay.clear();
    }
    core_.dropped_.clear();
    if (core_.has_ring()) core_.committed_epoch_ = core_.ring_->epoch();
    if (!core_.written_this_turn_.empty()) {
      for (uint64_t hash : core_.written_this_turn_) {
        core_.unsynced_[hash] = sequence;
      }
      core_.unsynced_order_.emplace_back(sequence,
                                         std::move(core_.written_this_turn_));
      core_.written_this_turn_.clear();
    }
  }

  void Synced(uint64_t sequence) {
    while (!core_.unsynced_order_.empty() &&
           core_.unsynced_order_.front().first <= sequence) {
      for (uint64_t hash : core_.unsynced_order_.front().second) {
        const auto it = core_.unsynced_.find(hash);
        if (it != core_.unsynced_.end() && it->second <= sequence) {
          core_.unsynced_.erase(it);
        }
      }
      core_.unsynced_order_.pop_front();
    }
  }

  Instant NextTimer() const {
    Instant next = core_.has_ring() ? next_tick_ : Instant::Infinite();
    if (!core_.timers_.empty()) {
      next = std::min(next, core_.timers_.begin()->first);
    }
    return next;
  }

  void Drain() { draining_ = true; }

  size_t in_flight() const {
    size_t count = 0;
    for (const auto& [id, operation] : core_.operations_) {
      if (!operation->IsBackground()) ++count;
    }
    return count;
  }

  ShardStats Stats() const {
    ShardStats stats = core_.stats_;
    stats.coordinations = core_.operations_.size();
    stats.stream_ranges_left = streaming_.ranges_left();
    for (const auto& [target, backlog] : core_.hints_.backlogs()) {
      ShardStats::HintBacklog& out = stats.hints[target];
      out.hints = backlog.hints;
      out.bytes = backlog.bytes;
      out.oldest_ms = backlog.oldest_ms;
      out.refused = backlog.refused;
      out.delivered = backlog.delivered;
    }
    return stats;
  }

  void CheckInvariants() const {
    RINGKV_CHECK(core_.ended_.empty());
    RINGKV_CHECK(core_.local_.empty());
    RINGKV_CHECK(core_.dropped_loads_.empty());
    size_t armed = 0;
    for (const auto& [id, when] : core_.timer_of_) {
      RINGKV_CHECK(core_.operations_.contains(id));
      if (when == Instant::Infinite()) continue;
      ++armed;
      RINGKV_CHECK(core_.timers_.contains({when, id}));
    }
    RINGKV_CHECK(armed == core_.timers_.size());
    for (const auto& [id, operation] : core_.operations_) {
      RINGKV_CHECK(operation != nullptr && operation->id() == id);
      RINGKV_CHECK(static_cast<int>(id >> kOperationShardShift) ==
                   core_.options_.shard);
    }
    RINGKV_CHECK(core_.loads_.size() == core_.load_jobs_.size());
    for (const auto& [job, key] : core_.load_jobs_) {
      const auto it = core_.loads_.find(key);
      RINGKV_CHECK(it != core_.loads_.end() && it->second.job == job);
      RINGKV_CHECK(!it->second.waiting.empty());
    }
    for (const auto& [call, id] : core_.calls_) {
      RINGKV_CHECK(core_.operations_.contains(id));
    }
    RINGKV_CHECK(parked_.size() <= kParkedMax);
    RINGKV_CHECK(core_.damaged_.empty());
  }

 private:
  // --- Client calls ---

  void Refuse(CallId call, absl::Status status) {
    ClientAnswer answer;
    answer.status = std::move(status);
    core_.Answer(call, std::move(answer), Release::kWritten);
  }

  void On(CallArrived arrived) {
    if (!core_.has_ring()) {
      return Refuse(arrived.id,
                    absl::UnavailableError(
                        "this node is in no cluster yet; run `kvctl init`"));
    }
    if (draining_) {
      return Refuse(arrived.id, absl::UnavailableError(
                                    "this node is shutting down; nothing was "
                                    "done; use another node"));
    }
    if (arrived.deadline <= core_.now()) {
      RINGKV_MARK("expired-on-arrival");
      ++core_.stats_.expired_dropped;
      return Refuse(arrived.id, absl::DeadlineExceededError(
                                    "the deadline had passed on arrival; "
                                    "nothing was done"));
    }
    if (core_.operations_.size() >= core_.options_.coordinations_max) {
      return Refuse(
          arrived.id,
          absl::ResourceExhaustedError(absl::StrCat(
              "this node coordinates ", core_.operations_.size(),
              " operations, the limit is ", core_.options_.coordinations_max,
              "; nothing was done; try again in 100 ms")));
    }
    if (auto* get = std::get_if<GetCall>(&arrived.call)) {
      ++core_.stats_.gets;
      if (CoordinatesHere(get->keyspace, get->key)) {
        core_.Begin<GetCoordinator>().Start(arrived.id, std::move(*get),
                                            arrived.deadline);
      } else {
        core_.Begin<ForwardCoordinator>().Start(arrived.id, std::move(*get),
                                                arrived.deadline, kNoNode, 0);
      }
    } else if (auto* put = std::get_if<PutCall>(&arrived.call)) {
      if (core_.read_only() && !put->is_delete) {
        return Refuse(arrived.id, absl::ResourceExhaustedError(kDiskReserved));
      }
      ++(put->is_delete ? core_.stats_.deletes : core_.stats_.puts);
      Caller caller;
      caller.call = arrived.id;
      StartPut(caller, std::move(*put), arrived.deadline);
    } else if (auto* scan = std::get_if<ScanCall>(&arrived.call)) {
      ++core_.stats_.scans;
      core_.Begin<ScanCoordinator>().Start(arrived.id, std::move(*scan),
                                           arrived.deadline);
    } else if (auto* locate = std::get_if<LocateCall>(&arrived.call)) {
      core_.Begin<LocateCoordinator>().Start(arrived.id, std::move(*locate),
                                             arrived.deadline);
    }
  }

  // A replica coordinates itself; so does anybody while no replica can be
  // reached, and for calls that will be refused anyway.
  bool CoordinatesHere(const std::string& keyspace_name,
                       const std::string& key) const {
    absl::StatusOr<const Keyspace*> keyspace =
        ResolveKeyspace(*core_.ring(), keyspace_name);
    if (!keyspace.ok() || !CheckKey(key).ok()) return true;
    bool reachable = false;
    for (NodeNumber node :
         core_.ring()->PreferenceList(**keyspace, TokenOf(key))) {
      if (node == core_.self()) return true;
      reachable = reachable || core_.IsAlive(node);
    }
    return !reachable;
  }

  void AnswerCaller(const Caller& caller, ClientAnswer answer,
                    Release release) {
    if (caller.from == kNoNode) {
      core_.Answer(caller.call, std::move(answer), release);
      return;
    }
    ForwardReply reply;
    reply.operation = caller.operation;
    reply.answer = std::move(answer);
    reply.answer.ring_epoch = core_.ring()->epoch();
    core_.Send(caller.from, std::move(reply), release);
  }

  void RefusePut(const Caller& caller, absl::Status status) {
    ClientAnswer answer;
    answer.status = std::move(status);
    AnswerCaller(caller, std::move(answer), Release::kWritten);
  }

  void StartPut(const Caller& caller, PutCall put, Instant deadline) {
    const bool forwarded = caller.from != kNoNode;
    if (!forwarded && put.request.coordinator_start_id != 0 &&
        put.request.coordinator_start_id != core_.options_.start_id) {
      RINGKV_MARK("repeat-for-another-run");
      return RefusePut(caller, absl::FailedPreconditionError(
                                   "this repeat is for another run of this "
                                   "node, which has restarted: whether the "
                                   "first try took effect is unknown; read "
                                   "the key and write with its context"));
    }
    const bool here = forwarded || CoordinatesHere(put.keyspace, put.key);
    if (!clock_ok_ && here) {
      RINGKV_MARK("clock-ahead-refuses-put");
      return RefusePut(caller,
                       absl::UnavailableError(
                           "this node's clock is further ahead of its peers' "
                           "than max_clock_drift, so it coordinates no "
                           "writes; nothing was done; set its clock and use "
                           "another node meanwhile"));
    }
    const bool tracked = !put.request.id.empty();
    std::shared_ptr<const MintedWrite> minted;
    NodeNumber only = kNoNode;
    uint64_t only_start_id = 0;
    if (tracked) {
      core_.outcomes_.Trim(core_.now());
      Outcomes::Entry* entry = core_.outcomes_.Find(put.request.id);
      if (entry == nullptr) {
        if (absl::Status status =
                core_.outcomes_.CheckUnknown(put.request.age, core_.now());
            !status.ok()) {
          RINGKV_MARK("repeat-of-a-forgotten-request");
          return RefusePut(caller, std::move(status));
        }
        core_.outcomes_.Insert(put.request.id, Fingerprint(put), core_.now());
      } else {
        if (entry->fingerprint != Fingerprint(put) &&
            !Planted("request-id-other-key")) {
          RINGKV_MARK("request-id-of-another-key");
          return RefusePut(
              caller,
              absl::InvalidArgumentError(
                  "the request id belongs to another operation; use a fresh "
                  "one for each"));
        }
        ++core_.stats_.repeats_answered;
        if (entry->answer != nullptr) {
          RINGKV_MARK("repeat-answered-from-memory");
          return AnswerCaller(caller, *entry->answer, Release::kSynced);
        }
        if (Operation* running = core_.Find(entry->running)) {
          if (auto* coordinator = dynamic_cast<PutCoordinator*>(running)) {
            RINGKV_MARK("repeat-joins-running-put");
            if (forwarded) {
              coordinator->JoinForwarded(caller.from, caller.operation);
            } else {
              coordinator->Join(caller.call);
            }
            return;
          }
          if (auto* forward = dynamic_cast<ForwardCoordinator*>(running);
              forward != nullptr && !forwarded) {
            RINGKV_MARK("repeat-joins-forwarded-put");
            forward->Join(caller.call);
            return;
          }
        }
        minted = entry->minted;
        if (minted == nullptr) {
          only = entry->forwarded_to;
          only_start_id = entry->forwarded_start_id;
          if (only != kNoNode) RINGKV_MARK("repeat-goes-where-the-first-went");
        }
      }
    }
    const auto mark_running = [&](uint64_t operation) {
      if (!tracked) return;
      core_.outcomes_.Find(put.request.id)->running = operation;
    };
    if (only == kNoNode && (here || minted != nullptr)) {
      if (minted != nullptr) RINGKV_MARK("repeat-continues-minted-dot");
      PutCoordinator& coordinator = core_.Begin<PutCoordinator>();
      mark_running(coordinator.id());
      if (forwarded) {
        coordinator.StartForwarded(caller.from, caller.operation,
                                   std::move(put), deadline, std::move(minted));
      } else {
        coordinator.Start(caller.call, std::move(put), deadline,
                          std::move(minted));
      }
    } else if (!forwarded) {
      ForwardCoordinator& forward = core_.Begin<ForwardCoordinator>();
      mark_running(forward.id());
      forward.Start(caller.call, std::move(put), deadline, only, only_start_id);
    } else {
      // Handed on once already by this node: a call goes at most one hop.
      RINGKV_MARK("handed-on-twice");
      RefusePut(caller, absl::FailedPreconditionError(
                            "the put was handed to another node before: "
                            "whether it took effect is unknown"));
    }
  }

  void On(CallCancelled cancelled) {
    const auto it = core_.calls_.find(cancelled.id);
    if (it == core_.calls_.end()) return;
    Operation* operation = core_.Find(it->second);
    core_.calls_.erase(it);
    if (operation != nullptr) operation->OnCancelled(cancelled.id);
  }

  // --- Peers ---

  void On(MessageArrived arrived) {
    if (!core_.has_ring() ||
        core_.ring()->FindMember(arrived.from) == nullptr) {
      return;
    }
    if (arrived.message.epoch > core_.ring()->epoch()) {
      // What it says may build on a ring that we do not have yet.
      RINGKV_MARK("message-of-a-newer-ring-parked");
      core_.WantRing(arrived.from);
      if (parked_.size() < kParkedMax) parked_.push_back(std::move(arrived));
      return;
    }
    Dispatch(arrived.from, arrived.message.epoch, arrived.message.body,
             Release::kWritten);
  }

  void Dispatch(NodeNumber from, RingEpoch epoch, DataBody& body,
                Release release) {
    if (auto* read = std::get_if<ReadRequest>(&body)) {
      HandleRead(core_, from, epoch, *read);
    } else if (auto* write = std::get_if<WriteRequest>(&body)) {
      HandleWrite(core_, from, epoch, std::move(*write));
    } else if (auto* range = std::get_if<RangeRequest>(&body)) {
      HandleRange(core_, from, epoch, *range);
    } else if (auto* stream = std::get_if<StreamRequest>(&body)) {
      HandleStream(core_, from, *stream);
    } else if (auto* forward = std::get_if<ForwardRequest>(&body)) {
      OnForward(from, *forward);
    } else {
      const uint64_t operation = std::visit(
          [](const auto& message) { return message.operation; }, body);
      Operation* running = core_.Find(operation);
      if (running != nullptr && epoch >= running->replies_since()) {
        running->OnReply(from, body, release);
      } else {
        RINGKV_MARK("late-reply-ignored");
      }
    }
  }

  void OnForward(NodeNumber from, ForwardRequest& forward) {
    ForwardReply refusal;
    refusal.operation = forward.operation;
    const auto* get = std::get_if<GetCall>(&forward.call);
    const auto* put = std::get_if<PutCall>(&forward.call);
    if (get == nullptr && put == nullptr) return;
    absl::StatusOr<const Keyspace*> keyspace = ResolveKeyspace(
        *core_.ring(), get != nullptr ? get->keyspace : put->keyspace);
    const std::string& key = get != nullptr ? get->key : put->key;
    if (forward.start_id != 0 && forward.start_id != core_.options_.start_id) {
      RINGKV_MARK("forward-for-another-run");
      refusal.code = ReplyCode::kWrongStart;
    } else if (!keyspace.ok() || !core_.ring()->IsReplica(
                                     **keyspace, TokenOf(key), core_.self())) {
      refusal.code = ReplyCode::kNotReplica;
    } else if (draining_ || (put != nullptr && !clock_ok_) ||
               (put != nullptr && !put->is_delete && core_.read_only()) ||
               core_.operations_.size() >= core_.options_.coordinations_max) {
      RINGKV_MARK("forward-refused");
      refusal.code = ReplyCode::kOverloaded;
    } else if (forward.remaining <= absl::ZeroDuration() ||
               absl::Microseconds(core_.wall().micros - forward.sent.micros) >
                   forward.remaining + core_.options_.max_clock_drift) {
      ++core_.stats_.expired_dropped;
      RINGKV_MARK("forward-expired-on-arrival");
      refusal.code = ReplyCode::kExpired;
    } else {
      const Instant deadline = core_.now() + forward.remaining;
      if (get != nullptr) {
        core_.Begin<GetCoordinator>().StartForwarded(
            from, forward.operation, std::move(std::get<GetCall>(forward.call)),
            deadline);
      } else {
        Caller caller;
        caller.from = from;
        caller.operation = forward.operation;
        StartPut(caller, std::move(std::get<PutCall>(forward.call)), deadline);
      }
      return;
    }
    core_.Send(from, std::move(refusal), Release::kNow);
  }

  void On(RingAdopted adopted) {
    if (core_.ring_ != nullptr &&
        adopted.ring->epoch() <= core_.ring_->epoch()) {
      core_.effects_->adopted = core_.ring_->epoch();
      return;
    }
    DropGoneKeyspaces(core_.ring_.get(), *adopted.ring);
    core_.ring_ = std::move(adopted.ring);
    core_.self_ = adopted.self;
    core_.effects_->adopted = core_.ring_->epoch();
    if (next_tick_ == Instant::Infinite()) next_tick_ = core_.now() + kTick;
    // Before anybody reads or writes under the new ring.
    streaming_.Adopt();
    ForEachOperation([](Operation& operation) { operation.OnRing(); });
    FailDroppedLoads();
    std::deque<MessageArrived> parked;
    parked.swap(parked_);
    for (MessageArrived& message : parked) {
      On(std::move(message));
      DrainLocal();
    }
    handoff_.Tick();
  }

  // Deletes this shard's slice of keyspaces that are no more. Their ids never
  // come back.
  void DropGoneKeyspaces(const Ring* before, const Ring& now) {
    const TokenRange slice =
        SliceOf(core_.options_.shard, core_.options_.shards);
    for (uint32_t id = 1; id < ToInt(now.spec().next_keyspace_id); ++id) {
      const KeyspaceId keyspace{id};
      if (now.FindKeyspace(keyspace) != nullptr) continue;
      if (before != nullptr && before->FindKeyspace(keyspace) == nullptr) {
        continue;
      }
      core_.DropRange(keyspace, slice);
    }
  }

  // Of ranges that were dropped: whoever asked has heard of the ring since.
  void FailDroppedLoads() {
    while (!core_.dropped_loads_.empty()) {
      std::vector<LoadCallback> loads;
      loads.swap(core_.dropped_loads_);
      ReadResult gone;
      gone.outcome = ReadResult::Outcome::kFailed;
      gone.status = absl::AbortedError("the range was dropped meanwhile");
      for (const LoadCallback& load : loads) {
        load(gone);
        DrainLocal();
      }
    }
  }

  void On(PeersChanged changed) {
    core_.peers_ = std::move(changed.peers);
    clock_ok_ = changed.clock_ok;
    core_.checked_ = changed.checked;
    ForEachOperation([](Operation& operation) { operation.OnPeersChanged(); });
    handoff_.Tick();
    streaming_.Tick();
  }

  void On(ReadOnlyChanged changed) { core_.read_only_ = changed.read_only; }

  template <class F>
  void ForEachOperation(F f) {
    std::vector<uint64_t> ids;
    ids.reserve(core_.operations_.size());
    for (const auto& [id, operation] : core_.operations_) ids.push_back(id);
    for (uint64_t id : ids) {
      if (Operation* operation = core_.Find(id)) {
        f(*operation);
        DrainLocal();
      }
    }
  }

  // --- Reads and time ---

  void On(ReadDone done) {
    if (const auto it = core_.range_jobs_.find(done.job);
        it != core_.range_jobs_.end()) {
      auto callback = std::move(it->second);
      core_.range_jobs_.erase(it);
      callback(done.range);
      return;
    }
    const auto job = core_.load_jobs_.find(done.job);
    if (job == core_.load_jobs_.end()) return;
    const ShardCore::StorageKey key = job->second;
    core_.load_jobs_.erase(job);
    // In order; each sees what those before it have written. Whoever asks for
    // the key meanwhile joins the queue: a read of its own could miss what the
    // rest of the queue writes.
    ShardCore::PendingLoad& load = core_.loads_[key];
    const auto& overlay = core_.overlay_[static_cast<int>(key.first)];
    while (!load.waiting.empty()) {
      const LoadCallback callback = std::move(load.waiting.front());
      load.waiting.pop_front();
      const auto it = overlay.find(key.second);
      if (it == overlay.end()) {
        callback(done.result);
      } else {
        RINGKV_MARK("read-back-meets-a-write");
        ReadResult written;
        if (it->second.has_value()) {
          written.outcome = ReadResult::Outcome::kFound;
          written.value = *it->second;
        }
        callback(written);
      }
      DrainLocal();
    }
    core_.loads_.erase(key);
  }

  void On(BeginTransfers begin) { streaming_.Begin(begin.operation); }

  void On(TimerFired) {
    while (!core_.timers_.empty() &&
           core_.timers_.begin()->first <= core_.now()) {
      const uint64_t id = core_.timers_.begin()->second;
      core_.timers_.erase(core_.timers_.begin());
      core_.timer_of_.erase(id);
      if (Operation* operation = core_.Find(id)) {
        operation->OnTimer();
        DrainLocal();
      }
    }
    if (core_.has_ring() && core_.now() >= next_tick_) {
      next_tick_ = core_.now() + kTick;
      core_.outcomes_.Trim(core_.now());
      handoff_.Tick();
      streaming_.Tick();
    }
  }

  void DrainLocal() {
    while (!core_.local_.empty()) {
      ShardCore::LocalMessage message = std::move(core_.local_.front());
      core_.local_.pop_front();
      Dispatch(core_.self_, core_.ring_->epoch(), message.body,
               message.release);
    }
  }

  ShardCore core_;
  Handoff handoff_;
  Rebuilds rebuilds_;
  Streaming streaming_;
  bool started_ = false;
  bool draining_ = false;
  bool clock_ok_ = true;
  Instant next_tick_ = Instant::Infinite();
  std::deque<MessageArrived> parked_;
};

Shard::Shard(ShardOptions options, const Engine& engine, Hlc& hlc,
             Random& random)
    : impl_(std::make_unique<Impl>(std::move(options), engine, hlc, random)) {}

Shard::~Shard() = default;

absl::Status Shard::Recover() { return impl_->Recover(); }

void Shard::Step(const ShardEvent& event, Time time, Effects& effects) {
  impl_->Step(ShardEvent(event), time, effects);
}

void Shard::Step(ShardEvent&& event, Time time, Effects& effects) {
  impl_->Step(std::move(event), time, effects);
}

void Shard::TurnCommitted(uint64_t sequence) { impl_->TurnCommitted(sequence); }

void Shard::Synced(uint64_t sequence) { impl_->Synced(sequence); }

Instant Shard::NextTimer() const { return impl_->NextTimer(); }

void Shard::Drain() { impl_->Drain(); }

size_t Shard::in_flight() const { return impl_->in_flight(); }

ShardStats Shard::Stats() const { return impl_->Stats(); }

void Shard::CheckInvariants() const { impl_->CheckInvariants(); }

}  // namespace ringkv
