// Whatever a peer sends, a shard answers or drops it: no crash, no wrong value
// for keys that the message does not name.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "tests/server/shard/shard_cluster.h"

namespace ringkv {
namespace {

std::string RandomBytes(Random& random, size_t size_max) {
  std::string bytes(random.Uniform(size_max + 1), '\0');
  for (char& c : bytes) c = static_cast<char>(random.Next());
  return bytes;
}

// Mostly an encoded object with a few bytes changed; sometimes noise.
std::string RandomObject(Random& random, const std::string& valid) {
  if (random.Chance(0.2)) return RandomBytes(random, 64);
  std::string bytes = valid;
  for (uint64_t i = random.Uniform(4); i > 0 && !bytes.empty(); --i) {
    bytes[random.Uniform(bytes.size())] = static_cast<char>(random.Next());
  }
  if (random.Chance(0.2)) bytes.resize(random.Uniform(bytes.size() + 1));
  return bytes;
}

DataBody RandomBody(Random& random, const std::string& valid,
                    const std::string& key) {
  const uint64_t operation =
      random.Chance(0.5) ? random.Next() : random.Uniform(100);
  const KeyspaceId keyspace{static_cast<uint32_t>(random.Uniform(3))};
  const auto code = static_cast<ReplyCode>(random.Uniform(7));
  const absl::Duration remaining =
      absl::Milliseconds(static_cast<int64_t>(random.Uniform(2000)) - 100);
  std::vector<NodeNumber> nodes;
  for (uint64_t i = random.Uniform(4); i > 0; --i) {
    nodes.push_back(NodeNumber{static_cast<uint32_t>(random.Uniform(9))});
  }
  switch (random.Uniform(8)) {
    case 0:
      return ReadRequest{operation,
                         keyspace,
                         key,
                         static_cast<ReadKind>(random.Uniform(3)),
                         random.Chance(0.5),
                         remaining};
    case 1:
      return ReadReply{operation,
                       code,
                       static_cast<ReadKind>(random.Uniform(3)),
                       random.Chance(0.5),
                       random.Next(),
                       RandomObject(random, valid),
                       nodes};
    case 2:
      return WriteRequest{
          operation, keyspace,
          key,       RandomObject(random, valid),
          nodes,     static_cast<WritePurpose>(random.Uniform(3))};
    case 3:
      return WriteReply{operation, random.Chance(0.5), code,
                        RandomBytes(random, 20)};
    case 4: {
      ForwardRequest forward;
      forward.operation = operation;
      forward.start_id = random.Uniform(2);
      if (random.Chance(0.5)) {
        GetCall get;
        get.key = key;
        get.r = random.Uniform(6);
        get.quorum = static_cast<Quorum>(random.Uniform(3));
        forward.call = get;
      } else {
        PutCall put;
        put.key = key;
        put.is_delete = random.Chance(0.3);
        put.value = RandomBytes(random, 20);
        put.w = random.Uniform(6);
        put.blind = random.Chance(0.3);
        if (random.Chance(0.3)) put.context = RandomBytes(random, 40);
        put.quorum = static_cast<Quorum>(random.Uniform(3));
        put.request.id = random.Chance(0.5) ? "id" : "";
        forward.call = put;
      }
      forward.remaining = remaining;
      return forward;
    }
    case 5:
      return ForwardReply{operation, code, ClientAnswer{}};
    case 6: {
      RangeRequest range;
      range.operation = operation;
      range.keyspace = keyspace;
      range.after_token = random.Next();
      range.after_key = RandomBytes(random, 20);
      range.from_start = random.Chance(0.3);
      range.entries_max = static_cast<uint32_t>(random.Next());
      range.bytes_max = static_cast<uint32_t>(random.Next());
      range.keys_only = random.Chance(0.5);
      range.remaining = remaining;
      return range;
    }
    default: {
      RangeReply range;
      range.operation = operation;
      range.code = code;
      range.items.push_back({key, RandomObject(random, valid)});
      range.complete = random.Chance(0.5);
      range.covered_token = random.Next();
      range.covered_key = RandomBytes(random, 20);
      return range;
    }
  }
}

TEST(HostilePeerTest, RandomMessagesNeverCrashAShardNorTouchOtherKeys) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRandom random(seed);
    ShardCluster cluster(4);
    PutCall put;
    put.key = "mine";
    put.value = "value";
    ASSERT_TRUE(cluster.Ask(NodeNumber{1}, put).status.ok());
    const std::string valid =
        *cluster.Stored(cluster.Replicas("mine")[0], "mine");
    for (int i = 0; i < 500; ++i) {
      DataMessage message;
      message.epoch = random.Chance(0.9) ? 1 : random.Uniform(4);
      message.body = RandomBody(random, valid,
                                "other" + std::to_string(random.Uniform(5)));
      cluster.Inject(NodeNumber{static_cast<uint32_t>(random.Uniform(6))},
                     NodeNumber{static_cast<uint32_t>(1 + random.Uniform(4))},
                     std::move(message));
      if (i % 50 == 0) {
        GetCall get;
        get.key = "other" + std::to_string(random.Uniform(5));
        cluster.Call(NodeNumber{1}, get, absl::Seconds(1));
        cluster.Call(NodeNumber{2}, ScanCall{}, absl::Seconds(1));
        cluster.Advance(absl::Milliseconds(20));
      }
    }
    cluster.Advance(absl::Seconds(20));
    GetCall get;
    get.key = "mine";
    get.r = 3;
    const ClientAnswer answer = cluster.Ask(NodeNumber{2}, get);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    const auto& siblings = std::get<GetAnswer>(answer.answer).siblings;
    ASSERT_EQ(siblings.size(), 1u);
    EXPECT_EQ(siblings[0].value, "value");
  }
}

}  // namespace
}  // namespace ringkv
