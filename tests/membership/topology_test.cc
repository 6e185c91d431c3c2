#include <algorithm>
#include <bit>
#include <bitset>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/epochs/ring_change.h"
#include "membership/epochs/voters.h"
#include "membership/ring/placement.h"
#include "membership/ring/ring_codec.h"
#include "membership/topology/operation.h"
#include "membership/topology/recovery.h"
#include "membership/topology/segments.h"

namespace ringkv {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Member NewMember(uint64_t id) {
  Member member;
  member.id = NodeId{id, id * 7919};
  member.name = absl::StrCat("n", id);
  member.client_address = absl::StrCat("127.0.0.1:", 7000 + id);
  member.peer_address = absl::StrCat("127.0.0.1:", 8000 + id);
  member.location = {"z", absl::StrCat("r", id % 3), absl::StrCat("h", id)};
  return member;
}

RingSpec FirstSpec(int nodes, PlacementStrategy placement,
                   uint32_t vnodes = 0) {
  std::vector<Member> members;
  for (int i = 1; i <= nodes; ++i) {
    members.push_back(NewMember(static_cast<uint64_t>(i)));
    members.back().number = NodeNumber{static_cast<uint32_t>(i)};
  }
  if (vnodes == 0) {
    vnodes = placement == PlacementStrategy::kBalanced ? 256 : 8;
  }
  absl::StatusOr<RingSpec> spec =
      FirstRing(ClusterId{1, 2}, placement, vnodes, std::move(members));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

std::shared_ptr<const Ring> Made(const RingSpec& spec) {
  absl::StatusOr<std::shared_ptr<const Ring>> ring = Ring::Make(spec);
  EXPECT_TRUE(ring.ok()) << ring.status();
  return *ring;
}

TopologyRequest Join(uint64_t id) {
  TopologyRequest request;
  request.kind = TopologyKind::kJoin;
  request.joiners.push_back(NewMember(id));
  return request;
}

TopologyRequest About(TopologyKind kind, uint32_t node) {
  TopologyRequest request;
  request.kind = kind;
  request.nodes.push_back(NodeNumber{node});
  return request;
}

// What every step of an operation must keep.
void CheckStep(const RingSpec& spec) {
  const std::shared_ptr<const Ring> ring = Made(spec);
  EXPECT_EQ(ring->spec(), spec);
  const absl::StatusOr<RingSpec> decoded = DecodeRing(EncodeRing(spec));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, spec);
  const Keyspace& keyspace = spec.keyspaces[0];
  Token next = 0;
  bool ended = false;
  std::map<NodeNumber, std::vector<Transfer>> transfers;
  for (const Member& member : spec.members) {
    transfers[member.number] = TransfersOf(*ring, member.number);
  }
  ForEachRange(
      *ring, keyspace,
      [&](const TokenRange& range, const ReplicaSet& before,
          const ReplicaSet& after) {
        EXPECT_FALSE(ended);
        EXPECT_EQ(range.first, next);
        EXPECT_LE(range.first, range.last);
        next = range.last + 1;
        ended = next == 0;
        const bool switched = spec.operation.has_value() &&
                              spec.operation->phase == TopologyPhase::kSwitch;
        const ReplicaSet& read = switched ? after : before;
        for (const Token token : {range.first, range.last}) {
          const auto list = ring->PreferenceList(keyspace, token);
          EXPECT_TRUE(std::equal(list.begin(), list.end(), read.nodes.begin(),
                                 read.nodes.end()));
          for (const ReplicaSet* set : {&before, &after}) {
            for (const NodeNumber node : set->nodes) {
              EXPECT_TRUE(ring->IsHolder(keyspace, token, node));
            }
          }
        }
        // Whoever gains a range receives it, from nodes that held it and live.
        for (const NodeNumber node : after.nodes) {
          const bool gains = std::find(before.nodes.begin(), before.nodes.end(),
                                       node) == before.nodes.end();
          const auto& list = transfers[node];
          const auto covering =
              std::find_if(list.begin(), list.end(), [&](const Transfer& t) {
                return t.keyspace == keyspace.id &&
                       t.range.first <= range.first &&
                       range.last <= t.range.last;
              });
          if (gains) {
            ASSERT_NE(covering, list.end());
            EXPECT_TRUE(covering->gains);
          }
          if (covering == list.end()) continue;
          EXPECT_GE(covering->sources.size(), covering->sources_needed);
          for (const NodeNumber source : covering->sources) {
            EXPECT_NE(
                std::find(before.nodes.begin(), before.nodes.end(), source),
                before.nodes.end());
            EXPECT_FALSE(IsTakenForDead(*ring, source));
          }
        }
      });
  EXPECT_TRUE(ended);
  EXPECT_TRUE(BarrierReached(*ring, [](NodeNumber) { return true; }));
  EXPECT_FALSE(BarrierReached(*ring, [&](NodeNumber node) { return false; }));
}

RingSpec RunToTheEnd(const TopologyRequest& request, const RingSpec& spec) {
  absl::StatusOr<RingSpec> started = StartOperation(request, spec);
  EXPECT_TRUE(started.ok()) << started.status();
  if (!started.ok()) return spec;
  CheckStep(*started);
  const RingSpec switched = SwitchOperation(*started);
  CheckStep(switched);
  const RingSpec finished = FinishOperation(switched);
  EXPECT_EQ(finished.epoch, spec.epoch + 3);
  EXPECT_FALSE(finished.operation.has_value());
  CheckStep(finished);
  // An abort before the switch is as if nothing had been.
  absl::StatusOr<RingSpec> aborted = AbortOperation(*started);
  EXPECT_TRUE(aborted.ok()) << aborted.status();
  EXPECT_EQ(aborted->members, spec.members);
  EXPECT_EQ(aborted->owners, spec.owners);
  EXPECT_EQ(aborted->tokens, spec.tokens);
  EXPECT_FALSE(AbortOperation(switched).ok());
  return finished;
}

TEST(TopologyTest, AnyOrderOfOperationsKeepsEveryStepWhole) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    RingSpec spec = FirstSpec(4 + static_cast<int>(random.Uniform(3)),
                              random.Chance(0.5) ? PlacementStrategy::kBalanced
                                                 : PlacementStrategy::kHashed);
    uint64_t next_id = 100;
    for (int step = 0; step < 6; ++step) {
      const uint32_t somebody =
          ToInt(spec.members[random.Uniform(spec.members.size())].number);
      TopologyRequest request;
      switch (spec.members.size() <= 4 ? 0 : random.Uniform(6)) {
        case 0:
          request = Join(next_id++);
          if (random.Chance(0.5)) {
            request.joiners.push_back(NewMember(next_id++));
          }
          break;
        case 1:
          request = About(TopologyKind::kDecommission, somebody);
          break;
        case 2:
          request = About(TopologyKind::kRemoveDead, somebody);
          break;
        case 3:
          request = About(TopologyKind::kReplace, somebody);
          request.joiners.push_back(NewMember(next_id++));
          break;
        case 4:
          request = About(TopologyKind::kWeight, somebody);
          request.weight = 0.5 + random.NextDouble() * 2;
          break;
        default:
          request.kind = TopologyKind::kKeyspace;
          request.keyspace = KeyspaceId{1};
          request.quorums.n = spec.keyspaces[0].n == 3 ? 2 : 3;
          request.quorums.r = request.quorums.w = 2;
      }
      request.allow_fewer_replicas = true;
      SCOPED_TRACE(absl::StrCat("seed ", seed, " step ", step, " ",
                                NameOf(request.kind)));
      spec = RunToTheEnd(request, spec);
    }
  }
}

