// The contract of storage/engine.h, for every engine.

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/engine.h"
#include "tests/storage/engine_testing.h"

namespace ringkv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Outcome = ReadResult::Outcome;

template <class T>
class EngineContractTest : public testing::Test {
 protected:
  Engine& engine() { return under_test_.engine(); }
  void Restart() { under_test_.Restart(); }

  uint64_t Write(const WriteBatch& batch) {
    const absl::StatusOr<uint64_t> sequence = engine().Write(batch);
    EXPECT_TRUE(sequence.ok()) << sequence.status();
    return sequence.value_or(0);
  }
  uint64_t Put(Family family, std::string key, std::string value) {
    WriteBatch batch;
    batch.Put(family, std::move(key), std::move(value));
    return Write(batch);
  }
  ReadResult Get(Family family, absl::string_view key) {
    return engine().Get(family, key, ReadTier::kAll);
  }
  // The value, or "(missing)".
  std::string ValueOf(Family family, absl::string_view key) {
    const ReadResult result = Get(family, key);
    EXPECT_TRUE(result.outcome == Outcome::kFound ||
                result.outcome == Outcome::kMissing)
        << result.status;
    return result.outcome == Outcome::kFound ? result.value : "(missing)";
  }
  std::vector<std::string> KeysIn(Family family, absl::string_view begin,
                                  absl::string_view end) {
    std::vector<std::string> keys;
    const absl::Status status = engine().Visit(
        family, begin, end, [&keys](absl::string_view key, absl::string_view) {
          keys.emplace_back(key);
          return true;
        });
    EXPECT_TRUE(status.ok()) << status;
    return keys;
  }

 private:
  T under_test_;
};

using Engines = testing::Types<MemoryEngineUnderTest, RocksDbEngineUnderTest>;
TYPED_TEST_SUITE(EngineContractTest, Engines);

TYPED_TEST(EngineContractTest, ReadsWhatWasWrittenAtBothTiers) {
  this->Put(Family::kData, "k", "v");
  for (ReadTier tier : {ReadTier::kCached, ReadTier::kAll}) {
    const ReadResult found = this->engine().Get(Family::kData, "k", tier);
    EXPECT_EQ(found.outcome, Outcome::kFound);
    EXPECT_EQ(found.value, "v");
    EXPECT_EQ(this->engine().Get(Family::kData, "other", tier).outcome,
              Outcome::kMissing);
  }
}

TYPED_TEST(EngineContractTest, FamiliesAreApart) {
  this->Put(Family::kData, "k", "data");
  this->Put(Family::kMeta, "k", "meta");
  EXPECT_EQ(this->ValueOf(Family::kData, "k"), "data");
  EXPECT_EQ(this->ValueOf(Family::kHints, "k"), "(missing)");
  EXPECT_EQ(this->ValueOf(Family::kMeta, "k"), "meta");
}

TYPED_TEST(EngineContractTest, ChangesOfOneBatchApplyInTheirOrder) {
  WriteBatch batch;
  batch.Put(Family::kData, "a", "first");
  batch.Put(Family::kData, "a", "second");
  batch.Put(Family::kData, "b", "gone");
  batch.Delete(Family::kData, "b");
  batch.Delete(Family::kData, "c");
  batch.Put(Family::kData, "c", "stays");
  batch.Put(Family::kHints, "a", "hint");
  this->Write(batch);
  EXPECT_EQ(this->ValueOf(Family::kData, "a"), "second");
  EXPECT_EQ(this->ValueOf(Family::kData, "b"), "(missing)");
  EXPECT_EQ(this->ValueOf(Family::kData, "c"), "stays");
  EXPECT_EQ(this->ValueOf(Family::kHints, "a"), "hint");
}

TYPED_TEST(EngineContractTest,
           DeleteRangeTakesWhatCameBeforeAndNotWhatFollows) {
  this->Put(Family::kData, "b0", "older");
  WriteBatch batch;
  batch.Put(Family::kData, "b1", "earlier in the batch");
  batch.DeleteRange(Family::kData, "b", "c");
  batch.Put(Family::kData, "b2", "later in the batch");
  batch.Put(Family::kData, "c", "the first key kept");
  this->Write(batch);
  EXPECT_THAT(this->KeysIn(Family::kData, "", ""), ElementsAre("b2", "c"));
  this->Put(Family::kData, "b0", "written again");
  EXPECT_EQ(this->ValueOf(Family::kData, "b0"), "written again");
}

