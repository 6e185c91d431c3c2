// Reads and writes while the ring is being changed: two replica sets at once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/coordinator/quorum.h"
#include "tests/server/shard/ring_changes.h"
#include "tests/server/shard/shard_cluster.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

NodeNumber N(uint32_t i) { return NodeNumber{i}; }

// The node that loses, and the one that gains, a key.
struct Move {
  std::string key;
  NodeNumber from{};
  NodeNumber to{};
  std::vector<NodeNumber> both;
};

// The first key of `cluster` that moves from `from` (any, if none is named).
Move FindMove(const ShardCluster& cluster, NodeNumber from = kNoNode) {
  const Ring& ring = cluster.ring();
  for (int i = 0;; ++i) {
    Move move;
    move.key = "key" + std::to_string(i);
    const Token token = TokenOf(move.key);
    const auto here = ring.PreferenceList(cluster.keyspace(), token);
    const auto there = ring.OtherList(cluster.keyspace(), token);
    if (there.empty()) continue;
    for (NodeNumber node : here) {
      if (std::find(there.begin(), there.end(), node) == there.end()) {
        move.from = node;
      } else {
        move.both.push_back(node);
      }
    }
    for (NodeNumber node : there) {
      if (std::find(here.begin(), here.end(), node) == here.end()) {
        move.to = node;
      }
    }
    if (move.both.size() == 2 && (from == kNoNode || move.from == from)) {
      return move;
    }
  }
}

TEST(JointQuorumTest, AWriteGoesToTheReplicasOfBothSets) {
  ShardCluster cluster(3);
  cluster.AdoptAll(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  ASSERT_TRUE(cluster.Ask(move.both[0], Blind(move.key, "v")).status.ok());
  for (NodeNumber node : {move.both[0], move.both[1], move.from, move.to}) {
    EXPECT_TRUE(cluster.Stored(node, move.key).has_value()) << ToInt(node);
  }
}

TEST(JointQuorumTest, AcksOfOneSetAreNotEnough) {
  ShardCluster cluster(3);
  cluster.AdoptAll(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  PutCall put = Blind(move.key, "v");
  put.quorum = Quorum::kStrict;
  put.w = 2;
  // Old set: coordinator and the one that loses. New set: coordinator only.
  cluster.Cut(move.both[1], true);
  cluster.Cut(move.to, true);
  const ClientAnswer answer = cluster.Ask(move.both[0], put, absl::Seconds(2));
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()),
              HasSubstr("of the replicas before the topology change required 2 "
                        "of 3, received 2"));
  EXPECT_THAT(std::string(answer.status.message()),
              HasSubstr("of the replicas after the topology change required 2 "
                        "of 3, received 1"));
}

