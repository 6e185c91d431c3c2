// How far ahead the clock's bound on disk is kept.

#ifndef RINGKV_MEMBERSHIP_CONTROL_CLOCK_BOUND_H_
#define RINGKV_MEMBERSHIP_CONTROL_CLOCK_BOUND_H_

#include <algorithm>
#include <cstdint>

#include "base/hlc.h"
#include "base/time.h"

namespace ringkv {

// A node that restarts goes on from its bound. The lead over the wall clock
// stays below the default `max_clock_drift` (5 s), or a quick restart would
// stamp so far ahead that its own drift check refused fresh puts; so the bound
// is renewed about every two seconds. Where the clock is ahead of the wall
// already, only a small lead for its counter is added (65 million timestamps a
// second), so that a node that restarts over and over does not run away from
// the wall clock.
inline constexpr int64_t kBoundWallLeadMs = 4000;
inline constexpr int64_t kBoundClockLeadMs = 500;

inline HlcTimestamp BoundWithLead(HlcTimestamp last, WallTime wall,
                                  int64_t wall_lead_ms, int64_t clock_lead_ms) {
  const int64_t by_wall = std::max<int64_t>(wall.millis(), 0) + wall_lead_ms;
  return HlcFromMillis(
      std::max<int64_t>(by_wall, HlcMillis(last) + clock_lead_ms));
}

// The bound to write next. `last` is the greatest timestamp given or observed.
inline HlcTimestamp NextBound(HlcTimestamp last, WallTime wall) {
  return BoundWithLead(last, wall, kBoundWallLeadMs, kBoundClockLeadMs);
}

// Half of the lead is used up.
inline bool BoundIsLow(HlcTimestamp bound, HlcTimestamp last, WallTime wall) {
  return bound <
         BoundWithLead(last, wall, kBoundWallLeadMs / 2, kBoundClockLeadMs / 2);
}

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_CLOCK_BOUND_H_
