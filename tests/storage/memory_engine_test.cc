#include "storage/memory_engine.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv {
namespace {

using Outcome = ReadResult::Outcome;

using Content = std::map<std::pair<int, std::string>, std::string>;

Content ContentOf(const Engine& engine) {
  Content content;
  for (int f = 0; f < kFamilies; ++f) {
    EXPECT_TRUE(
        engine
            .Visit(static_cast<Family>(f), "", "",
                   [&](absl::string_view key, absl::string_view value) {
                     content[{f, std::string(key)}] = std::string(value);
                     return true;
                   })
            .ok());
  }
  return content;
}

WriteBatch PutBatch(std::string key, std::string value) {
  WriteBatch batch;
  batch.Put(Family::kData, std::move(key), std::move(value));
  return batch;
}

WriteBatch RandomBatch(Random& random) {
  const auto key = [&random] { return absl::StrCat(random.Uniform(12)); };
  WriteBatch batch;
  for (uint64_t i = 1 + random.Uniform(4); i > 0; --i) {
    const Family family = static_cast<Family>(random.Uniform(kFamilies));
    switch (random.Uniform(5)) {
      case 0:
        batch.Delete(family, key());
        break;
      case 1:
        batch.DeleteRange(family, key(), key());
        break;
      default:
        batch.Put(family, key(), absl::StrCat(random.Next()));
        break;
    }
  }
  return batch;
}

// A crash must give exactly the state after some prefix of the writes that
// covers all synced ones.
TEST(MemoryEngineTest, CrashGoesBackToThePrefixThatReachedTheDisk) {
  SeededRandom random(31);
  for (int round = 0; round < 300; ++round) {
    MemoryEngine engine;
    std::vector<Content> states = {ContentOf(engine)};
    std::vector<uint64_t> sequences = {engine.LastSequence()};
    size_t durable = 0;
    for (int step = 0; step < 20; ++step) {
      if (random.Chance(0.15)) {
        durable += random.Uniform(states.size() - durable);
        ASSERT_TRUE(engine.SyncTo(sequences[durable]).ok());
      } else {
        ASSERT_TRUE(engine.Write(RandomBatch(random)).ok());
        states.push_back(ContentOf(engine));
        sequences.push_back(engine.LastSequence());
      }
      engine.CheckInvariants();
      ASSERT_EQ(engine.UnsyncedWrites(), states.size() - 1 - durable);
      ASSERT_EQ(ContentOf(MemoryEngine(engine.DurableImage())),
                states[durable]);
    }
    const size_t kept = random.Uniform(engine.UnsyncedWrites() + 1);
    engine.Crash(kept);
    engine.CheckInvariants();
    EXPECT_EQ(engine.UnsyncedWrites(), 0u);
    ASSERT_EQ(ContentOf(engine), states[durable + kept]);
    ASSERT_EQ(engine.LastSequence(), sequences[durable + kept]);
  }
}

TEST(MemoryEngineTest, SyncCoversEverythingWrittenBefore) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(PutBatch("k", "1")).ok());
  ASSERT_TRUE(engine.Sync().ok());
  ASSERT_TRUE(engine.Write(PutBatch("k", "2")).ok());
  engine.Crash(0);
  EXPECT_EQ(engine.Get(Family::kData, "k", ReadTier::kAll).value, "1");
}

TEST(MemoryEngineTest, OldDiskCanBePutBack) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(PutBatch("k", "old")).ok());
  ASSERT_TRUE(engine.Sync().ok());
  const MemoryEngine::Image backup = engine.DurableImage();
  ASSERT_TRUE(engine.Write(PutBatch("k", "new")).ok());
  ASSERT_TRUE(engine.Sync().ok());
  const MemoryEngine restored(backup);
  EXPECT_EQ(restored.Get(Family::kData, "k", ReadTier::kAll).value, "old");
  EXPECT_EQ(restored.LastSequence(), backup.sequence);
  restored.CheckInvariants();
}

