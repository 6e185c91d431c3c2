// Pure arithmetic of heartbeats: how far a peer's clock is off, how long a peer
// that flaps is kept out, and how fast its hints go.

#ifndef RINGKV_MEMBERSHIP_CONTROL_LIVENESS_H_
#define RINGKV_MEMBERSHIP_CONTROL_LIVENESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/time.h"

namespace ringkv {

// Estimates how far a peer's wall clock is ahead of ours, from heartbeats and
// their echoes; the sample with the shortest round trip has the least error.
// Source: Mills, "Network Time Protocol", RFC 5905, clock filter.
class ClockOffset {
 public:
  // `round_trip` is measured on our monotone clock without the peer's own
  // delay; `peer_wall` was read when the peer sent.
  void Add(absl::Duration round_trip, WallTime peer_wall, WallTime wall);
  // Nullopt before the first sample.
  std::optional<absl::Duration> Offset() const;
  void Clear() { samples_.clear(); }

 private:
  struct Sample {
    absl::Duration round_trip;
    absl::Duration offset;
  };
  // Few, so that a step of a clock is noticed within as many heartbeats.
  static constexpr size_t kSamples = 4;
  std::deque<Sample> samples_;
};

// Keeps a peer that went down again and again out a little longer each time.
class FlapDamping {
 public:
  // The peer went from alive to down.
  void WentDown(Instant now);
  // How long all must be well before it counts as alive again: nothing for the
  // first two failures in a minute, then one more `unit` for each, up to six.
  absl::Duration Hold(Instant now, absl::Duration unit) const;

 private:
  static constexpr size_t kFailuresMax = 8;
  std::deque<Instant> failures_;  // oldest first
};

// Deliveries a second from a counter that is read now and then.
class DeliveryRates {
 public:
  // Several calls may name the same instant, for other targets.
  void Report(NodeNumber target, uint64_t delivered, Instant now);
  double Rate(NodeNumber target) const;
  void Clear() { targets_.clear(); }

 private:
  struct Target {
    uint64_t delivered = 0;
    Instant at;
    double rate = 0;
  };
  std::map<NodeNumber, Target> targets_;
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_LIVENESS_H_
