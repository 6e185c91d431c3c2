#include "tests/sim/timeline.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Recorded PutOf(OperationId id, int key) {
  Recorded recorded;
  recorded.key = key;
  recorded.operation.id = id;
  recorded.operation.kind = OperationKind::kPut;
  return recorded;
}

Plan OnePlan() {
  Plan plan;
  plan.nodes.resize(1);
  plan.keyspaces.resize(1);
  plan.keyspaces[0].name = "default";
  return plan;
}

TEST(JsonStringTest, IsSafeInsideAScript) {
  EXPECT_EQ(JsonString("a\"b\\c\n</script>\xff"),
            "\"a\\u0022b\\u005cc\\u000a\\u003c/script>\\u00ff\"");
}

TEST(TimelineTest, ShowsTheKeyOfTheFirstViolation) {
  RunResult result;
  result.story.operations = {PutOf(0, 4), PutOf(1, 7), PutOf(2, 4)};
  EXPECT_EQ(KeyToShow(OnePlan(), result), "default/key-4");  // used most
  result.violations.push_back({"P4", "write #1 at n0 failed", "", 0, {}});
  EXPECT_EQ(KeyToShow(OnePlan(), result), "default/key-7");
  result.violations[0].key = "default/key-9";
  EXPECT_EQ(KeyToShow(OnePlan(), result), "default/key-9");
}

TEST(TimelineTest, PageHoldsEverythingAndNothingFromElsewhere) {
  Plan plan = PlanOf(1);
  plan.workload.operations = 60;
  plan.length = 2 * kSecond;
  RunOptions options;
  options.keep_trace = true;
  const RunResult result = RunPlan(plan, options);
  const std::string key = KeyToShow(plan, result);
  const std::string page = TimelinePage(plan, result, key, "kvsim --seed 1");
  EXPECT_THAT(page, HasSubstr(key));
  EXPECT_THAT(page, HasSubstr("kvsim --seed 1"));
  EXPECT_THAT(page, HasSubstr("mine: 1"));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("href=")));
  EXPECT_THAT(page, Not(HasSubstr("@import")));
}

TEST(TimelineTest, KeepingTheTraceChangesNothing) {
  Plan plan = PlanOf(1);
  plan.workload.operations = 60;
  plan.length = 2 * kSecond;
  RunOptions kept;
  kept.keep_trace = true;
  const RunResult with = RunPlan(plan, kept);
  EXPECT_EQ(with.hash, RunPlan(plan, RunOptions()).hash);
  EXPECT_TRUE(std::any_of(with.records.begin(), with.records.end(),
                          [](const Trace::Record& record) {
                            return record.kind == Trace::Kind::kMessage &&
                                   !record.key.empty() && record.arrived >= 0;
                          }));
}

}  // namespace
}  // namespace ringkv::sim
