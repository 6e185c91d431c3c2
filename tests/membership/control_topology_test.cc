// Operations that change who holds what, over several Control machines.

#include <string>
#include <vector>

#include "base/planted.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/control/control.h"
#include "tests/membership/control_cluster.h"

namespace ringkv {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr NodeNumber Number(uint32_t number) { return NodeNumber{number}; }

std::string Address(int i) { return absl::StrCat("n", i + 1, ":7800"); }

// A cluster of `members` nodes, and `standby` more that it hears.
class ControlTopologyTest : public ::testing::Test {
 protected:
  void Form(uint64_t seed, int members, int standby = 0) {
    cluster_ = std::make_unique<ControlCluster>(seed);
    for (int i = 0; i < members; ++i) AddNode(i);
    cluster_->StartAll();
    ASSERT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->FullMesh(); }));
    InitCall init;
    init.placement = PlacementStrategy::kHashed;
    init.vnodes = 8;
    const AdminAnswer answer = cluster_->Ask(0, init);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    for (int i = members; i < members + standby; ++i) {
      AddNode(i);
      cluster_->Start(i);
    }
    ASSERT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->FullMesh(); }));
    cluster_->RunFor(absl::Seconds(6));
    ASSERT_EQ(Epoch(), 1u);
  }
  void AddNode(int i) {
    cluster_->Add(absl::StrCat("n", i + 1), {Address(0)},
                  absl::StrCat("r", i % 2 + 1));
  }

  StartOperationCall Call(TopologyKind kind, std::vector<std::string> nodes) {
    StartOperationCall call;
    call.kind = kind;
    call.nodes = std::move(nodes);
    return call;
  }
  // Starts an operation that must start; returns its id.
  RingEpoch Start(int at, const StartOperationCall& call) {
    const AdminAnswer answer = cluster_->Ask(at, call);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    if (!answer.status.ok()) return 0;
    return std::get<StartOperationAnswer>(answer.answer).operation;
  }
  void ExpectRefused(int at, const AdminCall& call, absl::StatusCode code,
                     absl::string_view text) {
    const AdminAnswer answer = cluster_->Ask(at, call);
    EXPECT_EQ(answer.status.code(), code) << answer.status;
    EXPECT_THAT(std::string(answer.status.message()),
                HasSubstr(std::string(text)));
  }
  OperationsAnswer Operations(int at) {
    const AdminAnswer answer = cluster_->Ask(at, OperationsCall{});
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    return std::get<OperationsAnswer>(answer.answer);
  }
  // Runs until no running node knows of an operation, and all agree.
  bool Settles(absl::Duration limit = absl::Seconds(30)) {
    return cluster_->RunUntilTrue(
        [&] {
          const RingEpoch newest = Epoch();
          for (size_t i = 0; i < cluster_->size(); ++i) {
            const ControlCluster::Node& node =
                cluster_->node(static_cast<int>(i));
            if (!node.running || node.ring == nullptr) continue;
            if (node.ring->spec().operation.has_value() ||
                cluster_->EpochOf(static_cast<int>(i)) != newest) {
              return false;
            }
          }
          return true;
        },
        limit);
  }
  // The newest epoch that any running node has adopted.
  RingEpoch Epoch() {
    RingEpoch newest = 0;
    for (size_t i = 0; i < cluster_->size(); ++i) {
      newest = std::max(newest, cluster_->EpochOf(static_cast<int>(i)));
    }
    return newest;
  }
  bool Reaches(RingEpoch epoch, absl::Duration limit = absl::Seconds(30)) {
    return cluster_->RunUntilTrue([&] { return Epoch() >= epoch; }, limit);
  }
  const RingSpec& Spec(int i) { return cluster_->node(i).ring->spec(); }
  std::vector<std::string> Names(int i) {
    std::vector<std::string> names;
    for (const Member& member : Spec(i).members) names.push_back(member.name);
    return names;
  }
  // Hints are reported about once a second, as a node does it.
  void ReportLoads(uint64_t hints_of_n3 = 0) {
    for (size_t i = 0; i < cluster_->size(); ++i) {
      LoadReported load;
      if (i == 2 && hints_of_n3 > 0) {
        load.hints.push_back({Number(1), hints_of_n3, 10, 0, 0, 0});
      }
      cluster_->Step(static_cast<int>(i), load);
    }
    cluster_->RunFor(absl::Seconds(1));
  }
  void HoldTransfers() {
    for (size_t i = 0; i < cluster_->size(); ++i) {
      cluster_->node(static_cast<int>(i)).transfers_take =
          absl::InfiniteDuration();
    }
  }
  void SetAdopts(std::vector<int> nodes, bool adopts) {
    for (int i : nodes) {
      ControlCluster::Node& node = cluster_->node(i);
      node.adopts = adopts;
      if (adopts) cluster_->Step(i, EpochAdopted{node.ring->epoch()});
    }
  }
  void ReportTransfers(int i, bool done = true) {
    ControlCluster::Node& node = cluster_->node(i);
    const RingEpoch operation = node.transfers_begun;
    ASSERT_NE(operation, 0u) << "transfers of node " << i << " have not begun";
    cluster_->Step(
        i, TransfersReported{{operation, 4, done ? 4u : 1u, 100, 1000, done}});
  }

  std::unique_ptr<ControlCluster> cluster_;
};

