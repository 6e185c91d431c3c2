#include "client/bench/runner.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "client/bench/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::bench {
namespace {

Outcome OutcomeOf(Verdict verdict) {
  Outcome outcome;
  outcome.verdict = verdict;
  if (verdict != Verdict::kDone) {
    outcome.status = absl::UnavailableError("away");
  }
  return outcome;
}

// Answers inside Start().
class InlineTarget : public Target {
 public:
  void Start(const Operation& operation, Completion* completion) override {
    ++started;
    completion->Done(Judge(operation));
  }
  void Flush() override {}

  virtual Outcome Judge(const Operation&) { return {}; }
  std::atomic<uint64_t> started{0};
};

// Answers on a thread of its own, and sees how many are in flight.
class ThreadTarget final : public Target {
 public:
  ThreadTarget() : thread_([this] { Work(); }) {}
  ~ThreadTarget() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void Start(const Operation&, Completion* completion) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(completion);
      in_flight_max_ = std::max(in_flight_max_, queue_.size());
    }
    changed_.notify_one();
  }
  void Flush() override {}

  size_t in_flight_max() {
    const std::lock_guard lock(mutex_);
    return in_flight_max_;
  }

 private:
  void Work() {
    for (;;) {
      Completion* completion = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (queue_.empty()) return;
        completion = queue_.front();
        queue_.pop_front();
      }
      completion->Done({});
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Completion*> queue_;
  size_t in_flight_max_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

struct Sources {
  explicit Sources(const char* workload, size_t lanes = 1) : inserts(1000) {
    for (size_t i = 0; i < lanes; ++i) {
      owned.push_back(MakeRunSource(*NamedWorkload(workload), inserts, i));
      list.push_back(owned.back().get());
    }
  }
  InsertCounter inserts;
  std::vector<std::unique_ptr<OperationSource>> owned;
  std::vector<OperationSource*> list;
};

TEST(RunnerTest, ClosedLoopRunsExactlyTheOperationsAskedFor) {
  InlineTarget target;
  Sources sources("a");
  RunOptions options;
  options.operations = 100'000;
  options.in_flight = 7;
  const PhaseResult result = RunPhase({&target}, sources.list, options);
  EXPECT_EQ(result.Total().counts.done, 100'000u);
  EXPECT_EQ(target.started, 100'000u);
  EXPECT_EQ(result.Total().latency.count(), 100'000u);
  EXPECT_EQ(result.kinds[0].counts.done + result.kinds[1].counts.done,
            100'000u);
  EXPECT_GT(result.throughput(), 0);
}

TEST(RunnerTest, ClosedLoopKeepsItsNumberInFlightOverThreads) {
  ThreadTarget left;
  ThreadTarget right;
  Sources sources("c", 2);
  RunOptions options;
  options.operations = 50'000;
  options.in_flight = 32;
  const PhaseResult result = RunPhase({&left, &right}, sources.list, options);
  EXPECT_EQ(result.Total().counts.done, 50'000u);
  EXPECT_LE(left.in_flight_max(), 16u);
  EXPECT_LE(right.in_flight_max(), 16u);
}

TEST(RunnerTest, OpenLoopRunsExactlyTheOperationsAskedFor) {
  ThreadTarget target;
  Sources sources("c");
  RunOptions options;
  options.operations = 2'000;
  options.rate = 100'000;
  options.in_flight = 64;
  const PhaseResult result = RunPhase({&target}, sources.list, options);
  EXPECT_EQ(result.Total().counts.done, 2'000u);
  EXPECT_EQ(result.lateness.count(), 2'000u);
  EXPECT_EQ(result.never_started, 0u);
  EXPECT_LE(target.in_flight_max(), 64u);
}

TEST(RunnerTest, OpenLoopEndsWithItsDuration) {
  InlineTarget target;
  Sources sources("c");
  RunOptions options;
  options.duration = absl::Milliseconds(50);
  options.rate = 20'000;
  options.arrivals = ArrivalKind::kConstant;
  const PhaseResult result = RunPhase({&target}, sources.list, options);
  EXPECT_EQ(result.Total().counts.done + result.never_started, 999u);
}

TEST(RunnerTest, StopEndsARunWithoutABound) {
  InlineTarget target;
  Sources sources("c");
  std::atomic<bool> stop{true};
  RunOptions options;
  options.stop = &stop;
  EXPECT_EQ(RunPhase({&target}, sources.list, options).Total().counts.done, 0u);
}

TEST(RunnerTest, WarmUpIsLeftOut) {
  InlineTarget target;
  Sources sources("c");
  RunOptions options;
  options.operations = 10;
  options.warmup = absl::Hours(1);
  const PhaseResult result = RunPhase({&target}, sources.list, options);
  EXPECT_EQ(target.started, 10u);
  EXPECT_EQ(result.Total().counts.ended(), 0u);
  EXPECT_EQ(result.throughput(), 0);
}

TEST(RunnerTest, FailedAndUnknownAreCountedApart) {
  class Mixed final : public InlineTarget {
   public:
    Outcome Judge(const Operation&) override {
      const Verdict verdict = static_cast<Verdict>(started % 5);
      Outcome outcome = OutcomeOf(verdict);
      outcome.resolved = started % 10 == 0;
      return outcome;
    }
  } target;
  Sources sources("a");
  RunOptions options;
  options.operations = 1000;
  options.in_flight = 1;
  const PhaseResult result = RunPhase({&target}, sources.list, options);
  const Measured total = result.Total();
  EXPECT_EQ(total.counts.done, 200u);
  EXPECT_EQ(total.counts.failed, 200u);
  EXPECT_EQ(total.counts.unknown, 200u);
  EXPECT_EQ(total.counts.missing, 200u);
  EXPECT_EQ(total.counts.wrong, 200u);
  EXPECT_EQ(total.counts.resolved, 100u);
  EXPECT_EQ(total.counts.errors(), 800u);
  EXPECT_EQ(total.latency.count(), 200u);
  ASSERT_FALSE(result.errors.empty());
  EXPECT_THAT(result.errors[0], testing::HasSubstr("away"));

  const auto json = PhaseJson(result, false);
  EXPECT_EQ(json["unknown"], 200);
  EXPECT_EQ(json["failed"], 200);
  EXPECT_EQ(json["kinds"]["read"]["failed"].get<int>() +
                json["kinds"]["update"]["failed"].get<int>(),
            200);
  EXPECT_FALSE(json["kinds"].contains("scan"));
  EXPECT_THAT(PhaseTable(result, false),
              testing::HasSubstr("failed 200, unknown 200"));
}

TEST(ReportTest, TimesHaveThreeDigitsAndAUnit) {
  EXPECT_EQ(ShortTime(0), "0.00 ns");
  EXPECT_EQ(ShortTime(9.994), "9.99 ns");
  EXPECT_EQ(ShortTime(9.996), "10.0 ns");
  EXPECT_EQ(ShortTime(999.4), "999 ns");
  EXPECT_EQ(ShortTime(999.6), "1.00 us");
  EXPECT_EQ(ShortTime(1'934'000), "1.93 ms");
  EXPECT_EQ(ShortTime(2.5e9), "2.50 s");
  EXPECT_EQ(ShortTime(999.9e6), "1.00 s");
}

TEST(ReportTest, NumbersHaveCommas) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(1234567), "1,234,567");
}

}  // namespace
}  // namespace ringkv::bench
