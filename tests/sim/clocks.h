// The clocks of one simulated node: a monotonic one that runs at its own rate
// and a calendar that is off, drifts and steps. Both are functions of world
// time.

#ifndef RINGKV_TESTS_SIM_CLOCKS_H_
#define RINGKV_TESTS_SIM_CLOCKS_H_

#include <cstdint>

#include "base/time.h"
#include "tests/sim/scheduler.h"

namespace ringkv::sim {

class NodeClocks {
 public:
  // `origin` is what the monotonic clock shows at world time 0 and
  // `rate_ppm` how many millionths it runs too fast, in [-100000, 100000].
  // `wall_offset_micros` is how far the calendar is ahead at world time 0.
  NodeClocks(int64_t origin, int64_t rate_ppm, int64_t wall_offset_micros)
      : origin_(origin),
        rate_ppm_(rate_ppm),
        wall_offset_micros_(wall_offset_micros) {}

  Time At(WorldTime world) const {
    const int64_t run = Run(world);
    return {Instant{origin_ + run},
            WallTime{kWallStartMicros + wall_offset_micros_ + run / 1000}};
  }

  // The first world time at which the monotonic clock shows at least `instant`;
  // kForever for Instant::Infinite() and what does not fit.
  WorldTime WorldOf(Instant instant) const;

  void StepWall(int64_t micros) { wall_offset_micros_ += micros; }
  // How far the calendar is ahead of the true one.
  int64_t WallErrorMicros(WorldTime world) const {
    return At(world).wall.micros - (kWallStartMicros + world / 1000);
  }

 private:
  // 2024-01-01, so that the calendar's values look like real ones.
  static constexpr int64_t kWallStartMicros = 1704067200ll * 1000 * 1000;

  // What the monotonic clock has run since world time 0.
  int64_t Run(WorldTime world) const {
    // In two parts, neither of which overflows.
    return world + world / 1000000 * rate_ppm_ +
           world % 1000000 * rate_ppm_ / 1000000;
  }

  int64_t origin_;
  int64_t rate_ppm_;
  int64_t wall_offset_micros_;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_CLOCKS_H_
