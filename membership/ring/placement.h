// Makes token ownership for a set of members; pure functions from one
// assignment to the next.

#ifndef RINGKV_MEMBERSHIP_RING_PLACEMENT_H_
#define RINGKV_MEMBERSHIP_RING_PLACEMENT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "membership/ring/ring.h"

namespace ringkv {

struct Assignment {
  std::vector<Token> tokens;       // sorted
  std::vector<NodeNumber> owners;  // parallel
};

struct PlacementOptions {
  PlacementStrategy strategy = PlacementStrategy::kBalanced;
  uint32_t vnodes = 16384;  // as RingSpec::vnodes
  uint32_t n = 3;           // the greatest N to space replicas for
};

// The assignment for exactly `members`, moving as little as possible away from
// `current` (empty for a new ring). Deterministic, and for kHashed independent
// of `current`. INVALID_ARGUMENT for no members, a weight out of range, more
// members than tokens.
absl::StatusOr<Assignment> Place(const PlacementOptions& options,
                                 const std::vector<Member>& members,
                                 const Assignment& current);

// How even and how safe a ring is, for one N.
struct PlacementReport {
  struct Node {
    NodeNumber number{};
    double primary_share = 0;     // of the token space
    double replicated_share = 0;  // sum over nodes is effective N
    double fair_share = 0;        // by weight
  };
  std::vector<Node> nodes;
  double coefficient_of_variation = 0;  // of replicated/fair share
  double largest_over_mean = 0;
  // Segments whose replicas share a host (or rack) though another was left.
  size_t host_violations = 0;
  size_t rack_violations = 0;
};
PlacementReport Inspect(const Ring& ring, uint32_t n);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_RING_PLACEMENT_H_
