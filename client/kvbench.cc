// kvbench: measures a cluster with the YCSB core workloads.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "client/bench/history.h"
#include "client/bench/options.h"
#include "client/bench/report.h"
#include "client/bench/runner.h"
#include "client/client.h"
#include "client/kvbench_calls.h"
#include "client/kvbench_pipeline.h"

namespace ringkv::bench {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr size_t kScanStartsMax = 4096;

std::atomic<bool> interrupted{false};

struct Cluster {
  std::vector<Client> clients;
  std::vector<std::unique_ptr<Target>> targets;

  std::vector<Target*> list() const {
    std::vector<Target*> list;
    for (const auto& target : targets) list.push_back(target.get());
    return list;
  }
};

CallSettings SettingsOf(const Options& options) {
  CallSettings settings;
  settings.keyspace = options.keyspace;
  settings.r = options.r;
  settings.w = options.w;
  settings.quorum = options.quorum == Strictness::kStrict ? CallQuorum::kStrict
                    : options.quorum == Strictness::kSloppy
                        ? CallQuorum::kSloppy
                        : CallQuorum::kDefault;
  settings.deadline = options.deadline;
  return settings;
}

absl::StatusOr<Client> Connect(const Options& options) {
  ClientOptions client;
  client.endpoints = options.endpoints;
  client.keyspace = options.keyspace;
  client.deadline = options.deadline;
  client.io_threads = options.io_threads;
  client.connections_per_node = options.connections;
  return Client::Connect(std::move(client));
}

absl::StatusOr<Cluster> MakeTargets(const Options& options,
                                    const Records& records, bool scans,
                                    History* history) {
  Cluster cluster;
  std::vector<std::string> starts;
  for (int i = 0; i < options.clients; ++i) {
    const uint64_t seed = options.seed * 1000 + static_cast<uint64_t>(i);
    if (options.api == Api::kPipeline) {
      ASSIGN_OR_RETURN(
          std::unique_ptr<Target> target,
          PipelineTarget::Connect(options.endpoints, SettingsOf(options),
                                  records, seed));
      cluster.targets.push_back(std::move(target));
      continue;
    }
    ASSIGN_OR_RETURN(Client client, Connect(options));
    if (scans && i == 0) {
      ASSIGN_OR_RETURN(
          starts, FindScanStarts(client, options.keyspace, kScanStartsMax));
    }
    cluster.clients.push_back(client);
    cluster.targets.push_back(std::make_unique<CallTarget>(
        client, SettingsOf(options), records, starts, seed, history));
  }
  return cluster;
}

RunOptions ToRunOptions(const Options& options) {
  RunOptions run;
  run.in_flight = options.in_flight;
  run.seed = options.seed;
  run.stop = &interrupted;
  if (options.progress) {
    run.on_progress = [](const Progress& progress) {
      absl::FPrintF(stderr, "%s\n", ProgressLine(progress));
    };
  }
  return run;
}

// Sources of the lanes of a phase, in front of a history if there is one.
class Sources {
 public:
  Sources(uint64_t records, History* history)
      : records_(records), history_(history) {}

  void Add(std::unique_ptr<OperationSource> source) {
    owned_.push_back(std::move(source));
    if (history_ != nullptr) {
      owned_.push_back(MakeHistorySource(*owned_.back(), records_, *history_));
    }
    list_.push_back(owned_.back().get());
  }
  const std::vector<OperationSource*>& list() const { return list_; }

