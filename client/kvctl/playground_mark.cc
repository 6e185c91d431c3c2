#include "client/kvctl/playground_mark.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/timer_queue.h"

namespace ringkv {
namespace {

constexpr char kFileName[] = "playground.pid";
constexpr absl::Duration kWritingTime = absl::Seconds(1);

// "PID cluster|added ENDPOINT,...", once it is written whole.
std::optional<PlaygroundFacts> ReadFacts(int file) {
  std::string text(4096, '\0');
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  if (got <= 0) return std::nullopt;
  text.resize(static_cast<size_t>(got));
  if (text.back() != '\n') return std::nullopt;
  text.pop_back();
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  PlaygroundFacts facts;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &facts.pid) ||
      facts.pid <= 1) {
    return std::nullopt;
  }
  facts.is_added = words[1] == "added";
  facts.endpoints = absl::StrSplit(words[2], ',', absl::SkipEmpty());
  return facts;
}

// The file in `folder` if somebody holds it; else -1.
int OpenHeld(const std::filesystem::path& folder) {
  const int file = open((folder / kFileName).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  if (flock(file, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) {
    close(file);
    return -1;
  }
  return file;
}

}  // namespace

absl::StatusOr<PlaygroundMark> PlaygroundMark::Claim(
    const std::filesystem::path& folder, PlaygroundFacts facts) {
  const std::string path = (folder / kFileName).string();
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  PlaygroundMark mark(file);
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("a playground runs in ", folder.string(),
                     " already; kvctl playground stop ends it"));
  }
  const std::string text =
      absl::StrCat(getpid(), facts.is_added ? " added " : " cluster ",
                   absl::StrJoin(facts.endpoints, ","), "\n");
  if (ftruncate(file, 0) != 0 || pwrite(file, text.data(), text.size(), 0) !=
                                     static_cast<ssize_t>(text.size())) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return mark;
}

PlaygroundMark::PlaygroundMark(PlaygroundMark&& other) noexcept
    : file_(std::exchange(other.file_, -1)) {}

PlaygroundMark::~PlaygroundMark() {
  if (file_ >= 0) close(file_);
}

std::optional<PlaygroundFacts> FindPlayground(
    const std::filesystem::path& folder) {
  const Instant until = Now() + kWritingTime;
  while (true) {
    const int file = OpenHeld(folder);
    if (file < 0) return std::nullopt;
    std::optional<PlaygroundFacts> facts = ReadFacts(file);
    close(file);
    // It was claimed just now, perhaps.
    if (facts.has_value() || Now() >= until) return facts;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

absl::Status StopPlaygroundIn(const std::filesystem::path& folder,
                              absl::Duration timeout) {
  // Kept open: the file may be deleted before its lock is given up.
  const int file = OpenHeld(folder);
  if (file < 0) return absl::OkStatus();
  const std::optional<PlaygroundFacts> facts = ReadFacts(file);
  absl::Status status;
  if (!facts.has_value() || kill(facts->pid, SIGTERM) != 0) {
    status = absl::PermissionDeniedError(absl::StrCat(
        "cannot signal the playground in ", folder.string(), ": ",
        facts.has_value() ? std::strerror(errno) : "its file is garbled"));
  }
  const Instant until = Now() + timeout;
  while (status.ok() && flock(file, LOCK_SH | LOCK_NB) != 0) {
    if (Now() >= until) {
      status = absl::DeadlineExceededError(absl::StrCat(
          "the playground in ", folder.string(), " (process ", facts->pid,
          ") has not stopped in ", absl::FormatDuration(timeout)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  close(file);
  return status;
}

}  // namespace ringkv
