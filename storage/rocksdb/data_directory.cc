#include "storage/rocksdb/data_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace ringkv {
namespace {

constexpr char kFormatFile[] = "FORMAT";
constexpr char kFormatTemporary[] = "FORMAT.tmp";
constexpr absl::string_view kFormatPrefix = "ringkv storage format ";
constexpr size_t kFormatBytesMax = 64;

absl::Status NotWritable(const std::string& path, const std::string& reason) {
  return absl::PermissionDeniedError(absl::StrCat(
      "data directory ", path, " cannot be written (", reason,
      "): give this user write permission, or choose another directory"));
}

absl::Status Foreign(const std::string& path, const std::string& file) {
  return absl::FailedPreconditionError(absl::StrCat(
      "data directory ", path, " holds files that are not RingKV's, such as '",
      file, "': choose an empty or a new directory"));
}

absl::Status Damaged(const std::string& path, const std::string& reason) {
  return absl::DataLossError(
      absl::StrCat("data directory ", path, " is damaged (", reason,
                   "): replace this node by one with an empty directory"));
}

// Names in the directory, sorted; without what a file system itself puts there.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entries(path, error);
  while (!error && entries != std::filesystem::directory_iterator()) {
    std::string name = entries->path().filename().string();
    if (name != "lost+found") names.push_back(std::move(name));
    entries.increment(error);
  }
  if (error) return NotWritable(path, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool Contains(const std::vector<std::string>& names, const char* name) {
  return std::binary_search(names.begin(), names.end(), name);
}

absl::StatusOr<std::string> ReadFormatFile(const std::string& path) {
  const int fd =
      open(absl::StrCat(path, "/", kFormatFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NotWritable(path, std::strerror(errno));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  std::string text(kFormatBytesMax, '\0');
  const ssize_t size = read(fd, text.data(), text.size());
  if (size < 0) return Damaged(path, std::strerror(errno));
  text.resize(static_cast<size_t>(size));
  return text;
}

absl::Status CheckFormat(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFormatFile(path);
  if (!text.ok()) return text.status();
  absl::string_view rest = *text;
  int format = 0;
  if (!absl::ConsumePrefix(&rest, kFormatPrefix) ||
      !absl::ConsumeSuffix(&rest, "\n") || !absl::SimpleAtoi(rest, &format) ||
      format < 1) {
    return Damaged(path, "its FORMAT file is not one of ours");
  }
  if (format > kDataDirectoryFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "data directory ", path, " has format ", format,
        ", this release knows formats up to ", kDataDirectoryFormat,
        ": use the release that wrote it, or a newer one"));
  }
  return absl::OkStatus();
}

// A database whose head is gone would be created anew over the remains.
absl::Status CheckHead(const std::string& path,
                       const std::vector<std::string>& names) {
  if (Contains(names, "CURRENT")) return absl::OkStatus();
  for (const std::string& name : names) {
    if (absl::EndsWith(name, ".sst") || absl::EndsWith(name, ".log")) {
      return Damaged(path, absl::StrCat("CURRENT is missing beside ", name));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataDirectory>> DataDirectory::Open(
    std::string path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return NotWritable(path, error.message());
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return NotWritable(path, std::strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    close(fd);
    if (reason != EWOULDBLOCK) return NotWritable(path, std::strerror(reason));
    return absl::UnavailableError(
        absl::StrCat("data directory ", path,
                     " is in use by another process: stop that kvnode, or "
                     "choose another directory"));
  }
  auto directory = absl::WrapUnique(new DataDirectory(std::move(path), fd));
  RETURN_IF_ERROR(directory->CheckOrMark());
  return directory;
}

DataDirectory::~DataDirectory() { close(lock_fd_); }

absl::Status DataDirectory::CheckOrMark() const {
  if (access(path_.c_str(), W_OK | X_OK) != 0) {
    return NotWritable(path_, std::strerror(errno));
  }
  absl::StatusOr<std::vector<std::string>> names = NamesIn(path_);
  if (!names.ok()) return names.status();
  if (Contains(*names, kFormatFile)) {
    RETURN_IF_ERROR(CheckFormat(path_));
    return CheckHead(path_, *names);
  }
  for (const std::string& name : *names) {
    if (name != kFormatTemporary) return Foreign(path_, name);
  }
  return WriteFormat();
}

absl::Status DataDirectory::WriteFormat() const {
  const std::string temporary = absl::StrCat(path_, "/", kFormatTemporary);
  const std::string text =
      absl::StrCat(kFormatPrefix, kDataDirectoryFormat, "\n");
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return NotWritable(path_, std::strerror(errno));
  const bool written = write(fd, text.data(), text.size()) ==
                           static_cast<ssize_t>(text.size()) &&
                       fsync(fd) == 0;
  const int reason = errno;
  close(fd);
  if (!written) return NotWritable(path_, std::strerror(reason));
  if (rename(temporary.c_str(),
             absl::StrCat(path_, "/", kFormatFile).c_str()) != 0 ||
      fsync(lock_fd_) != 0) {
    return NotWritable(path_, std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace ringkv
