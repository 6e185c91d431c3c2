// A range on its way to who gains it: wiping, streaming, verifying, dropping.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "server/streaming/chunk.h"
#include "tests/server/shard/ring_changes.h"
#include "tests/server/shard/shard_cluster.h"

namespace ringkv {
namespace {

using ::testing::UnorderedElementsAre;

NodeNumber N(uint32_t i) { return NodeNumber{i}; }

std::string Key(int i) { return "key" + std::to_string(i); }

// Two replicas of each key on three nodes.
ShardCluster ThreeNodesWithTwoReplicas(ShardOptions options = {}) {
  Keyspace keyspace;
  keyspace.name = "default";
  keyspace.n = keyspace.r = keyspace.w = 2;
  return ShardCluster(3, {keyspace}, options);
}

void PutKeys(ShardCluster& cluster, int first, int last,
             const std::string& value = "v") {
  for (int i = first; i <= last; ++i) {
    RINGKV_CHECK(cluster.Ask(N(1), Blind(Key(i), value)).status.ok());
  }
}

void BeginTransfers(ShardCluster& cluster, const RingSpec& start) {
  for (const Member& member : start.members) {
    cluster.Post(member.number, ringkv::BeginTransfers{start.operation->id});
  }
}

// Whether `node` is about to hold `key` and does not yet.
bool Gains(const ShardCluster& cluster, NodeNumber node,
           const std::string& key) {
  const Token token = TokenOf(key);
  return cluster.ring().IsHolder(cluster.keyspace(), token, node) &&
         !cluster.ring().IsReplica(cluster.keyspace(), token, node);
}

// All keys that `node` gains are there as on their present replicas.
void ExpectReceived(ShardCluster& cluster, NodeNumber node, int keys) {
  int gained = 0;
  for (int i = 0; i < keys; ++i) {
    if (!Gains(cluster, node, Key(i))) continue;
    ++gained;
    EXPECT_EQ(cluster.Stored(node, Key(i)),
              cluster.Stored(cluster.Replicas(Key(i))[0], Key(i)))
        << Key(i);
  }
  EXPECT_GT(gained, 0);
}

// One node, which another joins: one range, the whole ring.
struct OneAndAnother {
  explicit OneAndAnother(int keys, ShardOptions options = {},
                         const std::string& value = "v")
      : cluster(1, {}, options), keys(keys) {
    PutKeys(cluster, 0, keys - 1, value);
    start = WithJoiner(cluster);
  }
  void Begin() {
    cluster.AdoptAll(start);
    BeginTransfers(cluster, start);
  }
  ShardCluster cluster;
  int keys;
  RingSpec start;
};

TEST(StreamingTest, WhatIsLeftFromAnAbortedOperationIsWipedAtTheNextStart) {
  ShardCluster cluster = ThreeNodesWithTwoReplicas();
  const RingSpec start = WithQuorums(cluster, {3, 2, 2});
  cluster.AdoptAll(start);
  PutKeys(cluster, 0, 50);
  std::string left;
  for (int i = 0; i <= 50 && left.empty(); ++i) {
    if (Gains(cluster, N(3), Key(i))) left = Key(i);
  }
  ASSERT_TRUE(cluster.Stored(N(3), left).has_value());
  cluster.AdoptAll(*AbortOperation(start));
  EXPECT_TRUE(cluster.Stored(N(3), left).has_value());
  cluster.AdoptAll(WithQuorums(cluster, {3, 2, 2}));
  EXPECT_FALSE(cluster.Stored(N(3), left).has_value());
  EXPECT_TRUE(cluster.Stored(cluster.Replicas(left)[0], left).has_value());
}

TEST(StreamingTest, ARestartDoesNotWipeWhatWasAcceptedSince) {
  for (const int shards : {1, 3}) {
    ShardCluster cluster = ThreeNodesWithTwoReplicas();
    PutKeys(cluster, 0, 5);  // so that there is something to wipe
    cluster.SetShards(N(3), 2);
    cluster.Restart(N(3));
    cluster.AdoptAll(WithQuorums(cluster, {3, 2, 2}));
    PutKeys(cluster, 10, 60);
    ASSERT_TRUE(cluster.engine(N(3)).Sync().ok());
    cluster.SetShards(N(3), shards);
    cluster.Restart(N(3));
    cluster.Settle();
    int gained = 0;
    for (int i = 10; i <= 60; ++i) {
      if (!Gains(cluster, N(3), Key(i))) continue;
      ++gained;
      EXPECT_TRUE(cluster.Stored(N(3), Key(i)).has_value());
    }
    EXPECT_GT(gained, 0);
  }
}

TEST(StreamingTest, AWriteOfTheSameTurnOutlivesTheWipeBeforeIt) {
  ShardCluster cluster = ThreeNodesWithTwoReplicas();
  const RingSpec first = WithQuorums(cluster, {3, 2, 2});
  cluster.AdoptAll(first);
  PutKeys(cluster, 0, 50, "old");
  cluster.AdoptAll(*AbortOperation(first));
  const RingSpec second = WithQuorums(cluster, {3, 2, 2});
  cluster.SetRing(second);
  std::string key;
  for (int i = 0; key.empty(); ++i) {
    if (Gains(cluster, N(3), Key(i))) key = Key(i);
  }
  WriteRequest write;
  write.operation = 1;
  write.keyspace = cluster.keyspace().id;
  write.key = key;
  write.object = EncodeObject(ApplyPut(
      nullptr, {}, {Dot{Actor{N(1), 77}, 1}, {HlcTimestamp{5}, N(1)}, 0, "x"}));
  cluster.Adopt(N(3));
  cluster.Inject(N(1), N(3), {second.epoch, write});
  cluster.Settle();
  EXPECT_EQ(cluster.Stored(N(3), key), write.object);
}

TEST(StreamingTest, AWriteThatWaitsForAReadFromBeforeTheWipeFails) {
  ShardCluster cluster = ThreeNodesWithTwoReplicas();
  const RingSpec first = WithQuorums(cluster, {3, 2, 2});
  cluster.AdoptAll(first);
  PutKeys(cluster, 0, 50, "old");
  std::string key;
  for (int i = 0; i <= 50 && key.empty(); ++i) {
    if (Gains(cluster, N(3), Key(i))) key = Key(i);
  }
  cluster.SetRing(*AbortOperation(first));
  cluster.SetRing(WithQuorums(cluster, {3, 2, 2}));
  cluster.engine(N(3)).set_not_cached(
      [](Family family, absl::string_view) { return family == Family::kData; });
  WriteRequest write;
  write.operation = 1;
  write.keyspace = cluster.keyspace().id;
  write.key = key;
  write.object = EncodeObject(ApplyPut(
      nullptr, {}, {Dot{Actor{N(1), 77}, 1}, {HlcTimestamp{5}, N(1)}, 0, "x"}));
  std::vector<ReplyCode> replies;
  cluster.drop = [&](NodeNumber from, const OutgoingMessage& message) {
    const auto* reply = std::get_if<WriteReply>(&message.message.body);
    if (reply != nullptr) replies.push_back(reply->code);
    return false;
  };
  // In one turn: the write begins under the older ring, the newer one comes.
  cluster.Inject(N(1), N(3), {first.epoch, write});
  cluster.Adopt(N(3));
  cluster.Settle();
  EXPECT_THAT(replies, testing::ElementsAre(ReplyCode::kFailed));
  EXPECT_FALSE(cluster.Stored(N(3), key).has_value());
}

TEST(StreamingTest, AnEpochIsAcknowledgedOnlyOnceItsWipeIsFsynced) {
  ShardCluster cluster = ThreeNodesWithTwoReplicas();
  PutKeys(cluster, 0, 5);
  cluster.hold_syncs = true;
  const RingSpec start = WithQuorums(cluster, {3, 2, 2});
  cluster.AdoptAll(start);
  EXPECT_LT(cluster.Adopted(N(3)), start.epoch);
  cluster.hold_syncs = false;
  cluster.Advance(absl::Seconds(1));
  EXPECT_EQ(cluster.Adopted(N(3)), start.epoch);
}

TEST(StreamingTest, AJoinReceivesAllOfItsRangesWhateverTheShards) {
  struct Shards {
    int source, receiver;
  };
  for (const Shards shards :
       {Shards{1, 1}, Shards{1, 3}, Shards{3, 1}, Shards{3, 2}}) {
    ShardCluster cluster(3);
    for (uint32_t i = 1; i <= 3; ++i) {
      cluster.SetShards(N(i), shards.source);
      cluster.Restart(N(i));
    }
    PutKeys(cluster, 0, 299);
    for (int i = 0; i < 300; i += 7) {
      PutCall remove;
      remove.key = Key(i);
      remove.is_delete = true;
      ASSERT_TRUE(cluster.Ask(N(2), remove).status.ok());
    }
    const RingSpec start = WithJoiner(cluster);
    cluster.SetShards(N(4), shards.receiver);
    cluster.AdoptAll(start);
    BeginTransfers(cluster, start);
    cluster.Advance(absl::Seconds(2));
    const TransferReport report = cluster.Transfers(N(4));
    EXPECT_TRUE(report.done);
    EXPECT_EQ(report.operation, start.operation->id);
    EXPECT_GT(report.ranges, 10u);
    EXPECT_EQ(report.ranges_done, report.ranges);
    EXPECT_GT(report.keys, 100u);
    ExpectReceived(cluster, N(4), 300);
    // Who receives nothing is through at once.
    EXPECT_TRUE(cluster.Transfers(N(1)).done);
    EXPECT_EQ(cluster.Transfers(N(1)).ranges, 0u);
    EXPECT_EQ(cluster.Sum(N(4), &ShardStats::stream_ranges_left), 0u);
    // Nothing else came.
    for (int i = 0; i < 300; ++i) {
      if (Gains(cluster, N(4), Key(i))) continue;
      EXPECT_FALSE(cluster.Stored(N(4), Key(i)).has_value());
    }
  }
}

TEST(StreamingTest, NothingIsReceivedBeforeTheBarrier) {
  OneAndAnother two(10);
  two.cluster.AdoptAll(two.start);
  two.cluster.Advance(absl::Seconds(5));
  EXPECT_FALSE(two.cluster.Stored(N(2), Key(0)).has_value());
  // Nor for another operation.
  two.cluster.Post(N(2), ringkv::BeginTransfers{two.start.operation->id + 1});
  two.cluster.Advance(absl::Seconds(5));
  EXPECT_FALSE(two.cluster.Stored(N(2), Key(0)).has_value());
  BeginTransfers(two.cluster, two.start);
  two.cluster.Advance(absl::Seconds(1));
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
}

TEST(StreamingTest, ASourceAnswersOnlyOnceItsOlderBatchesAreCommitted) {
  OneAndAnother two(10);
  two.cluster.SetRing(two.start);
  two.cluster.Post(N(2), ringkv::BeginTransfers{two.start.operation->id});
  // It adopts the ring in the very turn of the first request.
  bool asked = false;
  two.cluster.drop = [&](NodeNumber, const OutgoingMessage& message) {
    if (!asked && std::holds_alternative<StreamRequest>(message.message.body)) {
      asked = true;
      two.cluster.Adopt(N(1));
    }
    return false;
  };
  two.cluster.Settle();
  EXPECT_GE(two.cluster.Sum(N(1), &ShardStats::stream_chunks_refused), 1u);
  EXPECT_FALSE(two.cluster.Stored(N(2), Key(0)).has_value());
  two.cluster.Advance(absl::Seconds(2));
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
  ExpectReceived(two.cluster, N(2), 10);
}

TEST(StreamingTest, ADamagedChunkIsAskedForAgain) {
  OneAndAnother two(10);
  int damaged = 0;
  two.cluster.drop = [&](NodeNumber from, const OutgoingMessage& message) {
    const auto* chunk = std::get_if<StreamChunk>(&message.message.body);
    if (chunk == nullptr || chunk->items.empty() || damaged == 3) return false;
    ++damaged;
    DataMessage changed = message.message;
    auto& items = std::get<StreamChunk>(changed.body).items;
    if (damaged == 1) items.pop_back();
    if (damaged == 2) items[0].object.back() ^= 1;
    if (damaged == 3) items[0].key += "x";
    two.cluster.Inject(from, message.to, changed);
    return true;
  };
  two.Begin();
  two.cluster.Advance(absl::Seconds(5));
  EXPECT_EQ(damaged, 3);
  EXPECT_EQ(two.cluster.Sum(N(2), &ShardStats::stream_chunks_damaged), 3u);
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
  ExpectReceived(two.cluster, N(2), 10);
}

TEST(StreamingTest, LateAndRepeatedChunksChangeNothing) {
  OneAndAnother two(2500);
  std::vector<DataMessage> sent;
  two.cluster.drop = [&](NodeNumber from, const OutgoingMessage& message) {
    if (std::holds_alternative<StreamChunk>(message.message.body)) {
      for (const DataMessage& earlier : sent) {
        two.cluster.Inject(from, message.to, earlier);
      }
      sent.push_back(message.message);
    }
    return false;
  };
  two.Begin();
  two.cluster.Advance(absl::Seconds(2));
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
  EXPECT_EQ(two.cluster.Transfers(N(2)).keys, 2500u);
  ExpectReceived(two.cluster, N(2), 2500);
}

TEST(StreamingTest, AReceiverThatCrashesGoesOnFromItsLastChunk) {
  OneAndAnother two(3500);
  std::vector<StreamPosition> asked;
  bool cut = true;
  two.cluster.drop = [&](NodeNumber, const OutgoingMessage& message) {
    const auto* request = std::get_if<StreamRequest>(&message.message.body);
    if (request == nullptr) return false;
    asked.push_back(request->from);
    return cut && asked.size() > 2;
  };
  two.Begin();
  two.cluster.Settle();
  ASSERT_EQ(asked.size(), 3u);
  ASSERT_TRUE(two.cluster.engine(N(2)).Sync().ok());
  two.cluster.Restart(N(2));
  two.cluster.Settle();
  cut = false;
  // Control says so again when the barrier is known to be reached.
  BeginTransfers(two.cluster, two.start);
  two.cluster.Advance(absl::Seconds(2));
  ASSERT_GT(asked.size(), 3u);
  EXPECT_EQ(asked[3], asked[2]);
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
  EXPECT_EQ(two.cluster.Transfers(N(2)).keys, 3500u);
  ExpectReceived(two.cluster, N(2), 3500);

  // And once it is through it stays so, with another number of shards too.
  ASSERT_TRUE(two.cluster.engine(N(2)).Sync().ok());
  for (const int shards : {1, 3}) {
    const size_t before = asked.size();
    two.cluster.SetShards(N(2), shards);
    two.cluster.Restart(N(2));
    BeginTransfers(two.cluster, two.start);
    two.cluster.Advance(absl::Seconds(2));
    EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
    EXPECT_EQ(asked.size(), before);
  }
}

TEST(StreamingTest, ACrashThatLosesTheCursorLosesNoMoreThanIt) {
  OneAndAnother two(3500);
  int asked = 0;
  two.cluster.drop = [&](NodeNumber, const OutgoingMessage& message) {
    return std::holds_alternative<StreamRequest>(message.message.body) &&
           ++asked == 3;
  };
  two.Begin();
  two.cluster.Settle();
  two.cluster.Restart(N(2));
  BeginTransfers(two.cluster, two.start);
  two.cluster.Advance(absl::Seconds(2));
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
  ExpectReceived(two.cluster, N(2), 3500);
}

TEST(StreamingTest, ASourceThatGoesAwayIsWaitedFor) {
  OneAndAnother two(3500);
  int asked = 0;
  two.cluster.drop = [&](NodeNumber, const OutgoingMessage& message) {
    return std::holds_alternative<StreamRequest>(message.message.body) &&
           ++asked == 3;
  };
  two.Begin();
  two.cluster.Settle();
  two.cluster.SetUp(N(1), false);
  two.cluster.Advance(absl::Seconds(30));
  EXPECT_FALSE(two.cluster.Transfers(N(2)).done);
  ASSERT_TRUE(two.cluster.engine(N(1)).Sync().ok());
  two.cluster.Restart(N(1));
  two.cluster.SetUp(N(1), true);
  two.cluster.Advance(absl::Seconds(10));
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
  EXPECT_EQ(two.cluster.Transfers(N(2)).keys, 3500u);
  ExpectReceived(two.cluster, N(2), 3500);
}

TEST(StreamingTest, DoneIsToldOnlyOnceItIsFsynced) {
  OneAndAnother two(10);
  two.cluster.AdoptAll(two.start);
  two.cluster.hold_syncs = true;
  BeginTransfers(two.cluster, two.start);
  two.cluster.Advance(absl::Seconds(5));
  EXPECT_TRUE(two.cluster.Stored(N(2), Key(0)).has_value());
  EXPECT_FALSE(two.cluster.Transfers(N(2)).done);
  two.cluster.hold_syncs = false;
  two.cluster.Advance(absl::Seconds(1));
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
}

TEST(StreamingTest, WhatTheSourceGetsLateIsFoundByTheVerification) {
  OneAndAnother two(10);
  WriteRequest late;
  late.operation = 1;
  late.keyspace = two.cluster.keyspace().id;
  late.key = Key(3);
  late.purpose = WritePurpose::kRepair;
  late.object = EncodeObject(
      ApplyPut(nullptr, {},
               {Dot{Actor{N(1), 77}, 1}, {HlcTimestamp{5}, N(1)}, 0, "late"}));
  WriteRequest unknown = late;
  unknown.key = "unknown";
  int digests = 0;
  two.cluster.drop = [&](NodeNumber, const OutgoingMessage& message) {
    const auto* request = std::get_if<StreamRequest>(&message.message.body);
    if (request != nullptr && request->kind == StreamKind::kDigests &&
        ++digests == 1) {
      two.cluster.Inject(N(2), N(1), {two.start.epoch, late});
      two.cluster.Inject(N(2), N(1), {two.start.epoch, unknown});
    }
    return false;
  };
  two.Begin();
  two.cluster.Advance(absl::Seconds(10));
  // Once more after the pass that found it.
  EXPECT_EQ(digests, 2);
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
  EXPECT_EQ(two.cluster.Stored(N(2), "unknown"),
            two.cluster.Stored(N(1), "unknown"));
  EXPECT_EQ(two.cluster.Stored(N(2), "unknown"), late.object);
  ExpectReceived(two.cluster, N(2), 10);
}

TEST(StreamingTest, EmptyRangesAreThroughAndLargeObjectsGoAlone) {
  OneAndAnother empty(0);
  empty.Begin();
  empty.cluster.Advance(absl::Seconds(1));
  EXPECT_TRUE(empty.cluster.Transfers(N(2)).done);
  EXPECT_EQ(empty.cluster.Transfers(N(2)).keys, 0u);

  OneAndAnother large(3, {}, std::string(kValueBytesMax, 'x'));
  size_t items_max = 0;
  large.cluster.drop = [&](NodeNumber, const OutgoingMessage& message) {
    const auto* chunk = std::get_if<StreamChunk>(&message.message.body);
    if (chunk != nullptr && chunk->kind == StreamKind::kObjects) {
      items_max = std::max(items_max, chunk->items.size());
    }
    return false;
  };
  large.Begin();
  large.cluster.Advance(absl::Seconds(1));
  EXPECT_TRUE(large.cluster.Transfers(N(2)).done);
  EXPECT_EQ(items_max, 1u);
  ExpectReceived(large.cluster, N(2), 3);
}

TEST(StreamingTest, ARateBoundsWhatIsReceived) {
  ShardOptions options;
  options.stream_rate = 1 << 20;
  OneAndAnother two(10, options, std::string(kValueBytesMax, 'x'));
  two.Begin();
  two.cluster.Advance(absl::Seconds(5));
  EXPECT_FALSE(two.cluster.Transfers(N(2)).done);
  EXPECT_LT(two.cluster.Sum(N(2), &ShardStats::stream_bytes_in), 7u << 20);
  two.cluster.Advance(absl::Seconds(10));
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
}

TEST(StreamingTest, WritesMeanwhileReachBothAndNeedNoTransfer) {
  OneAndAnother two(3000);
  int asked = 0;
  two.cluster.drop = [&](NodeNumber, const OutgoingMessage& message) {
    if (std::holds_alternative<StreamRequest>(message.message.body)) {
      PutCall put = Blind(Key(asked), "new" + std::to_string(asked));
      two.cluster.Call(N(1), put);
      ++asked;
    }
    return false;
  };
  two.Begin();
  two.cluster.Advance(absl::Seconds(10));
  EXPECT_TRUE(two.cluster.Transfers(N(2)).done);
  two.cluster.drop = nullptr;
  ExpectReceived(two.cluster, N(2), 3000);
}

TEST(StreamingTest, ProgressIsVoidInAnotherOperation) {
  ShardCluster cluster = ThreeNodesWithTwoReplicas();
  PutKeys(cluster, 0, 99);
  const RingSpec first = WithQuorums(cluster, {3, 2, 2});
  cluster.AdoptAll(first);
  BeginTransfers(cluster, first);
  cluster.Advance(absl::Seconds(5));
  ASSERT_TRUE(cluster.Transfers(N(3)).done);
  cluster.AdoptAll(*AbortOperation(first));
  PutKeys(cluster, 0, 199, "between");
  const RingSpec second = WithQuorums(cluster, {3, 2, 2});
  cluster.AdoptAll(second);
  BeginTransfers(cluster, second);
  cluster.Advance(absl::Seconds(5));
  EXPECT_TRUE(cluster.Transfers(N(3)).done);
  EXPECT_EQ(cluster.Transfers(N(3)).operation, second.operation->id);
  for (uint32_t i = 1; i <= 3; ++i) ExpectReceived(cluster, N(i), 200);
}

TEST(StreamingTest, OfSeveralSourcesEnoughMustLive) {
  ShardCluster cluster = ThreeNodesWithTwoReplicas();
  PutKeys(cluster, 0, 99);
  const RingSpec start = WithQuorums(cluster, {3, 2, 2});
  cluster.AdoptAll(start);
  // N-W+1 of the two others is one.
  cluster.SetUp(N(1), false);
  BeginTransfers(cluster, start);
  cluster.Advance(absl::Seconds(10));
  EXPECT_TRUE(cluster.Transfers(N(3)).done);
  for (int i = 0; i < 100; ++i) {
    if (Gains(cluster, N(3), Key(i))) {
      EXPECT_TRUE(cluster.Stored(N(3), Key(i)).has_value());
    }
  }
}

TEST(StreamingTest, WhatOnlyTheLoserHoldsIsMergedIntoAllOthers) {
  ShardCluster cluster(3);
  // Acknowledged by one replica that will not be one.
  const RingSpec start = WithQuorums(cluster, {2, 2, 2});
  cluster.SetRing(start);
  std::string key;
  NodeNumber loser{};
  for (int i = 0; key.empty(); ++i) {
    const auto after =
        cluster.ring().OtherList(cluster.keyspace(), TokenOf(Key(i)));
    if (std::find(after.begin(), after.end(), N(3)) == after.end()) {
      key = Key(i);
      loser = N(3);
    }
  }
  cluster.Cut(N(1), true);
  cluster.Cut(N(2), true);
  PutCall put = Blind(key, "v");
  put.w = 1;
  ASSERT_TRUE(cluster.Ask(loser, put).status.ok());
  cluster.Cut(N(1), false);
  cluster.Cut(N(2), false);
  cluster.drop = [](NodeNumber, const OutgoingMessage& message) {
    return std::holds_alternative<WriteRequest>(message.message.body);
  };
  cluster.AdoptAll(start);
  BeginTransfers(cluster, start);
  cluster.Advance(absl::Seconds(10));
  for (uint32_t i = 1; i <= 2; ++i) {
    EXPECT_TRUE(cluster.Transfers(N(i)).done);
    EXPECT_TRUE(cluster.Stored(N(i), key).has_value()) << i;
  }
}

TEST(StreamingTest, FormerOwnersDropTheirRangesAfterTheGrace) {
  ShardCluster cluster(3);
  PutKeys(cluster, 0, 99);
  const RingSpec start = WithJoiner(cluster);
  cluster.AdoptAll(start);
  BeginTransfers(cluster, start);
  cluster.Advance(absl::Minutes(5));
  ASSERT_TRUE(cluster.Transfers(N(4)).done);
  const RingSpec switched = SwitchOperation(start);
  cluster.AdoptAll(switched);
  cluster.Advance(absl::Minutes(5));
  const auto left_over = [&] {
    int count = 0;
    for (uint32_t node = 1; node <= 4; ++node) {
      for (int i = 0; i < 100; ++i) {
        const bool holds = cluster.ring().IsHolder(cluster.keyspace(),
                                                   TokenOf(Key(i)), N(node));
        const bool has = cluster.Stored(N(node), Key(i)).has_value();
        EXPECT_TRUE(has || !holds);
        if (has && !holds) ++count;
      }
    }
    return count;
  };
  EXPECT_EQ(left_over(), 0);  // all of them still count
  cluster.AdoptAll(FinishOperation(switched));
  cluster.Advance(absl::Seconds(50));
  const int before = left_over();
  EXPECT_GT(before, 50);
  // A restart begins the time of grace anew.
  for (uint32_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(cluster.engine(N(i)).Sync().ok());
    cluster.SetShards(N(i), 1 + i % 3);
    cluster.Restart(N(i));
  }
  cluster.Advance(absl::Seconds(50));
  EXPECT_EQ(left_over(), before);
  cluster.Advance(absl::Seconds(30));
  EXPECT_EQ(left_over(), 0);
  EXPECT_GT(cluster.Sum(N(1), &ShardStats::ranges_dropped), 0u);
}

TEST(StreamingTest, ADamagedRecordKeepsNoNodeFromStarting) {
  OneAndAnother two(1);
  ASSERT_TRUE(two.cluster.engine(N(1)).Sync().ok());
  two.cluster.Damage(N(1), Key(0));
  two.cluster.Restart(N(1));
  two.cluster.Settle();
  EXPECT_EQ(two.cluster.Adopted(N(1)), 1u);
}

TEST(StreamingTest, AnAbortLeavesReadsAsTheyWere) {
  OneAndAnother two(10);
  two.Begin();
  two.cluster.Settle();
  two.cluster.AdoptAll(*AbortOperation(two.start));
  two.cluster.Advance(absl::Minutes(2));
  EXPECT_THAT(Values(two.cluster.Ask(N(1), Get(Key(0)))),
              UnorderedElementsAre("v"));
}

TEST(ChunkTest, AnswersMustFitTheirQuestions) {
  StreamRequest request;
  request.from = {TokenOf("a"), ""};
  request.last = TokenOf("a");
  StreamChunk good;
  good.from = request.from;
  good.items.push_back({"a", "object", 0});
  good.complete = true;
  good.checksum = ChecksumOf(good);
  EXPECT_TRUE(CheckChunk(request, good).ok());
  const auto refused = [&](auto change) {
    StreamChunk chunk = good;
    change(chunk);
    chunk.checksum = ChecksumOf(chunk);
    return absl::IsInvalidArgument(CheckChunk(request, chunk));
  };
  EXPECT_TRUE(refused([](StreamChunk& c) { c.items[0].key = "b"; }));
  EXPECT_TRUE(refused([](StreamChunk& c) { c.items.push_back(c.items[0]); }));
  EXPECT_TRUE(refused([](StreamChunk& c) {
    c.complete = false;
    c.next = c.from;
  }));
  EXPECT_TRUE(refused([](StreamChunk& c) {
    c.complete = false;
    c.next = {c.from.token, "a"};  // before what it gave
  }));
  good.items[0].object += "x";
  EXPECT_TRUE(absl::IsDataLoss(CheckChunk(request, good)));
}

}  // namespace
}  // namespace ringkv
