// The flags of kvbench.

#ifndef RINGKV_CLIENT_BENCH_OPTIONS_H_
#define RINGKV_CLIENT_BENCH_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/bench/arrivals.h"
#include "client/bench/workload.h"

namespace ringkv::bench {

enum class Api : uint8_t { kUnary, kPipeline };
// Which records are read after a run, to see that nothing is lost.
enum class Verify : uint8_t { kNone, kWritten, kAll };
enum class Strictness : uint8_t { kDefault, kSloppy, kStrict };

inline constexpr uint64_t kInFlightClosed = 64;
inline constexpr uint64_t kInFlightOpen = 10'000;

struct Options {
  std::string endpoints = "127.0.0.1:7700";
  std::string keyspace = "default";
  Workload workload;
  uint64_t keys = 100'000;
  size_t value_size = 100;
  bool load = true;
  bool run = true;
  Api api = Api::kUnary;
  int clients = 1;
  int io_threads = 1;   // of each client
  int connections = 1;  // of each client to each node
  uint64_t in_flight = kInFlightClosed;
  std::optional<double> rate;  // arrivals a second; absent: closed loop
  ArrivalKind arrivals = ArrivalKind::kPoisson;
  absl::Duration duration = absl::Seconds(10);  // infinite: not bounded by time
  uint64_t operations = 0;                      // 0: not bounded by number
  absl::Duration warmup = absl::ZeroDuration();
  absl::Duration expected_interval = absl::ZeroDuration();
  uint32_t r = 0;  // 0: the keyspace's
  uint32_t w = 0;
  Strictness quorum = Strictness::kDefault;
  absl::Duration deadline = absl::Seconds(10);
  uint64_t seed = 1;
  std::string history;  // file; empty: reads are not checked against one
  Verify verify = Verify::kNone;
  bool allow_errors = false;
  bool progress = true;
  bool json_output = false;  // on standard output
  std::string json_file;     // empty: none
};

struct ParsedOptions {
  // Absent: print `text` and exit with `exit_code`.
  std::optional<Options> options;
  int exit_code = 0;
  std::string text;
};

// Reads a command line, argv[0] included. `text` is help or version with exit
// code 0, or one clear error with exit code 2.
ParsedOptions ParseOptions(int argc, const char* const* argv);

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_OPTIONS_H_
