#include "client/bench/arrivals.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <vector>

#include "client/bench/histogram.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::bench {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMillisecond = 1'000'000;

Arrivals Each(absl::Duration gap, Instant begin = {}) {
  return {ArrivalKind::kConstant, 1 / absl::ToDoubleSeconds(gap), begin, 1};
}

TEST(ArrivalsTest, ConstantArrivalsKeepTheirRateWithoutDrift) {
  Arrivals arrivals(ArrivalKind::kConstant, 3, Instant{5}, 1);
  Instant last;
  for (int i = 0; i < 3'000'000; ++i) last = arrivals.Next();
  EXPECT_NEAR(static_cast<double>(last.nanos), 1e6 * kSecond + 5, 1000);
}

TEST(ArrivalsTest, PoissonArrivalsHaveExponentialGaps) {
  Arrivals arrivals(ArrivalKind::kPoisson, 1000, Instant{}, 2);
  constexpr int kCount = 200'000;
  Instant before{};
  double sum = 0;
  double squares = 0;
  int above_mean = 0;
  for (int i = 0; i < kCount; ++i) {
    const Instant next = arrivals.Next();
    ASSERT_GE(next, before);
    const double gap =
        static_cast<double>((next - before) / absl::Nanoseconds(1)) /
        kMillisecond;
    sum += gap;
    squares += gap * gap;
    above_mean += gap > 1 ? 1 : 0;
    before = next;
  }
  EXPECT_NEAR(sum / kCount, 1, 0.01);
  // Mean and standard deviation are equal, and a share of 1/e is above the
  // mean.
  EXPECT_NEAR(squares / kCount - std::pow(sum / kCount, 2), 1, 0.03);
  EXPECT_NEAR(above_mean / static_cast<double>(kCount), std::exp(-1), 0.005);
}

TEST(OpenLoopTest, StartsWhatIsDueAndNothingElse) {
  OpenLoop loop(Each(absl::Milliseconds(10)), Instant{kSecond}, 100);
  EXPECT_EQ(loop.TakeDue(Instant{9 * kMillisecond}), std::nullopt);
  EXPECT_EQ(loop.NextDue(), Instant{10 * kMillisecond});
  EXPECT_EQ(loop.TakeDue(Instant{25 * kMillisecond}),
            Instant{10 * kMillisecond});
  EXPECT_EQ(loop.TakeDue(Instant{25 * kMillisecond}),
            Instant{20 * kMillisecond});
  EXPECT_EQ(loop.TakeDue(Instant{25 * kMillisecond}), std::nullopt);
  EXPECT_EQ(loop.in_flight(), 2u);
  EXPECT_FALSE(loop.blocked(Instant{25 * kMillisecond}));
}

TEST(OpenLoopTest, NothingStartsAtOrAfterTheEnd) {
  OpenLoop loop(Each(absl::Milliseconds(10)), Instant{30 * kMillisecond}, 100);
  EXPECT_NE(loop.TakeDue(Instant{kSecond}), std::nullopt);
  EXPECT_NE(loop.TakeDue(Instant{kSecond}), std::nullopt);
  EXPECT_EQ(loop.TakeDue(Instant{kSecond}), std::nullopt);
  EXPECT_EQ(loop.NextDue(), Instant::Infinite());
  EXPECT_EQ(loop.TakeLeftOver(Instant{kSecond}), 0u);
}

TEST(OpenLoopTest, CountsLatencyFromTheIntendedStartWhenBlocked) {
  OpenLoop loop(Each(absl::Milliseconds(1)), Instant{kSecond}, 1);
  ASSERT_EQ(loop.TakeDue(Instant{kMillisecond}), Instant{kMillisecond});
  // The answer takes 50 ms; meanwhile 49 more were due.
  const Instant now{51 * kMillisecond};
  EXPECT_EQ(loop.TakeDue(now), std::nullopt);
  EXPECT_TRUE(loop.blocked(now));
  loop.Finished();
  EXPECT_FALSE(loop.blocked(now));
  // The oldest goes first, and has waited already.
  EXPECT_EQ(loop.TakeDue(now), Instant{2 * kMillisecond});
}

TEST(OpenLoopTest, CountsWhatWasDueAndNeverStarted) {
  OpenLoop loop(Each(absl::Milliseconds(1)), Instant{100 * kMillisecond}, 1);
  ASSERT_NE(loop.TakeDue(Instant{kMillisecond}), std::nullopt);
  EXPECT_EQ(loop.TakeLeftOver(Instant{10 * kMillisecond}), 9u);
  EXPECT_EQ(loop.TakeLeftOver(Instant{kSecond}), 89u);
  EXPECT_EQ(loop.TakeLeftOver(Instant{kSecond}), 0u);
}

