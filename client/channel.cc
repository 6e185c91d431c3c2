#include "client/channel.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ringkv {

absl::StatusOr<std::vector<std::string>> ParseEndpoints(absl::string_view text,
                                                        int default_port) {
  std::vector<std::string> endpoints;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    absl::string_view host = part;
    absl::string_view port;
    if (part.front() == '[') {  // [v6]:port
      const size_t end = part.find(']');
      if (end == absl::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("endpoint \"", part, "\" has no closing bracket"));
      }
      host = part.substr(0, end + 1);
      port = part.substr(end + 1);
      if (!port.empty() && !absl::ConsumePrefix(&port, ":")) {
        return absl::InvalidArgumentError(
            absl::StrCat("endpoint \"", part, "\" is not host:port"));
      }
    } else if (const size_t colon = part.find(':');
               colon != absl::string_view::npos) {
      host = part.substr(0, colon);
      port = part.substr(colon + 1);
      if (port.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "endpoint \"", part, "\" has no port after the colon"));
      }
    }
    int number = default_port;
    if (!port.empty() &&
        (!absl::SimpleAtoi(port, &number) || number < 1 || number > 65535)) {
      return absl::InvalidArgumentError(
          absl::StrCat("endpoint \"", part, "\" has port \"", port,
                       "\"; ports are 1 to 65535"));
    }
    if (host.empty() ||
        host.find_first_of(" \t/@") != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("endpoint \"", part, "\" is not host:port"));
    }
    std::string endpoint = absl::StrCat(host, ":", number);
    if (std::find(endpoints.begin(), endpoints.end(), endpoint) ==
        endpoints.end()) {
      endpoints.push_back(std::move(endpoint));
    }
  }
  if (endpoints.empty()) {
    return absl::InvalidArgumentError(
        "no endpoint given; name at least one host:port");
  }
  return endpoints;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kReceiveBytesMax);
  arguments.SetMaxSendMessageSize(-1);
  // Finds out that the other end froze or vanished while a call waits for it.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // gRPC jitters these by itself. The least backoff is also the time that one
  // attempt to connect may take.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Retries are ours: gRPC's own know nothing of request ids.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

bool SaysNothingWasDone(absl::string_view message) {
  return absl::StrContains(message, "nothing was done") ||
         absl::StrContains(message, "nothing was written") ||
         absl::StrContains(message, "before anything was written");
}

bool WaitConnected(grpc::Channel& channel, absl::Duration timeout) {
  const auto deadline = GrpcDeadline(timeout);
  while (true) {
    const grpc_connectivity_state state = channel.GetState(true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE ||
        state == GRPC_CHANNEL_SHUTDOWN ||
        !channel.WaitForStateChange(state, deadline)) {
      return false;
    }
  }
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

std::chrono::system_clock::time_point GrpcDeadline(absl::Duration from_now) {
  return std::chrono::system_clock::now() +
         absl::ToChronoNanoseconds(std::min(
             std::max(from_now, absl::ZeroDuration()), absl::Hours(24 * 365)));
}

}  // namespace ringkv
