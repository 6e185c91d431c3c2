#include "tests/sim/operators.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/simulation.h"

namespace ringkv::sim {
namespace {

TEST(OperatorsTest, ChangeTheRingAmidFaultsAndItStaysOne) {
  Plan plan = PlanOf(12);
  ASSERT_TRUE(plan.operators);
  ASSERT_FALSE(plan.faults.empty());
  plan.workload.operations = 100;
  RunOptions options;
  options.keep_trace = true;
  const RunResult result = RunPlan(plan, options);
  for (const Violation& violation : result.violations) {
    ADD_FAILURE() << violation.check << " " << violation.text;
  }
  EXPECT_GE(std::count_if(result.records.begin(), result.records.end(),
                          [](const Trace::Record& record) {
                            return absl::StrContains(record.text,
                                                     "an operator asks");
                          }),
            2);
}

TEST(OperatorsTest, WorkInEverySixthSeedAndChangeNoOther) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    EXPECT_EQ(PlanOf(seed).operators, seed % 6 == 0) << seed;
  }
}

}  // namespace
}  // namespace ringkv::sim
