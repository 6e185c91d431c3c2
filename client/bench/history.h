// What reads must show: the versions of each record that were acknowledged, and
// those that may yet appear.
//
// Each write of a record carries a number of its own, one above that of the
// write before, and begins only when that one has ended; so a write that was
// acknowledged replaces all earlier ones. A strict read must then show the last
// version that was acknowledged or shown before it began, or a later one, and
// no replaced version beside it, but for writes whose outcome was unknown:
// these may come late, as siblings.

#ifndef RINGKV_CLIENT_BENCH_HISTORY_H_
#define RINGKV_CLIENT_BENCH_HISTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "client/bench/workload.h"

namespace ringkv::bench {

// Thread-safe. Invariant: no version is above what was issued for its record,
// and records that are being written are so by one write each.
class History {
 public:
  // Of an empty store.
  History() = default;

  // As Save() wrote it. NOT_FOUND: no such file; DATA_LOSS: not a whole one.
  static absl::StatusOr<std::unique_ptr<History>> Load(const std::string& path);
  // Replaces the file at once, or leaves it as it is: UNAVAILABLE.
  absl::Status Save(const std::string& path) const;

  // Records below this are known.
  uint64_t records() const;

  // False if a write of the record is under way.
  bool TryBeginWrite(uint64_t record);
  // The number of the value that the write, which has begun, is about to send.
  uint64_t NextVersion(uint64_t record);
  // The version may appear at any later time, whatever was acknowledged.
  void MayComeLate(uint64_t record, uint64_t version);
  void Acknowledge(uint64_t record, uint64_t version);
  void EndWrite(uint64_t record);

  // A read begins: the least version that it must show.
  uint64_t Floor(uint64_t record) const;
  // OK, or what is wrong with a read that began at `floor` and showed
  // `versions`, at least one. OUT_OF_RANGE: a version that was never written;
  // DATA_LOSS: a stale read.
  absl::Status Judge(uint64_t record, uint64_t floor,
                     const std::vector<uint64_t>& versions);

  // Records for which a version was issued since this was made.
  std::vector<uint64_t> Written() const;

 private:
  struct Entry {
    uint32_t issued = 0;
    // The greatest that was acknowledged or shown.
    uint32_t floor = 0;
    bool writing = false;
    bool written = false;
  };

  Entry& At(uint64_t record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // Of each record that has some, in order.
  std::unordered_map<uint64_t, std::vector<uint32_t>> late_
      ABSL_GUARDED_BY(mutex_);
};

// Draws from `source`, but writes only to records that no other write is under
// way to, and tells `history` when they begin and end. There must be more
// records in [0, records) than operations in flight. The arguments outlive it.
std::unique_ptr<OperationSource> MakeHistorySource(OperationSource& source,
                                                   uint64_t records,
                                                   History& history);

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_HISTORY_H_
