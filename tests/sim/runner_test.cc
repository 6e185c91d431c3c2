#include "tests/sim/runner.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::sim {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

TEST(ProgressTextTest, TellsRateAndTimeLeft) {
  EXPECT_EQ(ProgressText(0, 500, 0, 1), "0 of 500 seeds, 0 failed");
  EXPECT_EQ(ProgressText(120, 500, 1, 4),
            "120 of 500 seeds, 1 failed, 30 seeds/s, 13 s left");
  EXPECT_EQ(ProgressText(5, 6, 0, 2),
            "5 of 6 seeds, 0 failed, 2.5 seeds/s, 0 s left");
}

TEST(RunnerTest, ARunApartTellsWhatARunHereTells) {
  Plan plan = PlanOf(2);
  plan.workload.operations = 40;
  plan.length = kSecond;
  const SeedOutcome here = RunHere(plan, true, 1);
  const SeedOutcome apart = RunApart(plan, 1);
  EXPECT_FALSE(here.failed) << here.text;
  EXPECT_EQ(apart.hash, here.hash);
  EXPECT_EQ(apart.operations, here.operations);
  EXPECT_EQ(apart.marks, here.marks);
  EXPECT_THAT(apart.checks, IsEmpty());
}

TEST(RunnerTest, ARunThatDiesIsAFailureOfItsOwn) {
  Plan plan = PlanOf(2);
  plan.keyspaces.clear();  // the workload has nothing to draw from
  const SeedOutcome outcome = RunApart(plan, 1);
  EXPECT_TRUE(outcome.failed);
  EXPECT_THAT(outcome.checks, Contains("crash"));
}

}  // namespace
}  // namespace ringkv::sim
