#include "storage/rocksdb/rocksdb_engine.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/coding.h"
#include "base/status.h"
#include "rocksdb/cache.h"
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_manager.h"
#include "rocksdb/table.h"
#include "rocksdb/utilities/table_properties_collectors.h"
#include "rocksdb/wal_filter.h"
#include "rocksdb/write_batch.h"
#include "rocksdb/write_buffer_manager.h"
#include "storage/rocksdb/data_directory.h"

namespace ringkv {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kMemoryBytesMin = 8 * kMiB;
// Free space is looked at again after so many bytes of puts.
constexpr int64_t kDiskCheckBytes = 1 * kMiB;

// What must be free to open the store at all.
constexpr uint64_t kOpenBytesMin = 4 * kMiB;

// Families in the order of Family; RocksDB wants "default" to exist, and it
// stays empty.
constexpr std::array<const char*, kFamilies> kFamilyNames = {"data", "hints",
                                                             "meta"};

rocksdb::Slice ToSlice(absl::string_view bytes) {
  return rocksdb::Slice(bytes.data(), bytes.size());
}
absl::string_view ToView(const rocksdb::Slice& slice) {
  return absl::string_view(slice.data(), slice.size());
}

absl::Status ToStatus(const std::string& path, absl::string_view action,
                      const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string message =
      absl::StrCat(action, " in ", path, ": ", status.ToString());
  if (status.IsCorruption()) {
    return absl::DataLossError(
        absl::StrCat("stored data is damaged, ", message));
  }
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::kSpaceLimit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "disk full, ", message, "; free space on that file system"));
  }
  if (status.IsIncomplete()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the database stalls, ", message));
  }
  return absl::InternalError(message);
}

// Bytes that are free for this user; the highest number if that cannot be told.
uint64_t DiskFreeBytes(const std::string& path) {
  struct statvfs disk {};
  if (statvfs(path.c_str(), &disk) != 0) return UINT64_MAX;
  return static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
}

bool FillsTheDisk(const WriteBatch& batch) {
  return std::any_of(batch.operations().begin(), batch.operations().end(),
                     [](const WriteBatch::Operation& operation) {
                       return operation.kind == WriteBatch::Kind::kPut &&
                              operation.family != Family::kMeta;
                     });
}

// Descriptors are shared with sockets, so the database takes half.
int OpenFilesMax() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 512;
  if (limit.rlim_cur == RLIM_INFINITY) return 65536;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 2, 64, 65536));
}

rocksdb::CompressionType Compression() {
  for (rocksdb::CompressionType type : rocksdb::GetSupportedCompressions()) {
    if (type == rocksdb::kLZ4Compression) return type;
  }
  return rocksdb::kNoCompression;
}

// Sees a log in which records are missing between others. RocksDB does not, in
// any recovery mode, where a hole of zeros begins and ends between records: it
// takes them for space set aside in advance. Every record begins with its
// sequence number (8 bytes), each of its changes takes one number.
class UnbrokenLogFilter final : public rocksdb::WalFilter {
 public:
  // At a hole, recovery fails, or `keep_prefix` and what follows is discarded.
  explicit UnbrokenLogFilter(bool keep_prefix) : keep_prefix_(keep_prefix) {}

  WalProcessingOption LogRecordFound(unsigned long long log_number,
                                     const std::string& log_file_name,
                                     const rocksdb::WriteBatch& batch,
                                     rocksdb::WriteBatch* /*new_batch*/,
                                     bool* /*batch_changed*/) override {
    FieldReader header(batch.Data());
    const uint64_t sequence = header.Fixed64();
    if (!header.ok()) return WalProcessingOption::kCorruptedRecord;
    if (next_.has_value() && sequence != *next_) {
      if (keep_prefix_) return WalProcessingOption::kStopReplay;
      hole_ = absl::StrCat("log file ", log_number, ".log lacks changes ",
                           *next_, " to ", sequence - 1);
      return WalProcessingOption::kCorruptedRecord;
    }
    next_ = sequence + static_cast<uint64_t>(batch.Count());
    return WalProcessingOption::kContinueProcessing;
  }
  const char* Name() const override { return "ringkv.UnbrokenLogFilter"; }

  // What is missing; empty if nothing was found to be, or a prefix is kept.
  const std::string& hole() const { return hole_; }

 private:
  const bool keep_prefix_;
  std::optional<uint64_t> next_;
  std::string hole_;
};

class RocksDbEngineImpl final : public Engine {
 public:
  RocksDbEngineImpl(std::unique_ptr<DataDirectory> directory,
                    uint64_t disk_floor_bytes)
      : directory_(std::move(directory)),
        path_(directory_->path()),
        disk_floor_bytes_(disk_floor_bytes) {}
  ~RocksDbEngineImpl() override;

