#include "storage/memory_engine.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ringkv {
namespace {

uint64_t BytesOf(const absl::btree_map<std::string, std::string>& map) {
  uint64_t bytes = 0;
  for (const auto& [key, value] : map) bytes += key.size() + value.size();
  return bytes;
}

bool IsBelow(absl::string_view key, absl::string_view end) {
  return end.empty() || key < end;
}

}  // namespace

MemoryEngine::MemoryEngine(Image image) : live_(std::move(image)) {
  for (const Map& map : live_.families) bytes_ += BytesOf(map);
}

absl::StatusOr<uint64_t> MemoryEngine::Write(const WriteBatch& batch) {
  RINGKV_CHECK(visits_ == 0);
  if (write_error_ != nullptr) {
    absl::Status status = write_error_(batch);
    if (!status.ok()) return status;
  }
  if (disk_bytes_max_.has_value() && bytes_ > *disk_bytes_max_) {
    // Deletes must go through, or a full disk could never be emptied.
    for (const WriteBatch::Operation& operation : batch.operations()) {
      if (operation.kind != WriteBatch::Kind::kPut) continue;
      return absl::ResourceExhaustedError(absl::StrCat(
          "disk full: holds ", bytes_, " bytes of ", *disk_bytes_max_));
    }
  }
  if (batch.empty()) return live_.sequence;
  UnsyncedWrite write;
  write.previous_sequence = live_.sequence;
  write.undo.reserve(batch.operations().size());
  for (const WriteBatch::Operation& operation : batch.operations()) {
    Apply(operation, write.undo);
  }
  live_.sequence += batch.operations().size();
  write.sequence = live_.sequence;
  unsynced_.push_back(std::move(write));
  return live_.sequence;
}

void MemoryEngine::Apply(const WriteBatch::Operation& operation,
                         std::vector<Undo>& undo) {
  Map& map = MapOf(operation.family);
  switch (operation.kind) {
    case WriteBatch::Kind::kPut: {
      const auto [place, added] = map.try_emplace(operation.key);
      Undo& taken = undo.emplace_back(
          Undo{operation.family, operation.key, std::nullopt, false});
      if (added) {
        bytes_ += operation.key.size();
      } else {
        bytes_ -= place->second.size();
        taken.old_value = std::move(place->second);
        taken.was_damaged = Heal(operation.family, operation.key);
      }
      place->second = operation.value;
      bytes_ += operation.value.size();
      return;
    }
    case WriteBatch::Kind::kDelete: {
      const auto place = map.find(operation.key);
      if (place == map.end()) return;
      Erase(operation.family, place, std::next(place), undo);
      return;
    }
    case WriteBatch::Kind::kDeleteRange: {
      if (operation.value <= operation.key) return;
      Erase(operation.family, map.lower_bound(operation.key),
            map.lower_bound(operation.value), undo);
      return;
    }
  }
}

void MemoryEngine::Erase(Family family, Map::iterator first, Map::iterator last,
                         std::vector<Undo>& undo) {
  for (auto place = first; place != last; ++place) {
    bytes_ -= place->first.size() + place->second.size();
    const bool damaged = Heal(family, place->first);
    undo.push_back({family, place->first, std::move(place->second), damaged});
  }
  MapOf(family).erase(first, last);
}

bool MemoryEngine::Heal(Family family, const std::string& key) {
  return !live_.damaged.empty() && live_.damaged.erase({family, key}) > 0;
}

void MemoryEngine::Damage(Family family, const std::string& key) {
  RINGKV_CHECK(MapOf(family).contains(key));
  live_.damaged.emplace(family, key);
}

bool MemoryEngine::IsDamaged(Family family, absl::string_view key) const {
  return !live_.damaged.empty() &&
         live_.damaged.contains({family, std::string(key)});
}

std::vector<std::string> MemoryEngine::Keys(Family family) const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : MapOf(family)) keys.push_back(key);
  return keys;
}

void MemoryEngine::Replace(Image image) {
  RINGKV_CHECK(visits_ == 0);
  live_ = std::move(image);
  unsynced_.clear();
  bytes_ = 0;
  for (const Map& map : live_.families) bytes_ += BytesOf(map);
}

absl::Status MemoryEngine::CheckRead(Family family,
                                     absl::string_view key) const {
  if (IsDamaged(family, key)) {
    return absl::DataLossError("stored data is damaged: a checksum fails");
  }
  return read_error_ == nullptr ? absl::OkStatus() : read_error_(family, key);
}