// --- Join ---

TEST_F(ControlTopologyTest, AStandbyNodeJoins) {
  Form(1, 3, 1);
  EXPECT_EQ(cluster_->node(3).ring, nullptr);
  const RingEpoch id = Start(1, Call(TopologyKind::kJoin, {"n4"}));
  EXPECT_EQ(id, 2u);
  ASSERT_TRUE(Settles(absl::Seconds(5)));
  EXPECT_EQ(Epoch(), 4u);
  EXPECT_THAT(Names(0), SizeIs(4));
  EXPECT_EQ(cluster_->node(3).control->number(), Number(4));
  EXPECT_TRUE(cluster_->AllSeeAll());
  // It owns its part, and the next change of the ring needs its vote no less.
  const std::vector<NodeNumber>& owners = Spec(0).owners;
  EXPECT_THAT(owners, Contains(Number(4)));
  const OperationsAnswer operations = Operations(3);
  EXPECT_FALSE(operations.running.has_value());
  ASSERT_THAT(operations.finished, SizeIs(1));
  EXPECT_EQ(operations.finished[0].id, id);
  EXPECT_EQ(operations.finished[0].state, OperationState::kDone);
  // What was moved is remembered, by those who saw it.
  const OperationsAnswer seen = Operations(0);
  ASSERT_THAT(seen.finished, SizeIs(1));
  uint64_t keys = 0;
  for (const OperationProgress& progress : seen.finished[0].progress) {
    keys += progress.report.keys;
  }
  EXPECT_GE(keys, 100u);
  // Also after a restart.
  cluster_->RunFor(absl::Seconds(1));
  cluster_->Crash(0);
  cluster_->Start(0);
  EXPECT_EQ(Operations(0).finished, seen.finished);
}

TEST_F(ControlTopologyTest, TwoNodesJoinAtOnceByAddressAndId) {
  Form(2, 3, 2);
  const RingEpoch id =
      Start(2, Call(TopologyKind::kJoin,
                    {Address(3), cluster_->node(4).control->id().ToString()}));
  EXPECT_EQ(id, 2u);
  ASSERT_TRUE(Settles(absl::Seconds(5)));
  EXPECT_EQ(Epoch(), 4u);
  EXPECT_THAT(Names(4), SizeIs(5));
}

TEST_F(ControlTopologyTest, WhoJoinsIsNamedRightOrRefused) {
  Form(3, 3, 1);
  ExpectRefused(0, Call(TopologyKind::kJoin, {"n9"}),
                absl::StatusCode::kNotFound, "this node hears node n4");
  ExpectRefused(0, Call(TopologyKind::kJoin, {"n2"}),
                absl::StatusCode::kFailedPrecondition, "is a member already");
  ExpectRefused(0, Call(TopologyKind::kJoin, {"n4", Address(3)}),
                absl::StatusCode::kInvalidArgument, "named twice");
  ExpectRefused(0, Call(TopologyKind::kJoin, {}),
                absl::StatusCode::kInvalidArgument, "at least one");
  ExpectRefused(3, Call(TopologyKind::kJoin, {"n4"}),
                absl::StatusCode::kFailedPrecondition, "in no ring yet");
  StartOperationCall planned = Call(TopologyKind::kJoin, {"n4"});
  planned.planned_for = 7;
  ExpectRefused(0, planned, absl::StatusCode::kAborted,
                "epoch 7, and the ring has epoch 1");
  EXPECT_EQ(Epoch(), 1u);
  cluster_->Crash(3);
  cluster_->RunFor(absl::Seconds(3));
  ExpectRefused(0, Call(TopologyKind::kJoin, {"n4"}),
                absl::StatusCode::kFailedPrecondition, "not alive");
}

