// Scenarios of kinds A to I in which the ring changes: nodes join and leave,
// die in the middle, and come back when they should not.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/scenarios/cluster.h"

namespace ringkv::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kNoBound = 1ull << 30;

Keyspace Space(const std::string& name, uint32_t n, uint32_t r, uint32_t w) {
  Keyspace keyspace;
  keyspace.name = name;
  keyspace.n = n;
  keyspace.r = r;
  keyspace.w = w;
  return keyspace;
}

std::string Key(int i) { return absl::StrCat("key-", i); }

// A key that is at other nodes under the present ring than `before` says.
std::string Moved(ScenarioCluster& cluster,
                  const std::map<std::string, std::vector<int>>& before,
                  const std::string& space, int lost_by) {
  for (const auto& [key, nodes] : before) {
    const std::vector<int> now = cluster.Replicas(key, space);
    const auto has = [lost_by](const std::vector<int>& list) {
      return std::find(list.begin(), list.end(), lost_by) != list.end();
    };
    if (has(nodes) && !has(now)) return key;
  }
  ADD_FAILURE() << "nothing moved";
  return "";
}

ClientAnswer PutIn(ScenarioCluster& cluster, int at, const std::string& space,
                   const std::string& key, const std::string& value) {
  PutCall put;
  put.keyspace = space;
  put.key = key;
  put.value = value;
  return cluster.Ask(at, put);
}

TEST(ScenarioA, S5_ARangeThatMovesBackBringsNoOldValue) {
  ScenarioCluster cluster(3, {Space("two", 2, 2, 2)}, kNoBound, 1);
  std::map<std::string, std::vector<int>> before;
  for (int k = 0; k < 40; ++k) {
    ASSERT_TRUE(PutIn(cluster, 0, "two", Key(k), "old").status.ok());
    before[Key(k)] = cluster.Replicas(Key(k), "two");
  }
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kJoin, {3}).status.ok());
  ASSERT_TRUE(cluster.AwaitCalm());
  cluster.AwaitDropped();
  const std::string key = Moved(cluster, before, "two", 1);
  EXPECT_FALSE(cluster.Stored(1, key, "two").has_value());

  PutCall remove;
  remove.keyspace = "two";
  remove.key = key;
  remove.is_delete = true;
  ASSERT_TRUE(cluster.Ask(0, remove).status.ok());
  ASSERT_TRUE(cluster.Change(2, TopologyKind::kDecommission, {3}).status.ok());
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_EQ(cluster.Replicas(key, "two"), before[key]);
  cluster.Kill(1, /*power=*/true);
  cluster.Start(1);
  ASSERT_TRUE(cluster.AwaitWhole());
  GetCall get;
  get.keyspace = "two";
  get.key = key;
  for (int at = 0; at < 3; ++at) {
    const ClientAnswer answer = cluster.Ask(at, get);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_THAT(std::get<GetAnswer>(answer.answer).siblings, IsEmpty());
  }
}

TEST(ScenarioB, S9_TwoInterleavedWritersWhileANodeJoins) {
  ScenarioCluster cluster(3, {}, kNoBound, 1);
  for (int round = 0; round < 200; ++round) {
    if (round == 50) {
      ASSERT_TRUE(cluster.Change(1, TopologyKind::kJoin, {3}).status.ok());
    }
    const auto x = cluster.ContextOf(0, "k");
    const auto y = round % 2 == 0 ? cluster.ContextOf(1, "k") : x;
    ASSERT_TRUE(cluster.PutWith(0, "k", absl::StrCat("x", round), x).ok());
    ASSERT_TRUE(cluster.PutWith(1, "k", absl::StrCat("y", round), y).ok());
    EXPECT_LE(cluster.Get(2, "k").size(), 2u);
  }
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_THAT(cluster.ring().spec().members, SizeIs(4));
}

