#include "server/rpc/config.h"

#include <arpa/inet.h>
#include <limits.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/rpc/version.h"

namespace ringkv {
namespace {

// One setting. `parse` gets the text of the flag or of the YAML scalar (a list
// joined by commas) and says what is allowed if it refuses.
struct Setting {
  std::string key;  // in the file; the flag has '-' for '_'
  std::string hint;
  std::string help;
  std::string shown_default;
  bool is_switch = false;
  std::function<absl::Status(const std::string& text, NodeConfig& config)>
      parse;
};

absl::Status Allowed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("allowed: ", what));
}

absl::StatusOr<bool> ParseBool(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "true" || lower == "yes" || lower == "on") return true;
  if (lower == "false" || lower == "no" || lower == "off") return false;
  return Allowed("true or false");
}

struct ByteUnit {
  const char* name;
  uint64_t bytes;
};
constexpr ByteUnit kByteUnits[] = {
    {"KiB", uint64_t{1} << 10},
    {"MiB", uint64_t{1} << 20},
    {"GiB", uint64_t{1} << 30},
    {"TiB", uint64_t{1} << 40},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"B", 1},
};

std::string ShowBytes(uint64_t bytes) {
  for (int i = 3; i >= 0; --i) {
    if (bytes >= kByteUnits[i].bytes && bytes % kByteUnits[i].bytes == 0) {
      return absl::StrCat(bytes / kByteUnits[i].bytes, kByteUnits[i].name);
    }
  }
  return absl::StrCat(bytes, "B");
}

Setting Bytes(std::string key, std::string help, uint64_t NodeConfig::*field,
              uint64_t min, uint64_t max) {
  const std::string range =
      absl::StrCat(ShowBytes(min), " to ", ShowBytes(max),
                   ", with a unit of B, KiB, MiB, GiB, TiB, KB, MB, GB or TB");
  return {std::move(key),
          "BYTES",
          absl::StrCat(help, " (", ShowBytes(min), " to ", ShowBytes(max), ")"),
          ShowBytes(NodeConfig().*field),
          false,
          [field, min, max, range](const std::string& text,
                                   NodeConfig& config) -> absl::Status {
            for (const ByteUnit& unit : kByteUnits) {
              absl::string_view number = text;
              if (!absl::ConsumeSuffix(&number, unit.name)) continue;
              number = absl::StripAsciiWhitespace(number);
              uint64_t count = 0;
              if (!absl::SimpleAtoi(number, &count)) return Allowed(range);
              if (count > max / unit.bytes || count * unit.bytes < min) {
                return Allowed(range);
              }
              config.*field = count * unit.bytes;
              return absl::OkStatus();
            }
            return Allowed(range);
          }};
}

Setting Span(std::string key, std::string help,
             absl::Duration NodeConfig::*field, absl::Duration min,
             absl::Duration max) {
  const std::string range =
      absl::StrCat(absl::FormatDuration(min), " to ", absl::FormatDuration(max),
                   ", with a unit of ms, s, m or h");
  return {std::move(key),
          "TIME",
          absl::StrCat(help, " (", absl::FormatDuration(min), " to ",
                       absl::FormatDuration(max), ")"),
          absl::FormatDuration(NodeConfig().*field),
          false,
          [field, min, max, range](const std::string& text,
                                   NodeConfig& config) -> absl::Status {
            absl::Duration span;
            if (!absl::ParseDuration(text, &span) || span < min || span > max) {
              return Allowed(range);
            }
            config.*field = span;
            return absl::OkStatus();
          }};
}

Setting Number(std::string key, std::string help, int NodeConfig::*field,
               int min, int max) {
  const std::string range = absl::StrCat(min, " to ", max);
  return {
      std::move(key),
      "N",
      absl::StrCat(help, " (", range, ")"),
      absl::StrCat(NodeConfig().*field),
      false,
      [field, min, max, range](const std::string& text,
                               NodeConfig& config) -> absl::Status {
        int number = 0;
        if (!absl::SimpleAtoi(text, &number) || number < min || number > max) {
          return Allowed(range);
        }
        config.*field = number;
        return absl::OkStatus();
      }};
}

