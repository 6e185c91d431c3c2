#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/control/meta.h"
#include "membership/control/start.h"
#include "membership/epochs/ring_change.h"
#include "membership/ring/ring_codec.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;

constexpr WallTime kWall{1'700'000'000'000'000};

class StartNodeTest : public ::testing::Test {
 protected:
  absl::StatusOr<StartedNode> Start(WallTime wall = kWall) {
    return StartNode(
        [this](absl::string_view key)
            -> absl::StatusOr<std::optional<std::string>> {
          if (!read_error_.ok()) return read_error_;
          const auto found = disk_.find(std::string(key));
          if (found == disk_.end()) return std::optional<std::string>();
          return std::optional<std::string>(found->second);
        },
        options_, wall, random_);
  }
  void Apply(const std::vector<MetaWrite>& writes) {
    for (const MetaWrite& write : writes) {
      if (write.value.has_value()) {
        disk_[write.key] = *write.value;
      } else {
        disk_.erase(write.key);
      }
    }
    options_.has_data = true;
  }
  // A node with every kind of record on its disk.
  StartedNode Populate() {
    options_.name = "n1";
    options_.location = {"a", "r1", "h1"};
    const StartedNode node = *Start();
    Apply(node.writes);
    Member member;
    member.number = NodeNumber{1};
    member.id = node.id;
    member.name = "n1";
    member.client_address = "n1:7700";
    member.peer_address = "n1:7800";
    member.location = options_.location;
    const RingSpec spec =
        *FirstRing({7, 8}, PlacementStrategy::kHashed, 4, {member});
    AcceptorState acceptor;
    acceptor.epoch = 2;
    acceptor.promised = {5, NodeNumber{1}, 77};
    acceptor.accepted = {4, NodeNumber{1}, 77};
    acceptor.value = {{77, 3}, "value"};
    Apply({WriteRing(EncodeRing(spec), {{1, {77, 1}}}), WriteAcceptor(acceptor),
           WritePledge({{1, 2}, {3, 4}, "n9:7800", 5, 6}),
           WriteSeen({{NodeId{9, 9}, {3, 4, HlcTimestamp{5}}}}),
           WriteFinished({EndedReplace()})});
    return node;
  }

  static OperationStatus EndedReplace() {
    OperationStatus status;
    status.id = 300;
    status.kind = TopologyKind::kReplace;
    status.state = OperationState::kAborted;
    status.nodes = {{NodeNumber{5}, "n5"}};
    status.replaced = {{NodeNumber{2}, "n2"}};
    status.keyspace = "k";
    status.started_ms = 1'700'000'000'000;
    status.ended_ms = 1'700'000'000'300;
    status.progress = {
        {{NodeNumber{5}, "n5"}, false, {300, 8, 7, 1000, 99999, true}}};
    return status;
  }

  std::map<std::string, std::string> disk_;
  absl::Status read_error_;
  StartOptions options_;
  SeededRandom random_{1};
};

TEST_F(StartNodeTest, MakesAnIdentityOnAnEmptyDiskAndKeepsIt) {
  const StartedNode first = *Start();
  EXPECT_FALSE(first.id.IsNone());
  EXPECT_EQ(first.incarnation, 1u);
  EXPECT_NE(first.start_id, 0u);
  EXPECT_EQ(first.ring, nullptr);
  EXPECT_GT(first.hlc_bound, HlcFromMillis(kWall.millis()));
  Apply(first.writes);
  const StartedNode second = *Start();
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(second.incarnation, 2u);
  EXPECT_NE(second.start_id, first.start_id);
  // It goes on above whatever the first run may have given out.
  EXPECT_EQ(second.hlc_floor, first.hlc_bound);
  EXPECT_GT(second.hlc_bound, second.hlc_floor);
}

TEST_F(StartNodeTest, ReadsEverythingBack) {
  Populate();
  const absl::StatusOr<StartedNode> node = Start();
  ASSERT_TRUE(node.ok()) << node.status();
  ASSERT_NE(node->ring, nullptr);
  EXPECT_EQ(node->ring->epoch(), 1u);
  ASSERT_EQ(node->history.size(), 1u);
  EXPECT_EQ(node->history[0].id, (ProposalId{77, 1}));
  EXPECT_EQ(node->acceptor.promised.round, 5u);
  EXPECT_EQ(node->acceptor.value.ring, "value");
  ASSERT_TRUE(node->pledge.has_value());
  EXPECT_EQ(node->pledge->initiator_address, "n9:7800");
  EXPECT_EQ(node->seen.at(NodeId{9, 9}).incarnation, 3u);
  ASSERT_EQ(node->finished.size(), 1u);
  EXPECT_EQ(node->finished[0], EndedReplace());
}

TEST_F(StartNodeTest, DataWithoutAnIdentityIsRefused) {
  options_.has_data = true;
  const absl::StatusOr<StartedNode> node = Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(node.status()));
  EXPECT_THAT(std::string(node.status().message()),
              HasSubstr("no node identity"));
}

