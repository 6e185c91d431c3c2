#include "membership/control/liveness.h"

#include <algorithm>

namespace ringkv {

void ClockOffset::Add(absl::Duration round_trip, WallTime peer_wall,
                      WallTime wall) {
  if (round_trip < absl::ZeroDuration()) return;
  const absl::Duration ahead =
      absl::Microseconds(peer_wall.micros) - absl::Microseconds(wall.micros);
  samples_.push_back({round_trip, ahead + round_trip / 2});
  if (samples_.size() > kSamples) samples_.pop_front();
}

std::optional<absl::Duration> ClockOffset::Offset() const {
  if (samples_.empty()) return std::nullopt;
  return std::min_element(samples_.begin(), samples_.end(),
                          [](const Sample& a, const Sample& b) {
                            return a.round_trip < b.round_trip;
                          })
      ->offset;
}

void FlapDamping::WentDown(Instant now) {
  failures_.push_back(now);
  if (failures_.size() > kFailuresMax) failures_.pop_front();
}

absl::Duration FlapDamping::Hold(Instant now, absl::Duration unit) const {
  int recent = 0;
  for (Instant failure : failures_) {
    if (now - failure < absl::Minutes(1)) ++recent;
  }
  return unit * std::max(0, recent - 2);
}

void DeliveryRates::Report(NodeNumber target, uint64_t delivered, Instant now) {
  const auto [found, added] =
      targets_.try_emplace(target, Target{delivered, now, 0});
  if (added) return;
  Target& known = found->second;
  const absl::Duration span = now - known.at;
  if (span < absl::Seconds(2)) return;
  // A counter that went back began anew.
  const uint64_t more =
      delivered >= known.delivered ? delivered - known.delivered : delivered;
  known = {delivered, now,
           static_cast<double>(more) / absl::ToDoubleSeconds(span)};
}

double DeliveryRates::Rate(NodeNumber target) const {
  const auto found = targets_.find(target);
  return found == targets_.end() ? 0 : found->second.rate;
}

}  // namespace ringkv
