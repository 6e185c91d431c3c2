#include "server/rpc/clock_system.h"

#include <algorithm>
#include <array>
#include <random>

namespace ringkv {

Instant SystemInstant() {
  return Instant{std::chrono::duration_cast<std::chrono::nanoseconds>(
                     std::chrono::steady_clock::now().time_since_epoch())
                     .count()};
}

Time SystemTime() {
  const int64_t micros =
      std::chrono::duration_cast<std::chrono::microseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count();
  return Time{SystemInstant(), WallTime{micros}};
}

Instant DeadlineOf(std::chrono::system_clock::time_point deadline,
                   absl::Duration fallback, absl::Duration most) {
  const Instant now = SystemInstant();
  // gRPC says "no deadline" with the far future.
  constexpr auto kFar = std::chrono::hours(24 * 365);
  const auto wall = std::chrono::system_clock::now();
  if (deadline > wall + kFar) return now + std::min(fallback, most);
  return now + std::min(absl::FromChrono(deadline - wall), most);
}

SeededRandom RandomFromSystem() {
  std::random_device device;
  std::array<uint64_t, 4> state;
  do {
    for (uint64_t& word : state) {
      word = (static_cast<uint64_t>(device()) << 32) | device();
    }
  } while (state == std::array<uint64_t, 4>{});
  return SeededRandom(state);
}

}  // namespace ringkv