TEST(JointQuorumTest, ANodeOfBothSetsCountsOnceInEach) {
  ShardCluster cluster(3);
  cluster.AdoptAll(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  // The two that stay are W of either set.
  PutCall put = Blind(move.key, "v");
  put.quorum = Quorum::kStrict;
  cluster.Cut(move.from, true);
  cluster.Cut(move.to, true);
  const ClientAnswer answer = cluster.Ask(move.both[0], put, absl::Seconds(2));
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(std::get<PutAnswer>(answer.answer).replica_acks, 2u);
}

TEST(JointQuorumTest, AStandInOfNeitherSetCountsInTheSetThatItStandsInFor) {
  ShardCluster cluster(4);
  cluster.AdoptAll(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  // Each set has two of its three away; the fourth old node stands in for the
  // one of both sets.
  cluster.SetUp(move.both[1], false);
  cluster.SetUp(move.from, false);
  cluster.SetUp(move.to, false);
  const ClientAnswer answer =
      cluster.Ask(move.both[0], Blind(move.key, "v"), absl::Seconds(2));
  // One fallback is left for three: it stands in for the one that counts in
  // both sets. What the coordinator keeps for the others does not count.
  NodeNumber fallback{};
  for (uint32_t i = 1; i <= 5; ++i) {
    const std::set<NodeNumber> holders{move.both[0], move.both[1], move.from,
                                       move.to};
    if (!holders.contains(N(i))) fallback = N(i);
  }
  ASSERT_TRUE(cluster.Hint(fallback, move.key).has_value());
  const NodeNumber target =
      cluster.Hint(fallback, move.key)->targets.at(0).node;
  EXPECT_EQ(target, move.both[1]);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(cluster.Hint(move.both[0], move.key)->targets.size(), 2u);
}

TEST(JointQuorumTest, AJoiningNodeIsNoStandIn) {
  ShardCluster cluster(3);
  cluster.AdoptAll(WithJoiner(cluster));
  // A key that the joiner does not gain.
  std::string key;
  for (int i = 0; key.empty(); ++i) {
    const std::string tried = "key" + std::to_string(i);
    if (!cluster.ring().IsHolder(cluster.keyspace(), TokenOf(tried), N(4))) {
      key = tried;
    }
  }
  cluster.SetUp(N(2), false);
  ASSERT_TRUE(cluster.Ask(N(1), Blind(key, "v")).status.ok());
  EXPECT_FALSE(cluster.Hint(N(4), key).has_value());
}

TEST(JointQuorumTest, WhatAJoiningNodeKeepsForOldOwnersDoesNotCount) {
  ShardCluster cluster(3);
  cluster.AdoptAll(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  ASSERT_EQ(move.to, N(4));
  for (uint32_t i = 1; i <= 3; ++i) cluster.SetUp(N(i), false);
  PutCall put = Blind(move.key, "v");
  put.w = 1;
  // If its join is aborted, it goes with all that it holds.
  const ClientAnswer answer = cluster.Ask(move.to, put, absl::Seconds(2));
  EXPECT_TRUE(absl::IsUnavailable(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()),
              HasSubstr("of the replicas before the topology change required 1 "
                        "of 3, received 0"));
}

TEST(JointQuorumTest, APutThatANewerRingForbidsMayHaveTakenEffect) {
  ShardCluster cluster(3);
  // Written at one replica, waiting for a second one.
  cluster.Cut(N(2), true);
  cluster.Cut(N(3), true);
  PutCall put = Blind("key", "v");
  put.quorum = Quorum::kStrict;
  const CallId call = cluster.Call(N(1), put, absl::Seconds(5));
  cluster.Settle();
  ASSERT_EQ(cluster.AnswerOf(call), nullptr);
  // R+W > N holds no more.
  cluster.AdoptAll(WithQuorums(cluster, {3, 1, 1}));
  ASSERT_NE(cluster.AnswerOf(call), nullptr);
  const absl::Status status = cluster.AnswerOf(call)->status;
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("it may still take effect"));
}

TEST(JointQuorumTest, HintsDoNotCountAtStrictInEitherSet) {
  ShardCluster cluster(5);
  cluster.AdoptAll(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  PutCall put = Blind(move.key, "v");
  put.quorum = Quorum::kStrict;
  cluster.SetUp(move.both[1], false);
  cluster.SetUp(move.to, false);
  EXPECT_TRUE(absl::IsUnavailable(
      cluster.Ask(move.both[0], put, absl::Seconds(2)).status));
}

TEST(JointQuorumTest, EachSetHasItsOwnNAndW) {
  ShardCluster cluster(5);
  cluster.AdoptAll(WithQuorums(cluster, {5, 3, 3}));
  const Keyspace& keyspace = cluster.keyspace();
  const Token token = TokenOf("k");
  const WriteSets sets = WriteSetsOf(cluster.ring(), keyspace, token);
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0].n, 3u);
  EXPECT_EQ(sets[0].w, 2u);
  EXPECT_EQ(sets[0].holders, 2u);
  EXPECT_FALSE(sets[0].new_owners);
  EXPECT_EQ(sets[1].n, 5u);
  EXPECT_EQ(sets[1].w, 3u);
  EXPECT_EQ(sets[1].holders, 3u);
  EXPECT_TRUE(sets[1].new_owners);

  // Two old replicas are W of 3, and not W of 5.
  PutCall put = Blind("k", "v");
  put.quorum = Quorum::kStrict;
  const auto replicas = cluster.Replicas("k");
  for (uint32_t i = 1; i <= 5; ++i) {
    if (N(i) != replicas[0] && N(i) != replicas[1]) cluster.Cut(N(i), true);
  }
  EXPECT_TRUE(absl::IsUnavailable(
      cluster.Ask(replicas[0], put, absl::Seconds(2)).status));
  cluster.Cut(replicas[2], false);
  EXPECT_TRUE(cluster.Ask(replicas[0], put, absl::Seconds(2)).status.ok());
}

TEST(JointQuorumTest, TheWOfACallHoldsInBothSets) {
  ShardCluster cluster(5);
  const RingSpec start = WithQuorums(cluster, {2, 2, 2});
  cluster.AdoptAll(start);
  const Token token = TokenOf("k");
  const auto sets = [&](uint32_t w, Quorum quorum) {
    return WriteSetsFor(cluster.ring(), cluster.keyspace(), token, w, quorum);
  };
  ASSERT_TRUE(sets(3, Quorum::kSloppy).ok());
  EXPECT_EQ((*sets(3, Quorum::kSloppy))[0].w, 3u);
  EXPECT_EQ((*sets(3, Quorum::kSloppy))[1].w, 2u);
  EXPECT_EQ((*sets(1, Quorum::kSloppy))[0].w, 1u);
  EXPECT_EQ((*sets(1, Quorum::kSloppy))[1].w, 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(sets(4, Quorum::kSloppy).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(sets(1, Quorum::kStrict).status()));
  EXPECT_TRUE(sets(2, Quorum::kStrict).ok());
  // Once reads have switched, N is 2, and W still holds in the old set of 3.
  cluster.AdoptAll(SwitchOperation(start));
  EXPECT_TRUE(absl::IsInvalidArgument(sets(3, Quorum::kSloppy).status()));
  EXPECT_EQ((*sets(2, Quorum::kSloppy))[1].n, 3u);
}

TEST(JointQuorumTest, StrictNeedsTheOwnWOfTheOtherSetToo) {
  ShardCluster cluster(5);
  cluster.AdoptAll(WithQuorums(cluster, {5, 2, 4}));
  PutCall put = Blind("k", "v");
  put.quorum = Quorum::kStrict;
  put.w = 3;
  const ClientAnswer answer = cluster.Ask(cluster.Replicas("k")[0], put);
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status)) << answer.status;
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("at least 4"));
}

