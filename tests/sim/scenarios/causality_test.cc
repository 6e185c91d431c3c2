// Scenarios of kind B: dots, siblings, clocks.

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/scenarios/cluster.h"

namespace ringkv::sim {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// Two writers that take turns, each with the context that it read a write ago
// at most: what they leave beside each other is bounded by that.
TEST(ScenarioB, S9_TwoInterleavedWritersNeverMakeManySiblings) {
  ScenarioCluster cluster(3);
  std::optional<std::string> x, y;
  size_t most = 0;
  for (int round = 0; round < 100; ++round) {
    if (round % 2 == 0) {
      x = cluster.ContextOf(0, "k");
      y = cluster.ContextOf(1, "k");
    }
    ASSERT_TRUE(cluster.PutWith(0, "k", absl::StrCat("x", round), x).ok());
    ASSERT_TRUE(cluster.PutWith(1, "k", absl::StrCat("y", round), y).ok());
    const size_t siblings = cluster.Get(2, "k").size();
    most = std::max(most, siblings);
    EXPECT_LE(siblings, round % 2 == 0 ? 2u : 4u);
  }
  EXPECT_GE(most, 2u);
  EXPECT_LT(cluster.Stored(0, "k")->size(), 400u);
}

// Adds `id` to the set that a key holds; false if that failed or is unknown.
bool Append(ScenarioCluster& cluster, int node, const std::string& space,
            const std::string& key, const std::string& id) {
  GetCall get;
  get.keyspace = space;
  get.key = key;
  const ClientAnswer read = cluster.Ask(node, get);
  if (!read.status.ok()) return false;
  const GetAnswer& answer = std::get<GetAnswer>(read.answer);
  std::set<std::string> ids = {id};
  for (const SiblingAnswer& sibling : answer.siblings) {
    for (absl::string_view one : absl::StrSplit(sibling.value, ',')) {
      ids.emplace(one);
    }
  }
  PutCall put;
  put.keyspace = space;
  put.key = key;
  put.value = absl::StrJoin(ids, ",");
  put.context = answer.context;
  put.blind = !put.context.has_value();
  return cluster.Ask(node, put).status.ok();
}

std::set<std::string> IdsIn(ScenarioCluster& cluster, const std::string& space,
                            const std::string& key) {
  GetCall get;
  get.keyspace = space;
  get.key = key;
  get.r = 3;
  const ClientAnswer read = cluster.Ask(0, get);
  EXPECT_TRUE(read.status.ok()) << read.status;
  std::set<std::string> ids;
  if (!read.status.ok()) return ids;
  for (const SiblingAnswer& sibling :
       std::get<GetAnswer>(read.answer).siblings) {
    for (absl::string_view one : absl::StrSplit(sibling.value, ',')) {
      ids.emplace(one);
    }
  }
  return ids;
}

TEST(ScenarioB, S11_BothSidesOfASplitKeepWhatTheyAcknowledged) {
  Keyspace lww;
  lww.name = "lww";
  lww.mode = VersionMode::kLww;
  ScenarioCluster cluster(5, {lww});
  const std::string key = cluster.KeyOn({0, 3});
  for (const std::string& space : {std::string("default"), lww.name}) {
    Append(cluster, 0, space, key, "first");
  }
  cluster.Split({0, 1});
  cluster.Run(5 * kSecond);
  std::set<std::string> acknowledged;
  int lww_writes = 0;
  for (int i = 0; i < 20; ++i) {
    for (const int node : {0, 3}) {
      const std::string id = absl::StrCat("n", node, "-", i);
      if (Append(cluster, node, "default", key, id)) acknowledged.insert(id);
      lww_writes += Append(cluster, node, "lww", key, id) ? 1 : 0;
    }
  }
  EXPECT_GE(acknowledged.size(), 30u);
  EXPECT_GE(lww_writes, 20);
  cluster.HealNetwork();
  ASSERT_TRUE(cluster.AwaitWhole());
  ASSERT_TRUE(cluster.AwaitHintsGone());
  const std::set<std::string> ids = IdsIn(cluster, "default", key);
  for (const std::string& id : acknowledged) EXPECT_THAT(ids, Contains(id));
  // In lww one side's values are gone, and a counter says so.
  IdsIn(cluster, "lww", key);
  uint64_t dropped = 0;
  for (int i = 0; i < 5; ++i) dropped += cluster.Stats(i).lww_dropped;
  EXPECT_GT(dropped, 0u);
  EXPECT_TRUE(cluster.Alike(key, "lww"));
}

TEST(ScenarioB, S13_APutAfterADeleteIsAlwaysReadable) {
  ScenarioCluster cluster(3);
  cluster.node(2).SetTurnDelay(50 * kMillisecond);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(cluster.Put(i % 3, "k", "first").ok());
    ASSERT_TRUE(cluster.Delete((i + 1) % 3, "k").ok());
    if (i % 5 == 0) {
      EXPECT_TRUE(cluster.ContextOf(0, "k").has_value());
    }
    const std::string value = absl::StrCat("v", i);
    ASSERT_TRUE(cluster.Put((i + 2) % 3, "k", value).ok());
    EXPECT_THAT(cluster.Get(i % 3, "k", 2), Contains(value));
  }
}

TEST(ScenarioB, S14_ARestoredDataDirectoryIsRefusedAndItsDotsLive) {
  ScenarioCluster cluster(3);
  ASSERT_TRUE(cluster.Put(0, "k", "v", 3).ok());
  Node::Backup backup = cluster.node(0).TakeBackup();
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(cluster.Put(0, "k", absl::StrCat("v", i), 3).ok());
    cluster.Run(200 * kMillisecond);
  }
  cluster.node(0).ExchangeDisk(std::move(backup), kSecond);
  ASSERT_TRUE(cluster.AwaitRefused(0));
  ASSERT_TRUE(cluster.Put(1, "k", "z").ok());
  EXPECT_THAT(cluster.Get(2, "k", 2), ElementsAre("z"));
}

// So young a copy that no peer can tell: what it mints must not repeat.
TEST(ScenarioB, S14_ADirectoryFromAMomentAgoUsesNoDotAgain) {
  ScenarioCluster cluster(3);
  ASSERT_TRUE(cluster.Put(0, "k", "v", 3).ok());
  cluster.Run(3 * kSecond);
  // Between two renewals of the clock's bound.
  Node::Backup backup = cluster.node(0).TakeBackup();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(cluster.Put(0, "k", absl::StrCat("v", i), 3).ok());
  }
  cluster.node(0).ExchangeDisk(std::move(backup), 100 * kMillisecond);
  ASSERT_TRUE(cluster.Await(30 * kSecond, [&] {
    return cluster.node(0).gone() ||
           (cluster.node(0).serving() && cluster.node(0).peers_alive() == 2);
  }));
  if (!cluster.node(0).gone()) {
    ASSERT_TRUE(cluster.PutBlind(0, "k", "z").ok());
    EXPECT_THAT(cluster.Get(1, "k", 3), ElementsAre("v4", "z"));
  }
}

}  // namespace
}  // namespace ringkv::sim
