// The engine seam: an ordered, durable map from bytes to bytes, in families.
// The real adapter is RocksDB (storage/rocksdb), the simulated one
// MemoryEngine; both pass one contract test suite.

#ifndef RINGKV_STORAGE_ENGINE_H_
#define RINGKV_STORAGE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringkv {

enum class Family : uint8_t { kData = 0, kHints = 1, kMeta = 2 };
inline constexpr int kFamilies = 3;

// Changes that are applied together, in the order they were added.
class WriteBatch {
 public:
  enum class Kind : uint8_t { kPut, kDelete, kDeleteRange };
  struct Operation {
    Kind kind;
    Family family;
    std::string key;    // for kDeleteRange: the first key deleted
    std::string value;  // for kDeleteRange: the first key kept
  };

  void Put(Family family, std::string key, std::string value) {
    Add({Kind::kPut, family, std::move(key), std::move(value)});
  }
  void Delete(Family family, std::string key) {
    Add({Kind::kDelete, family, std::move(key), {}});
  }
  // Deletes [begin, end); nothing if `end` is not above `begin`.
  void DeleteRange(Family family, std::string begin, std::string end) {
    Add({Kind::kDeleteRange, family, std::move(begin), std::move(end)});
  }

  bool empty() const { return operations_.empty(); }
  // Bytes of keys and values.
  size_t bytes() const { return bytes_; }
  const std::vector<Operation>& operations() const { return operations_; }
  void Clear() {
    operations_.clear();
    bytes_ = 0;
  }
  // Appends all of `other`, which is left empty.
  void Append(WriteBatch&& other) {
    for (Operation& operation : other.operations_) Add(std::move(operation));
    other.Clear();
  }

 private:
  void Add(Operation operation) {
    bytes_ += operation.key.size() + operation.value.size();
    operations_.push_back(std::move(operation));
  }

  std::vector<Operation> operations_;
  size_t bytes_ = 0;
};

// How far a read may go for its answer.
enum class ReadTier : uint8_t {
  kCached,  // memory only; a shard loop never waits for a disk
  kAll,     // memory and disk; for reader threads
};

// What a point read found.
struct ReadResult {
  enum class Outcome : uint8_t {
    kFound,
    kMissing,
    kNotCached,  // only at ReadTier::kCached: ask again at kAll
    kFailed,     // I/O error or failed checksum: see `status`
  };
  Outcome outcome = Outcome::kMissing;
  std::string value;    // if kFound
  absl::Status status;  // if kFailed; DATA_LOSS for a failed checksum
};

struct Entry {
  std::string key;
  std::string value;
};

// A bounded piece of a family, in key order.
struct RangeResult {
  std::vector<Entry> entries;
  // True if nothing is left in the range after `entries`.
  bool complete = true;
};

struct RangeLimits {
  size_t entries_max = 1000;       // at least 1
  size_t bytes_max = 1024 * 1024;  // keys and values; at least one entry comes
};

struct EngineStats {
  uint64_t disk_bytes = 0;    // files on disk, estimated
  uint64_t memory_bytes = 0;  // memtables, block cache, table readers
  uint64_t data_keys = 0;     // entries in kData, estimated
  uint64_t compactions_pending_bytes = 0;
  uint64_t disk_free_bytes = UINT64_MAX;  // highest if unknown
};

// Thread-safe. One writer at a time is the intended use (each shard loop writes
// once a turn), but concurrent writers are correct.
class Engine {
 public:
  virtual ~Engine() = default;

  // Applies `batch` atomically: on OK it is visible to every later read and is
  // handed to the operating system (it survives the death of the process), but
  // may be lost with power until a Sync() that began afterwards has ended.
  // Returns the sequence number of the write; these grow with each write.
  // RESOURCE_EXHAUSTED: the engine stalls or the disk is full, nothing was
  // written, try again.
  // Any other error: the engine can no longer be trusted with writes.
  virtual absl::StatusOr<uint64_t> Write(const WriteBatch& batch) = 0;

  // Makes every write that had returned before the call durable. Blocks; call
  // it from a commit thread. Returns a sequence number up to which all writes
  // are durable now. RESOURCE_EXHAUSTED: the disk is full, nothing more is
  // known to be durable, try again. Any other error: the engine can no longer
  // be trusted with writes.
  virtual absl::StatusOr<uint64_t> Sync() = 0;

  // Sequence number of the newest write that has returned.
  virtual uint64_t LastSequence() const = 0;

  virtual ReadResult Get(Family family, absl::string_view key,
                         ReadTier tier) const = 0;

  // Entries of [begin, end) from the lowest key on, as of one instant, up to
  // `limits`; an empty `end` means to the end of the family. May read the disk.
  // DATA_LOSS for a failed checksum.
  virtual absl::StatusOr<RangeResult> Range(
      Family family, absl::string_view begin, absl::string_view end,
      const RangeLimits& limits) const = 0;

  // Calls `visit` for each entry of [begin, end) as of one instant, until it
  // returns false. Never keeps more than one entry in memory. May read the
  // disk.
  virtual absl::Status Visit(
      Family family, absl::string_view begin, absl::string_view end,
      const std::function<bool(absl::string_view key, absl::string_view value)>&
          visit) const = 0;

  virtual EngineStats Stats() const = 0;
};

}  // namespace ringkv

#endif  // RINGKV_STORAGE_ENGINE_H_