Setting Switch(std::string key, std::string help, bool NodeConfig::*field) {
  return {std::move(key),
          "BOOL",
          std::move(help),
          NodeConfig().*field ? "true" : "false",
          true,
          [field](const std::string& text, NodeConfig& config) -> absl::Status {
            ASSIGN_OR_RETURN(config.*field, ParseBool(text));
            return absl::OkStatus();
          }};
}

Setting Address(std::string key, std::string help,
                std::string NodeConfig::*field) {
  return {std::move(key),
          "HOST:PORT",
          std::move(help),
          NodeConfig().*field,
          false,
          [field](const std::string& text, NodeConfig& config) -> absl::Status {
            RETURN_IF_ERROR(ParseHostPort(text).status());
            config.*field = text;
            return absl::OkStatus();
          }};
}

constexpr const char* kLogLevels[] = {"trace", "debug", "info", "warn",
                                      "error"};

std::vector<Setting> MakeSettings() {
  std::vector<Setting> settings;
  settings.push_back(
      {"data_dir", "DIR", "Where everything is stored; made if missing",
       NodeConfig().data_dir, false,
       [](const std::string& text, NodeConfig& config) -> absl::Status {
         if (text.empty()) return Allowed("a directory");
         config.data_dir = text;
         return absl::OkStatus();
       }});
  settings.push_back(
      {"name", "NAME",
       "What people call this node: 1 to 64 of letters, digits, '_', '.', '-'",
       "the host's name", false,
       [](const std::string& text, NodeConfig& config) -> absl::Status {
         const bool clean = std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '_' || c == '.' || c == '-';
         });
         if (text.empty() || text.size() > 64 || !clean) {
           return Allowed("1 to 64 of letters, digits, '_', '.' and '-'");
         }
         config.name = text;
         return absl::OkStatus();
       }});
  settings.push_back(
      Address("listen", "Where clients connect", &NodeConfig::listen));
  settings.push_back(Address("peer_listen", "Where other nodes connect",
                             &NodeConfig::peer_listen));
  settings.push_back(Address("http_listen",
                             "Where /metrics, /healthz and /readyz are served",
                             &NodeConfig::http_listen));
  settings.push_back(
      Address("advertise",
              "Address that clients are told; as 'listen' unless that is a "
              "wildcard",
              &NodeConfig::advertise));
  settings.push_back(
      Address("peer_advertise",
              "Address that other nodes are told; as 'peer_listen' unless that "
              "is a wildcard",
              &NodeConfig::peer_advertise));
  settings.push_back(
      {"seeds", "LIST",
       "Peer addresses of other nodes to find the cluster at, by commas",
       "none", false,
       [](const std::string& text, NodeConfig& config) -> absl::Status {
         std::vector<std::string> seeds;
         for (absl::string_view part : absl::StrSplit(text, ',')) {
           const std::string seed(absl::StripAsciiWhitespace(part));
           if (absl::StatusOr<HostPort> address = ParseHostPort(seed);
               !address.ok()) {
             return absl::InvalidArgumentError(absl::StrCat(
                 "'", seed,
                 "': ", absl::string_view(address.status().message())));
           }
           seeds.push_back(seed);
         }
         config.seeds = std::move(seeds);
         return absl::OkStatus();
       }});
  settings.push_back(
      {"location", "WHERE",
       "Failure domains, as zone=a,rack=r1,host=h1; replicas are spread over "
       "them",
       "none", false,
       [](const std::string& text, NodeConfig& config) -> absl::Status {
         ASSIGN_OR_RETURN(config.location, Location::Parse(text));
         return absl::OkStatus();
       }});
  settings.push_back(
      {"weight", "X", "Share of the data relative to other nodes (0.001 to 64)",
       "1", false,
       [](const std::string& text, NodeConfig& config) -> absl::Status {
         double weight = 0;
         if (!absl::SimpleAtod(text, &weight) || !std::isfinite(weight) ||
             weight < 0.001 || weight > 64) {
           return Allowed("0.001 to 64");
         }
         config.weight = weight;
         return absl::OkStatus();
       }});
  settings.push_back(Switch(
      "init", "Make a cluster of this node alone, unless it is in one already",
      &NodeConfig::init));
  settings.push_back(Switch("insecure",
                            "Allow to listen beyond loopback without TLS",
                            &NodeConfig::insecure));
  settings.push_back(
      {"log_level", "LEVEL", "trace, debug, info, warn or error", "info", false,
       [](const std::string& text, NodeConfig& config) -> absl::Status {
         for (const char* level : kLogLevels) {
           if (text != level) continue;
           config.log_level = text;
           return absl::OkStatus();
         }
         return Allowed("trace, debug, info, warn or error");
       }});
  settings.push_back(Number("shards", "Loops; 0: one for each core",
                            &NodeConfig::shards, 0, 256));
  settings.push_back(Number("reader_threads",
                            "Threads for reads that wait for the disk",
                            &NodeConfig::reader_threads, 1, 256));
  settings.push_back(Number("background_jobs", "Threads that flush and compact",
                            &NodeConfig::background_jobs, 1, 64));
  settings.push_back(Bytes("memory", "For caches and memtables together",
                           &NodeConfig::memory, uint64_t{8} << 20,
                           uint64_t{1} << 40));
  settings.push_back(Bytes(
      "disk_reserve",
      "Free space below which puts are refused, so that the store can go on",
      &NodeConfig::disk_reserve, uint64_t{16} << 20, uint64_t{1} << 50));
  settings.push_back(Bytes(
      "mailbox_bytes", "What may wait for one loop; beyond, calls are refused",
      &NodeConfig::mailbox_bytes, uint64_t{8} << 20, uint64_t{64} << 30));
  settings.push_back(Bytes(
      "peer_queue_bytes",
      "What may wait for one peer; beyond, messages are dropped",
      &NodeConfig::peer_queue_bytes, uint64_t{8} << 20, uint64_t{16} << 30));
  settings.push_back(Span(
      "fsync_interval",
      "Longest time without fsync in keyspaces with "
      "'interval' durability; what a loss of power may cost",
      &NodeConfig::fsync_interval, absl::Milliseconds(1), absl::Seconds(60)));
  settings.push_back(Span(
      "max_clock_drift", "How far ahead of the other clocks a node may write",
      &NodeConfig::max_clock_drift, absl::Milliseconds(100), absl::Hours(1)));
  settings.push_back(
      Span("heartbeat_interval",
           "Between probes of other nodes, and rounds of heartbeats",
           &NodeConfig::heartbeat_interval, absl::Milliseconds(10),
           absl::Seconds(30)));
  settings.push_back(
      Span("down_after", "Silence after which a peer counts as down",
           &NodeConfig::down_after, absl::Milliseconds(30), absl::Minutes(5)));
  settings.push_back(
      Span("drain_timeout", "Longest time that a stop waits for running work",
           &NodeConfig::drain_timeout, absl::ZeroDuration(), absl::Hours(1)));
  settings.push_back(
      Bytes("hint_bytes_max", "Hints kept for one node that is away",
            &NodeConfig::hint_bytes_max, uint64_t{1} << 20, uint64_t{1} << 50));
  settings.push_back(
      Span("hint_age_max", "Age after which hints go to the other replicas",
           &NodeConfig::hint_age_max, absl::Minutes(1), absl::Hours(24 * 365)));
  settings.push_back(
      Bytes("handoff_rate", "Bytes of hints delivered in a second",
            &NodeConfig::handoff_rate, uint64_t{64} << 10, uint64_t{10} << 30));
  settings.push_back(Bytes("stream_rate",
                           "Bytes received in a second while the ring changes; "
                           "0: as fast as it goes",
                           &NodeConfig::stream_rate, uint64_t{0},
                           uint64_t{10} << 30));
  settings.push_back(
      Span("drop_grace",
           "Time after a change of the ring until a node deletes what it "
           "holds no more",
           &NodeConfig::drop_grace, absl::Seconds(1), absl::Hours(24 * 7)));
  settings.push_back(Switch("hedged_reads",
                            "Ask one more replica when one is slow",
                            &NodeConfig::hedged_reads));
  return settings;
}

