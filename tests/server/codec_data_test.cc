#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codec/data_codec.h"

namespace ringkv {
namespace {

namespace pb = internal::v1;
using ::testing::HasSubstr;

// Draws any message that the codec must carry unchanged.
class Drawer {
 public:
  explicit Drawer(uint64_t seed) : random_(seed) {}

  Random& random() { return random_; }

  std::string Bytes(size_t min, size_t max) {
    std::string bytes(min + random_.Uniform(max - min + 1), '\0');
    for (char& c : bytes) c = static_cast<char>(random_.Next());
    return bytes;
  }
  std::string Name() {
    std::string name(random_.Uniform(20), '\0');
    for (char& c : name) c = static_cast<char>('a' + random_.Uniform(26));
    return name;
  }
  template <class Enum>
  Enum Any(Enum last) {
    return static_cast<Enum>(random_.Uniform(static_cast<uint64_t>(last) + 1));
  }
  bool Coin() { return random_.Chance(0.5); }
  uint32_t Small() { return static_cast<uint32_t>(random_.Uniform(5)); }
  absl::Duration Span() {
    return absl::Microseconds(
        static_cast<int64_t>(random_.Uniform(3600000000)));
  }
  std::vector<NodeNumber> Nodes() {
    std::vector<NodeNumber> nodes;
    for (uint32_t i = Small(); i > 0; --i) {
      nodes.push_back(
          NodeNumber{1 + static_cast<uint32_t>(random_.Uniform(UINT32_MAX))});
    }
    return nodes;
  }
  std::optional<std::string> Context() {
    if (Coin()) return std::nullopt;
    return Bytes(0, 40);
  }
  std::vector<SiblingAnswer> Siblings() {
    std::vector<SiblingAnswer> siblings(Small());
    for (SiblingAnswer& sibling : siblings) {
      sibling.value = Bytes(0, 100);
      sibling.hlc = HlcTimestamp{random_.Next()};
      sibling.expires_at_ms = static_cast<int64_t>(random_.Next());
    }
    return siblings;
  }
  absl::Status Status() {
    return absl::Status(static_cast<absl::StatusCode>(random_.Uniform(17)),
                        Name());
  }

  ClientCall Call() {
    switch (random_.Uniform(4)) {
      case 0:
        return GetCall{Name(), Bytes(1, 100), Small(), Any(Quorum::kStrict),
                       Small()};
      case 1: {
        PutCall put;
        put.keyspace = Name();
        put.key = Bytes(1, 100);
        put.is_delete = Coin();
        put.value = Bytes(0, 300);
        put.context = Context();
        put.blind = Coin();
        put.w = Small();
        put.quorum = Any(Quorum::kStrict);
        put.ttl = Span();
        put.request = {Bytes(0, 64), Span(), random_.Next()};
        return put;
      }
      case 2:
        return ScanCall{Name(), Bytes(0, 30), Small(), Coin(), Small()};
      default:
        return LocateCall{Name(), Bytes(1, 100)};
    }
  }

  ClientAnswer Answer() {
    ClientAnswer answer;
    answer.status = Status();
    answer.ring_epoch = random_.Next();
    switch (random_.Uniform(5)) {
      case 0:
        answer.answer = GetAnswer{Siblings(), Context()};
        break;
      case 1:
        answer.answer = PutAnswer{Context(), Small(), Small(), Small()};
        break;
      case 2: {
        ScanAnswer scan;
        scan.entries.resize(Small());
        for (ScanAnswer::Entry& entry : scan.entries) {
          entry = {Bytes(1, 40), Siblings(), Bytes(0, 40)};
        }
        scan.cursor = Bytes(0, 40);
        answer.answer = std::move(scan);
        break;
      }
      case 3: {
        LocateAnswer locate;
        locate.token = random_.Next();
        locate.copies.resize(Small());
        for (LocateAnswer::Copy& copy : locate.copies) {
          copy.node = NodeNumber{1 + Small()};
          copy.replica = Coin();
          copy.pending = Coin();
          copy.status = Status();
          copy.found = Coin();
          copy.tombstone = Coin();
          copy.siblings = Small();
          copy.bytes = random_.Next();
          copy.digest = random_.Next();
          copy.newest = HlcTimestamp{random_.Next()};
          copy.hint_for = Nodes();
        }
        answer.answer = std::move(locate);
        break;
      }
      default:
        break;
    }
    return answer;
  }