TEST_F(ControlTopologyTest, NothingSwitchesBeforeEverybodyHasReceived) {
  Form(4, 3, 1);
  HoldTransfers();
  Start(0, Call(TopologyKind::kJoin, {"n4"}));
  cluster_->RunFor(absl::Seconds(20));
  EXPECT_EQ(Epoch(), 2u);
  // Each node was told to begin, and who is waited for is said.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(cluster_->node(i).transfers_begun, 2u) << i;
  }
  OperationsAnswer operations = Operations(1);
  ASSERT_TRUE(operations.running.has_value());
  EXPECT_EQ(operations.running->state, OperationState::kStreaming);
  bool waits_for_joiner = false;
  for (const OperationWait& wait : operations.running->waits) {
    waits_for_joiner = waits_for_joiner || wait.node.name == "n4";
  }
  EXPECT_TRUE(waits_for_joiner);
  // A report of another operation, or of a part, is not enough.
  ReportTransfers(3, /*done=*/false);
  cluster_->Step(3, TransfersReported{{1, 4, 4, 0, 0, true}});
  cluster_->RunFor(absl::Seconds(10));
  EXPECT_EQ(Epoch(), 2u);
  for (int i = 0; i < 4; ++i) ReportTransfers(i);
  ASSERT_TRUE(Settles(absl::Seconds(5)));
  EXPECT_EQ(Epoch(), 4u);
}

TEST_F(ControlTopologyTest, AJoinerHasNoVoteUntilTheEnd) {
  // Were the two joiners voters, the members could not even abort without
  // them.
  Form(5, 2, 2);
  HoldTransfers();
  Start(0, Call(TopologyKind::kJoin, {"n3", "n4"}));
  cluster_->RunFor(absl::Seconds(1));
  cluster_->Crash(2);
  cluster_->Crash(3);
  cluster_->RunFor(absl::Seconds(3));
  EXPECT_TRUE(cluster_->Ask(0, AbortOperationCall{}).status.ok());
  ASSERT_TRUE(Settles());
  EXPECT_THAT(Names(0), SizeIs(2));
}

TEST_F(ControlTopologyTest, AMemberMayBeDownDuringTheWholeJoin) {
  // With N=3, R=W=2 one missing acknowledgement leaves each barrier reachable.
  Form(6, 5, 1);
  cluster_->Crash(3);
  cluster_->RunFor(absl::Seconds(3));
  HoldTransfers();
  Start(0, Call(TopologyKind::kJoin, {"n6"}));
  cluster_->RunFor(absl::Seconds(1));
  for (int i : {0, 1, 2, 4, 5}) {
    EXPECT_EQ(cluster_->node(i).transfers_begun, 2u) << i;
  }
  // Whoever must receive something must be there; the one that is down has
  // nothing to receive, or the join would wait for it.
  const OperationsAnswer operations = Operations(0);
  for (const OperationProgress& progress : operations.running->progress) {
    EXPECT_NE(progress.node.number, Number(4));
  }
  for (int i : {0, 1, 2, 4, 5}) ReportTransfers(i);
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 4u);
  cluster_->Start(3);
  EXPECT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->AllAtEpoch(4); }));
}

TEST_F(ControlTopologyTest, TransfersWaitForTheBarrier) {
  Form(7, 3, 1);
  SetAdopts({1, 2}, false);
  cluster_->Call(0, Call(TopologyKind::kJoin, {"n4"}));
  cluster_->RunFor(absl::Seconds(15));
  EXPECT_EQ(cluster_->EpochOf(0), 2u);
  EXPECT_EQ(cluster_->node(0).transfers_begun, 0u);
  const OperationsAnswer operations = Operations(0);
  EXPECT_EQ(operations.running->state, OperationState::kStarting);
  ASSERT_THAT(operations.running->waits, SizeIs(2));
  EXPECT_EQ(operations.running->waits[0].node.name, "n2");
  EXPECT_THAT(operations.running->waits[0].why,
              HasSubstr("has not adopted ring epoch 2"));
  SetAdopts({1}, true);
  EXPECT_TRUE(cluster_->RunUntilTrue(
      [&] { return cluster_->node(0).transfers_begun == 2; },
      absl::Seconds(1)));
}

TEST_F(ControlTopologyTest, TheEndWaitsForTheBarrierOfTheSwitch) {
  Form(8, 3, 1);
  HoldTransfers();
  Start(0, Call(TopologyKind::kJoin, {"n4"}));
  cluster_->RunFor(absl::Seconds(1));
  SetAdopts({1, 2, 3}, false);
  ReportTransfers(3);
  cluster_->RunFor(absl::Seconds(15));
  EXPECT_EQ(Epoch(), 3u);
  SetAdopts({1, 2, 3}, true);
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 4u);
}

// --- Leaving ---

TEST_F(ControlTopologyTest, ADecommissionedNodeStopsAndSaysWhy) {
  Form(10, 4);
  Start(2, Call(TopologyKind::kDecommission, {"n3"}));
  ASSERT_TRUE(Reaches(3));
  for (int i = 0; i < 5; ++i) ReportLoads();
  ASSERT_TRUE(Settles());
  EXPECT_THAT(Names(0), SizeIs(3));
  ASSERT_TRUE(cluster_->node(2).stop.has_value());
  EXPECT_EQ(cluster_->node(2).stop->exit_code, 1);
  EXPECT_THAT(cluster_->node(2).stop->message, HasSubstr("has left the ring"));
  EXPECT_THAT(cluster_->node(2).stop->message,
              HasSubstr("empty data directory"));
  // It is in no table any more.
  const AdminAnswer answer = cluster_->Ask(0, StatusCall{});
  EXPECT_THAT(std::get<StatusAnswer>(answer.answer).nodes, SizeIs(3));
}

