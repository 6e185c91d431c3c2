#include "server/handoff/handoff.h"

#include <algorithm>
#include <utility>

#include "base/mark.h"
#include "base/planted.h"
#include "base/token.h"
#include "membership/topology/segments.h"
#include "server/coordinator/common.h"

namespace ringkv {
namespace {

constexpr size_t kFetchEntries = 128;
constexpr absl::Duration kDeliveryPatience = absl::Seconds(2);
constexpr absl::Duration kPauseMin = absl::Milliseconds(100);
constexpr absl::Duration kPauseMax = absl::Seconds(5);

// Holds the token once no topology change runs any more.
bool WillHold(const Ring& ring, const WriteSets& sets, NodeNumber node) {
  if (Planted("hints-stay-with-old-owner")) return true;
  if (IsTakenForDead(ring, node)) return false;
  for (const WriteSet& set : sets) {
    if (set.new_owners && set.Contains(node)) return true;
  }
  return false;
}

bool IsSwitched(const Ring& ring) {
  const auto& operation = ring.spec().operation;
  return operation.has_value() && operation->phase == TopologyPhase::kSwitch;
}

// How many of `set` must hold what a hint brings in place of its target. W; but
// once there is no way back, no more than are left without those whom the
// operator vouches for as stopped: a node that leaves waits for its hints to
// go.
uint32_t NeededOf(const Ring& ring, const WriteSet& set) {
  if (Planted("hint-needs-one-holder")) return 1;
  if (!IsSwitched(ring)) return set.w;
  uint32_t left = 0;
  for (NodeNumber node : set.nodes) {
    if (!IsTakenForDead(ring, node)) ++left;
  }
  return std::min(set.w, std::max(left, set.new_owners ? 1u : 0u));
}

}  // namespace

bool HandoffBudget::HasRoom(Instant now, uint64_t bytes_per_second) {
  const double rate = static_cast<double>(bytes_per_second);
  const double full = rate / 4;
  if (!started_) {
    started_ = true;
    level_ = full;
  } else {
    level_ =
        std::min(level_ + absl::ToDoubleSeconds(now - filled_at_) * rate, full);
  }
  filled_at_ = now;
  return level_ > 0;
}

void Handoff::Tick() {
  if (!core_.has_ring()) return;
  for (const auto& [target, backlog] : core_.hints().backlogs()) {
    if (backlog.hints == 0) continue;
    const auto running = running_.find(target);
    if (running != running_.end() && core_.Find(running->second) != nullptr) {
      continue;
    }
    const bool member = core_.ring()->FindMember(target) != nullptr;
    const bool aged =
        backlog.oldest_ms != 0 &&
        core_.wall().millis() - backlog.oldest_ms >
            absl::ToInt64Milliseconds(core_.options().hint_age_max);
    const bool swept = swept_[target] == core_.ring()->epoch();
    if (member && !core_.IsAlive(target) && !aged && swept) continue;
    HandoffTarget& delivery = core_.Begin<HandoffTarget>();
    running_[target] = delivery.id();
    delivery.Start(target, &budget_, &swept_[target]);
  }
}

void HandoffTarget::Start(NodeNumber target, HandoffBudget* budget,
                          RingEpoch* swept) {
  target_ = target;
  budget_ = budget;
  swept_ = swept;
  pass_epoch_ = core_.ring()->epoch();
  Fetch();
}

bool HandoffTarget::Sweeping() const {
  return *swept_ != core_.ring()->epoch();
}

void HandoffTarget::Fetch() {
  if (fetching_) return;
  fetching_ = true;
  HintRange range = HintIndexRangeFrom(target_, next_sequence_);
  RangeLimits limits;
  limits.entries_max = kFetchEntries;
  core_.LoadRange(
      Family::kHints, std::move(range.begin), std::move(range.end), limits,
      [&core = core_, id = id()](const absl::StatusOr<RangeResult>& range) {
        auto* self = dynamic_cast<HandoffTarget*>(core.Find(id));
        if (self != nullptr) self->Fetched(range);
      });
}

void HandoffTarget::Fetched(const absl::StatusOr<RangeResult>& range) {
  fetching_ = false;
  if (!range.ok()) {
    ++core_.stats().corrupt_reads;
    pause_ = kPauseMax;
    core_.SetTimer(*this, core_.now() + pause_);
    return;
  }
  complete_ = range->complete;
  for (const Entry& entry : range->entries) {
    absl::StatusOr<uint64_t> sequence = HintIndexSequence(entry.key);
    if (!sequence.ok()) {
      ++core_.stats().corrupt_reads;
      continue;
    }
    next_sequence_ = *sequence + 1;
    absl::StatusOr<HintRecordKeyParts> parts = ParseHintRecordKey(entry.value);
    if (!parts.ok()) {
      ++core_.stats().corrupt_reads;
      continue;
    }
    if (ShardOf(parts->token, core_.options().shards) ==
        core_.options().shard) {
      queue_.push_back(entry.value);
    }
  }
  Pump();
}

uint64_t HandoffTarget::Rate() const {
  // The bound is over all nodes that may have hints for the target.
  const uint64_t senders =
      std::max<uint64_t>(core_.AliveMembers().size(), 2) - 1;
  return std::max<uint64_t>(core_.options().handoff_bytes_per_second / senders /
                                core_.options().shards,
                            1);
}

void HandoffTarget::Pump() {
  pumping_ = true;
  while (!queue_.empty() && Deliverable() &&
         in_flight_ < core_.options().handoff_in_flight_max &&
         budget_->HasRoom(core_.now(), Rate())) {
    std::string record_key = std::move(queue_.front());
    queue_.pop_front();
    if (!IsDue(record_key)) continue;
    ++in_flight_;
    HintDelivery& delivery = core_.Begin<HintDelivery>();
    delivery.Start(id(), target_, std::move(record_key), budget_);
  }
  pumping_ = false;
  if (queue_.empty() && !complete_ && !fetching_) Fetch();
  if (!queue_.empty() || fetching_ || in_flight_ > 0) {
    core_.SetTimer(*this, core_.now() + kPauseMin);
    return;
  }
  // Through, from front to end.
  if (kept_ == 0) *swept_ = pass_epoch_;
  const auto backlog = core_.hints().backlogs().find(target_);
  if (backlog == core_.hints().backlogs().end() || backlog->second.hints == 0 ||
      !Deliverable()) {
    core_.End(*this);
    return;
  }
  // What was kept, or came meanwhile, gets another turn; the longer the oftener
  // it fails.
  pause_ =
      kept_ == 0 ? kPauseMin : std::clamp(pause_ * 2, kPauseMin, kPauseMax);
  core_.SetTimer(*this, core_.now() + pause_);
}

bool HandoffTarget::Deliverable() const {
  if (core_.ring()->FindMember(target_) == nullptr) return true;
  return core_.IsAlive(target_) || Sweeping() || IsOverdue();
}

bool HandoffTarget::IsDue(const std::string& record_key) {
  if (core_.IsAlive(target_) || IsOverdue()) return true;
  const absl::StatusOr<HintRecordKeyParts> parts =
      ParseHintRecordKey(record_key);
  if (!parts.ok()) return true;
  const Keyspace* keyspace = core_.ring()->FindKeyspace(parts->keyspace);
  return keyspace == nullptr ||
         !WillHold(*core_.ring(),
                   WriteSetsOf(*core_.ring(), *keyspace, parts->token),
                   target_);
}

bool HandoffTarget::IsOverdue() const {
  // Of a target that is away only the oldest may be due, and deliveries find
  // out; without it, the rest waits.
  const auto backlog = core_.hints().backlogs().find(target_);
  return backlog != core_.hints().backlogs().end() &&
         backlog->second.oldest_ms != 0 &&
         core_.wall().millis() - backlog->second.oldest_ms >
             absl::ToInt64Milliseconds(core_.options().hint_age_max);
}

void HandoffTarget::Delivered(bool kept) {
  --in_flight_;
  if (kept) ++kept_;
  if (!pumping_) Pump();
}

void HandoffTarget::OnTimer() {
  if (!Deliverable()) {
    RINGKV_MARK("handoff-gives-up");
    queue_.clear();
    complete_ = true;
    if (in_flight_ == 0 && !fetching_) {
      core_.End(*this);
    } else {
      core_.SetTimer(*this, core_.now() + kPauseMax);
    }
    return;
  }
  if (queue_.empty() && complete_ && in_flight_ == 0 && !fetching_) {
    // A new turn from the front.
    next_sequence_ = 0;
    complete_ = false;
    kept_ = 0;
    pass_epoch_ = core_.ring()->epoch();
  }
  Pump();
}

void HintDelivery::Start(uint64_t parent, NodeNumber target,
                         std::string record_key, HandoffBudget* budget) {
  parent_ = parent;
  target_ = target;
  budget_ = budget;
  record_key_ = std::move(record_key);
  absl::StatusOr<HintRecordKeyParts> parts = ParseHintRecordKey(record_key_);
  if (!parts.ok()) return Finish(/*kept=*/true);
  keyspace_ = parts->keyspace;
  token_ = parts->token;
  key_ = std::string(parts->key);
  core_.SetTimer(*this, core_.now() + kDeliveryPatience);
  core_.Load(Family::kHints, record_key_,
             [&core = core_, id = id()](const ReadResult& found) {
               auto* self = dynamic_cast<HintDelivery*>(core.Find(id));
               if (self != nullptr) self->Loaded(found);
             });
}

void HintDelivery::Loaded(const ReadResult& found) {
  if (found.outcome != ReadResult::Outcome::kFound) {
    return Finish(found.outcome != ReadResult::Outcome::kMissing);
  }
  absl::StatusOr<HintRecord> record = DecodeHintRecord(found.value);
  if (!record.ok()) {
    ++core_.stats().corrupt_reads;
    return Finish(true);
  }
  const auto target =
      std::find_if(record->targets.begin(), record->targets.end(),
                   [this](const HintTarget& t) { return t.node == target_; });
  if (target == record->targets.end()) return Finish(false);
  digest_ = DigestOf(record->object);
  const Keyspace* keyspace = core_.ring()->FindKeyspace(keyspace_);
  if (keyspace == nullptr) {
    // The keyspace was dropped, and its id never comes back.
    return Remove();
  }
  const bool aged = core_.wall().millis() - target->created_ms >
                    absl::ToInt64Milliseconds(core_.options().hint_age_max);
  epoch_ = core_.ring()->epoch();
  const WriteSets sets = WriteSetsOf(*core_.ring(), *keyspace, token_);
  const bool will_hold = WillHold(*core_.ring(), sets, target_);
  if (will_hold && core_.IsAlive(target_)) {
    waiting_.insert(target_);
    needs_.push_back({{target_}, 1});
  } else if (!will_hold || aged) {
    RINGKV_MARK("hint-for-what-became-no-replica");
    if (Planted("hint-of-loser-dropped")) return Remove();
    for (const WriteSet& set : sets) {
      needs_.push_back(
          {{set.nodes.begin(), set.nodes.end()}, NeededOf(*core_.ring(), set)});
      for (NodeNumber node : set.nodes) {
        if (core_.IsAlive(node)) waiting_.insert(node);
      }
    }
    // One that leaves cannot wait for holders that never come back.
    if (IsSwitched(*core_.ring()) && core_.ring()->IsLeaving(core_.self())) {
      HandToStandIn(*keyspace, sets);
    }
  }
  if (needs_.empty() || !CanBeMet()) {
    RINGKV_MARK("hint-target-away-again");
    return Finish(true);
  }
  budget_->Take(record->object.size() * waiting_.size() + 64);
  if (Planted("hint-removed-before-ack")) Remove();
  const std::set<NodeNumber> recipients = waiting_;
  for (NodeNumber node : recipients) {
    WriteRequest request;
    request.operation = id();
    request.keyspace = keyspace_;
    request.key = key_;
    request.object = record->object;
    request.purpose = WritePurpose::kHandoff;
    if (node == stand_in_) request.hint_for = {target_};
    core_.Send(node, std::move(request));
  }
}

void HintDelivery::HandToStandIn(const Keyspace& keyspace,
                                 const WriteSets& sets) {
  const Ring& ring = *core_.ring();
  const bool one_is_left =
      std::all_of(sets.begin(), sets.end(), [&ring](const WriteSet& set) {
        return !set.new_owners ||
               std::any_of(set.nodes.begin(), set.nodes.end(),
                           [&ring](NodeNumber node) {
                             return !IsTakenForDead(ring, node);
                           });
      });
  if (one_is_left) return;
  // Another one each time: the nearest may have no room.
  std::vector<NodeNumber> stand_ins;
  for (NodeNumber node : ring.Fallbacks(keyspace, token_)) {
    if (node != core_.self() && core_.IsAlive(node) && !ring.IsJoining(node) &&
        !ring.IsLeaving(node) && !IsTakenForDead(ring, node)) {
      stand_ins.push_back(node);
    }
  }
  if (stand_ins.empty()) return;
  RINGKV_MARK("hint-handed-to-another-stand-in");
  stand_in_ = stand_ins[id() % stand_ins.size()];
  waiting_ = {stand_in_};
  needs_ = {{{stand_in_}, 1}};
}

void HintDelivery::OnReply(NodeNumber from, DataBody& body, Release release) {
  auto* reply = std::get_if<WriteReply>(&body);
  if (reply == nullptr || waiting_.erase(from) == 0) return;
  if (reply->code == ReplyCode::kOk) {
    acked_.insert(from);
    if (Met(acked_)) return Remove();
  }
  if (!CanBeMet()) {
    RINGKV_MARK("hint-kept-after-refusal");
    Finish(true);
  }
}

bool HintDelivery::Met(const std::set<NodeNumber>& nodes) const {
  for (const Need& need : needs_) {
    uint32_t count = 0;
    for (NodeNumber node : nodes) {
      if (need.nodes.contains(node)) ++count;
    }
    if (count < need.count) return false;
  }
  return true;
}

bool HintDelivery::CanBeMet() const {
  std::set<NodeNumber> nodes = acked_;
  nodes.insert(waiting_.begin(), waiting_.end());
  return Met(nodes);
}

void HintDelivery::OnRing() {
  // Who has it by the older ring may be about to lose it: the hint stays, and
  // its turn comes again.
  const Keyspace* keyspace = core_.ring()->FindKeyspace(keyspace_);
  if (needs_.empty() || removing_ || keyspace == nullptr ||
      keyspace->changed_at <= epoch_) {
    return;
  }
  Finish(true);
}

void HintDelivery::Remove() {
  removing_ = true;
  core_.Load(Family::kHints, record_key_,
             [&core = core_, id = id()](const ReadResult& found) {
               auto* self = dynamic_cast<HintDelivery*>(core.Find(id));
               if (self == nullptr) return;
               WriteBatch batch;
               absl::StatusOr<bool> removed = core.hints().RemoveTarget(
                   batch, found, self->keyspace_, self->token_, self->key_,
                   self->target_, self->digest_);
               if (removed.ok() && !*removed) {
                 RINGKV_MARK("hint-changed-amid-delivery");
               }
               if (!removed.ok()) {
                 ++core.stats().corrupt_reads;
               } else if (*removed) {
                 ++core.stats().hints_delivered;
                 core.Apply(std::move(batch));
               }
               self->Finish(!removed.ok() || !*removed);
             });
}

void HintDelivery::Finish(bool kept) {
  const uint64_t parent = parent_;
  ShardCore& core = core_;
  core_.End(*this);
  if (auto* target = dynamic_cast<HandoffTarget*>(core.Find(parent))) {
    target->Delivered(kept);
  }
}

void HintDelivery::OnTimer() {
  RINGKV_MARK("delivery-timed-out");
  Finish(true);
}

void HintDelivery::OnPeersChanged() {
  if (waiting_.empty()) return;
  for (NodeNumber node : std::set<NodeNumber>(waiting_)) {
    if (!core_.IsAlive(node)) waiting_.erase(node);
  }
  if (!CanBeMet()) {
    RINGKV_MARK("target-went-down-amid-delivery");
    Finish(true);
  }
}

}  // namespace ringkv
