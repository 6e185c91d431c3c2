// Latencies, kept in buckets instead of one by one.
//
// Log-linear as in HdrHistogram (Gil Tene): each power of two is cut into 1,024
// equal buckets, so that a value is known to better than 0.1 % (3 significant
// digits) whatever its size. Recording costs a shift and an increment.
// Thread-compatible.

#ifndef RINGKV_CLIENT_BENCH_HISTOGRAM_H_
#define RINGKV_CLIENT_BENCH_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringkv::bench {

class LatencyHistogram {
 public:
  // Values above are recorded as this: 2^42 - 1 ns, more than an hour.
  static constexpr int64_t kValueMax = (int64_t{1} << 42) - 1;

  LatencyHistogram();

  // Counts one latency in nanoseconds. A negative one counts as 0.
  void Record(int64_t nanos) { RecordMany(nanos, 1); }
  void RecordMany(int64_t nanos, uint64_t count);

  // For a closed loop that meant to send every `interval_nanos` and could not,
  // because it waited for this answer: also counts the requests that were not
  // sent, at nanos - interval, nanos - 2 * interval and so on while positive at
  // least one interval. An interval of 0 or less corrects nothing.
  void RecordCorrected(int64_t nanos, int64_t interval_nanos);

  void Merge(const LatencyHistogram& other);
  void Clear();

  uint64_t count() const { return count_; }
  // 0 when nothing was recorded.
  int64_t min() const { return count_ == 0 ? 0 : min_; }
  int64_t max() const { return max_; }
  // Exact, of the values as they were recorded.
  double Mean() const;

  // The smallest value that at least `quantile` (0 to 1) of the values do not
  // exceed, rounded up to the end of its bucket but never above max(). 0 when
  // nothing was recorded.
  int64_t ValueAt(double quantile) const;

 private:
  static size_t BucketOf(int64_t nanos);
  static int64_t BucketEnd(size_t bucket);

  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  int64_t min_ = 0;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_HISTOGRAM_H_
