#include "server/coordinator/outcomes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringkv {
namespace {

size_t BytesOf(absl::string_view id, const Outcomes::Entry& entry) {
  size_t bytes = 256 + 2 * id.size();
  if (entry.minted) bytes += entry.minted->object.size();
  return bytes;
}

}  // namespace

Outcomes::Entry* Outcomes::Find(absl::string_view id) {
  const auto it = entries_.find(std::string(id));
  return it == entries_.end() ? nullptr : &it->second;
}

Outcomes::Entry& Outcomes::Insert(absl::string_view id, uint64_t fingerprint,
                                  Instant now) {
  Entry& entry = entries_[std::string(id)];
  entry.fingerprint = fingerprint;
  entry.created = now;
  entry.bytes = BytesOf(id, entry);
  bytes_ += entry.bytes;
  order_.emplace_back(now, std::string(id));
  return entry;
}

void Outcomes::Updated(absl::string_view id) {
  Entry* entry = Find(id);
  if (entry == nullptr) return;
  // A definite answer needs no way to go on.
  if (entry->answer) entry->minted = nullptr;
  const size_t bytes = BytesOf(id, *entry);
  bytes_ += bytes;
  bytes_ -= entry->bytes;
  entry->bytes = bytes;
}

void Outcomes::Erase(absl::string_view id) {
  const auto it = entries_.find(std::string(id));
  if (it == entries_.end()) return;
  bytes_ -= it->second.bytes;
  entries_.erase(it);
}

void Outcomes::Trim(Instant now) {
  while (!order_.empty()) {
    const auto& [created, id] = order_.front();
    const auto it = entries_.find(id);
    // An erased entry, or one that was made anew under the same id.
    if (it == entries_.end() || it->second.created != created) {
      order_.pop_front();
      continue;
    }
    const bool too_old = now - created > kept_;
    if (!too_old && bytes_ <= bytes_max_) return;
    if (it->second.running != 0) return;
    remembered_since_ = std::max(remembered_since_, created);
    bytes_ -= it->second.bytes;
    entries_.erase(it);
    order_.pop_front();
  }
}

absl::Status Outcomes::CheckUnknown(absl::Duration age, Instant now) const {
  if (age <= absl::ZeroDuration() || now - age > remembered_since_) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "this repeat was first sent ", absl::FormatDuration(age),
      " ago, and outcomes are remembered for ",
      absl::FormatDuration(now - remembered_since_),
      " here: whether it took effect is unknown; read the key and write with "
      "its context"));
}

}  // namespace ringkv