  absl::Status OpenDatabase(const RocksDbOptions& options);

  absl::StatusOr<uint64_t> Write(const WriteBatch& batch) override;
  absl::StatusOr<uint64_t> Sync() override;
  uint64_t LastSequence() const override {
    return db_->GetLatestSequenceNumber();
  }
  ReadResult Get(Family family, absl::string_view key,
                 ReadTier tier) const override;
  absl::StatusOr<RangeResult> Range(Family family, absl::string_view begin,
                                    absl::string_view end,
                                    const RangeLimits& limits) const override;
  absl::Status Visit(
      Family family, absl::string_view begin, absl::string_view end,
      const std::function<bool(absl::string_view key, absl::string_view value)>&
          visit) const override;
  EngineStats Stats() const override;

 private:
  rocksdb::DBOptions DatabaseOptions(const RocksDbOptions& options);
  rocksdb::ColumnFamilyOptions FamilyOptions(Family family,
                                             uint64_t memory_bytes) const;
  absl::Status CheckFamilies(const rocksdb::DBOptions& options) const;
  absl::Status CheckDisk(const WriteBatch& batch);
  rocksdb::ColumnFamilyHandle* HandleOf(Family family) const {
    return families_[static_cast<size_t>(family)];
  }

  const std::unique_ptr<DataDirectory> directory_;
  const std::string path_;
  const uint64_t disk_floor_bytes_;
  // Bytes of puts until free space is looked at again.
  std::atomic<int64_t> disk_check_due_bytes_{0};
  // The last append to the log failed. RocksDB's log writer asserts that nobody
  // syncs it then; a write that succeeds again means that there is a new log.
  std::atomic<bool> log_failed_{false};
  std::shared_ptr<rocksdb::Cache> cache_;
  std::unique_ptr<rocksdb::DB> db_;
  std::array<rocksdb::ColumnFamilyHandle*, kFamilies> families_{};
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;  // owned, with "default"
};

RocksDbEngineImpl::~RocksDbEngineImpl() {
  if (db_ == nullptr) return;
  rocksdb::CancelAllBackgroundWork(db_.get(), /*wait=*/true);
  for (rocksdb::ColumnFamilyHandle* handle : handles_) {
    db_->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
  }
  db_->Close().PermitUncheckedError();
}

rocksdb::DBOptions RocksDbEngineImpl::DatabaseOptions(
    const RocksDbOptions& options) {
  const uint64_t memory_bytes = std::max(options.memory_bytes, kMemoryBytesMin);
  cache_ = rocksdb::NewLRUCache(memory_bytes);
  rocksdb::DBOptions result;
  result.create_if_missing = true;
  result.create_missing_column_families = true;
  result.paranoid_checks = true;
  // Memtables are charged to the cache, so that one budget bounds both.
  result.write_buffer_manager =
      std::make_shared<rocksdb::WriteBufferManager>(memory_bytes / 3, cache_);
  // Batches stay whole without atomic flushes: a flush begins a new log and
  // syncs all older ones first. In 7.8 an atomic flush that meets a full disk
  // waits for itself for ever (decision 0007).
  result.atomic_flush = false;
  result.unordered_write = false;
  result.enable_pipelined_write = false;
  result.wal_recovery_mode =
      options.may_have_lost_power
          ? rocksdb::WALRecoveryMode::kPointInTimeRecovery
          : rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  // A log that was synced and is missing or short at the next start is noticed.
  result.track_and_verify_wals_in_manifest = true;
  result.max_open_files = OpenFilesMax();
  result.max_background_jobs = std::max(options.background_jobs, 1);
  // Spreads write-back of table files, so that a commit's fsync never queues
  // behind all of one.
  result.bytes_per_sync = kMiB;
  // Takes up writes again by itself once a full disk has room.
  result.sst_file_manager.reset(
      rocksdb::NewSstFileManager(rocksdb::Env::Default()));
  result.keep_log_file_num = 5;
  result.max_log_file_size = 16 * kMiB;
  return result;
}

rocksdb::ColumnFamilyOptions RocksDbEngineImpl::FamilyOptions(
    Family family, uint64_t memory_bytes) const {
  rocksdb::ColumnFamilyOptions result;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache_;
  table.cache_index_and_filter_blocks = true;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  table.format_version = 5;
  table.checksum = rocksdb::kXXH3;
  result.compression = Compression();
  result.level_compaction_dynamic_level_bytes = true;
  const uint64_t share = std::max(memory_bytes, kMemoryBytesMin) / 8;
  switch (family) {
    case Family::kData:
      table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
      result.write_buffer_size = std::min(share, 128 * kMiB);
      break;
    case Family::kHints:
      table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
      result.write_buffer_size = std::min(share, 32 * kMiB);
      // A queue: what was delivered leaves runs of deletions at its head, which
      // every scan would step over until they are compacted away.
      result.table_properties_collector_factories.push_back(
          rocksdb::NewCompactOnDeletionCollectorFactory(4096, 2048));
      break;
    case Family::kMeta:
      result.write_buffer_size = kMiB;
      break;
  }
  result.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return result;
}

