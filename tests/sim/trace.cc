#include "tests/sim/trace.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/token.h"

namespace ringkv::sim {

void Trace::Mix(absl::string_view bytes) {
  hash_ = Hash64(bytes, hash_);
  ++events_;
}

size_t Trace::Say(Record record) {
  if (live_) {
    std::printf("%12.6f %-5s %s\n", static_cast<double>(record.nanos) / 1e9,
                LaneName(record.lane).c_str(), record.text.c_str());
  }
  if (!keep_) return kNotKept;
  records_.push_back(std::move(record));
  return records_.size() - 1;
}

void Trace::Arrived(size_t place, int64_t nanos) {
  if (place == kNotKept || records_[place].arrived >= 0) return;
  records_[place].arrived = nanos;
}

void Trace::NoteRequest(int lane, uint64_t operation, std::string key) {
  requests_[{lane, operation}] = std::move(key);
}

std::string Trace::KeyOfRequest(int lane, uint64_t operation) const {
  const auto it = requests_.find({lane, operation});
  return it == requests_.end() ? "" : it->second;
}

std::string LaneName(int lane) {
  if (lane == kWorldLane) return "world";
  if (lane >= 1000) return absl::StrCat("c", lane - 1000);
  return absl::StrCat("n", lane);
}

}  // namespace ringkv::sim
