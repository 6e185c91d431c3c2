#include "server/coordinator/put.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/token.h"
#include "server/coordinator/common.h"
#include "server/coordinator/mint.h"

namespace ringkv {
namespace {

// The share of the time that a context read of a sloppy put may take, and its
// bound: what it misses becomes a sibling, no worse.
constexpr int kContextReadShare = 4;
constexpr absl::Duration kContextReadMax = absl::Milliseconds(500);

// How long a stand-in may take before the next is tried.
constexpr absl::Duration kStandInPatience = absl::Seconds(1);

}  // namespace

void PutCoordinator::Start(CallId call, PutCall put, Instant deadline,
                           std::shared_ptr<const MintedWrite> minted) {
  Join(call);
  put_ = std::move(put);
  deadline_ = deadline;
  minted_ = std::move(minted);
  started_ = core_.now();
  Begin();
}

void PutCoordinator::StartForwarded(NodeNumber from, uint64_t operation,
                                    PutCall put, Instant deadline,
                                    std::shared_ptr<const MintedWrite> minted) {
  JoinForwarded(from, operation);
  put_ = std::move(put);
  deadline_ = deadline;
  minted_ = std::move(minted);
  started_ = core_.now();
  Begin();
}

void PutCoordinator::Join(CallId call) {
  Waiter waiter;
  waiter.call = call;
  waiters_.push_back(waiter);
  core_.BindCall(call, id());
}

void PutCoordinator::JoinForwarded(NodeNumber from, uint64_t operation) {
  Waiter waiter;
  waiter.from = from;
  waiter.operation = operation;
  waiters_.push_back(waiter);
}

void PutCoordinator::Begin() {
  state_ = State::kReading;
  ring_ = core_.ring();
  answer_by_ = AnswerBy(started_, deadline_);
  absl::StatusOr<const Keyspace*> keyspace =
      ResolveKeyspace(*ring_, put_.keyspace);
  if (!keyspace.ok()) return Refuse(keyspace.status());
  keyspace_ = *keyspace;
  if (absl::Status status = CheckKey(put_.key); !status.ok()) {
    return AnswerError(std::move(status));
  }
  if (put_.value.size() > kValueBytesMax) {
    return AnswerError(absl::InvalidArgumentError(
        absl::StrCat("the value has ", put_.value.size(),
                     " bytes, the limit is ", kValueBytesMax)));
  }
  if (put_.blind && put_.context.has_value()) {
    return AnswerError(absl::InvalidArgumentError(
        "a put is either blind or names a context, not both"));
  }
  if (put_.is_delete && put_.blind) {
    return AnswerError(absl::InvalidArgumentError(
        "a blind delete would delete nothing; name a context or leave it to "
        "the coordinator to read one"));
  }
  absl::StatusOr<QuorumNeed> need =
      WriteNeed(*ring_, *keyspace_, put_.w, put_.quorum);
  if (!need.ok()) return Refuse(need.status());
  need_ = *need;
  token_ = TokenOf(put_.key);
  absl::StatusOr<WriteSets> sets =
      WriteSetsFor(*ring_, *keyspace_, token_, put_.w, put_.quorum);
  if (!sets.ok()) return Refuse(sets.status());
  sets_ = *std::move(sets);
  core_.SetTimer(*this, answer_by_);
  if (minted_ != nullptr) {
    state_ = State::kDistributing;
    Distribute();
    return;
  }
  if (put_.context.has_value()) {
    absl::StatusOr<Context> context =
        DecodeContext(*put_.context, keyspace_->id, put_.key);
    if (!context.ok()) return AnswerError(context.status());
    context_ = *std::move(context);
    has_context_ = true;
    Mint();
  } else if (put_.blind) {
    Mint();
  } else {
    BeginReading();
  }
}

void PutCoordinator::Refuse(const absl::Status& status) {
  if (minted_ == nullptr) return AnswerError(status);
  // Asked for and begun under an older ring, where this was no error.
  RINGKV_MARK("put-refused-by-newer-ring");
  AnswerError(absl::UnavailableError(absl::StrCat(
      "the keyspace was changed while this was written: ", status.message(),
      "; it may still take effect")));
}

void PutCoordinator::BeginReading() {
  state_ = State::kReading;
  context_ = Context{};
  reads_sent_.clear();
  reads_asked_.clear();
  reads_answered_ = 0;
  const uint32_t r =
      std::min(ring_->EffectiveR(*keyspace_), ring_->EffectiveN(*keyspace_));
  // A plain sloppy put in `lww` needs only to be stamped above what it finds
  // here.
  reads_needed_ = keyspace_->mode == VersionMode::kLww && !need_.strict ? 1 : r;
  reading_must_reach_ = need_.strict;
  read_until_ =
      need_.strict ? answer_by_
                   : core_.now() +
                         std::min((deadline_ - core_.now()) / kContextReadShare,
                                  kContextReadMax);
  while (reads_sent_.size() < reads_needed_ && AskContextOfAnother()) {
  }
  if (reads_sent_.size() < reads_needed_) {
    if (reading_must_reach_) {
      RINGKV_MARK("strict-put-lacks-readers");
      std::vector<std::string> down;
      for (NodeNumber node : ring_->PreferenceList(*keyspace_, token_)) {
        if (core_.IsAlive(node)) continue;
        down.push_back(absl::StrCat("node ", ToInt(node), " is down"));
      }
      return AnswerError(absl::UnavailableError(absl::StrCat(
          "write quorum not reached: a strict write reads its context first: "
          "required ",
          reads_needed_, " of ", need_.n, ", received ", reads_sent_.size(),
          " at most (", absl::StrJoin(down, ", "), "); nothing was written")));
    }
    // What stand-ins hold is replaced too, as far as they can be asked.
    std::vector<NodeNumber> fallbacks = ring_->Fallbacks(*keyspace_, token_);
    std::stable_partition(
        fallbacks.begin(), fallbacks.end(),
        [this](NodeNumber node) { return node == core_.self(); });
    for (NodeNumber node : fallbacks) {
      if (reads_sent_.size() >= reads_needed_) break;
      if (!core_.IsAlive(node)) continue;
      RINGKV_MARK("context-read-from-stand-in");
      AskContext(node, /*from_hints=*/true);
    }
  }
  if (reads_sent_.empty()) return Mint();
  ArmTimer();
}

void PutCoordinator::AskContext(NodeNumber node, bool from_hints) {
  reads_sent_[node] = core_.now();
  reads_asked_.insert(node);
  ReadRequest request;
  request.operation = id();
  request.keyspace = keyspace_->id;
  request.key = put_.key;
  request.kind = ReadKind::kClock;
  request.from_hints = from_hints;
  request.remaining = deadline_ - core_.now();
  core_.Send(node, std::move(request));
}

bool PutCoordinator::AskContextOfAnother() {
  for (NodeNumber node :
       ReplicasByPreference(core_, *ring_, *keyspace_, token_)) {
    if (!core_.IsAlive(node) || reads_asked_.contains(node)) continue;
    AskContext(node, /*from_hints=*/false);
    return true;
  }
  return false;
}

void PutCoordinator::FinishReading() {
  if (reading_must_reach_ && reads_answered_ < reads_needed_) {
    RINGKV_MARK("strict-context-read-failed");
    return AnswerError(absl::UnavailableError(absl::StrCat(
        "write quorum not reached: a strict write reads its context first: "
        "required ",
        reads_needed_, " of ", need_.n, ", received ", reads_answered_,
        "; nothing was written")));
  }
  if (reads_answered_ < reads_needed_) RINGKV_MARK("context-read-incomplete");
  Mint();
}

void PutCoordinator::Mint() {
  state_ = State::kMinting;
  if (core_.now() >= deadline_) {
    RINGKV_MARK("mint-past-deadline");
    return AnswerError(absl::DeadlineExceededError(
        "the deadline came before anything was written"));
  }
  const bool is_replica = ring_->IsReplica(*keyspace_, token_, core_.self());
  if (!is_replica) {
    // A stand-in begins a new actor for each put, on top of nothing.
    RINGKV_MARK("stand-in-mints");
    MintOn(ReadResult{}, false);
    return;
  }
  core_.Load(Family::kData, DataKey(keyspace_->id, token_, put_.key),
             [&core = core_, id = id(),
              epoch = ring_->epoch()](const ReadResult& found) {
               auto* put = dynamic_cast<PutCoordinator*>(core.Find(id));
               if (put == nullptr || put->state_ != State::kMinting) return;
               // Begun anew under a newer ring, it has asked anew.
               if (put->ring_->epoch() != epoch) return;
               put->MintOn(found, true);
             });
}

void PutCoordinator::MintOn(const ReadResult& found, bool is_replica) {
  const MintInput input{*keyspace_,
                        put_,
                        context_,
                        core_.self(),
                        core_.options().start_id,
                        core_.wall(),
                        core_.options().max_clock_drift};
  absl::StatusOr<Minted> minted =
      MintWrite(input, found, core_.hlc(), core_.random());
  if (absl::IsDataLoss(minted.status())) {
    // This node's copy is damaged, and `own` with it: it goes on as a stand-in
    // does, under a new actor on top of nothing, and its own replica takes the
    // write once it is rebuilt.
    RINGKV_MARK("put-own-copy-damaged");
    core_.NoteDamaged(*keyspace_, put_.key);
    minted = MintWrite(input, ReadResult{}, core_.hlc(), core_.random());
    is_replica = false;
  }
  if (!minted.ok()) return AnswerError(minted.status());
  if (is_replica) {
    core_.WriteRecord(*keyspace_, put_.key, token_, minted->own,
                      minted->object);
  }
  minted_ = std::make_shared<MintedWrite>(std::move(minted->write));
  if (Outcomes::Entry* entry = core_.outcomes().Find(put_.request.id)) {
    entry->minted = minted_;
    core_.outcomes().Updated(put_.request.id);
  }
  Distribute();
}

void PutCoordinator::Distribute() {
  state_ = State::kDistributing;
  replicas_.clear();
  hint_acks_.clear();
  fallbacks_known_ = false;
  next_fallback_ = 0;
  std::vector<NodeNumber> order =
      ReplicasByPreference(core_, *ring_, *keyspace_, token_);
  for (const WriteSet& set : sets_) {
    for (NodeNumber node : set.nodes) {
      if (!replicas_.try_emplace(node).second) continue;
      if (!sets_[0].Contains(node)) order.push_back(node);
    }
  }
  for (NodeNumber node : order) {
    if (node == core_.self()) {
      // Written with the dot already, or by an earlier try: merged again, which
      // changes nothing then.
      SendTo(node);
    } else if (core_.IsAlive(node)) {
      SendTo(node);
    } else {
      replicas_[node].failed = true;
      replicas_[node].reason = "is down";
    }
  }
  AssignStandIns();
  Evaluate();
}

void PutCoordinator::SendTo(NodeNumber node) {
  Replica& replica = replicas_[node];
  replica.sent = true;
  replica.sent_at = core_.now();
  WriteRequest request;
  request.operation = id();
  request.keyspace = keyspace_->id;
  request.key = put_.key;
  request.object = minted_->object;
  request.purpose = WritePurpose::kPut;
  // A new version leaves once it is in the log here.
  core_.Send(node, std::move(request), Release::kWritten);
}

bool PutCoordinator::IsStandInCandidate(NodeNumber node) const {
  // A node that is joining goes for good if the join is aborted, with its
  // hints; one that is leaving goes once it has delivered those that it holds.
  return core_.IsAlive(node) && !replicas_.contains(node) &&
         !ring_->IsJoining(node) && !ring_->IsLeaving(node);
}

void PutCoordinator::AssignStandIns() {
  // Whoever cannot be reached and has no stand-in yet.
  std::vector<NodeNumber> orphans;
  for (const auto& [node, replica] : replicas_) {
    if (replica.failed && !replica.acked && !replica.hinted &&
        replica.asked_stand_in == kNoNode) {
      orphans.push_back(node);
    }
  }
  if (orphans.empty()) return;
  if (sets_.size() > 1) {
    // A stand-in for one of both sets counts in both.
    std::stable_partition(orphans.begin(), orphans.end(), [&](NodeNumber node) {
      return sets_[0].Contains(node) && sets_[1].Contains(node);
    });
  }
  if (!fallbacks_known_) {
    fallbacks_known_ = true;
    fallbacks_ = ring_->Fallbacks(*keyspace_, token_);
    // A coordinator that stands in itself is the nearest fallback of all.
    const auto self =
        std::find(fallbacks_.begin(), fallbacks_.end(), core_.self());
    if (self != fallbacks_.end()) {
      std::rotate(fallbacks_.begin(), self, self + 1);
    }
  }
  const auto ask = [this](NodeNumber holder, std::vector<NodeNumber> targets) {
    for (NodeNumber target : targets) {
      replicas_[target].asked_stand_in = holder;
      replicas_[target].stand_in_sent_at = core_.now();
    }
    WriteRequest request;
    request.operation = id();
    request.keyspace = keyspace_->id;
    request.key = put_.key;
    request.object = minted_->object;
    request.hint_for = std::move(targets);
    core_.Send(holder, std::move(request), Release::kWritten);
  };
  size_t done = 0;
  for (; done < orphans.size(); ++done) {
    while (next_fallback_ < fallbacks_.size() &&
           !IsStandInCandidate(fallbacks_[next_fallback_])) {
      ++next_fallback_;
    }
    if (next_fallback_ == fallbacks_.size()) break;
    const NodeNumber holder = fallbacks_[next_fallback_++];
    ask(holder, {orphans[done]});
  }
  if (done == orphans.size()) return;
  // No other node is left: a node that has the object anyway keeps the rest,
  // for delivery only.
  RINGKV_MARK("own-hint-kept");
  if (orphans.size() - done > 1) RINGKV_MARK("hint-for-several-targets");
  ask(core_.self(), {orphans.begin() + done, orphans.end()});
}

void PutCoordinator::OnReply(NodeNumber from, DataBody& body, Release release) {
  if (auto* read = std::get_if<ReadReply>(&body)) {
    const auto it = reads_sent_.find(from);
    if (state_ != State::kReading || it == reads_sent_.end() ||
        read->kind != ReadKind::kClock) {
      return;
    }
    if (read->code == ReplyCode::kStaleRing) {  // as in OnWriteReply
      RINGKV_MARK("stale-ring-amid-context-read");
      return;
    }
    if (from != core_.self()) {
      core_.latency().Record(from, core_.now() - it->second);
    }
    bool ok = read->code == ReplyCode::kOk;
    if (ok && read->found) {
      absl::StatusOr<Object> object = DecodeObject(read->object);
      ok = object.ok() && object->mode == ModeOf(*keyspace_);
      if (ok) {
        context_.clock.Merge(object->clock);
        context_.newest = std::max(context_.newest, object->newest.hlc);
      }
    }
    reads_sent_.erase(it);
    if (ok) {
      ++reads_answered_;
    } else {
      RINGKV_MARK("context-read-tries-another");
      AskContextOfAnother();
    }
    if (reads_answered_ >= reads_needed_ || reads_sent_.empty()) {
      FinishReading();
    }
    return;
  }
  if (auto* write = std::get_if<WriteReply>(&body)) {
    OnWriteReply(from, *write, release);
  }
}

void PutCoordinator::OnWriteReply(NodeNumber from, const WriteReply& reply,
                                  Release release) {
  if (state_ != State::kDistributing) return;
  // A reply is handled once its sender's ring was adopted here, and this put
  // has begun anew with that: it refuses what was asked before.
  if (reply.code == ReplyCode::kStaleRing) {
    RINGKV_MARK("stale-ring-amid-put");
    return;
  }
  if (!reply.hint) {
    const auto it = replicas_.find(from);
    if (it == replicas_.end() || !it->second.sent || it->second.acked) return;
    Replica& replica = it->second;
    if (reply.code == ReplyCode::kOk) {
      replica.acked = true;
      release_ = std::max(release_, release);
      if (from != core_.self()) {
        core_.latency().Record(from, core_.now() - replica.sent_at);
      }
    } else {
      replica.failed = true;
      replica.code = reply.code;
      replica.reason =
          absl::StrCat(ReplyCodeText(reply.code),
                       reply.message.empty() ? "" : ": ", reply.message);
    }
  } else {
    std::vector<NodeNumber> targets;
    for (auto& [node, replica] : replicas_) {
      if (replica.asked_stand_in == from) {
        targets.push_back(node);
        replica.asked_stand_in = kNoNode;
        if (reply.code == ReplyCode::kOk) replica.hinted = true;
      }
    }
    if (targets.empty()) {
      RINGKV_MARK("late-stand-in-ack-ignored");
      return;
    }
    if (reply.code == ReplyCode::kOk) {
      if (from == core_.self()) release_ = std::max(release_, release);
      std::vector<NodeNumber>& held = hint_acks_[from];
      held.insert(held.end(), targets.begin(), targets.end());
    } else if (from == core_.self()) {
      // Not even here: the range is left to repair.
      RINGKV_MARK("no-hint-kept");
      for (NodeNumber node : targets) {
        replicas_[node].hinted = true;
        replicas_[node].reason += "; no hint was kept";
      }
    } else {
      RINGKV_MARK("stand-in-refuses-hint");
    }
  }
  AssignStandIns();
  Evaluate();
}

PutCoordinator::Counted PutCoordinator::AllAcks() const {
  Counted counted;
  for (const auto& [node, replica] : replicas_) {
    if (replica.acked) ++counted.from_replicas;
  }
  for (const auto& [holder, targets] : hint_acks_) {
    const auto it = replicas_.find(holder);
    if (it == replicas_.end() || !it->second.acked) ++counted.from_stand_ins;
  }
  return counted;
}

uint32_t PutCoordinator::AcksIn(const WriteSet& set) const {
  std::vector<WriteAck> acks;
  const auto has_acked = [&](NodeNumber node) {
    return set.Contains(node) && replicas_.at(node).acked;
  };
  for (NodeNumber node : set.nodes) {
    if (has_acked(node)) acks.push_back({node, {node}});
  }
  if (need_.strict && !Planted("stand-in-at-strict")) return CountAcks(acks);
  for (const auto& [holder, targets] : hint_acks_) {
    const bool pending = sets_.size() > 1 && set.new_owners;
    if (!pending && ring_->IsJoining(holder) &&
        ring_->spec().operation->phase == TopologyPhase::kStart &&
        !Planted("joiner-hint-counts")) {
      RINGKV_MARK("hint-of-joiner-does-not-count");
      continue;  // if its join is aborted, it goes with all that it holds
    }
    if (has_acked(holder) && !Planted("stand-in-counted-twice")) {
      RINGKV_MARK("replica-and-stand-in-count-once");
      continue;  // counted already; its hints serve delivery only
    }
    WriteAck ack;
    ack.node = holder;
    for (NodeNumber target : targets) {
      if (set.Contains(target)) ack.replicas.push_back(target);
    }
    if (!ack.replicas.empty()) acks.push_back(std::move(ack));
  }
  return CountAcks(acks);
}

bool PutCoordinator::EnoughAcks() const {
  for (const WriteSet& set : sets_) {
    if (AcksIn(set) < set.w) return false;
    if (Planted("one-set-is-enough")) break;
  }
  return true;
}

bool PutCoordinator::HasHope(const WriteSet& set) const {
  for (NodeNumber node : set.nodes) {
    const Replica& replica = replicas_.at(node);
    if (replica.asked_stand_in != kNoNode && !need_.strict) return true;
    if (!replica.sent || replica.acked) continue;
    // One that is overdue may still answer in time.
    const bool overdue = replica.failed && replica.code == ReplyCode::kOk;
    if (!replica.failed || (overdue && core_.IsAlive(node))) return true;
  }
  return false;
}

void PutCoordinator::Evaluate() {
  if (core_.Find(id()) == nullptr) return;
  if (!answered_) {
    if (EnoughAcks()) {
      AnswerOk();
    } else {
      bool hope = true;
      for (const WriteSet& set : sets_) {
        hope = hope && (AcksIn(set) >= set.w || HasHope(set));
      }
      if (!hope) {
        RINGKV_MARK("put-has-nobody-left");
        AnswerUnavailable("nobody else is left to ask");
      }
    }
  }
  MaybeEnd();
}

void PutCoordinator::MaybeEnd() {
  if (core_.Find(id()) == nullptr) return;
  for (const auto& [node, replica] : replicas_) {
    if (!replica.acked && !replica.hinted) {
      ArmTimer();
      return;
    }
  }
  if (answered_) {
    core_.End(*this);
  } else {
    ArmTimer();
  }
}

void PutCoordinator::AnswerOk() {
  ClientAnswer answer;
  PutAnswer put = minted_->answer;
  const Counted counted = AllAcks();
  put.replica_acks = counted.from_replicas;
  put.stand_in_acks = counted.from_stand_ins;
  answer.answer = std::move(put);
  AnswerAll(answer);
}

void PutCoordinator::AnswerUnavailable(absl::string_view why) {
  const Counted counted = AllAcks();
  std::vector<std::string> received;
  for (const WriteSet& set : sets_) {
    received.push_back(absl::StrCat(
        sets_.size() == 1 ? ""
        : set.new_owners  ? "of the replicas after the topology change "
                          : "of the replicas before the topology change ",
        "required ", set.w, " of ", set.n, ", received ", AcksIn(set)));
  }
  std::vector<std::string> reasons;
  for (const auto& [node, replica] : replicas_) {
    if (replica.acked) continue;
    std::string reason = replica.reason;
    if (reason.empty()) {
      reason =
          absl::StrCat("gave no answer in ",
                       absl::FormatDuration(core_.now() - replica.sent_at));
    }
    reasons.push_back(absl::StrCat("node ", ToInt(node), " ", reason));
  }
  AnswerError(absl::UnavailableError(absl::StrCat(
      "write quorum not reached: ", absl::StrJoin(received, "; "), " (",
      counted.from_replicas, " from replicas, ", counted.from_stand_ins,
      " from stand-ins; ", need_.strict ? "strict" : "sloppy", "; ",
      absl::StrJoin(reasons, ", "), "; ", why, "); it may still take effect")));
}

void PutCoordinator::AnswerError(absl::Status status) {
  const bool distributing = state_ == State::kDistributing;
  ClientAnswer answer;
  answer.status = std::move(status);
  AnswerAll(answer);
  // What was sent goes on until it is held or hinted everywhere.
  if (!distributing) core_.End(*this);
}

void PutCoordinator::AnswerAll(const ClientAnswer& answer) {
  answered_ = true;
  if (keyspace_ != nullptr && answer.status.ok()) {
    release_ = std::max(release_, core_.ReleaseOf(*keyspace_, put_.key));
  }
  if (!put_.request.id.empty()) {
    Outcomes::Entry* entry = core_.outcomes().Find(put_.request.id);
    if (entry != nullptr && entry->running == id()) {
      entry->running = 0;
      // A refusal before anything was written is as good as never sent; a put
      // that failed later goes on with its dot when it is repeated.
      if (answer.status.ok()) {
        entry->answer = std::make_shared<ClientAnswer>(answer);
        core_.outcomes().Updated(put_.request.id);
      } else if (minted_ == nullptr) {
        core_.outcomes().Erase(put_.request.id);
      }
    }
  }
  for (const Waiter& waiter : waiters_) {
    if (waiter.from != kNoNode) {
      ForwardReply reply;
      reply.operation = waiter.operation;
      reply.answer = answer;
      reply.answer.ring_epoch = core_.ring()->epoch();
      core_.Send(waiter.from, std::move(reply), release_);
    } else {
      core_.Answer(waiter.call, answer, release_);
    }
  }
  waiters_.clear();
}

absl::Duration PutCoordinator::HintAfter(NodeNumber node) const {
  const ShardOptions& options = core_.options();
  const absl::Duration share =
      std::clamp((deadline_ - started_) * options.hint_after_share,
                 options.hint_after_min, options.hint_after_max);
  // Three times the p99: a stand-in costs an fsync and a delivery, so a replica
  // that is merely at its usual worst is waited for.
  return std::clamp(core_.latency().P99(node, share) * 3,
                    options.hint_after_min, share);
}

void PutCoordinator::ArmTimer() {
  Instant when = Instant::Infinite();
  if (!answered_) {
    when = answer_by_;
  }
  if (state_ == State::kReading) {
    hedge_at_ = Instant::Infinite();
    for (const auto& [node, at] : reads_sent_) {
      if (node == core_.self()) continue;
      const absl::Duration patience =
          std::max(core_.latency().P95(node, (read_until_ - at) / 4),
                   core_.options().hedge_after_min);
      hedge_at_ = std::min(hedge_at_, at + patience);
    }
    // One that is overdue has been hedged already.
    if (hedge_at_ <= core_.now()) hedge_at_ = Instant::Infinite();
    when = std::min({when, read_until_, hedge_at_});
  } else if (state_ == State::kDistributing) {
    for (const auto& [node, replica] : replicas_) {
      if (replica.acked || replica.hinted) continue;
      if (replica.sent && !replica.failed) {
        when = std::min(when, replica.sent_at + HintAfter(node));
      } else if (replica.asked_stand_in != kNoNode &&
                 replica.asked_stand_in != core_.self()) {
        when = std::min(when, replica.stand_in_sent_at + kStandInPatience);
      }
    }
  }
  core_.SetTimer(*this, when);
}

void PutCoordinator::OnTimer() {
  if (state_ == State::kReading) {
    if (core_.now() >= answer_by_ && reading_must_reach_) {
      return FinishReading();
    }
    if (core_.now() >= read_until_) return FinishReading();
    if (core_.now() >= hedge_at_) {
      RINGKV_MARK("context-read-hedged");
      AskContextOfAnother();
    }
    return ArmTimer();
  }
  if (!answered_ && core_.now() >= answer_by_) {
    if (minted_ == nullptr) {
      return AnswerError(absl::DeadlineExceededError(
          "the deadline came before anything was written"));
    }
    RINGKV_MARK("put-deadline-amid-distribution");
    AnswerUnavailable("the deadline has come");
  }
  if (state_ != State::kDistributing) return;
  for (auto& [node, replica] : replicas_) {
    if (replica.acked || replica.hinted) continue;
    if (replica.sent && !replica.failed) {
      if (core_.now() >= replica.sent_at + HintAfter(node)) {
        RINGKV_MARK("replica-overdue");
        replica.failed = true;
        replica.reason =
            absl::StrCat("gave no answer in ",
                         absl::FormatDuration(core_.now() - replica.sent_at));
      }
    } else if (replica.asked_stand_in != kNoNode &&
               core_.now() >= replica.stand_in_sent_at + kStandInPatience &&
               replica.asked_stand_in != core_.self()) {
      RINGKV_MARK("stand-in-overdue");
      replica.asked_stand_in = kNoNode;
    }
  }
  AssignStandIns();
  Evaluate();
}

void PutCoordinator::OnPeersChanged() {
  if (state_ == State::kReading) {
    const size_t lost = std::erase_if(reads_sent_, [this](const auto& sent) {
      return !core_.IsAlive(sent.first);
    });
    if (lost > 0) RINGKV_MARK("reader-went-down-amid-put");
    for (size_t i = 0; i < lost; ++i) AskContextOfAnother();
    if (reads_sent_.empty()) FinishReading();
    return;
  }
  if (state_ != State::kDistributing) return;
  bool lost = false;
  for (auto& [node, replica] : replicas_) {
    if (replica.acked) continue;
    if (replica.sent && !replica.failed && !core_.IsAlive(node)) {
      RINGKV_MARK("replica-went-down-amid-put");
      replica.failed = true;
      replica.reason = "went down";
      lost = true;
    }
    if (replica.asked_stand_in != kNoNode &&
        !core_.IsAlive(replica.asked_stand_in)) {
      RINGKV_MARK("stand-in-went-down-amid-put");
      replica.asked_stand_in = kNoNode;
      lost = true;
    }
  }
  if (!lost) return;
  AssignStandIns();
  Evaluate();
}

void PutCoordinator::OnRing() {
  if (keyspace_ == nullptr) return;
  const Keyspace* now = core_.ring()->FindKeyspace(keyspace_->id);
  if (now != nullptr && now->changed_at <= ring_->epoch()) return;
  if (Planted("put-kept-over-refresh")) return;
  if (answered_) {
    // What it still has to hand out goes by the new ring.
    if (now == nullptr) return core_.End(*this);
    ring_ = core_.ring();
    keyspace_ = now;
    sets_ = WriteSetsOf(*ring_, *keyspace_, token_);
    Distribute();
    return;
  }
  // Nothing gathered under the older ring counts; the dot stays.
  RINGKV_MARK("put-begins-anew-in-newer-ring");
  Begin();
}

void PutCoordinator::OnCancelled(CallId call) {
  // The write goes on; only nobody waits for its answer.
  RINGKV_MARK("put-goes-on-without-its-client");
  std::erase_if(waiters_,
                [call](const Waiter& waiter) { return waiter.call == call; });
}

}  // namespace ringkv
