#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "membership/ring/ring_codec.h"
#include "server/codec/control_codec.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

template <class Id>
Id RandomId(SeededRandom& random) {
  return {random.Next() | 1, random.Next()};
}

std::string RandomText(SeededRandom& random, size_t max) {
  std::string text(random.Uniform(max + 1), 'a');
  for (char& c : text) c = static_cast<char>('a' + random.Uniform(26));
  return text;
}

NodeFacts RandomFacts(SeededRandom& random) {
  NodeFacts facts;
  facts.id = RandomId<NodeId>(random);
  if (random.Chance(0.5)) facts.cluster_id = RandomId<ClusterId>(random);
  facts.lineage = random.Next();
  facts.former_lineages.resize(random.Uniform(3));
  for (uint64_t& lineage : facts.former_lineages) lineage = random.Next();
  facts.number = NodeNumber{static_cast<uint32_t>(random.Uniform(100))};
  facts.ring_epoch = random.Next();
  facts.incarnation = random.Next();
  facts.start_id = random.Next() | 1;
  facts.hlc_bound = HlcTimestamp{random.Next()};
  facts.hlc_found = HlcTimestamp{random.Next()};
  facts.protocol_min = static_cast<uint32_t>(random.Uniform(5));
  facts.protocol_max =
      facts.protocol_min + static_cast<uint32_t>(random.Uniform(5));
  facts.feature_level_max = static_cast<uint32_t>(random.Uniform(5));
  facts.name = RandomText(random, kNameBytesMax);
  facts.client_address = RandomText(random, kAddressBytesMax);
  facts.peer_address = RandomText(random, kAddressBytesMax);
  facts.location = {RandomText(random, 9), RandomText(random, 9),
                    RandomText(random, 9)};
  facts.weight = 0.5 + random.NextDouble();
  facts.version = RandomText(random, 20);
  return facts;
}

std::vector<KnownPeer> RandomKnown(SeededRandom& random) {
  std::vector<KnownPeer> known(random.Uniform(5));
  for (KnownPeer& peer : known) {
    peer = {RandomId<NodeId>(random), RandomText(random, 30)};
  }
  return known;
}

Ballot RandomBallot(SeededRandom& random) {
  return {random.Next() | 1, NodeNumber{static_cast<uint32_t>(random.Next())},
          random.Next()};
}

PaxosValue RandomValue(SeededRandom& random) {
  return {{random.Next(), random.Next()}, RandomText(random, 100)};
}

GossipUpdate RandomUpdate(SeededRandom& random) {
  GossipUpdate update;
  update.id = RandomId<NodeId>(random);
  update.version = {random.Next(), random.Uniform(kRefutationsMax + 1)};
  update.state = static_cast<Liveness>(random.Uniform(3));
  if (update.state != Liveness::kAlive && random.Chance(0.5)) {
    update.accuser = RandomId<NodeId>(random);
  }
  if (update.state == Liveness::kAlive || random.Chance(0.5)) {
    NodeProfile profile;
    profile.serial = random.Next();
    profile.start_id = random.Next();
    if (random.Chance(0.5)) profile.cluster_id = RandomId<ClusterId>(random);
    profile.number = NodeNumber{static_cast<uint32_t>(random.Next())};
    profile.name = RandomText(random, kNameBytesMax);
    profile.client_address = RandomText(random, kAddressBytesMax);
    profile.peer_address = RandomText(random, kAddressBytesMax);
    profile.location = {RandomText(random, 9), RandomText(random, 9),
                        RandomText(random, 9)};
    profile.ring_epoch = random.Next();
    profile.draining = random.Chance(0.5);
    profile.in_flight = random.Next();
    profile.disk_bytes = random.Next();
    profile.read_only = random.Chance(0.5);
    update.profile = std::move(profile);
  }
  return update;
}