  DataBody Body() {
    switch (random_.Uniform(10)) {
      case 0:
        return ReadRequest{random_.Next(), KeyspaceId{1 + Small()},
                           Bytes(1, 100),  Any(ReadKind::kClock),
                           Coin(),         Span()};
      case 1:
        return ReadReply{random_.Next(),
                         Any(ReplyCode::kUnchecked),
                         Any(ReadKind::kClock),
                         Coin(),
                         random_.Next(),
                         Bytes(0, 500),
                         Nodes()};
      case 2:
        return WriteRequest{random_.Next(), KeyspaceId{1 + Small()},
                            Bytes(1, 100),  Bytes(1, 500),
                            Nodes(),        Any(WritePurpose::kHandoff)};
      case 3:
        return WriteReply{random_.Next(), random_.Chance(0.5),
                          Any(ReplyCode::kUnchecked), Name()};
      case 4:
        return ForwardRequest{
            random_.Next(), random_.Next(), Call(), Span(),
            WallTime{static_cast<int64_t>(random_.Uniform(uint64_t{1} << 60))}};
      case 5:
        return ForwardReply{random_.Next(), Any(ReplyCode::kUnchecked),
                            Answer()};
      case 6:
        return RangeRequest{random_.Next(), KeyspaceId{1 + Small()},
                            random_.Next(), Bytes(0, 50),
                            Coin(),         Small(),
                            Small(),        Coin(),
                            Span()};
      case 7: {
        StreamRequest request{random_.Next(),
                              random_.Next(),
                              KeyspaceId{1 + Small()},
                              Any(StreamKind::kDigests),
                              {random_.Next(), Bytes(0, 50)},
                              0,
                              Small(),
                              Small()};
        request.last =
            request.from.token + random_.Uniform(~request.from.token);
        return request;
      }
      case 8: {
        StreamChunk chunk;
        chunk.operation = random_.Next();
        chunk.code = Any(ReplyCode::kExpired);
        chunk.kind = Any(StreamKind::kDigests);
        chunk.from = {random_.Next(), Bytes(0, 50)};
        chunk.items.resize(Small());
        for (StreamChunk::Item& item : chunk.items) {
          item.key = Bytes(1, 50);
          item.digest = random_.Next();
          if (chunk.kind == StreamKind::kObjects) item.object = Bytes(1, 200);
        }
        chunk.complete = Coin();
        chunk.next = {random_.Next(), Bytes(0, 50)};
        chunk.checksum = random_.Next();
        return chunk;
      }
      default: {
        RangeReply reply;
        reply.operation = random_.Next();
        reply.code = Any(ReplyCode::kUnchecked);
        reply.items.resize(Small());
        for (RangeReply::Item& item : reply.items) {
          item = {Bytes(1, 50), Bytes(1, 200)};
        }
        reply.complete = Coin();
        reply.covered_token = random_.Next();
        reply.covered_key = Bytes(0, 50);
        return reply;
      }
    }
  }

  DataMessage Message() { return {random_.Next(), Body()}; }

 private:
  SeededRandom random_;
};

TEST(DataCodecTest, AnyMessageComesBackEqual) {
  Drawer drawer(1);
  for (int i = 0; i < 20000; ++i) {
    const DataMessage message = drawer.Message();
    const absl::StatusOr<DataMessage> back = DecodeData(EncodeData(message));
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_EQ(*back, message) << "body " << message.body.index();
  }
}

TEST(DataCodecTest, DamagedBytesAreRefusedOrGiveAValidMessage) {
  Drawer drawer(2);
  Random& random = drawer.random();
  int refused = 0;
  for (int i = 0; i < 30000; ++i) {
    std::string bytes = EncodeData(drawer.Message());
    for (uint64_t change = 1 + random.Uniform(4); change > 0; --change) {
      if (bytes.empty()) break;
      const size_t at = random.Uniform(bytes.size());
      switch (random.Uniform(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.Next());
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.insert(at, drawer.Bytes(1, 8));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Uniform(8)));
      }
    }
    const absl::StatusOr<DataMessage> message = DecodeData(bytes);
    if (!message.ok()) {
      EXPECT_EQ(message.status().code(), absl::StatusCode::kInvalidArgument);
      ++refused;
      continue;
    }
    // What was accepted obeys the rules, so it can be sent on.
    const absl::StatusOr<DataMessage> again = DecodeData(EncodeData(*message));
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(*again, *message);
  }
  EXPECT_GT(refused, 1000);
}

