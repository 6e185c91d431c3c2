// Gossip inside Control: that it steers who is alive, that heartbeats stay few,
// and that what others wait for still comes at once.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/membership/control_cluster.h"

namespace ringkv {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

void FormCluster(ControlCluster& cluster, int count) {
  for (int i = 0; i < count; ++i) {
    cluster.Add(absl::StrCat("n", i + 1), {"n1:7800"},
                absl::StrCat("r", i % 3 + 1));
  }
  cluster.StartAll();
  ASSERT_TRUE(cluster.RunUntilTrue([&] { return cluster.FullMesh(); }));
  InitCall init;
  init.placement = PlacementStrategy::kHashed;
  init.vnodes = 4;
  ASSERT_TRUE(cluster.Ask(0, init).status.ok());
  ASSERT_TRUE(cluster.RunUntilTrue(
      [&] { return cluster.AllAtEpoch(1) && cluster.AllSeeAll(); }));
}

StatusAnswer StatusOf(ControlCluster& cluster, int i) {
  const AdminAnswer answer = cluster.Ask(i, StatusCall{});
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  return std::get<StatusAnswer>(answer.answer);
}

bool AllLose(ControlCluster& cluster, int victim) {
  for (int i = 0; i < static_cast<int>(cluster.size()); ++i) {
    if (i != victim && cluster.SeesAlive(i, victim)) return false;
  }
  return true;
}

TEST(ControlGossipTest, AFrozenNodeOfManyIsLostByAllLongBeforeItsHeartbeats) {
  ControlCluster cluster(1);
  FormCluster(cluster, 31);
  cluster.RunFor(absl::Seconds(20));
  ASSERT_TRUE(cluster.AllSeeAll());
  // Heartbeats come every 3 s, so that their silence tells after 12 s.
  const Instant before = cluster.now();
  cluster.Freeze(7, true);
  ASSERT_TRUE(cluster.RunUntilTrue([&] { return AllLose(cluster, 7); },
                                   absl::Seconds(10)));
  EXPECT_GE(cluster.now() - before, absl::Seconds(1));
  cluster.RunFor(absl::Minutes(1));
  cluster.Freeze(7, false);
  EXPECT_TRUE(cluster.RunUntilTrue([&] { return cluster.AllSeeAll(); },
                                   absl::Seconds(20)));
  for (const NodeStatus& node : StatusOf(cluster, 0).nodes) {
    EXPECT_EQ(node.flaps > 0, node.name == "n8") << node.name;
  }
}

TEST(ControlGossipTest, NobodyIsLostWhileAllIsWell) {
  ControlCluster cluster(2);
  FormCluster(cluster, 31);
  const Instant end = cluster.now() + absl::Minutes(2);
  while (cluster.now() < end) {
    cluster.RunFor(absl::Milliseconds(250));
    ASSERT_TRUE(cluster.AllSeeAll());
  }
  for (const NodeStatus& node : StatusOf(cluster, 3).nodes) {
    EXPECT_EQ(node.flaps, 0u) << node.name;
  }
}

TEST(ControlGossipTest, HeartbeatsAndGossipDoNotGrowWithTheCluster) {
  for (const int nodes : {6, 16, 31}) {
    ControlCluster cluster(3);
    FormCluster(cluster, nodes);
    cluster.RunFor(absl::Seconds(10));
    std::vector<LivenessStats> before;
    for (int i = 0; i < nodes; ++i) {
      before.push_back(cluster.node(i).control->liveness());
    }
    const int seconds = 60;
    cluster.RunFor(absl::Seconds(seconds));
    for (int i = 0; i < nodes; ++i) {
      const LivenessStats now = cluster.node(i).control->liveness();
      EXPECT_LE(now.heartbeats - before[i].heartbeats,
                (seconds * 2 + 1) * kBeatsPerRound)
          << nodes << " nodes";
      EXPECT_LE(now.gossip.messages - before[i].gossip.messages, seconds * 8)
          << nodes << " nodes";
    }
  }
}

TEST(ControlGossipTest, AdoptedEpochsComeAtOnceHoweverRareHeartbeatsAre) {
  ControlCluster cluster(4);
  FormCluster(cluster, 31);
  cluster.RunFor(absl::Seconds(10));
  Keyspace keyspace;
  keyspace.name = "more";
  const Instant before = cluster.now();
  // Answered once all that live have adopted the epoch, or after two seconds.
  ASSERT_TRUE(cluster.Ask(5, CreateKeyspaceCall{keyspace}).status.ok());
  EXPECT_LE(cluster.now() - before, absl::Seconds(1));
}

TEST(ControlGossipTest, ABrokenLinkOfManyIsFoundAndNobodyElseIsLost) {
  ControlCluster cluster(5);
  FormCluster(cluster, 16);
  cluster.RunFor(absl::Seconds(10));
  cluster.Block(3, 8);
  ASSERT_TRUE(cluster.RunUntilTrue(
      [&] { return !cluster.SeesAlive(3, 8) && !cluster.SeesAlive(8, 3); },
      absl::Seconds(15)));
  cluster.RunFor(absl::Minutes(1));
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      if (i == j || (i == 3 && j == 8) || (i == 8 && j == 3)) continue;
      EXPECT_TRUE(cluster.SeesAlive(i, j)) << i << " of " << j;
    }
  }
  EXPECT_THAT(StatusOf(cluster, 3).warnings,
              Contains(HasSubstr("stopped and cut off look the same")));
  cluster.Heal();
  EXPECT_TRUE(cluster.RunUntilTrue([&] { return cluster.AllSeeAll(); },
                                   absl::Seconds(20)));
}

TEST(ControlGossipTest, AMinorityThatComesBackTakesNobodyDown) {
  ControlCluster cluster(6);
  FormCluster(cluster, 9);
  cluster.Isolate(8);
  cluster.RunFor(absl::Minutes(3));
  for (int j = 0; j < 8; ++j) EXPECT_FALSE(cluster.SeesAlive(8, j));
  cluster.Heal();
  // What it thought of the others does not spread.
  const Instant end = cluster.now() + absl::Seconds(20);
  while (cluster.now() < end) {
    cluster.RunFor(absl::Milliseconds(100));
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < 8; ++j) {
        ASSERT_TRUE(i == j || cluster.SeesAlive(i, j)) << i << " of " << j;
      }
    }
  }
  EXPECT_TRUE(cluster.AllSeeAll());
}

TEST(ControlGossipTest, AStandbyNodeBetweenTwoClustersIntroducesNobody) {
  ControlCluster cluster(7);
  cluster.Add("a1", {"a1:7800"});
  cluster.Add("a2", {"a1:7800"});
  cluster.Add("b1", {"b1:7800"});
  cluster.Add("b2", {"b1:7800"});
  cluster.Add("s", {"a1:7800", "b1:7800"});
  for (int i = 0; i < 4; ++i) cluster.Start(i);
  ASSERT_TRUE(cluster.RunUntilTrue([&] {
    return cluster.PeersAlive(0) == 1 && cluster.PeersAlive(2) == 1;
  }));
  ASSERT_TRUE(cluster.Ask(0, InitCall{}).status.ok());
  ASSERT_TRUE(cluster.Ask(2, InitCall{}).status.ok());
  cluster.Start(4);
  cluster.RunFor(absl::Minutes(3));
  for (int i = 0; i < 4; ++i) {
    // The other one of its cluster, and the standby node.
    EXPECT_LE(cluster.PeersAlive(i), 2u) << i;
  }
}

}  // namespace
}  // namespace ringkv
