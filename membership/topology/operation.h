// A topology operation as a series of ring epochs: START, SWITCH, FINISH, or
// START and abort. Pure functions from one epoch's spec to the next. Why:
// docs/decisions/0009-ring-changes-in-three-epochs.md.

#ifndef RINGKV_MEMBERSHIP_TOPOLOGY_OPERATION_H_
#define RINGKV_MEMBERSHIP_TOPOLOGY_OPERATION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "membership/ring/ring.h"

namespace ringkv {

// What an operator asks for.
struct TopologyRequest {
  TopologyKind kind = TopologyKind::kJoin;
  // kJoin and kReplace: who comes, as they say of themselves; numbers are given
  // by the ring.
  std::vector<Member> joiners;
  // kDecommission, kRemoveDead, kWeight: whom it is about. kReplace: the dead
  // node that each of `joiners` takes the place of.
  std::vector<NodeNumber> nodes;
  double weight = 1;          // kWeight
  KeyspaceId keyspace{};      // kKeyspace
  Quorums quorums;            // kKeyspace
  RingEpoch planned_for = 0;  // refuse in any other epoch; 0: any
  // Go on even if fewer nodes than N, or fewer racks than min(N, racks now),
  // are left.
  bool allow_fewer_replicas = false;
  // kRemoveDead, kReplace: go on even if so many replicas of a range are dead
  // that acknowledged writes may have been on these only.
  bool accept_data_loss = false;
  bool operator==(const TopologyRequest&) const = default;
};

// The spec of START. A remove-dead of just the nodes that a decommission is
// taking out, once that has switched, turns it into one: their hints are given
// up. A remove-dead of others then lets the operation go on without them; they
// stay members. INVALID_ARGUMENT: a request that makes no sense, or that
// no ring may have. NOT_FOUND: no such member or keyspace. ABORTED: planned for
// another epoch. FAILED_PRECONDITION: another operation runs; the change would
// leave fewer nodes or racks than replicas need; too few replicas of a range
// would be left to be sure of its writes; a joiner is a member already.
absl::StatusOr<RingSpec> StartOperation(const TopologyRequest& request,
                                        const RingSpec& spec);

// Reads go to the new sets. Requires an operation in phase kStart.
RingSpec SwitchOperation(const RingSpec& spec);

// Only the new sets count; who leaves is departed. Requires an operation in
// phase kSwitch.
RingSpec FinishOperation(const RingSpec& spec);

// Back to the arrangement before the switch, without the operation; for a ring
// that cannot go on. Requires an operation in phase kSwitch.
absl::StatusOr<RingSpec> UnswitchOperation(const RingSpec& spec);

// The ring as before START; joiners are departed, as their numbers were given.
// FAILED_PRECONDITION: no operation, or it has switched.
absl::StatusOr<RingSpec> AbortOperation(const RingSpec& spec);

// "start", "switch".
const char* NameOf(TopologyPhase phase);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_TOPOLOGY_OPERATION_H_
