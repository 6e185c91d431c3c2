#include "membership/topology/operation.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"
#include "membership/ring/domains.h"
#include "membership/ring/placement.h"
#include "membership/topology/segments.h"

namespace ringkv {
namespace {

Member* FindIn(RingSpec& spec, NodeNumber number) {
  for (Member& member : spec.members) {
    if (member.number == number) return &member;
  }
  return nullptr;
}

std::string NameOf(const Member& member) {
  return member.name.empty() ? absl::StrCat("node ", ToInt(member.number))
                             : member.name;
}

Arrangement ArrangementOf(const RingSpec& spec) {
  Arrangement arrangement;
  for (const Member& member : spec.members) {
    arrangement.weights.push_back(member.weight);
  }
  arrangement.tokens = spec.tokens;
  arrangement.owners = spec.owners;
  for (const Keyspace& keyspace : spec.keyspaces) {
    arrangement.quorums.push_back({keyspace.n, keyspace.r, keyspace.w});
  }
  return arrangement;
}

void Arrange(Arrangement arrangement, RingSpec& spec) {
  RINGKV_CHECK(arrangement.weights.size() == spec.members.size());
  RINGKV_CHECK(arrangement.quorums.size() == spec.keyspaces.size());
  for (size_t i = 0; i < spec.members.size(); ++i) {
    spec.members[i].weight = arrangement.weights[i];
  }
  for (size_t i = 0; i < spec.keyspaces.size(); ++i) {
    spec.keyspaces[i].n = arrangement.quorums[i].n;
    spec.keyspaces[i].r = arrangement.quorums[i].r;
    spec.keyspaces[i].w = arrangement.quorums[i].w;
  }
  spec.tokens = std::move(arrangement.tokens);
  spec.owners = std::move(arrangement.owners);
}

// Keyspaces whose sets or settings differ between the two arrangements of
// `spec` change in its epoch.
absl::Status NoteChanges(RingSpec& spec) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Ring> ring, Ring::Make(spec));
  for (Keyspace& keyspace : spec.keyspaces) {
    bool differs = false;
    ForEachRange(*ring, keyspace,
                 [&](const TokenRange&, const ReplicaSet& before,
                     const ReplicaSet& after) {
                   differs = differs || before.r != after.r ||
                             before.w != after.w || before.n != after.n ||
                             !std::is_permutation(
                                 before.nodes.begin(), before.nodes.end(),
                                 after.nodes.begin(), after.nodes.end());
                 });
    if (differs) keyspace.changed_at = spec.epoch;
  }
  spec.tokens = ring->spec().tokens;
  spec.operation->other.tokens = ring->spec().operation->other.tokens;
  return absl::OkStatus();
}

size_t RacksOf(const std::vector<Member>& members) {
  return Domains(members, std::vector<bool>(members.size(), true)).racks;
}

uint32_t GreatestN(const RingSpec& spec) {
  uint32_t n = 1;
  for (const Keyspace& keyspace : spec.keyspaces) n = std::max(n, keyspace.n);
  return n;
}

absl::Status CheckEnoughLeft(const TopologyRequest& request,
                             const RingSpec& spec,
                             const std::vector<Member>& left, uint32_t n) {
  if (left.empty()) {
    return absl::FailedPreconditionError(
        "nobody would be left to hold the keys");
  }
  if (request.allow_fewer_replicas) return absl::OkStatus();
  const size_t had = spec.members.size();
  if (left.size() < n && left.size() < had) {
    return absl::FailedPreconditionError(absl::StrCat(
        left.size(), " nodes would be left, fewer than the N=", n,
        " replicas that a keyspace asks for; add --allow-fewer-replicas to go "
        "on with as many replicas as there are nodes"));
  }
  const size_t racks_wanted = std::min<size_t>(n, RacksOf(spec.members));
  if (RacksOf(left) < racks_wanted) {
    return absl::FailedPreconditionError(absl::StrCat(
        RacksOf(left), " racks would be left, and replicas stand in ",
        racks_wanted,
        " now; add --allow-fewer-replicas to let replicas share a rack"));
  }
  return absl::OkStatus();
}

std::string Percent(double share) {
  return absl::StrFormat(share < 0.0001 ? "%.1e %%" : "%.2f %%", share * 100);
}

