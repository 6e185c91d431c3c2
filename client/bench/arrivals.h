// The open loop: requests come when they come, not when earlier ones are done.
//
// A latency is counted from the time at which a request was meant to start.
// Time that it spent waiting for this process, or for one of the requests in
// flight to end, is part of it: leaving it out is what is called coordinated
// omission.

#ifndef RINGKV_CLIENT_BENCH_ARRIVALS_H_
#define RINGKV_CLIENT_BENCH_ARRIVALS_H_

#include <cstdint>
#include <optional>

#include "base/random.h"
#include "base/time.h"

namespace ringkv::bench {

enum class ArrivalKind : uint8_t {
  kPoisson,   // independent users: exponential gaps
  kConstant,  // a clock: equal gaps
};

// Successive arrival times. Thread-compatible.
class Arrivals {
 public:
  // `rate` arrivals a second on average, above 0; the first one gap after
  // `begin`.
  Arrivals(ArrivalKind kind, double rate, Instant begin, uint64_t seed);

  Instant Next();

 private:
  const ArrivalKind kind_;
  const double gap_nanos_;
  const Instant begin_;
  SeededRandom random_;
  uint64_t count_ = 0;
  double offset_nanos_ = 0;  // of the last arrival, from begin_
};

// Decides which request starts when, with a bound on those in flight. A
// machine: it is told the time, and waits for nothing.
//
// Invariant: every arrival before the end is taken, in order, or left over.
class OpenLoop {
 public:
  // Arrivals from `end` on never start. Requires in_flight_max >= 1.
  OpenLoop(Arrivals arrivals, Instant end, uint64_t in_flight_max);

  // The intended start of the next request, if it is due and fewer than the
  // bound are in flight; it then is in flight.
  std::optional<Instant> TakeDue(Instant now);
  // A request ended.
  void Finished();

  // When to call TakeDue() again: at this time, and at once after Finished() if
  // blocked(). Instant::Infinite() when no arrival is left.
  Instant NextDue() const;
  // True if a due request waits for one in flight to end.
  bool blocked(Instant now) const;

  uint64_t in_flight() const { return in_flight_; }
  // Requests that were due before `now` (or the end, if that is earlier) and
  // were not started. Consumes them.
  uint64_t TakeLeftOver(Instant now);

 private:
  Arrivals arrivals_;
  const Instant end_;
  const uint64_t in_flight_max_;
  uint64_t in_flight_ = 0;
  Instant next_;
};

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_ARRIVALS_H_
