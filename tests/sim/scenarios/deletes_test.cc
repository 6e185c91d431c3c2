// Scenarios of kind A: deletes, tombstones, resurrection.

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/scenarios/cluster.h"

namespace ringkv::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ScenarioA, S1_ARecreatedKeyOutlivesTheTombstoneOfAStandIn) {
  ScenarioCluster cluster(4);
  const std::string key = cluster.KeyOn({0, 1, 2}, {3});
  ASSERT_TRUE(cluster.Put(0, key, "old").ok());
  cluster.Kill(2);
  ASSERT_TRUE(cluster.Delete(0, key).ok());
  ASSERT_TRUE(cluster.Await(kSecond, [&] { return cluster.HintsAt(3) > 0; }));
  cluster.Kill(3);
  cluster.Start(2);
  ASSERT_TRUE(
      cluster.Await(20 * kSecond, [&] { return cluster.node(2).serving(); }));
  cluster.Run(5 * kSecond);
  EXPECT_THAT(cluster.Get(1, key, 3), IsEmpty());
  ASSERT_TRUE(cluster.Put(0, key, "new").ok());
  cluster.Start(3);
  ASSERT_TRUE(cluster.AwaitWhole());
  ASSERT_TRUE(cluster.AwaitHintsGone());
  EXPECT_TRUE(cluster.Alike(key));
  for (const int node : {0, 1, 2}) {
    for (const uint32_t r : {1, 2, 3}) {
      EXPECT_THAT(cluster.Get(node, key, r), ElementsAre("new"));
    }
  }
}

TEST(ScenarioA, S3_AReplicaThatMissedDeletesBringsNothingBack) {
  ScenarioCluster cluster(3);
  constexpr int kKeys = 30;
  for (int k = 0; k < kKeys; ++k) {
    ASSERT_TRUE(cluster.Put(k % 3, absl::StrCat("k", k), "v").ok());
  }
  cluster.Kill(2);
  for (int k = 0; k < kKeys; ++k) {
    ASSERT_TRUE(cluster.Delete(k % 2, absl::StrCat("k", k)).ok());
  }
  cluster.Run(120 * kSecond);
  cluster.Start(2);
  ASSERT_TRUE(cluster.AwaitWhole());
  // Before the hints have come, two replicas suffice.
  for (int k = 0; k < kKeys; ++k) {
    EXPECT_THAT(cluster.Get(2, absl::StrCat("k", k), 2), IsEmpty());
  }
  ASSERT_TRUE(cluster.AwaitHintsGone());
  for (int k = 0; k < kKeys; ++k) {
    for (const uint32_t r : {1, 2, 3}) {
      EXPECT_THAT(cluster.Get(2, absl::StrCat("k", k), r), IsEmpty());
    }
    EXPECT_TRUE(cluster.Alike(absl::StrCat("k", k)));
  }
}

// The copies of a node that was away for long and comes back alone with the
// only holder of the hints dead: what it shows at R=2 is what R=2 may show.
TEST(ScenarioA, S3_ADeleteHoldsThoughItsHintsAreLate) {
  ScenarioCluster cluster(3);
  ASSERT_TRUE(cluster.Put(0, "k", "v", 3).ok());
  cluster.Kill(2);
  ASSERT_TRUE(cluster.Delete(0, "k").ok());
  cluster.Run(kSecond);
  cluster.Kill(0);  // and its hint for node 2 with it
  cluster.Start(2);
  ASSERT_TRUE(cluster.Await(20 * kSecond, [&] {
    return cluster.node(2).serving() && cluster.node(2).peers_alive() == 1;
  }));
  cluster.Run(kSecond);
  EXPECT_THAT(cluster.Get(2, "k", 2), IsEmpty());
  ASSERT_TRUE(cluster.Put(2, "k", "again").ok());
  cluster.Start(0);
  ASSERT_TRUE(cluster.AwaitWhole());
  ASSERT_TRUE(cluster.AwaitHintsGone());
  EXPECT_THAT(cluster.Get(1, "k", 3), ElementsAre("again"));
}

TEST(ScenarioA, S8_AWrongClockHidesAnExpiringValueAtMostOnItsNode) {
  ScenarioCluster cluster(3);
  PutCall put;
  put.key = "k";
  put.value = "v";
  put.w = 3;
  put.ttl = absl::Seconds(30);
  ASSERT_TRUE(cluster.Ask(0, put).status.ok());
  constexpr int64_t kHour = 3600ll * 1000 * 1000;
  cluster.node(1).clocks().StepWall(kHour);
  cluster.Run(2 * kSecond);
  cluster.Get(1, "k");  // may show nothing
  for (const int node : {0, 2}) {
    EXPECT_THAT(cluster.Get(node, "k", 3), ElementsAre("v"));
  }
  cluster.node(1).clocks().StepWall(-kHour);
  cluster.Run(2 * kSecond);
  EXPECT_THAT(cluster.Get(1, "k", 3), ElementsAre("v"));
  EXPECT_TRUE(cluster.Alike("k"));
  cluster.Run(40 * kSecond);
  for (int node = 0; node < 3; ++node) {
    EXPECT_THAT(cluster.Get(node, "k", 3), IsEmpty());
    EXPECT_EQ(cluster.Stats(node).read_repairs, 0u);
  }
  EXPECT_TRUE(cluster.Alike("k"));
}

}  // namespace
}  // namespace ringkv::sim
