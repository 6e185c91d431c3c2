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

absl::StatusOr<RingSpec> Alter(const AlterKeyspaceCall& call, RingSpec spec) {
  if (!call.durability && !call.quorum && !call.n && !call.r && !call.w) {
    return absl::InvalidArgumentError(
        "nothing to change: give durability or quorum");
  }
  Keyspace* keyspace = Find(spec, call.name);
  if (keyspace == nullptr) return NoSuchKeyspace(call.name);
  const auto differs = [](const std::optional<uint32_t>& wanted, uint32_t is) {
    return wanted.has_value() && *wanted != is;
  };
  if (differs(call.n, keyspace->n) || differs(call.r, keyspace->r) ||
      differs(call.w, keyspace->w)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "N, R and W of keyspace \"", call.name, "\" are ", keyspace->n, ", ",
        keyspace->r, " and ", keyspace->w,
        " and cannot be changed here: other values need replicas to be moved "
        "or "
        "quorums to be re-established first. Create a keyspace with the values "
        "you want, and copy with kvctl dump and kvctl load"));
  }
  Keyspace altered = *keyspace;
  altered.durability = call.durability.value_or(altered.durability);
  altered.quorum = call.quorum.value_or(altered.quorum);
  RETURN_IF_ERROR(CheckQuorum(altered));
  if (altered == *keyspace) return spec;
  *keyspace = std::move(altered);
  ++spec.epoch;
  return spec;
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

}  // namespace

const std::string& KeyspaceNameOf(const RingChange& change) {
  if (const auto* create = std::get_if<CreateKeyspaceCall>(&change)) {
    return create->keyspace.name;
  }
  if (const auto* alter = std::get_if<AlterKeyspaceCall>(&change)) {
    return alter->name;
  }
  return std::get<DropKeyspaceCall>(change).name;
}

absl::StatusOr<RingSpec> ApplyChange(const RingChange& change,
                                     const RingSpec& spec) {
  if (const auto* create = std::get_if<CreateKeyspaceCall>(&change)) {
    return Create(*create, spec);
  }
  if (const auto* alter = std::get_if<AlterKeyspaceCall>(&change)) {
    return Alter(*alter, spec);
  }
  return Drop(std::get<DropKeyspaceCall>(change), spec);
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
