// Two kinds of time, which never mix: `Instant` measures spans on one node and
// never goes back; `WallTime` is what a calendar says and may step. Machines
// get both as an argument and read no clock.

#ifndef RINGKV_BASE_TIME_H_
#define RINGKV_BASE_TIME_H_

#include <compare>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace ringkv {

// A point of one node's monotonic clock, in nanoseconds since an arbitrary
// origin. Meaningless on any other node and after a restart.
struct Instant {
  int64_t nanos = 0;

  auto operator<=>(const Instant&) const = default;
  static constexpr Instant Infinite() {
    return Instant{std::numeric_limits<int64_t>::max()};
  }
};

// Saturates at Instant::Infinite() for spans that do not fit.
inline Instant operator+(Instant t, absl::Duration d) {
  const int64_t span = absl::ToInt64Nanoseconds(d);
  if (span > 0 && t.nanos > std::numeric_limits<int64_t>::max() - span) {
    return Instant::Infinite();
  }
  return Instant{t.nanos + span};
}
inline Instant operator-(Instant t, absl::Duration d) { return t + -d; }
inline absl::Duration operator-(Instant a, Instant b) {
  return absl::Nanoseconds(a.nanos) - absl::Nanoseconds(b.nanos);
}

// Microseconds since 1970-01-01 UTC, as the machine's calendar clock has it.
struct WallTime {
  int64_t micros = 0;
  auto operator<=>(const WallTime&) const = default;
  int64_t millis() const { return micros / 1000; }
};

// What a machine is told at each step.
struct Time {
  Instant now;
  WallTime wall;
};

}  // namespace ringkv

#endif  // RINGKV_BASE_TIME_H_