TEST(TopologyTest, OneLostReplicaIsStreamedFromItsPartnerOnly) {
  const RingSpec spec = FirstSpec(4, PlacementStrategy::kBalanced);
  absl::StatusOr<RingSpec> started = StartOperation(Join(5), spec);
  ASSERT_TRUE(started.ok()) << started.status();
  const std::shared_ptr<const Ring> ring = Made(*started);
  EXPECT_TRUE(ring->IsJoining(NodeNumber{5}));
  EXPECT_EQ(VotersOf(*started).size(), 3u);
  const std::vector<Transfer> transfers = TransfersOf(*ring, NodeNumber{5});
  ASSERT_FALSE(transfers.empty());
  for (const Transfer& transfer : transfers) {
    EXPECT_EQ(transfer.sources.size(), 1u);
  }
}

TEST(TopologyTest, ADeadPartnerIsMadeUpForByAllOthers) {
  const RingSpec spec = FirstSpec(5, PlacementStrategy::kBalanced);
  absl::StatusOr<RingSpec> started =
      StartOperation(About(TopologyKind::kRemoveDead, 2), spec);
  ASSERT_TRUE(started.ok()) << started.status();
  const std::shared_ptr<const Ring> ring = Made(*started);
  size_t from_others = 0;
  for (uint32_t node : {1, 3, 4, 5}) {
    for (const Transfer& transfer : TransfersOf(*ring, NodeNumber{node})) {
      for (NodeNumber source : transfer.sources) {
        EXPECT_NE(source, NodeNumber{2});
      }
      if (transfer.sources.size() == 2) {
        EXPECT_EQ(transfer.sources_needed, 2u);
        ++from_others;
      }
    }
  }
  EXPECT_GT(from_others, 0u);
  // The dead one counts as having acknowledged; a quorum of the others must
  // have as well.
  EXPECT_TRUE(BarrierReached(
      *ring, [](NodeNumber node) { return node != NodeNumber{2}; }));
}

