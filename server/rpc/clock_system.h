// The clocks of the machine and its source of chance, for the adapters.

#ifndef RINGKV_SERVER_RPC_CLOCK_SYSTEM_H_
#define RINGKV_SERVER_RPC_CLOCK_SYSTEM_H_

#include <chrono>

#include "base/random.h"
#include "base/time.h"

namespace ringkv {

// Monotonic and wall time now. Thread-safe.
Time SystemTime();
Instant SystemInstant();

// The same instant for std::condition_variable.
inline std::chrono::steady_clock::time_point ToSteady(Instant instant) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(instant.nanos)));
}

// What is left until a gRPC deadline, as an instant; `fallback` from now if the
// call has none, and at most `most` from now.
Instant DeadlineOf(std::chrono::system_clock::time_point deadline,
                   absl::Duration fallback, absl::Duration most);

// A generator seeded with 256 bits from the operating system. Not for secrets.
SeededRandom RandomFromSystem();

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_CLOCK_SYSTEM_H_
