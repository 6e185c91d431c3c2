#include "membership/ring/ring_codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringkv {

namespace {

template <class Tag>
std::string IdToBytes(const Id128<Tag>& id) {
  std::string bytes(16, '\0');
  for (int i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(id.high >> (56 - 8 * i));
    bytes[8 + i] = static_cast<char>(id.low >> (56 - 8 * i));
  }
  return bytes;
}

template <class Id>
absl::StatusOr<Id> IdFromBytes(absl::string_view bytes,
                               absl::string_view what) {
  if (bytes.size() != 16) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", bytes.size(), " bytes instead of 16"));
  }
  Id id;
  for (int i = 0; i < 8; ++i) {
    id.high = id.high << 8 | static_cast<uint8_t>(bytes[i]);
    id.low = id.low << 8 | static_cast<uint8_t>(bytes[8 + i]);
  }
  return id;
}

absl::Status Unknown(absl::string_view what, int value) {
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown ", what, " ", value, "; was it written by a newer version?"));
}

absl::Status CheckCount(absl::string_view what, int64_t count, int64_t max) {
  if (count <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a ring of ", count, " ", what, ", more than the limit of ", max));
}

void OperationToProto(const TopologyOperation& operation,
                      PlacementStrategy placement,
                      v1::TopologyOperation* message) {
  // Values are the same in both.
  message->set_kind(static_cast<v1::TopologyKind>(operation.kind));
  message->set_phase(static_cast<v1::TopologyPhase>(operation.phase));
  message->set_id(operation.id);
  for (NodeNumber node : operation.nodes) message->add_nodes(ToInt(node));
  for (NodeNumber node : operation.replaced) message->add_replaced(ToInt(node));
  for (NodeNumber node : operation.stopped) message->add_stopped(ToInt(node));
  message->set_keyspace_id(ToInt(operation.keyspace));
  v1::Arrangement* other = message->mutable_other();
  for (double weight : operation.other.weights) other->add_weights(weight);
  if (placement != PlacementStrategy::kBalanced) {
    other->mutable_tokens()->Add(operation.other.tokens.begin(),
                                 operation.other.tokens.end());
  }
  for (NodeNumber owner : operation.other.owners) {
    other->add_owners(ToInt(owner));
  }
  for (const Quorums& quorums : operation.other.quorums) {
    other->add_n(quorums.n);
    other->add_r(quorums.r);
    other->add_w(quorums.w);
  }
}

absl::StatusOr<TopologyOperation> OperationFromProto(
    const v1::TopologyOperation& message) {
  const v1::Arrangement& other = message.other();
  RETURN_IF_ERROR(CheckCount("nodes", message.nodes_size(), kMembersMax));
  RETURN_IF_ERROR(
      CheckCount("replaced nodes", message.replaced_size(), kMembersMax));
  RETURN_IF_ERROR(
      CheckCount("stopped nodes", message.stopped_size(), kMembersMax));
  RETURN_IF_ERROR(CheckCount("weights", other.weights_size(), kMembersMax));
  RETURN_IF_ERROR(CheckCount("other tokens", other.tokens_size(), kTokensMax));
  RETURN_IF_ERROR(CheckCount("other owners", other.owners_size(), kTokensMax));
  RETURN_IF_ERROR(CheckCount("quorums", other.n_size(), kKeyspacesMax));
  if (other.r_size() != other.n_size() || other.w_size() != other.n_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an arrangement has ", other.n_size(), ", ", other.r_size(), " and ",
        other.w_size(), " values of N, R and W; they must be as many"));
  }
  if (message.kind() < 0 || message.kind() > v1::TOPOLOGY_KIND_KEYSPACE) {
    return Unknown("topology kind", message.kind());
  }
  if (message.phase() < 0 || message.phase() > v1::TOPOLOGY_PHASE_SWITCH) {
    return Unknown("topology phase", message.phase());
  }
  TopologyOperation operation;
  operation.kind = static_cast<TopologyKind>(message.kind());
  operation.phase = static_cast<TopologyPhase>(message.phase());
  operation.id = message.id();
  for (uint32_t node : message.nodes()) {
    operation.nodes.push_back(NodeNumber{node});
  }
  for (uint32_t node : message.replaced()) {
    operation.replaced.push_back(NodeNumber{node});
  }
  for (uint32_t node : message.stopped()) {
    operation.stopped.push_back(NodeNumber{node});
  }
  operation.keyspace = KeyspaceId{message.keyspace_id()};
  operation.other.weights.assign(other.weights().begin(),
                                 other.weights().end());
  operation.other.tokens.assign(other.tokens().begin(), other.tokens().end());
  operation.other.owners.reserve(static_cast<size_t>(other.owners_size()));
  for (uint32_t owner : other.owners()) {
    operation.other.owners.push_back(NodeNumber{owner});
  }
  for (int i = 0; i < other.n_size(); ++i) {
    operation.other.quorums.push_back({other.n(i), other.r(i), other.w(i)});
  }
  return operation;
}

}  // namespace

