#include "client/bench/distribution.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::bench {
namespace {

double ZetaByAdding(uint64_t n, double theta) {
  double sum = 0;
  for (uint64_t i = n; i >= 1; --i) {
    sum += std::pow(static_cast<double>(i), -theta);
  }
  return sum;
}

TEST(ZetaTest, AgreesWithAddingUp) {
  for (double theta : {0.2, 0.5, 0.9, 0.99}) {
    for (uint64_t n : {1, 2, 999, 1000, 1001, 5000, 1'000'000}) {
      const double sum = ZetaByAdding(n, theta);
      EXPECT_NEAR(Zeta(n, theta), sum, 1e-11 * sum) << n << " " << theta;
    }
  }
}

// The constant in YCSB's source, for 10^10 items.
TEST(ZetaTest, AgreesWithTheConstantOfYcsb) {
  EXPECT_NEAR(Zeta(10'000'000'000, 0.99), 26.46902820178302, 1e-7);
}

TEST(ZipfianRanksTest, EachRankHasItsShare) {
  constexpr uint64_t kItems = 1000;
  constexpr int kDraws = 2'000'000;
  SeededRandom random(1);
  const ZipfianRanks ranks(kItems);
  std::vector<int> seen(kItems);
  for (int i = 0; i < kDraws; ++i) ++seen[ranks.Next(random)];
  const double zeta = ZetaByAdding(kItems, kZipfianTheta);
  // The first two are exact, the others an approximation whose cumulative shape
  // holds (Gray et al.).
  EXPECT_NEAR(seen[0], kDraws / zeta, 4 * std::sqrt(kDraws / zeta));
  EXPECT_NEAR(seen[1], kDraws / zeta / std::pow(2, kZipfianTheta),
              4 * std::sqrt(kDraws / zeta));
  for (uint64_t upto : {3, 10, 30, 100, 300, 1000}) {
    const double share =
        std::accumulate(seen.begin(), seen.begin() + static_cast<long>(upto),
                        0.0) /
        kDraws;
    EXPECT_NEAR(share, ZetaByAdding(upto, kZipfianTheta) / zeta, 0.02) << upto;
  }
}

TEST(ZipfianRanksTest, StaysInRangeForAnySize) {
  SeededRandom random(2);
  for (uint64_t items : {1, 2, 3, 4, 10, 1'000'000}) {
    const ZipfianRanks ranks(items);
    for (int i = 0; i < 10'000; ++i) ASSERT_LT(ranks.Next(random), items);
  }
}

TEST(ZipfianRanksTest, GrowingIsTheSameAsStartingLarge) {
  ZipfianRanks grown(10);
  for (uint64_t items : {11, 100, 5000, 5001}) grown.Grow(items);
  const ZipfianRanks fresh(5001);
  EXPECT_EQ(grown.items(), fresh.items());
  EXPECT_NEAR(grown.top_probability(), fresh.top_probability(), 1e-12);
  SeededRandom left(3);
  SeededRandom right(3);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_NEAR(static_cast<double>(grown.Next(left)),
                static_cast<double>(fresh.Next(right)), 1);
  }
}

TEST(RecordChooserTest, UniformGivesEachRecordTheSame) {
  constexpr uint64_t kRecords = 100;
  constexpr int kDraws = 1'000'000;
  SeededRandom random(4);
  auto chooser = MakeChooser(Distribution::kUniform, kRecords);
  std::vector<int> seen(kRecords);
  for (int i = 0; i < kDraws; ++i) ++seen[chooser->Next(random, kRecords)];
  for (int count : seen) EXPECT_NEAR(count, 10'000, 5 * 100);
}

TEST(RecordChooserTest, ZipfianSpreadsItsPopularRecords) {
  constexpr uint64_t kRecords = 10'000;
  constexpr int kDraws = 1'000'000;
  SeededRandom random(5);
  auto chooser = MakeChooser(Distribution::kZipfian, kRecords);
  std::vector<int> seen(kRecords);
  for (int i = 0; i < kDraws; ++i) ++seen[chooser->Next(random, kRecords)];
  std::vector<uint64_t> order(kRecords);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint64_t a, uint64_t b) { return seen[a] > seen[b]; });
  // The most popular gets 1 / 26.469, and what falls on it by hash.
  EXPECT_NEAR(seen[order[0]] / static_cast<double>(kDraws), 1 / 26.469, 0.001);
  // Not bunched: the ten most popular lie all over the range.
  double mean = 0;
  for (int i = 0; i < 10; ++i) mean += static_cast<double>(order[i]) / 10;
  EXPECT_NEAR(mean, kRecords / 2.0, kRecords / 4.0);
  // Skewed: a tenth of the records gets what the thousand most popular of 10^10
  // have, and a tenth of the rest.
  int top = 0;
  for (uint64_t i = 0; i < kRecords / 10; ++i) top += seen[order[i]];
  const double popular = Zeta(1000, kZipfianTheta) / 26.469;
  EXPECT_NEAR(top / static_cast<double>(kDraws), popular + (1 - popular) / 10,
              0.05);
  // And everybody gets some.
  EXPECT_GT(seen[order[kRecords - 1]], 0);
}

TEST(RecordChooserTest, ZipfianKeepsItsPopularRecordsWhenRecordsAreAdded) {
  SeededRandom before(6);
  SeededRandom after(6);
  auto one = MakeChooser(Distribution::kZipfian, 1000);
  auto other = MakeChooser(Distribution::kZipfian, 1000);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(one->Next(before, 1000), other->Next(after, 1000 + i));
  }
}

TEST(RecordChooserTest, LatestFollowsTheInserts) {
  constexpr int kDraws = 200'000;
  SeededRandom random(7);
  auto chooser = MakeChooser(Distribution::kLatest, 1000);
  for (uint64_t records : {1000, 1001, 3000, 50'000}) {
    int newest = 0;
    int recent = 0;
    for (int i = 0; i < kDraws; ++i) {
      const uint64_t record = chooser->Next(random, records);
      ASSERT_LT(record, records);
      newest += record == records - 1 ? 1 : 0;
      recent += record + 100 >= records ? 1 : 0;
    }
    const double zeta = Zeta(records, kZipfianTheta);
    EXPECT_NEAR(newest / static_cast<double>(kDraws), 1 / zeta, 0.003);
    EXPECT_NEAR(recent / static_cast<double>(kDraws),
                Zeta(100, kZipfianTheta) / zeta, 0.02);
  }
}

TEST(DistributionTest, NamesAreReadBack) {
  for (Distribution each : {Distribution::kUniform, Distribution::kZipfian,
                            Distribution::kLatest}) {
    auto parsed = ParseDistribution(DistributionName(each));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, each);
  }
  const auto unknown = ParseDistribution("zipf");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()),
              testing::HasSubstr("zipfian"));
}

}  // namespace
}  // namespace ringkv::bench
