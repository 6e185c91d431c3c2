#include "membership/epochs/ring_change.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "membership/ring/placement.h"
#include "membership/topology/operation.h"

namespace ringkv {
namespace {

Keyspace* Find(RingSpec& spec, const std::string& name) {
  for (Keyspace& keyspace : spec.keyspaces) {
    if (keyspace.name == name) return &keyspace;
  }
  return nullptr;
}

absl::Status NoSuchKeyspace(const std::string& name) {
  return absl::NotFoundError(absl::StrCat("no keyspace \"", name, "\""));
}

absl::Status CheckQuorum(const Keyspace& keyspace) {
  if (keyspace.quorum == QuorumMode::kStrict &&
      keyspace.r + keyspace.w <= keyspace.n) {
    return absl::InvalidArgumentError(
        absl::StrCat("quorum: strict needs R+W > N, got R=", keyspace.r,
                     ", W=", keyspace.w, ", N=", keyspace.n));
  }
  return absl::OkStatus();
}

// What a running operation moves is fixed at its start.
absl::Status CheckNoOperation(const RingSpec& spec) {
  if (!spec.operation.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "a ", NameOf(spec.operation->kind), " runs (since epoch ",
      spec.operation->id,
      "); keyspaces are created and dropped when it is done, or after kvctl "
      "abort"));
}

absl::StatusOr<RingSpec> Create(const CreateKeyspaceCall& call, RingSpec spec) {
  RETURN_IF_ERROR(CheckNoOperation(spec));
  Keyspace keyspace = call.keyspace;
  RETURN_IF_ERROR(CheckKeyspace(keyspace));
  RETURN_IF_ERROR(CheckQuorum(keyspace));
  if (const Keyspace* taken = Find(spec, keyspace.name); taken != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("a keyspace \"", keyspace.name, "\" exists already (id ",
                     ToInt(taken->id), ")"));
  }
  if (spec.keyspaces.size() >= kKeyspacesMax) {
    return absl::FailedPreconditionError(
        absl::StrCat("there are ", spec.keyspaces.size(),
                     " keyspaces already, and the limit is ", kKeyspacesMax));
  }
  ++spec.epoch;
  keyspace.id = spec.next_keyspace_id;
  keyspace.changed_at = spec.epoch;
  spec.next_keyspace_id = KeyspaceId{ToInt(keyspace.id) + 1};
  spec.keyspaces.push_back(std::move(keyspace));
  return spec;
}

// N, R and W move replicas or need quorums to be re-established: an operation.
absl::StatusOr<RingSpec> AlterQuorums(const Keyspace& altered, RingSpec spec) {
  TopologyRequest request;
  request.kind = TopologyKind::kKeyspace;
  request.keyspace = altered.id;
  request.quorums = {altered.n, altered.r, altered.w};
  RETURN_IF_ERROR(CheckKeyspace(altered));
  return StartOperation(request, spec);
}

absl::StatusOr<RingSpec> Alter(const AlterKeyspaceCall& call, RingSpec spec) {
  if (!call.durability && !call.quorum && !call.n && !call.r && !call.w) {
    return absl::InvalidArgumentError(
        "nothing to change: give durability, quorum, n, r or w");
  }
  Keyspace* keyspace = Find(spec, call.name);
  if (keyspace == nullptr) return NoSuchKeyspace(call.name);
  Keyspace altered = *keyspace;
  altered.durability = call.durability.value_or(altered.durability);
  altered.quorum = call.quorum.value_or(altered.quorum);
  altered.n = call.n.value_or(altered.n);
  altered.r = call.r.value_or(altered.r);
  altered.w = call.w.value_or(altered.w);
  RETURN_IF_ERROR(CheckQuorum(altered));
  if (altered == *keyspace) return spec;
  if (spec.operation.has_value()) {
    // Strict must hold with what the operation brings as well.
    Keyspace other = altered;
    const Quorums& quorums =
        spec.operation->other
            .quorums[static_cast<size_t>(keyspace - spec.keyspaces.data())];
    other.n = quorums.n;
    other.r = quorums.r;
    other.w = quorums.w;
    RETURN_IF_ERROR(CheckQuorum(other));
  }
  const bool moves = altered.n != keyspace->n || altered.r != keyspace->r ||
                     altered.w != keyspace->w;
  keyspace->durability = altered.durability;
  if (!moves) {
    keyspace->quorum = altered.quorum;
    ++spec.epoch;
    return spec;
  }
  keyspace->quorum = altered.quorum;
  if (const absl::Status status = CheckQuorum(*keyspace); !status.ok()) {
    // Reads go by the old R until the switch.
    return absl::FailedPreconditionError(absl::StrCat(
        status.message(), "; change R and W first, then the default quorum"));
  }
  return AlterQuorums(altered, std::move(spec));
}

