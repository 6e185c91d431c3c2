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

}  // namespace
}  // namespace ringkv
