// Scenarios of kind C: hinted handoff.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/scenarios/cluster.h"

namespace ringkv::sim {
namespace {

using ::testing::ElementsAre;

TEST(ScenarioC, S15_HintsStopAtTheirBoundAndWritesGoOn) {
  constexpr uint64_t kBound = 64 << 10;
  ScenarioCluster cluster(3, {}, kBound);
  cluster.Kill(2);
  const std::string value(4000, 'v');
  constexpr int kKeys = 60;
  for (int k = 0; k < kKeys; ++k) {
    ASSERT_TRUE(cluster.Put(k % 2, absl::StrCat("k", k), value).ok());
  }
  cluster.Run(5 * kSecond);
  uint64_t refused = 0;
  for (const int holder : {0, 1}) {
    for (const auto& [target, backlog] : cluster.Stats(holder).hints) {
      EXPECT_LE(backlog.bytes, kBound);
    }
    refused += cluster.Stats(holder).hints_refused;
  }
  EXPECT_GT(refused, 0u);
  cluster.Start(2);
  ASSERT_TRUE(cluster.AwaitWhole());
  ASSERT_TRUE(cluster.AwaitHintsGone());
  // The gap is left to reads, until anti-entropy is there.
  for (int k = 0; k < kKeys; ++k) {
    EXPECT_THAT(cluster.Get(2, absl::StrCat("k", k), 3), ElementsAre(value));
  }
  cluster.Run(kSecond);
  for (int k = 0; k < kKeys; ++k) {
    EXPECT_TRUE(cluster.Alike(absl::StrCat("k", k)));
  }
}

TEST(ScenarioC, S17_AReturningNodeWithASlowDiskIsNotDrowned) {
  ScenarioCluster cluster(5);
  cluster.Kill(4);
  for (int k = 0; k < 400; ++k) {
    ASSERT_TRUE(cluster.Put(k % 4, absl::StrCat("k", k), "v").ok());
  }
  cluster.node(4).SetDiskSlowness(400);
  cluster.Start(4);
  ASSERT_TRUE(cluster.Await(30 * kSecond, [&] {
    for (int i = 0; i < 5; ++i) {
      if (cluster.node(i).peers_alive() != 4) return false;
    }
    return cluster.node(4).serving();
  }));
  size_t before = cluster.Hints();
  EXPECT_GT(before, 0u);
  for (int round = 0; round < 60 && cluster.Hints() > 0; ++round) {
    cluster.Run(kSecond);
    const size_t now = cluster.Hints();
    EXPECT_LE(now, before);
    before = now;
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(cluster.node(i).peers_alive(), 4u) << "at n" << i;
    }
    EXPECT_THAT(cluster.Get(4, absl::StrCat("k", round)), ElementsAre("v"));
  }
  EXPECT_EQ(cluster.Hints(), 0u);
}

// Neighbours of S15 and S17.
TEST(ScenarioC, S15_HintsSurviveTheirHolderAndFindTheirTarget) {
  ScenarioCluster cluster(4);
  const std::string key = cluster.KeyOn({0, 1, 2}, {3});
  cluster.Kill(2);
  ASSERT_TRUE(cluster.Put(0, key, "v").ok());
  ASSERT_TRUE(cluster.Await(kSecond, [&] { return cluster.HintsAt(3) > 0; }));
  cluster.Kill(3, /*power=*/true);
  cluster.Start(3);
  cluster.Start(2);
  ASSERT_TRUE(cluster.AwaitWhole());
  ASSERT_TRUE(cluster.AwaitHintsGone());
  EXPECT_TRUE(cluster.Alike(key));
}

}  // namespace
}  // namespace ringkv::sim
