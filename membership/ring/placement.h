// Makes token ownership for a set of members; pure functions from one
// assignment to the next.

#ifndef RINGKV_MEMBERSHIP_RING_PLACEMENT_H_
#define RINGKV_MEMBERSHIP_RING_PLACEMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
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

// The token of a node's vnode number `index` in a hashed ring: XXH3-64 of the
// id's 16 bytes and the index's 4, all big-endian.
Token VnodeToken(const NodeId& id, uint32_t index);

// As Place for kHashed, with a hash of the caller's, which lets collisions be
// made. Of vnodes with equal tokens the one with the smallest node id owns the
// token, whoever came first.
absl::StatusOr<Assignment> PlaceHashed(uint32_t vnodes,
                                       const std::vector<Member>& members,
                                       Token (*token_of)(const NodeId& id,
                                                         uint32_t index));

// How even and how safe a ring is, for one N.
struct PlacementReport {
  struct Node {
    NodeNumber number{};
    double primary_share = 0;     // of the token space
    double replicated_share = 0;  // sum over nodes is effective N
    // What it should hold of the latter: by weight, as far as failure domains
    // allow (fair_share.h).
    double fair_share = 0;
  };
  std::vector<Node> nodes;              // those that own tokens, by number
  double coefficient_of_variation = 0;  // of replicated/fair share
  double largest_over_mean = 0;         // of the same
  // Segments whose replicas share a host (or rack) though another was left.
  size_t host_violations = 0;
  size_t rack_violations = 0;
  // Segments whose replicas are not simply the next N owners, because one of
  // those was too near to another and the walk had to go on: few in a good
  // placement.
  size_t crowded_segments = 0;
};

// Requires n in 1 to kReplicasMax.
PlacementReport Inspect(const Ring& ring, uint32_t n);

// One thing wrong with a ring's preference lists.
struct RingViolation {
  enum class Kind {
    kFewerReplicas,  // fewer members own tokens than N asks for
    kSameNode,       // a list names a node twice
    kSameHost,       // two replicas on one host though another host was left
    kSameRack,       // two replicas in one rack though another rack was left
    kSameZone,       // two replicas in one zone though another zone was left
  };
  Kind kind{};
  KeyspaceId keyspace{};
  size_t segment = 0;            // its number; 0 for kFewerReplicas
  NodeNumber first{}, second{};  // the two nodes; none for kFewerReplicas
  // A sentence with names, for people.
  std::string message;
};

// What is wrong with `list` as the preference list of a segment, if anything;
// the gravest first. Requires that it names members that own tokens.
std::optional<RingViolation> CheckPreferenceList(
    const Ring& ring, const Keyspace& keyspace, size_t segment,
    absl::Span<const NodeNumber> list);

// Looks at every preference list that the ring gives to callers, whatever made
// it, and lists what is wrong in keyspace and segment order, at most `max` of
// them. Empty for a healthy ring with at least N members. Keyspaces of one N
// are looked at once.
std::vector<RingViolation> CheckRing(const Ring& ring, size_t max);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_RING_PLACEMENT_H_