TEST(JointQuorumTest, ReadsAskTheReadSetAndFollowTheSwitch) {
  ShardCluster cluster(3);
  const RingSpec start = WithJoiner(cluster);
  cluster.AdoptAll(start);
  const Move move = FindMove(cluster);
  ASSERT_TRUE(cluster.Ask(move.both[0], Blind(move.key, "v")).status.ok());
  std::set<NodeNumber> asked;
  cluster.drop = [&](NodeNumber, const OutgoingMessage& message) {
    if (std::holds_alternative<ReadRequest>(message.message.body)) {
      asked.insert(message.to);
    }
    return false;
  };
  GetCall get = Get(move.key);
  get.r = 3;
  EXPECT_THAT(Values(cluster.Ask(move.both[0], get)),
              UnorderedElementsAre("v"));
  EXPECT_TRUE(asked.contains(move.from));
  EXPECT_FALSE(asked.contains(move.to));
  // A pending node hands on what it is asked to coordinate.
  EXPECT_THAT(Values(cluster.Ask(move.to, Get(move.key))),
              UnorderedElementsAre("v"));
  asked.clear();
  cluster.AdoptAll(SwitchOperation(start));
  EXPECT_THAT(Values(cluster.Ask(move.both[0], get)),
              UnorderedElementsAre("v"));
  EXPECT_TRUE(asked.contains(move.to));
  EXPECT_FALSE(asked.contains(move.from));
}