TEST(MemoryEngineTest, ChosenKeysAreNotCached) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(PutBatch("cold", "v")).ok());
  engine.set_not_cached(
      [](Family, absl::string_view key) { return key == "cold"; });
  EXPECT_EQ(engine.Get(Family::kData, "cold", ReadTier::kCached).outcome,
            Outcome::kNotCached);
  EXPECT_EQ(engine.Get(Family::kData, "cold", ReadTier::kAll).value, "v");
  EXPECT_EQ(engine.Get(Family::kData, "warm", ReadTier::kCached).outcome,
            Outcome::kMissing);
}

TEST(MemoryEngineTest, ReadErrorsReachPointReadsAndScans) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(PutBatch("bad", "v")).ok());
  engine.set_read_error([](Family, absl::string_view key) {
    return key == "bad" ? absl::DataLossError("checksum") : absl::OkStatus();
  });
  const ReadResult result = engine.Get(Family::kData, "bad", ReadTier::kCached);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(engine.Range(Family::kData, "", "", {}).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(engine.Range(Family::kData, "c", "", {}).ok());
}

TEST(MemoryEngineTest, StallsAndFailedSyncsChangeNothing) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(PutBatch("k", "1")).ok());
  engine.set_write_error(
      [](const WriteBatch&) { return absl::ResourceExhaustedError("stall"); });
  EXPECT_EQ(engine.Write(PutBatch("k", "2")).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(engine.Get(Family::kData, "k", ReadTier::kAll).value, "1");
  engine.set_sync_error([] { return absl::InternalError("I/O error"); });
  EXPECT_EQ(engine.Sync().status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(engine.UnsyncedWrites(), 1u);
}

TEST(MemoryEngineTest, FullDiskTakesDeletesOnly) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(PutBatch("k", std::string(100, 'v'))).ok());
  engine.set_disk_bytes_max(50);
  EXPECT_EQ(engine.Write(PutBatch("k2", "v")).status().code(),
            absl::StatusCode::kResourceExhausted);
  WriteBatch removal;
  removal.Delete(Family::kData, "k");
  EXPECT_TRUE(engine.Write(removal).ok());
  EXPECT_TRUE(engine.Write(PutBatch("k2", "v")).ok());
}

TEST(MemoryEngineTest, ADamagedRecordIsDataLossUntilItIsOverwrittenForGood) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(PutBatch("k", "1")).ok());
  ASSERT_TRUE(engine.Sync().ok());
  engine.Damage(Family::kData, "k");
  const auto outcome = [&engine] {
    return engine.Get(Family::kData, "k", ReadTier::kAll).outcome;
  };
  EXPECT_EQ(outcome(), Outcome::kFailed);
  EXPECT_TRUE(
      absl::IsDataLoss(engine.Range(Family::kData, "", "", {}).status()));
  ASSERT_TRUE(engine.Write(PutBatch("k", "2")).ok());
  EXPECT_EQ(outcome(), Outcome::kFound);
  engine.CheckInvariants();
  engine.Crash(0);  // power takes the new record with it
  EXPECT_EQ(outcome(), Outcome::kFailed);
  WriteBatch removal;
  removal.Delete(Family::kData, "k");
  ASSERT_TRUE(engine.Write(removal).ok());
  EXPECT_EQ(outcome(), Outcome::kMissing);
  engine.CheckInvariants();
}

TEST(MemoryEngineTest, AnExchangedDiskIsAllThereIs) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(PutBatch("k", "1")).ok());
  ASSERT_TRUE(engine.Sync().ok());
  MemoryEngine::Image backup = engine.DurableImage();
  ASSERT_TRUE(engine.Write(PutBatch("k", "2")).ok());
  engine.Replace(backup);
  engine.CheckInvariants();
  EXPECT_EQ(engine.UnsyncedWrites(), 0u);
  EXPECT_EQ(engine.Get(Family::kData, "k", ReadTier::kAll).value, "1");
}

}  // namespace
}  // namespace ringkv