TEST_F(StartNodeTest, ALostIdentityIsNeverMadeAnew) {
  Populate();
  disk_.erase(std::string(kIdentityKey));
  for (bool has_data : {true, false}) {
    options_.has_data = has_data;
    EXPECT_TRUE(absl::IsFailedPrecondition(Start().status()));
  }
}

TEST_F(StartNodeTest, OtherLostRecordsAreNoticedWhereTheyMatter) {
  Populate();
  const auto whole = disk_;
  disk_.erase(std::string(kClockBoundKey));
  EXPECT_TRUE(absl::IsDataLoss(Start().status()));
  disk_ = whole;
  // Its vote on epoch 2 says that it had epoch 1.
  disk_.erase(std::string(kRingKey));
  EXPECT_TRUE(absl::IsDataLoss(Start().status()));
}

TEST_F(StartNodeTest, ADiskThatFailsIsToldAsItIs) {
  Populate();
  read_error_ = absl::InternalError("I/O error");
  EXPECT_EQ(Start().status(), read_error_);
}

TEST_F(StartNodeTest, EveryTruncationIsRefusedAndNamed) {
  const StartedNode node = Populate();
  const auto whole = disk_;
  for (const auto& [key, value] : whole) {
    for (size_t length = 0; length < value.size(); ++length) {
      disk_ = whole;
      disk_[key].resize(length);
      const absl::StatusOr<StartedNode> started = Start();
      ASSERT_FALSE(started.ok()) << key << " cut to " << length;
      ASSERT_TRUE(absl::IsDataLoss(started.status())) << started.status();
      ASSERT_THAT(std::string(started.status().message()), HasSubstr(key));
    }
  }
}

TEST_F(StartNodeTest, EveryFlippedBitIsRefusedAndNamed) {
  Populate();
  const auto whole = disk_;
  for (const auto& [key, value] : whole) {
    for (size_t bit = 0; bit < value.size() * 8; ++bit) {
      disk_ = whole;
      disk_[key][bit / 8] =
          static_cast<char>(disk_[key][bit / 8] ^ (1 << (bit % 8)));
      const absl::StatusOr<StartedNode> started = Start();
      ASSERT_FALSE(started.ok()) << key << " bit " << bit;
      ASSERT_THAT(std::string(started.status().message()), HasSubstr(key))
          << "bit " << bit;
    }
  }
}

TEST_F(StartNodeTest, ARecordInAnothersPlaceIsRefused) {
  Populate();
  disk_[std::string(kAcceptorKey)] = disk_[std::string(kPledgeKey)];
  EXPECT_TRUE(absl::IsDataLoss(Start().status()));
}

TEST_F(StartNodeTest, ANewerFormatIsRefusedAsSuch) {
  Populate();
  std::string& value = disk_[std::string(kIdentityKey)];
  value[0] = 2;
  // A flipped version alone would be garbled; a newer writer checks out. The
  // checksum does not cover the version, so it still does.
  const absl::StatusOr<StartedNode> node = Start();
  EXPECT_FALSE(node.ok());
  EXPECT_THAT(std::string(node.status().message()), HasSubstr("newer version"));
}

TEST_F(StartNodeTest, AChangedLocationIsRefusedOnceInARing) {
  Populate();
  options_.location.rack = "r2";
  const absl::StatusOr<StartedNode> node = Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(node.status()));
  EXPECT_THAT(std::string(node.status().message()),
              HasSubstr("zone=a,rack=r1,host=h1"));
  EXPECT_THAT(std::string(node.status().message()),
              HasSubstr("zone=a,rack=r2,host=h1"));
  // Not saying is not changing.
  options_.location = Location();
  const absl::StatusOr<StartedNode> silent = Start();
  ASSERT_TRUE(silent.ok()) << silent.status();
  EXPECT_EQ(silent->location.rack, "r1");
}

TEST_F(StartNodeTest, AStandbyNodeMayChangeItsLocation) {
  options_.location.rack = "r1";
  Apply(Start()->writes);
  options_.location.rack = "r2";
  const absl::StatusOr<StartedNode> node = Start();
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->location.rack, "r2");
}

TEST_F(StartNodeTest, QuickRestartsDoNotRunAwayFromTheWallClock) {
  for (int i = 0; i < 100; ++i) {
    const StartedNode node = *Start(WallTime{kWall.micros + i * 1'000'000});
    Apply(node.writes);
    EXPECT_LT(HlcMillis(node.hlc_floor) - (kWall.millis() + i * 1000), 5000);
  }
}

TEST_F(StartNodeTest, AWallClockThatWentBackDoesNotLowerTheBound) {
  const StartedNode first = *Start();
  Apply(first.writes);
  const StartedNode second = *Start(WallTime{1000});
  EXPECT_GT(second.hlc_bound, first.hlc_bound);
}

}  // namespace
}  // namespace ringkv
