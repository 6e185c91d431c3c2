// The token ranges of a ring that is being changed: each with its replicas
// before and after. Pure functions of the ring.

#ifndef RINGKV_MEMBERSHIP_TOPOLOGY_SEGMENTS_H_
#define RINGKV_MEMBERSHIP_TOPOLOGY_SEGMENTS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "membership/ring/ring.h"

namespace ringkv {

// The tokens from `first` to `last`, both included, first <= last: no range
// wraps here.
struct TokenRange {
  Token first = 0;
  Token last = 0;
  auto operator<=>(const TokenRange&) const = default;
};

// One arrangement's view of a range.
struct ReplicaSet {
  absl::Span<const NodeNumber> nodes;
  uint32_t n = 0, r = 0, w = 0;  // effective
};

// Calls `visit` for each range of tokens in which nothing changes, in token
// order, with the replicas before the operation and after it, whatever its
// phase is. Without an operation both are the same.
void ForEachRange(
    const Ring& ring, const Keyspace& keyspace,
    const std::function<void(const TokenRange& range, const ReplicaSet& before,
                             const ReplicaSet& after)>& visit);

// One thing that a node must receive before it may be read: all versions of a
// range, each from every one of `sources`.
struct Transfer {
  KeyspaceId keyspace{};
  TokenRange range;
  // One: the partner. Several: everybody else who holds the range; then
  // `sources_needed` of them are enough. None: nobody who held it is left, and
  // the operator accepted that; what the node has of it is wiped all the same.
  std::vector<NodeNumber> sources;
  uint32_t sources_needed = 1;
  // `node` is pending there: it wipes the range first. Otherwise it has the
  // range already, and merges what others hold more.
  bool gains = true;
  bool operator==(const Transfer&) const = default;
};

// What `node` must receive in the running operation, by keyspace and range;
// neighbours with equal sources are one. Members that are removed or replaced
// as dead are no source. Gainers and losers are paired one to one; a gainer
// without a living partner merges every other old replica; a loser without a
// partner is merged into every replica of the new set. Where that could leave a
// write on fewer nodes than the new W (W is raised, or fewer nodes than N are
// left without a dead one), every replica of the new set merges the old one.
// Where too few old replicas live (see ShortagesOf), those that do are all that
// is needed.
std::vector<Transfer> TransfersOf(const Ring& ring, NodeNumber node);

// The nodes for which TransfersOf is not empty, by number.
std::vector<NodeNumber> ReceiversOf(const Ring& ring);

// What one node sends another in the running operation.
struct Move {
  NodeNumber from{};
  NodeNumber to{};
  uint64_t ranges = 0;
  // Of all that `from` holds now, by token space and over all keyspaces.
  double share_of_sender = 0;  // what both hold already does not count
};

// By receiver, then sender. What a receiver may take from several sources is
// counted for each of them.
std::vector<Move> MovesOf(const Ring& ring);

// Where the running operation takes so many replicas for dead that acknowledged
// writes may be lost: a write is on W of N replicas, so N-W+1 of them must live
// to hold every write.
struct Shortage {
  KeyspaceId keyspace{};
  std::vector<NodeNumber> dead;  // who held the ranges in question, by number
  uint32_t needed = 0;           // N-W+1
  uint32_t living = 0;           // the fewest that are left of any range
  // Parts of all tokens: where fewer than needed are left, and where none is.
  double share = 0;
  double share_gone = 0;
};

// One for each keyspace in which some range is short, by keyspace. Empty
// without an operation.
std::vector<Shortage> ShortagesOf(const Ring& ring);

// Whether enough replicas have acknowledged the ring's epoch that no quorum can
// be formed on an older one: in each range, separately for the sets before and
// after, max(N-R+1, N-W+1). Members that are removed or replaced as dead count
// as having acknowledged.
bool BarrierReached(const Ring& ring,
                    const std::function<bool(NodeNumber)>& acknowledged);

// Members that the operation takes for dead, or for stopped while it runs.
bool IsTakenForDead(const Ring& ring, NodeNumber node);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_TOPOLOGY_SEGMENTS_H_