TEST_F(ControlTopologyTest, ADecommissionEndsOnceTheLeaversHintsAreDelivered) {
  Form(11, 4);
  Start(0, Call(TopologyKind::kDecommission, {"3"}));
  for (int i = 0; i < 10; ++i) ReportLoads(/*hints_of_n3=*/5);
  EXPECT_EQ(Epoch(), 3u);
  const OperationsAnswer operations = Operations(1);
  ASSERT_TRUE(operations.running.has_value());
  EXPECT_EQ(operations.running->state, OperationState::kSwitching);
  ASSERT_THAT(operations.running->waits, SizeIs(1));
  EXPECT_THAT(operations.running->waits[0].why, HasSubstr("hints"));
  for (int i = 0; i < 4; ++i) ReportLoads();
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 4u);
}

TEST_F(ControlTopologyTest, HintsFromBeforeTheSwitchSayNothing) {
  Form(12, 4);
  for (int i = 0; i < 3; ++i) ReportLoads();
  Start(0, Call(TopologyKind::kDecommission, {"n3"}));
  // No load was measured since the switch.
  cluster_->RunFor(absl::Seconds(20));
  EXPECT_EQ(Epoch(), 3u);
  for (int i = 0; i < 5; ++i) ReportLoads();
  ASSERT_TRUE(Settles());
}

TEST_F(ControlTopologyTest, ALeaverThatDiesWithItsHintsCanBeGivenUp) {
  Form(17, 4);
  const RingEpoch id = Start(0, Call(TopologyKind::kDecommission, {"n3"}));
  for (int i = 0; i < 5; ++i) ReportLoads(/*hints_of_n3=*/5);
  ASSERT_EQ(Epoch(), 3u);
  const StartOperationCall remove = Call(TopologyKind::kRemoveDead, {"n3"});
  ExpectRefused(0, remove, absl::StatusCode::kFailedPrecondition, "is alive");
  ExpectRefused(0, Call(TopologyKind::kRemoveDead, {"n2"}),
                absl::StatusCode::kFailedPrecondition, "is alive");
  cluster_->Crash(2);
  cluster_->RunFor(absl::Seconds(20));
  EXPECT_EQ(Epoch(), 3u);
  EXPECT_EQ(Start(1, remove), id);
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 5u);
  EXPECT_THAT(Names(0), SizeIs(3));
}

TEST_F(ControlTopologyTest, TheLowestMemberMayLeaveAsWell) {
  Form(13, 4);
  Start(0, Call(TopologyKind::kDecommission, {"n1"}));
  ASSERT_TRUE(Reaches(3));
  for (int i = 0; i < 5; ++i) ReportLoads();
  ASSERT_TRUE(Settles());
  EXPECT_TRUE(cluster_->node(0).stop.has_value());
  EXPECT_THAT(Names(1), SizeIs(3));
}

TEST_F(ControlTopologyTest, TooFewNodesAreLeftOnlyIfAsked) {
  Form(14, 3);
  StartOperationCall call = Call(TopologyKind::kDecommission, {"n3"});
  ExpectRefused(0, call, absl::StatusCode::kFailedPrecondition,
                "--allow-fewer-replicas");
  call.allow_fewer_replicas = true;
  Start(0, call);
  for (int i = 0; i < 6; ++i) ReportLoads();
  ASSERT_TRUE(Settles());
  EXPECT_THAT(Names(0), SizeIs(2));
}

TEST_F(ControlTopologyTest, ADepartedNodeThatComesBackIsToldSo) {
  Form(15, 4);
  cluster_->Crash(2);
  cluster_->RunFor(absl::Seconds(3));
  Start(0, Call(TopologyKind::kRemoveDead, {"n3"}));
  ASSERT_TRUE(Settles());
  EXPECT_THAT(Names(0), SizeIs(3));
  cluster_->Start(2);
  ASSERT_TRUE(cluster_->RunUntilTrue(
      [&] { return cluster_->node(2).stop.has_value(); }, absl::Seconds(5)));
  EXPECT_EQ(cluster_->node(2).stop->exit_code, 1);
  EXPECT_THAT(cluster_->node(2).stop->message,
              HasSubstr("it is not in epoch 4"));
  // With an empty disk it is a new node.
  cluster_->RunFor(absl::Seconds(1));
  cluster_->Wipe(2);
  cluster_->Start(2);
  ASSERT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->FullMesh(); }));
  cluster_->RunFor(absl::Seconds(1));
  Start(0, Call(TopologyKind::kJoin, {"n3"}));
  ASSERT_TRUE(Settles());
  EXPECT_EQ(cluster_->node(2).control->number(), Number(5));
}

