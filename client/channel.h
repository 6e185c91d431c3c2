// gRPC channels as every RingKV client wants them, and the border between
// grpc::Status and absl::Status.

#ifndef RINGKV_CLIENT_CHANNEL_H_
#define RINGKV_CLIENT_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ringkv {

// Answers may be larger than the public limit of 4 MiB (gets of many siblings,
// rings of many tokens).
inline constexpr int kReceiveBytesMax = 64 << 20;

// What a request may weigh; servers take no more.
inline constexpr size_t kSendBytesMax = 4 << 20;

// Trailing metadata of RESOURCE_EXHAUSTED: milliseconds after which to come
// back.
inline constexpr char kRetryAfterMetadata[] = "grpc-retry-pushback-ms";

// True if the message of an error says that the operation had no effect.
// The words are part of the contract, as results inside a Batch have no
// metadata: "nothing was done", "nothing was written", "before anything was
// written".
bool SaysNothingWasDone(absl::string_view message);

// "host:port,host:port" into its parts. INVALID_ARGUMENT names the part that is
// no host:port with a port of 1 to 65535, and an empty list. Bare hosts get
// `default_port`.
absl::StatusOr<std::vector<std::string>> ParseEndpoints(
    absl::string_view text, int default_port = 7700);

// Keepalive, message sizes, reconnect backoff of 0.1 to 2 s, and a connection
// that is not shared with other channels. Connects lazily.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// Waits until `channel` is connected. False when an attempt has failed, or at
// `timeout`.
bool WaitConnected(grpc::Channel& channel, absl::Duration timeout);

absl::Status FromGrpc(const grpc::Status& status);

// `deadline` from now, for a ClientContext.
std::chrono::system_clock::time_point GrpcDeadline(absl::Duration from_now);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_CHANNEL_H_
