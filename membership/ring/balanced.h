// The balanced strategy: which of Q equal segments each node owns.

#ifndef RINGKV_MEMBERSHIP_RING_BALANCED_H_
#define RINGKV_MEMBERSHIP_RING_BALANCED_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "membership/ring/ring.h"

namespace ringkv {

inline constexpr uint32_t kNobody = UINT32_MAX;

// Tokens that each member should own, by fair share (fair_share.h) of
// `segments` tokens, each rounded up or down so that as few as possible move,
// and at least one. `held` is what each owns now. Requires segments >= members.
std::vector<uint32_t> TokenTargets(absl::Span<const Member> members, uint32_t n,
                                   uint32_t segments,
                                   absl::Span<const uint32_t> held);

// The new owner of each segment, as positions in `members`. `current` is the
// owner now, kNobody where that one left or nobody ever owned it.
//
// The number of tokens that move is the least that reaches TokenTargets: only
// members above their target give tokens up, and only members below get some.
// Which tokens those are, and who gets which, is chosen so that any N
// neighbours stand in different nodes, hosts, racks and zones as far as that
// goes, and so that replicas are shared out fairly where it does not go.
// Deterministic. Requires current.size() >= members.size() > 0, and n in 1 to
// kReplicasMax.
std::vector<uint32_t> BalanceTokens(absl::Span<const Member> members,
                                    uint32_t n,
                                    absl::Span<const uint32_t> current);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_RING_BALANCED_H_
