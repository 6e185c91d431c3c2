#include "client/retry_policy.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "client/channel.h"
#include "client/client.h"

namespace ringkv {
namespace {

using Code = absl::StatusCode;

TEST(RetryPolicyTest, WritesAreRepeatableAnywhereOnlyWithContextAndSiblings) {
  EXPECT_EQ(RepeatableWrite(true, true), Repeatable::kAnywhere);
  EXPECT_EQ(RepeatableWrite(true, false), Repeatable::kSameCoordinator);
  EXPECT_EQ(RepeatableWrite(false, true), Repeatable::kSameCoordinator);
  EXPECT_EQ(RepeatableWrite(false, false), Repeatable::kSameCoordinator);
}

TEST(RetryPolicyTest, JudgesWhatATrySays) {
  struct Case {
    Repeatable repeatable;
    TryReport report;
    TryVerdict verdict;
  };
  const Case cases[] = {
      {Repeatable::kSameCoordinator, {Code::kOk}, TryVerdict::kDone},
      {Repeatable::kSameCoordinator,
       {Code::kUnavailable, /*sent=*/false},
       TryVerdict::kNotDone},
      {Repeatable::kSameCoordinator,
       {Code::kUnavailable, true},
       TryVerdict::kAmbiguous},
      {Repeatable::kSameCoordinator,
       {Code::kUnavailable, true, /*said_not_done=*/true},
       TryVerdict::kNotDone},
      {Repeatable::kAnywhere,
       {Code::kDeadlineExceeded, true},
       TryVerdict::kAmbiguous},
      {Repeatable::kRead, {Code::kUnavailable, true}, TryVerdict::kNotDone},
      {Repeatable::kRead, {Code::kInternal, true}, TryVerdict::kNotDone},
      {Repeatable::kRead, {Code::kInvalidArgument, true}, TryVerdict::kRefused},
      {Repeatable::kSameCoordinator,
       {Code::kNotFound, true},
       TryVerdict::kRefused},
      {Repeatable::kSameCoordinator,
       {Code::kResourceExhausted, true},
       TryVerdict::kRefused},
      {Repeatable::kSameCoordinator,
       {Code::kResourceExhausted, true, /*said_not_done=*/true},
       TryVerdict::kNotDone},
      {Repeatable::kSameCoordinator,
       {Code::kFailedPrecondition, true},
       TryVerdict::kNotDone},
      {Repeatable::kSameCoordinator,
       {.code = Code::kFailedPrecondition, .pinned = true},
       TryVerdict::kRefused},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Judge(c.repeatable, c.report), c.verdict)
        << absl::StatusCodeToString(c.report.code);
  }
}

TEST(RetryPolicyTest, AmbiguousPlainWriteMayOnlyGoToAKnownRunAgain) {
  EXPECT_EQ(WhereNext(Repeatable::kSameCoordinator, true, true),
            NextTry::kSameRun);
  EXPECT_EQ(WhereNext(Repeatable::kSameCoordinator, true, false),
            NextTry::kNone);
  EXPECT_EQ(WhereNext(Repeatable::kSameCoordinator, false, true),
            NextTry::kAnyNode);
  EXPECT_EQ(WhereNext(Repeatable::kAnywhere, true, false), NextTry::kAnyNode);
  EXPECT_EQ(WhereNext(Repeatable::kRead, false, false), NextTry::kAnyNode);
}

TEST(RetryPolicyTest, BudgetAllowsABurstThenAShare) {
  RetryBudget budget(0.1, 5);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(budget.TakeRetry());
  EXPECT_FALSE(budget.TakeRetry());
  int taken = 0;
  for (int i = 0; i < 1000; ++i) {
    budget.OnCall();
    if (budget.TakeRetry()) ++taken;
  }
  EXPECT_GE(taken, 99);
  EXPECT_LE(taken, 100);
  for (int i = 0; i < 1000; ++i) budget.OnCall();
  EXPECT_LE(budget.tokens(), 5);
}

TEST(RetryPolicyTest, FullJitterStaysBelowItsBounds) {
  const absl::Duration base = absl::Milliseconds(10);
  const absl::Duration max = absl::Milliseconds(100);
  EXPECT_EQ(FullJitter(base, max, 0, 0.5), absl::Milliseconds(5));
  EXPECT_EQ(FullJitter(base, max, 2, 0.5), absl::Milliseconds(20));
  EXPECT_EQ(FullJitter(base, max, 60, 0.5), absl::Milliseconds(50));
  EXPECT_EQ(FullJitter(base, max, -1, 0), absl::ZeroDuration());
}

TEST(RetryPolicyTest, QuantileComesNearTheTruth) {
  SeededRandom random(7);
  LatencyQuantile p99(0.99);
  for (int i = 0; i < 20000; ++i) {
    // Uniform in 1 to 101 ms: the 99th percentile is 100 ms.
    p99.Add(absl::Milliseconds(1 + 100 * random.NextDouble()));
  }
  EXPECT_GT(p99.Estimate(), absl::Milliseconds(80));
  EXPECT_LT(p99.Estimate(), absl::Milliseconds(120));
}

TEST(RetryPolicyTest, HedgeWaitsForTheTailButLeavesTimeToAnswer) {
  EXPECT_EQ(HedgeDelay(absl::Milliseconds(20), absl::Milliseconds(10),
                       absl::Seconds(1)),
            absl::Milliseconds(40));
  EXPECT_EQ(HedgeDelay(absl::Milliseconds(1), absl::Milliseconds(10),
                       absl::Seconds(1)),
            absl::Milliseconds(10));
  EXPECT_EQ(HedgeDelay(absl::Seconds(1), absl::Milliseconds(10),
                       absl::Milliseconds(150)),
            absl::Milliseconds(50));
}

TEST(RetryPolicyTest, EndStatusKeepsCodeAndMarksUnknown) {
  const absl::Status known =
      EndStatus(absl::UnavailableError("x"), false, "put sent to a");
  EXPECT_TRUE(absl::IsUnavailable(known));
  EXPECT_FALSE(IsOutcomeUnknown(known));
  EXPECT_EQ(known.message(), "x (put sent to a)");
  EXPECT_TRUE(
      IsOutcomeUnknown(EndStatus(absl::UnavailableError("x"), true, "")));
  EXPECT_FALSE(IsOutcomeUnknown(absl::OkStatus()));
}

TEST(EndpointsTest, ParsesListsAndDefaultsThePort) {
  absl::StatusOr<std::vector<std::string>> parsed =
      ParseEndpoints("a:1, b ,[::1]:7701,a:1");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, (std::vector<std::string>{"a:1", "b:7700", "[::1]:7701"}));
}

TEST(EndpointsTest, RefusesWhatIsNoHostAndPort) {
  for (const char* text : {"", ",", "a:", "a:0", "a:65536", "a:x", ":7700",
                           "[::1", "http://a:1", "a b:1", "::1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseEndpoints(text).status())) << text;
  }
}

}  // namespace
}  // namespace ringkv
