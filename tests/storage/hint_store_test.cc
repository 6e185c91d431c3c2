#include "storage/hints/hint_store.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/memory_engine.h"
#include "storage/version/object.h"

namespace ringkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr KeyspaceId kKeyspace{3};
constexpr NodeNumber kA{1};
constexpr NodeNumber kB{2};
constexpr NodeNumber kC{256};

std::string ObjectOf(uint32_t node, absl::string_view value) {
  return EncodeObject(ApplyPut(nullptr, {},
                               {{{NodeNumber{node}, node}, 1},
                                {HlcTimestamp{node}, NodeNumber{node}},
                                0,
                                std::string(value)}));
}
std::string MergedOf(absl::string_view a, absl::string_view b) {
  return EncodeObject(Merge(*DecodeObject(a), *DecodeObject(b)));
}

// A store on an engine, with one batch for each call.
class HintStoreTest : public testing::Test {
 protected:
  absl::Status Add(absl::string_view key, absl::string_view object,
                   const std::vector<NodeNumber>& targets,
                   int64_t now_ms = 1000) {
    WriteBatch batch;
    absl::Status status = store_.Add(batch, Read(key), kKeyspace, TokenOf(key),
                                     key, object, targets, now_ms);
    if (!status.ok()) {
      EXPECT_TRUE(batch.empty());
    }
    EXPECT_TRUE(engine_.Write(batch).ok());
    return status;
  }
  bool Remove(absl::string_view key, NodeNumber target,
              absl::string_view delivered) {
    WriteBatch batch;
    const absl::StatusOr<bool> removed =
        store_.RemoveTarget(batch, Read(key), kKeyspace, TokenOf(key), key,
                            target, DigestOf(delivered));
    EXPECT_TRUE(removed.ok()) << removed.status();
    EXPECT_TRUE(engine_.Write(batch).ok());
    return removed.value_or(false);
  }
  ReadResult Read(absl::string_view key) const {
    return engine_.Get(Family::kHints,
                       HintRecordKey(kKeyspace, TokenOf(key), key),
                       ReadTier::kAll);
  }
  HintRecord RecordOf(absl::string_view key) const {
    const ReadResult found = Read(key);
    EXPECT_EQ(found.outcome, ReadResult::Outcome::kFound);
    const auto record = DecodeHintRecord(found.value);
    EXPECT_TRUE(record.ok()) << record.status();
    return record.value_or(HintRecord{});
  }
  // Keys in the order of delivery.
  std::vector<std::string> OrderOf(NodeNumber target) const {
    const HintRange index = HintIndexRange(target);
    std::vector<std::string> keys;
    EXPECT_TRUE(engine_
                    .Visit(Family::kHints, index.begin, index.end,
                           [&](absl::string_view index_key,
                               absl::string_view record_key) {
                             EXPECT_TRUE(HintIndexSequence(index_key).ok());
                             const auto parts = ParseHintRecordKey(record_key);
                             EXPECT_TRUE(parts.ok());
                             EXPECT_EQ(parts->keyspace, kKeyspace);
                             keys.emplace_back(parts->key);
                             return true;
                           })
                    .ok());
    return keys;
  }
  HintBacklogStats BacklogOf(NodeNumber target) const {
    const auto place = store_.backlogs().find(target);
    return place == store_.backlogs().end() ? HintBacklogStats{}
                                            : place->second;
  }
  void Restart(HintStoreOptions options = {}) {
    engine_.Crash(engine_.UnsyncedWrites());
    store_ = HintStore(options);
    const absl::Status status = store_.Recover(engine_);
    EXPECT_TRUE(status.ok()) << status;
  }
  size_t StoredEntries() const {
    return engine_.Range(Family::kHints, "", "", {})->entries.size();
  }

  MemoryEngine engine_;
  HintStore store_{HintStoreOptions{}};
};