absl::Status RocksDbEngineImpl::CheckFamilies(
    const rocksdb::DBOptions& options) const {
  std::vector<std::string> names;
  const rocksdb::Status status =
      rocksdb::DB::ListColumnFamilies(options, path_, &names);
  // A new directory has no database yet; a broken one fails at Open.
  if (!status.ok()) return absl::OkStatus();
  for (const std::string& name : names) {
    if (name == rocksdb::kDefaultColumnFamilyName ||
        std::find(kFamilyNames.begin(), kFamilyNames.end(), name) !=
            kFamilyNames.end()) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", path_, " has the family '", name,
        "' of a newer release: use the release that wrote it, or a newer one"));
  }
  return absl::OkStatus();
}

absl::Status RocksDbEngineImpl::OpenDatabase(const RocksDbOptions& options) {
  rocksdb::DBOptions database = DatabaseOptions(options);
  RETURN_IF_ERROR(CheckFamilies(database));
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  descriptors.emplace_back(rocksdb::kDefaultColumnFamilyName,
                           FamilyOptions(Family::kMeta, options.memory_bytes));
  for (int i = 0; i < kFamilies; ++i) {
    descriptors.emplace_back(
        kFamilyNames[i],
        FamilyOptions(static_cast<Family>(i), options.memory_bytes));
  }
  UnbrokenLogFilter filter(/*keep_prefix=*/options.may_have_lost_power);
  database.wal_filter = &filter;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      rocksdb::DB::Open(database, path_, descriptors, &handles_, &db);
  if (!filter.hole().empty() || status.IsCorruption()) {
    return absl::DataLossError(
        absl::StrCat("data directory ", path_, " is damaged (",
                     filter.hole().empty() ? status.ToString() : filter.hole(),
                     "): replace this node by one with an empty directory"));
  }
  if (!status.ok()) return ToStatus(path_, "opening the database", status);
  db_.reset(db);
  for (int i = 0; i < kFamilies; ++i) families_[i] = handles_[i + 1];
  return absl::OkStatus();
}

absl::Status RocksDbEngineImpl::CheckDisk(const WriteBatch& batch) {
  if (!FillsTheDisk(batch)) return absl::OkStatus();
  const int64_t bytes = static_cast<int64_t>(batch.bytes());
  if (disk_check_due_bytes_.fetch_sub(bytes) > bytes) return absl::OkStatus();
  const uint64_t free_bytes = DiskFreeBytes(path_);
  if (free_bytes >= disk_floor_bytes_) {
    disk_check_due_bytes_ = kDiskCheckBytes;
    return absl::OkStatus();
  }
  disk_check_due_bytes_ = 0;
  return absl::ResourceExhaustedError(absl::StrCat(
      "disk full: ", free_bytes, " bytes are free on the file system of ",
      path_, ", ", disk_floor_bytes_,
      " are kept for log and compactions; free space there"));
}

absl::StatusOr<uint64_t> RocksDbEngineImpl::Write(const WriteBatch& batch) {
  RETURN_IF_ERROR(CheckDisk(batch));
  // Room for the changes' own headers, so that the buffer does not grow on the
  // way.
  rocksdb::WriteBatch changes(batch.bytes() + 16 * batch.operations().size() +
                              16);
  for (const WriteBatch::Operation& operation : batch.operations()) {
    rocksdb::ColumnFamilyHandle* family = HandleOf(operation.family);
    rocksdb::Status status;
    switch (operation.kind) {
      case WriteBatch::Kind::kPut:
        status = changes.Put(family, ToSlice(operation.key),
                             ToSlice(operation.value));
        break;
      case WriteBatch::Kind::kDelete:
        status = changes.Delete(family, ToSlice(operation.key));
        break;
      case WriteBatch::Kind::kDeleteRange:
        // RocksDB takes a reversed range for an error.
        if (operation.value <= operation.key) continue;
        status = changes.DeleteRange(family, ToSlice(operation.key),
                                     ToSlice(operation.value));
        break;
    }
    if (!status.ok()) return ToStatus(path_, "writing", status);
  }
  if (changes.Count() == 0) return LastSequence();
  rocksdb::WriteOptions write;
  write.no_slowdown = true;
  // Read before: a write that began while the log was whole says nothing of
  // what came after.
  const bool failed_before = log_failed_;
  const rocksdb::Status status = db_->Write(write, &changes);
  if (status.ok() && failed_before) log_failed_ = false;
  // A stall is no failure of the log.
  if (!status.ok() && !status.IsIncomplete()) log_failed_ = true;
  if (!status.ok()) return ToStatus(path_, "writing", status);
  return LastSequence();
}