GossipMessage RandomGossip(SeededRandom& random) {
  std::vector<GossipUpdate> updates;
  for (uint64_t i = random.Uniform(kGossipUpdatesMax + 1); i > 0; --i) {
    updates.push_back(RandomUpdate(random));
  }
  switch (random.Uniform(5)) {
    case 0:
      return GossipPing{random.Next(), std::move(updates)};
    case 1:
      return GossipRequest{random.Next(), RandomId<NodeId>(random),
                           std::move(updates)};
    case 2:
      return GossipAck{random.Next(), RandomId<NodeId>(random),
                       std::move(updates)};
    case 3:
      return GossipNack{random.Next()};
    default:
      return GossipExchange{random.Chance(0.5), std::move(updates)};
  }
}

ControlMessage RandomMessage(SeededRandom& random) {
  switch (random.Uniform(11)) {
    case 0: {
      Heartbeat beat;
      beat.incarnation = random.Next();
      beat.start_id = random.Next();
      beat.sequence = random.Next();
      beat.echo_sequence = random.Next();
      beat.echo_delay_micros = random.Next();
      beat.hears_you = random.Chance(0.5);
      beat.next_micros = random.Uniform(kNextHeartbeatMicrosMax + 1);
      if (random.Chance(0.5)) beat.cluster_id = RandomId<ClusterId>(random);
      beat.lineage = random.Next();
      beat.number = NodeNumber{static_cast<uint32_t>(random.Next())};
      beat.known_epoch = random.Next();
      beat.adopted_epoch = random.Next();
      beat.wall_micros = static_cast<int64_t>(random.Next());
      beat.hlc = HlcTimestamp{random.Next()};
      beat.hlc_bound = HlcTimestamp{random.Next()};
      beat.draining = random.Chance(0.5);
      if (random.Chance(0.5)) beat.init = RandomId<ClusterId>(random);
      beat.load.in_flight = random.Next();
      beat.load.disk_bytes = random.Next();
      beat.load.read_only = random.Chance(0.5);
      beat.load.keys = random.Next();
      for (uint64_t i = random.Uniform(4); i > 0; --i) {
        beat.load.hints.push_back(
            {NodeNumber{static_cast<uint32_t>(random.Next()) | 1},
             random.Next(), random.Next(), random.Next(), random.Next(),
             random.Next()});
      }
      beat.load.epoch = random.Next();
      if (random.Chance(0.5)) {
        beat.transfers = {random.Next() | 1, random.Next(), 0,
                          random.Next(),     random.Next(), false};
        beat.transfers.done = random.Chance(0.5);
        if (beat.transfers.done) {
          beat.transfers.ranges_done = beat.transfers.ranges;
        }
      }
      for (uint64_t i = random.Uniform(4); i > 0; --i) {
        beat.silent.push_back(
            NodeNumber{static_cast<uint32_t>(random.Next()) | 1});
      }
      return beat;
    }
    case 10:
      return RandomGossip(random);
    case 1:
      return RingFetch{random.Next()};
    case 2: {
      RingDecided decided{random.Next(), RandomText(random, 100), {}};
      for (uint64_t i = random.Uniform(4); i > 0; --i) {
        decided.history.push_back(
            {random.Next(), {random.Next(), random.Next()}});
      }
      return decided;
    }
    case 3:
      return PaxosPrepare{random.Next(), RandomBallot(random)};
    case 4: {
      PaxosPromise promise;
      promise.epoch = random.Next();
      promise.ballot = RandomBallot(random);
      promise.granted = random.Chance(0.5);
      if (random.Chance(0.5)) promise.promised = RandomBallot(random);
      if (random.Chance(0.5)) {
        promise.accepted = RandomBallot(random);
        promise.value = RandomValue(random);
      }
      promise.known_epoch = random.Next();
      promise.hlc_bound = HlcTimestamp{random.Next()};
      return promise;
    }
    case 5:
      return PaxosAccept{random.Next(), RandomBallot(random),
                         RandomValue(random)};
    case 6:
      return PaxosAccepted{random.Next(),      RandomBallot(random),
                           random.Chance(0.5), RandomBallot(random),
                           random.Next(),      HlcTimestamp{random.Next()}};
    case 7:
      return InitPrepare{RandomId<ClusterId>(random), random.Next()};
    case 8:
      return InitVote{RandomId<ClusterId>(random), random.Chance(0.5),
                      RandomText(random, 50)};
    default:
      return InitRelease{RandomId<ClusterId>(random)};
  }
}