TEST_F(HintStoreTest, FindsAHintByKeyAndInTheOrderOfEachTarget) {
  ASSERT_TRUE(Add("k2", ObjectOf(1, "x"), {kA}).ok());
  ASSERT_TRUE(Add("k1", ObjectOf(1, "y"), {kC, kA}).ok());
  ASSERT_TRUE(Add("k3", ObjectOf(1, "z"), {kC}).ok());
  EXPECT_THAT(OrderOf(kA), ElementsAre("k2", "k1"));
  EXPECT_THAT(OrderOf(kC), ElementsAre("k1", "k3"));
  EXPECT_THAT(OrderOf(kB), IsEmpty());
  const HintRecord record = RecordOf("k1");
  EXPECT_EQ(record.object, ObjectOf(1, "y"));
  ASSERT_EQ(record.targets.size(), 2u);
  EXPECT_EQ(record.targets[0].node, kA);
  EXPECT_EQ(record.targets[1].node, kC);
}

TEST_F(HintStoreTest, SecondHintMergesObjectsAndKeepsTheOlderPlace) {
  ASSERT_TRUE(Add("k1", ObjectOf(1, "x"), {kA}, 1000).ok());
  ASSERT_TRUE(Add("k2", ObjectOf(1, "x"), {kA}, 2000).ok());
  ASSERT_TRUE(Add("k1", ObjectOf(2, "y"), {kA, kB}, 3000).ok());
  EXPECT_THAT(OrderOf(kA), ElementsAre("k1", "k2"));
  EXPECT_THAT(OrderOf(kB), ElementsAre("k1"));
  const HintRecord record = RecordOf("k1");
  EXPECT_EQ(record.object, MergedOf(ObjectOf(1, "x"), ObjectOf(2, "y")));
  EXPECT_EQ(record.targets[0].created_ms, 1000);
  EXPECT_EQ(record.targets[1].created_ms, 3000);
}

TEST_F(HintStoreTest, RepeatWritesNothing) {
  ASSERT_TRUE(Add("k", ObjectOf(1, "x"), {kA, kB, kA}).ok());
  const uint64_t sequence = engine_.LastSequence();
  ASSERT_TRUE(Add("k", ObjectOf(1, "x"), {kB}).ok());
  EXPECT_EQ(engine_.LastSequence(), sequence);
  EXPECT_EQ(BacklogOf(kA).hints, 1u);
}

TEST_F(HintStoreTest, RemovesOneTargetAndTheRecordWithTheLast) {
  const std::string object = ObjectOf(1, "x");
  ASSERT_TRUE(Add("k", object, {kA, kB}).ok());
  EXPECT_TRUE(Remove("k", kA, object));
  EXPECT_THAT(OrderOf(kA), IsEmpty());
  EXPECT_THAT(OrderOf(kB), ElementsAre("k"));
  EXPECT_FALSE(Remove("k", kA, object));
  EXPECT_TRUE(Remove("k", kB, object));
  EXPECT_EQ(StoredEntries(), 0u);
  EXPECT_FALSE(Remove("k", kB, object));
  EXPECT_EQ(BacklogOf(kA).hints, 0u);
  EXPECT_EQ(BacklogOf(kA).bytes, 0u);
  EXPECT_EQ(BacklogOf(kA).oldest_ms, 0);
  EXPECT_EQ(BacklogOf(kA).delivered, 1u);
}

TEST_F(HintStoreTest, KeepsATargetWhoseObjectChangedDuringDelivery) {
  const std::string delivered = ObjectOf(1, "x");
  ASSERT_TRUE(Add("k", delivered, {kA}).ok());
  ASSERT_TRUE(Add("k", ObjectOf(2, "y"), {kA}).ok());
  EXPECT_FALSE(Remove("k", kA, delivered));
  EXPECT_THAT(OrderOf(kA), ElementsAre("k"));
  EXPECT_TRUE(Remove("k", kA, MergedOf(delivered, ObjectOf(2, "y"))));
}