v1::PlacementStrategy PlacementToProto(PlacementStrategy value) {
  switch (value) {
    case PlacementStrategy::kBalanced:
      return v1::PLACEMENT_STRATEGY_BALANCED;
    case PlacementStrategy::kHashed:
      return v1::PLACEMENT_STRATEGY_HASHED;
  }
  return v1::PLACEMENT_STRATEGY_BALANCED;
}

absl::StatusOr<PlacementStrategy> PlacementFromProto(
    v1::PlacementStrategy value) {
  switch (value) {
    case v1::PLACEMENT_STRATEGY_BALANCED:
      return PlacementStrategy::kBalanced;
    case v1::PLACEMENT_STRATEGY_HASHED:
      return PlacementStrategy::kHashed;
    default:
      return Unknown("placement strategy", value);
  }
}

void LocationToProto(const Location& location, v1::Location* message) {
  message->set_zone(location.zone);
  message->set_rack(location.rack);
  message->set_host(location.host);
}

Location LocationFromProto(const v1::Location& message) {
  return {message.zone(), message.rack(), message.host()};
}

void MemberToProto(const Member& member, v1::Member* message) {
  message->set_number(ToInt(member.number));
  message->set_id(IdToBytes(member.id));
  message->set_name(member.name);
  message->set_client_address(member.client_address);
  message->set_peer_address(member.peer_address);
  LocationToProto(member.location, message->mutable_location());
  message->set_weight(member.weight);
}

absl::StatusOr<Member> MemberFromProto(const v1::Member& message) {
  Member member;
  member.number = NodeNumber{message.number()};
  ASSIGN_OR_RETURN(
      member.id,
      IdFromBytes<NodeId>(message.id(),
                          absl::StrCat("the id of member ", message.number())));
  member.name = message.name();
  member.client_address = message.client_address();
  member.peer_address = message.peer_address();
  member.location = LocationFromProto(message.location());
  member.weight = message.weight();
  return member;
}

void KeyspaceToProto(const Keyspace& keyspace, v1::KeyspaceConfig* message) {
  message->set_id(ToInt(keyspace.id));
  message->set_name(keyspace.name);
  message->set_n(keyspace.n);
  message->set_r(keyspace.r);
  message->set_w(keyspace.w);
  message->set_mode(keyspace.mode == VersionMode::kLww
                        ? v1::VERSION_MODE_LWW
                        : v1::VERSION_MODE_SIBLINGS);
  message->set_durability(keyspace.durability == Durability::kSync
                              ? v1::DURABILITY_SYNC
                              : v1::DURABILITY_INTERVAL);
  message->set_quorum(keyspace.quorum == QuorumMode::kStrict
                          ? v1::QUORUM_MODE_STRICT
                          : v1::QUORUM_MODE_SLOPPY);
  message->set_changed_at(keyspace.changed_at);
}

absl::StatusOr<Keyspace> KeyspaceFromProto(const v1::KeyspaceConfig& message) {
  Keyspace keyspace;
  keyspace.id = KeyspaceId{message.id()};
  keyspace.name = message.name();
  keyspace.n = message.n();
  keyspace.r = message.r();
  keyspace.w = message.w();
  switch (message.mode()) {
    case v1::VERSION_MODE_SIBLINGS:
      keyspace.mode = VersionMode::kSiblings;
      break;
    case v1::VERSION_MODE_LWW:
      keyspace.mode = VersionMode::kLww;
      break;
    default:
      return Unknown("version mode", message.mode());
  }
  switch (message.durability()) {
    case v1::DURABILITY_INTERVAL:
      keyspace.durability = Durability::kInterval;
      break;
    case v1::DURABILITY_SYNC:
      keyspace.durability = Durability::kSync;
      break;
    default:
      return Unknown("durability", message.durability());
  }
  switch (message.quorum()) {
    case v1::QUORUM_MODE_SLOPPY:
      keyspace.quorum = QuorumMode::kSloppy;
      break;
    case v1::QUORUM_MODE_STRICT:
      keyspace.quorum = QuorumMode::kStrict;
      break;
    default:
      return Unknown("quorum mode", message.quorum());
  }
  keyspace.changed_at = message.changed_at();
  return keyspace;
}