TEST_F(ControlTopologyTest, ADecommissionedNodeDoesNotStartAgainEvenAlone) {
  Form(16, 4);
  Start(0, Call(TopologyKind::kDecommission, {"n3"}));
  ASSERT_TRUE(Reaches(3));
  for (int i = 0; i < 5; ++i) ReportLoads();
  ASSERT_TRUE(Settles());
  cluster_->RunFor(absl::Seconds(1));
  cluster_->Isolate(2);
  cluster_->Start(2);
  EXPECT_FALSE(cluster_->node(2).running);
  EXPECT_THAT(std::string(cluster_->node(2).start_error.message()),
              HasSubstr("has left its ring"));
}

// --- The dead ---

TEST_F(ControlTopologyTest, RemoveDeadIsRefusedWhileAnybodySeesTheNodeAlive) {
  Form(20, 4);
  ExpectRefused(0, Call(TopologyKind::kRemoveDead, {"n3"}),
                absl::StatusCode::kFailedPrecondition, "n3 (3) is alive");
  // Cut off from the asking node only: another member still hears it.
  cluster_->Block(0, 2);
  cluster_->Block(2, 0);
  cluster_->RunFor(absl::Seconds(6));
  EXPECT_FALSE(cluster_->SeesAlive(0, 2));
  ExpectRefused(0, Call(TopologyKind::kRemoveDead, {"n3"}),
                absl::StatusCode::kFailedPrecondition, "hears it");
  ExpectRefused(0, Call(TopologyKind::kRemoveDead, {"n1"}),
                absl::StatusCode::kFailedPrecondition, "n1 (1) is alive");
  EXPECT_EQ(Epoch(), 1u);
  cluster_->Crash(2);
  cluster_->RunFor(absl::Seconds(4));
  Start(0, Call(TopologyKind::kRemoveDead, {"n3"}));
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 4u);
  EXPECT_THAT(Names(0), SizeIs(3));
}

TEST_F(ControlTopologyTest, TwoDeadReplicasOfARangeAreNotRemovedUnaccepted) {
  Form(24, 6);
  cluster_->Crash(1);
  cluster_->Crash(2);
  cluster_->RunFor(absl::Seconds(6));
  StartOperationCall call = Call(TopologyKind::kRemoveDead, {"n2", "n3"});
  ExpectRefused(0, call, absl::StatusCode::kFailedPrecondition, "as few as 1");
  call.dry_run = true;
  ExpectRefused(0, call, absl::StatusCode::kFailedPrecondition,
                "--accept-data-loss");
  call.accept_data_loss = true;
  const AdminAnswer planned = cluster_->Ask(0, call);
  ASSERT_TRUE(planned.status.ok()) << planned.status;
  EXPECT_THAT(std::get<StartOperationAnswer>(planned.answer).plan.warnings,
              Contains(HasSubstr("writes that only n2, n3 had are lost")));
  call.dry_run = false;
  Start(0, call);
  ASSERT_TRUE(Settles());
  EXPECT_THAT(Names(0), SizeIs(4));
}

TEST_F(ControlTopologyTest, ADownSourceIsNamedInThePlanAndWhileItIsWaitedFor) {
  Form(25, 6);
  cluster_->Crash(1);
  cluster_->Crash(2);
  cluster_->RunFor(absl::Seconds(6));
  // n2 alone is removed; n3, which is down too, must send what both held.
  StartOperationCall call = Call(TopologyKind::kRemoveDead, {"n2"});
  call.dry_run = true;
  const AdminAnswer planned = cluster_->Ask(0, call);
  ASSERT_TRUE(planned.status.ok()) << planned.status;
  EXPECT_THAT(std::get<StartOperationAnswer>(planned.answer).plan.warnings,
              Contains(HasSubstr("n3 (3) is down and is to send")));
  call.dry_run = false;
  HoldTransfers();
  Start(0, call);
  cluster_->RunFor(absl::Seconds(2));
  const OperationsAnswer operations = Operations(0);
  ASSERT_TRUE(operations.running.has_value());
  bool named = false;
  for (const OperationWait& wait : operations.running->waits) {
    named = named || absl::StrContains(wait.why, "n3 (3), which is down");
  }
  EXPECT_TRUE(named);
}

TEST_F(ControlTopologyTest, ANodeThatJustStartedDoesNotSayWhoIsDead) {
  Form(21, 4);
  cluster_->Crash(2);
  cluster_->Crash(0);
  cluster_->RunFor(absl::Seconds(3));
  cluster_->Start(0);
  cluster_->RunFor(absl::Milliseconds(500));
  ExpectRefused(0, Call(TopologyKind::kRemoveDead, {"n3"}),
                absl::StatusCode::kUnavailable, "started just now");
}