TEST_F(HintStoreTest, CountsWhatIsStoredForEachTarget) {
  const std::string small = ObjectOf(1, "x");
  const std::string big = ObjectOf(2, std::string(500, 'y'));
  ASSERT_TRUE(Add("k1", small, {kA}, 5000).ok());
  ASSERT_TRUE(Add("k2", small, {kA, kB}, 7000).ok());
  ASSERT_TRUE(Add("k2", big, {kB}, 9000).ok());
  const uint64_t merged = MergedOf(small, big).size();
  EXPECT_EQ(BacklogOf(kA).hints, 2u);
  EXPECT_EQ(BacklogOf(kA).bytes, small.size() + merged);
  EXPECT_EQ(BacklogOf(kA).oldest_ms, 5000);
  EXPECT_EQ(BacklogOf(kB).bytes, merged);
  EXPECT_EQ(BacklogOf(kB).oldest_ms, 7000);
  EXPECT_TRUE(Remove("k1", kA, small));
  EXPECT_EQ(BacklogOf(kA).oldest_ms, 7000);
}

TEST_F(HintStoreTest, RestartFindsEveryHintAndGoesOnInOrder) {
  ASSERT_TRUE(Add("k1", ObjectOf(1, "x"), {kA, kB}, 5000).ok());
  ASSERT_TRUE(Add("k2", ObjectOf(1, "yy"), {kA}, 6000).ok());
  const HintBacklogStats before = BacklogOf(kA);
  Restart();
  EXPECT_EQ(BacklogOf(kA).hints, before.hints);
  EXPECT_EQ(BacklogOf(kA).bytes, before.bytes);
  EXPECT_EQ(BacklogOf(kA).oldest_ms, before.oldest_ms);
  ASSERT_TRUE(Add("k0", ObjectOf(1, "z"), {kA}).ok());
  EXPECT_THAT(OrderOf(kA), ElementsAre("k1", "k2", "k0"));
}

TEST_F(HintStoreTest, OtherNumberOfShardsTakesOverWithoutDoubleSequences) {
  Restart({.shard = 1, .shards = 2});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Add(absl::StrCat("old", i), ObjectOf(1, "x"), {kA}).ok());
  }
  uint64_t counted = 0;
  for (int shard = 0; shard < 3; ++shard) {
    Restart({.shard = shard, .shards = 3});
    counted += BacklogOf(kA).hints;
  }
  EXPECT_EQ(counted, 20u);
  Restart({.shard = 1, .shards = 3});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Add(absl::StrCat("new", i), ObjectOf(1, "x"), {kA}).ok());
  }
  EXPECT_EQ(OrderOf(kA).size(), 40u);
}

TEST_F(HintStoreTest, ByteBoundRefusesNewHintsAndKeepsStoredOnes) {
  const std::string object = ObjectOf(1, "x");
  Restart({.bytes_max = 2 * object.size()});
  ASSERT_TRUE(Add("k1", object, {kA}).ok());
  ASSERT_TRUE(Add("k2", object, {kA}).ok());
  const absl::Status refused = Add("k3", object, {kB, kA});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("node 1"));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("limit is ", 2 * object.size())));
  EXPECT_EQ(Add("k1", ObjectOf(2, "y"), {kA}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(BacklogOf(kA).refused, 2u);
  EXPECT_THAT(OrderOf(kA), ElementsAre("k1", "k2"));
  EXPECT_EQ(RecordOf("k1").object, object);
  EXPECT_TRUE(Add("k2", object, {kA}).ok());
  EXPECT_TRUE(Add("k3", object, {kB}).ok());
  EXPECT_TRUE(Remove("k1", kA, object));
  EXPECT_TRUE(Add("k3", object, {kA}).ok());
}

TEST_F(HintStoreTest, ByteBoundHoldsForATargetThatSharesAGrowingRecord) {
  const std::string object = ObjectOf(1, "x");
  Restart({.bytes_max = 2 * object.size()});
  ASSERT_TRUE(Add("k1", object, {kA, kB}).ok());
  ASSERT_TRUE(Add("k2", object, {kA}).ok());
  const absl::Status refused = Add("k1", ObjectOf(2, "y"), {kB});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("node 1"));
  EXPECT_EQ(RecordOf("k1").object, object);
  EXPECT_EQ(BacklogOf(kA).bytes, 2 * object.size());
}

