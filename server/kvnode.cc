// kvnode: one node of a RingKV cluster as a process. Exit codes: 0 stopped as
// asked, 1 refused or failed, 2 usage.

#include <grpc/support/log.h>
#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/config.h"
#include "server/rpc/node.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace ringkv {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// What ends the process: a signal or the node itself.
class Ending {
 public:
  void Drain() { Set({0, true}); }
  void Exit(int code) { Set({code, false}); }

  struct Cause {
    int code = 0;
    bool drain = false;
  };
  Cause Wait() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return cause_.has_value(); });
    return *cause_;
  }

 private:
  void Set(Cause cause) {
    const std::lock_guard lock(mutex_);
    if (!cause_.has_value()) cause_ = cause;
    wake_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Cause> cause_;  // under mutex_
};

void StartLog(const std::string& level) {
  auto logger = spdlog::stderr_color_mt("kvnode");
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %^%l%$ %v",
                      spdlog::pattern_time_type::utc);
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  // What gRPC has to say is of use to those who look for it.
  gpr_set_log_function([](gpr_log_func_args* args) {
    spdlog::debug("grpc: {}", args->message);
  });
}

int Run(const CommandLine& command_line) {
  const NodeConfig& config = command_line.config;
  StartLog(config.log_level);
  for (const std::string& warning : command_line.warnings) {
    spdlog::warn("{}", warning);
  }
  // All threads leave the signals to the one that waits for them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // Outlives main: the signal thread is never joined.
  static Ending& ending = *new Ending();
  std::thread([signals] {
    int number = 0;
    sigwait(&signals, &number);
    ending.Drain();
    sigwait(&signals, &number);
    std::_Exit(kExitFailed);
  }).detach();

  absl::StatusOr<std::unique_ptr<Node>> node =
      Node::Start(config, [](int code) { ending.Exit(code); });
  if (!node.ok()) {
    spdlog::error("cannot start: {}", std::string(node.status().message()));
    return kExitFailed;
  }
  const Ending::Cause cause = ending.Wait();
  if (cause.drain) (*node)->Drain();
  node->reset();
  return cause.code;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> command_line = ParseCommandLine(argc, argv);
  if (!command_line.ok()) {
    std::fprintf(stderr, "kvnode: %s\n",
                 std::string(command_line.status().message()).c_str());
    return kExitUsage;
  }
  switch (command_line->action) {
    case CommandLine::Action::kPrint:
      std::fputs(command_line->text.c_str(), stdout);
      return 0;
    case CommandLine::Action::kCheckConfig:
      for (const std::string& warning : command_line->warnings) {
        std::fprintf(stderr, "kvnode: warning: %s\n", warning.c_str());
      }
      std::puts("the configuration is good");
      return 0;
    case CommandLine::Action::kRun:
      break;
  }
  return Run(*command_line);
}

}  // namespace
}  // namespace ringkv

int main(int argc, char** argv) { return ringkv::Main(argc, argv); }