TYPED_TEST(EngineContractTest, DeleteRangeIsOfOneFamilyAndMayBeEmpty) {
  this->Put(Family::kData, "b", "data");
  this->Put(Family::kHints, "b", "hint");
  WriteBatch batch;
  batch.DeleteRange(Family::kHints, "a", "z");
  batch.DeleteRange(Family::kData, "b", "b");
  batch.DeleteRange(Family::kData, "z", "a");
  batch.DeleteRange(Family::kData, "a", "");
  this->Write(batch);
  EXPECT_EQ(this->ValueOf(Family::kData, "b"), "data");
  EXPECT_EQ(this->ValueOf(Family::kHints, "b"), "(missing)");
}

TYPED_TEST(EngineContractTest, SequencesGrowAndSyncReachesThem) {
  const uint64_t first = this->Put(Family::kData, "a", "1");
  const uint64_t second = this->Put(Family::kData, "b", "2");
  EXPECT_LT(first, second);
  EXPECT_EQ(this->engine().LastSequence(), second);
  EXPECT_EQ(this->Write(WriteBatch()), second);
  const auto synced = this->engine().Sync();
  ASSERT_TRUE(synced.ok()) << synced.status();
  EXPECT_EQ(*synced, second);
  EXPECT_TRUE(this->engine().Sync().ok());
}

TYPED_TEST(EngineContractTest, RestartKeepsWhatWasHandedToTheSystem) {
  this->Put(Family::kData, "synced", "1");
  ASSERT_TRUE(this->engine().Sync().ok());
  WriteBatch batch;
  batch.Put(Family::kData, "k", "2");
  batch.Put(Family::kHints, "k", "3");
  batch.Put(Family::kMeta, "k", "4");
  const uint64_t before = this->Write(batch);
  for (int i = 0; i < 2; ++i) {
    this->Restart();
    EXPECT_EQ(this->ValueOf(Family::kData, "synced"), "1");
    EXPECT_EQ(this->ValueOf(Family::kData, "k"), "2");
    EXPECT_EQ(this->ValueOf(Family::kHints, "k"), "3");
    EXPECT_EQ(this->ValueOf(Family::kMeta, "k"), "4");
    EXPECT_GE(this->engine().LastSequence(), before);
  }
  EXPECT_GT(this->Put(Family::kData, "k", "5"), before);
}

TYPED_TEST(EngineContractTest, KeepsBigAndEmptyValuesAndAnyBytes) {
  const std::string big(3 << 20, 'b');
  const std::string bytes = std::string("\0\xff\n\0", 4);
  const std::string high(20, '\xff');
  this->Put(Family::kData, "big", big);
  this->Put(Family::kData, "empty", "");
  this->Put(Family::kData, bytes, bytes);
  this->Put(Family::kData, high, high);
  this->Put(Family::kData, "", "of the empty key");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(this->ValueOf(Family::kData, "big"), big);
    EXPECT_EQ(this->Get(Family::kData, "empty").outcome, Outcome::kFound);
    EXPECT_EQ(this->ValueOf(Family::kData, "empty"), "");
    EXPECT_EQ(this->ValueOf(Family::kData, bytes), bytes);
    EXPECT_EQ(this->ValueOf(Family::kData, high), high);
    EXPECT_EQ(this->ValueOf(Family::kData, ""), "of the empty key");
    EXPECT_THAT(this->KeysIn(Family::kData, "", ""),
                ElementsAre("", bytes, "big", "empty", high));
    this->Restart();
  }
}

TYPED_TEST(EngineContractTest, KeysOrderAsUnsignedBytes) {
  for (const char* key : {"\x80", "a", "\xff", "ab", "\x01"}) {
    this->Put(Family::kData, key, "v");
  }
  EXPECT_THAT(this->KeysIn(Family::kData, "", ""),
              ElementsAre("\x01", "a", "ab", "\x80", "\xff"));
}

TYPED_TEST(EngineContractTest, RangeStopsAtItsEndAndSaysWhetherAllCame) {
  for (char c = 'a'; c <= 'e'; ++c) {
    this->Put(Family::kData, std::string(1, c), "12345");
  }
  const auto range = [this](absl::string_view begin, absl::string_view end,
                            RangeLimits limits) {
    const auto result = this->engine().Range(Family::kData, begin, end, limits);
    EXPECT_TRUE(result.ok()) << result.status();
    std::string keys;
    for (const Entry& entry : result->entries) keys += entry.key;
    return absl::StrCat(keys, result->complete ? " complete" : " cut");
  };
  EXPECT_EQ(range("", "", {}), "abcde complete");
  EXPECT_EQ(range("b", "d", {}), "bc complete");
  EXPECT_EQ(range("d", "", {}), "de complete");
  EXPECT_EQ(range("f", "", {}), " complete");
  EXPECT_EQ(range("c", "c", {}), " complete");
  EXPECT_EQ(range("d", "b", {}), " complete");
  EXPECT_EQ(range("b", "", {.entries_max = 2}), "bc cut");
  EXPECT_EQ(range("b", "d", {.entries_max = 2}), "bc complete");
  EXPECT_EQ(range("a", "", {.bytes_max = 12}), "ab cut");
  EXPECT_EQ(range("a", "", {.bytes_max = 0}), "a cut");
  EXPECT_EQ(range("e", "", {.bytes_max = 0}), "e complete");
}

