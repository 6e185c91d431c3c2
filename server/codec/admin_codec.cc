#include "server/codec/admin_codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "membership/ring/ring_codec.h"
#include "server/codec/public_codec.h"

namespace ringkv {
namespace {

static_assert(static_cast<int>(NodeState::kStandby) == v1::NODE_STATE_STANDBY);
static_assert(static_cast<int>(NodeState::kDraining) ==
              v1::NODE_STATE_DRAINING);

template <class Answer>
absl::StatusOr<const Answer*> Expect(const AdminAnswer& answer) {
  if (const Answer* found = std::get_if<Answer>(&answer.answer)) return found;
  return absl::InternalError("the answer is of another kind than the call");
}

absl::Status CheckName(absl::string_view name) {
  if (!name.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("name: empty; name the keyspace");
}

void ToProto(const NodeStatus& node, v1::NodeStatus& out) {
  out.set_node_number(ToInt(node.number));
  out.set_node_id(node.id.ToString());
  out.set_name(PrintableText(node.name));
  out.set_state(static_cast<v1::NodeState>(node.state));
  out.set_client_address(PrintableText(node.client_address));
  out.set_peer_address(PrintableText(node.peer_address));
  LocationToProto(node.location, out.mutable_location());
  out.set_weight(node.weight);
  out.set_incarnation(node.incarnation);
  out.set_ring_epoch(node.ring_epoch);
  out.set_age_ms(node.age_ms);
  out.set_ownership(node.ownership);
  out.set_disk_bytes(node.disk_bytes);
  out.set_read_only(node.read_only);
  out.set_keys(node.keys);
  out.set_hints(node.hints);
  out.set_hint_bytes(node.hint_bytes);
  out.set_in_flight(node.in_flight);
  out.set_version(PrintableText(node.version));
  out.set_clock_offset_ms(node.clock_offset_ms);
  out.set_feature_level_max(node.feature_level_max);
  out.set_flaps(node.flaps);
}

// Nodes that one request may name, and bytes of a name; more is a mistake.
constexpr int kNamedNodesMax = 1000;

absl::Status CheckNodeNames(
    absl::string_view field,
    const google::protobuf::RepeatedPtrField<std::string>& names) {
  if (names.size() > kNamedNodesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": ", names.size(), " nodes, at most ",
                     kNamedNodesMax, " are allowed"));
  }
  for (const std::string& name : names) {
    if (name.empty() || name.size() > kAddressBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": a name of ", name.size(), " bytes; 1 to ",
                       kAddressBytesMax, " are allowed"));
    }
  }
  return absl::OkStatus();
}

static_assert(static_cast<int>(TopologyKind::kKeyspace) ==
              v1::TOPOLOGY_KIND_KEYSPACE);
static_assert(static_cast<int>(OperationState::kAborted) ==
              v1::OPERATION_STATE_ABORTED);

v1::TopologyKind KindToProto(TopologyKind kind) {
  return static_cast<v1::TopologyKind>(kind);
}

void ToProto(const NodeRef& node, v1::NodeRef& out) {
  out.set_node_number(ToInt(node.number));
  out.set_name(PrintableText(node.name));
}

void ToProto(const OperationPlan& plan, v1::OperationPlan& out) {
  out.set_kind(KindToProto(plan.kind));
  out.set_epoch(plan.epoch);
  for (const NodeRef& node : plan.nodes) ToProto(node, *out.add_nodes());
  for (const PlannedTransfer& from : plan.transfers) {
    v1::PlannedTransfer& to = *out.add_transfers();
    ToProto(from.from, *to.mutable_from());
    ToProto(from.to, *to.mutable_to());
    to.set_ranges(from.ranges);
    to.set_bytes(from.bytes);
  }
  for (const PlannedShare& from : plan.shares) {
    v1::PlannedShare& to = *out.add_shares();
    ToProto(from.node, *to.mutable_node());
    to.set_before(from.before);
    to.set_after(from.after);
  }
  out.set_largest_over_fair_before(plan.largest_over_fair_before);
  out.set_largest_over_fair_after(plan.largest_over_fair_after);
  for (const std::string& warning : plan.warnings) {
    out.add_warnings(PrintableText(warning));
  }
}