TEST_F(ControlTopologyTest, ANodeThatIsTakenForDeadMustNotServeMeanwhile) {
  Form(22, 4);
  HoldTransfers();
  cluster_->Crash(2);
  cluster_->RunFor(absl::Seconds(3));
  Start(0, Call(TopologyKind::kRemoveDead, {"n3"}));
  cluster_->Start(2);
  ASSERT_TRUE(cluster_->RunUntilTrue(
      [&] { return cluster_->node(2).stop.has_value(); }, absl::Seconds(5)));
  EXPECT_THAT(cluster_->node(2).stop->message, HasSubstr("as dead"));
  // After an abort its disk is as good as before.
  EXPECT_TRUE(cluster_->Ask(1, AbortOperationCall{}).status.ok());
  ASSERT_TRUE(Settles());
  cluster_->Start(2);
  EXPECT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->AllSeeAll(); }));
  EXPECT_THAT(Names(2), SizeIs(4));
}

TEST_F(ControlTopologyTest, ADeadNodeIsReplacedAtItsAddress) {
  Form(23, 4);
  cluster_->Crash(2);
  cluster_->Wipe(2);
  cluster_->RunFor(absl::Seconds(3));
  // The same name and address, an empty disk: a standby node.
  cluster_->Start(2);
  ASSERT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->FullMesh(); }));
  cluster_->RunFor(absl::Seconds(6));
  StartOperationCall call = Call(TopologyKind::kReplace, {"3"});
  call.replacements = {"n3"};
  Start(1, call);
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 4u);
  EXPECT_THAT(Names(0), SizeIs(4));
  EXPECT_EQ(cluster_->node(2).control->number(), Number(5));
  EXPECT_EQ(Spec(0).departed, std::vector<NodeNumber>{Number(3)});
  EXPECT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->AllSeeAll(); }));
}

// --- Weights and keyspaces ---

TEST_F(ControlTopologyTest, AWeightMovesTokens) {
  Form(30, 4);
  StartOperationCall call = Call(TopologyKind::kWeight, {"n2"});
  call.weight = 2;
  Start(3, call);
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 4u);
  EXPECT_EQ(Spec(0).members[1].weight, 2);
  call.weight = 0;
  ExpectRefused(0, call, absl::StatusCode::kInvalidArgument, "weight");
}

TEST_F(ControlTopologyTest, AKeyspaceGetsAnotherN) {
  Form(31, 5);
  AlterKeyspaceCall alter;
  alter.name = "default";
  alter.n = 5;
  alter.r = alter.w = 3;
  alter.durability = Durability::kSync;
  const AdminAnswer answer = cluster_->Ask(4, alter);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  const KeyspaceAnswer& altered = std::get<KeyspaceAnswer>(answer.answer);
  EXPECT_EQ(altered.operation, 2u);
  EXPECT_EQ(altered.keyspace.n, 3u);
  EXPECT_EQ(altered.keyspace.durability, Durability::kSync);
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 4u);
  EXPECT_EQ(Spec(0).keyspaces[0].n, 5u);
  EXPECT_EQ(Spec(0).keyspaces[0].r, 3u);
  // What is so already needs no operation.
  const AdminAnswer again = cluster_->Ask(4, alter);
  EXPECT_EQ(std::get<KeyspaceAnswer>(again.answer).operation, 0u);
}

// --- Abort, rivals ---

TEST_F(ControlTopologyTest, AnAbortBringsTheOldRingBack) {
  Form(40, 3, 1);
  const RingSpec before = Spec(0);
  HoldTransfers();
  Start(0, Call(TopologyKind::kJoin, {"n4"}));
  const AdminAnswer answer = cluster_->Ask(2, AbortOperationCall{});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(std::get<AbortOperationAnswer>(answer.answer).operation, 2u);
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Spec(0).members, before.members);
  EXPECT_EQ(Spec(0).owners, before.owners);
  // Its number was given and is gone, and so is the node.
  EXPECT_TRUE(cluster_->RunUntilTrue(
      [&] { return cluster_->node(3).stop.has_value(); }, absl::Seconds(5)));
  ASSERT_THAT(Operations(1).finished, SizeIs(1));
  EXPECT_EQ(Operations(1).finished[0].state, OperationState::kAborted);
  ExpectRefused(0, AbortOperationCall{}, absl::StatusCode::kFailedPrecondition,
                "no operation runs");
}