// A request that could only go on without acknowledged writes says so at once;
// it would wait for ever otherwise. `spec` has the operation.
absl::Status CheckNothingLost(const RingSpec& spec) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Ring> ring, Ring::Make(spec));
  const std::vector<Shortage> shortages = ShortagesOf(*ring);
  if (shortages.empty()) return absl::OkStatus();
  const Shortage& shortage = shortages.front();
  const Keyspace& keyspace = *ring->FindKeyspace(shortage.keyspace);
  const std::string dead = absl::StrJoin(
      shortage.dead, ", ", [&](std::string* out, NodeNumber node) {
        absl::StrAppend(out, NameOf(*ring->FindMember(node)));
      });
  return absl::FailedPreconditionError(absl::StrCat(
      "acknowledged writes may be lost: keyspace \"", keyspace.name,
      "\" (N=", keyspace.n, ", W=", keyspace.w, ") is sure of them while ",
      shortage.needed, shortage.needed == 1 ? " replica" : " replicas",
      " of a key live, and without ", dead, " there are as few as ",
      shortage.living, ", in ", Percent(shortage.share), " of its keys",
      shortages.size() == 1
          ? ""
          : absl::StrCat(" (and ", shortages.size() - 1, " more keyspaces)"),
      ". Start ", shortage.dead.size() == 1 ? "it" : "one of them",
      " again, if its disk is good; if not, --accept-data-loss goes on without "
      "what only the dead ",
      shortage.dead.size() == 1 ? "node" : "nodes", " had"));
}

absl::Status AddJoiners(const TopologyRequest& request, RingSpec& spec,
                        TopologyOperation& operation) {
  if (request.joiners.empty()) {
    return absl::InvalidArgumentError("name at least one node that joins");
  }
  if (spec.members.size() + request.joiners.size() > kMembersMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ring would have ", spec.members.size() + request.joiners.size(),
        " members, more than the limit of ", kMembersMax));
  }
  for (const Member& joiner : request.joiners) {
    for (const Member& member : spec.members) {
      if (member.id == joiner.id) {
        return absl::FailedPreconditionError(
            absl::StrCat(NameOf(member), " is a member already"));
      }
      const bool replaced =
          std::find(operation.replaced.begin(), operation.replaced.end(),
                    member.number) != operation.replaced.end();
      if (!joiner.name.empty() && member.name == joiner.name && !replaced) {
        return absl::FailedPreconditionError(
            absl::StrCat("a member is named \"", joiner.name,
                         "\" already; start the new node with another --name"));
      }
    }
    Member added = joiner;
    added.number = spec.next_node_number;
    spec.next_node_number = NodeNumber{ToInt(spec.next_node_number) + 1};
    operation.nodes.push_back(added.number);
    spec.members.push_back(std::move(added));
  }
  return absl::OkStatus();
}

absl::Status CheckNodes(const TopologyRequest& request, RingSpec& spec) {
  if (request.nodes.empty()) {
    return absl::InvalidArgumentError("name at least one node");
  }
  std::set<NodeNumber> seen;
  for (NodeNumber node : request.nodes) {
    if (FindIn(spec, node) == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("no member has number ", ToInt(node)));
    }
    if (!seen.insert(node).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", ToInt(node), " is named twice"));
    }
  }
  return absl::OkStatus();
}

// The members that own tokens once it is done.
std::vector<Member> MembersAfter(const RingSpec& spec,
                                 const TopologyOperation& operation) {
  std::vector<Member> after;
  for (const Member& member : spec.members) {
    if (!operation.Leaves(member.number)) after.push_back(member);
  }
  return after;
}

absl::StatusOr<Assignment> AssignAfter(const RingSpec& before,
                                       const TopologyOperation& operation,
                                       const std::vector<Member>& after,
                                       uint32_t n) {
  Assignment current{before.tokens, before.owners};
  if (operation.kind == TopologyKind::kKeyspace) return current;
  if (operation.kind == TopologyKind::kReplace) {
    // Whoever comes takes over what the dead one had.
    for (NodeNumber& owner : current.owners) {
      for (size_t i = 0; i < operation.replaced.size(); ++i) {
        if (owner == operation.replaced[i]) owner = operation.nodes[i];
      }
    }
  }
  PlacementOptions options;
  options.strategy = before.placement;
  options.vnodes = before.vnodes;
  options.n = n;
  return Place(options, after, current);
}

