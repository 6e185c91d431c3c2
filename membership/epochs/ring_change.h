// What may be changed about a ring: pure functions from one epoch's spec to the
// next, or a refusal with its reason.

#ifndef RINGKV_MEMBERSHIP_EPOCHS_RING_CHANGE_H_
#define RINGKV_MEMBERSHIP_EPOCHS_RING_CHANGE_H_

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "membership/control/admin.h"
#include "membership/ring/ring.h"
#include "membership/topology/operation.h"

namespace ringkv {

// The next step of the operation that began in epoch `operation` and is in
// phase `from`: SWITCH or FINISH. Changes nothing if that is over already.
struct AdvanceOperation {
  RingEpoch operation = 0;
  TopologyPhase from = TopologyPhase::kStart;
};

// The ring's feature level becomes `level`. Changes nothing if it has it.
struct RaiseLevel {
  uint32_t level = 0;
  uint32_t before = 0;  // the ring's level when it was asked for
};

using RingChange =
    std::variant<CreateKeyspaceCall, AlterKeyspaceCall, DropKeyspaceCall,
                 TopologyRequest, AdvanceOperation, AbortOperationCall,
                 RaiseLevel>;

// The name of the keyspace that `change` is about; empty if it is about none.
std::string KeyspaceNameOf(const RingChange& change);

// `spec` with the change made and the next epoch; or `spec` as it is, with its
// own epoch, if the change asks for what is so already. INVALID_ARGUMENT: a
// field out of its limits (named, with limit and value). NOT_FOUND: no such
// keyspace or member. FAILED_PRECONDITION: the name is taken, too many
// keyspaces, an operation runs, there is none to abort, a lower feature level.
// ABORTED: planned for
// another epoch. Other N, R or W of a keyspace begin an operation.
absl::StatusOr<RingSpec> ApplyChange(const RingChange& change,
                                     const RingSpec& spec);

// Epoch 1: `members` with their numbers given (from 1, in order), and the
// keyspace "default". INVALID_ARGUMENT: what Place() or Ring::Make() refuses.
absl::StatusOr<RingSpec> FirstRing(const ClusterId& cluster_id,
                                   PlacementStrategy placement, uint32_t vnodes,
                                   std::vector<Member> members);

// Vnodes of a node of weight 1 (kHashed), or Q (kBalanced), if none are asked
// for.
inline constexpr uint32_t kHashedVnodesDefault = 256;
inline constexpr uint32_t kBalancedSegmentsDefault = 16384;

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_EPOCHS_RING_CHANGE_H_
