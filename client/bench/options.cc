#include "client/bench/options.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

#ifndef RINGKV_VERSION
#define RINGKV_VERSION "unknown"
#endif

namespace ringkv::bench {
namespace {

constexpr uint64_t kKeysMax = 1'000'000'000'000;
constexpr size_t kValueBytesMax = 1 << 20;

constexpr char kDescription[] =
    R"(Measures a RingKV cluster with the YCSB core workloads.

Loads --keys records, then runs the workload for --seconds or --operations.
Latencies of an open loop (--rate) are counted from the time at which an
operation was meant to start. Exits with 1 if an operation failed, its outcome
stayed unknown, or a read found nothing of a stored record, unless
--allow-errors; and always if a read found another record's value or, with
--history, was stale.)";

constexpr char kFooter[] = R"(Workloads:
  a    50 % reads, 50 % updates, zipfian
  b    95 % reads, 5 % updates, zipfian
  c    reads, zipfian
  d    95 % reads, 5 % inserts, latest
  e    95 % scans, 5 % inserts, zipfian
  f    50 % reads, 50 % read-modify-writes, zipfian
  get  reads, uniform
  put  updates, uniform)";

// The flags as they are given, before they are checked against each other.
struct Flags {
  std::string workload = "a";
  std::string mix;
  std::string distribution;
  uint32_t scan_length = 100;
  bool load_only = false;
  bool skip_load = false;
  std::string api = "unary";
  uint64_t in_flight = 0;
  double rate = 0;
  std::string arrivals = "poisson";
  double seconds = 0;
  double warmup = 0;
  std::string deadline = "10s";
  std::string expected_interval;
  std::string quorum = "default";
  std::string verify = "written";
  std::string output = "text";
  bool quiet = false;
};

absl::Status Refuse(absl::string_view flag, absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", reason));
}

absl::StatusOr<absl::Duration> ParseSpan(absl::string_view flag,
                                         const std::string& text) {
  absl::Duration span;
  if (!absl::ParseDuration(text, &span) || span <= absl::ZeroDuration() ||
      span > absl::Hours(24)) {
    return Refuse(flag, absl::StrCat("'", text,
                                     "' is no time such as 500ms or 10s, up to "
                                     "24h"));
  }
  return span;
}

// What a run with a history needs.
absl::Status CheckHistory(const Options& options) {
  if (options.quorum != Strictness::kStrict) {
    return Refuse("--history", "other reads may be stale; add --quorum strict");
  }
  if (options.api != Api::kUnary) {
    return Refuse("--history",
                  "a pipeline resolves no unknown writes; use "
                  "--api unary");
  }
  if (options.value_size < Records::kVersionedBytesMin) {
    return Refuse("--history",
                  absl::StrCat("--value-size ", options.value_size,
                               " has no room for a version; at least ",
                               Records::kVersionedBytesMin, " bytes"));
  }
  // One write to a record at a time.
  if (options.keys <= options.in_flight) {
    return Refuse("--history",
                  absl::StrCat("--keys ", options.keys, " is not more than ",
                               "--in-flight ", options.in_flight));
  }
  return absl::OkStatus();
}

