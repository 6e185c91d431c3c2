#include "server/rpc/run_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace ringkv {
namespace {

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

absl::Status Failed(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace

bool MayHaveLostPower(const std::string& data_dir) {
  std::error_code error;
  std::ifstream file(absl::StrCat(data_dir, "/RUN"));
  if (!file) {
    // Without the mark of a data directory there is nothing to lose.
    return std::filesystem::exists(absl::StrCat(data_dir, "/FORMAT"), error);
  }
  std::string boot;
  std::string state;
  file >> boot >> state;
  return state != "clean" && (boot.empty() || boot != BootId());
}

absl::Status WriteRunFile(const std::string& data_dir, bool clean) {
  const std::string path = absl::StrCat(data_dir, "/RUN");
  const std::string temporary = absl::StrCat(path, ".tmp");
  const std::string text =
      absl::StrCat(BootId(), clean ? " clean\n" : " running\n");
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(temporary);
  const bool written = write(fd, text.data(), text.size()) ==
                           static_cast<ssize_t>(text.size()) &&
                       fsync(fd) == 0;
  if (!written) {
    const absl::Status status = Failed(temporary);
    close(fd);
    return status;
  }
  close(fd);
  if (rename(temporary.c_str(), path.c_str()) != 0) return Failed(path);
  const int directory = open(data_dir.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory < 0) return Failed(data_dir);
  const bool synced = fsync(directory) == 0;
  const absl::Status status = synced ? absl::OkStatus() : Failed(data_dir);
  close(directory);
  return status;
}

}  // namespace ringkv