void MemoryEngine::TakeBack(const UnsyncedWrite& write, Image& image) {
  for (auto undo = write.undo.rbegin(); undo != write.undo.rend(); ++undo) {
    Map& map = image.families[static_cast<size_t>(undo->family)];
    if (undo->old_value.has_value()) {
      map.insert_or_assign(undo->key, *undo->old_value);
    } else {
      map.erase(undo->key);
    }
    if (undo->was_damaged) {
      image.damaged.emplace(undo->family, undo->key);
    } else {
      image.damaged.erase({undo->family, undo->key});
    }
  }
  image.sequence = write.previous_sequence;
}

absl::StatusOr<uint64_t> MemoryEngine::Sync() {
  const uint64_t sequence = live_.sequence;
  absl::Status status = SyncTo(sequence);
  if (!status.ok()) return status;
  return sequence;
}

absl::Status MemoryEngine::SyncTo(uint64_t sequence) {
  if (sync_error_ != nullptr) {
    absl::Status status = sync_error_();
    if (!status.ok()) return status;
  }
  while (!unsynced_.empty() && unsynced_.front().sequence <= sequence) {
    unsynced_.pop_front();
  }
  return absl::OkStatus();
}

void MemoryEngine::Crash(size_t keep_unsynced) {
  RINGKV_CHECK(keep_unsynced <= unsynced_.size());
  while (unsynced_.size() > keep_unsynced) {
    TakeBack(unsynced_.back(), live_);
    unsynced_.pop_back();
  }
  unsynced_.clear();
  bytes_ = 0;
  for (const Map& map : live_.families) bytes_ += BytesOf(map);
}

MemoryEngine::Image MemoryEngine::DurableImage() const {
  Image image = live_;
  for (auto write = unsynced_.rbegin(); write != unsynced_.rend(); ++write) {
    TakeBack(*write, image);
  }
  return image;
}

ReadResult MemoryEngine::Get(Family family, absl::string_view key,
                             ReadTier tier) const {
  ReadResult result;
  if (tier == ReadTier::kCached && not_cached_ != nullptr &&
      not_cached_(family, key)) {
    result.outcome = ReadResult::Outcome::kNotCached;
    return result;
  }
  result.status = CheckRead(family, key);
  if (!result.status.ok()) {
    result.outcome = ReadResult::Outcome::kFailed;
    return result;
  }
  const Map& map = MapOf(family);
  const auto place = map.find(key);
  if (place != map.end()) {
    result.outcome = ReadResult::Outcome::kFound;
    result.value = place->second;
  }
  return result;
}

absl::StatusOr<RangeResult> MemoryEngine::Range(
    Family family, absl::string_view begin, absl::string_view end,
    const RangeLimits& limits) const {
  RINGKV_CHECK(limits.entries_max > 0);
  RangeResult result;
  size_t bytes = 0;
  absl::Status status = Visit(
      family, begin, end, [&](absl::string_view key, absl::string_view value) {
        bytes += key.size() + value.size();
        if (result.entries.size() >= limits.entries_max ||
            (!result.entries.empty() && bytes > limits.bytes_max)) {
          result.complete = false;
          return false;
        }
        result.entries.push_back({std::string(key), std::string(value)});
        return true;
      });
  if (!status.ok()) return status;
  return result;
}

absl::Status MemoryEngine::Visit(
    Family family, absl::string_view begin, absl::string_view end,
    const std::function<bool(absl::string_view key, absl::string_view value)>&
        visit) const {
  const Map& map = MapOf(family);
  ++visits_;
  absl::Status status;
  for (auto place = map.lower_bound(begin);
       place != map.end() && IsBelow(place->first, end); ++place) {
    status = CheckRead(family, place->first);
    if (!status.ok()) break;
    if (!visit(place->first, place->second)) break;
  }
  --visits_;
  return status;
}

EngineStats MemoryEngine::Stats() const {
  EngineStats stats;
  stats.disk_bytes = bytes_;
  stats.memory_bytes = bytes_;
  stats.data_keys = MapOf(Family::kData).size();
  return stats;
}

void MemoryEngine::CheckInvariants() const {
  uint64_t bytes = 0;
  for (const Map& map : live_.families) bytes += BytesOf(map);
  RINGKV_CHECK(bytes == bytes_);
  for (const auto& [family, key] : live_.damaged) {
    RINGKV_CHECK(MapOf(family).contains(key));
  }
  uint64_t sequence = live_.sequence;
  for (auto write = unsynced_.rbegin(); write != unsynced_.rend(); ++write) {
    RINGKV_CHECK(write->sequence == sequence);
    RINGKV_CHECK(write->previous_sequence < sequence);
    sequence = write->previous_sequence;
  }
}

}  // namespace ringkv