const std::vector<Setting>& Settings() {
  static const std::vector<Setting>& settings =
      *new std::vector<Setting>(MakeSettings());
  return settings;
}

// Letters to change, add, remove or swap with the next, for suggestions.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1,
                                        std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string Suggestion(const std::string& unknown,
                       const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(3, unknown.size() / 2) + 1;
  for (const std::string& name : known) {
    const size_t distance = EditDistance(unknown, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best.empty() ? std::string()
                      : absl::StrCat("; did you mean '", best, "'?");
}

std::string FlagOf(const Setting& setting) {
  return absl::StrCat("--", absl::StrReplaceAll(setting.key, {{"_", "-"}}));
}

std::string Shortened(const std::string& text) {
  constexpr size_t kShown = 100;
  return text.size() <= kShown ? text
                               : absl::StrCat(text.substr(0, kShown), "...");
}

absl::Status BadValue(const std::string& where, const std::string& text,
                      const absl::Status& why) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": bad value '", Shortened(text),
                   "': ", absl::string_view(why.message())));
}

// Scalars as they are, lists joined by commas, maps as k=v joined by commas.
absl::StatusOr<std::string> TextOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return node.Scalar();
    case YAML::NodeType::Sequence: {
      std::vector<std::string> parts;
      for (const YAML::Node& part : node) {
        if (!part.IsScalar()) break;
        parts.push_back(part.Scalar());
      }
      if (parts.size() == node.size()) return absl::StrJoin(parts, ",");
      break;
    }
    case YAML::NodeType::Map: {
      std::vector<std::string> parts;
      for (const auto& part : node) {
        if (!part.first.IsScalar() || !part.second.IsScalar()) break;
        parts.push_back(
            absl::StrCat(part.first.Scalar(), "=", part.second.Scalar()));
      }
      if (parts.size() == node.size()) return absl::StrJoin(parts, ",");
      break;
    }
    default:
      break;
  }
  return absl::InvalidArgumentError("has no usable value");
}

