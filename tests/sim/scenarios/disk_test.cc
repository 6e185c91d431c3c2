// Scenarios of kind J: the store, its disk, damage.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/control/meta.h"
#include "tests/sim/scenarios/cluster.h"

namespace ringkv::sim {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ScenarioJ, S61_FullDisksRefusePutsOnlyAndTakeThemAgainWhenFreed) {
  ScenarioCluster cluster(3);
  ASSERT_TRUE(cluster.Put(0, "a", "v").ok());
  ASSERT_TRUE(cluster.Put(0, "b", "v").ok());
  for (int i = 0; i < 3; ++i) cluster.node(i).SetDiskFull(true, false);
  cluster.Run(2 * kSecond);
  for (int i = 0; i < 3; ++i) {
    const absl::Status put = cluster.Put(i, "c", "v");
    EXPECT_EQ(put.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(put.message()), HasSubstr("nearly full"));
    EXPECT_THAT(cluster.Get(i, "a", 3), ElementsAre("v"));
  }
  EXPECT_TRUE(cluster.Delete(1, "a").ok());
  EXPECT_THAT(cluster.Get(2, "a", 3), IsEmpty());
  cluster.Restart(0);
  ASSERT_TRUE(cluster.AwaitWhole());
  cluster.Run(2 * kSecond);
  EXPECT_EQ(cluster.Put(0, "c", "v").code(),
            absl::StatusCode::kResourceExhausted);
  Keyspace keyspace;
  keyspace.name = "more";
  EXPECT_TRUE(cluster.Admin(1, CreateKeyspaceCall{keyspace}).status.ok());
  for (int i = 0; i < 3; ++i) cluster.node(i).SetDiskFull(false, false);
  cluster.Run(2 * kSecond);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cluster.Put(i, "c", "v").ok());
}

// Not a byte is left on one node: the others go on, hold what it misses, and
// it takes that once there is room.
TEST(ScenarioJ, S61_OneFullNodeIsWorkedAround) {
  ScenarioCluster cluster(4);
  const std::string key = cluster.KeyOn({0, 1, 2}, {3});
  cluster.node(2).SetDiskFull(true, true);
  cluster.Run(2 * kSecond);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(cluster.Put(i % 2, key, absl::StrCat("v", i)).ok());
  }
  // One hint for one key, however often it is written.
  EXPECT_EQ(cluster.Hints(), 2u);  // with its place in the order
  EXPECT_THAT(cluster.Get(0, key, 2), ElementsAre("v19"));
  cluster.node(2).SetDiskFull(false, false);
  ASSERT_TRUE(cluster.AwaitHintsGone());
  EXPECT_TRUE(cluster.Alike(key));
}

// The tail of the log goes with the power; what W=3 of a `sync` keyspace has
// acknowledged is in front of it everywhere.
TEST(ScenarioJ, S63_ATornLogTailTakesNothingAcknowledged) {
  Keyspace safe;
  safe.name = "safe";
  safe.w = 3;
  safe.durability = Durability::kSync;
  ScenarioCluster cluster(3, {safe});
  const auto put = [&safe](int k, const std::string& value) {
    PutCall call;
    call.keyspace = safe.name;
    call.key = absl::StrCat("k", k);
    call.value = value;
    return call;
  };
  std::vector<int> acknowledged(8, -1);
  for (int round = 0; round < 40; ++round) {
    const int k = round % 8;
    const int victim = round % 3;
    if (cluster.Ask((victim + 1) % 3, put(k, absl::StrCat(round)))
            .status.ok()) {
      acknowledged[static_cast<size_t>(k)] = round;
    }
    for (int i = 0; i < 5; ++i) {
      cluster.Begin((victim + i) % 3, put(8 + i, absl::StrCat(round)));
    }
    cluster.Run(round * 100 * kMicrosecond);
    cluster.Kill(victim, /*power=*/true);
    cluster.Start(victim);
    ASSERT_TRUE(cluster.AwaitWhole());
  }
  for (int k = 0; k < 8; ++k) {
    const std::string key = absl::StrCat("k", k);
    for (int i = 0; i < 3; ++i) {
      GetCall get;
      get.keyspace = safe.name;
      get.key = key;
      get.r = 1;
      const ClientAnswer answer = cluster.Ask(i, get);
      ASSERT_TRUE(answer.status.ok());
      const auto& siblings = std::get<GetAnswer>(answer.answer).siblings;
      ASSERT_EQ(siblings.size(), 1u);
      EXPECT_EQ(siblings[0].value,
                absl::StrCat(acknowledged[static_cast<size_t>(k)]));
    }
  }
}

TEST(ScenarioJ, S67_BitRotIsNeitherServedNorSpreadAndHeals) {
  ScenarioCluster cluster(3);
  constexpr int kKeys = 12;
  for (int k = 0; k < kKeys; ++k) {
    ASSERT_TRUE(
        cluster.Put(k % 3, absl::StrCat("k", k), absl::StrCat(k), 3).ok());
  }
  const auto damage = [&] {
    for (const int k : {1, 4, 7}) cluster.Damage(1, absl::StrCat("k", k));
  };
  const auto read_all = [&] {
    for (int k = 0; k < kKeys; ++k) {
      const std::string key = absl::StrCat("k", k);
      EXPECT_THAT(cluster.Get(1, key, 1), ElementsAre(absl::StrCat(k)));
      EXPECT_THAT(cluster.Get(1, key, 2), ElementsAre(absl::StrCat(k)));
    }
    cluster.Run(kSecond);
    for (int k = 0; k < kKeys; ++k) {
      EXPECT_TRUE(cluster.Alike(absl::StrCat("k", k)));
    }
  };
  damage();  // while it runs
  read_all();
  EXPECT_GE(cluster.Stats(1).corrupt_reads, 3u);
  EXPECT_EQ(cluster.Stats(1).copies_rebuilt, 3u);
  cluster.Kill(1);
  damage();  // while it is stopped
  cluster.Start(1);
  ASSERT_TRUE(cluster.AwaitWhole());
  // Writes of a damaged key reach the others, and it afterwards.
  ASSERT_TRUE(cluster.PutBlind(1, "k4", "more").ok());
  cluster.Run(10 * kSecond);
  ASSERT_TRUE(cluster.AwaitHintsGone());
  EXPECT_THAT(cluster.Get(1, "k4", 3), ElementsAre("4", "more"));
  ASSERT_TRUE(cluster.PutWith(0, "k4", "4", cluster.ContextOf(0, "k4")).ok());
  cluster.Run(kSecond);
  read_all();
}

TEST(ScenarioJ, S69_ALostIdentityIsNeverMadeAnewOverData) {
  ScenarioCluster cluster(3);
  ASSERT_TRUE(cluster.Put(0, "k", "v", 3).ok());
  cluster.Kill(2);
  WriteBatch batch;
  batch.Delete(Family::kMeta, std::string(kIdentityKey));
  ASSERT_TRUE(cluster.node(2).engine().Write(batch).ok());
  cluster.Start(2);
  cluster.Run(5 * kSecond);
  EXPECT_FALSE(cluster.node(2).up());
  EXPECT_THAT(cluster.TakeComplaints(),
              ElementsAre(HasSubstr("no node identity")));
  EXPECT_THAT(cluster.Get(0, "k", 2), ElementsAre("v"));
}

}  // namespace
}  // namespace ringkv::sim