TEST_F(HintStoreTest, AgeBoundRefusesNewHintsUntilTheOldestIsDelivered) {
  Restart({.age_max = absl::Seconds(10)});
  const std::string object = ObjectOf(1, "x");
  ASSERT_TRUE(Add("k1", object, {kA}, 50000).ok());
  ASSERT_TRUE(Add("k2", object, {kA}, 60000).ok());
  const absl::Status refused = Add("k3", object, {kA}, 61000);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("11s old"));
  EXPECT_TRUE(Add("k3", object, {kB}, 61000).ok());
  EXPECT_TRUE(Remove("k1", kA, object));
  EXPECT_TRUE(Add("k3", object, {kA}, 61000).ok());
}

TEST_F(HintStoreTest, DamageIsReportedAndNothingIsWritten) {
  const auto store = [this](std::string value) {
    WriteBatch batch;
    batch.Put(Family::kHints, HintRecordKey(kKeyspace, TokenOf("k"), "k"),
              std::move(value));
    ASSERT_TRUE(engine_.Write(batch).ok());
  };
  store("damaged");
  EXPECT_FALSE(Add("k", ObjectOf(1, "x"), {kA}).ok());
  store(EncodeHintRecord({"no object", {{kA, 1, 1}}}));
  EXPECT_FALSE(Add("k", ObjectOf(1, "x"), {kA}).ok());
  EXPECT_FALSE(Add("other", "no object", {kA}).ok());
  store(EncodeHintRecord(
      {EncodeObject(MakeLww({HlcTimestamp{1}, kA}, 0, "v")), {{kA, 1, 1}}}));
  EXPECT_EQ(Add("k", ObjectOf(1, "x"), {kA}).code(),
            absl::StatusCode::kInvalidArgument);
  ReadResult failed;
  failed.outcome = ReadResult::Outcome::kFailed;
  failed.status = absl::DataLossError("checksum");
  WriteBatch batch;
  EXPECT_EQ(
      store_.Add(batch, failed, kKeyspace, 0, "k", ObjectOf(1, "x"), {kA}, 1),
      failed.status);
  EXPECT_TRUE(batch.empty());
}

TEST_F(HintStoreTest, DropTakesAllTargetsAway) {
  ASSERT_TRUE(Add("k", ObjectOf(1, "x"), {kA, kB}).ok());
  const HintRange records = HintKeyspaceRange(kKeyspace);
  const auto found =
      engine_.Range(Family::kHints, records.begin, records.end, {});
  ASSERT_EQ(found->entries.size(), 1u);
  WriteBatch batch;
  const auto dropped =
      store_.Drop(batch, Read("k"), kKeyspace, TokenOf("k"), "k");
  ASSERT_TRUE(dropped.ok() && *dropped);
  ASSERT_TRUE(engine_.Write(batch).ok());
  EXPECT_EQ(StoredEntries(), 0u);
  EXPECT_EQ(BacklogOf(kA).hints, 0u);
  EXPECT_EQ(BacklogOf(kB).bytes, 0u);
}