TEST(ControlCodecTest, WhatIsSaidIsHeard) {
  SeededRandom random(1);
  for (int i = 0; i < 3000; ++i) {
    const ControlMessage message = RandomMessage(random);
    const absl::StatusOr<ControlMessage> back =
        DecodeControl(EncodeControl(message));
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_EQ(*back, message) << "kind " << message.index();

    HelloRequest hello;
    hello.from = RandomFacts(random);
    if (random.Chance(0.5)) hello.expected = RandomId<NodeId>(random);
    hello.known = RandomKnown(random);
    const absl::StatusOr<HelloRequest> heard =
        DecodeHelloRequest(EncodeHelloRequest(hello));
    ASSERT_TRUE(heard.ok()) << heard.status();
    ASSERT_EQ(*heard, hello);

    HelloReply reply;
    reply.outcome = static_cast<HelloOutcome>(random.Uniform(9));
    reply.message = RandomText(random, 100);
    reply.from = RandomFacts(random);
    reply.known = RandomKnown(random);
    reply.live_incarnation = random.Next();
    const absl::StatusOr<HelloReply> answered =
        DecodeHelloReply(EncodeHelloReply(reply));
    ASSERT_TRUE(answered.ok()) << answered.status();
    ASSERT_EQ(*answered, reply);
  }
}

// Changes bytes of valid messages; whatever decodes must be encodable again.
TEST(ControlCodecTest, HostileBytesAreRefusedOrHarmless) {
  // Each string that is no UTF-8 is logged by the library.
  google::protobuf::SetLogHandler(nullptr);
  SeededRandom random(2);
  const auto damage = [&](std::string bytes) {
    for (uint64_t i = 1 + random.Uniform(4); i > 0 && !bytes.empty(); --i) {
      const size_t at = random.Uniform(bytes.size());
      switch (random.Uniform(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.Next());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Uniform(8)));
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.insert(at, std::string(1 + random.Uniform(3),
                                       static_cast<char>(random.Next())));
          break;
      }
    }
    return bytes;
  };
  for (int i = 0; i < 20000; ++i) {
    const absl::StatusOr<ControlMessage> message =
        DecodeControl(damage(EncodeControl(RandomMessage(random))));
    if (message.ok()) {
      ASSERT_EQ(*DecodeControl(EncodeControl(*message)), *message);
    } else {
      ASSERT_TRUE(absl::IsInvalidArgument(message.status()));
    }
    HelloRequest hello;
    hello.from = RandomFacts(random);
    hello.known = RandomKnown(random);
    const absl::StatusOr<HelloRequest> heard =
        DecodeHelloRequest(damage(EncodeHelloRequest(hello)));
    if (heard.ok()) {
      ASSERT_TRUE(DecodeHelloRequest(EncodeHelloRequest(*heard)).ok());
    } else {
      ASSERT_TRUE(absl::IsInvalidArgument(heard.status()));
    }
    std::string noise(random.Uniform(60), '\0');
    for (char& c : noise) c = static_cast<char>(random.Next());
    (void)DecodeControl(noise).ok();
    (void)DecodeHelloRequest(noise).ok();
    (void)DecodeHelloReply(noise).ok();
  }
}

absl::Status RequestStatus(
    const std::function<void(internal::v1::HelloRequest&)>& change) {
  SeededRandom random(3);
  HelloRequest hello;
  hello.from = RandomFacts(random);
  internal::v1::HelloRequest message;
  HelloRequestToProto(hello, message);
  change(message);
  return HelloRequestFromProto(message).status();
}

