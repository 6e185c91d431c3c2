// What operators ask of topology operations and are told about them: names
// become numbers, a request becomes a plan, and a running operation says whom
// it waits for.

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "membership/control/control_impl.h"
#include "membership/ring/placement.h"
#include "membership/topology/segments.h"

namespace ringkv {
namespace {

constexpr size_t kWaitsExplained = 3;

uint32_t GreatestN(const Ring& ring) {
  uint32_t n = 1;
  for (const Keyspace& keyspace : ring.spec().keyspaces) {
    n = std::max(n, ring.EffectiveN(keyspace));
  }
  return n;
}

double LargestOverFair(const PlacementReport& report) {
  double largest = 0;
  for (const PlacementReport::Node& node : report.nodes) {
    if (node.fair_share > 0) {
      largest = std::max(largest, node.replicated_share / node.fair_share);
    }
  }
  return largest;
}

// A rack takes at most one replica of a key as long as there are N racks. So a
// rack with more than one N-th of all the weight cannot take its share, and the
// others take more than theirs.
void WarnOfRacks(const Ring& after, uint32_t n,
                 std::vector<std::string>& warnings) {
  std::map<std::pair<std::string, std::string>, double> racks;
  std::set<NodeNumber> owners(after.spec().owners.begin(),
                              after.spec().owners.end());
  double weight = 0;
  for (const Member& member : after.spec().members) {
    if (owners.count(member.number) == 0) continue;
    racks[{member.location.zone, member.location.rack}] += member.weight;
    weight += member.weight;
  }
  if (racks.size() <= 1) return;
  if (racks.size() < n) {
    warnings.push_back(absl::StrCat("there will be ", racks.size(),
                                    " racks for N=", n,
                                    ": some replicas share a rack"));
    return;
  }
  const auto largest = std::max_element(
      racks.begin(), racks.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto smallest = std::min_element(
      racks.begin(), racks.end(),
      [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest->second * n > weight * 1.001) {
    warnings.push_back(absl::StrCat(
        "racks are uneven: rack \"", largest->first.second, "\" will have ",
        largest->second, " of ", weight, " node weights, rack \"",
        smallest->first.second, "\" ", smallest->second,
        "; nodes of smaller racks will hold more than their share"));
  }
}

std::string Percent(double share) {
  return absl::StrFormat(share < 0.0001 ? "%.1e %%" : "%.2f %%", share * 100);
}

// What is lost for good, where the operator has accepted that.
void WarnOfLosses(const Ring& ring, std::vector<std::string>& warnings) {
  for (const Shortage& shortage : ShortagesOf(ring)) {
    const std::string dead = absl::StrJoin(
        shortage.dead, ", ", [&](std::string* out, NodeNumber node) {
          absl::StrAppend(out, ring.FindMember(node)->name);
        });
    std::string text = absl::StrCat(
        "keyspace ", ring.FindKeyspace(shortage.keyspace)->name,
        ": acknowledged writes that only ", dead, " had are lost, among ",
        Percent(shortage.share), " of the keys");
    if (shortage.share_gone > 0) {
      absl::StrAppend(&text, "; of ", Percent(shortage.share_gone),
                      " of the keys no replica is left");
    }
    warnings.push_back(std::move(text));
  }
}

}  // namespace

NodeRef Control::Impl::RefTo(NodeNumber node) const {
  const Member* const member =
      ring_ == nullptr ? nullptr : ring_->FindMember(node);
  return {node, member == nullptr ? "" : member->name};
}

uint64_t Control::Impl::DiskBytesOf(NodeNumber node) const {
  if (node == number_) return load_.disk_bytes;
  const Member* const member = ring_->FindMember(node);
  if (member == nullptr) return 0;
  const auto found = peers_.find(member->id);
  return found != peers_.end() && found->second.beat.has_value()
             ? found->second.beat->load.disk_bytes
             : 0;
}

// --- Names ---

absl::StatusOr<NodeNumber> Control::Impl::ResolveMember(
    const std::string& text) const {
  uint32_t number = 0;
  const bool is_number = absl::SimpleAtoi(text, &number);
  std::vector<NodeNumber> found;
  std::vector<NodeNumber> all;
  for (const Member& member : ring_->spec().members) {
    all.push_back(member.number);
    if ((is_number && ToInt(member.number) == number) || member.name == text ||
        member.id.ToString() == text || member.peer_address == text ||
        member.client_address == text) {
      found.push_back(member.number);
    }
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" may be any of ", NamesOf(found),
                     "; give a node number"));
  }
  return absl::NotFoundError(absl::StrCat("no member is called \"", text,
                                          "\"; members are ", NamesOf(all)));
}

absl::StatusOr<Member> Control::Impl::ResolveStandby(
    const std::string& text) const {
  std::vector<const Peer*> found;
  std::vector<std::string> standby;
  for (const auto& [id, peer] : peers_) {
    if (IsMember(id) || !peer.facts.has_value() || KnowsDeparted(peer)) {
      continue;
    }
    const NodeFacts& facts = *peer.facts;
    if (facts.name == text || facts.id.ToString() == text ||
        facts.peer_address == text || facts.client_address == text) {
      found.push_back(&peer);
    }
    if (IsHeard(peer)) standby.push_back(Called(peer));
  }
  if (found.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" may be any of ", found.size(),
                     " nodes; give a peer address or a node id"));
  }
  if (found.empty()) {
    if (const absl::StatusOr<NodeNumber> member = ResolveMember(text);
        member.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat(NamesOf({*member}), " is a member already"));
    }
    return absl::NotFoundError(absl::StrCat(
        "no standby node is called \"", text, "\"; ",
        standby.empty()
            ? "this node hears none. Start the new node with "
              "--seeds naming a member's peer address"
            : absl::StrCat("this node hears ", absl::StrJoin(standby, ", "))));
  }
  const Peer& peer = *found.front();
  const NodeFacts& facts = *peer.facts;
  if (!peer.alive) {
    return absl::FailedPreconditionError(
        absl::StrCat(Called(peer), " is not alive; is it running?"));
  }
  if (!facts.cluster_id.IsNone()) {
    return absl::FailedPreconditionError(
        absl::StrCat(Called(peer), " is in a ring already"));
  }
  Member member;
  member.id = facts.id;
  member.name = facts.name;
  member.client_address = facts.client_address;
  member.peer_address = facts.peer_address;
  member.location = facts.location;
  member.weight = facts.weight;
  return member;
}

