#include "client/bench/history.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace ringkv::bench {
namespace {

constexpr char kFirstLine[] = "kvbench history 1";
constexpr char kLastLine[] = "end";
// Draws until the next record that is free is taken instead.
constexpr int kDrawsMax = 64;

bool Writes(OperationKind kind) {
  return kind == OperationKind::kUpdate || kind == OperationKind::kInsert ||
         kind == OperationKind::kReadModifyWrite;
}

class HistorySource final : public OperationSource {
 public:
  HistorySource(OperationSource& source, uint64_t records, History& history)
      : source_(source), records_(records), history_(history) {}

  bool Next(Operation& operation) override {
    for (int draws = 0; draws < kDrawsMax; ++draws) {
      if (!source_.Next(operation)) return false;
      if (!Writes(operation.kind) || history_.TryBeginWrite(operation.record)) {
        return true;
      }
    }
    do {
      operation.record = (operation.record + 1) % records_;
    } while (!history_.TryBeginWrite(operation.record));
    return true;
  }

  void Finished(const Operation& operation, bool done) override {
    if (Writes(operation.kind)) history_.EndWrite(operation.record);
    source_.Finished(operation, done);
  }

 private:
  OperationSource& source_;
  const uint64_t records_;
  History& history_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<History>> History::Load(
    const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::NotFoundError(absl::StrCat("there is no history ", path));
  }
  auto history = std::make_unique<History>();
  const MutexLock lock(history->mutex_);
  const auto broken = [&](absl::string_view line) {
    return absl::DataLossError(
        absl::StrCat(path, " is no whole history of kvbench: '", line, "'"));
  };
  std::string line;
  if (!std::getline(file, line) || line != kFirstLine) return broken(line);
  while (std::getline(file, line)) {
    if (line == kLastLine) return history;
    // Issued and floor of the next record, then what may come late.
    std::vector<uint32_t> numbers;
    for (absl::string_view part : absl::StrSplit(line, ' ')) {
      uint32_t number = 0;
      if (!absl::SimpleAtoi(part, &number)) return broken(line);
      numbers.push_back(number);
    }
    if (numbers.size() < 2 ||
        *std::max_element(numbers.begin(), numbers.end()) > numbers[0] ||
        !std::is_sorted(numbers.begin() + 2, numbers.end())) {
      return broken(line);
    }
    Entry entry;
    entry.issued = numbers[0];
    entry.floor = numbers[1];
    if (numbers.size() > 2) {
      history->late_[history->entries_.size()].assign(numbers.begin() + 2,
                                                      numbers.end());
    }
    history->entries_.push_back(entry);
  }
  return broken("its end is missing");
}

absl::Status History::Save(const std::string& path) const {
  const std::string part = absl::StrCat(path, ".part");
  std::ofstream file(part, std::ios::trunc);
  file << kFirstLine << "\n";
  const MutexLock lock(mutex_);
  for (uint64_t record = 0; record < entries_.size(); ++record) {
    file << entries_[record].issued << " " << entries_[record].floor;
    const auto late = late_.find(record);
    if (late != late_.end()) {
      for (const uint32_t version : late->second) file << " " << version;
    }
    file << "\n";
  }
  file << kLastLine << "\n";
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("the history cannot be written to ", path));
  }
  return absl::OkStatus();
}

uint64_t History::records() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

History::Entry& History::At(uint64_t record) {
  if (record >= entries_.size()) entries_.resize(record + 1);
  return entries_[record];
}

bool History::TryBeginWrite(uint64_t record) {
  const MutexLock lock(mutex_);
  Entry& entry = At(record);
  return !std::exchange(entry.writing, true);
}

uint64_t History::NextVersion(uint64_t record) {
  const MutexLock lock(mutex_);
  Entry& entry = At(record);
  RINGKV_CHECK(entry.writing &&
               entry.issued < std::numeric_limits<uint32_t>::max());
  entry.written = true;
  return ++entry.issued;
}

void History::MayComeLate(uint64_t record, uint64_t version) {
  const MutexLock lock(mutex_);
  std::vector<uint32_t>& late = late_[record];
  // Writes of a record come one after the other.
  RINGKV_CHECK(late.empty() || late.back() <= version);
  if (late.empty() || late.back() < version) {
    late.push_back(static_cast<uint32_t>(version));
  }
}

void History::Acknowledge(uint64_t record, uint64_t version) {
  const MutexLock lock(mutex_);
  Entry& entry = At(record);
  RINGKV_CHECK(entry.writing && version <= entry.issued);
  entry.floor = std::max(entry.floor, static_cast<uint32_t>(version));
}

void History::EndWrite(uint64_t record) {
  const MutexLock lock(mutex_);
  RINGKV_CHECK(std::exchange(At(record).writing, false));
}

uint64_t History::Floor(uint64_t record) const {
  const MutexLock lock(mutex_);
  return record < entries_.size() ? entries_[record].floor : 0;
}

absl::Status History::Judge(uint64_t record, uint64_t floor,
                            const std::vector<uint64_t>& versions) {
  RINGKV_CHECK(!versions.empty());
  const MutexLock lock(mutex_);
  Entry& entry = At(record);
  const uint64_t newest = *std::max_element(versions.begin(), versions.end());
  if (newest > entry.issued) {
    return absl::OutOfRangeError(
        absl::StrCat("version ", newest, " of key ", Records::KeyOf(record),
                     " was never written; the last is ", entry.issued));
  }
  if (newest < floor) {
    return absl::DataLossError(absl::StrCat(
        "stale: key ", Records::KeyOf(record), " has version ", newest,
        ", though ", floor, " was acknowledged or read before"));
  }
  entry.floor = std::max(entry.floor, static_cast<uint32_t>(newest));
  const auto late = late_.find(record);
  for (const uint64_t version : versions) {
    if (version >= floor) continue;
    if (late == late_.end() ||
        !std::binary_search(late->second.begin(), late->second.end(),
                            version)) {
      return absl::DataLossError(
          absl::StrCat("stale: key ", Records::KeyOf(record), " has version ",
                       version, " beside ", newest, ", though ", floor,
                       ", acknowledged or read before, has replaced it"));
    }
  }
  return absl::OkStatus();
}

std::vector<uint64_t> History::Written() const {
  const MutexLock lock(mutex_);
  std::vector<uint64_t> written;
  for (uint64_t record = 0; record < entries_.size(); ++record) {
    if (entries_[record].written) written.push_back(record);
  }
  return written;
}

std::unique_ptr<OperationSource> MakeHistorySource(OperationSource& source,
                                                   uint64_t records,
                                                   History& history) {
  return std::make_unique<HistorySource>(source, records, history);
}

}  // namespace ringkv::bench