TEST_F(ControlTopologyTest, NothingIsAbortedAfterTheSwitch) {
  Form(41, 4);
  Start(0, Call(TopologyKind::kDecommission, {"n3"}));
  ASSERT_TRUE(Reaches(3));
  cluster_->RunFor(absl::Seconds(2));
  ExpectRefused(0, AbortOperationCall{2}, absl::StatusCode::kFailedPrecondition,
                "can only go on");
  ExpectRefused(0, AbortOperationCall{1}, absl::StatusCode::kFailedPrecondition,
                "operation 1 does not run any more");
}

TEST_F(ControlTopologyTest, OfTwoOperatorsOneIsRefused) {
  int refused = 0;
  for (uint64_t seed = 50; seed < 90; ++seed) {
    Form(seed, 4, 2);
    if (HasFatalFailure()) return;
    const uint64_t a = cluster_->Call(0, Call(TopologyKind::kJoin, {"n5"}));
    cluster_->RunFor(absl::Microseconds(
        static_cast<int64_t>(cluster_->random().Uniform(8000))));
    const uint64_t b = cluster_->Call(2, Call(TopologyKind::kJoin, {"n6"}));
    ASSERT_TRUE(cluster_->RunUntilTrue(
        [&] { return cluster_->Answered(a) && cluster_->Answered(b); }));
    const absl::Status& first = cluster_->answer(a).status;
    const absl::Status& second = cluster_->answer(b).status;
    EXPECT_NE(first.ok(), second.ok()) << first << " " << second;
    const absl::Status& loser = first.ok() ? second : first;
    EXPECT_TRUE(absl::IsFailedPrecondition(loser)) << loser;
    EXPECT_THAT(std::string(loser.message()), HasSubstr("a join runs"));
    ++refused;
    ASSERT_TRUE(Settles()) << "seed " << seed;
    EXPECT_EQ(Epoch(), 4u);
    EXPECT_THAT(Names(0), SizeIs(5));
  }
  EXPECT_EQ(refused, 40);
}

TEST_F(ControlTopologyTest, OtherChangesOfTheRingComeInBetween) {
  Form(42, 3, 1);
  HoldTransfers();
  Start(0, Call(TopologyKind::kJoin, {"n4"}));
  AlterKeyspaceCall alter;
  alter.name = "default";
  alter.durability = Durability::kSync;
  ASSERT_TRUE(cluster_->Ask(1, alter).status.ok());
  ExpectRefused(1, DropKeyspaceCall{"default"},
                absl::StatusCode::kFailedPrecondition, "a join runs");
  cluster_->RunFor(absl::Seconds(1));
  for (int i = 0; i < 4; ++i) ReportTransfers(i);
  ASSERT_TRUE(Settles());
  EXPECT_EQ(Epoch(), 5u);
  EXPECT_EQ(Spec(3).keyspaces[0].durability, Durability::kSync);
}

// --- Crashes ---

// Runs a join of n5 among four; at a random moment of it one node dies, or
// restarts, and it must come to its end all the same.
TEST_F(ControlTopologyTest, AnyNodeMayRestartAtAnyMoment) {
  for (uint64_t seed = 100; seed < 260; ++seed) {
    Form(seed, 4, 1);
    if (HasFatalFailure()) return;
    SeededRandom& random = cluster_->random();
    for (int i = 0; i < 5; ++i) {
      cluster_->node(i).transfers_take =
          absl::Milliseconds(static_cast<int64_t>(random.Uniform(3000)));
    }
    const bool leaves = random.Chance(0.5);
    Start(static_cast<int>(random.Uniform(4)),
          leaves ? Call(TopologyKind::kDecommission, {"n2"})
                 : Call(TopologyKind::kJoin, {"n5"}));
    for (int round = 0; round < 3; ++round) {
      cluster_->RunFor(
          absl::Milliseconds(static_cast<int64_t>(random.Uniform(1500))));
      const int victim = static_cast<int>(random.Uniform(5));
      if (cluster_->node(victim).stop.has_value()) continue;
      cluster_->Crash(victim, random.Chance(0.5));
      if (random.Chance(0.5)) {
        cluster_->RunFor(
            absl::Milliseconds(static_cast<int64_t>(random.Uniform(4000))));
      }
      cluster_->Start(victim);
    }
    for (int i = 0; i < 40 && !Settles(absl::Milliseconds(1)); ++i) {
      ReportLoads();
    }
    EXPECT_TRUE(Settles(absl::Seconds(20))) << "seed " << seed;
    EXPECT_THAT(Names(0), SizeIs(leaves ? 3 : 5)) << "seed " << seed;
    EXPECT_EQ(Epoch(), 4u) << "seed " << seed;
    if (HasFailure()) return;
  }
}