absl::Status ApplyYamlNode(const std::string& path, const YAML::Node& root,
                           NodeConfig& config) {
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not a list of 'key: value' lines"));
  }
  std::vector<std::string> known;
  for (const Setting& setting : Settings()) known.push_back(setting.key);
  std::set<std::string> seen;
  for (const auto& entry : root) {
    if (!entry.first.IsScalar()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": a key that is no word"));
    }
    const std::string key = entry.first.Scalar();
    const std::string where =
        absl::StrCat(path, ":", entry.first.Mark().line + 1, ": ", key);
    const auto setting =
        std::find_if(Settings().begin(), Settings().end(),
                     [&key](const Setting& s) { return s.key == key; });
    if (setting == Settings().end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": unknown key", Suggestion(key, known)));
    }
    if (!seen.insert(key).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": given twice"));
    }
    const bool takes_lists = key == "seeds" || key == "location";
    const bool is_list = entry.second.IsSequence() || entry.second.IsMap();
    const absl::StatusOr<std::string> text =
        is_list && !takes_lists
            ? absl::InvalidArgumentError("takes one value, not a list")
            : TextOf(entry.second);
    if (!text.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": ", absl::string_view(text.status().message())));
    }
    if (absl::Status status = setting->parse(*text, config); !status.ok()) {
      return BadValue(where, *text, status);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--config ", path, ": ", error ? error.message() : "not a file"));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    return absl::InvalidArgumentError(
        absl::StrCat("--config ", path, ": cannot be read"));
  }
  return text.str();
}

bool IsWildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "::" || host == "*";
}

absl::Status CheckClash(const char* key_a, const std::string& a,
                        const char* key_b, const std::string& b) {
  ASSIGN_OR_RETURN(const HostPort one, ParseHostPort(a));
  ASSIGN_OR_RETURN(const HostPort other, ParseHostPort(b));
  const bool meet = one.host == other.host || IsWildcard(one.host) ||
                    IsWildcard(other.host) ||
                    (IsLoopback(one.host) && IsLoopback(other.host) &&
                     (one.host == "localhost" || other.host == "localhost"));
  if (one.port != other.port || !meet) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key_a, " (", a, ") and ", key_b, " (", b,
                   ") are the same port: give each its own"));
}

absl::Status CheckListen(const char* key, const std::string& address,
                         bool insecure) {
  absl::StatusOr<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) return BadValue(key, address, parsed.status());
  if (IsLoopback(parsed->host) || insecure) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      key, " (", address,
      ") is reachable from other machines, and nothing on it is encrypted or "
      "asks who is calling: pass --insecure to accept that, or listen on "
      "127.0.0.1"));
}