TEST(ScenarioD, S20_ARemovedNodeThatIsStartedServesNothingAndStops) {
  ScenarioCluster cluster(4, {}, kNoBound, 1);
  for (int k = 0; k < 20; ++k) {
    ASSERT_TRUE(cluster.Put(0, Key(k), "old", 3).ok());
  }
  cluster.Kill(3);
  cluster.Run(5 * kSecond);
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kRemoveDead, {3}).status.ok());
  ASSERT_TRUE(
      cluster.Await(60 * kSecond, [&] { return !cluster.ChangeRuns(); }));
  for (int k = 0; k < 20; ++k) ASSERT_TRUE(cluster.Delete(1, Key(k)).ok());
  cluster.Start(3);
  for (int second = 0; second < 10 && cluster.node(3).up(); ++second) {
    EXPECT_THAT(cluster.Get(3, Key(second), 1), ElementsAre("UNAVAILABLE"));
    cluster.Run(kSecond);
  }
  EXPECT_TRUE(cluster.node(3).departed());
  ASSERT_TRUE(cluster.AwaitCalm());
  for (int k = 0; k < 20; ++k)
    EXPECT_THAT(cluster.Get(2, Key(k), 3), IsEmpty());
}

TEST(ScenarioD, S24_ANewMachineAtTheAddressOfADeadOneTakesItsPlace) {
  ScenarioCluster cluster(4, {}, kNoBound, 1);
  for (int k = 0; k < 20; ++k) ASSERT_TRUE(cluster.Put(0, Key(k), "v").ok());
  cluster.node(3).ExchangeDisk(std::nullopt, 2 * kSecond);
  cluster.Run(8 * kSecond);
  ASSERT_TRUE(cluster.node(3).stands_by());
  ASSERT_TRUE(cluster.Change(1, TopologyKind::kReplace, {3}, {3}).status.ok());
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_THAT(cluster.ring().spec().members, SizeIs(4));
  for (int k = 0; k < 20; ++k) {
    EXPECT_THAT(cluster.Get(3, Key(k), 3), ElementsAre("v"));
    EXPECT_TRUE(cluster.Alike(Key(k)));
  }
}

TEST(ScenarioE, S28_ReadsFindEverythingWhileThreeNodesJoinAtOnce) {
  ScenarioCluster cluster(3, {}, kNoBound, 3);
  for (int k = 0; k < 60; ++k) ASSERT_TRUE(cluster.Put(0, Key(k), "v").ok());
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kJoin, {3, 4, 5}).status.ok());
  for (int k = 0; cluster.ChangeRuns(); ++k) {
    EXPECT_THAT(cluster.Get(k % 3, Key(k % 60), 2), ElementsAre("v"));
  }
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_THAT(cluster.ring().spec().members, SizeIs(6));
  for (int k = 0; k < 60; ++k) {
    EXPECT_THAT(cluster.Get(3 + k % 3, Key(k), 2), ElementsAre("v"));
  }
}

TEST(ScenarioE, S32_ADeadJoinerBlocksNoWrites) {
  ScenarioCluster cluster(4, {}, kNoBound, 1);
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kJoin, {4}).status.ok());
  ASSERT_TRUE(cluster.ChangeRuns());
  cluster.Kill(4);
  cluster.Kill(0);
  cluster.Run(5 * kSecond);
  for (int k = 0; k < 40; ++k) {
    EXPECT_TRUE(cluster.Put(1 + k % 3, Key(k), "v").ok());
  }
  // Either it comes back, or it is given up.
  cluster.Start(0);
  cluster.Run(5 * kSecond);
  ASSERT_TRUE(cluster.Admin(2, AbortOperationCall{}).status.ok());
  cluster.Start(4);
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_TRUE(cluster.node(4).departed());
  EXPECT_THAT(cluster.ring().spec().members, SizeIs(4));
  for (int k = 0; k < 40; ++k) {
    EXPECT_THAT(cluster.Get(0, Key(k), 3), ElementsAre("v"));
  }
}

