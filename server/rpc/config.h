// The settings of kvnode: one table for the YAML file, the flags, --help and
// the checks. Flags override the file, the file overrides the defaults.

#ifndef RINGKV_SERVER_RPC_CONFIG_H_
#define RINGKV_SERVER_RPC_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "membership/ring/ring.h"

namespace ringkv {

// Units, defaults, ranges and effects are in the table of config.cc, which is
// also what --help prints.
struct NodeConfig {
  std::string data_dir = "./ringkv-data";
  std::string name;  // empty in the file: the host's name
  std::string listen = "127.0.0.1:7700";
  std::string peer_listen = "127.0.0.1:7800";
  std::string http_listen = "127.0.0.1:7900";
  std::string advertise;       // empty: as `listen`
  std::string peer_advertise;  // empty: as `peer_listen`
  std::vector<std::string> seeds;
  Location location;
  double weight = 1.0;
  bool init = false;
  bool insecure = false;
  std::string log_level = "info";

  int shards = 0;  // 0: one for each core
  int reader_threads = 4;
  int background_jobs = 2;
  uint64_t memory = uint64_t{256} << 20;
  uint64_t disk_reserve = uint64_t{256} << 20;
  uint64_t mailbox_bytes = uint64_t{128} << 20;
  uint64_t peer_queue_bytes = uint64_t{64} << 20;

  absl::Duration fsync_interval = absl::Milliseconds(100);
  absl::Duration max_clock_drift = absl::Seconds(5);
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  absl::Duration down_after = absl::Seconds(2);
  absl::Duration drain_timeout = absl::Seconds(30);

  uint64_t hint_bytes_max = uint64_t{1} << 30;
  absl::Duration hint_age_max = absl::Hours(24 * 7);
  uint64_t handoff_rate = uint64_t{16} << 20;
  uint64_t stream_rate = uint64_t{64} << 20;
  absl::Duration drop_grace = absl::Minutes(1);
  bool hedged_reads = true;
};

// What the command line asks for.
struct CommandLine {
  enum class Action { kRun, kCheckConfig, kPrint };
  Action action = Action::kRun;
  std::string text;  // kPrint: help or version, for stdout
  NodeConfig config;
  std::vector<std::string> warnings;
};

// Reads flags and, if they name one, the file; checks everything that can be
// checked without starting. INVALID_ARGUMENT is a usage error: it names the
// flag or the file and key, the value, and what is allowed; an unknown name is
// answered with the nearest known one. With no arguments at all the node makes
// a cluster of its own.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// Sets what `text`, the YAML of the file called `path`, says.
absl::Status ApplyYaml(const std::string& path, const std::string& text,
                       NodeConfig& config);

// Checks single values and how they fit together, and the data directory.
// Appends what is doubtful to `warnings`.
absl::Status CheckConfig(const NodeConfig& config,
                         std::vector<std::string>& warnings);

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};
// INVALID_ARGUMENT unless "host:port" or "[v6]:port" with a port from 1 on.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text);
// 127.0.0.0/8, ::1 or localhost.
bool IsLoopback(const std::string& host);

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_CONFIG_H_
