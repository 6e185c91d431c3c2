#include "tests/sim/shrink.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

Plan WholePlan() {
  Plan plan;
  plan.nodes.resize(7);
  plan.keyspaces.resize(1);
  for (int i = 0; i < 20; ++i) {
    Fault fault;
    fault.number = i;
    fault.node = i % 3;
    fault.at = i * kSecond;
    plan.faults.push_back(fault);
  }
  plan.workload.clients = 10;
  plan.workload.operations = 1000;
  plan.length = 60 * kSecond;
  return plan;
}

Plan With(const Plan& whole, const PlanOverrides& overrides) {
  Plan plan = whole;
  EXPECT_TRUE(ApplyOverrides(overrides, plan).ok());
  return plan;
}

bool Has(const Plan& plan, int number) {
  return std::any_of(
      plan.faults.begin(), plan.faults.end(),
      [number](const Fault& fault) { return fault.number == number; });
}

TEST(ShrinkTest, FindsTheFewPartsThatMatter) {
  const Plan whole = WholePlan();
  ShrinkOptions options;
  options.still_fails = [&](const PlanOverrides& overrides) {
    const Plan plan = With(whole, overrides);
    return Has(plan, 3) && Has(plan, 11) && plan.workload.operations >= 137 &&
           plan.workload.clients >= 2 && plan.nodes.size() >= 3;
  };
  const Shrunk shrunk = Shrink(whole, PlanOverrides(), options);
  EXPECT_TRUE(shrunk.smallest);
  EXPECT_THAT(shrunk.overrides.only_faults, Optional(ElementsAre(3, 11)));
  EXPECT_THAT(shrunk.overrides.operations, Optional(137));
  EXPECT_THAT(shrunk.overrides.clients, Optional(2));
  EXPECT_THAT(shrunk.overrides.nodes, Optional(3));
  ASSERT_TRUE(shrunk.overrides.length.has_value());
  EXPECT_GE(*shrunk.overrides.length, 11 * kSecond);
  EXPECT_LE(*shrunk.overrides.length, 11 * kSecond + 200 * kMillisecond);
}

TEST(ShrinkTest, WhatItEndsWithFails) {
  // Not monotone: too few operations of an odd number of clients hold.
  const Plan whole = WholePlan();
  ShrinkOptions options;
  options.still_fails = [&](const PlanOverrides& overrides) {
    const Plan plan = With(whole, overrides);
    return plan.workload.clients % 2 == 0 &&
           (plan.workload.operations * 7919) % 11 < 6;
  };
  const Shrunk shrunk = Shrink(whole, PlanOverrides(), options);
  EXPECT_TRUE(options.still_fails(shrunk.overrides));
  EXPECT_THAT(shrunk.overrides.only_faults, Optional(ElementsAre()));
}

TEST(ShrinkTest, LeavesAloneWhatFailsOnlyWhole) {
  const Plan whole = WholePlan();
  ShrinkOptions options;
  options.still_fails = [](const PlanOverrides&) { return false; };
  const Shrunk shrunk = Shrink(whole, PlanOverrides(), options);
  EXPECT_TRUE(shrunk.smallest);
  EXPECT_EQ(shrunk.overrides, PlanOverrides());
}

TEST(ShrinkTest, GoesOnFromWhatIsLeftOutAlready) {
  const Plan whole = WholePlan();
  PlanOverrides start;
  start.only_faults = {2, 5};
  start.operations = 50;
  ShrinkOptions options;
  options.still_fails = [&](const PlanOverrides& overrides) {
    const Plan plan = With(whole, overrides);
    EXPECT_LE(plan.faults.size(), 2u);
    EXPECT_LE(plan.workload.operations, 50);
    return Has(plan, 5);
  };
  const Shrunk shrunk = Shrink(whole, start, options);
  EXPECT_THAT(shrunk.overrides.only_faults, Optional(ElementsAre(5)));
  EXPECT_THAT(shrunk.overrides.operations, Optional(1));
}

TEST(ShrinkTest, StopsAtTheLimitOfTrials) {
  const Plan whole = WholePlan();
  int trials = 0;
  ShrinkOptions options;
  options.trials_max = 9;
  options.still_fails = [&](const PlanOverrides&) { return ++trials % 2 == 0; };
  const Shrunk shrunk = Shrink(whole, PlanOverrides(), options);
  EXPECT_EQ(trials, 9);
  EXPECT_EQ(shrunk.trials, 9);
  EXPECT_FALSE(shrunk.smallest);
}

}  // namespace
}  // namespace ringkv::sim
