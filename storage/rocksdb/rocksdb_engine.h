// The real engine: one RocksDB database with a column family for each Family,
// one write-ahead log, one block cache.
//
// Recovery of the log. A crash of the process loses nothing that Write()
// accepted, so after it only a torn last record is acceptable: anything else
// that is missing was acknowledged, and Open refuses with DATA_LOSS. After a
// loss of power the log may end anywhere behind the last Sync(), and pages
// behind the end may have been written in any order: then Open keeps the
// longest unbroken prefix. The caller knows which of the two happened; see
// `may_have_lost_power`.

#ifndef RINGKV_STORAGE_ROCKSDB_ROCKSDB_ENGINE_H_
#define RINGKV_STORAGE_ROCKSDB_ROCKSDB_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "storage/engine.h"

namespace ringkv {

struct RocksDbOptions {
  // Directory of the database; created if it is not there.
  std::string path;

  // Bytes for block cache, memtables and table readers together, at least 8
  // MiB. Too little: reads go to the disk and memtables are flushed often. Too
  // much: the page cache of the system is squeezed.
  uint64_t memory_bytes = uint64_t{256} << 20;

  // Threads that flush and compact, at least 1.
  int background_jobs = 2;

  // Puts to data and hints are RESOURCE_EXHAUSTED while the file system has
  // less than this left: log and compactions need room to work. Deletions and
  // control records go through, so that space can be freed. Too little: the log
  // runs into the end of the disk, and writes wait until the database has
  // recovered.
  uint64_t disk_floor_bytes = uint64_t{64} << 20;

  // The machine was restarted since the database was last open, and not by a
  // clean stop. The node has to treat its ranges as recovering then.
  bool may_have_lost_power = false;
};

class RocksDbEngine {
 public:
  // Each error names the path and the remedy. Those of DataDirectory::Open, and
  //   DATA_LOSS            files are damaged, or the log has a hole
  //   FAILED_PRECONDITION  a newer release has written to it
  //   RESOURCE_EXHAUSTED   the disk is full
  static absl::StatusOr<std::unique_ptr<Engine>> Open(
      const RocksDbOptions& options);
};

}  // namespace ringkv

#endif  // RINGKV_STORAGE_ROCKSDB_ROCKSDB_ENGINE_H_