TEST(TopologyTest, TooFewLivingReplicasAreRefusedUnlessTheLossIsAccepted) {
  const RingSpec spec = FirstSpec(6, PlacementStrategy::kBalanced);
  TopologyRequest request;
  request.kind = TopologyKind::kRemoveDead;
  request.nodes = {NodeNumber{2}, NodeNumber{3}};
  const absl::Status refused = StartOperation(request, spec).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("keyspace \"default\" (N=3, W=2)"),
                    HasSubstr("2 replicas"), HasSubstr("without n2, n3"),
                    HasSubstr("as few as 1"), HasSubstr("Start one of them"),
                    HasSubstr("--accept-data-loss")));
  request.kind = TopologyKind::kReplace;
  request.joiners = {NewMember(8), NewMember(9)};
  EXPECT_TRUE(
      absl::IsFailedPrecondition(StartOperation(request, spec).status()));
  request.accept_data_loss = true;
  RunToTheEnd(request, spec);
  request.kind = TopologyKind::kRemoveDead;
  request.joiners.clear();
  const absl::StatusOr<RingSpec> started = StartOperation(request, spec);
  ASSERT_TRUE(started.ok()) << started.status();
  const std::vector<Shortage> shortages = ShortagesOf(*Made(*started));
  ASSERT_EQ(shortages.size(), 1u);
  EXPECT_EQ(shortages[0].needed, 2u);
  EXPECT_EQ(shortages[0].living, 1u);
  EXPECT_GT(shortages[0].share, 0.01);
  EXPECT_EQ(shortages[0].share_gone, 0);
  RunToTheEnd(request, spec);
}

TEST(TopologyTest, TwoDeadNodesThatShareNoRangeMayGoAtOnce) {
  // Neighbours stand in different racks, so nodes of one rack share nothing.
  const RingSpec spec = FirstSpec(9, PlacementStrategy::kBalanced);
  TopologyRequest request;
  request.kind = TopologyKind::kRemoveDead;
  request.nodes = {NodeNumber{3}, NodeNumber{6}};
  EXPECT_TRUE(StartOperation(request, spec).ok());
}

TEST(TopologyTest, AWriteOfOneReplicaMayHaveBeenOnTheDeadNode) {
  RingSpec spec = FirstSpec(5, PlacementStrategy::kBalanced);
  spec.keyspaces[0].w = 1;
  spec.keyspaces[0].r = 3;
  const absl::Status refused =
      StartOperation(About(TopologyKind::kRemoveDead, 2), spec).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("W=1"), HasSubstr("3 replicas"),
                    HasSubstr("as few as 2"), HasSubstr("Start it again")));
  // With W=3 one living replica has everything.
  spec.keyspaces[0].w = 3;
  TopologyRequest two;
  two.kind = TopologyKind::kRemoveDead;
  two.nodes = {NodeNumber{2}, NodeNumber{4}};
  two.allow_fewer_replicas = true;
  EXPECT_TRUE(StartOperation(two, spec).ok());
}

TEST(TopologyTest, WhatNobodyHoldsAnyMoreIsWipedAndReceivedFromNobody) {
  const RingSpec spec = FirstSpec(6, PlacementStrategy::kBalanced);
  TopologyRequest request;
  request.kind = TopologyKind::kRemoveDead;
  request.nodes = {NodeNumber{1}, NodeNumber{2}, NodeNumber{3}};
  request.accept_data_loss = true;
  const absl::StatusOr<RingSpec> started = StartOperation(request, spec);
  ASSERT_TRUE(started.ok()) << started.status();
  const std::shared_ptr<const Ring> ring = Made(*started);
  EXPECT_GT(ShortagesOf(*ring)[0].share_gone, 0);
  size_t from_nobody = 0;
  for (const Transfer& transfer : TransfersOf(*ring, NodeNumber{4})) {
    if (!transfer.sources.empty()) continue;
    EXPECT_TRUE(transfer.gains);
    EXPECT_EQ(transfer.sources_needed, 0u);
    ++from_nobody;
  }
  EXPECT_GT(from_nobody, 0u);
}