absl::StatusOr<uint64_t> RocksDbEngineImpl::Sync() {
  if (log_failed_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the log in ", path_,
                     " could not be written and has no successor yet"));
  }
  // Taken before: a write that returns while the sync runs may miss it.
  const uint64_t sequence = LastSequence();
  const rocksdb::Status status = db_->SyncWAL();
  if (!status.ok()) return ToStatus(path_, "syncing the log", status);
  return sequence;
}

ReadResult RocksDbEngineImpl::Get(Family family, absl::string_view key,
                                  ReadTier tier) const {
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  if (tier == ReadTier::kCached) read.read_tier = rocksdb::kBlockCacheTier;
  rocksdb::PinnableSlice value;
  const rocksdb::Status status =
      db_->Get(read, HandleOf(family), ToSlice(key), &value);
  ReadResult result;
  if (status.ok()) {
    result.outcome = ReadResult::Outcome::kFound;
    result.value.assign(value.data(), value.size());
  } else if (status.IsIncomplete() && tier == ReadTier::kCached) {
    result.outcome = ReadResult::Outcome::kNotCached;
  } else if (!status.IsNotFound()) {
    result.outcome = ReadResult::Outcome::kFailed;
    result.status = ToStatus(path_, "reading", status);
  }
  return result;
}

absl::StatusOr<RangeResult> RocksDbEngineImpl::Range(
    Family family, absl::string_view begin, absl::string_view end,
    const RangeLimits& limits) const {
  RINGKV_CHECK(limits.entries_max > 0);
  RangeResult result;
  size_t bytes = 0;
  RETURN_IF_ERROR(Visit(
      family, begin, end, [&](absl::string_view key, absl::string_view value) {
        bytes += key.size() + value.size();
        if (result.entries.size() >= limits.entries_max ||
            (!result.entries.empty() && bytes > limits.bytes_max)) {
          result.complete = false;
          return false;
        }
        result.entries.push_back({std::string(key), std::string(value)});
        return true;
      }));
  return result;
}

absl::Status RocksDbEngineImpl::Visit(
    Family family, absl::string_view begin, absl::string_view end,
    const std::function<bool(absl::string_view key, absl::string_view value)>&
        visit) const {
  if (!end.empty() && end <= begin) return absl::OkStatus();
  const rocksdb::Slice upper = ToSlice(end);
  rocksdb::ReadOptions read;
  read.verify_checksums = true;
  read.fill_cache = false;  // a scan must not push out what point reads need
  if (!end.empty()) read.iterate_upper_bound = &upper;
  const std::unique_ptr<rocksdb::Iterator> entry(
      db_->NewIterator(read, HandleOf(family)));
  for (entry->Seek(ToSlice(begin)); entry->Valid(); entry->Next()) {
    if (!visit(ToView(entry->key()), ToView(entry->value()))) break;
  }
  return ToStatus(path_, "scanning", entry->status());
}

EngineStats RocksDbEngineImpl::Stats() const {
  const auto sum = [this](const std::string& property) {
    uint64_t total = 0;
    uint64_t value = 0;
    for (rocksdb::ColumnFamilyHandle* family : families_) {
      if (db_->GetIntProperty(family, property, &value)) total += value;
    }
    return total;
  };
  EngineStats stats;
  stats.disk_bytes = sum(rocksdb::DB::Properties::kTotalSstFilesSize);
  // The cache is charged with the memtables, so they are not added to it.
  stats.memory_bytes = cache_->GetUsage() +
                       sum(rocksdb::DB::Properties::kEstimateTableReadersMem);
  uint64_t keys = 0;
  if (db_->GetIntProperty(HandleOf(Family::kData),
                          rocksdb::DB::Properties::kEstimateNumKeys, &keys)) {
    stats.data_keys = keys;
  }
  stats.compactions_pending_bytes =
      sum(rocksdb::DB::Properties::kEstimatePendingCompactionBytes);
  stats.disk_free_bytes = DiskFreeBytes(path_);
  return stats;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> RocksDbEngine::Open(
    const RocksDbOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<DataDirectory> directory,
                   DataDirectory::Open(options.path));
  // RocksDB's own log file asserts that it can be written.
  if (const uint64_t free_bytes = DiskFreeBytes(options.path);
      free_bytes < kOpenBytesMin) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the disk is full: ", free_bytes,
        " bytes are free on the file system of ", options.path, ", and ",
        kOpenBytesMin, " are needed to open the store; free space there"));
  }
  auto engine = std::make_unique<RocksDbEngineImpl>(std::move(directory),
                                                    options.disk_floor_bytes);
  RETURN_IF_ERROR(engine->OpenDatabase(options));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace ringkv
