#include "membership/gossip/lifeguard.h"

#include <algorithm>
#include <cmath>

namespace ringkv {
namespace {

constexpr int kConfirmationsMax = 2;
constexpr double kRetransmitFactor = 4;

}  // namespace

void LocalHealth::Add(int change) {
  score_ = std::clamp(score_ + change, 0, kWorst);
}

int ConfirmationsWanted(size_t nodes) {
  // The suspect and its first accuser do not confirm.
  return nodes <= 2
             ? 0
             : static_cast<int>(std::min<size_t>(kConfirmationsMax, nodes - 2));
}

absl::Duration ShortestSuspicion(const SuspicionOptions& options,
                                 size_t nodes) {
  const double tens = std::max(
      1.0, std::log10(static_cast<double>(std::max<size_t>(nodes, 1))));
  return options.probe_interval * (options.min_factor * tens);
}

absl::Duration SuspicionTimeout(const SuspicionOptions& options, size_t nodes,
                                int confirmations) {
  const absl::Duration shortest = ShortestSuspicion(options, nodes);
  const int wanted = ConfirmationsWanted(nodes);
  if (wanted == 0 || confirmations >= wanted) return shortest;
  const double done = std::log(confirmations + 1.0) / std::log(wanted + 1.0);
  const absl::Duration longest = shortest * options.max_factor;
  return longest - (longest - shortest) * done;
}

int Retransmits(size_t nodes) {
  return static_cast<int>(std::ceil(
      kRetransmitFactor * std::log10(static_cast<double>(nodes) + 1.0)));
}

}  // namespace ringkv