absl::StatusOr<TopologyRequest> Control::Impl::Resolve(
    const StartOperationCall& call) const {
  TopologyRequest request;
  request.kind = call.kind;
  request.weight = call.weight;
  request.planned_for = call.planned_for;
  request.allow_fewer_replicas = call.allow_fewer_replicas;
  request.accept_data_loss = call.accept_data_loss;
  const bool joins = call.kind == TopologyKind::kJoin;
  if (!call.replacements.empty() && call.kind != TopologyKind::kReplace) {
    return absl::InvalidArgumentError(
        "replacements: only a replace has replacements");
  }
  for (const std::string& name : joins ? call.nodes : call.replacements) {
    ASSIGN_OR_RETURN(Member joiner, ResolveStandby(name));
    for (const Member& other : request.joiners) {
      if (other.id == joiner.id) {
        return absl::InvalidArgumentError(
            absl::StrCat("\"", name, "\" is named twice"));
      }
    }
    request.joiners.push_back(std::move(joiner));
  }
  RETURN_IF_ERROR(CheckJoiners(request));
  if (joins) return request;
  for (const std::string& name : call.nodes) {
    ASSIGN_OR_RETURN(const NodeNumber node, ResolveMember(name));
    request.nodes.push_back(node);
  }
  return request;
}

// --- Calls ---

void Control::Impl::StartTopology(uint64_t call, Instant deadline,
                                  const StartOperationCall& request) {
  if (ring_ == nullptr) {
    return Refuse(call, absl::FailedPreconditionError(
                            "this node is in no ring yet: form a cluster with "
                            "kvctl init first"));
  }
  absl::StatusOr<TopologyRequest> resolved = Resolve(request);
  if (!resolved.ok()) return Refuse(call, resolved.status());
  if (!request.dry_run) {
    return StartChange(call, deadline, *std::move(resolved));
  }
  absl::StatusOr<RingSpec> spec = StartOperation(*resolved, ring_->spec());
  if (!spec.ok()) return Refuse(call, spec.status());
  const absl::StatusOr<std::shared_ptr<const Ring>> ring =
      Ring::Make(*std::move(spec));
  if (!ring.ok()) return Refuse(call, ring.status());
  OperationPlan plan = PlanOf(**ring);
  if (const absl::Status status = CheckDead(*resolved); !status.ok()) {
    plan.warnings.push_back(
        absl::StrCat("would be refused now: ", status.message()));
  }
  Answer(call, {absl::OkStatus(), StartOperationAnswer{std::move(plan), 0}});
}

