#include "client/bench/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace ringkv::bench {
namespace {

// Values below 2^11 have a bucket each; above, the upper 11 bits choose it.
constexpr int kDigitBits = 11;
constexpr size_t kBucketsPerOctave = size_t{1} << (kDigitBits - 1);
constexpr int kValueBits = 42;
constexpr size_t kBuckets =
    (kValueBits - kDigitBits) * kBucketsPerOctave + 2 * kBucketsPerOctave;

static_assert(LatencyHistogram::kValueMax == (int64_t{1} << kValueBits) - 1);

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(kBuckets) {}

size_t LatencyHistogram::BucketOf(int64_t nanos) {
  const uint64_t value = static_cast<uint64_t>(nanos);
  const int shift =
      std::max(0, static_cast<int>(std::bit_width(value)) - kDigitBits);
  return static_cast<size_t>(shift) * kBucketsPerOctave + (value >> shift);
}

int64_t LatencyHistogram::BucketEnd(size_t bucket) {
  if (bucket < 2 * kBucketsPerOctave) return static_cast<int64_t>(bucket);
  const size_t shift = bucket / kBucketsPerOctave - 1;
  const size_t digits = bucket - shift * kBucketsPerOctave;
  return static_cast<int64_t>(((digits + 1) << shift) - 1);
}

void LatencyHistogram::RecordMany(int64_t nanos, uint64_t count) {
  if (count == 0) return;
  const int64_t value = std::clamp<int64_t>(nanos, 0, kValueMax);
  buckets_[BucketOf(value)] += count;
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = std::max(max_, value);
  count_ += count;
  sum_ += static_cast<double>(value) * static_cast<double>(count);
}

void LatencyHistogram::RecordCorrected(int64_t nanos, int64_t interval_nanos) {
  Record(nanos);
  if (interval_nanos <= 0) return;
  const int64_t value = std::min(nanos, kValueMax);
  for (int64_t missed = value - interval_nanos; missed >= interval_nanos;
       missed -= interval_nanos) {
    Record(missed);
  }
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  if (other.count_ == 0) return;
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  count_ += other.count_;
  sum_ += other.sum_;
}

void LatencyHistogram::Clear() {
  std::fill(buckets_.begin(), buckets_.end(), 0);
  count_ = 0;
  min_ = max_ = 0;
  sum_ = 0;
}

double LatencyHistogram::Mean() const {
  return count_ == 0 ? 0 : sum_ / static_cast<double>(count_);
}

int64_t LatencyHistogram::ValueAt(double quantile) const {
  RINGKV_CHECK(quantile >= 0 && quantile <= 1);
  if (count_ == 0) return 0;
  const uint64_t wanted = std::clamp<uint64_t>(
      static_cast<uint64_t>(
          std::ceil(quantile * static_cast<double>(count_) - 1e-9)),
      1, count_);
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= wanted) return std::min(BucketEnd(i), max_);
  }
  return max_;
}

}  // namespace ringkv::bench
