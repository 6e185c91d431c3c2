#include "client/bench/workload.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/token.h"

namespace ringkv::bench {
namespace {

constexpr OperationKind kKinds[] = {
    OperationKind::kRead, OperationKind::kUpdate, OperationKind::kInsert,
    OperationKind::kScan, OperationKind::kReadModifyWrite};

// Values are cut out of a pool of at least this.
constexpr size_t kPoolBytes = 1 << 20;

// Other than the token of the key, and than the hash that names it.
constexpr uint64_t kMarkSeed = 1;
constexpr size_t kMarkBytes = 8;
static_assert(Records::kVersionedBytesMin == kMarkBytes + sizeof(uint64_t));

uint64_t HashOf(uint64_t record, uint64_t seed) {
  return Hash64(
      absl::string_view(reinterpret_cast<const char*>(&record), sizeof record),
      seed);
}

class LoadSource final : public OperationSource {
 public:
  LoadSource(std::atomic<uint64_t>& next, uint64_t records)
      : next_(next), records_(records) {}

  bool Next(Operation& operation) override {
    const uint64_t record = next_.fetch_add(1, std::memory_order_relaxed);
    if (record >= records_) return false;
    operation = {OperationKind::kInsert, record, 0};
    return true;
  }

  void Finished(const Operation&, bool) override {}

 private:
  std::atomic<uint64_t>& next_;
  const uint64_t records_;
};

class ReadSource final : public OperationSource {
 public:
  ReadSource(std::atomic<uint64_t>& next, const std::vector<uint64_t>& records)
      : next_(next), records_(records) {}

  bool Next(Operation& operation) override {
    const uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= records_.size()) return false;
    operation = {OperationKind::kRead, records_[index], 0};
    return true;
  }

  void Finished(const Operation&, bool) override {}

 private:
  std::atomic<uint64_t>& next_;
  const std::vector<uint64_t>& records_;
};

class RunSource final : public OperationSource {
 public:
  RunSource(const Workload& workload, InsertCounter& inserts, uint64_t seed)
      : workload_(workload),
        inserts_(inserts),
        random_(seed),
        chooser_(MakeChooser(workload.distribution, inserts.stored())) {}

  bool Next(Operation& operation) override {
    operation.kind = NextKind();
    operation.record = operation.kind == OperationKind::kInsert
                           ? inserts_.Take()
                           : chooser_->Next(random_, inserts_.stored());
    operation.scan_length = operation.kind == OperationKind::kScan
                                ? 1 + static_cast<uint32_t>(random_.Uniform(
                                          workload_.scan_length_max))
                                : 0;
    return true;
  }

  void Finished(const Operation& operation, bool done) override {
    if (operation.kind != OperationKind::kInsert) return;
    if (done) {
      inserts_.Acknowledge(operation.record);
    } else {
      inserts_.Return(operation.record);
    }
  }

 private:
  OperationKind NextKind() {
    double left = random_.NextDouble();
    OperationKind last = OperationKind::kRead;
    for (OperationKind kind : kKinds) {
      const double share = workload_.share(kind);
      if (share <= 0) continue;
      if (left < share) return kind;
      left -= share;
      last = kind;
    }
    return last;  // the shares add up to a hair below 1
  }

  const Workload workload_;
  InsertCounter& inserts_;
  SeededRandom random_;
  const std::unique_ptr<RecordChooser> chooser_;
};

Workload Make(absl::string_view name, Distribution distribution,
              std::array<double, kOperationKinds> mix) {
  Workload workload;
  workload.name = std::string(name);
  workload.distribution = distribution;
  workload.mix = mix;
  return workload;
}

}  // namespace

absl::string_view OperationName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kRead:
      return "read";
    case OperationKind::kUpdate:
      return "update";
    case OperationKind::kInsert:
      return "insert";
    case OperationKind::kScan:
      return "scan";
    case OperationKind::kReadModifyWrite:
      return "rmw";
  }
  RINGKV_CHECK(false);
}

absl::StatusOr<Workload> NamedWorkload(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  // read, update, insert, scan, read-modify-write
  if (lower == "a") return Make("a", Distribution::kZipfian, {.5, .5, 0, 0, 0});
  if (lower == "b") {
    return Make("b", Distribution::kZipfian, {.95, .05, 0, 0, 0});
  }
  if (lower == "c") return Make("c", Distribution::kZipfian, {1, 0, 0, 0, 0});
  if (lower == "d") {
    return Make("d", Distribution::kLatest, {.95, 0, .05, 0, 0});
  }
  if (lower == "e") {
    return Make("e", Distribution::kZipfian, {0, 0, .05, .95, 0});
  }
  if (lower == "f") return Make("f", Distribution::kZipfian, {.5, 0, 0, 0, .5});
  if (lower == "get") {
    return Make("get", Distribution::kUniform, {1, 0, 0, 0, 0});
  }
  if (lower == "put") {
    return Make("put", Distribution::kUniform, {0, 1, 0, 0, 0});
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "' is no workload: a, b, c, d, e, f, get or put"));
}

