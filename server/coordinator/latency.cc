#include "server/coordinator/latency.h"

#include <algorithm>

namespace ringkv {

void LatencyTracker::Record(NodeNumber peer, absl::Duration elapsed) {
  Peer& p = peers_[peer];
  p.nanos[p.count++ % kSamples] = absl::ToInt64Nanoseconds(elapsed);
  if (p.count % 16 != 0) return;
  std::array<int64_t, kSamples> sorted = p.nanos;
  const size_t n = std::min<size_t>(p.count, kSamples);
  // Each part above the one before.
  const auto end = sorted.begin() + n;
  const auto quantile = [&sorted, end](size_t from, size_t place) {
    std::nth_element(sorted.begin() + from, sorted.begin() + place, end);
    return sorted[place];
  };
  p.p50 = quantile(0, n / 2);
  p.p95 = quantile(n / 2, n * 95 / 100);
  p.p99 = quantile(n * 95 / 100, n * 99 / 100);
}

absl::Duration LatencyTracker::P95(NodeNumber peer,
                                   absl::Duration otherwise) const {
  const auto it = peers_.find(peer);
  if (it == peers_.end() || it->second.count < 16) return otherwise;
  return absl::Nanoseconds(it->second.p95);
}

absl::Duration LatencyTracker::P99(NodeNumber peer,
                                   absl::Duration otherwise) const {
  const auto it = peers_.find(peer);
  if (it == peers_.end() || it->second.count < 16) return otherwise;
  return absl::Nanoseconds(it->second.p99);
}

absl::Duration LatencyTracker::Median(NodeNumber peer) const {
  const auto it = peers_.find(peer);
  return it == peers_.end() ? absl::ZeroDuration()
                            : absl::Nanoseconds(it->second.p50);
}

}  // namespace ringkv