TEST(ScenarioE, S32_AClusterOfOneGoesOnWhenWhoJoinsItBurnsDown) {
  ScenarioCluster cluster(1, {}, kNoBound, 1);
  ASSERT_TRUE(cluster.Put(0, "k", "v").ok());
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kJoin, {1}).status.ok());
  cluster.node(1).ExchangeDisk(std::nullopt, 2 * kSecond);
  cluster.Restart(0);
  cluster.Run(5 * kSecond);
  EXPECT_THAT(cluster.Get(0, "k"), ElementsAre("v"));
  if (cluster.ChangeRuns()) {
    ASSERT_TRUE(cluster.Admin(0, AbortOperationCall{}).status.ok());
  }
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_THAT(cluster.ring().spec().members, SizeIs(1));
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kJoin, {1}).status.ok());
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_TRUE(cluster.Alike("k"));
}

TEST(ScenarioF, S34_OverlappingChangesAreRefusedAndTheFirstGoesOn) {
  ScenarioCluster cluster(5, {}, kNoBound, 2);
  cluster.Kill(4);
  cluster.Run(5 * kSecond);
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kJoin, {5}).status.ok());
  for (const AdminAnswer& answer :
       {cluster.Change(1, TopologyKind::kDecommission, {1}),
        cluster.Change(2, TopologyKind::kReplace, {4}, {6})}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(answer.status)) << answer.status;
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr("join"));
  }
  // Where the command was typed does not matter.
  cluster.Kill(0);
  cluster.Run(10 * kSecond);
  cluster.Start(0);
  // Who joins takes over from the dead one, too, and waits for it.
  EXPECT_TRUE(cluster.ChangeRuns());
  cluster.Start(4);
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_THAT(cluster.ring().spec().members, SizeIs(6));
}

TEST(ScenarioF, S36_ALeaverThatDiesInTheMiddleGoesOnWhenItIsBack) {
  for (const int after : {0, 5, 20, 60, 150, 400, 900}) {
    SCOPED_TRACE(absl::StrCat(after, " ms"));
    ScenarioCluster cluster(4, {}, kNoBound, 1);
    for (int k = 0; k < 60; ++k) ASSERT_TRUE(cluster.Put(0, Key(k), "v").ok());
    ASSERT_TRUE(
        cluster.Change(0, TopologyKind::kDecommission, {3}).status.ok());
    cluster.Run(after * kMillisecond);
    if (!cluster.node(3).up()) break;
    cluster.Kill(3);
    cluster.Run(10 * kSecond);
    if (!cluster.node(3).up() && !cluster.node(3).departed()) cluster.Start(3);
    ASSERT_TRUE(cluster.AwaitCalm());
    EXPECT_THAT(cluster.ring().spec().members, SizeIs(3));
    cluster.Run(10 * kSecond);
    EXPECT_FALSE(cluster.node(3).up());
    for (int k = 0; k < 60; ++k) {
      EXPECT_THAT(cluster.Get(1, Key(k), 3), ElementsAre("v"));
    }
  }
}

TEST(ScenarioF, S38_AReplacedNodeThatComesBackIsToldSoAndStops) {
  ScenarioCluster cluster(3, {}, kNoBound, 1);
  for (int k = 0; k < 20; ++k) ASSERT_TRUE(cluster.Put(0, Key(k), "v").ok());
  cluster.Kill(2);
  cluster.Run(5 * kSecond);
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kReplace, {2}, {3}).status.ok());
  // During the replacement, when it may still be aborted, and after it.
  cluster.Start(2);
  ASSERT_TRUE(
      cluster.Await(60 * kSecond, [&] { return !cluster.ChangeRuns(); }));
  cluster.Run(5 * kSecond);
  if (!cluster.node(2).up() && !cluster.node(2).departed()) cluster.Start(2);
  cluster.Run(10 * kSecond);
  EXPECT_FALSE(cluster.node(2).up());
  ASSERT_TRUE(cluster.AwaitCalm());
  EXPECT_THAT(cluster.ring().spec().members, SizeIs(3));
  for (int k = 0; k < 20; ++k) {
    EXPECT_THAT(cluster.Get(3, Key(k), 3), ElementsAre("v"));
    EXPECT_TRUE(cluster.Alike(Key(k)));
  }
}

