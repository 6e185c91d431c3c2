// kvctl recover: a majority of the voters is lost for good, so nobody can
// decide the next epoch. One survivor writes a ring of a new lineage, around
// the survivors that the operator names; the others fetch it from there, and
// whoever was left out is refused at the handshake. Nothing here waits for
// consent: there is nobody to ask.

#include "membership/topology/recovery.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/mark.h"
#include "base/status.h"
#include "membership/control/control_impl.h"
#include "membership/epochs/voters.h"

namespace ringkv {

absl::StatusOr<std::vector<NodeNumber>> Control::Impl::SurvivorsOf(
    const RecoverCall& request) const {
  std::vector<NodeNumber> survivors;
  if (request.survivors.empty()) {
    if (!request.dry_run) {
      return absl::InvalidArgumentError(
          "survivors: name the members that are left, the answering node "
          "included");
    }
    for (const Member& member : ring_->spec().members) {
      const auto found = peers_.find(member.id);
      if (member.id == id_ ||
          (found != peers_.end() && IsHeard(found->second))) {
        survivors.push_back(member.number);
      }
    }
  }
  for (const std::string& name : request.survivors) {
    ASSIGN_OR_RETURN(const NodeNumber node, ResolveMember(name));
    if (!absl::c_linear_search(survivors, node)) survivors.push_back(node);
  }
  std::sort(survivors.begin(), survivors.end());
  return survivors;
}

absl::Status Control::Impl::CheckRecovery(
    const std::vector<NodeNumber>& survivors,
    const std::vector<NodeNumber>& lost) const {
  if (lost.empty()) {
    return absl::FailedPreconditionError(
        "every member is named as a survivor: nothing is lost");
  }
  const std::vector<NodeNumber> voters = VotersOf(ring_->spec());
  std::vector<NodeNumber> left;
  for (NodeNumber voter : voters) {
    if (absl::c_linear_search(survivors, voter)) left.push_back(voter);
  }
  if (left.size() >= MajorityOf(voters.size())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a majority of the voters is left (", NamesOf(left), " of ",
        NamesOf(voters),
        "): the ring can be changed without losing anything, by kvctl "
        "remove-dead or replace"));
  }
  // Of two who recover the same survivors, one would cut off the other. So one
  // of them does it for all.
  if (survivors.front() != number_) {
    const Member* const first = ring_->FindMember(survivors.front());
    return absl::FailedPreconditionError(
        absl::StrCat("the lowest-numbered survivor recovers the ring: ask ",
                     NamesOf({survivors.front()}), " at ",
                     first == nullptr ? "?" : first->client_address));
  }
  TopologyRequest dead;
  dead.kind = TopologyKind::kRemoveDead;
  dead.nodes = lost;
  RETURN_IF_ERROR(CheckDead(dead));
  for (NodeNumber node : survivors) {
    if (node == number_) continue;
    const auto found = peers_.find(ring_->FindMember(node)->id);
    if (found == peers_.end() || !IsHeard(found->second)) {
      return absl::FailedPreconditionError(
          absl::StrCat(NamesOf({node}),
                       " is named as a survivor, and this node does not "
                       "hear it: start it, or leave it out"));
    }
    const RingEpoch epoch = found->second.beat->known_epoch;
    if (epoch != ring_->epoch()) {
      return absl::UnavailableError(absl::StrCat(
          NamesOf({node}), " has ring epoch ", epoch, ", this node ",
          ring_->epoch(), ": ask again when they agree"));
    }
  }
  return absl::OkStatus();
}

void Control::Impl::StartRecovery(uint64_t call, const RecoverCall& request) {
  if (ring_ == nullptr) {
    return Refuse(call, absl::FailedPreconditionError(
                            "this node is in no ring, so it has none to "
                            "recover"));
  }
  if (learning_ > ring_->epoch()) {
    return Refuse(
        call, absl::UnavailableError("this node is just taking over a newer "
                                     "ring: ask again"));
  }
  if (request.planned_for != 0 && request.planned_for != ring_->epoch()) {
    return Refuse(call, absl::AbortedError(absl::StrCat(
                            "the plan was made for ring epoch ",
                            request.planned_for, ", and the ring has epoch ",
                            ring_->epoch(), "; look at the new plan")));
  }
  const absl::StatusOr<std::vector<NodeNumber>> survivors =
      SurvivorsOf(request);
  if (!survivors.ok()) return Refuse(call, survivors.status());
  RecoverAnswer answer;
  std::vector<NodeNumber> lost;
  for (const Member& member : ring_->spec().members) {
    if (absl::c_linear_search(*survivors, member.number)) {
      answer.survivors.push_back(RefTo(member.number));
    } else {
      answer.lost.push_back(RefTo(member.number));
      lost.push_back(member.number);
    }
  }
  if (absl::Status status = CheckRecovery(*survivors, lost); !status.ok()) {
    return Refuse(call, std::move(status));
  }
  RecoveryRequest recovery;
  recovery.survivors = *survivors;
  do {
    recovery.lineage = random_.Next();
  } while (recovery.lineage == 0);
  absl::StatusOr<RingSpec> spec = RecoverRing(recovery, ring_->spec());
  if (!spec.ok()) return Refuse(call, spec.status());
  const absl::StatusOr<std::shared_ptr<const Ring>> ring =
      Ring::Make(*std::move(spec));
  if (!ring.ok()) return Refuse(call, ring.status());
  answer.ring_epoch = ring_->epoch();
  if ((*ring)->spec().operation.has_value()) {
    answer.plan = PlanOf(**ring);
    answer.operation = (*ring)->spec().operation->id;
  }
  std::vector<std::string>& warnings = answer.plan.warnings;
  if (const TopologyOperation* running = Running(); running != nullptr) {
    warnings.push_back(
        absl::StrCat("the ", NameOf(running->kind), " of epoch ", running->id,
                     running->phase == TopologyPhase::kStart
                         ? ", which runs, is taken back"
                         : ", which has switched, is ended as it is"));
  }
  warnings.push_back(absl::StrCat(
      "changes of the ring and of keyspaces that the lost nodes decided on "
      "after ring epoch ",
      ring_->epoch(), " are lost, and so are hints that only they held"));
  warnings.push_back(absl::StrCat(
      "the lost nodes (", NamesOf(lost),
      ") never come back under their numbers: started again, they are refused "
      "and stop"));
  if (request.dry_run) {
    answer.operation = 0;
    return Answer(call, {absl::OkStatus(), std::move(answer)});
  }
  RINGKV_MARK("ring-recovered");
  Log(LogLevel::kWarning,
      absl::StrCat("an operator recovers the ring from epoch ", ring_->epoch(),
                   " with ", NamesOf(*survivors), " and without ",
                   NamesOf(lost), ": lineage ", recovery.lineage));
  answer.lineage = recovery.lineage;
  answer.ring_epoch = (*ring)->epoch();
  const RingEpoch epoch = (*ring)->epoch();
  Learn(*ring, {{epoch, {start_id_, ++proposals_}}},
        [this, call, epoch, answer = std::move(answer)]() mutable {
          AwaitedAdoption awaited;
          awaited.epoch = epoch;
          awaited.out.call = call;
          awaited.out.answer = {absl::OkStatus(), std::move(answer)};
          // Nobody else needs to have it yet.
          awaited.give_up = time_.now;
          awaited_.push_back(std::move(awaited));
        });
}

}  // namespace ringkv
