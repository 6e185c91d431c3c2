#include "tests/sim/clocks.h"

#include <algorithm>

namespace ringkv::sim {

WorldTime NodeClocks::WorldOf(Instant instant) const {
  if (instant == Instant::Infinite()) return kForever;
  const __int128 run = static_cast<__int128>(instant.nanos) - origin_;
  if (run <= 0) return 0;
  // A division of 128 bits takes several times as long.
  const bool small = run < kForever / 1000000;
  const __int128 estimate =
      small ? static_cast<int64_t>(run) * 1000000 / (1000000 + rate_ppm_)
            : run * 1000000 / (1000000 + rate_ppm_);
  if (estimate > kForever / 2) return kForever;
  WorldTime world =
      std::max<WorldTime>(0, static_cast<WorldTime>(estimate) - 2);
  while (Run(world) < static_cast<int64_t>(run)) ++world;
  return world;
}

}  // namespace ringkv::sim