TEST(TopologyTest, WhoIsTakenForDeadHasNoVote) {
  const RingSpec spec = FirstSpec(5, PlacementStrategy::kBalanced);
  EXPECT_EQ(VotersOf(spec).size(), 5u);
  const absl::StatusOr<RingSpec> started =
      StartOperation(About(TopologyKind::kRemoveDead, 2), spec);
  ASSERT_TRUE(started.ok()) << started.status();
  // Of the four others three vote.
  EXPECT_THAT(VotersOf(*started),
              ElementsAre(NodeNumber{1}, NodeNumber{3}, NodeNumber{4}));
  EXPECT_THAT(VotersOf(SwitchOperation(*started)),
              ElementsAre(NodeNumber{1}, NodeNumber{3}, NodeNumber{4}));
}

// --- Recovery ---

RecoveryRequest Left(std::vector<uint32_t> survivors, uint64_t lineage = 77) {
  RecoveryRequest request;
  for (uint32_t node : survivors) {
    request.survivors.push_back(NodeNumber{node});
  }
  request.lineage = lineage;
  return request;
}

TEST(RecoveryTest, OneOfThreeGoesOnAlone) {
  const RingSpec spec = FirstSpec(3, PlacementStrategy::kBalanced);
  const absl::StatusOr<RingSpec> next = RecoverRing(Left({3}), spec);
  ASSERT_TRUE(next.ok()) << next.status();
  CheckStep(*next);
  EXPECT_EQ(next->epoch, spec.epoch + kRecoveryEpochs);
  EXPECT_EQ(next->lineage, 77u);
  EXPECT_EQ(next->former_lineages, std::vector<uint64_t>{0});
  EXPECT_EQ(next->keyspaces[0].changed_at, next->epoch);
  EXPECT_THAT(VotersOf(*next), ElementsAre(NodeNumber{3}));
  ASSERT_TRUE(next->operation.has_value());
  EXPECT_EQ(next->operation->kind, TopologyKind::kRemoveDead);
  EXPECT_EQ(next->operation->id, next->epoch);
  // Nothing to receive: it has what is left.
  EXPECT_TRUE(ReceiversOf(*Made(*next)).empty());
  const RingSpec end = FinishOperation(SwitchOperation(*next));
  CheckStep(end);
  EXPECT_EQ(end.members.size(), 1u);
  EXPECT_EQ(end.departed.size(), 2u);
  EXPECT_EQ(end.lineage, 77u);
  // Once more.
  const absl::StatusOr<RingSpec> again = RecoverRing(Left({3}, 78), end);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->operation.has_value());
  EXPECT_EQ(again->former_lineages, (std::vector<uint64_t>{0, 77}));
  for (const uint64_t used : {uint64_t{0}, uint64_t{77}}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(RecoverRing(Left({3}, used), end).status()));
  }
}

TEST(RecoveryTest, SurvivorsReceiveFromEachOther) {
  const RingSpec spec = FirstSpec(5, PlacementStrategy::kHashed);
  const absl::StatusOr<RingSpec> next = RecoverRing(Left({1, 2}), spec);
  ASSERT_TRUE(next.ok()) << next.status();
  CheckStep(*next);
  EXPECT_THAT(ReceiversOf(*Made(*next)),
              ElementsAre(NodeNumber{1}, NodeNumber{2}));
  CheckStep(FinishOperation(SwitchOperation(*next)));
}

