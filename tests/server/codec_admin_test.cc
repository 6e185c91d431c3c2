#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codec/admin_codec.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;

TEST(AdminCodecTest, InitKeepsItsFieldsAndRefusesUnknownPlacements) {
  v1::InitRequest request;
  request.set_dry_run(true);
  request.set_expected_nodes(5);
  request.set_placement(v1::PLACEMENT_STRATEGY_HASHED);
  request.set_vnodes(100);
  const absl::StatusOr<AdminCall> call = AdminFromProto(request);
  ASSERT_TRUE(call.ok()) << call.status();
  const InitCall& init = std::get<InitCall>(*call);
  EXPECT_TRUE(init.dry_run);
  EXPECT_EQ(init.expected_nodes, 5);
  EXPECT_EQ(init.placement, PlacementStrategy::kHashed);
  EXPECT_EQ(init.vnodes, 100);
  request.set_placement(static_cast<v1::PlacementStrategy>(9));
  EXPECT_EQ(AdminFromProto(request).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(AdminCodecTest, AlterTellsAbsentFromZero) {
  v1::AlterKeyspaceRequest request;
  request.set_name("ks");
  request.set_durability(v1::DURABILITY_SYNC);
  request.set_n(0);
  const absl::StatusOr<AdminCall> call = AdminFromProto(request);
  ASSERT_TRUE(call.ok()) << call.status();
  const AlterKeyspaceCall& alter = std::get<AlterKeyspaceCall>(*call);
  EXPECT_EQ(alter.durability, Durability::kSync);
  EXPECT_EQ(alter.quorum, std::nullopt);
  EXPECT_EQ(alter.n, 0);
  EXPECT_EQ(alter.r, std::nullopt);
  request.set_quorum(v1::QUORUM_DEFAULT);
  EXPECT_THAT(std::string(AdminFromProto(request).status().message()),
              HasSubstr("quorum"));
  request.clear_quorum();
  request.set_durability(static_cast<v1::Durability>(7));
  EXPECT_THAT(std::string(AdminFromProto(request).status().message()),
              HasSubstr("durability"));
}

TEST(AdminCodecTest, KeyspacesWithoutANameAreRefused) {
  EXPECT_FALSE(AdminFromProto(v1::CreateKeyspaceRequest()).ok());
  EXPECT_FALSE(AdminFromProto(v1::AlterKeyspaceRequest()).ok());
  EXPECT_FALSE(AdminFromProto(v1::DropKeyspaceRequest()).ok());
}

TEST(AdminCodecTest, StatusShowsNodesWithPrintableNames) {
  StatusAnswer status;
  status.number = NodeNumber{2};
  status.id = NodeId{1, 2};
  status.nodes.push_back({});
  status.nodes.back().name = "n\xff";
  status.nodes.back().state = NodeState::kDown;
  status.warnings = {"look"};
  AdminAnswer answer;
  answer.answer = status;
  v1::StatusResponse response;
  ASSERT_TRUE(AdminToProto(answer, response).ok());
  EXPECT_EQ(response.node_number(), 2);
  EXPECT_EQ(response.cluster_id(), "");
  ASSERT_EQ(response.nodes_size(), 1);
  EXPECT_EQ(response.nodes(0).name(), "n?");
  EXPECT_EQ(response.nodes(0).state(), v1::NODE_STATE_DOWN);
  EXPECT_EQ(response.warnings(0), "look");
  v1::HintsResponse other;
  EXPECT_EQ(AdminToProto(answer, other).code(), absl::StatusCode::kInternal);
}

TEST(AdminCodecTest, OperationsAreJudgedBeforeTheyAreAsked) {
  v1::StartOperationRequest request;
  request.set_kind(v1::TOPOLOGY_KIND_REPLACE);
  request.add_nodes("3");
  request.add_replacements("n9");
  request.set_planned_for(7);
  request.set_dry_run(true);
  const absl::StatusOr<AdminCall> call = AdminFromProto(request);
  ASSERT_TRUE(call.ok()) << call.status();
  const StartOperationCall& start = std::get<StartOperationCall>(*call);
  EXPECT_EQ(start.kind, TopologyKind::kReplace);
  EXPECT_EQ(start.nodes, std::vector<std::string>{"3"});
  EXPECT_EQ(start.replacements, std::vector<std::string>{"n9"});
  EXPECT_EQ(start.planned_for, 7);
  EXPECT_TRUE(start.dry_run);
  const auto message = [](const v1::StartOperationRequest& bad) {
    const absl::Status status = AdminFromProto(bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  request.add_nodes("");
  EXPECT_THAT(message(request), HasSubstr("nodes: a name of 0 bytes"));
  request.clear_nodes();
  for (int i = 0; i < 1001; ++i) request.add_nodes("n");
  EXPECT_THAT(message(request), HasSubstr("nodes: 1001 nodes"));
  request.clear_nodes();
  request.set_kind(v1::TOPOLOGY_KIND_WEIGHT);
  EXPECT_THAT(message(request), HasSubstr("weight: 0"));
  request.set_kind(v1::TOPOLOGY_KIND_KEYSPACE);
  EXPECT_THAT(message(request), HasSubstr("kind"));
  request.set_kind(static_cast<v1::TopologyKind>(77));
  EXPECT_THAT(message(request), HasSubstr("kind: 77"));
}

TEST(AdminCodecTest, RecoveriesAndUpgradesKeepTheirFields) {
  v1::RecoverRequest request;
  request.add_survivors("n3");
  request.set_planned_for(7);
  request.set_dry_run(true);
  absl::StatusOr<AdminCall> call = AdminFromProto(request);
  ASSERT_TRUE(call.ok()) << call.status();
  const RecoverCall& recover = std::get<RecoverCall>(*call);
  EXPECT_EQ(recover.survivors, std::vector<std::string>{"n3"});
  EXPECT_EQ(recover.planned_for, 7);
  EXPECT_TRUE(recover.dry_run);
  request.add_survivors("");
  EXPECT_TRUE(absl::IsInvalidArgument(AdminFromProto(request).status()));
  v1::FinishUpgradeRequest finish;
  finish.set_level(3);
  call = AdminFromProto(finish);
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(std::get<FinishUpgradeCall>(*call).level, 3);

  RecoverAnswer recovered;
  recovered.survivors = {{NodeNumber{3}, "n3"}};
  recovered.lost = {{NodeNumber{1}, "n1"}, {NodeNumber{2}, "n2"}};
  recovered.plan.warnings = {"lost"};
  recovered.ring_epoch = 1001;
  recovered.lineage = ~uint64_t{0};
  recovered.operation = 1001;
  AdminAnswer answer;
  answer.answer = recovered;
  v1::RecoverResponse response;
  ASSERT_TRUE(AdminToProto(answer, response).ok());
  EXPECT_EQ(response.survivors(0).name(), "n3");
  EXPECT_EQ(response.lost_size(), 2);
  EXPECT_EQ(response.plan().warnings(0), "lost");
  EXPECT_EQ(response.ring_epoch(), 1001);
  EXPECT_EQ(response.lineage(), ~uint64_t{0});
  EXPECT_EQ(response.operation(), 1001);
  answer.answer = FinishUpgradeAnswer{2, 1, 9};
  v1::FinishUpgradeResponse finished;
  ASSERT_TRUE(AdminToProto(answer, finished).ok());
  EXPECT_EQ(finished.level(), 2);
  EXPECT_EQ(finished.before(), 1);
  EXPECT_EQ(finished.ring_epoch(), 9);
}

TEST(AdminCodecTest, OperationsAreToldWithWhomTheyWaitFor) {
  OperationsAnswer operations;
  operations.ring_epoch = 9;
  OperationStatus& running = operations.running.emplace();
  running.id = 8;
  running.kind = TopologyKind::kDecommission;
  running.state = OperationState::kSwitching;
  running.nodes = {{NodeNumber{3}, "n3"}};
  running.progress.push_back(
      {{NodeNumber{1}, "n1"}, true, {8, 5, 4, 100, 1000, false}});
  running.waits = {{{NodeNumber{3}, "n3"}, "holds hints"}, {NodeRef(), "vote"}};
  operations.finished.push_back(running);
  operations.finished.back().state = OperationState::kAborted;
  AdminAnswer answer;
  answer.answer = operations;
  v1::OperationsResponse response;
  ASSERT_TRUE(AdminToProto(answer, response).ok());
  EXPECT_EQ(response.running().kind(), v1::TOPOLOGY_KIND_DECOMMISSION);
  EXPECT_EQ(response.running().state(), v1::OPERATION_STATE_SWITCHING);
  EXPECT_EQ(response.running().progress(0).ranges_done(), 4);
  EXPECT_EQ(response.running().waits(0).node().name(), "n3");
  EXPECT_FALSE(response.running().waits(1).has_node());
  EXPECT_EQ(response.finished(0).state(), v1::OPERATION_STATE_ABORTED);
  EXPECT_EQ(response.ring_epoch(), 9);
}

}  // namespace
}  // namespace ringkv
