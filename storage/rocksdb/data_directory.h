// The directory that holds a node's database: created, locked and judged before
// the database touches anything in it, so that a wrong path does no harm.
//
// A file named FORMAT marks it as ours and carries the version of the layout.
// Only one process has it open at a time.

#ifndef RINGKV_STORAGE_ROCKSDB_DATA_DIRECTORY_H_
#define RINGKV_STORAGE_ROCKSDB_DATA_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ringkv {

// The layout that this release writes. Layouts up to it can be read.
inline constexpr int kDataDirectoryFormat = 1;

class DataDirectory {
 public:
  // Creates `path` with its parents if need be, and holds the lock until the
  // object goes. Each error names the path and the remedy:
  //   PERMISSION_DENIED    it cannot be created or written
  //   UNAVAILABLE          another process holds it
  //   FAILED_PRECONDITION  it holds files that are not ours, or a newer format
  //   DATA_LOSS            FORMAT is damaged, or the database has lost its head
  static absl::StatusOr<std::unique_ptr<DataDirectory>> Open(std::string path);

  DataDirectory(const DataDirectory&) = delete;
  DataDirectory& operator=(const DataDirectory&) = delete;
  ~DataDirectory();

  const std::string& path() const { return path_; }

 private:
  DataDirectory(std::string path, int lock_fd)
      : path_(std::move(path)), lock_fd_(lock_fd) {}

  absl::Status CheckOrMark() const;
  absl::Status WriteFormat() const;

  const std::string path_;
  const int lock_fd_;  // the directory itself, with an exclusive flock
};

}  // namespace ringkv

#endif  // RINGKV_STORAGE_ROCKSDB_DATA_DIRECTORY_H_
