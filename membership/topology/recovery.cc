#include "membership/topology/recovery.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "membership/topology/operation.h"

namespace ringkv {
namespace {

bool Contains(const std::vector<NodeNumber>& nodes, NodeNumber node) {
  return absl::c_linear_search(nodes, node);
}

// `spec` without its operation.
absl::StatusOr<RingSpec> Settled(const RecoveryRequest& request,
                                 const RingSpec& spec) {
  if (!spec.operation.has_value()) return spec;
  for (NodeNumber node : request.survivors) {
    if (!spec.operation->Joins(node)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("node ", ToInt(node), " was only joining, since epoch ",
                     spec.operation->id,
                     ": it cannot be kept. Stop it; it joins again later, with "
                     "an empty data "
                     "directory"));
  }
  if (spec.operation->phase == TopologyPhase::kStart) {
    return AbortOperation(spec);
  }
  const bool drops_one = absl::c_any_of(
      request.survivors,
      [&](NodeNumber node) { return spec.operation->Leaves(node); });
  if (!drops_one) return FinishOperation(spec);
  // Until FINISH each write is in the sets before the switch as well.
  return UnswitchOperation(spec);
}

}  // namespace

absl::StatusOr<RingSpec> RecoverRing(const RecoveryRequest& request,
                                     const RingSpec& spec) {
  if (request.survivors.empty()) {
    return absl::InvalidArgumentError("name at least one node that is left");
  }
  if (request.lineage == spec.lineage ||
      IsFormerLineage(spec.former_lineages, request.lineage)) {
    return absl::InvalidArgumentError(
        absl::StrCat("lineage ", request.lineage, " was used before"));
  }
  for (NodeNumber node : request.survivors) {
    if (absl::c_none_of(spec.members, [&](const Member& member) {
          return member.number == node;
        })) {
      return absl::InvalidArgumentError(
          absl::StrCat("no member has number ", ToInt(node)));
    }
  }
  ASSIGN_OR_RETURN(RingSpec next, Settled(request, spec));
  next.epoch = spec.epoch + kRecoveryEpochs - 1;
  next.former_lineages.push_back(spec.lineage);
  if (next.former_lineages.size() > kFormerLineagesMax) {
    next.former_lineages.erase(next.former_lineages.begin());
  }
  next.lineage = request.lineage;
  TopologyRequest remove;
  remove.kind = TopologyKind::kRemoveDead;
  remove.allow_fewer_replicas = true;
  remove.accept_data_loss = true;
  for (const Member& member : next.members) {
    if (!Contains(request.survivors, member.number)) {
      remove.nodes.push_back(member.number);
    }
  }
  if (remove.nodes.empty()) {
    ++next.epoch;
  } else {
    ASSIGN_OR_RETURN(next, StartOperation(remove, next));
  }
  // Whatever was begun under the ring before begins anew.
  for (Keyspace& keyspace : next.keyspaces) keyspace.changed_at = next.epoch;
  return next;
}

}  // namespace ringkv