absl::Status Complete(const CLI::App& app, const Flags& flags,
                      Options& options) {
  const auto given = [&](const char* flag) { return app.count(flag) > 0; };
  ASSIGN_OR_RETURN(options.workload, NamedWorkload(flags.workload));
  if (given("--mix")) {
    ASSIGN_OR_RETURN(options.workload.mix, ParseMix(flags.mix));
    options.workload.name = flags.mix;
  }
  if (given("--distribution")) {
    ASSIGN_OR_RETURN(options.workload.distribution,
                     ParseDistribution(flags.distribution));
  }
  options.workload.scan_length_max = flags.scan_length;
  if (flags.load_only && flags.skip_load) {
    return Refuse("--load-only", "excludes --skip-load");
  }
  options.load = !flags.skip_load;
  options.run = !flags.load_only;
  options.api = flags.api == "pipeline" ? Api::kPipeline : Api::kUnary;
  if (options.api == Api::kPipeline && options.run &&
      options.workload.share(OperationKind::kScan) > 0) {
    return Refuse("--api", "a pipeline carries no scans; use --api unary");
  }
  if (given("--rate")) {
    if (!std::isfinite(flags.rate) || flags.rate < 0.001 || flags.rate > 1e8) {
      return Refuse("--rate",
                    absl::StrCat("is 0.001 to 100,000,000 operations a second, "
                                 "not ",
                                 flags.rate));
    }
    options.rate = flags.rate;
  } else if (given("--arrivals")) {
    return Refuse("--arrivals", "needs --rate");
  }
  options.arrivals = flags.arrivals == "constant" ? ArrivalKind::kConstant
                                                  : ArrivalKind::kPoisson;
  options.in_flight =
      flags.in_flight != 0
          ? flags.in_flight
          : (options.rate.has_value() ? kInFlightOpen : kInFlightClosed);
  if (options.in_flight < static_cast<uint64_t>(options.clients)) {
    return Refuse("--in-flight",
                  absl::StrCat(options.in_flight, " is less than one for each ",
                               "of ", options.clients, " clients"));
  }
  if (given("--seconds")) {
    options.duration = absl::Seconds(flags.seconds);
  } else if (given("--operations")) {
    options.duration = absl::InfiniteDuration();
  }
  options.warmup = absl::Seconds(flags.warmup);
  ASSIGN_OR_RETURN(options.deadline, ParseSpan("--deadline", flags.deadline));
  if (given("--expected-interval")) {
    if (options.rate.has_value()) {
      return Refuse("--expected-interval",
                    "corrects a closed loop; --rate needs no correction");
    }
    ASSIGN_OR_RETURN(options.expected_interval,
                     ParseSpan("--expected-interval", flags.expected_interval));
  }
  options.quorum = flags.quorum == "strict"   ? Strictness::kStrict
                   : flags.quorum == "sloppy" ? Strictness::kSloppy
                                              : Strictness::kDefault;
  if (!options.history.empty()) {
    RETURN_IF_ERROR(CheckHistory(options));
    options.verify = flags.verify == "all"    ? Verify::kAll
                     : flags.verify == "none" ? Verify::kNone
                                              : Verify::kWritten;
  } else if (given("--verify")) {
    return Refuse("--verify", "needs --history");
  }
  options.json_output = flags.output == "json";
  options.progress = !flags.quiet;
  return absl::OkStatus();
}