TEST(JointQuorumTest, AStrictReadWaitsForEnoughHoldersInBothSets) {
  ShardCluster cluster(3);
  cluster.AdoptAll(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  // The one that loses, and one that stays, have the value: enough for the old
  // set alone.
  cluster.Cut(move.both[1], true);
  cluster.Cut(move.to, true);
  PutCall put = Blind(move.key, "v");
  put.w = 1;
  ASSERT_TRUE(cluster.Ask(move.both[0], put).status.ok());
  ASSERT_TRUE(cluster.Stored(move.from, move.key).has_value());
  EXPECT_TRUE(absl::IsUnavailable(
      cluster
          .Ask(move.both[0], Get(move.key, Quorum::kStrict), absl::Seconds(2))
          .status));
  cluster.Cut(move.to, false);
  EXPECT_THAT(Values(cluster.Ask(move.both[0], Get(move.key, Quorum::kStrict))),
              UnorderedElementsAre("v"));
  EXPECT_TRUE(cluster.Stored(move.to, move.key).has_value() ||
              cluster.Stored(move.both[1], move.key).has_value());
}

TEST(JointQuorumTest, AStrictReadOfMoreThanRIsWrittenBackForReadsOfR) {
  ShardCluster cluster(3);
  // A put that reached one replica only.
  const auto replicas = cluster.Replicas("k");
  cluster.Cut(replicas[1], true);
  cluster.Cut(replicas[2], true);
  PutCall put = Blind("k", "v");
  put.w = 1;
  ASSERT_TRUE(cluster.Ask(replicas[0], put).status.ok());
  cluster.Cut(replicas[1], false);
  cluster.Cut(replicas[2], false);
  GetCall all = Get("k", Quorum::kStrict);
  all.r = 3;
  EXPECT_THAT(Values(cluster.Ask(replicas[0], all)), UnorderedElementsAre("v"));
  cluster.Cut(replicas[0], true);
  EXPECT_THAT(Values(cluster.Ask(replicas[1], Get("k", Quorum::kStrict))),
              UnorderedElementsAre("v"));
}

TEST(JointQuorumTest, APutThatMeetsANewerRingBeginsAnewInBothSets) {
  ShardCluster cluster(3);
  cluster.SetRing(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  // All but the coordinator have the newer ring already.
  for (NodeNumber node : {move.both[1], move.from, move.to}) {
    cluster.Adopt(node);
  }
  const ClientAnswer answer =
      cluster.Ask(move.both[0], Blind(move.key, "v"), absl::Seconds(2));
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  for (NodeNumber node : {move.both[0], move.both[1], move.from, move.to}) {
    EXPECT_TRUE(cluster.Stored(node, move.key).has_value()) << ToInt(node);
  }
  const ClientAnswer read = cluster.Ask(move.both[0], Get(move.key));
  EXPECT_THAT(Values(read), UnorderedElementsAre("v"));
}

TEST(JointQuorumTest, AnAckOfTheOlderRingDoesNotCount) {
  ShardCluster cluster(3);
  cluster.SetRing(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  // Acknowledged under the older ring by one that stays; then that one is gone.
  PutCall put = Blind(move.key, "v");
  put.quorum = Quorum::kStrict;
  bool hold = true;
  std::vector<OutgoingMessage> held;
  cluster.drop = [&](NodeNumber from, const OutgoingMessage& message) {
    if (hold && from == move.both[1] &&
        std::holds_alternative<WriteReply>(message.message.body)) {
      held.push_back(message);
      return true;
    }
    return hold && message.to == move.from;
  };
  const CallId call = cluster.Call(move.both[0], put, absl::Seconds(2));
  cluster.Settle();
  ASSERT_EQ(held.size(), 1u);
  cluster.Cut(move.both[1], true);
  cluster.Cut(move.to, true);
  cluster.Adopt(move.both[0]);
  cluster.Adopt(move.from);
  cluster.Settle();
  cluster.Cut(move.both[1], false);
  cluster.Inject(move.both[1], move.both[0], held[0].message);
  cluster.Cut(move.both[1], true);
  cluster.Advance(absl::Seconds(3));
  ASSERT_NE(cluster.AnswerOf(call), nullptr);
  EXPECT_TRUE(absl::IsUnavailable(cluster.AnswerOf(call)->status))
      << cluster.AnswerOf(call)->status;
}

TEST(JointQuorumTest, AHintForAnOwnerThatLeavesGoesToAllWhoHoldTheKey) {
  ShardCluster cluster(5);
  const RingSpec start = WithoutNode(cluster, 5);
  // A key that node 5 holds, put while node 5 is away.
  cluster.SetRing(start);
  const Move move = FindMove(cluster, N(5));
  cluster.SetUp(N(5), false);
  ASSERT_TRUE(cluster.Ask(move.both[0], Blind(move.key, "v")).status.ok());
  cluster.Advance(absl::Seconds(1));
  NodeNumber holder{};
  for (uint32_t i = 1; i <= 4; ++i) {
    if (cluster.Hint(N(i), move.key).has_value()) holder = N(i);
  }
  ASSERT_NE(holder, kNoNode);
  for (uint32_t i = 1; i <= 4; ++i) cluster.Adopt(N(i));
  cluster.Advance(absl::Seconds(5));
  // The owner to be has it, although the target is still away.
  EXPECT_TRUE(cluster.Stored(move.to, move.key).has_value());
  EXPECT_FALSE(cluster.Hint(holder, move.key).has_value());
}

TEST(JointQuorumTest, AHintForANodeThatHasLeftGoesToThePresentReplicas) {
  ShardCluster cluster(5);
  const RingSpec start = WithoutNode(cluster, 5);
  cluster.SetRing(start);
  const Move move = FindMove(cluster, N(5));
  cluster.SetUp(N(5), false);
  ASSERT_TRUE(cluster.Ask(move.both[0], Blind(move.key, "v")).status.ok());
  cluster.Advance(absl::Seconds(1));
  cluster.AdoptAll(FinishOperation(SwitchOperation(start)));
  cluster.Advance(absl::Seconds(5));
  EXPECT_TRUE(cluster.Stored(move.to, move.key).has_value());
  for (uint32_t i = 1; i <= 4; ++i) {
    EXPECT_FALSE(cluster.Hint(N(i), move.key).has_value()) << i;
  }
}

TEST(JointQuorumTest, ANodeThatLeavesTakesNoHintsAfterTheSwitch) {
  // It is waited for only until the hints that it holds are delivered.
  ShardCluster cluster(4);
  const RingSpec start = WithoutNode(cluster, 4);
  cluster.AdoptAll(start);
  std::string key;
  NodeNumber target{};
  for (int i = 0; key.empty(); ++i) {
    // Of its replicas in either set, the leaver is none.
    const std::string tried = "key" + std::to_string(i);
    if (!cluster.ring().IsHolder(cluster.keyspace(), TokenOf(tried), N(4))) {
      key = tried;
      target = cluster.Replicas(tried)[2];
    }
  }
  const NodeNumber coordinator = cluster.Replicas(key)[0];
  cluster.SetUp(target, false);
  ASSERT_TRUE(cluster.Ask(coordinator, Blind(key, "v")).status.ok());
  cluster.Advance(absl::Seconds(1));
  EXPECT_TRUE(cluster.Hint(N(4), key).has_value());
  cluster.SetUp(target, true);
  cluster.Advance(absl::Seconds(30));
  ASSERT_FALSE(cluster.Hint(N(4), key).has_value());

  cluster.AdoptAll(SwitchOperation(start));
  cluster.SetUp(target, false);
  ASSERT_TRUE(cluster.Ask(coordinator, Blind(key, "w")).status.ok());
  cluster.Advance(absl::Seconds(1));
  EXPECT_FALSE(cluster.Hint(N(4), key).has_value());
  // One that was chosen under an older ring is refused.
  WriteRequest late;
  late.operation = 77;
  late.keyspace = cluster.keyspace().id;
  late.key = key;
  late.object = *cluster.Stored(coordinator, key);
  late.hint_for = {target};
  cluster.Inject(coordinator, N(4), {cluster.ring().epoch(), late});
  cluster.Advance(absl::Seconds(1));
  EXPECT_FALSE(cluster.Hint(N(4), key).has_value());
}

TEST(JointQuorumTest, LocateShowsPendingReplicas) {
  ShardCluster cluster(3);
  cluster.AdoptAll(WithJoiner(cluster));
  const Move move = FindMove(cluster);
  LocateCall locate;
  locate.key = move.key;
  const ClientAnswer answer = cluster.Ask(move.both[0], locate);
  ASSERT_TRUE(answer.status.ok());
  std::set<NodeNumber> pending;
  for (const LocateAnswer::Copy& copy :
       std::get<LocateAnswer>(answer.answer).copies) {
    if (copy.pending) pending.insert(copy.node);
  }
  EXPECT_THAT(pending, UnorderedElementsAre(move.to));
}

}  // namespace
}  // namespace ringkv