TEST(DataCodecTest, NoiseIsRefused) {
  Drawer drawer(3);
  for (int i = 0; i < 30000; ++i) {
    // Must return; most noise is no message at all.
    (void)DecodeData(drawer.Bytes(0, 200));
  }
}

absl::Status Refusal(pb::DataMessage message) {
  return DataFromProto(std::move(message)).status();
}

TEST(DataCodecTest, UnknownEnumsAreRefusedByName) {
  pb::DataMessage message;
  message.mutable_read_reply()->set_code(static_cast<pb::ReplyCode>(99));
  EXPECT_THAT(std::string(Refusal(message).message()),
              HasSubstr("code: unknown value 99"));

  pb::DataMessage read;
  read.mutable_read_request()->set_key("k");
  read.mutable_read_request()->set_keyspace(1);
  read.mutable_read_request()->set_kind(static_cast<pb::ReadKind>(-1));
  EXPECT_THAT(std::string(Refusal(read).message()), HasSubstr("kind"));
}

TEST(DataCodecTest, MissingBodyAndMissingCallAreRefused) {
  EXPECT_FALSE(Refusal(pb::DataMessage()).ok());
  pb::DataMessage forward;
  forward.mutable_forward_request()->set_operation(1);
  EXPECT_THAT(std::string(Refusal(forward).message()), HasSubstr("call"));
}

TEST(DataCodecTest, KeysOutsideTheLimitsAreRefused) {
  pb::DataMessage message;
  pb::WriteRequest& write = *message.mutable_write_request();
  write.set_keyspace(1);
  write.set_object("o");
  EXPECT_THAT(std::string(Refusal(message).message()), HasSubstr("key"));
  write.set_key(std::string(kKeyBytesMax, 'k'));
  EXPECT_TRUE(Refusal(message).ok());
  write.set_key(std::string(kKeyBytesMax + 1, 'k'));
  EXPECT_THAT(std::string(Refusal(message).message()), HasSubstr("4097"));
}

TEST(DataCodecTest, NodeZeroAndKeyspaceZeroAreRefused) {
  pb::DataMessage message;
  pb::WriteRequest& write = *message.mutable_write_request();
  write.set_key("k");
  write.set_object("o");
  EXPECT_THAT(std::string(Refusal(message).message()), HasSubstr("keyspace"));
  write.set_keyspace(1);
  write.add_hint_for(0);
  EXPECT_THAT(std::string(Refusal(message).message()), HasSubstr("hint_for"));
}

TEST(DataCodecTest, DeadlinesAreCutToTheirBounds) {
  ReadRequest read;
  read.keyspace = KeyspaceId{1};
  read.key = "k";
  read.remaining = absl::InfiniteDuration();
  DataMessage back = *DecodeData(EncodeData({1, read}));
  EXPECT_EQ(std::get<ReadRequest>(back.body).remaining, kDeadlineMax);
  read.remaining = -absl::Seconds(1);
  back = *DecodeData(EncodeData({1, read}));
  EXPECT_EQ(std::get<ReadRequest>(back.body).remaining, absl::ZeroDuration());
  read.remaining = absl::Nanoseconds(1);
  back = *DecodeData(EncodeData({1, read}));
  EXPECT_EQ(std::get<ReadRequest>(back.body).remaining, absl::Microseconds(1));
}

TEST(DataCodecTest, ErrorTextsThatQuoteBinaryKeysStillArrive) {
  WriteReply reply;
  reply.code = ReplyCode::kFailed;
  reply.message = "key \xff\xfe is bad";
  const absl::StatusOr<DataMessage> back = DecodeData(EncodeData({1, reply}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<WriteReply>(back->body).message, reply.message);
}

}  // namespace
}  // namespace ringkv
