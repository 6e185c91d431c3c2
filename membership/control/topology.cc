// Operations that change who holds what, in Control: from START over the
// barrier and the transfers to SWITCH, and over the barrier to FINISH
// (docs/decisions/0009). Each step is a ring epoch like any other; any member
// may propose it, so a node that dies in the middle changes nothing.
//
//   kStart --barrier--> transfers --all received--> kSwitch --barrier--> done
//      \--------------- abort --------------> as before

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/planted.h"
#include "membership/control/control_impl.h"
#include "membership/control/meta.h"
#include "membership/topology/segments.h"

namespace ringkv {
namespace {

// The lowest-numbered living member takes the next step at once; each one after
// it waits this much longer, so that proposals seldom meet.
constexpr absl::Duration kStepInAfter = absl::Seconds(3);
// A node that started just now has not heard everybody yet.
constexpr absl::Duration kHearingTime = absl::Seconds(5);

// Whether `after`, which runs no operation, is what `before` was before its
// own.
bool WasAborted(const RingSpec& before, const RingSpec& after) {
  const TopologyOperation& operation = *before.operation;
  if (operation.phase == TopologyPhase::kSwitch) return false;
  if (!operation.nodes.empty() && operation.Joins(operation.nodes.front())) {
    return std::binary_search(after.departed.begin(), after.departed.end(),
                              operation.nodes.front());
  }
  if (after.members != before.members || after.owners != before.owners ||
      after.keyspaces.size() != before.keyspaces.size()) {
    return false;
  }
  return std::equal(after.keyspaces.begin(), after.keyspaces.end(),
                    before.keyspaces.begin(),
                    [](const Keyspace& a, const Keyspace& b) {
                      return a.n == b.n && a.r == b.r && a.w == b.w;
                    });
}

}  // namespace

const TopologyOperation* Control::Impl::Running() const {
  return ring_ != nullptr && ring_->spec().operation.has_value()
             ? &*ring_->spec().operation
             : nullptr;
}

void Control::Impl::Handle(const TransfersReported& event) {
  transfers_ = event.report;
  step_stale_ = true;
  const TopologyOperation* const running = Running();
  if (!transfers_.done || running == nullptr ||
      running->id != transfers_.operation) {
    return;
  }
  // Whoever waits for this hears of it at once.
  BeatMembers();
}

// --- What goes on ---

void Control::Impl::FollowOperation(const Ring* before) {
  const TopologyOperation* const running = Running();
  if (operation_.has_value() &&
      operation_->operation.phase == TopologyPhase::kStart &&
      (running == nullptr || running->phase == TopologyPhase::kSwitch)) {
    operation_->status.progress = Progress(operation_->operation.id);
  }
  if (operation_.has_value() &&
      (running == nullptr || running->id != operation_->operation.id)) {
    OperationStatus status = operation_->status;
    status.state = before != nullptr && before->spec().operation.has_value() &&
                           WasAborted(before->spec(), ring_->spec())
                       ? OperationState::kAborted
                       : OperationState::kDone;
    status.ended_ms = time_.wall.millis();
    for (OperationProgress& progress : status.progress) progress.alive = false;
    Log(LogLevel::kInfo,
        absl::StrCat("the ", NameOf(status.kind), " of epoch ", status.id,
                     status.state == OperationState::kDone
                         ? " is done after "
                         : " was aborted after ",
                     absl::FormatDuration(absl::Trunc(
                         time_.now - operation_->since, absl::Seconds(1)))));
    finished_.push_front(std::move(status));
    if (finished_.size() > kFinishedMax) finished_.pop_back();
    Write(WriteFinished(finished_));
    operation_.reset();
  }
  ResetStep();
  if (running == nullptr) return;
  const bool is_new = !operation_.has_value();
  if (is_new) {
    operation_.emplace();
    operation_->since = time_.now;
    OperationStatus& status = operation_->status;
    status.id = running->id;
    status.kind = running->kind;
    // After a restart nobody here knows when it began.
    status.started_ms = before == nullptr ? 0 : time_.wall.millis();
    for (NodeNumber node : running->nodes) status.nodes.push_back(RefTo(node));
    for (NodeNumber node : running->replaced) {
      status.replaced.push_back(RefTo(node));
    }
    if (const Keyspace* keyspace = ring_->FindKeyspace(running->keyspace)) {
      status.keyspace = keyspace->name;
    }
  }
  const bool switched = running->phase == TopologyPhase::kSwitch;
  if (is_new || operation_->operation.phase != running->phase) {
    Log(LogLevel::kInfo,
        absl::StrCat(
            "ring epoch ", ring_->epoch(), ": the ", NameOf(running->kind),
            running->nodes.empty() ? "" : " of ", NamesOf(running->nodes),
            switched ? " switches reads to the new owners" : " starts"));
  }
  operation_->operation = *running;
  operation_->status.kind = running->kind;
}

void Control::Impl::ResetStep() {
  const TopologyOperation* const running = Running();
  step_stale_ = true;
  if (running == nullptr) {
    step_ = StepProgress();
    return;
  }
  // Other changes of the ring may come in between and leave sets and settings
  // as they are: then START's own epoch is enough. SWITCH's is not kept.
  const bool starts = running->phase == TopologyPhase::kStart;
  const RingEpoch barrier = starts ? running->id : ring_->epoch();
  const bool goes_on = step_.barrier_epoch == barrier && starts;
  if (!goes_on) {
    step_ = StepProgress();
    step_.barrier_epoch = barrier;
    if (starts) step_.receivers = ReceiversOf(*ring_);
  }
  step_.ring_epoch = ring_->epoch();
}

void Control::Impl::UpdateStep() {
  const size_t known = step_.acknowledged.size();
  const RingEpoch operation = Running()->id;
  const auto note = [&](NodeNumber node, RingEpoch adopted,
                        const TransferReport& report) {
    if (adopted >= step_.barrier_epoch) step_.acknowledged.insert(node);
    if (report.operation == operation && report.done &&
        absl::c_linear_search(step_.receivers, node)) {
      step_.received.insert(node);
    }
  };
  note(number_, adopted_epoch_, transfers_);
  for (const auto& [id, peer] : peers_) {
    if (!peer.beat.has_value() || peer.beat->lineage != ring_->spec().lineage) {
      continue;
    }
    const Member* const member = ring_->FindMember(id);
    if (member == nullptr) continue;
    note(member->number, peer.beat->adopted_epoch, peer.beat->transfers);
  }
  if (step_.barrier_reached || step_.acknowledged.size() == known) return;
  step_.barrier_reached = BarrierReached(*ring_, [this](NodeNumber node) {
    return step_.acknowledged.count(node) > 0;
  });
}

bool Control::Impl::HintsAreDelivered(NodeNumber leaver) const {
  // From the switch on it takes no new ones; so a measurement after that, in
  // which there were none, stays true.
  if (Planted("leaver-goes-with-hints")) return true;
  if (leaver == number_) {
    return load_epoch_ >= step_.barrier_epoch &&
           std::all_of(load_.hints.begin(), load_.hints.end(),
                       [](const auto& hints) { return hints.hints == 0; });
  }
  const Member* const member = ring_->FindMember(leaver);
  if (member == nullptr || IsTakenForDead(*ring_, leaver)) return true;
  const auto found = peers_.find(member->id);
  if (found == peers_.end() || !found->second.beat.has_value()) return false;
  const LoadSummary& load = found->second.beat->load;
  return load.epoch >= step_.barrier_epoch &&
         std::all_of(load.hints.begin(), load.hints.end(),
                     [](const HintLoad& hints) { return hints.hints == 0; });
}

void Control::Impl::TellHintsDelivered() {
  const TopologyOperation* const running = Running();
  if (running == nullptr || running->kind != TopologyKind::kDecommission ||
      running->phase != TopologyPhase::kSwitch ||
      hints_told_ == ring_->epoch() ||
      !absl::c_linear_search(running->nodes, number_) ||
      !HintsAreDelivered(number_)) {
    return;
  }
  hints_told_ = ring_->epoch();
  BeatMembers();
}

bool Control::Impl::StepIsReady() const {
  const TopologyOperation& running = *Running();
  if (running.phase == TopologyPhase::kStart) {
    if (!step_.barrier_reached) return false;
    return step_.received.size() == step_.receivers.size() ||
           Planted("switch-before-streamed");
  }
  if (!step_.barrier_reached && !Planted("finish-before-barrier")) return false;
  return running.kind != TopologyKind::kDecommission ||
         std::all_of(
             running.nodes.begin(), running.nodes.end(),
             [this](NodeNumber node) { return HintsAreDelivered(node); });
}

absl::Duration Control::Impl::StepInDelay() const {
  const TopologyOperation& running = *Running();
  // Who is not yet a full member, or about to leave, lets the others do it.
  const auto takes_part = [&](NodeNumber node) {
    return running.kind == TopologyKind::kWeight ||
           !absl::c_linear_search(running.nodes, node);
  };
  if (!takes_part(number_)) return absl::InfiniteDuration();
  int before = 0;
  for (const auto& [id, peer] : peers_) {
    if (!peer.alive) continue;
    const Member* const member = ring_->FindMember(id);
    if (member != nullptr && member->number < number_ &&
        takes_part(member->number)) {
      ++before;
    }
  }
  return kStepInAfter * before;
}

void Control::Impl::TickTopology() {
  const TopologyOperation* const running = Running();
  if (running == nullptr) return;
  if (step_stale_) {
    step_stale_ = false;
    UpdateStep();
  }
  if (running->phase == TopologyPhase::kStart &&
      (step_.barrier_reached || Planted("transfers-before-barrier")) &&
      adopted_epoch_ >= running->id && begun_ != running->id) {
    begun_ = running->id;
    out_->begin_transfers = running->id;
    Log(LogLevel::kInfo,
        absl::StrCat("every quorum knows of the ", NameOf(running->kind),
                     " of epoch ", running->id, ": transfers begin"));
  }
  if (!StepIsReady()) {
    step_.ready_since.reset();
    return;
  }
  if (!step_.ready_since.has_value()) step_.ready_since = time_.now;
  if (time_.now - *step_.ready_since < StepInDelay()) return;
  // What is on its way to the disk may be this very step.
  if (learning_ > ring_->epoch()) return;
  for (const PendingChange& change : changes_) {
    if (std::holds_alternative<AdvanceOperation>(change.change)) return;
  }
  PendingChange step;
  step.deadline = time_.now + options_.propose_timeout;
  step.change = AdvanceOperation{running->id, running->phase};
  changes_.push_back(std::move(step));
  ProposeNext();
}

void Control::Impl::WantTopology(Instant& next) const {
  if (Running() == nullptr || !step_.ready_since.has_value()) return;
  const absl::Duration delay = StepInDelay();
  if (delay == absl::InfiniteDuration()) return;
  const Instant due = *step_.ready_since + delay;
  if (due > time_.now) next = std::min(next, due);
}

// --- Who is dead ---

const std::vector<NodeNumber>& Control::Impl::Silent() {
  if (silent_known_ && silent_at_ == time_.now) return silent_;
  silent_known_ = true;
  silent_at_ = time_.now;
  silent_.clear();
  if (ring_ == nullptr) return silent_;
  for (const Member& member : ring_->spec().members) {
    if (silent_.size() >= kSilentMax) break;
    const Peer* const peer = FindPeer(member.id);
    if (member.id != id_ && (peer == nullptr || !IsHeard(*peer))) {
      silent_.push_back(member.number);
    }
  }
  return silent_;
}

absl::Status Control::Impl::CheckDead(const TopologyRequest& request) const {
  if (request.kind != TopologyKind::kRemoveDead &&
      request.kind != TopologyKind::kReplace) {
    return absl::OkStatus();
  }
  const auto alive = [&](NodeNumber node, absl::string_view who) {
    return absl::FailedPreconditionError(absl::StrCat(
        NamesOf({node}), " is alive: ", who,
        " hears it. Stop it first; a node ",
        "that can serve until it is gone leaves by kvctl decommission"));
  };
  if (time_.now - started_ < kHearingTime) {
    return absl::UnavailableError(
        "this node started just now and does not know yet who is alive; ask "
        "again in a few seconds");
  }
  for (NodeNumber node : request.nodes) {
    const Member* const member = ring_->FindMember(node);
    if (member == nullptr) continue;
    if (node == number_) return alive(node, "this node");
    const auto found = peers_.find(member->id);
    if (found != peers_.end() && IsHeard(found->second)) {
      return alive(node, "this node");
    }
    for (const auto& [id, peer] : peers_) {
      const Member* const witness = ring_->FindMember(id);
      if (witness == nullptr || !IsHeard(peer) ||
          absl::c_linear_search(request.nodes, witness->number)) {
        continue;
      }
      if (!absl::c_linear_search(peer.beat->silent, node)) {
        return alive(node, Called(peer));
      }
    }
    // What the others say of whom they hear may be old where there are many.
    const Gossip::Member* const known = gossip_.Find(member->id);
    if (known != nullptr && known->state == Liveness::kAlive) {
      return alive(node, "some member");
    }
  }
  return absl::OkStatus();
}

}  // namespace ringkv
