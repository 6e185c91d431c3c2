// What each node of a ring is entitled to.

#ifndef RINGKV_MEMBERSHIP_RING_FAIR_SHARE_H_
#define RINGKV_MEMBERSHIP_RING_FAIR_SHARE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "membership/ring/ring.h"

namespace ringkv {

// The share of all keys of which each member should hold a replica, in the
// order of `members`: above 0, at most 1, and together min(n, members).
//
// Shares are proportional to weight as far as the walk allows (ring.h): with at
// least N zones a zone holds at most one replica of a key, else every zone
// holds at least one; the same for racks and hosts; and a node never holds two.
// So a rack with more weight than 1/N of the whole is held to one replica of
// each key, and what it cannot take goes to the others by weight. Requires at
// least one member, n > 0 and weights above 0.
std::vector<double> FairShares(absl::Span<const Member> members, uint32_t n);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_RING_FAIR_SHARE_H_
