#include "client/bench/distribution.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/token.h"

namespace ringkv::bench {
namespace {

constexpr uint64_t kScrambledRanks = 10'000'000'000;
// Terms that Zeta() adds one by one.
constexpr uint64_t kZetaTermsExact = 1000;

class UniformChooser final : public RecordChooser {
 public:
  uint64_t Next(Random& random, uint64_t records) override {
    return random.Uniform(records);
  }
};

class ScrambledZipfianChooser final : public RecordChooser {
 public:
  explicit ScrambledZipfianChooser(uint64_t records)
      : records_(records), ranks_(kScrambledRanks) {}

  uint64_t Next(Random& random, uint64_t /*records*/) override {
    const uint64_t rank = ranks_.Next(random);
    return Hash64(absl::string_view(reinterpret_cast<const char*>(&rank),
                                    sizeof rank)) %
           records_;
  }

 private:
  const uint64_t records_;
  const ZipfianRanks ranks_;
};

class LatestChooser final : public RecordChooser {
 public:
  explicit LatestChooser(uint64_t records) : ranks_(records) {}

  uint64_t Next(Random& random, uint64_t records) override {
    if (records > ranks_.items()) ranks_.Grow(records);
    return records - 1 - std::min(ranks_.Next(random), records - 1);
  }

 private:
  ZipfianRanks ranks_;
};

}  // namespace

double Zeta(uint64_t n, double theta) {
  RINGKV_CHECK(n >= 1 && theta > 0 && theta < 1);
  const uint64_t exact = std::min(n, kZetaTermsExact);
  double sum = 0;
  for (uint64_t i = exact; i >= 1; --i) {
    sum += std::pow(static_cast<double>(i), -theta);
  }
  if (n == exact) return sum;
  // The rest by Euler and Maclaurin: the integral, half of the difference of
  // the ends, and the first correction.
  const double from = static_cast<double>(exact);
  const double to = static_cast<double>(n);
  sum += (std::pow(to, 1 - theta) - std::pow(from, 1 - theta)) / (1 - theta);
  sum += (std::pow(to, -theta) - std::pow(from, -theta)) / 2;
  sum += theta * (std::pow(from, -theta - 1) - std::pow(to, -theta - 1)) / 12;
  return sum;
}

ZipfianRanks::ZipfianRanks(uint64_t items, double theta)
    : items_(items), theta_(theta), zeta_(Zeta(items, theta)) {
  Prepare();
}

void ZipfianRanks::Grow(uint64_t items) {
  RINGKV_CHECK(items >= items_);
  // A few new items are cheaper to add than to sum up anew.
  if (items - items_ <= kZetaTermsExact) {
    for (uint64_t i = items_ + 1; i <= items; ++i) {
      zeta_ += std::pow(static_cast<double>(i), -theta_);
    }
  } else {
    zeta_ = Zeta(items, theta_);
  }
  items_ = items;
  Prepare();
}

void ZipfianRanks::Prepare() {
  alpha_ = 1 / (1 - theta_);
  // With one or two items every draw ends in the branches before eta.
  eta_ = items_ <= 2
             ? 0
             : (1 - std::pow(2.0 / static_cast<double>(items_), 1 - theta_)) /
                   (1 - Zeta(2, theta_) / zeta_);
}

uint64_t ZipfianRanks::Next(Random& random) const {
  const double u = random.NextDouble();
  const double uz = u * zeta_;
  if (uz < 1 || items_ == 1) return 0;
  if (uz < 1 + std::pow(0.5, theta_) || items_ == 2) return 1;
  const double rank =
      static_cast<double>(items_) * std::pow(eta_ * u - eta_ + 1, alpha_);
  return std::min(static_cast<uint64_t>(rank), items_ - 1);
}

absl::string_view DistributionName(Distribution distribution) {
  switch (distribution) {
    case Distribution::kUniform:
      return "uniform";
    case Distribution::kZipfian:
      return "zipfian";
    case Distribution::kLatest:
      return "latest";
  }
  RINGKV_CHECK(false);
}

absl::StatusOr<Distribution> ParseDistribution(absl::string_view name) {
  for (Distribution each : {Distribution::kUniform, Distribution::kZipfian,
                            Distribution::kLatest}) {
    if (name == DistributionName(each)) return each;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is no distribution: uniform, zipfian or latest"));
}

std::unique_ptr<RecordChooser> MakeChooser(Distribution distribution,
                                           uint64_t records_at_start) {
  RINGKV_CHECK(records_at_start >= 1);
  switch (distribution) {
    case Distribution::kUniform:
      return std::make_unique<UniformChooser>();
    case Distribution::kZipfian:
      return std::make_unique<ScrambledZipfianChooser>(records_at_start);
    case Distribution::kLatest:
      return std::make_unique<LatestChooser>(records_at_start);
  }
  RINGKV_CHECK(false);
}

}  // namespace ringkv::bench
