// The loss of a majority, and rolling upgrades, over several Control machines.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/control/control.h"
#include "membership/topology/recovery.h"
#include "tests/membership/control_cluster.h"

namespace ringkv {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ControlRecoveryTest : public ::testing::Test {
 protected:
  void Form(uint64_t seed, int nodes,
            const std::function<void(int, ControlOptions&)>& options = {}) {
    cluster_ = std::make_unique<ControlCluster>(seed);
    for (int i = 0; i < nodes; ++i) {
      cluster_->Add(absl::StrCat("n", i + 1), {"n1:7800", "n2:7800"},
                    absl::StrCat("r", i % 3));
      if (options) options(i, cluster_->node(i).options);
    }
    cluster_->StartAll();
    ASSERT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->FullMesh(); }));
    InitCall init;
    init.placement = PlacementStrategy::kHashed;
    init.vnodes = 8;
    const AdminAnswer answer = cluster_->Ask(0, init);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    cluster_->RunFor(absl::Seconds(6));
  }
  void Lose(std::vector<int> nodes) {
    for (int i : nodes) cluster_->Crash(i);
    cluster_->RunFor(absl::Seconds(4));
  }
  AdminAnswer Recover(int at, std::vector<std::string> survivors,
                      bool dry_run = false) {
    RecoverCall call;
    call.survivors = std::move(survivors);
    call.dry_run = dry_run;
    return cluster_->Ask(at, call);
  }
  void ExpectRefused(const AdminAnswer& answer, absl::StatusCode code,
                     absl::string_view text) {
    EXPECT_EQ(answer.status.code(), code) << answer.status;
    EXPECT_THAT(std::string(answer.status.message()),
                HasSubstr(std::string(text)));
  }
  const RingSpec& Spec(int i) { return cluster_->node(i).ring->spec(); }
  // Until the running nodes have a ring of `members` without an operation.
  bool Settles(size_t members, absl::Duration limit = absl::Seconds(30)) {
    return cluster_->RunUntilTrue(
        [&] {
          for (size_t i = 0; i < cluster_->size(); ++i) {
            const ControlCluster::Node& node =
                cluster_->node(static_cast<int>(i));
            if (node.running && (node.ring->spec().operation.has_value() ||
                                 node.ring->spec().members.size() != members ||
                                 cluster_->EpochOf(static_cast<int>(i)) !=
                                     node.ring->epoch())) {
              return false;
            }
          }
          return true;
        },
        limit);
  }

  std::unique_ptr<ControlCluster> cluster_;
};

// --- recover ---

TEST_F(ControlRecoveryTest, OneOfThreeGoesOnAndTheOthersStayOut) {
  Form(1, 3);
  Lose({0, 1});
  // Nobody decides anything any more.
  EXPECT_TRUE(absl::IsUnavailable(
      cluster_->Ask(2, CreateKeyspaceCall{{{}, "more"}}, absl::Seconds(5))
          .status));
  const AdminAnswer planned = Recover(2, {}, /*dry_run=*/true);
  ASSERT_TRUE(planned.status.ok()) << planned.status;
  const auto& plan = std::get<RecoverAnswer>(planned.answer);
  EXPECT_EQ(plan.lineage, 0u);
  EXPECT_EQ(plan.ring_epoch, 1u);
  ASSERT_THAT(plan.survivors, SizeIs(1));
  EXPECT_EQ(plan.survivors[0].name, "n3");
  EXPECT_THAT(plan.lost, SizeIs(2));
  EXPECT_THAT(plan.plan.warnings,
              Contains(AllOf(HasSubstr("keyspace default"),
                             HasSubstr("only n1, n2 had are lost"))));
  EXPECT_EQ(Spec(2).epoch, 1u);
  ExpectRefused(Recover(2, {}), absl::StatusCode::kInvalidArgument,
                "name the members that are left");

  const AdminAnswer answer = Recover(2, {"n3"});
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  const auto& recovered = std::get<RecoverAnswer>(answer.answer);
  EXPECT_NE(recovered.lineage, 0u);
  EXPECT_EQ(recovered.ring_epoch, 1 + kRecoveryEpochs);
  EXPECT_EQ(recovered.operation, 1 + kRecoveryEpochs);
  ASSERT_TRUE(Settles(1));
  EXPECT_EQ(Spec(2).lineage, recovered.lineage);
  // It decides again, also after a restart.
  EXPECT_TRUE(cluster_->Ask(2, CreateKeyspaceCall{{{}, "more"}}).status.ok());
  cluster_->Crash(2);
  cluster_->Start(2);
  EXPECT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->node(2).checked; },
                                     absl::Seconds(5)));
  EXPECT_TRUE(cluster_->Ask(2, CreateKeyspaceCall{{{}, "again"}}).status.ok());

  // The old majority comes back: each of it is told, and stops.
  cluster_->Start(0);
  cluster_->Start(1);
  for (int i : {0, 1}) {
    ASSERT_TRUE(cluster_->RunUntilTrue(
        [&] { return cluster_->node(i).stop.has_value(); }, absl::Seconds(20)));
    EXPECT_THAT(
        cluster_->node(i).stop->message,
        AllOf(HasSubstr("was recovered without node number"),
              HasSubstr("This node stops"), HasSubstr("empty data directory")));
  }
  EXPECT_THAT(Spec(2).members, SizeIs(1));
}

