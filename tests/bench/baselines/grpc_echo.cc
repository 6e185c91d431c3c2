// What a gRPC call costs when the server does nothing: the yardstick for
// kvbench. The server and the client are two processes, as with kvbench.
//
//   grpc_echo --serve --address 127.0.0.1:7799 --api queue &
//   grpc_echo --address 127.0.0.1:7799 --api queue --op put

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "client/bench/report.h"
#include "tests/bench/baselines/echo.h"

int main(int argc, char** argv) {
  using ringkv::bench::EchoApi;
  ringkv::bench::EchoSettings settings;
  bool serve = false;
  std::string api = "queue";
  std::string op = "get";
  double seconds = 5;
  double warmup = 1;
  CLI::App app("Bare gRPC calls with the messages of RingKV.", "grpc_echo");
  app.add_flag("--serve", serve, "Be the server, until standard input ends");
  app.add_option("--address", settings.address, "host:port")->required();
  app.add_option("--api", api, "callback, queue or stream; equal on both sides")
      ->check(CLI::IsMember({"callback", "queue", "stream"}))
      ->capture_default_str();
  app.add_option("--op", op, "get or put")
      ->check(CLI::IsMember({"get", "put"}))
      ->capture_default_str();
  app.add_option("--value-size", settings.value_size)
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--in-flight", settings.in_flight)
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--items", settings.items, "Operations in a message (stream)")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", seconds)
      ->check(CLI::Range(0.01, 1e6))
      ->capture_default_str();
  app.add_option("--warmup", warmup)
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  settings.api = api == "callback" ? EchoApi::kCallback
                 : api == "stream" ? EchoApi::kStream
                                   : EchoApi::kQueue;
  settings.put = op == "put";
  settings.duration = absl::Seconds(seconds);
  settings.warmup = absl::Seconds(warmup);
  if (serve) return ringkv::bench::ServeEcho(settings);
  const ringkv::bench::PhaseResult result = ringkv::bench::RunEcho(settings);
  nlohmann::ordered_json json;
  json["api"] = api;
  json["op"] = op;
  json["value_size"] = settings.value_size;
  json["in_flight"] = settings.in_flight;
  if (settings.api == EchoApi::kStream) json["items"] = settings.items;
  json["run"] = ringkv::bench::PhaseJson(result, /*open_loop=*/false);
  std::cout << json.dump(2) << std::endl;
  return result.Total().counts.errors() == 0 ? 0 : 1;
}