void ToProto(const OperationStatus& status, v1::OperationStatus& out) {
  out.set_id(status.id);
  out.set_kind(KindToProto(status.kind));
  out.set_state(static_cast<v1::OperationState>(status.state));
  for (const NodeRef& node : status.nodes) ToProto(node, *out.add_nodes());
  for (const NodeRef& node : status.replaced) {
    ToProto(node, *out.add_replaced());
  }
  out.set_keyspace(PrintableText(status.keyspace));
  out.set_started_ms(status.started_ms);
  out.set_ended_ms(status.ended_ms);
  for (const OperationProgress& from : status.progress) {
    v1::OperationProgress& to = *out.add_progress();
    ToProto(from.node, *to.mutable_node());
    to.set_alive(from.alive);
    to.set_ranges(from.report.ranges);
    to.set_ranges_done(from.report.ranges_done);
    to.set_keys(from.report.keys);
    to.set_bytes(from.report.bytes);
    to.set_done(from.report.done);
  }
  for (const OperationWait& from : status.waits) {
    v1::OperationWait& to = *out.add_waits();
    if (from.node.number != kNoNode) ToProto(from.node, *to.mutable_node());
    to.set_why(PrintableText(from.why));
  }
}

std::string IdText(const ClusterId& id) {
  return id.IsNone() ? std::string() : id.ToString();
}

}  // namespace

absl::StatusOr<AdminCall> AdminFromProto(const v1::StatusRequest& in) {
  return StatusCall{};
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::InitRequest& in) {
  InitCall call;
  call.dry_run = in.dry_run();
  call.expected_nodes = in.expected_nodes();
  ASSIGN_OR_RETURN(call.placement, PlacementFromProto(in.placement()));
  call.vnodes = in.vnodes();
  return call;
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::HintsRequest& in) {
  return HintsCall{};
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::CreateKeyspaceRequest& in) {
  RETURN_IF_ERROR(CheckName(in.keyspace().name()));
  CreateKeyspaceCall call;
  ASSIGN_OR_RETURN(call.keyspace, KeyspaceFromProto(in.keyspace()));
  return call;
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::AlterKeyspaceRequest& in) {
  RETURN_IF_ERROR(CheckName(in.name()));
  AlterKeyspaceCall call;
  call.name = in.name();
  if (in.has_durability()) {
    switch (in.durability()) {
      case v1::DURABILITY_INTERVAL:
        call.durability = Durability::kInterval;
        break;
      case v1::DURABILITY_SYNC:
        call.durability = Durability::kSync;
        break;
      default:
        return absl::InvalidArgumentError(absl::StrCat(
            "durability: unknown value ", static_cast<int>(in.durability())));
    }
  }
  if (in.has_quorum()) {
    switch (in.quorum()) {
      case v1::QUORUM_SLOPPY:
        call.quorum = QuorumMode::kSloppy;
        break;
      case v1::QUORUM_STRICT:
        call.quorum = QuorumMode::kStrict;
        break;
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("quorum: ", static_cast<int>(in.quorum()),
                         "; allowed are QUORUM_SLOPPY and QUORUM_STRICT"));
    }
  }
  if (in.has_n()) call.n = in.n();
  if (in.has_r()) call.r = in.r();
  if (in.has_w()) call.w = in.w();
  return call;
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::DropKeyspaceRequest& in) {
  RETURN_IF_ERROR(CheckName(in.name()));
  return DropKeyspaceCall{in.name()};
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::StartOperationRequest& in) {
  if (!v1::TopologyKind_IsValid(in.kind()) ||
      in.kind() == v1::TOPOLOGY_KIND_KEYSPACE) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kind: ", static_cast<int>(in.kind()),
        "; allowed are join, decommission, remove-dead, replace and weight"));
  }
  StartOperationCall call;
  call.kind = static_cast<TopologyKind>(in.kind());
  RETURN_IF_ERROR(CheckNodeNames("nodes", in.nodes()));
  RETURN_IF_ERROR(CheckNodeNames("replacements", in.replacements()));
  call.nodes.assign(in.nodes().begin(), in.nodes().end());
  call.replacements.assign(in.replacements().begin(), in.replacements().end());
  if (call.kind == TopologyKind::kWeight) {
    if (!(in.weight() > 0 && in.weight() <= kWeightMax)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weight: ", in.weight(), " is not above 0 and up to ", kWeightMax));
    }
    call.weight = in.weight();
  }
  call.planned_for = in.planned_for();
  call.allow_fewer_replicas = in.allow_fewer_replicas();
  call.accept_data_loss = in.accept_data_loss();
  call.dry_run = in.dry_run();
  return call;
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::OperationsRequest& in) {
  return OperationsCall{};
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::AbortOperationRequest& in) {
  return AbortOperationCall{in.operation()};
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::RecoverRequest& in) {
  RETURN_IF_ERROR(CheckNodeNames("survivors", in.survivors()));
  RecoverCall call;
  call.survivors.assign(in.survivors().begin(), in.survivors().end());
  call.planned_for = in.planned_for();
  call.dry_run = in.dry_run();
  return call;
}