absl::Status CheckAdvertised(const char* key, const std::string& advertised,
                             const char* listen_key,
                             const std::string& listen) {
  const std::string& told = advertised.empty() ? listen : advertised;
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(told));
  if (!IsWildcard(address.host)) return absl::OkStatus();
  if (!advertised.empty()) {
    return BadValue(key, advertised,
                    Allowed("an address that others can connect to"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(listen_key, " (", listen, ") is a wildcard: set ", key,
                   " to the address at which others reach this node"));
}

absl::Status CheckDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::path at = std::filesystem::absolute(path, error);
  const auto refuse = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("data_dir (", path, "): ", why));
  };
  if (error) return refuse(error.message());
  if (std::filesystem::exists(at, error)) {
    if (!std::filesystem::is_directory(at, error)) {
      return refuse("is not a directory");
    }
    if (access(at.c_str(), R_OK | W_OK | X_OK) != 0) {
      return refuse("this user may not read and write it");
    }
    return absl::OkStatus();
  }
  // It will be made: some parent must let us.
  while (!std::filesystem::exists(at, error)) {
    const std::filesystem::path parent = at.parent_path();
    if (parent == at) break;
    at = parent;
  }
  if (!std::filesystem::is_directory(at, error) ||
      access(at.c_str(), W_OK | X_OK) != 0) {
    return refuse(
        absl::StrCat("is missing and cannot be made in ", at.string()));
  }
  return absl::OkStatus();
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "node";
  std::string clean;
  for (const char* c = name; *c != '\0'; ++c) {
    const bool allowed = absl::ascii_isalnum(static_cast<unsigned char>(*c)) ||
                         *c == '_' || *c == '.' || *c == '-';
    clean.push_back(allowed ? *c : '-');
  }
  clean.resize(std::min<size_t>(clean.size(), 64));
  return clean.empty() ? "node" : clean;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& text) {
  const absl::Status refusal =
      Allowed("HOST:PORT or [IPV6]:PORT with a port from 1 to 65535");
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return refusal;
  HostPort address;
  address.host = text.substr(0, colon);
  if (address.host.size() >= 2 && address.host.front() == '[' &&
      address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
    in6_addr parsed;
    if (inet_pton(AF_INET6, address.host.c_str(), &parsed) != 1) return refusal;
  } else {
    const bool clean = std::all_of(
        address.host.begin(), address.host.end(), [](unsigned char c) {
          return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
        });
    if (address.host.empty() || address.host.size() > 253 || !clean) {
      return refusal;
    }
    // A name of digits and dots only is meant as an IPv4 address.
    const bool numeric =
        address.host.find_first_not_of("0123456789.") == std::string::npos;
    in_addr parsed;
    if (numeric && inet_pton(AF_INET, address.host.c_str(), &parsed) != 1) {
      return refusal;
    }
  }
  uint32_t port = 0;
  const std::string digits = text.substr(colon + 1);
  if (digits.empty() || digits.size() > 5 ||
      digits.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(digits, &port) || port == 0 || port > 65535) {
    return refusal;
  }
  address.port = static_cast<uint16_t>(port);
  return address;
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::Status ApplyYaml(const std::string& path, const std::string& text,
                       NodeConfig& config) {
  // yaml-cpp reports with exceptions; they end here.
  try {
    if (text.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": not YAML: it has a byte of value 0"));
    }
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": ", documents.size(),
          " YAML documents ('---' between them), of which only one can count"));
    }
    return documents.empty() ? absl::OkStatus()
                             : ApplyYamlNode(path, documents.front(), config);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ":", error.mark.line + 1, ": not YAML: ", error.msg));
  }
}