TEST(ScenarioH, S47_NoAcknowledgedKeyIsLostAtAnyWWhileNodesComeAndGo) {
  for (const uint32_t n : {2u, 3u}) {
    for (uint32_t w = 1; w <= n; ++w) {
      SCOPED_TRACE(absl::StrCat("N=", n, " W=", w));
      ScenarioCluster cluster(4, {Space("s", n, n - w + 1, w)}, kNoBound, 1);
      std::vector<std::string> written;
      cluster.node(2).SetTurnDelay(200 * kMillisecond);
      const auto change = [&](TopologyKind kind, int node) {
        ASSERT_TRUE(cluster.Change(0, kind, {node}).status.ok());
        for (int i = 0; cluster.ChangeRuns() && i < 200; ++i) {
          const std::string key = Key(static_cast<int>(written.size()));
          if (PutIn(cluster, i % 2, "s", key, key).status.ok()) {
            written.push_back(key);
          } else {
            ADD_FAILURE() << "not written: " << key;
          }
        }
        ASSERT_TRUE(cluster.AwaitCalm());
        for (const std::string& key : written) {
          GetCall get;
          get.keyspace = "s";
          get.key = key;
          const ClientAnswer answer = cluster.Ask(1, get, 5 * kSecond);
          ASSERT_TRUE(answer.status.ok()) << answer.status;
          EXPECT_THAT(std::get<GetAnswer>(answer.answer).siblings, SizeIs(1))
              << key;
        }
      };
      change(TopologyKind::kJoin, 4);
      change(TopologyKind::kDecommission, 3);
      EXPECT_THAT(written, SizeIs(testing::Gt(10)));
    }
  }
}

TEST(ScenarioI, S54_WhatANodeIsAboutToHoldAgainIsNotCleanedUp) {
  // The clean-up after the join comes before, amid and after the decommission.
  for (const int after : {0, 1000, 3000, 4500, 4900, 5000, 5100, 6000}) {
    SCOPED_TRACE(absl::StrCat(after, " ms"));
    ScenarioCluster cluster(3, {}, kNoBound, 1);
    for (int k = 0; k < 60; ++k) ASSERT_TRUE(cluster.Put(0, Key(k), "v").ok());
    ASSERT_TRUE(cluster.Change(0, TopologyKind::kJoin, {3}).status.ok());
    ASSERT_TRUE(cluster.AwaitCalm());
    cluster.Run(after * kMillisecond);
    ASSERT_TRUE(
        cluster.Change(1, TopologyKind::kDecommission, {3}).status.ok());
    ASSERT_TRUE(cluster.AwaitCalm());
    cluster.AwaitDropped();
    for (int k = 0; k < 60; ++k) EXPECT_TRUE(cluster.Alike(Key(k))) << k;
  }
}

TEST(ScenarioI, S60_ReadsDoNotWaitForASlowReplicaOrAJoiningNode) {
  ScenarioCluster cluster(4, {}, kNoBound, 1);
  // It lacks all that hints have not brought it yet.
  cluster.Kill(2);
  cluster.Run(5 * kSecond);
  for (int k = 0; k < 20; ++k) ASSERT_TRUE(cluster.Put(0, Key(k), "v").ok());
  cluster.Start(2);
  ASSERT_TRUE(cluster.Change(0, TopologyKind::kJoin, {4}).status.ok());
  cluster.node(2).SetTurnDelay(2 * kSecond);
  cluster.node(4).SetTurnDelay(2 * kSecond);
  for (int k = 0; k < 20; ++k) {
    GetCall get;
    get.key = Key(k);
    get.r = 2;
    const ClientAnswer answer = cluster.Ask(k % 2, get, 500 * kMillisecond);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_THAT(std::get<GetAnswer>(answer.answer).siblings, SizeIs(1));
  }
  EXPECT_TRUE(cluster.ChangeRuns());
}

}  // namespace
}  // namespace ringkv::sim
