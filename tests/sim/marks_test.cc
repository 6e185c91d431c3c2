#include "tests/sim/marks.h"

#include "base/mark.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::sim {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const std::vector<std::string> kAll = {"a", "b", "c", "d"};

TEST(MarksTest, TellsWhatWasMissedAndWhatIsKnownToBe) {
  const MarkReport report = CompareMarks(kAll, {"a", "d"}, {"b", "d"});
  EXPECT_THAT(report.missed, ElementsAre("c"));
  EXPECT_THAT(report.excused, ElementsAre("b"));
  EXPECT_THAT(report.outdated, ElementsAre("d"));
}

TEST(MarksTest, AnExcuseHasAReasonAndAMark) {
  EXPECT_THAT(*ParseUnreached("# all\n\na  # no fault\nc # dead\n", kAll),
              UnorderedElementsAre("a", "c"));
  EXPECT_FALSE(ParseUnreached("a\n", kAll).ok());
  EXPECT_FALSE(ParseUnreached("a #  \n", kAll).ok());
  EXPECT_FALSE(ParseUnreached("z  # gone\n", kAll).ok());
}

TEST(MarksTest, MarksAreKnownBeforeTheyAreReached) {
  ResetMarks();
  const auto reach = [](bool really) {
    if (really) RINGKV_MARK("marks-test-reached");
  };
  EXPECT_THAT(AllMarks(), Contains("marks-test-reached"));
  reach(false);
  EXPECT_THAT(MarksReached(), Not(Contains("marks-test-reached")));
  reach(true);
  EXPECT_THAT(MarksReached(), ElementsAre("marks-test-reached"));
  ResetMarks();
}

}  // namespace
}  // namespace ringkv::sim