absl::StatusOr<RingSpec> Drop(const DropKeyspaceCall& call, RingSpec spec) {
  RETURN_IF_ERROR(CheckNoOperation(spec));
  Keyspace* keyspace = Find(spec, call.name);
  if (keyspace == nullptr) return NoSuchKeyspace(call.name);
  spec.keyspaces.erase(spec.keyspaces.begin() +
                       (keyspace - spec.keyspaces.data()));
  ++spec.epoch;
  return spec;
}

absl::StatusOr<RingSpec> Advance(const AdvanceOperation& step,
                                 const RingSpec& spec) {
  if (!spec.operation.has_value() || spec.operation->id != step.operation ||
      spec.operation->phase != step.from) {
    return spec;
  }
  return step.from == TopologyPhase::kStart ? SwitchOperation(spec)
                                            : FinishOperation(spec);
}

absl::StatusOr<RingSpec> Abort(const AbortOperationCall& call,
                               const RingSpec& spec) {
  if (call.operation != 0 &&
      (!spec.operation.has_value() || spec.operation->id != call.operation)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "operation ", call.operation, " does not run any more",
        spec.operation.has_value()
            ? absl::StrCat("; what runs is the ", NameOf(spec.operation->kind),
                           " ", spec.operation->id)
            : ""));
  }
  return AbortOperation(spec);
}

absl::StatusOr<RingSpec> Raise(const RaiseLevel& raise, RingSpec spec) {
  if (raise.level == spec.feature_level) return spec;
  if (raise.level < spec.feature_level) {
    return absl::FailedPreconditionError(
        absl::StrCat("the ring has feature level ", spec.feature_level,
                     ", and there is no way back to ", raise.level,
                     ": what was written since may be in newer formats"));
  }
  spec.feature_level = raise.level;
  ++spec.epoch;
  return spec;
}

struct Applier {
  const RingSpec& spec;
  using Result = absl::StatusOr<RingSpec>;
  Result operator()(const CreateKeyspaceCall& call) const {
    return Create(call, spec);
  }
  Result operator()(const AlterKeyspaceCall& call) const {
    return Alter(call, spec);
  }
  Result operator()(const DropKeyspaceCall& call) const {
    return Drop(call, spec);
  }
  Result operator()(const TopologyRequest& request) const {
    return StartOperation(request, spec);
  }
  Result operator()(const AdvanceOperation& step) const {
    return Advance(step, spec);
  }
  Result operator()(const AbortOperationCall& call) const {
    return Abort(call, spec);
  }
  Result operator()(const RaiseLevel& raise) const {
    return Raise(raise, spec);
  }
};

}  // namespace

std::string KeyspaceNameOf(const RingChange& change) {
  if (const auto* create = std::get_if<CreateKeyspaceCall>(&change)) {
    return create->keyspace.name;
  }
  if (const auto* alter = std::get_if<AlterKeyspaceCall>(&change)) {
    return alter->name;
  }
  if (const auto* drop = std::get_if<DropKeyspaceCall>(&change)) {
    return drop->name;
  }
  return "";
}

absl::StatusOr<RingSpec> ApplyChange(const RingChange& change,
                                     const RingSpec& spec) {
  return std::visit(Applier{spec}, change);
}

absl::StatusOr<RingSpec> FirstRing(const ClusterId& cluster_id,
                                   PlacementStrategy placement, uint32_t vnodes,
                                   std::vector<Member> members) {
  RingSpec spec;
  spec.cluster_id = cluster_id;
  spec.epoch = 1;
  spec.placement = placement;
  spec.vnodes = vnodes;
  Keyspace keyspace;
  keyspace.id = KeyspaceId{1};
  keyspace.name = "default";
  PlacementOptions options;
  options.strategy = placement;
  options.vnodes = vnodes;
  options.n = keyspace.n;
  ASSIGN_OR_RETURN(Assignment assignment, Place(options, members, {}));
  spec.next_node_number = NodeNumber{static_cast<uint32_t>(members.size()) + 1};
  spec.next_keyspace_id = KeyspaceId{2};
  spec.keyspaces.push_back(std::move(keyspace));
  spec.members = std::move(members);
  spec.tokens = std::move(assignment.tokens);
  spec.owners = std::move(assignment.owners);
  // Made once here so that a bad spec is refused before it is decided; the made
  // ring is also the form that is stored and sent.
  ASSIGN_OR_RETURN(const std::shared_ptr<const Ring> ring,
                   Ring::Make(std::move(spec)));
  return ring->spec();
}

}  // namespace ringkv
