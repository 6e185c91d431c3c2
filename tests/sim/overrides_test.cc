#include "tests/sim/overrides.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<int> NumbersOf(const Plan& plan) {
  std::vector<int> numbers;
  for (const Fault& fault : plan.faults) numbers.push_back(fault.number);
  return numbers;
}

// Five nodes, faults 0 to 4 on node 0 to 4 at 0 s to 4 s.
Plan FivePlan() {
  Plan plan;
  plan.nodes.resize(5);
  plan.keyspaces.resize(2);
  plan.keyspaces[1].name = "space1";
  plan.keyspaces[1].n = 3;
  for (int i = 0; i < 5; ++i) {
    Fault fault;
    fault.number = fault.node = i;
    fault.at = i * kSecond;
    fault.mask = 0b11000;
    plan.faults.push_back(fault);
  }
  plan.workload.clients = 8;
  plan.workload.operations = 1000;
  plan.length = 60 * kSecond;
  return plan;
}

TEST(OverridesTest, LeaveOutFaultsByNumber) {
  Plan plan = FivePlan();
  PlanOverrides overrides;
  overrides.only_faults = {1, 3};
  ASSERT_TRUE(ApplyOverrides(overrides, plan).ok());
  EXPECT_THAT(NumbersOf(plan), ElementsAre(1, 3));
  EXPECT_EQ(overrides.ToFlags(), " --only-faults 1,3");
}

TEST(OverridesTest, NoFaultsAtAllIsAChoice) {
  Plan plan = FivePlan();
  PlanOverrides overrides;
  overrides.only_faults.emplace();
  ASSERT_TRUE(ApplyOverrides(overrides, plan).ok());
  EXPECT_THAT(plan.faults, IsEmpty());
  EXPECT_EQ(overrides.ToFlags(), " --only-faults none");
}

TEST(OverridesTest, FewerNodesTakeTheirFaultsAndGroupsAlong) {
  Plan plan = FivePlan();
  PlanOverrides overrides;
  overrides.nodes = 4;
  ASSERT_TRUE(ApplyOverrides(overrides, plan).ok());
  EXPECT_EQ(plan.nodes.size(), 4u);
  EXPECT_THAT(NumbersOf(plan), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(plan.faults[0].mask, 0b01000u);
}

TEST(OverridesTest, NotFewerNodesThanAKeyspaceHasReplicas) {
  Plan plan = FivePlan();
  PlanOverrides overrides;
  overrides.nodes = 2;
  EXPECT_THAT(std::string(ApplyOverrides(overrides, plan).message()),
              HasSubstr("space1"));
}

TEST(OverridesTest, LengthEndsTheFaultsToo) {
  Plan plan = FivePlan();
  PlanOverrides overrides;
  overrides.length = 2 * kSecond + 50 * kMillisecond;
  overrides.clients = 2;
  overrides.operations = 10;
  ASSERT_TRUE(ApplyOverrides(overrides, plan).ok());
  EXPECT_THAT(NumbersOf(plan), ElementsAre(0, 1, 2));
  EXPECT_EQ(plan.workload.clients, 2);
  EXPECT_EQ(plan.workload.operations, 10);
  EXPECT_EQ(overrides.ToFlags(), " --clients 2 --operations 10 --length 2.050");
}

TEST(OverridesTest, RefusesMoreThanTheSeedHas) {
  for (const auto& set : std::vector<std::function<void(PlanOverrides&)>>{
           [](PlanOverrides& o) { o.nodes = 6; },
           [](PlanOverrides& o) { o.clients = 9; },
           [](PlanOverrides& o) { o.operations = 1001; },
           [](PlanOverrides& o) { o.length = 61 * kSecond; },
           [](PlanOverrides& o) { o.only_faults = {5}; }}) {
    Plan plan = FivePlan();
    PlanOverrides overrides;
    set(overrides);
    EXPECT_TRUE(absl::IsInvalidArgument(ApplyOverrides(overrides, plan)))
        << overrides.ToFlags();
  }
}

TEST(OverridesTest, ParsesListsOfFaults) {
  EXPECT_THAT(*ParseFaultNumbers("7,3,3"), ElementsAre(3, 7));
  EXPECT_THAT(*ParseFaultNumbers("none"), IsEmpty());
  for (const char* bad : {"", "3,", "a", "-1", "3;4"}) {
    EXPECT_FALSE(ParseFaultNumbers(bad).ok()) << bad;
  }
}

TEST(OverridesTest, PlansNumberTheirFaultsInOrder) {
  const Plan plan = PlanOf(7);
  for (size_t i = 0; i < plan.faults.size(); ++i) {
    EXPECT_EQ(plan.faults[i].number, static_cast<int>(i));
  }
}

}  // namespace
}  // namespace ringkv::sim