TEST(HintKeyTest, RangesHoldJustTheirOwnEvenAtTheHighestNumbers) {
  const HintRange all_ones = HintIndexRange(NodeNumber{UINT32_MAX});
  EXPECT_EQ(all_ones.end, "U");
  const HintRange below = HintIndexRange(NodeNumber{255});
  EXPECT_LT(HintIndexRangeFrom(NodeNumber{255}, UINT64_MAX).begin, below.end);
  EXPECT_LE(below.end, HintIndexRange(NodeNumber{256}).begin);
  EXPECT_EQ(HintKeyspaceRange(KeyspaceId{UINT32_MAX}).end, "L");
  const HintRange from = HintIndexRangeFrom(kA, 77);
  EXPECT_EQ(*HintIndexSequence(from.begin), 77u);
  EXPECT_LT(HintIndexRange(kA).begin, from.begin);
  EXPECT_EQ(HintIndexSequence(from.begin + "x").status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseHintRecordKey(from.begin).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(ParseHintRecordKey("K").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(HintCodecTest, GivesBackWhatItWasGivenAndRefusesTheRest) {
  const HintRecord record{"object", {{kA, 1, 2}, {kC, -5, UINT64_MAX}}};
  const std::string bytes = EncodeHintRecord(record);
  const auto decoded = DecodeHintRecord(bytes);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, record);
  std::string newer = bytes;
  newer[0] = 2;
  EXPECT_EQ(DecodeHintRecord(newer).status().code(),
            absl::StatusCode::kInvalidArgument);
  const std::vector<std::string> malformed = {
      "",
      "\x01",
      std::string("\x01\x00object", 8),
      std::string("\x01\x02\x01\x01\x01\x01\x01\x01o", 9),
      std::string("\x01\x7f\x01\x01\x01o", 6),
      bytes.substr(0, 10)};
  for (const std::string& bad : malformed) {
    EXPECT_EQ(DecodeHintRecord(bad).status().code(),
              absl::StatusCode::kDataLoss);
  }
  SeededRandom random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string mutated = bytes;
    for (int i = 0; i < 2; ++i) {
      mutated[random.Uniform(mutated.size())] =
          static_cast<char>(random.Next());
    }
    mutated.resize(random.Uniform(mutated.size() + 1));
    const auto again = DecodeHintRecord(mutated);
    if (again.ok()) {
      ASSERT_EQ(EncodeHintRecord(*again), mutated);
    }
  }
}

// Random adds, deliveries and restarts against plain maps.
TEST_F(HintStoreTest, BehavesLikeAMapOfMergedObjects) {
  struct Expected {
    std::string object;
    std::map<NodeNumber, int> places;  // by target, the add that began it
  };
  SeededRandom random(23);
  std::map<std::string, Expected> expected;
  for (int step = 0; step < 3000; ++step) {
    const std::string key = absl::StrCat("k", random.Uniform(8));
    const NodeNumber target{static_cast<uint32_t>(1 + random.Uniform(4))};
    if (random.Chance(0.01)) {
      Restart();
    } else if (random.Chance(0.4)) {
      const std::string object =
          ObjectOf(static_cast<uint32_t>(1 + random.Uniform(5)), "v");
      ASSERT_TRUE(Add(key, object, {target}, 1000 + step).ok());
      Expected& entry = expected[key];
      entry.object =
          entry.object.empty() ? object : MergedOf(entry.object, object);
      entry.places.emplace(target, step);
    } else {
      const auto entry = expected.find(key);
      const bool there =
          entry != expected.end() && entry->second.places.count(target) == 1;
      ASSERT_EQ(Remove(key, target,
                       entry == expected.end() ? "" : entry->second.object),
                there);
      if (!there) continue;
      entry->second.places.erase(target);
      if (entry->second.places.empty()) expected.erase(entry);
    }
    const NodeNumber checked{static_cast<uint32_t>(1 + random.Uniform(4))};
    std::map<int, std::string> order;
    uint64_t bytes = 0;
    for (const auto& [name, entry] : expected) {
      const auto place = entry.places.find(checked);
      if (place == entry.places.end()) continue;
      order[place->second] = name;
      bytes += entry.object.size();
      ASSERT_EQ(RecordOf(name).object, entry.object);
    }
    std::vector<std::string> keys;
    for (const auto& [place, name] : order) keys.push_back(name);
    ASSERT_EQ(OrderOf(checked), keys);
    ASSERT_EQ(BacklogOf(checked).hints, keys.size());
    ASSERT_EQ(BacklogOf(checked).bytes, bytes);
    ASSERT_EQ(BacklogOf(checked).oldest_ms / 1000,
              keys.empty() ? 0 : (1000 + order.begin()->first) / 1000);
  }
}

}  // namespace
}  // namespace ringkv