TEST_F(ControlRecoveryTest, SurvivorsThatWereAwayLearnOfItLater) {
  for (uint64_t seed = 10; seed < 30; ++seed) {
    Form(seed, 5);
    if (HasFatalFailure()) return;
    Lose({2, 3, 4});
    ExpectRefused(Recover(1, {"n1", "n2"}),
                  absl::StatusCode::kFailedPrecondition, "ask n1 (1) at n1:");
    RecoverCall call;
    call.survivors = {"n1", "n2"};
    const uint64_t asked = cluster_->Call(0, call);
    // The asked node may die before the other hears of it.
    if (cluster_->random().Chance(0.5)) {
      cluster_->RunFor(absl::Microseconds(
          static_cast<int64_t>(cluster_->random().Uniform(20000))));
      cluster_->Crash(0);
      cluster_->RunFor(absl::Seconds(3));
      cluster_->Start(0);
      cluster_->RunFor(absl::Seconds(6));
      if (Spec(0).lineage == 0) {
        EXPECT_FALSE(cluster_->Answered(asked));
        EXPECT_TRUE(Recover(0, {"n1", "n2"}).status.ok());
      }
    }
    ASSERT_TRUE(Settles(2)) << "seed " << seed;
    EXPECT_EQ(Spec(0), Spec(1));
    EXPECT_NE(Spec(0).lineage, 0u);
    EXPECT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->AllSeeAll(); }));
    cluster_->Start(3);
    EXPECT_TRUE(cluster_->RunUntilTrue(
        [&] { return cluster_->node(3).stop.has_value(); }, absl::Seconds(20)));
    if (HasFailure()) return;
  }
}

TEST_F(ControlRecoveryTest, ARecoveryIsRefusedWhileItIsNotNeeded) {
  Form(2, 5);
  ExpectRefused(Recover(0, {"n1"}), absl::StatusCode::kFailedPrecondition,
                "is alive");
  Lose({4});
  ExpectRefused(Recover(0, {}, true), absl::StatusCode::kFailedPrecondition,
                "a majority of the voters is left");
  Lose({3});
  ExpectRefused(Recover(0, {"n1", "n2", "n3"}),
                absl::StatusCode::kFailedPrecondition, "kvctl remove-dead");
  // Two of those who are left look like too few, but the third is there.
  ExpectRefused(Recover(0, {"n1", "n2"}), absl::StatusCode::kFailedPrecondition,
                "n3 (3) is alive");
  // Also if only another survivor hears it.
  cluster_->Block(0, 2);
  cluster_->Block(2, 0);
  cluster_->RunFor(absl::Seconds(6));
  ExpectRefused(Recover(0, {"n1", "n2"}), absl::StatusCode::kFailedPrecondition,
                "n3 (3) is alive");
  Lose({2});
  ExpectRefused(Recover(0, {"n1", "n2", "n3"}),
                absl::StatusCode::kFailedPrecondition, "remove-dead");
  ExpectRefused(Recover(0, {"n1", "n9"}), absl::StatusCode::kNotFound,
                "no member is called");
  RecoverCall planned;
  planned.survivors = {"n1", "n2"};
  planned.planned_for = 5;
  ExpectRefused(cluster_->Ask(0, planned), absl::StatusCode::kAborted,
                "ring epoch 5");
  EXPECT_EQ(Spec(0).epoch, 1u);
  EXPECT_TRUE(Recover(0, {"n1", "n2"}).status.ok());
}

