// Scenarios of kinds H and I: quorums, consistency, read repair.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/scenarios/cluster.h"

namespace ringkv::sim {
namespace {

using ::testing::ElementsAre;

// B misses writes, C gets a disk from before them, A is gone: whatever is read
// then, it is not "nothing".
void ReadAfterALostDisk(bool with_identity) {
  ScenarioCluster cluster(3);
  cluster.Run(kSecond);
  Node::Backup empty = cluster.node(2).TakeBackup();
  cluster.Run(15 * kSecond);
  cluster.Kill(1);
  for (int k = 0; k < 10; ++k) {
    ASSERT_TRUE(cluster.Put(0, absl::StrCat("k", k), "v").ok());
  }
  cluster.Kill(0);
  if (with_identity) {
    cluster.node(2).ExchangeDisk(std::move(empty), kSecond);
  } else {
    cluster.node(2).ExchangeDisk(std::nullopt, kSecond);
  }
  cluster.Start(1);
  for (int second = 0; second < 15; ++second) {
    cluster.Run(kSecond);
    for (int k = 0; k < 10; ++k) {
      const std::vector<std::string> read =
          cluster.Get(1, absl::StrCat("k", k), 2);
      EXPECT_THAT(read, ElementsAre("UNAVAILABLE"));
    }
  }
  EXPECT_TRUE(cluster.node(2).gone());
  // With A back there is a majority that knows.
  cluster.Start(0);
  ASSERT_TRUE(cluster.AwaitWhole());
  for (int k = 0; k < 10; ++k) {
    EXPECT_THAT(cluster.Get(1, absl::StrCat("k", k), 2), ElementsAre("v"));
  }
}

TEST(ScenarioH, S49_AnEmptiedDiskUnderAKnownIdentityNeverAnswersReads) {
  ReadAfterALostDisk(/*with_identity=*/true);
}

TEST(ScenarioH, S49_AnEmptyDiskAtAKnownAddressIsSomebodyElse) {
  ReadAfterALostDisk(/*with_identity=*/false);
}

TEST(ScenarioH, S49_ARestartedNodeAnswersReadsOnceAMajorityHasCheckedIt) {
  ScenarioCluster cluster(3);
  ASSERT_TRUE(cluster.Put(0, "k", "v", 3).ok());
  cluster.CutOff(0);
  cluster.Restart(0);
  cluster.Run(20 * kSecond);
  EXPECT_THAT(cluster.Get(0, "k", 1), ElementsAre("UNAVAILABLE"));
  // Writes it takes all the same; what it could not read stays beside them.
  EXPECT_TRUE(cluster.Put(0, "k", "w", 1).ok());
  cluster.HealNetwork();
  ASSERT_TRUE(cluster.AwaitWhole());
  EXPECT_THAT(cluster.Get(0, "k", 1), ElementsAre("v", "w"));
}

TEST(ScenarioH, S51_StrictReadsNeverGoBackWhileOneReplicaLags) {
  ScenarioCluster cluster(3);
  cluster.node(2).SetTurnDelay(100 * kMillisecond);
  int newest = 0;
  for (int n = 1; n <= 40; ++n) {
    PutCall put;
    put.key = "k";
    put.value = absl::StrCat(n);
    put.quorum = Quorum::kStrict;
    const bool ok = cluster.Ask(0, put).status.ok();
    if (ok) newest = n;
    for (const int reader : {1, 2}) {
      GetCall get;
      get.key = "k";
      get.quorum = Quorum::kStrict;
      get.r = n % 3 == 0 ? 3 : 2;
      const ClientAnswer answer = cluster.Ask(reader, get);
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      int shown = 0;
      for (const SiblingAnswer& sibling :
           std::get<GetAnswer>(answer.answer).siblings) {
        int value = 0;
        ASSERT_TRUE(absl::SimpleAtoi(sibling.value, &value));
        shown = std::max(shown, value);
      }
      EXPECT_GE(shown, newest);
      newest = std::max(newest, shown);
    }
  }
}

TEST(ScenarioI, S60_ReadsDoNotWaitForARepairOfASlowReplica) {
  ScenarioCluster cluster(3);
  constexpr int kKeys = 20;
  cluster.node(2).SetTurnDelay(2 * kSecond);
  for (int k = 0; k < kKeys; ++k) {
    ASSERT_TRUE(cluster.Put(0, absl::StrCat("k", k), "v").ok());
  }
  for (int k = 0; k < kKeys; ++k) {
    GetCall get;
    get.key = absl::StrCat("k", k);
    get.r = 2;
    const WorldTime began = cluster.now();
    const ClientAnswer answer = cluster.Ask(k % 2, get, 500 * kMillisecond);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    EXPECT_LE(cluster.now() - began, 500 * kMillisecond);
    EXPECT_EQ(std::get<GetAnswer>(answer.answer).siblings.size(), 1u);
  }
}

}  // namespace
}  // namespace ringkv::sim
