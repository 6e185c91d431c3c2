// What a benchmark does: a mix of operations over numbered records, their keys
// and their values.
//
// The core workloads are those of Cooper et al., "Benchmarking cloud serving
// systems with YCSB", SoCC 2010.

#ifndef RINGKV_CLIENT_BENCH_WORKLOAD_H_
#define RINGKV_CLIENT_BENCH_WORKLOAD_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/random.h"
#include "client/bench/distribution.h"

namespace ringkv::bench {

enum class OperationKind : uint8_t {
  kRead,
  kUpdate,
  kInsert,
  kScan,
  // A read, and a put with the context of that read; counted as one.
  kReadModifyWrite,
};
inline constexpr size_t kOperationKinds = 5;

// "read", "update", "insert", "scan", "rmw".
absl::string_view OperationName(OperationKind kind);

struct Operation {
  OperationKind kind = OperationKind::kRead;
  uint64_t record = 0;
  // Entries wanted, for a scan.
  uint32_t scan_length = 0;
};

struct Workload {
  std::string name;
  // Share of each kind; the sum is 1.
  std::array<double, kOperationKinds> mix{};
  Distribution distribution = Distribution::kZipfian;
  // Scans take a uniform number of entries from 1 to this.
  uint32_t scan_length_max = 100;

  double share(OperationKind kind) const {
    return mix[static_cast<size_t>(kind)];
  }
};

// A to F of YCSB in either case, and "get" and "put": nothing but reads or
// updates, uniform. INVALID_ARGUMENT names the known ones.
absl::StatusOr<Workload> NamedWorkload(absl::string_view name);

// "read=95,insert=5": shares in any unit, divided by their sum.
// INVALID_ARGUMENT for an unknown or repeated kind, a share that is no number
// of at least 0, or a sum of 0.
absl::StatusOr<std::array<double, kOperationKinds>> ParseMix(
    absl::string_view text);

// Keys and values of numbered records.
class Records {
 public:
  explicit Records(size_t value_size, uint64_t seed);

  // "user" and 16 hexadecimal digits: the number, hashed, so that neighbours in
  // number are not neighbours in the order of keys.
  static std::string KeyOf(uint64_t record);

  // Bytes that hold the record's mark (as much of it as fits) and random bytes,
  // other ones each time: nothing in them compresses.
  std::string NewValue(uint64_t record, Random& random) const;

  // The same with a number in it, which VersionOf() finds. Requires values of
  // at least kVersionedBytesMin.
  std::string NewValue(uint64_t record, uint64_t version, Random& random) const;
  static constexpr size_t kVersionedBytesMin = 16;
  static std::optional<uint64_t> VersionOf(absl::string_view value);

  // True if `value` can be one of the record's values, of any size.
  static bool Matches(uint64_t record, absl::string_view value);

  size_t value_size() const { return value_size_; }

 private:
  const size_t value_size_;
  std::string pool_;
};

// Numbers new records, and knows up to where all of them are stored, so that
// nobody reads one that is not there yet. Thread-safe.
class InsertCounter {
 public:
  // Records below `stored` exist.
  explicit InsertCounter(uint64_t stored) : stored_(stored), next_(stored) {}

  // A record to insert: one that was returned, else a new one.
  uint64_t Take();
  // `record`, which was taken, is stored.
  void Acknowledge(uint64_t record);
  // `record`, which was taken, may not be stored: somebody else should try.
  void Return(uint64_t record);

  // All records below this were acknowledged.
  uint64_t stored() const { return stored_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> stored_;
  Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> returned_ ABSL_GUARDED_BY(mutex_);
  // Acknowledged records at and above stored_, as a heap with the least on top.
  std::vector<uint64_t> early_ ABSL_GUARDED_BY(mutex_);
};

// Draws the operations of one client. Thread-compatible.
class OperationSource {
 public:
  virtual ~OperationSource() = default;
  // False when there is nothing left to do.
  virtual bool Next(Operation& operation) = 0;
  // What became of an operation from here: `done` if it took effect for sure.
  virtual void Finished(const Operation& operation, bool done) = 0;
};

// Inserts each record of [0, records) once, over all sources with one `next`,
// which starts at 0 and outlives them.
std::unique_ptr<OperationSource> MakeLoadSource(std::atomic<uint64_t>& next,
                                                uint64_t records);

// Reads each of `records` once, over all sources with one `next`, as above. The
// arguments outlive it.
std::unique_ptr<OperationSource> MakeReadSource(
    std::atomic<uint64_t>& next, const std::vector<uint64_t>& records);

// Draws from the workload for ever. `inserts` outlives the source and has at
// least one stored record.
std::unique_ptr<OperationSource> MakeRunSource(const Workload& workload,
                                               InsertCounter& inserts,
                                               uint64_t seed);

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_WORKLOAD_H_