void RingToProto(const RingSpec& spec, v1::RingSnapshot* message) {
  message->Clear();
  message->set_cluster_id(IdToBytes(spec.cluster_id));
  message->set_lineage(spec.lineage);
  message->mutable_former_lineages()->Add(spec.former_lineages.begin(),
                                          spec.former_lineages.end());
  message->set_epoch(spec.epoch);
  message->set_feature_level(spec.feature_level);
  message->set_placement(PlacementToProto(spec.placement));
  message->set_vnodes(spec.vnodes);
  for (const Member& member : spec.members) {
    MemberToProto(member, message->add_members());
  }
  for (const Keyspace& keyspace : spec.keyspaces) {
    KeyspaceToProto(keyspace, message->add_keyspaces());
  }
  // Equal distances need no list: the receiver knows them.
  if (spec.placement != PlacementStrategy::kBalanced) {
    message->mutable_tokens()->Add(spec.tokens.begin(), spec.tokens.end());
  }
  message->mutable_owners()->Reserve(static_cast<int>(spec.owners.size()));
  for (NodeNumber owner : spec.owners) message->add_owners(ToInt(owner));
  for (NodeNumber number : spec.departed) message->add_departed(ToInt(number));
  message->set_next_node_number(ToInt(spec.next_node_number));
  message->set_next_keyspace_id(ToInt(spec.next_keyspace_id));
  if (spec.operation.has_value()) {
    OperationToProto(*spec.operation, spec.placement,
                     message->mutable_operation());
  }
}

absl::StatusOr<RingSpec> RingFromProto(const v1::RingSnapshot& message) {
  RETURN_IF_ERROR(CheckCount("members", message.members_size(), kMembersMax));
  RETURN_IF_ERROR(
      CheckCount("keyspaces", message.keyspaces_size(), kKeyspacesMax));
  RETURN_IF_ERROR(CheckCount("tokens", message.tokens_size(), kTokensMax));
  RETURN_IF_ERROR(CheckCount("owners", message.owners_size(), kTokensMax));
  RETURN_IF_ERROR(
      CheckCount("departed members", message.departed_size(), kDepartedMax));
  RETURN_IF_ERROR(CheckCount("former lineages", message.former_lineages_size(),
                             kFormerLineagesMax));
  RingSpec spec;
  ASSIGN_OR_RETURN(spec.cluster_id, IdFromBytes<ClusterId>(message.cluster_id(),
                                                           "the cluster id"));
  spec.lineage = message.lineage();
  spec.former_lineages.assign(message.former_lineages().begin(),
                              message.former_lineages().end());
  spec.epoch = message.epoch();
  spec.feature_level = message.feature_level();
  ASSIGN_OR_RETURN(spec.placement, PlacementFromProto(message.placement()));
  spec.vnodes = message.vnodes();
  spec.members.reserve(message.members_size());
  for (const v1::Member& entry : message.members()) {
    ASSIGN_OR_RETURN(Member member, MemberFromProto(entry));
    spec.members.push_back(std::move(member));
  }
  spec.keyspaces.reserve(message.keyspaces_size());
  for (const v1::KeyspaceConfig& entry : message.keyspaces()) {
    ASSIGN_OR_RETURN(Keyspace keyspace, KeyspaceFromProto(entry));
    spec.keyspaces.push_back(std::move(keyspace));
  }
  spec.tokens.assign(message.tokens().begin(), message.tokens().end());
  spec.owners.reserve(message.owners_size());
  for (uint32_t owner : message.owners()) {
    spec.owners.push_back(NodeNumber{owner});
  }
  spec.departed.reserve(message.departed_size());
  for (uint32_t number : message.departed()) {
    spec.departed.push_back(NodeNumber{number});
  }
  spec.next_node_number = NodeNumber{message.next_node_number()};
  spec.next_keyspace_id = KeyspaceId{message.next_keyspace_id()};
  if (message.has_operation()) {
    ASSIGN_OR_RETURN(spec.operation, OperationFromProto(message.operation()));
  }
  return spec;
}

std::string EncodeRing(const RingSpec& spec) {
  v1::RingSnapshot message;
  RingToProto(spec, &message);
  return message.SerializeAsString();
}

absl::StatusOr<RingSpec> DecodeRing(absl::string_view bytes) {
  if (bytes.size() > kEncodedRingBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an encoded ring of ", bytes.size(),
                     " bytes, more than the limit of ", kEncodedRingBytesMax));
  }
  v1::RingSnapshot message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("these ", bytes.size(), " bytes are no ring snapshot"));
  }
  return RingFromProto(message);
}

}  // namespace ringkv