 private:
  const uint64_t records_;
  History* const history_;
  std::vector<std::unique_ptr<OperationSource>> owned_;
  std::vector<OperationSource*> list_;
};

PhaseResult Load(const Options& options, const Cluster& cluster,
                 History* history) {
  RunOptions run = ToRunOptions(options);
  std::atomic<uint64_t> next{0};
  Sources sources(options.keys, history);
  for (size_t i = 0; i < cluster.targets.size(); ++i) {
    sources.Add(MakeLoadSource(next, options.keys));
  }
  // Loading is not measured for latency: as fast as it goes, in a closed loop.
  if (options.rate.has_value()) run.in_flight = kInFlightClosed;
  return RunPhase(cluster.list(), sources.list(), run);
}

PhaseResult Run(const Options& options, const Cluster& cluster,
                History* history) {
  RunOptions run = ToRunOptions(options);
  run.rate = options.rate;
  run.arrivals = options.arrivals;
  run.duration = options.duration;
  run.operations = options.operations;
  run.warmup = options.warmup;
  run.expected_interval = options.expected_interval;
  InsertCounter inserts(options.keys);
  Sources sources(options.keys, history);
  for (size_t i = 0; i < cluster.targets.size(); ++i) {
    sources.Add(MakeRunSource(options.workload, inserts, options.seed + i));
  }
  return RunPhase(cluster.list(), sources.list(), run);
}

// Reads what must be there, each record once.
PhaseResult ReadAgain(const Options& options, const Cluster& cluster,
                      const History& history) {
  RunOptions run = ToRunOptions(options);
  run.in_flight = std::min(run.in_flight, kInFlightClosed);
  // What ended the run does not end this.
  if (interrupted) run.stop = nullptr;
  std::vector<uint64_t> records;
  if (options.verify == Verify::kAll) {
    records.resize(history.records());
    std::iota(records.begin(), records.end(), 0);
  } else {
    records = history.Written();
  }
  std::atomic<uint64_t> next{0};
  Sources sources(options.keys, nullptr);
  for (size_t i = 0; i < cluster.targets.size(); ++i) {
    sources.Add(MakeReadSource(next, records));
  }
  return RunPhase(cluster.list(), sources.list(), run);
}

// Null if none is wanted. A load begins it anew.
absl::StatusOr<std::unique_ptr<History>> OpenHistory(const Options& options) {
  if (options.history.empty()) return nullptr;
  if (options.load) return std::make_unique<History>();
  ASSIGN_OR_RETURN(std::unique_ptr<History> history,
                   History::Load(options.history));
  if (history->records() < options.keys) {
    return absl::InvalidArgumentError(
        absl::StrCat("--keys ", options.keys, " is more than the ",
                     history->records(), " records of the history ",
                     options.history, "; load them with --history"));
  }
  return history;
}

nlohmann::ordered_json SettingsJson(const Options& options) {
  nlohmann::ordered_json json;
  json["workload"] = options.workload.name;
  for (size_t i = 0; i < kOperationKinds; ++i) {
    if (options.workload.mix[i] > 0) {
      json["mix"][std::string(OperationName(static_cast<OperationKind>(i)))] =
          options.workload.mix[i];
    }
  }
  json["distribution"] =
      std::string(DistributionName(options.workload.distribution));
  json["keyspace"] = options.keyspace;
  json["keys"] = options.keys;
  json["value_size"] = options.value_size;
  json["api"] = options.api == Api::kPipeline ? "pipeline" : "unary";
  json["clients"] = options.clients;
  json["in_flight"] = options.in_flight;
  if (options.rate.has_value()) {
    json["rate"] = *options.rate;
    json["arrivals"] =
        options.arrivals == ArrivalKind::kConstant ? "constant" : "poisson";
  }
  json["seed"] = options.seed;
  if (!options.history.empty()) json["history"] = options.history;
  return json;
}

nlohmann::ordered_json ClientJson(const Cluster& cluster) {
  ClientStats sum;
  for (const Client& client : cluster.clients) {
    const ClientStats stats = client.stats();
    sum.calls += stats.calls;
    sum.tries += stats.tries;
    sum.retries += stats.retries;
    sum.hedges += stats.hedges;
  }
  return {{"calls", sum.calls},
          {"tries", sum.tries},
          {"retries", sum.retries},
          {"hedges", sum.hedges}};
}

void PrintPhase(const Options& options, const char* name,
                const PhaseResult& result, bool open_loop) {
  if (options.json_output) return;
  std::cout << name << "\n" << PhaseTable(result, open_loop) << std::flush;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    return absl::UnavailableError(
        absl::StrCat("the result cannot be written to ", path));
  }
  return absl::OkStatus();
}

// True if it is to be taken for a success.
absl::StatusOr<bool> Measure(const Options& options, History* history) {
  const Records records(options.value_size, options.seed);
  nlohmann::ordered_json json = SettingsJson(options);
  Counts counts;
  if (options.load) {
    ASSIGN_OR_RETURN(const Cluster cluster,
                     MakeTargets(options, records, /*scans=*/false, history));
    const PhaseResult result = Load(options, cluster, history);
    counts.Add(result.Total().counts);
    json["load"] = PhaseJson(result, false);
    PrintPhase(options, "load", result, false);
    if (counts.errors() > 0 && !options.allow_errors) {
      return absl::UnavailableError(
          absl::StrCat(counts.errors(), " of ", result.Total().counts.ended(),
                       " records were not loaded for sure: ",
                       result.errors.empty() ? "" : result.errors.front()));
    }
  }
  if (options.run && !interrupted) {
    const bool scans = options.workload.share(OperationKind::kScan) > 0;
    ASSIGN_OR_RETURN(const Cluster cluster,
                     MakeTargets(options, records, scans, history));
    const bool open_loop = options.rate.has_value();
    const PhaseResult result = Run(options, cluster, history);
    counts.Add(result.Total().counts);
    json["run"] = PhaseJson(result, open_loop);
    if (!cluster.clients.empty()) json["client"] = ClientJson(cluster);
    PrintPhase(options, absl::StrCat("run ", options.workload.name).c_str(),
               result, open_loop);
  }
  if (options.verify != Verify::kNone) {
    ASSIGN_OR_RETURN(const Cluster cluster,
                     MakeTargets(options, records, /*scans=*/false, history));
    const PhaseResult result = ReadAgain(options, cluster, *history);
    counts.Add(result.Total().counts);
    json["verify"] = PhaseJson(result, false);
    PrintPhase(options, "verify", result, false);
  }
  const std::string text = json.dump(2) + "\n";
  if (options.json_output) std::cout << text << std::flush;
  if (!options.json_file.empty()) {
    RETURN_IF_ERROR(WriteFile(options.json_file, text));
  }
  return counts.errors() == 0 ||
         (options.allow_errors && counts.wrong == 0 && counts.stale == 0);
}

absl::StatusOr<bool> MeasureWithHistory(const Options& options) {
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history,
                   OpenHistory(options));
  absl::StatusOr<bool> success = Measure(options, history.get());
  // Also of a run that failed: what it wrote may be there.
  if (history != nullptr) RETURN_IF_ERROR(history->Save(options.history));
  return success;
}

int Main(int argc, char** argv) {
  const ParsedOptions parsed = ParseOptions(argc, argv);
  if (!parsed.options.has_value()) {
    (parsed.exit_code == 0 ? std::cout : std::cerr) << parsed.text;
    return parsed.exit_code;
  }
  // The first one ends the run and prints what there is, the next one kills.
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const absl::StatusOr<bool> success = MeasureWithHistory(*parsed.options);
  if (!success.ok()) {
    std::cerr << "kvbench: " << success.status().message() << "\n";
    return kExitFailed;
  }
  return *success ? kExitDone : kExitFailed;
}

}  // namespace
}  // namespace ringkv::bench

int main(int argc, char** argv) { return ringkv::bench::Main(argc, argv); }
