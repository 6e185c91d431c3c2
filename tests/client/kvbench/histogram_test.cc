#include "client/bench/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::bench {
namespace {

constexpr double kQuantiles[] = {0,   0.001, 0.01, 0.1,   0.25,   0.5, 0.75,
                                 0.9, 0.95,  0.99, 0.999, 0.9999, 1};

// What ValueAt() promises, over the values themselves.
int64_t Oracle(std::vector<int64_t> values, double quantile) {
  std::sort(values.begin(), values.end());
  const double wanted =
      std::ceil(quantile * static_cast<double>(values.size()) - 1e-9);
  return values[static_cast<size_t>(std::max(wanted, 1.0)) - 1];
}

void ExpectClose(const LatencyHistogram& histogram,
                 const std::vector<int64_t>& values) {
  ASSERT_EQ(histogram.count(), values.size());
  for (double quantile : kQuantiles) {
    const int64_t exact = Oracle(values, quantile);
    const int64_t got = histogram.ValueAt(quantile);
    EXPECT_GE(got, exact) << quantile;
    EXPECT_LE(static_cast<double>(got), static_cast<double>(exact) * 1.001)
        << quantile;
  }
  EXPECT_EQ(histogram.min(), *std::min_element(values.begin(), values.end()));
  EXPECT_EQ(histogram.max(), *std::max_element(values.begin(), values.end()));
}

TEST(LatencyHistogramTest, AnswersZeroWhenEmpty) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.ValueAt(0.5), 0);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.Mean(), 0);
}

TEST(LatencyHistogramTest, KeepsSmallValuesExactly) {
  LatencyHistogram histogram;
  for (int64_t value = 0; value < 2048; ++value) histogram.Record(value);
  for (int64_t value = 0; value < 2048; ++value) {
    EXPECT_EQ(histogram.ValueAt(static_cast<double>(value + 1) / 2048), value);
  }
}

TEST(LatencyHistogramTest, KeepsThreeDigitsOfAnyValue) {
  for (int bits = 0; bits < 42; ++bits) {
    for (int64_t offset : {-1, 0, 1}) {
      const int64_t value = (int64_t{1} << bits) + offset;
      LatencyHistogram histogram;
      histogram.Record(value);
      histogram.Record(LatencyHistogram::kValueMax);
      EXPECT_GE(histogram.ValueAt(0.5), value);
      EXPECT_LE(static_cast<double>(histogram.ValueAt(0.5)),
                static_cast<double>(value) * 1.001);
    }
  }
}

TEST(LatencyHistogramTest, AgreesWithSortedValuesOfManyShapes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SeededRandom random(seed);
    LatencyHistogram histogram;
    std::vector<int64_t> values;
    const int count = 1 + static_cast<int>(random.Uniform(20000));
    const double scale = std::pow(10, random.NextDouble() * 9);
    for (int i = 0; i < count; ++i) {
      // Uniform, exponential, or over many orders of magnitude.
      double value = random.NextDouble() * scale;
      if (seed % 3 == 1) value = -std::log1p(-random.NextDouble()) * scale;
      if (seed % 3 == 2) value = std::pow(10, random.NextDouble() * 12);
      values.push_back(static_cast<int64_t>(value));
      histogram.Record(values.back());
    }
    ExpectClose(histogram, values);
    double sum = 0;
    for (int64_t value : values) sum += static_cast<double>(value);
    EXPECT_NEAR(histogram.Mean(), sum / count, 1e-9 * sum);
  }
}

TEST(LatencyHistogramTest, MergesAsIfRecordedTogether) {
  SeededRandom random(7);
  LatencyHistogram together;
  LatencyHistogram left;
  LatencyHistogram right;
  for (int i = 0; i < 10000; ++i) {
    const int64_t value = static_cast<int64_t>(random.Uniform(1'000'000'000));
    together.Record(value);
    (i % 3 == 0 ? left : right).Record(value);
  }
  left.Merge(right);
  left.Merge(LatencyHistogram());
  EXPECT_EQ(left.count(), together.count());
  EXPECT_EQ(left.min(), together.min());
  EXPECT_EQ(left.max(), together.max());
  for (double quantile : kQuantiles) {
    EXPECT_EQ(left.ValueAt(quantile), together.ValueAt(quantile));
  }
}

TEST(LatencyHistogramTest, ClampsWhatIsOutOfRange) {
  LatencyHistogram histogram;
  histogram.Record(-5);
  histogram.Record(LatencyHistogram::kValueMax);
  histogram.Record(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(histogram.count(), 3u);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), LatencyHistogram::kValueMax);
  EXPECT_EQ(histogram.ValueAt(1), LatencyHistogram::kValueMax);
}

TEST(LatencyHistogramTest, ClearForgets) {
  LatencyHistogram histogram;
  histogram.Record(1000);
  histogram.Clear();
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.ValueAt(0.99), 0);
  histogram.Record(5);
  EXPECT_EQ(histogram.min(), 5);
  EXPECT_EQ(histogram.max(), 5);
}

TEST(LatencyHistogramTest, CorrectionCountsRequestsThatWereNotSent) {
  LatencyHistogram histogram;
  // One every 10 ms was meant; an answer took 100 ms, so nine were not sent.
  histogram.RecordCorrected(100, 10);
  EXPECT_EQ(histogram.count(), 10u);
  EXPECT_EQ(histogram.min(), 10);
  EXPECT_EQ(histogram.max(), 100);
  EXPECT_EQ(histogram.ValueAt(0.5), 50);
}

TEST(LatencyHistogramTest, CorrectionLeavesFastAnswersAlone) {
  LatencyHistogram histogram;
  histogram.RecordCorrected(19, 10);
  histogram.RecordCorrected(7, 10);
  histogram.RecordCorrected(1000, 0);
  EXPECT_EQ(histogram.count(), 3u);
}

// Tene's example: 100 s at one request each 10 ms, then a stop of 100 s.
TEST(LatencyHistogramTest, CorrectionShowsAPauseInThePercentiles) {
  LatencyHistogram plain;
  LatencyHistogram corrected;
  constexpr int64_t kMillisecond = 1'000'000;
  for (int i = 0; i < 10'000; ++i) {
    plain.Record(kMillisecond);
    corrected.RecordCorrected(kMillisecond, 10 * kMillisecond);
  }
  plain.Record(100'000 * kMillisecond);
  corrected.RecordCorrected(100'000 * kMillisecond, 10 * kMillisecond);
  EXPECT_EQ(plain.ValueAt(0.99), corrected.ValueAt(0.5));
  EXPECT_NEAR(static_cast<double>(corrected.ValueAt(0.75)),
              50'000.0 * kMillisecond, 100.0 * kMillisecond);
}

}  // namespace
}  // namespace ringkv::bench