void Declare(CLI::App& app, Flags& flags, Options& options) {
  app.add_option("--endpoint", options.endpoints,
                 "Nodes of the cluster, host:port, comma-separated")
      ->capture_default_str();
  app.add_option("--keyspace", options.keyspace)->capture_default_str();

  const std::string what = "What to do";
  app.add_option("--workload", flags.workload,
                 "a, b, c, d, e, f, get or put; see below")
      ->capture_default_str()
      ->group(what);
  app.add_option("--mix", flags.mix,
                 "Instead of the workload's: read=, update=, insert=, scan=, "
                 "rmw= with shares, comma-separated")
      ->group(what);
  app.add_option("--distribution", flags.distribution,
                 "Instead of the workload's: uniform, zipfian or latest")
      ->group(what);
  app.add_option("--scan-length", flags.scan_length,
                 "Most entries of a scan; the number is uniform from 1")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->group(what);
  app.add_option("--keys", options.keys, "Records to load and to work on")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, kKeysMax))
      ->group(what);
  app.add_option("--value-size", options.value_size, "Bytes of a value")
      ->capture_default_str()
      ->check(CLI::Range(size_t{0}, kValueBytesMax))
      ->group(what);
  app.add_flag("--load-only", flags.load_only, "Load and stop")->group(what);
  app.add_flag("--skip-load", flags.skip_load, "The records are loaded already")
      ->group(what);
  app.add_option("--seed", options.seed, "Of all that is random")
      ->capture_default_str()
      ->group(what);

  const std::string how = "How to ask";
  app.add_option("--api", flags.api, "unary or pipeline")
      ->capture_default_str()
      ->check(CLI::IsMember({"unary", "pipeline"}))
      ->group(how);
  app.add_option("-c,--clients", options.clients,
                 "Clients, each with connections and threads of its own")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->group(how);
  app.add_option("--io-threads", options.io_threads, "Threads of each client")
      ->capture_default_str()
      ->check(CLI::Range(1, 64))
      ->group(how);
  app.add_option("--connections", options.connections,
                 "Connections of each client to each node (unary)")
      ->capture_default_str()
      ->check(CLI::Range(1, 64))
      ->group(how);
  app.add_option(
         "-n,--in-flight", flags.in_flight,
         absl::StrCat("Operations in flight at most, over all clients "
                      "[",
                      kInFlightClosed, "; with --rate ", kInFlightOpen, "]"))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000}))
      ->group(how);
  app.add_option("--rate", flags.rate,
                 "Open loop: operations a second, whether or not earlier ones "
                 "are done")
      ->group(how);
  app.add_option("--arrivals", flags.arrivals,
                 "Of an open loop: poisson or constant")
      ->capture_default_str()
      ->check(CLI::IsMember({"poisson", "constant"}))
      ->group(how);
  app.add_option("--seconds", flags.seconds,
                 "Time to run [10, without --operations]")
      ->check(CLI::Range(0.001, 1e7))
      ->group(how);
  app.add_option("--operations", options.operations, "Operations to run")
      ->check(CLI::Range(uint64_t{1}, kKeysMax))
      ->group(how);
  app.add_option("--warmup", flags.warmup,
                 "Seconds to run before, which do not count")
      ->check(CLI::Range(0.0, 1e6))
      ->group(how);
  app.add_option("--expected-interval", flags.expected_interval,
                 "Closed loop: how often each operation in flight was meant to "
                 "be sent, to count those that a slow answer held up, such as "
                 "10ms")
      ->group(how);
  app.add_option("-r,--read-quorum", options.r,
                 "Replicas that must answer a read [the keyspace's R]")
      ->check(CLI::Range(1, 16))
      ->group(how);
  app.add_option("-w,--write-quorum", options.w,
                 "Replicas that must acknowledge a write [the keyspace's W]")
      ->check(CLI::Range(1, 16))
      ->group(how);
  app.add_option("--quorum", flags.quorum,
                 "default (the keyspace's), sloppy or strict")
      ->capture_default_str()
      ->check(CLI::IsMember({"default", "sloppy", "strict"}))
      ->group(how);
  app.add_option("--deadline", flags.deadline, "Of one operation")
      ->capture_default_str()
      ->group(how);

  const std::string check = "What to check";
  app.add_option("--history", options.history,
                 "Check each read against what was acknowledged or read before "
                 "it began, kept in this file from run to run; a load begins "
                 "it anew. Records are written by one write at a time")
      ->group(check);
  app.add_option("--verify", flags.verify,
                 "Records to read at the end, to see that nothing is lost: "
                 "written (by this run), all or none")
      ->capture_default_str()
      ->check(CLI::IsMember({"written", "all", "none"}))
      ->group(check);

  const std::string result = "What to print";
  app.add_option("-o,--output", flags.output, "text or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}))
      ->group(result);
  app.add_option("--json", options.json_file, "Write the result there as well")
      ->group(result);
  app.add_flag("-q,--quiet", flags.quiet, "No line each second")->group(result);
  app.add_flag("--allow-errors", options.allow_errors,
               "Exit with 0 although operations failed")
      ->group(result);
}

}  // namespace

ParsedOptions ParseOptions(int argc, const char* const* argv) {
  CLI::App app(kDescription, "kvbench");
  app.footer(kFooter);
  app.set_version_flag("--version", "kvbench " RINGKV_VERSION);
  Flags flags;
  Options options;
  Declare(app, flags, options);
  ParsedOptions parsed;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::CallForVersion&) {
    parsed.text = absl::StrCat(app.version(), "\n");
    return parsed;
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = 2;
    parsed.text =
        absl::StrCat("kvbench: ", error.what(), "\nSee kvbench --help.\n");
    return parsed;
  }
  if (absl::Status status = Complete(app, flags, options); !status.ok()) {
    parsed.exit_code = 2;
    parsed.text =
        absl::StrCat("kvbench: ", status.message(), "\nSee kvbench --help.\n");
    return parsed;
  }
  parsed.options = std::move(options);
  return parsed;
}

}  // namespace ringkv::bench