// A decommission that has switched waits for the hints of those who leave. If
// they die for good, the operator gives the hints up by vouching for that.
bool GivesUpLeavers(const TopologyRequest& request, const RingSpec& spec) {
  if (request.kind != TopologyKind::kRemoveDead ||
      !spec.operation.has_value() ||
      spec.operation->kind != TopologyKind::kDecommission ||
      spec.operation->phase != TopologyPhase::kSwitch ||
      (request.planned_for != 0 && request.planned_for != spec.epoch)) {
    return false;
  }
  std::vector<NodeNumber> nodes = request.nodes;
  std::sort(nodes.begin(), nodes.end());
  return nodes == spec.operation->nodes;
}

// An operation that has switched can only go on, and may wait for a member that
// never comes back. The operator vouches that it is stopped, and takes it out
// or replaces it afterwards.
bool GoesOnWithoutThem(const TopologyRequest& request, const RingSpec& spec) {
  return request.kind == TopologyKind::kRemoveDead &&
         spec.operation.has_value() &&
         spec.operation->phase == TopologyPhase::kSwitch &&
         (request.planned_for == 0 || request.planned_for == spec.epoch) &&
         std::none_of(request.nodes.begin(), request.nodes.end(),
                      [&spec](NodeNumber node) {
                        return spec.operation->GoesOnWithout(node);
                      });
}

// Takes members out for good.
void Depart(const std::vector<NodeNumber>& leavers, RingSpec& spec) {
  std::erase_if(spec.members, [&](const Member& member) {
    return std::find(leavers.begin(), leavers.end(), member.number) !=
           leavers.end();
  });
  spec.departed.insert(spec.departed.end(), leavers.begin(), leavers.end());
  std::sort(spec.departed.begin(), spec.departed.end());
}

}  // namespace

absl::StatusOr<RingSpec> StartOperation(const TopologyRequest& request,
                                        const RingSpec& spec) {
  if (GivesUpLeavers(request, spec)) {
    RingSpec next = spec;
    ++next.epoch;
    next.operation->kind = TopologyKind::kRemoveDead;
    return next;
  }
  if (GoesOnWithoutThem(request, spec)) {
    RingSpec next = spec;
    RETURN_IF_ERROR(CheckNodes(request, next));
    ++next.epoch;
    std::vector<NodeNumber>& stopped = next.operation->stopped;
    stopped.insert(stopped.end(), request.nodes.begin(), request.nodes.end());
    std::sort(stopped.begin(), stopped.end());
    return next;
  }
  if (spec.operation.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a ", NameOf(spec.operation->kind), " runs (since epoch ",
                     spec.operation->id,
                     "); wait until it is done, or stop it with kvctl abort"));
  }
  if (request.planned_for != 0 && request.planned_for != spec.epoch) {
    return absl::AbortedError(absl::StrCat(
        "the plan was made for ring epoch ", request.planned_for,
        ", and the ring has epoch ", spec.epoch, "; look at the new plan"));
  }
  RingSpec next = spec;
  ++next.epoch;
  TopologyOperation operation;
  operation.kind = request.kind;
  operation.id = next.epoch;
  Quorums quorums = request.quorums;
  size_t keyspace_index = next.keyspaces.size();
  switch (request.kind) {
    case TopologyKind::kJoin:
      RETURN_IF_ERROR(AddJoiners(request, next, operation));
      break;
    case TopologyKind::kReplace:
      RETURN_IF_ERROR(CheckNodes(request, next));
      if (request.nodes.size() != request.joiners.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            request.joiners.size(), " nodes cannot take the place of ",
            request.nodes.size()));
      }
      operation.replaced = request.nodes;
      RETURN_IF_ERROR(AddJoiners(request, next, operation));
      break;
    case TopologyKind::kDecommission:
    case TopologyKind::kRemoveDead:
    case TopologyKind::kWeight:
      RETURN_IF_ERROR(CheckNodes(request, next));
      operation.nodes = request.nodes;
      std::sort(operation.nodes.begin(), operation.nodes.end());
      break;
    case TopologyKind::kKeyspace: {
      for (size_t i = 0; i < next.keyspaces.size(); ++i) {
        if (next.keyspaces[i].id == request.keyspace) keyspace_index = i;
      }
      if (keyspace_index == next.keyspaces.size()) {
        return absl::NotFoundError(
            absl::StrCat("no keyspace has id ", ToInt(request.keyspace)));
      }
      Keyspace changed = next.keyspaces[keyspace_index];
      if (Quorums{changed.n, changed.r, changed.w} == quorums) {
        return absl::FailedPreconditionError(absl::StrCat(
            "keyspace ", changed.name, " has these N, R and W already"));
      }
      changed.n = quorums.n;
      changed.r = quorums.r;
      changed.w = quorums.w;
      RETURN_IF_ERROR(CheckKeyspace(changed));
      operation.keyspace = request.keyspace;
      break;
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown kind of operation ", static_cast<int>(request.kind)));
  }

  uint32_t n = GreatestN(next);
  if (request.kind == TopologyKind::kKeyspace) n = std::max(n, quorums.n);
  std::vector<Member> after = MembersAfter(next, operation);
  if (request.kind == TopologyKind::kWeight) {
    for (Member& member : after) {
      if (std::binary_search(operation.nodes.begin(), operation.nodes.end(),
                             member.number)) {
        member.weight = request.weight;
      }
    }
  }
  if (request.kind != TopologyKind::kKeyspace) {
    RETURN_IF_ERROR(CheckEnoughLeft(request, spec, after, n));
  }
  ASSIGN_OR_RETURN(Assignment assignment,
                   AssignAfter(spec, operation, after, n));
  operation.other = ArrangementOf(next);
  operation.other.tokens = std::move(assignment.tokens);
  operation.other.owners = std::move(assignment.owners);
  for (size_t i = 0; i < next.members.size(); ++i) {
    for (const Member& member : after) {
      if (member.number == next.members[i].number) {
        operation.other.weights[i] = member.weight;
      }
    }
  }
  if (request.kind == TopologyKind::kKeyspace) {
    operation.other.quorums[keyspace_index] = quorums;
  }
  next.operation = std::move(operation);
  RETURN_IF_ERROR(NoteChanges(next));
  const bool takes_for_dead = request.kind == TopologyKind::kRemoveDead ||
                              request.kind == TopologyKind::kReplace;
  if (takes_for_dead && !request.accept_data_loss) {
    RETURN_IF_ERROR(CheckNothingLost(next));
  }
  return next;
}