TEST(RecoveryTest, AnOperationThatRanIsOver) {
  const RingSpec spec = FirstSpec(4, PlacementStrategy::kBalanced);
  // A join that had not switched is taken back, with its joiner.
  const absl::StatusOr<RingSpec> joining = StartOperation(Join(5), spec);
  ASSERT_TRUE(joining.ok()) << joining.status();
  absl::StatusOr<RingSpec> next = RecoverRing(Left({1}), *joining);
  ASSERT_TRUE(next.ok()) << next.status();
  CheckStep(*next);
  EXPECT_EQ(next->departed, std::vector<NodeNumber>{NodeNumber{5}});
  EXPECT_EQ(next->operation->nodes.size(), 3u);
  const absl::Status joiner = RecoverRing(Left({1, 5}), *joining).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(joiner)) << joiner;
  // One that had switched is finished.
  next = RecoverRing(Left({5}), FinishOperation(SwitchOperation(*joining)));
  ASSERT_TRUE(next.ok()) << next.status();
  const RingSpec switched = SwitchOperation(*joining);
  next = RecoverRing(Left({2}), switched);
  ASSERT_TRUE(next.ok()) << next.status();
  CheckStep(*next);
  EXPECT_EQ(next->members.size(), 5u);
  // But a survivor that was leaving keeps its place.
  const absl::StatusOr<RingSpec> leaving =
      StartOperation(About(TopologyKind::kDecommission, 4), spec);
  ASSERT_TRUE(leaving.ok()) << leaving.status();
  next = RecoverRing(Left({4}), SwitchOperation(*leaving));
  ASSERT_TRUE(next.ok()) << next.status();
  CheckStep(*next);
  EXPECT_EQ(FinishOperation(SwitchOperation(*next)).members.size(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(RecoverRing(Left({}), spec).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(RecoverRing(Left({9}), spec).status()));
}

TEST(TopologyTest, HopelessRequestsAreRefusedWithTheReason) {
  const RingSpec spec = FirstSpec(3, PlacementStrategy::kBalanced);
  const auto refusal = [&](const TopologyRequest& request) {
    return StartOperation(request, spec).status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(
      refusal(About(TopologyKind::kDecommission, 1))));
  TopologyRequest fewer = About(TopologyKind::kDecommission, 1);
  fewer.allow_fewer_replicas = true;
  EXPECT_TRUE(refusal(fewer).ok());
  EXPECT_TRUE(absl::IsNotFound(refusal(About(TopologyKind::kWeight, 9))));
  EXPECT_TRUE(absl::IsInvalidArgument(refusal(TopologyRequest{})));
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal(Join(2))));
  TopologyRequest old_plan = Join(7);
  old_plan.planned_for = 9;
  EXPECT_TRUE(absl::IsAborted(refusal(old_plan)));
  absl::StatusOr<RingSpec> started = StartOperation(Join(7), spec);
  ASSERT_TRUE(started.ok());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(StartOperation(Join(8), *started).status()));
  TopologyRequest heavy = About(TopologyKind::kWeight, 1);
  heavy.weight = 1000;
  EXPECT_TRUE(absl::IsInvalidArgument(refusal(heavy)));
}

TEST(TopologyTest, ASwitchedOperationGoesOnWithoutAMemberThatNeverComesBack) {
  RingSpec spec = FirstSpec(5, PlacementStrategy::kHashed);
  // Every replica counts for its barrier.
  spec.keyspaces[0].r = spec.keyspaces[0].w = 1;
  absl::StatusOr<RingSpec> started =
      StartOperation(About(TopologyKind::kWeight, 1), spec);
  ASSERT_TRUE(started.ok()) << started.status();
  const TopologyRequest dead = About(TopologyKind::kRemoveDead, 3);
  // An abort is the way out of this phase.
  EXPECT_TRUE(
      absl::IsFailedPrecondition(StartOperation(dead, *started).status()));
  const RingSpec switched = SwitchOperation(*started);
  const auto without_it = [](NodeNumber node) { return node != NodeNumber{3}; };
  EXPECT_FALSE(BarrierReached(*Made(switched), without_it));

  const absl::StatusOr<RingSpec> vouched = StartOperation(dead, switched);
  ASSERT_TRUE(vouched.ok()) << vouched.status();
  EXPECT_EQ(vouched->epoch, switched.epoch + 1);
  EXPECT_EQ(vouched->operation->kind, TopologyKind::kWeight);
  EXPECT_TRUE(BarrierReached(*Made(*vouched), without_it));
  EXPECT_TRUE(IsTakenForDead(*Made(*vouched), NodeNumber{3}));
  CheckStep(*vouched);
  EXPECT_TRUE(absl::IsNotFound(
      StartOperation(About(TopologyKind::kRemoveDead, 9), switched).status()));
  // It is a member still, which is taken out once this is over.
  const RingSpec finished = FinishOperation(*vouched);
  EXPECT_FALSE(finished.operation.has_value());
  EXPECT_NE(Made(finished)->FindMember(NodeNumber{3}), nullptr);
}