// A server on a clock of its own: `workers` requests at a time, each for
// `service`, and nothing between `stall_from` and `stall_to`.
struct Simulated {
  LatencyHistogram latency;
  uint64_t started = 0;
  uint64_t left_over = 0;
};
Simulated Simulate(Arrivals arrivals, int64_t end, uint64_t in_flight_max,
                   int64_t service, int64_t stall_from, int64_t stall_to) {
  struct Running {
    int64_t ends;
    int64_t intended;
    bool operator>(const Running& other) const { return ends > other.ends; }
  };
  Simulated result;
  OpenLoop loop(std::move(arrivals), Instant{end}, in_flight_max);
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running;
  int64_t now = 0;
  for (;;) {
    while (auto intended = loop.TakeDue(Instant{now})) {
      const int64_t begins =
          now >= stall_from && now < stall_to ? stall_to : now;
      running.push({begins + service, intended->nanos});
      ++result.started;
    }
    int64_t next = loop.blocked(Instant{now}) ? end : loop.NextDue().nanos;
    if (now < end) next = std::min(next, end);
    if (!running.empty()) next = std::min(next, running.top().ends);
    if (now >= end) {
      result.left_over += loop.TakeLeftOver(Instant{now});
      if (running.empty()) return result;
      next = running.top().ends;
    }
    now = std::max(now, next);
    while (!running.empty() && running.top().ends <= now) {
      result.latency.Record(now - running.top().intended);
      loop.Finished();
      running.pop();
    }
  }
}

TEST(OpenLoopTest, AnIdleServerIsMeasuredAtItsServiceTime) {
  const Simulated run = Simulate(Each(absl::Milliseconds(10)), 10 * kSecond, 8,
                                 3 * kMillisecond, -1, -1);
  EXPECT_EQ(run.started, 999u);
  EXPECT_EQ(run.left_over, 0u);
  EXPECT_EQ(run.latency.min(), 3 * kMillisecond);
  EXPECT_EQ(run.latency.max(), 3 * kMillisecond);
}

TEST(OpenLoopTest, AStallShowsInEveryRequestThatItDelayed) {
  // 1,000 a second for 10 s, and a stall of 1 s: a tenth of all requests waits,
  // from nothing to 1 s, however few may be in flight.
  for (uint64_t in_flight_max : {10'000, 4}) {
    const Simulated run =
        Simulate(Each(absl::Milliseconds(1)), 10 * kSecond, in_flight_max,
                 100'000, 2 * kSecond, 3 * kSecond);
    EXPECT_EQ(run.started + run.left_over, 9'999u);
    EXPECT_EQ(run.left_over, 0u);
    EXPECT_NEAR(static_cast<double>(run.latency.ValueAt(0.5)), 100'000, 100);
    EXPECT_NEAR(static_cast<double>(run.latency.ValueAt(0.95)), 0.5 * kSecond,
                0.05 * kSecond);
    EXPECT_NEAR(static_cast<double>(run.latency.max()), kSecond,
                0.01 * kSecond);
  }
}

TEST(OpenLoopTest, OverloadGrowsALatencyThatAClosedLoopWouldHide) {
  // One worker of 2 ms is asked 1,000 times a second: half are left over, and
  // those that ran waited up to half of the run.
  const Simulated run = Simulate(Each(absl::Milliseconds(1)), 10 * kSecond, 1,
                                 2 * kMillisecond, -1, -1);
  EXPECT_EQ(run.started + run.left_over, 9'999u);
  EXPECT_NEAR(static_cast<double>(run.left_over), 5000, 10);
  EXPECT_NEAR(static_cast<double>(run.latency.ValueAt(0.5)), 2.5 * kSecond,
              0.05 * kSecond);
  EXPECT_NEAR(static_cast<double>(run.latency.max()), 5 * kSecond,
              0.05 * kSecond);
}

// M/D/infinity, so to say: with Poisson arrivals and no bound nobody waits.
TEST(OpenLoopTest, PoissonArrivalsWithoutABoundNeverWait) {
  const Simulated run = Simulate({ArrivalKind::kPoisson, 5000, Instant{}, 3},
                                 10 * kSecond, 100'000, kMillisecond, -1, -1);
  EXPECT_NEAR(static_cast<double>(run.started), 50'000, 5 * std::sqrt(50'000));
  EXPECT_EQ(run.latency.max(), kMillisecond);
}

// M/D/1: the mean wait at load rho is rho / (2 (1 - rho)) services.
TEST(OpenLoopTest, OneWorkerQueuesAsTheoryHasIt) {
  for (double rho : {0.3, 0.5, 0.8}) {
    const Simulated run =
        Simulate({ArrivalKind::kPoisson, rho * 1000, Instant{}, 4},
                 400 * kSecond, 1, kMillisecond, -1, -1);
    const double expected = 1 + rho / (2 * (1 - rho));
    EXPECT_NEAR(run.latency.Mean() / kMillisecond, expected, 0.05 * expected)
        << rho;
  }
}

}  // namespace
}  // namespace ringkv::bench
