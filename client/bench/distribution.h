// Which record comes next: the request distributions of YCSB.
//
// Sources: Gray et al., "Quickly generating billion-record synthetic
// databases", SIGMOD 1994 (the zipfian generator); Cooper et al., "Benchmarking
// cloud serving systems with YCSB", SoCC 2010.

#ifndef RINGKV_CLIENT_BENCH_DISTRIBUTION_H_
#define RINGKV_CLIENT_BENCH_DISTRIBUTION_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/random.h"

namespace ringkv::bench {

// YCSB's constant.
inline constexpr double kZipfianTheta = 0.99;

// Sum of 1 / i^theta over 1 <= i <= n, to about 12 digits, in constant time.
// Requires n >= 1 and 0 < theta < 1.
double Zeta(uint64_t n, double theta);

// Ranks in [0, items), rank i with a probability proportional to
// 1 / (i + 1)^theta: 0 is the most popular.
class ZipfianRanks {
 public:
  // Requires items >= 1.
  explicit ZipfianRanks(uint64_t items, double theta = kZipfianTheta);

  uint64_t Next(Random& random) const;

  uint64_t items() const { return items_; }
  // Probability of the most popular item.
  double top_probability() const { return 1 / zeta_; }
  // Adds items at the unpopular end. Requires items >= items().
  void Grow(uint64_t items);

 private:
  void Prepare();

  uint64_t items_;
  double theta_;
  double zeta_ = 0;
  double alpha_ = 0;
  double eta_ = 0;
};

enum class Distribution : uint8_t { kUniform, kZipfian, kLatest };

absl::string_view DistributionName(Distribution distribution);

// INVALID_ARGUMENT names the known ones.
absl::StatusOr<Distribution> ParseDistribution(absl::string_view name);

// Chooses records. Thread-compatible.
class RecordChooser {
 public:
  virtual ~RecordChooser() = default;
  // A record in [0, records). `records` is at least 1, and never shrinks from
  // one call to the next.
  virtual uint64_t Next(Random& random, uint64_t records) = 0;
};

// - kUniform: each record as likely as any other.
// - kZipfian: popular records are spread over all of them. As in YCSB, ranks
// are
//   drawn out of 10^10, so that the most popular one gets 1 / 26.47 of all
//   requests whatever the number of records, and hashed to records, of which
//   there are `records_at_start`: a hash over a growing number would move all
//   popularity at each insert.
// - kLatest: the records inserted last are the most popular.
std::unique_ptr<RecordChooser> MakeChooser(Distribution distribution,
                                           uint64_t records_at_start);

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_DISTRIBUTION_H_
