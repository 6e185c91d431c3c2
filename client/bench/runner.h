// Runs one phase of a benchmark: keeps operations in flight, in a closed or an
// open loop, and measures them.

#ifndef RINGKV_CLIENT_BENCH_RUNNER_H_
#define RINGKV_CLIENT_BENCH_RUNNER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/bench/arrivals.h"
#include "client/bench/histogram.h"
#include "client/bench/target.h"
#include "client/bench/workload.h"

namespace ringkv::bench {

struct Counts {
  // Outcomes by Verdict.
  uint64_t done = 0;
  uint64_t failed = 0;
  uint64_t unknown = 0;
  uint64_t missing = 0;
  uint64_t wrong = 0;
  uint64_t stale = 0;
  // Part of `done`: writes whose outcome was unknown until they were resolved.
  uint64_t resolved = 0;
  // Reads that found several values.
  uint64_t siblings = 0;
  uint64_t scanned_entries = 0;

  // Operations that ended, however.
  uint64_t ended() const { return done + errors(); }
  uint64_t errors() const { return failed + unknown + missing + wrong + stale; }
  void Add(const Outcome& outcome);
  void Add(const Counts& other);
};

// Of one kind of operation.
struct Measured {
  Counts counts;
  // Nanoseconds, of the operations that were done.
  LatencyHistogram latency;
};

// A second of the run, for a reader who wants to see it move.
struct Progress {
  absl::Duration elapsed;   // since the phase began
  absl::Duration interval;  // that the counts below are of
  bool warmup = false;
  Counts counts;
  LatencyHistogram latency;
  uint64_t ended_total = 0;
};

struct RunOptions {
  // Operations in flight at most, over all targets; at least one for each.
  uint64_t in_flight = 64;
  // Open loop: arrivals a second over all targets. Absent: closed loop.
  std::optional<double> rate;
  ArrivalKind arrivals = ArrivalKind::kPoisson;
  // No operation starts later; infinite: until the source ends.
  absl::Duration duration = absl::InfiniteDuration();
  // Operations to start at most; 0: no bound.
  uint64_t operations = 0;
  // Counted from the start and part of neither `duration` nor the results.
  absl::Duration warmup = absl::ZeroDuration();
  // Closed loop: the interval at which each operation in flight was meant to be
  // sent, to correct for those that a slow answer kept from being sent. Zero:
  // no correction.
  absl::Duration expected_interval = absl::ZeroDuration();
  uint64_t seed = 1;
  // Called about once a second from the thread of Run(). May be empty.
  std::function<void(const Progress&)> on_progress;
  // Ends the run early when it becomes true. May be null.
  const std::atomic<bool>* stop = nullptr;
};

struct PhaseResult {
  absl::Duration elapsed;  // without the warm-up, to the last completion
  std::array<Measured, kOperationKinds> kinds;
  // User and system time of this process.
  absl::Duration cpu;
  // Open loop: by how much requests started late, in nanoseconds, and arrivals
  // that were due and never started.
  LatencyHistogram lateness;
  uint64_t never_started = 0;
  // The first few different errors.
  std::vector<std::string> errors;

  Measured Total() const;
  // Operations done in a second.
  double throughput() const;
};

// Monotonic time of this process.
Instant SteadyNow();
// User and system time that it has used.
absl::Duration CpuOfThisProcess();

// Runs until the duration, the operations or the sources are at their end and
// nothing is in flight. `sources[i]` feeds `targets[i]`; at least one of each.
PhaseResult RunPhase(const std::vector<Target*>& targets,
                     const std::vector<OperationSource*>& sources,
                     const RunOptions& options);

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_RUNNER_H_
