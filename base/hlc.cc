#include "base/hlc.h"

#include <algorithm>

namespace ringkv {
namespace {

void StoreMax(std::atomic<uint64_t>& target, uint64_t value) {
  uint64_t current = target.load(std::memory_order_relaxed);
  while (current < value && !target.compare_exchange_weak(
                                current, value, std::memory_order_acq_rel)) {
  }
}

}  // namespace

absl::StatusOr<HlcTimestamp> Hlc::Now(WallTime wall, HlcTimestamp floor) {
  const uint64_t physical =
      ToInt(HlcFromMillis(std::max<int64_t>(wall.millis(), 0)));
  uint64_t last = last_.load(std::memory_order_relaxed);
  while (true) {
    const uint64_t next = std::max({last + 1, ToInt(floor) + 1, physical});
    if (next > bound_.load(std::memory_order_acquire)) {
      return absl::UnavailableError(
          "the clock's bound on disk is not far enough ahead yet; try again");
    }
    if (last_.compare_exchange_weak(last, next, std::memory_order_acq_rel)) {
      return HlcTimestamp{next};
    }
  }
}

void Hlc::Observe(HlcTimestamp seen) { StoreMax(last_, ToInt(seen)); }

void Hlc::RaiseBound(HlcTimestamp bound) { StoreMax(bound_, ToInt(bound)); }

}  // namespace ringkv
