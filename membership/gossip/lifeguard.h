// The arithmetic of Lifeguard: how unwell this node itself may be, how long a
// suspicion lasts, how often an update is passed on. Pure.
// Source: Dadgar, Phillips, Currey, "Lifeguard: Local Health Awareness for More
// Accurate Failure Detection", DSN 2018, arXiv:1707.00788.

#ifndef RINGKV_MEMBERSHIP_GOSSIP_LIFEGUARD_H_
#define RINGKV_MEMBERSHIP_GOSSIP_LIFEGUARD_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace ringkv {

// Whether others seem silent because this node is slow or cut off: the more it
// misses, the longer it waits before it accuses anybody (LHA-Probe).
class LocalHealth {
 public:
  static constexpr int kWorst = 8;

  // A probe was answered in time.
  void Well() { Add(-1); }
  // Something that a healthy node would not have seen, `count` times.
  void Unwell(int count) { Add(count); }
  // 0, well, to kWorst.
  int score() const { return score_; }
  // What intervals and timeouts of probes are multiplied with, from 1 up.
  int multiplier() const { return score_ + 1; }

 private:
  void Add(int change);
  int score_ = 0;
};

struct SuspicionOptions {
  absl::Duration probe_interval;
  // Shortest suspicion: this many probe intervals for each factor of ten in the
  // number of nodes, and at least one such factor.
  double min_factor = 2;
  // Longest, as a multiple of the shortest: what one accuser alone gets.
  double max_factor = 10;
};

// Confirmations by others after which a suspicion is as short as it gets; fewer
// in clusters with fewer others.
int ConfirmationsWanted(size_t nodes);

// How long a suspect has to refute at least, however many accuse it.
absl::Duration ShortestSuspicion(const SuspicionOptions& options, size_t nodes);

// How long a suspect has to refute (LHA-Suspicion): the longest time while one
// node alone accuses it, and down to the shortest, logarithmically, as
// `confirmations` other accusers join. `nodes` counts all that are not dead.
absl::Duration SuspicionTimeout(const SuspicionOptions& options, size_t nodes,
                                int confirmations);

// How often a node passes an update on: lambda log n, so that all but certainly
// every node gets it. `nodes` as above.
int Retransmits(size_t nodes);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_GOSSIP_LIFEGUARD_H_
