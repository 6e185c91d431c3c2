#include "tests/sim/trace.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/token.h"

namespace ringkv::sim {

void Trace::Mix(absl::string_view bytes) {
  hash_ = Hash64(bytes, hash_);
  ++events_;
}

void Trace::Say(Record record) {
  if (live_) {
    std::printf("%12.6f %-5s %s\n", static_cast<double>(record.nanos) / 1e9,
                LaneName(record.lane).c_str(), record.text.c_str());
  }
  if (keep_) records_.push_back(std::move(record));
}

std::string LaneName(int lane) {
  if (lane == kWorldLane) return "world";
  if (lane >= 1000) return absl::StrCat("c", lane - 1000);
  return absl::StrCat("n", lane);
}

}  // namespace ringkv::sim