RingSpec SwitchOperation(const RingSpec& spec) {
  RINGKV_CHECK(spec.operation.has_value() &&
               spec.operation->phase == TopologyPhase::kStart);
  RingSpec next = spec;
  ++next.epoch;
  Arrangement before = ArrangementOf(next);
  Arrange(std::move(next.operation->other), next);
  next.operation->other = std::move(before);
  next.operation->phase = TopologyPhase::kSwitch;
  const absl::Status noted = NoteChanges(next);
  RINGKV_CHECK(noted.ok());
  return next;
}

RingSpec FinishOperation(const RingSpec& spec) {
  RINGKV_CHECK(spec.operation.has_value() &&
               spec.operation->phase == TopologyPhase::kSwitch);
  RingSpec next = spec;
  ++next.epoch;
  const absl::Status noted = NoteChanges(next);
  RINGKV_CHECK(noted.ok());
  const TopologyOperation operation = *std::move(next.operation);
  next.operation.reset();
  std::vector<NodeNumber> leavers;
  for (const Member& member : next.members) {
    if (operation.Leaves(member.number)) leavers.push_back(member.number);
  }
  Depart(leavers, next);
  return next;
}

namespace {

// The ring without its operation, whose joiners are gone.
absl::StatusOr<RingSpec> TakenBack(RingSpec next) {
  ++next.epoch;
  RETURN_IF_ERROR(NoteChanges(next));
  const TopologyOperation operation = *std::move(next.operation);
  next.operation.reset();
  std::vector<NodeNumber> joiners;
  for (const Member& member : next.members) {
    if (operation.Joins(member.number)) joiners.push_back(member.number);
  }
  Depart(joiners, next);
  return next;
}

}  // namespace

absl::StatusOr<RingSpec> UnswitchOperation(const RingSpec& spec) {
  RINGKV_CHECK(spec.operation.has_value() &&
               spec.operation->phase == TopologyPhase::kSwitch);
  RingSpec next = spec;
  Arrangement after = ArrangementOf(next);
  Arrange(std::move(next.operation->other), next);
  next.operation->other = std::move(after);
  next.operation->phase = TopologyPhase::kStart;
  next.operation->stopped.clear();
  return TakenBack(std::move(next));
}

absl::StatusOr<RingSpec> AbortOperation(const RingSpec& spec) {
  if (!spec.operation.has_value()) {
    return absl::FailedPreconditionError("no operation runs");
  }
  if (spec.operation->phase != TopologyPhase::kStart) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the ", NameOf(spec.operation->kind),
        " has switched reads to the new owners and can only go on"));
  }
  return TakenBack(spec);
}

const char* NameOf(TopologyPhase phase) {
  return phase == TopologyPhase::kStart ? "start" : "switch";
}

}  // namespace ringkv