TEST_F(ControlRecoveryTest, LostNodesThatLiveAllTheSameAreCutOff) {
  Form(3, 3);
  // A partition is taken for the loss of the majority.
  cluster_->Isolate(2);
  cluster_->RunFor(absl::Seconds(6));
  ASSERT_TRUE(cluster_->Ask(0, CreateKeyspaceCall{{{}, "there"}}).status.ok());
  ASSERT_TRUE(Recover(2, {"n3"}).status.ok());
  EXPECT_TRUE(
      cluster_->RunUntilTrue([&] { return Spec(2).members.size() == 1; }));
  cluster_->Heal();
  for (int i : {0, 1}) {
    ASSERT_TRUE(cluster_->RunUntilTrue(
        [&] { return cluster_->node(i).stop.has_value(); }, absl::Seconds(30)));
  }
  EXPECT_TRUE(cluster_->node(2).running);
}

TEST_F(ControlRecoveryTest, ANodeThatJustStartedDoesNotRecover) {
  Form(4, 3);
  Lose({0, 1, 2});
  cluster_->Start(2);
  cluster_->RunFor(absl::Milliseconds(500));
  ExpectRefused(Recover(2, {"n3"}), absl::StatusCode::kUnavailable,
                "started just now");
  cluster_->RunFor(absl::Seconds(6));
  EXPECT_TRUE(Recover(2, {"n3"}).status.ok());
  EXPECT_TRUE(Settles(1));
}

// --- upgrade ---

TEST_F(ControlRecoveryTest, TheFeatureLevelRisesOnceEveryMemberKnowsIt) {
  Form(20, 3, [](int i, ControlOptions& options) {
    options.feature_level_max = i == 1 ? 1 : 2;
  });
  const auto finish = [&](int at, uint32_t level = 0) {
    return cluster_->Ask(at, FinishUpgradeCall{level});
  };
  ExpectRefused(finish(0), absl::StatusCode::kFailedPrecondition,
                "n2 (2) knows up to 1");
  // Also where the asked node does not know it either.
  ExpectRefused(finish(1), absl::StatusCode::kFailedPrecondition,
                "not every member knows feature level 2");
  const AdminAnswer same = finish(2, 1);
  ASSERT_TRUE(same.status.ok()) << same.status;
  EXPECT_EQ(std::get<FinishUpgradeAnswer>(same.answer).level, 1u);
  EXPECT_EQ(Spec(0).epoch, 1u);
  const AdminAnswer status = cluster_->Ask(0, StatusCall{});
  EXPECT_EQ(std::get<StatusAnswer>(status.answer).nodes[1].feature_level_max,
            1u);

  cluster_->Crash(1);
  cluster_->RunFor(absl::Seconds(4));
  ExpectRefused(finish(0), absl::StatusCode::kFailedPrecondition,
                "n2 (2) cannot be heard");
  cluster_->node(1).options.feature_level_max = 3;
  cluster_->Start(1);
  ASSERT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->AllSeeAll(); }));
  ExpectRefused(finish(0), absl::StatusCode::kFailedPrecondition,
                "n1 (1) knows up to 2, n3 (3) knows up to 2");
  const AdminAnswer raised = finish(1, 2);
  ASSERT_TRUE(raised.status.ok()) << raised.status;
  const auto& answer = std::get<FinishUpgradeAnswer>(raised.answer);
  EXPECT_EQ(answer.level, 2u);
  EXPECT_EQ(answer.before, 1u);
  EXPECT_EQ(answer.ring_epoch, 2u);
  EXPECT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->AllAtEpoch(2); }));
  EXPECT_EQ(Spec(2).feature_level, 2u);
  ExpectRefused(finish(0, 1), absl::StatusCode::kFailedPrecondition,
                "no way back to 1");
}

TEST_F(ControlRecoveryTest, OlderProgramsDoNotComeBackAfterTheUpgrade) {
  Form(21, 3,
       [](int i, ControlOptions& options) { options.feature_level_max = 2; });
  ASSERT_TRUE(cluster_->Ask(0, FinishUpgradeCall{}).status.ok());
  EXPECT_TRUE(cluster_->RunUntilTrue([&] { return cluster_->AllAtEpoch(2); }));
  cluster_->Crash(1);
  cluster_->node(1).options.feature_level_max = 1;
  cluster_->Start(1);
  EXPECT_FALSE(cluster_->node(1).running);
  EXPECT_THAT(std::string(cluster_->node(1).start_error.message()),
              AllOf(HasSubstr("feature level 2"), HasSubstr("up to 1"),
                    HasSubstr("upgrade finish")));
  // Nor does one join.
  const int joiner = cluster_->Add("n4", {"n1:7800"}, "r1");
  cluster_->Start(joiner);
  cluster_->RunFor(absl::Seconds(6));
  StartOperationCall join;
  join.nodes = {"n4"};
  ExpectRefused(cluster_->Ask(0, join), absl::StatusCode::kFailedPrecondition,
                "knows feature levels up to 1, and the ring has 2");
}

}  // namespace
}  // namespace ringkv