// The fewest copies that a write from before the operation has after it, over
// all W nodes that may have acknowledged it and all sources that suffice; the
// write is lost if only those that are taken for dead had it.
void CheckCopies(const RingSpec& spec) {
  const std::shared_ptr<const Ring> ring = Made(spec);
  std::map<NodeNumber, std::vector<Transfer>> transfers;
  for (const Member& member : spec.members) {
    transfers[member.number] = TransfersOf(*ring, member.number);
  }
  ForEachRange(*ring, spec.keyspaces[0],
               [&](const TokenRange& range, const ReplicaSet& before,
                   const ReplicaSet& after) {
                 const size_t nodes = before.nodes.size();
                 for (uint32_t holders = 0; holders < 1u << nodes; ++holders) {
                   if (std::popcount(holders) != static_cast<int>(before.w))
                     continue;
                   std::set<NodeNumber> have;
                   for (size_t i = 0; i < nodes; ++i) {
                     const bool dead = IsTakenForDead(*ring, before.nodes[i]);
                     if (((holders >> i) & 1) && !dead)
                       have.insert(before.nodes[i]);
                   }
                   if (have.empty()) continue;
                   uint32_t copies = 0;
                   for (const NodeNumber node : after.nodes) {
                     bool has = have.count(node) > 0;
                     for (const Transfer& transfer : transfers[node]) {
                       if (transfer.keyspace != spec.keyspaces[0].id ||
                           transfer.range.first > range.first ||
                           transfer.range.last < range.last) {
                         continue;
                       }
                       size_t lack = 0;
                       for (NodeNumber source : transfer.sources) {
                         if (have.count(source) == 0) ++lack;
                       }
                       has = has || lack < transfer.sources_needed;
                     }
                     if (has) ++copies;
                   }
                   EXPECT_GE(copies, after.w)
                       << "N=" << before.n << " W=" << before.w
                       << ", then N=" << after.n << " W=" << after.w
                       << ", acknowledged by nodes " << std::bitset<8>(holders);
                   if (copies < after.w) return;
                 }
               });
}

TEST(TopologyTest, WhatWasAcknowledgedIsOnAsManyNodesAfterwards) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SeededRandom random(seed);
    RingSpec spec = FirstSpec(1 + static_cast<int>(random.Uniform(6)),
                              PlacementStrategy::kHashed);
    uint64_t next_id = 100;
    for (int step = 0; step < 8; ++step) {
      const uint32_t somebody =
          ToInt(spec.members[random.Uniform(spec.members.size())].number);
      TopologyRequest request;
      switch (random.Uniform(5)) {
        case 0:
          request = Join(next_id++);
          if (random.Chance(0.5)) {
            request.joiners.push_back(NewMember(next_id++));
          }
          break;
        case 1:
          request = About(TopologyKind::kDecommission, somebody);
          break;
        case 2:
          request = About(TopologyKind::kRemoveDead, somebody);
          break;
        case 3:
          request = About(TopologyKind::kReplace, somebody);
          request.joiners.push_back(NewMember(next_id++));
          break;
        default:
          request.kind = TopologyKind::kKeyspace;
          request.keyspace = KeyspaceId{1};
          request.quorums.n = 1 + static_cast<uint32_t>(random.Uniform(5));
          request.quorums.r =
              1 + static_cast<uint32_t>(random.Uniform(request.quorums.n));
          request.quorums.w =
              1 + static_cast<uint32_t>(random.Uniform(request.quorums.n));
      }
      request.allow_fewer_replicas = true;
      const absl::StatusOr<RingSpec> started = StartOperation(request, spec);
      if (!started.ok()) continue;
      SCOPED_TRACE(absl::StrCat("seed ", seed, " step ", step, " ",
                                NameOf(request.kind), " of ",
                                spec.members.size(), " nodes"));
      CheckCopies(*started);
      spec = FinishOperation(SwitchOperation(*started));
    }
  }
}

TEST(TopologyTest, KeyspacesThatChangeSayInWhichEpoch) {
  const RingSpec spec = FirstSpec(4, PlacementStrategy::kHashed);
  absl::StatusOr<RingSpec> started = StartOperation(Join(5), spec);
  ASSERT_TRUE(started.ok());
  EXPECT_EQ(started->keyspaces[0].changed_at, started->epoch);
  const RingSpec switched = SwitchOperation(*started);
  EXPECT_EQ(switched.keyspaces[0].changed_at, switched.epoch);
  const RingSpec finished = FinishOperation(switched);
  EXPECT_EQ(finished.keyspaces[0].changed_at, finished.epoch);
}

}  // namespace
}  // namespace ringkv