TYPED_TEST(EngineContractTest, VisitStopsWhenToldAndGivesKeysWithValues) {
  for (int i = 0; i < 5; ++i) {
    this->Put(Family::kMeta, absl::StrCat("k", i), absl::StrCat("v", i));
  }
  std::vector<std::string> seen;
  ASSERT_TRUE(
      this->engine()
          .Visit(Family::kMeta, "k1", "k9",
                 [&seen](absl::string_view key, absl::string_view value) {
                   seen.push_back(absl::StrCat(key, "=", value));
                   return seen.size() < 2;
                 })
          .ok());
  EXPECT_THAT(seen, ElementsAre("k1=v1", "k2=v2"));
  EXPECT_THAT(this->KeysIn(Family::kMeta, "k9", "k1"), IsEmpty());
}

TYPED_TEST(EngineContractTest, StatsFollowTheContent) {
  for (int i = 0; i < 100; ++i) {
    this->Put(Family::kData, absl::StrCat("k", i), std::string(100, 'v'));
  }
  const EngineStats stats = this->engine().Stats();
  EXPECT_EQ(stats.data_keys, 100u);
  EXPECT_GT(stats.memory_bytes, 0u);
}

// Random changes against a plain map for each family, with restarts.
TYPED_TEST(EngineContractTest, BehavesLikeAMapUnderRandomOperations) {
  SeededRandom random(17);
  std::map<std::string, std::string> model[kFamilies];
  const auto random_key = [&random] {
    std::string key(random.Uniform(4), '\0');
    for (char& c : key) {
      c = static_cast<char>(random.Chance(0.5) ? random.Uniform(3)
                                               : 255 - random.Uniform(3));
    }
    return key;
  };
  uint64_t last = this->engine().LastSequence();
  for (int round = 0; round < 1500; ++round) {
    WriteBatch batch;
    for (uint64_t i = random.Uniform(6); i > 0; --i) {
      const int f = static_cast<int>(random.Uniform(kFamilies));
      const Family family = static_cast<Family>(f);
      const std::string key = random_key();
      switch (random.Uniform(8)) {
        case 0: {
          const std::string end = random_key();
          batch.DeleteRange(family, key, end);
          if (key < end) {
            model[f].erase(model[f].lower_bound(key),
                           model[f].lower_bound(end));
          }
          break;
        }
        case 1:
        case 2:
          batch.Delete(family, key);
          model[f].erase(key);
          break;
        default: {
          const std::string value = absl::StrCat(round, ".", i);
          batch.Put(family, key, value);
          model[f][key] = value;
          break;
        }
      }
    }
    const uint64_t sequence = this->Write(batch);
    ASSERT_GE(sequence, last);
    last = sequence;
    if (random.Chance(0.05)) {
      ASSERT_TRUE(this->engine().Sync().ok());
    }
    if (random.Chance(0.01)) this->Restart();

    const int f = static_cast<int>(random.Uniform(kFamilies));
    const std::string key = random_key();
    const auto expected = model[f].find(key);
    ASSERT_EQ(this->ValueOf(static_cast<Family>(f), key),
              expected == model[f].end() ? "(missing)" : expected->second);
    if (round % 10 != 0) continue;
    const std::string end = random_key();
    const RangeLimits limits{.entries_max = 1 + random.Uniform(20)};
    const auto range =
        this->engine().Range(static_cast<Family>(f), key, end, limits);
    ASSERT_TRUE(range.ok()) << range.status();
    auto place = model[f].lower_bound(key);
    const auto in_range = [&] {
      return place != model[f].end() && (end.empty() || place->first < end);
    };
    for (const Entry& entry : range->entries) {
      ASSERT_TRUE(in_range());
      ASSERT_EQ(entry.key, place->first);
      ASSERT_EQ(entry.value, place->second);
      ++place;
    }
    ASSERT_EQ(range->complete, !in_range());
    if (!range->complete) {
      ASSERT_EQ(range->entries.size(), limits.entries_max);
    }
  }
}

}  // namespace
}  // namespace ringkv