absl::Status CheckConfig(const NodeConfig& config,
                         std::vector<std::string>& warnings) {
  RETURN_IF_ERROR(CheckListen("listen", config.listen, config.insecure));
  RETURN_IF_ERROR(
      CheckListen("peer_listen", config.peer_listen, config.insecure));
  RETURN_IF_ERROR(
      CheckListen("http_listen", config.http_listen, config.insecure));
  RETURN_IF_ERROR(
      CheckClash("listen", config.listen, "peer_listen", config.peer_listen));
  RETURN_IF_ERROR(
      CheckClash("listen", config.listen, "http_listen", config.http_listen));
  RETURN_IF_ERROR(CheckClash("peer_listen", config.peer_listen, "http_listen",
                             config.http_listen));
  RETURN_IF_ERROR(
      CheckAdvertised("advertise", config.advertise, "listen", config.listen));
  RETURN_IF_ERROR(CheckAdvertised("peer_advertise", config.peer_advertise,
                                  "peer_listen", config.peer_listen));
  RETURN_IF_ERROR(CheckDirectory(config.data_dir));
  if (config.down_after < config.heartbeat_interval * 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("down_after (", absl::FormatDuration(config.down_after),
                     ") is below two heartbeat_interval (",
                     absl::FormatDuration(config.heartbeat_interval),
                     "): every peer would count as down"));
  }
  if (config.down_after < config.heartbeat_interval * 3) {
    warnings.push_back(
        "down_after is below three heartbeat_interval: one lost heartbeat may "
        "bring a peer down");
  }
  if (config.init && !config.seeds.empty()) {
    return absl::InvalidArgumentError(
        "init and seeds: a node either makes a cluster of its own or looks for "
        "others; use 'kvctl init' once all nodes run");
  }
  if (config.fsync_interval > absl::Seconds(5)) {
    warnings.push_back(absl::StrCat(
        "fsync_interval: a loss of power on several nodes at once may cost the "
        "last ",
        absl::FormatDuration(config.fsync_interval), " of writes"));
  }
  if (config.insecure) {
    warnings.push_back(
        "insecure: traffic is not encrypted, and whoever reaches the ports may "
        "read and write everything");
  }
  return absl::OkStatus();
}

absl::StatusOr<CommandLine> ParseCommandLine(int argc,
                                             const char* const* argv) {
  CommandLine result;
  CLI::App app("A node of a RingKV cluster.", "kvnode");
  app.set_help_flag();
  app.allow_extras();
  // A flag that is repeated is a mistake, whatever its values.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);

  bool help = false;
  bool version = false;
  bool check = false;
  std::string file;
  std::map<std::string, std::string> given;
  CLI::Option* help_flag = app.add_flag("--help,-h", help, "Print this");
  CLI::Option* version_flag =
      app.add_flag("--version", version, "Print the version");
  CLI::Option* check_flag = app.add_flag(
      "--check-config", check, "Check all settings and exit: 0 good, 2 bad");
  for (CLI::Option* flag : {help_flag, version_flag, check_flag}) {
    flag->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
  app.add_option("--config", file,
                 "YAML file of the settings below, with '_' for '-'")
      ->type_name("FILE");
  std::vector<std::string> known = {"--help", "--version", "--check-config",
                                    "--config"};
  for (const Setting& setting : Settings()) {
    const std::string flag = FlagOf(setting);
    known.push_back(flag);
    CLI::Option* option = app.add_option(
        flag, given[setting.key],
        setting.shown_default.empty()
            ? setting.help
            : absl::StrCat(setting.help, " [", setting.shown_default, "]"));
    option->type_name(setting.hint);
    if (setting.is_switch) option->expected(0, 1);
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  for (const std::string& extra : app.remaining()) {
    const std::string name = extra.substr(0, extra.find('='));
    return absl::InvalidArgumentError(
        absl::StartsWith(name, "-")
            ? absl::StrCat("unknown flag ", Shortened(name),
                           Suggestion(name, known))
            : absl::StrCat("'", Shortened(extra),
                           "': kvnode takes flags only"));
  }
  if (help || version) {
    result.action = CommandLine::Action::kPrint;
    result.text = help ? app.help() : absl::StrCat("kvnode ", kVersion, "\n");
    return result;
  }
  result.action =
      check ? CommandLine::Action::kCheckConfig : CommandLine::Action::kRun;

  NodeConfig& config = result.config;
  if (app.get_option("--config")->count() > 0) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
    RETURN_IF_ERROR(ApplyYaml(file, text, config));
  }
  for (const Setting& setting : Settings()) {
    const std::string flag = FlagOf(setting);
    const CLI::Option* option = app.get_option(flag);
    if (option->count() == 0) continue;
    std::string text = given[setting.key];
    if (setting.is_switch && option->results().front().empty()) text = "true";
    if (absl::Status status = setting.parse(text, config); !status.ok()) {
      return BadValue(flag, text, status);
    }
  }
  if (argc <= 1) config.init = true;
  if (config.name.empty()) config.name = HostName();
  if (config.shards == 0) {
    config.shards = static_cast<int>(
        std::clamp(std::thread::hardware_concurrency(), 1u, 256u));
  }
  RETURN_IF_ERROR(CheckConfig(config, result.warnings));
  return result;
}

}  // namespace ringkv