absl::StatusOr<std::array<double, kOperationKinds>> ParseMix(
    absl::string_view text) {
  std::array<double, kOperationKinds> mix{};
  std::array<bool, kOperationKinds> given{};
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto* kind = std::find_if(
        std::begin(kKinds), std::end(kKinds),
        [&](OperationKind each) { return OperationName(each) == pair.first; });
    if (kind == std::end(kKinds)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' in the mix '", text,
                       "' is not KIND=SHARE with one of read, update, insert, "
                       "scan and rmw"));
    }
    const size_t index = static_cast<size_t>(*kind);
    if (given[index]) {
      return absl::InvalidArgumentError(
          absl::StrCat("the mix '", text, "' has ", pair.first, " twice"));
    }
    given[index] = true;
    if (!absl::SimpleAtod(pair.second, &mix[index]) ||
        !std::isfinite(mix[index]) || mix[index] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the share of ", pair.first, " in the mix '", text,
                       "' is no number of at least 0"));
    }
  }
  const double sum = std::accumulate(mix.begin(), mix.end(), 0.0);
  if (!(sum > 0) || !std::isfinite(sum)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shares of the mix '", text, "' add up to ", sum));
  }
  for (double& share : mix) share /= sum;
  return mix;
}

Records::Records(size_t value_size, uint64_t seed) : value_size_(value_size) {
  SeededRandom random(seed);
  pool_.resize((std::max(kPoolBytes, 2 * value_size) + 7) / 8 * 8);
  for (size_t i = 0; i < pool_.size(); i += 8) {
    const uint64_t bits = random.Next();
    std::copy_n(reinterpret_cast<const char*>(&bits), 8, &pool_[i]);
  }
}

std::string Records::KeyOf(uint64_t record) {
  return absl::StrCat("user", absl::Hex(HashOf(record, 0), absl::kZeroPad16));
}

std::string Records::NewValue(uint64_t record, Random& random) const {
  std::string value =
      pool_.substr(random.Uniform(pool_.size() - value_size_ + 1), value_size_);
  const uint64_t mark = HashOf(record, kMarkSeed);
  std::copy_n(reinterpret_cast<const char*>(&mark),
              std::min(kMarkBytes, value_size_), value.data());
  return value;
}

std::string Records::NewValue(uint64_t record, uint64_t version,
                              Random& random) const {
  RINGKV_CHECK(value_size_ >= kVersionedBytesMin);
  std::string value = NewValue(record, random);
  std::copy_n(reinterpret_cast<const char*>(&version), sizeof version,
              value.data() + kMarkBytes);
  return value;
}

std::optional<uint64_t> Records::VersionOf(absl::string_view value) {
  if (value.size() < kVersionedBytesMin) return std::nullopt;
  uint64_t version = 0;
  std::copy_n(value.data() + kMarkBytes, sizeof version,
              reinterpret_cast<char*>(&version));
  return version;
}

bool Records::Matches(uint64_t record, absl::string_view value) {
  const uint64_t mark = HashOf(record, kMarkSeed);
  const size_t size = std::min(kMarkBytes, value.size());
  return value.substr(0, size) ==
         absl::string_view(reinterpret_cast<const char*>(&mark), size);
}

uint64_t InsertCounter::Take() {
  const MutexLock lock(mutex_);
  if (returned_.empty()) return next_++;
  const uint64_t record = returned_.back();
  returned_.pop_back();
  return record;
}

void InsertCounter::Return(uint64_t record) {
  const MutexLock lock(mutex_);
  returned_.push_back(record);
}

void InsertCounter::Acknowledge(uint64_t record) {
  const MutexLock lock(mutex_);
  early_.push_back(record);
  std::push_heap(early_.begin(), early_.end(), std::greater<>());
  uint64_t stored = stored_.load(std::memory_order_relaxed);
  while (!early_.empty() && early_.front() == stored) {
    ++stored;
    std::pop_heap(early_.begin(), early_.end(), std::greater<>());
    early_.pop_back();
  }
  stored_.store(stored, std::memory_order_release);
}

std::unique_ptr<OperationSource> MakeLoadSource(std::atomic<uint64_t>& next,
                                                uint64_t records) {
  return std::make_unique<LoadSource>(next, records);
}

std::unique_ptr<OperationSource> MakeReadSource(
    std::atomic<uint64_t>& next, const std::vector<uint64_t>& records) {
  return std::make_unique<ReadSource>(next, records);
}

std::unique_ptr<OperationSource> MakeRunSource(const Workload& workload,
                                               InsertCounter& inserts,
                                               uint64_t seed) {
  RINGKV_CHECK(inserts.stored() >= 1);
  return std::make_unique<RunSource>(workload, inserts, seed);
}

}  // namespace ringkv::bench
