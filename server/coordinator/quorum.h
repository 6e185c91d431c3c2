// The arithmetic of quorums: pure functions of plain values.

#ifndef RINGKV_SERVER_COORDINATOR_QUORUM_H_
#define RINGKV_SERVER_COORDINATOR_QUORUM_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "membership/ring/ring.h"
#include "server/messages.h"

namespace ringkv {

// What one call needs, with fewer nodes than N already taken into account.
struct QuorumNeed {
  uint32_t n = 0;
  uint32_t required = 0;  // R of a read, W of a write
  bool strict = false;
  // Replicas that must hold what a strict read returns: N-R+1 with the
  // keyspace's own R, so that no later strict read can miss it.
  uint32_t holders = 0;
};

// INVALID_ARGUMENT, naming value and limit, for R above N, and at strict for
// R+W <= N or an R below the keyspace's own.
absl::StatusOr<QuorumNeed> ReadNeed(const Ring& ring, const Keyspace& keyspace,
                                    uint32_t r, Quorum quorum);
// The same for W.
absl::StatusOr<QuorumNeed> WriteNeed(const Ring& ring, const Keyspace& keyspace,
                                     uint32_t w, Quorum quorum);

// One of the replica sets whose W a write needs. There are two while a change
// of the ring moves the token, or gives its keyspace another N, R or W.
struct WriteSet {
  absl::Span<const NodeNumber> nodes;  // lives as long as the ring
  uint32_t n = 0;
  uint32_t w = 0;
  uint32_t holders = 0;    // as in QuorumNeed
  bool new_owners = true;  // who holds the token after the change
  bool Contains(NodeNumber node) const {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  }
};
// The read set first. Each with its own N, R and W.
using WriteSets = absl::InlinedVector<WriteSet, 2>;
WriteSets WriteSetsOf(const Ring& ring, const Keyspace& keyspace, Token token);

// The same for a call that asks for `w` (0: each set's own): it holds in both
// sets, as far as they have so many nodes. INVALID_ARGUMENT as WriteNeed, for
// either set.
absl::StatusOr<WriteSets> WriteSetsFor(const Ring& ring,
                                       const Keyspace& keyspace, Token token,
                                       uint32_t w, Quorum quorum);

// One acknowledgement of a write.
struct WriteAck {
  NodeNumber node{};                 // who stored it
  std::vector<NodeNumber> replicas;  // whom it stands for: itself, or as a
                                     // stand-in the intended replicas
};

// How many of `acks` count towards W: the largest number of different nodes
// that stand for as many different replicas. A node counts once whatever it
// holds, and a replica and its stand-in count once.
uint32_t CountAcks(const std::vector<WriteAck>& acks);

// One answer to a read.
struct ReadAnswerKind {
  bool home = false;   // a natural replica
  bool found = false;  // of a stand-in: it holds a hint for the key
};

// How many of `answers` count towards R. "Nothing" from a stand-in is no answer
// by itself: it counts only beside a home replica or a hint for the key.
uint32_t CountReadAnswers(const std::vector<ReadAnswerKind>& answers);

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_QUORUM_H_