absl::StatusOr<AdminCall> AdminFromProto(const v1::FinishUpgradeRequest& in) {
  return FinishUpgradeCall{in.level()};
}

absl::Status AdminToProto(const AdminAnswer& answer, v1::StatusResponse& out) {
  ASSIGN_OR_RETURN(const StatusAnswer* status, Expect<StatusAnswer>(answer));
  out.set_node_number(ToInt(status->number));
  out.set_node_id(status->id.ToString());
  out.set_name(PrintableText(status->name));
  out.set_cluster_id(IdText(status->cluster_id));
  out.set_ring_epoch(status->ring_epoch);
  out.set_feature_level(status->feature_level);
  for (const NodeStatus& node : status->nodes) {
    ToProto(node, *out.add_nodes());
  }
  for (const std::string& warning : status->warnings) {
    out.add_warnings(PrintableText(warning));
  }
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer, v1::InitResponse& out) {
  ASSIGN_OR_RETURN(const InitAnswer* init, Expect<InitAnswer>(answer));
  for (const NodeStatus& node : init->nodes) ToProto(node, *out.add_nodes());
  out.set_cluster_id(IdText(init->cluster_id));
  out.set_ring_epoch(init->ring_epoch);
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer, v1::HintsResponse& out) {
  ASSIGN_OR_RETURN(const HintsAnswer* hints, Expect<HintsAnswer>(answer));
  for (const HintBacklogStatus& from : hints->backlogs) {
    v1::HintBacklog& to = *out.add_backlogs();
    to.set_holder(ToInt(from.holder));
    to.set_target(ToInt(from.target));
    to.set_hints(from.hints);
    to.set_bytes(from.bytes);
    to.set_oldest_ms(from.oldest_ms);
    to.set_refused(from.refused);
    to.set_rate(from.rate);
  }
  for (const NodeNumber node : hints->unheard) out.add_unheard(ToInt(node));
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::KeyspaceResponse& out) {
  ASSIGN_OR_RETURN(const KeyspaceAnswer* keyspace,
                   Expect<KeyspaceAnswer>(answer));
  KeyspaceToProto(keyspace->keyspace, out.mutable_keyspace());
  out.set_ring_epoch(keyspace->ring_epoch);
  out.set_operation(keyspace->operation);
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::DropKeyspaceResponse& out) {
  ASSIGN_OR_RETURN(const DropKeyspaceAnswer* dropped,
                   Expect<DropKeyspaceAnswer>(answer));
  out.set_ring_epoch(dropped->ring_epoch);
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::StartOperationResponse& out) {
  ASSIGN_OR_RETURN(const StartOperationAnswer* started,
                   Expect<StartOperationAnswer>(answer));
  ToProto(started->plan, *out.mutable_plan());
  out.set_operation(started->operation);
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::OperationsResponse& out) {
  ASSIGN_OR_RETURN(const OperationsAnswer* operations,
                   Expect<OperationsAnswer>(answer));
  if (operations->running.has_value()) {
    ToProto(*operations->running, *out.mutable_running());
  }
  for (const OperationStatus& finished : operations->finished) {
    ToProto(finished, *out.add_finished());
  }
  out.set_ring_epoch(operations->ring_epoch);
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::AbortOperationResponse& out) {
  ASSIGN_OR_RETURN(const AbortOperationAnswer* aborted,
                   Expect<AbortOperationAnswer>(answer));
  out.set_operation(aborted->operation);
  out.set_ring_epoch(aborted->ring_epoch);
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer, v1::RecoverResponse& out) {
  ASSIGN_OR_RETURN(const RecoverAnswer* recovered,
                   Expect<RecoverAnswer>(answer));
  ToProto(recovered->plan, *out.mutable_plan());
  for (const NodeRef& node : recovered->survivors) {
    ToProto(node, *out.add_survivors());
  }
  for (const NodeRef& node : recovered->lost) ToProto(node, *out.add_lost());
  out.set_ring_epoch(recovered->ring_epoch);
  out.set_lineage(recovered->lineage);
  out.set_operation(recovered->operation);
  return absl::OkStatus();
}

absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::FinishUpgradeResponse& out) {
  ASSIGN_OR_RETURN(const FinishUpgradeAnswer* finished,
                   Expect<FinishUpgradeAnswer>(answer));
  out.set_level(finished->level);
  out.set_before(finished->before);
  out.set_ring_epoch(finished->ring_epoch);
  return absl::OkStatus();
}

}  // namespace ringkv