void Control::Impl::StartAbort(uint64_t call, Instant deadline,
                               const AbortOperationCall& request) {
  AbortOperationCall named = request;
  // By number, so that what is aborted is what runs now and nothing later.
  if (named.operation == 0 && Running() != nullptr) {
    named.operation = Running()->id;
  }
  StartChange(call, deadline, named);
}

OperationPlan Control::Impl::PlanOf(const Ring& ring) const {
  const TopologyOperation& operation = *ring.spec().operation;
  const auto ref = [&ring](NodeNumber node) {
    const Member* const member = ring.FindMember(node);
    return NodeRef{node, member == nullptr ? "" : member->name};
  };
  OperationPlan plan;
  plan.kind = operation.kind;
  plan.epoch = ring_->epoch();
  for (NodeNumber node : operation.nodes) plan.nodes.push_back(ref(node));
  const bool switched = operation.phase == TopologyPhase::kSwitch;
  for (const Move& move : switched ? std::vector<Move>() : MovesOf(ring)) {
    PlannedTransfer& transfer = plan.transfers.emplace_back();
    transfer.from = ref(move.from);
    transfer.to = ref(move.to);
    transfer.ranges = move.ranges;
    transfer.bytes = static_cast<uint64_t>(
        move.share_of_sender * static_cast<double>(DiskBytesOf(move.from)));
  }
  const Ring& ring_after = switched ? ring : *ring.other();
  const Ring& ring_before = switched ? *ring.other() : ring;
  const PlacementReport before = Inspect(ring_before, GreatestN(ring_before));
  const PlacementReport after = Inspect(ring_after, GreatestN(ring_after));
  plan.largest_over_fair_before = LargestOverFair(before);
  plan.largest_over_fair_after = LargestOverFair(after);
  std::map<NodeNumber, PlannedShare> shares;
  const auto add = [&](const PlacementReport& report,
                       double PlannedShare::*share) {
    double sum = 0;
    for (const PlacementReport::Node& node : report.nodes) {
      sum += node.replicated_share;
    }
    for (const PlacementReport::Node& node : report.nodes) {
      shares[node.number].*share = sum > 0 ? node.replicated_share / sum : 0;
    }
  };
  add(before, &PlannedShare::before);
  add(after, &PlannedShare::after);
  for (auto& [number, share] : shares) {
    share.node = ref(number);
    plan.shares.push_back(std::move(share));
  }
  WarnOfRacks(ring_after, GreatestN(ring_after), plan.warnings);
  if (!switched) {
    WarnOfLosses(ring, plan.warnings);
    WarnOfTheDown(ring, plan.warnings);
  }
  return plan;
}

bool Control::Impl::IsUp(const Member& member) const {
  if (member.id == id_) return true;
  const auto found = peers_.find(member.id);
  return found != peers_.end() && found->second.alive;
}

std::vector<NodeNumber> Control::Impl::DownSourcesOf(const Ring& ring,
                                                     NodeNumber node) const {
  std::set<NodeNumber> down;
  for (const Member& member : ring.spec().members) {
    if (!IsUp(member)) down.insert(member.number);
  }
  if (down.empty()) return {};
  std::set<NodeNumber> needed;
  for (const Transfer& transfer : TransfersOf(ring, node)) {
    std::vector<NodeNumber> missing;
    for (NodeNumber source : transfer.sources) {
      if (down.count(source) > 0) missing.push_back(source);
    }
    if (transfer.sources.size() - missing.size() < transfer.sources_needed) {
      needed.insert(missing.begin(), missing.end());
    }
  }
  return {needed.begin(), needed.end()};
}

void Control::Impl::WarnOfTheDown(const Ring& ring,
                                  std::vector<std::string>& warnings) const {
  for (NodeNumber node : ReceiversOf(ring)) {
    const Member& receiver = *ring.FindMember(node);
    const std::string name =
        absl::StrCat(receiver.name, " (", ToInt(node), ")");
    if (!IsUp(receiver)) {
      warnings.push_back(absl::StrCat(
          name, " is down and is to receive keys: this waits for it"));
    }
    for (NodeNumber source : DownSourcesOf(ring, node)) {
      warnings.push_back(absl::StrCat(
          ring.FindMember(source)->name, " (", ToInt(source),
          ") is down and is to send ", name, " keys: this waits for it"));
    }
  }
}

