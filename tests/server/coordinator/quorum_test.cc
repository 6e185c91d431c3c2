#include "server/coordinator/quorum.h"

#include <gtest/gtest.h>

namespace ringkv {
namespace {

NodeNumber N(uint32_t i) { return NodeNumber{i}; }

TEST(CountAcksTest, CountsEachReplicaOnce) {
  EXPECT_EQ(CountAcks({}), 0u);
  EXPECT_EQ(CountAcks({{N(1), {N(1)}}, {N(2), {N(2)}}}), 2u);
}

TEST(CountAcksTest, CountsReplicaAndItsStandInOnce) {
  EXPECT_EQ(CountAcks({{N(1), {N(1)}}, {N(4), {N(1)}}}), 1u);
}

TEST(CountAcksTest, CountsANodeOnceWhateverItHolds) {
  EXPECT_EQ(CountAcks({{N(4), {N(1), N(2), N(3)}}}), 1u);
  EXPECT_EQ(CountAcks({{N(1), {N(1)}}, {N(1), {N(2), N(3)}}}), 1u);
}

TEST(CountAcksTest, FindsTheLargestMatching) {
  // 4 must stand for 2, so that 5 can stand for 1.
  EXPECT_EQ(CountAcks({{N(4), {N(1), N(2)}}, {N(5), {N(1)}}}), 2u);
}

TEST(CountReadAnswersTest, NothingFromAStandInIsNoAnswerByItself) {
  EXPECT_EQ(CountReadAnswers({{false, false}, {false, false}}), 0u);
  EXPECT_EQ(CountReadAnswers({{true, false}, {false, false}}), 2u);
  EXPECT_EQ(CountReadAnswers({{false, true}, {false, false}}), 2u);
}

}  // namespace
}  // namespace ringkv
