// Recent answer times of each peer, for the order of preference, for hedged
// reads and for hints.

#ifndef RINGKV_SERVER_COORDINATOR_LATENCY_H_
#define RINGKV_SERVER_COORDINATOR_LATENCY_H_

#include <array>
#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "base/ids.h"

namespace ringkv {

// Keeps the last samples of each peer and gives their quantiles. A quantile is
// computed anew every 16 samples. Thread-compatible.
class LatencyTracker {
 public:
  void Record(NodeNumber peer, absl::Duration elapsed);

  // `otherwise` until a peer has 16 samples.
  absl::Duration P95(NodeNumber peer, absl::Duration otherwise) const;
  absl::Duration P99(NodeNumber peer, absl::Duration otherwise) const;
  // Zero without samples, so that an unknown peer is tried early.
  absl::Duration Median(NodeNumber peer) const;

 private:
  static constexpr size_t kSamples = 128;
  struct Peer {
    std::array<int64_t, kSamples> nanos{};
    uint64_t count = 0;
    int64_t p50 = 0, p95 = 0, p99 = 0;
  };
  std::map<NodeNumber, Peer> peers_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_LATENCY_H_
