#include "client/bench/arrivals.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace ringkv::bench {

Arrivals::Arrivals(ArrivalKind kind, double rate, Instant begin, uint64_t seed)
    : kind_(kind), gap_nanos_(1e9 / rate), begin_(begin), random_(seed) {
  RINGKV_CHECK(rate > 0);
}

Instant Arrivals::Next() {
  if (kind_ == ArrivalKind::kConstant) {
    // Multiplied, so that rounding does not add up.
    offset_nanos_ = static_cast<double>(++count_) * gap_nanos_;
  } else {
    offset_nanos_ += -std::log1p(-random_.NextDouble()) * gap_nanos_;
  }
  return Instant{begin_.nanos + static_cast<int64_t>(offset_nanos_)};
}

OpenLoop::OpenLoop(Arrivals arrivals, Instant end, uint64_t in_flight_max)
    : arrivals_(std::move(arrivals)),
      end_(end),
      in_flight_max_(in_flight_max),
      next_(arrivals_.Next()) {
  RINGKV_CHECK(in_flight_max >= 1);
}

std::optional<Instant> OpenLoop::TakeDue(Instant now) {
  if (next_ >= end_ || next_ > now || in_flight_ >= in_flight_max_) {
    return std::nullopt;
  }
  ++in_flight_;
  const Instant intended = next_;
  next_ = arrivals_.Next();
  return intended;
}

void OpenLoop::Finished() {
  RINGKV_CHECK(in_flight_ > 0);
  --in_flight_;
}

Instant OpenLoop::NextDue() const {
  return next_ < end_ ? next_ : Instant::Infinite();
}

bool OpenLoop::blocked(Instant now) const {
  return next_ < end_ && next_ <= now && in_flight_ >= in_flight_max_;
}

uint64_t OpenLoop::TakeLeftOver(Instant now) {
  uint64_t count = 0;
  for (; next_ < end_ && next_ <= now; next_ = arrivals_.Next()) ++count;
  return count;
}

}  // namespace ringkv::bench