TEST_F(ControlTopologyTest, WhoProposesMayDieForGoodInEachPhase) {
  // n1 takes the steps; once it is gone, the next one steps in.
  for (int phase = 0; phase < 3; ++phase) {
    Form(300 + static_cast<uint64_t>(phase), 5, 1);
    if (HasFatalFailure()) return;
    HoldTransfers();
    Start(0, Call(TopologyKind::kJoin, {"n6"}));
    if (phase == 0) cluster_->Crash(0);
    cluster_->RunFor(absl::Seconds(4));
    if (phase == 1) cluster_->Crash(0);
    for (int i = 1; i < 6; ++i) {
      if (cluster_->node(i).transfers_begun != 0) ReportTransfers(i);
    }
    if (phase == 2) {
      ReportTransfers(0);
      ASSERT_TRUE(Reaches(3));
      cluster_->Crash(0);
    }
    EXPECT_TRUE(Settles()) << "phase " << phase;
    EXPECT_EQ(Epoch(), 4u) << "phase " << phase;
  }
}

// --- Plans ---

TEST_F(ControlTopologyTest, ADryRunChangesNothingAndSaysWhatWouldMove) {
  Form(70, 3, 1);
  for (int i = 0; i < 3; ++i) {
    LoadReported load;
    load.disk_bytes = 3000;
    cluster_->Step(i, load);
  }
  cluster_->RunFor(absl::Seconds(2));
  StartOperationCall call = Call(TopologyKind::kJoin, {"n4"});
  call.dry_run = true;
  const AdminAnswer answer = cluster_->Ask(1, call);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  const StartOperationAnswer& start =
      std::get<StartOperationAnswer>(answer.answer);
  EXPECT_EQ(start.operation, 0u);
  const OperationPlan& plan = start.plan;
  EXPECT_EQ(plan.epoch, 1u);
  ASSERT_THAT(plan.nodes, SizeIs(1));
  EXPECT_EQ(plan.nodes[0].name, "n4");
  ASSERT_THAT(plan.shares, SizeIs(4));
  uint64_t bytes = 0;
  double before = 0;
  double after = 0;
  for (const PlannedTransfer& transfer : plan.transfers) {
    EXPECT_EQ(transfer.to.name, "n4");
    bytes += transfer.bytes;
  }
  for (const PlannedShare& share : plan.shares) {
    before += share.before;
    after += share.after;
  }
  EXPECT_NEAR(before, 1, 1e-9);
  EXPECT_NEAR(after, 1, 1e-9);
  // All hold everything, N being 3: n4 gets its share of it.
  EXPECT_NEAR(static_cast<double>(bytes), 9000 * plan.shares[3].after, 20);
  EXPECT_EQ(Epoch(), 1u);
}

#if RINGKV_PLANTED_BUGS
class Plant {
 public:
  explicit Plant(const char* name) { SetPlantedBug(name); }
  ~Plant() { SetPlantedBug(""); }
};

TEST_F(ControlTopologyTest, PlantedSwitchBeforeStreamedIsSeen) {
  Form(80, 3, 1);
  HoldTransfers();
  const Plant plant("switch-before-streamed");
  Start(0, Call(TopologyKind::kJoin, {"n4"}));
  cluster_->RunFor(absl::Seconds(10));
  EXPECT_GT(Epoch(), 2u);
}

TEST_F(ControlTopologyTest, PlantedFinishBeforeBarrierIsSeen) {
  Form(82, 3, 1);
  HoldTransfers();
  Start(0, Call(TopologyKind::kJoin, {"n4"}));
  cluster_->RunFor(absl::Seconds(1));
  SetAdopts({1, 2, 3}, false);
  const Plant plant("finish-before-barrier");
  ReportTransfers(3);
  cluster_->RunFor(absl::Seconds(10));
  EXPECT_EQ(Epoch(), 4u);
}

TEST_F(ControlTopologyTest, PlantedJoinerVotesIsSeen) {
  Form(83, 2, 2);
  HoldTransfers();
  const Plant plant("joiner-votes");
  Start(0, Call(TopologyKind::kJoin, {"n3", "n4"}));
  cluster_->RunFor(absl::Seconds(1));
  cluster_->Crash(2);
  cluster_->Crash(3);
  cluster_->RunFor(absl::Seconds(3));
  EXPECT_TRUE(absl::IsUnavailable(
      cluster_->Ask(0, AbortOperationCall{}, absl::Seconds(5)).status));
}

TEST_F(ControlTopologyTest, PlantedDepartedComesBackIsSeen) {
  Form(81, 4);
  cluster_->Crash(2);
  cluster_->RunFor(absl::Seconds(3));
  Start(0, Call(TopologyKind::kRemoveDead, {"n3"}));
  ASSERT_TRUE(Settles());
  const Plant plant("departed-comes-back");
  cluster_->Start(2);
  cluster_->RunFor(absl::Seconds(10));
  EXPECT_FALSE(cluster_->node(2).stop.has_value());
}
#endif

}  // namespace
}  // namespace ringkv
