#include "client/bench/workload.h"

#include <array>
#include <map>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::bench {
namespace {

std::array<double, kOperationKinds> SharesDrawn(const Workload& workload,
                                                int draws) {
  InsertCounter inserts(1000);
  auto source = MakeRunSource(workload, inserts, 11);
  std::array<double, kOperationKinds> shares{};
  for (int i = 0; i < draws; ++i) {
    Operation operation;
    EXPECT_TRUE(source->Next(operation));
    shares[static_cast<size_t>(operation.kind)] += 1.0 / draws;
    source->Finished(operation, true);
  }
  return shares;
}

TEST(WorkloadTest, CoreWorkloadsHaveTheMixesOfThePaper) {
  struct Expected {
    const char* name;
    Distribution distribution;
    // read, update, insert, scan, read-modify-write
    std::array<double, kOperationKinds> mix;
  };
  for (const Expected& expected : {
           Expected{"a", Distribution::kZipfian, {0.5, 0.5, 0, 0, 0}},
           Expected{"B", Distribution::kZipfian, {0.95, 0.05, 0, 0, 0}},
           Expected{"c", Distribution::kZipfian, {1, 0, 0, 0, 0}},
           Expected{"D", Distribution::kLatest, {0.95, 0, 0.05, 0, 0}},
           Expected{"e", Distribution::kZipfian, {0, 0, 0.05, 0.95, 0}},
           Expected{"f", Distribution::kZipfian, {0.5, 0, 0, 0, 0.5}},
           Expected{"get", Distribution::kUniform, {1, 0, 0, 0, 0}},
           Expected{"put", Distribution::kUniform, {0, 1, 0, 0, 0}},
       }) {
    auto workload = NamedWorkload(expected.name);
    ASSERT_TRUE(workload.ok()) << expected.name;
    EXPECT_EQ(workload->distribution, expected.distribution) << expected.name;
    const auto shares = SharesDrawn(*workload, 50'000);
    for (size_t i = 0; i < kOperationKinds; ++i) {
      EXPECT_NEAR(shares[i], expected.mix[i], 0.01) << expected.name << i;
      if (expected.mix[i] == 0) {
        EXPECT_EQ(shares[i], 0) << expected.name << i;
      }
    }
  }
  EXPECT_EQ(NamedWorkload("g").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(NamedWorkload("").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(WorkloadTest, MixesAreSharesOfTheirSum) {
  auto mix = ParseMix("read=3,rmw=1");
  ASSERT_TRUE(mix.ok());
  EXPECT_THAT(*mix, testing::ElementsAre(0.75, 0, 0, 0, 0.25));
}

TEST(WorkloadTest, BadMixesAreRefusedByName) {
  const std::map<std::string, std::string> bad = {
      {"", "KIND=SHARE"},          {"read", "no number"},
      {"write=1", "'write=1'"},    {"read=1,read=2", "twice"},
      {"read=-1", "no number"},    {"read=x", "no number"},
      {"read=inf", "no number"},   {"read=nan", "no number"},
      {"read=0,scan=0", "add up"}, {"read=1,,scan=1", "KIND=SHARE"}};
  for (const auto& [text, message] : bad) {
    const auto mix = ParseMix(text);
    EXPECT_EQ(mix.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(mix.status().message()),
                testing::HasSubstr(message));
  }
}

TEST(WorkloadTest, ScansTakeUniformLengthsUpToTheirBound) {
  Workload workload = *NamedWorkload("e");
  workload.scan_length_max = 10;
  InsertCounter inserts(1000);
  auto source = MakeRunSource(workload, inserts, 12);
  std::map<uint32_t, int> lengths;
  int scans = 0;
  for (int i = 0; i < 50'000; ++i) {
    Operation operation;
    ASSERT_TRUE(source->Next(operation));
    if (operation.kind != OperationKind::kScan) continue;
    ++scans;
    ++lengths[operation.scan_length];
  }
  EXPECT_EQ(lengths.size(), 10u);
  EXPECT_EQ(lengths.begin()->first, 1u);
  for (const auto& [length, count] : lengths) {
    EXPECT_NEAR(count, scans / 10.0, scans / 50.0) << length;
  }
}

TEST(WorkloadTest, LatestReadsNothingThatIsNotStoredYet) {
  InsertCounter inserts(10);
  auto source = MakeRunSource(*NamedWorkload("d"), inserts, 13);
  std::set<uint64_t> stored;
  for (uint64_t i = 0; i < 10; ++i) stored.insert(i);
  std::vector<Operation> in_flight;
  SeededRandom random(14);
  for (int i = 0; i < 20'000; ++i) {
    Operation operation;
    ASSERT_TRUE(source->Next(operation));
    if (operation.kind == OperationKind::kRead) {
      ASSERT_TRUE(stored.contains(operation.record)) << operation.record;
      continue;
    }
    in_flight.push_back(operation);
    if (in_flight.size() < 20) continue;
    // Inserts end in any order, and some fail.
    std::swap(in_flight.back(), in_flight[random.Uniform(in_flight.size())]);
    const bool done = random.Chance(0.8);
    if (done) stored.insert(in_flight.back().record);
    source->Finished(in_flight.back(), done);
    in_flight.pop_back();
  }
  // Failed ones were tried again, so that the window did not get stuck.
  EXPECT_GT(inserts.stored(), 500u);
}

TEST(WorkloadTest, LoadingInsertsEachRecordOnceOverAllSources) {
  std::atomic<uint64_t> next{0};
  auto one = MakeLoadSource(next, 1000);
  auto other = MakeLoadSource(next, 1000);
  std::set<uint64_t> records;
  Operation operation;
  int drawn = 0;
  while ((drawn % 3 == 0 ? one : other)->Next(operation)) {
    EXPECT_EQ(operation.kind, OperationKind::kInsert);
    EXPECT_TRUE(records.insert(operation.record).second);
    ++drawn;
  }
  EXPECT_EQ(records.size(), 1000u);
  EXPECT_EQ(*records.rbegin(), 999u);
  EXPECT_FALSE(one->Next(operation));
  EXPECT_FALSE(other->Next(operation));
}

TEST(RecordsTest, ValuesBelongToTheirRecordAndDiffer) {
  SeededRandom random(15);
  for (size_t size : {0, 1, 7, 8, 100, 5'000'000}) {
    const Records records(size, 16);
    const std::string value = records.NewValue(42, random);
    EXPECT_EQ(value.size(), size);
    EXPECT_TRUE(Records::Matches(42, value));
    if (size >= 8) {
      EXPECT_FALSE(Records::Matches(43, value));
    }
    if (size >= 100) {
      EXPECT_NE(value, records.NewValue(42, random));
    }
  }
}

TEST(RecordsTest, KeysAreDistinctAndOfOneSize) {
  std::set<std::string> keys;
  for (uint64_t i = 0; i < 10'000; ++i) keys.insert(Records::KeyOf(i));
  EXPECT_EQ(keys.size(), 10'000u);
  for (const std::string& key : keys) EXPECT_EQ(key.size(), 20u);
}

}  // namespace
}  // namespace ringkv::bench