// --- What is told ---

std::vector<OperationWait> Control::Impl::Waits() const {
  std::vector<OperationWait> waits;
  const TopologyOperation& running = *Running();
  const auto is_alive = [this](const Member& member) { return IsUp(member); };
  const auto wait = [&](NodeNumber node, std::string why) {
    waits.push_back({RefTo(node), std::move(why)});
  };
  if (!step_.barrier_reached) {
    for (const Member& member : ring_->spec().members) {
      if (step_.acknowledged.count(member.number) > 0 ||
          IsTakenForDead(*ring_, member.number)) {
        continue;
      }
      wait(member.number,
           absl::StrCat("has not adopted ring epoch ", step_.barrier_epoch,
                        is_alive(member) ? ""
                        : running.phase == TopologyPhase::kStart
                            ? ": it is down; start it again, or abort"
                            : ": it is down; start it again, or, if it never "
                              "comes back, go on without it by kvctl "
                              "remove-dead"));
    }
    return waits;
  }
  if (running.phase == TopologyPhase::kStart) {
    for (NodeNumber node : step_.receivers) {
      if (step_.received.count(node) > 0) continue;
      const Member* const member = ring_->FindMember(node);
      if (member == nullptr || !is_alive(*member)) {
        wait(node,
             "is down and has not received everything: start it again, or "
             "abort");
        continue;
      }
      // Only of the first, since kvctl shows no more and it takes time.
      const std::vector<NodeNumber> down = waits.size() < kWaitsExplained
                                               ? DownSourcesOf(*ring_, node)
                                               : std::vector<NodeNumber>();
      wait(node, down.empty()
                     ? "receives"
                     : absl::StrCat("cannot receive all from ", NamesOf(down),
                                    ", which is down: start it again, or "
                                    "abort"));
    }
  } else if (running.kind == TopologyKind::kDecommission) {
    for (NodeNumber node : running.nodes) {
      if (HintsAreDelivered(node)) continue;
      const Member* const member = ring_->FindMember(node);
      wait(node, member != nullptr && is_alive(*member)
                     ? "delivers the hints that it holds"
                     : "is down and may hold hints: start it again, or give "
                       "them up with kvctl remove-dead");
    }
  }
  if (waits.empty()) {
    waits.push_back({NodeRef(), "the voters decide on the next step"});
  }
  return waits;
}

std::vector<OperationProgress> Control::Impl::Progress(
    RingEpoch operation) const {
  std::vector<OperationProgress> all;
  for (NodeNumber node : step_.receivers) {
    OperationProgress& progress = all.emplace_back();
    progress.node = RefTo(node);
    if (node == number_) {
      progress.alive = true;
      progress.report = transfers_;
    } else if (const Member* member = ring_->FindMember(node)) {
      const auto found = peers_.find(member->id);
      if (found != peers_.end() && found->second.beat.has_value()) {
        progress.alive = found->second.alive;
        progress.report = found->second.beat->transfers;
      }
    }
    if (progress.report.operation != operation) {
      progress.report = TransferReport{operation, 0, 0, 0, 0, false};
    }
  }
  return all;
}

AdminAnswer Control::Impl::OperationsNow() const {
  if (ring_ == nullptr) {
    return {absl::FailedPreconditionError("this node is in no ring yet"), {}};
  }
  OperationsAnswer answer;
  answer.ring_epoch = ring_->epoch();
  answer.finished.assign(finished_.begin(), finished_.end());
  const TopologyOperation* const running = Running();
  if (running != nullptr) {
    OperationStatus& status = answer.running.emplace(operation_->status);
    status.state = running->phase == TopologyPhase::kSwitch
                       ? OperationState::kSwitching
                   : step_.barrier_reached ? OperationState::kStreaming
                                           : OperationState::kStarting;
    status.waits = Waits();
    if (running->phase == TopologyPhase::kStart) {
      status.progress = Progress(running->id);
    }
  }
  return {absl::OkStatus(), std::move(answer)};
}

}  // namespace ringkv