TEST(ControlCodecTest, FieldsOutOfTheirLimitsAreNamed) {
  const auto message_of = [](absl::Status status) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(message_of(RequestStatus(
                  [](auto& m) { m.mutable_from()->set_node_id("short"); })),
              HasSubstr("node_id"));
  EXPECT_THAT(message_of(RequestStatus(
                  [](auto& m) { m.mutable_from()->clear_node_id(); })),
              HasSubstr("node_id"));
  EXPECT_THAT(message_of(RequestStatus([](auto& m) {
                m.mutable_from()->set_name(std::string(1000, 'x'));
              })),
              HasSubstr("1000 bytes, at most 255"));
  EXPECT_THAT(message_of(RequestStatus(
                  [](auto& m) { m.mutable_from()->set_weight(0.0 / 0.0); })),
              HasSubstr("weight"));
  EXPECT_THAT(message_of(RequestStatus(
                  [](auto& m) { m.mutable_from()->set_weight(65); })),
              HasSubstr("weight"));
  EXPECT_THAT(message_of(RequestStatus([](auto& m) {
                m.mutable_from()->set_protocol_min(9);
                m.mutable_from()->set_protocol_max(8);
              })),
              HasSubstr("protocol_min"));
  EXPECT_THAT(message_of(RequestStatus([](auto& m) {
                for (size_t i = 0; i <= kKnownPeersMax; ++i) {
                  m.add_known()->set_node_id(std::string(16, 'x'));
                }
              })),
              HasSubstr("at most 1024"));
}

TEST(ControlCodecTest, AReasonThatIsNotKnownIsARefusal) {
  SeededRandom random(4);
  HelloReply reply;
  reply.from = RandomFacts(random);
  internal::v1::HelloReply message;
  HelloReplyToProto(reply, message);
  message.set_outcome(static_cast<internal::v1::HelloOutcome>(77));
  EXPECT_EQ(HelloReplyFromProto(message)->outcome, HelloOutcome::kRefused);
}

TEST(ControlCodecTest, LongListsAreCutBeforeTheyAreSaid) {
  Heartbeat beat;
  for (uint32_t i = 1; i <= 1000; ++i) {
    beat.load.hints.push_back({NodeNumber{i}, 1, 1, 1, 1, 1});
  }
  const absl::StatusOr<ControlMessage> back =
      DecodeControl(EncodeControl(beat));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(std::get<Heartbeat>(*back).load.hints, SizeIs(kHintTargetsMax));
}

TEST(ControlCodecTest, AReportOfTransfersMustAddUp) {
  Heartbeat beat;
  beat.transfers = {5, 3, 4, 0, 0, false};
  EXPECT_THAT(
      std::string(DecodeControl(EncodeControl(beat)).status().message()),
      HasSubstr("transfers.ranges_done"));
  beat.transfers = {5, 3, 2, 0, 0, true};
  EXPECT_THAT(
      std::string(DecodeControl(EncodeControl(beat)).status().message()),
      HasSubstr("transfers.done"));
  beat.transfers = {5, 3, 3, 0, 0, true};
  beat.silent = {kNoNode};
  EXPECT_THAT(
      std::string(DecodeControl(EncodeControl(beat)).status().message()),
      HasSubstr("silent"));
}

TEST(ControlCodecTest, AHeartbeatDoesNotAnnounceAnEndlessSilence) {
  internal::v1::ControlMessage message;
  ControlToProto(Heartbeat(), message);
  ASSERT_TRUE(ControlFromProto(message).ok());
  message.mutable_heartbeat()->set_next_micros(kNextHeartbeatMicrosMax + 1);
  EXPECT_THAT(std::string(ControlFromProto(message).status().message()),
              HasSubstr("next_micros"));
}

TEST(ControlCodecTest, LongTextsAreCutBetweenCharacters) {
  SeededRandom random(5);
  HelloReply reply;
  reply.from = RandomFacts(random);
  reply.from.name = "";
  while (reply.from.name.size() <= kNameBytesMax) {
    reply.from.name += "\xe2\x82\xac";  // three bytes, a euro sign
  }
  reply.from.name.insert(0, "x");
  const absl::StatusOr<HelloReply> back =
      DecodeHelloReply(EncodeHelloReply(reply));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->from.name, reply.from.name.substr(0, 1 + 84 * 3));
}

}  // namespace
}  // namespace ringkv
