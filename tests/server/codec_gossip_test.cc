#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/ring/ring_codec.h"
#include "server/codec/gossip_codec.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

GossipUpdate Alive(uint64_t n) {
  GossipUpdate update;
  update.id = {1, n};
  update.version = {3, 4};
  update.profile.emplace();
  update.profile->name = "n1";
  return update;
}

// Of a valid ping with one update, after `change`.
std::string Refusal(
    const std::function<void(internal::v1::GossipMessage&)>& change) {
  internal::v1::GossipMessage message;
  GossipToProto(GossipPing{7, {Alive(1)}}, message);
  EXPECT_TRUE(GossipFromProto(message).ok());
  change(message);
  const absl::Status status = GossipFromProto(message).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

std::string UpdateRefusal(
    const std::function<void(internal::v1::GossipUpdate&)>& change) {
  return Refusal([&](internal::v1::GossipMessage& message) {
    change(*message.mutable_ping()->mutable_updates(0));
  });
}

TEST(GossipCodecTest, FieldsOutOfTheirLimitsAreNamed) {
  EXPECT_THAT(UpdateRefusal([](auto& u) { u.set_node_id("short"); }),
              HasSubstr("node_id"));
  EXPECT_THAT(UpdateRefusal([](auto& u) { u.clear_node_id(); }),
              HasSubstr("node_id"));
  EXPECT_THAT(UpdateRefusal([](auto& u) { u.set_accuser_id("short"); }),
              HasSubstr("accuser_id"));
  EXPECT_THAT(
      UpdateRefusal([](auto& u) { u.set_accuser_id(std::string(16, 'x')); }),
      HasSubstr("of a node that is alive"));
  EXPECT_THAT(UpdateRefusal([](auto& u) { u.clear_profile(); }),
              HasSubstr("profile"));
  // One more refutation must always fit.
  EXPECT_THAT(
      UpdateRefusal([](auto& u) { u.set_refutations(kRefutationsMax + 1); }),
      HasSubstr("refutations"));
  EXPECT_THAT(UpdateRefusal([](auto& u) {
                u.set_state(static_cast<internal::v1::Liveness>(3));
              }),
              HasSubstr("state: 3"));
  EXPECT_THAT(UpdateRefusal([](auto& u) {
                u.set_state(static_cast<internal::v1::Liveness>(-1));
              }),
              HasSubstr("state: -1"));
  EXPECT_THAT(UpdateRefusal([](auto& u) {
                u.mutable_profile()->set_name(std::string(1000, 'x'));
              }),
              HasSubstr("1000 bytes, at most 255"));
  EXPECT_THAT(UpdateRefusal([](auto& u) {
                u.mutable_profile()->set_peer_address(
                    std::string(kAddressBytesMax + 1, 'x'));
              }),
              HasSubstr("profile.peer_address"));
  EXPECT_THAT(UpdateRefusal([](auto& u) {
                u.mutable_profile()->mutable_location()->set_rack(
                    std::string(kNameBytesMax + 1, 'x'));
              }),
              HasSubstr("profile.location.rack"));
  EXPECT_THAT(UpdateRefusal([](auto& u) {
                u.mutable_profile()->set_cluster_id("short");
              }),
              HasSubstr("profile.cluster_id"));
}

TEST(GossipCodecTest, LongListsAreRefused) {
  EXPECT_THAT(Refusal([](auto& m) {
                for (size_t i = 0; i < kGossipUpdatesMax; ++i) {
                  *m.mutable_ping()->add_updates() = m.ping().updates(0);
                }
              }),
              HasSubstr("updates: 9 entries, at most 8"));
  EXPECT_THAT(Refusal([](auto& m) {
                const internal::v1::GossipUpdate update = m.ping().updates(0);
                for (size_t i = 0; i <= kGossipStatesMax; ++i) {
                  *m.mutable_exchange()->add_states() = update;
                }
              }),
              HasSubstr("states: 1026 entries, at most 1025"));
}

TEST(GossipCodecTest, ATargetIsNeeded) {
  EXPECT_THAT(Refusal([](auto& m) { m.mutable_request()->set_sequence(1); }),
              HasSubstr("target_id"));
  EXPECT_THAT(Refusal([](auto& m) { m.mutable_ack()->set_sequence(1); }),
              HasSubstr("target_id"));
  EXPECT_THAT(Refusal([](auto& m) { m.clear_body(); }), HasSubstr("body"));
}

TEST(GossipCodecTest, LongListsAndTextsAreCutBeforeTheyAreSaid) {
  GossipPing ping;
  for (uint64_t n = 1; n <= 20; ++n) ping.updates.push_back(Alive(n));
  ping.updates[0].profile->name = std::string(1000, 'x');
  internal::v1::GossipMessage message;
  GossipToProto(ping, message);
  const absl::StatusOr<GossipMessage> back = GossipFromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(std::get<GossipPing>(*back).updates, SizeIs(kGossipUpdatesMax));
}

}  // namespace
}  // namespace ringkv
