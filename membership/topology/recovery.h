// The ring after an unsafe recovery: what becomes of it when a majority of its
// voters is lost for good, so that nobody can decide the next epoch. A pure
// function. Why: docs/decisions/0011-unsafe-recovery.md.

#ifndef RINGKV_MEMBERSHIP_TOPOLOGY_RECOVERY_H_
#define RINGKV_MEMBERSHIP_TOPOLOGY_RECOVERY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "membership/ring/ring.h"

namespace ringkv {

struct RecoveryRequest {
  // The members that are left, each of them alive.
  std::vector<NodeNumber> survivors;
  // Random; neither the ring's own nor a former one.
  uint64_t lineage = 0;
};

// So many epochs the ring jumps ahead: the lost majority may have decided on
// some that no survivor has heard of, and no number stands for two rings.
inline constexpr RingEpoch kRecoveryEpochs = 1000;

// `spec` under a new lineage, with an operation in phase START that removes all
// other members as dead, whatever that loses; only the survivors vote from then
// on. An operation that ran is over: one that had not switched is taken back,
// another is finished, unless that would leave a survivor without its place.
// Where nobody is to be removed then, there is no operation.
// INVALID_ARGUMENT: no survivor, one that is no member, or a lineage that was
// used. FAILED_PRECONDITION: a survivor is one that was only joining.
absl::StatusOr<RingSpec> RecoverRing(const RecoveryRequest& request,
                                     const RingSpec& spec);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_TOPOLOGY_RECOVERY_H_
