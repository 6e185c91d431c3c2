// A bare gRPC server that answers KeyValue's Get, Put and Pipeline with what a
// real node would say, and does nothing for it; and a client that keeps it
// busy.

#ifndef RINGKV_TESTS_BENCH_BASELINES_ECHO_H_
#define RINGKV_TESTS_BENCH_BASELINES_ECHO_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "client/bench/runner.h"

namespace ringkv::bench {

enum class EchoApi : uint8_t {
  kCallback,  // unary calls, gRPC's callback API on both sides
  kQueue,     // unary calls, completion queues, one polling thread a side
  kStream,    // one Pipeline stream, completion queues
};

struct EchoSettings {
  std::string address;  // host:port
  EchoApi api = EchoApi::kQueue;
  bool put = false;
  size_t value_size = 100;
  // Client only.
  int in_flight = 64;
  int items = 1;  // operations in one message of a stream
  absl::Duration duration = absl::Seconds(5);
  absl::Duration warmup = absl::Seconds(1);
};

// What a node adds to an answer of its own: an opaque context of the size that
// an object with one writer has.
inline constexpr size_t kContextBytes = 48;

// Prints "ready" and serves until standard input ends. Exit code.
int ServeEcho(const EchoSettings& settings);

// Measures as kvbench does.
PhaseResult RunEcho(const EchoSettings& settings);

}  // namespace ringkv::bench

#endif  // RINGKV_TESTS_BENCH_BASELINES_ECHO_H_
