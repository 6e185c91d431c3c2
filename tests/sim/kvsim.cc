// kvsim: runs the real node code in a simulated world, one seed a run.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/status.h"
#include "tests/sim/marks.h"
#include "tests/sim/overrides.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/runner.h"
#include "tests/sim/simulation.h"
#include "tests/sim/tools.h"

namespace ringkv::sim {
namespace {

constexpr int kBenchOperations = 100000;

struct Flags {
  std::string seed;
  std::string seeds;
  std::string seeds_file;
  std::string plant;
  int jobs = 1;
  int repeat_every = 0;
  int check_every = 1;
  int operations = 0;  // 0: as the plan has it
  int nodes = 0;
  int clients = 0;
  double length_seconds = 0;
  std::string only_faults;
  std::string timeline;
  std::string key;
  bool shrink = false;
  bool trace = false;
  bool plan = false;
  bool bench = false;
  bool list_plants = false;
  bool stop_at_first = false;
  bool marks = false;
  bool mark_seeds = false;
  std::string unreached;
  bool quiet = false;
};

// "A..B" or one number; false if it is neither.
bool ParseRange(const std::string& text, std::vector<uint64_t>& seeds) {
  const std::vector<std::string> parts = absl::StrSplit(text, "..");
  uint64_t first = 0;
  uint64_t last = 0;
  if (parts.size() == 1) {
    if (!absl::SimpleAtoi(parts[0], &first)) return false;
    last = first;
  } else if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &first) ||
             !absl::SimpleAtoi(parts[1], &last) || last < first ||
             last - first > 100000000) {
    return false;
  }
  for (uint64_t seed = first; seed <= last; ++seed) seeds.push_back(seed);
  return true;
}

// Lines of "seed # why"; false with a message if one is neither.
bool ReadSeedsFile(const std::string& path, std::vector<uint64_t>& seeds) {
  std::ifstream in(path);
  if (!in) {
    std::fprintf(stderr, "kvsim: cannot read %s\n", path.c_str());
    return false;
  }
  std::string line;
  int number = 0;
  while (std::getline(in, line)) {
    ++number;
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('#', 1));
    const absl::string_view text = absl::StripAsciiWhitespace(parts[0]);
    if (text.empty()) continue;
    uint64_t seed = 0;
    if (!absl::SimpleAtoi(text, &seed)) {
      std::fprintf(stderr, "kvsim: %s:%d: not a seed: %s\n", path.c_str(),
                   number, std::string(text).c_str());
      return false;
    }
    seeds.push_back(seed);
  }
  return true;
}

// All that matters to a run, up to the seed's number.
std::string CommandPrefix(const Flags& flags) {
  std::string command = "kvsim ";
  if (!flags.plant.empty()) {
    absl::StrAppend(&command, "--plant ", flags.plant, " ");
  }
  if (flags.check_every != 1) {
    absl::StrAppend(&command, "--check-every ", flags.check_every, " ");
  }
  absl::StrAppend(&command, "--seed ");
  return command;
}

absl::StatusOr<PlanOverrides> OverridesOf(const Flags& flags) {
  PlanOverrides overrides;
  if (!flags.only_faults.empty()) {
    ASSIGN_OR_RETURN(overrides.only_faults,
                     ParseFaultNumbers(flags.only_faults));
  }
  if (flags.nodes > 0) overrides.nodes = flags.nodes;
  if (flags.clients > 0) overrides.clients = flags.clients;
  if (flags.operations > 0) overrides.operations = flags.operations;
  if (flags.length_seconds > 0) {
    overrides.length = std::llround(flags.length_seconds * 1000) * kMillisecond;
  }
  return overrides;
}

int RunOne(const Flags& flags, uint64_t seed) {
  absl::StatusOr<PlanOverrides> overrides = OverridesOf(flags);
  Plan plan = PlanOf(seed);
  absl::Status applied = overrides.status();
  if (applied.ok()) applied = ApplyOverrides(*overrides, plan);
  if (!applied.ok()) {
    std::fprintf(stderr, "kvsim: %s\n", std::string(applied.message()).c_str());
    return 2;
  }
  const std::string command = absl::StrCat(CommandPrefix(flags), seed);
  if (flags.shrink) {
    return ShrinkSeed(seed, *overrides, flags.check_every, command);
  }
  if (flags.trace || flags.plan) std::printf("%s", plan.ToString().c_str());
  if (flags.plan) return 0;
  RunOptions options;
  options.live_trace = flags.trace;
  options.keep_trace = !flags.timeline.empty();
  options.check_every = flags.check_every;
  const RunResult result = RunPlan(plan, options);
  std::printf(
      "seed %llu: %llu operations (%llu ok, %llu unknown), %.1f "
      "simulated seconds, %llu messages, trace %016llx\n",
      static_cast<unsigned long long>(seed),
      static_cast<unsigned long long>(result.operations),
      static_cast<unsigned long long>(result.answered_ok),
      static_cast<unsigned long long>(result.unknown),
      static_cast<double>(result.simulated) / 1e9,
      static_cast<unsigned long long>(result.messages),
      static_cast<unsigned long long>(result.hash));
  for (const Violation& violation : result.violations) {
    std::printf("  %s %s%s%s\n", violation.check.c_str(), violation.key.c_str(),
                violation.key.empty() ? "" : ": ", violation.text.c_str());
  }
  const std::string again = absl::StrCat(command, overrides->ToFlags());
  if (!flags.timeline.empty()) {
    const absl::Status written =
        WriteTimeline(flags.timeline, plan, result, flags.key, again);
    if (!written.ok()) {
      std::fprintf(stderr, "kvsim: %s\n",
                   std::string(written.message()).c_str());
      return 2;
    }
    std::printf("timeline: %s\n", flags.timeline.c_str());
  }
  if (result.violations.empty()) return 0;
  std::printf("repeat: %s --trace\n", again.c_str());
  return 1;
}

// The whole file; false with a message if it cannot be read.
bool ReadFile(const std::string& path, std::string& text) {
  std::ifstream in(path, std::ios::binary);
  text.assign(std::istreambuf_iterator<char>(in), {});
  if (in) return true;
  std::fprintf(stderr, "kvsim: cannot read %s\n", path.c_str());
  return false;
}

void PrintMarks(const char* what, const std::vector<std::string>& marks) {
  if (marks.empty()) return;
  std::printf("%s: %s\n", what, absl::StrJoin(marks, " ").c_str());
}

int RunSeeds(const Flags& flags, std::vector<uint64_t> seeds) {
  std::set<std::string> unreached;
  if (!flags.unreached.empty()) {
    std::string text;
    if (!ReadFile(flags.unreached, text)) return 2;
    absl::StatusOr<std::set<std::string>> parsed =
        ParseUnreached(text, AllMarks());
    if (!parsed.ok()) {
      std::fprintf(stderr, "kvsim: %s: %s\n", flags.unreached.c_str(),
                   std::string(parsed.status().message()).c_str());
      return 2;
    }
    unreached = *std::move(parsed);
  }
  ManyOptions options;
  options.seeds = std::move(seeds);
  options.jobs = flags.jobs;
  options.repeat_every = flags.repeat_every;
  options.check_every = flags.check_every;
  options.stop_at_first = flags.stop_at_first;
  options.progress = !flags.quiet;
  options.command = CommandPrefix(flags);
  const ManyResult result = RunMany(options);
  std::printf(
      "%llu seeds (%llu of them twice), %zu failed; %llu operations in "
      "%.0f simulated seconds, %.1f s\n",
      static_cast<unsigned long long>(result.runs),
      static_cast<unsigned long long>(result.repeated), result.failures.size(),
      static_cast<unsigned long long>(result.operations),
      result.simulated_seconds, result.seconds);
  std::set<std::string> reached;
  for (const auto& [mark, seed] : result.marks) {
    reached.insert(mark);
    if (flags.mark_seeds) {
      std::printf("%-36s %llu\n", mark.c_str(),
                  static_cast<unsigned long long>(seed));
    }
  }
  const MarkReport marks = CompareMarks(AllMarks(), reached, unreached);
  PrintMarks("marks never reached", marks.missed);
  PrintMarks("marks reached that were said not to be", marks.outdated);
  if (result.failures.empty()) {
    return flags.marks && !marks.missed.empty() ? 1 : 0;
  }
  std::printf("repeat the first: %s%llu --trace\n", options.command.c_str(),
              static_cast<unsigned long long>(result.failures[0].seed));
  return 1;
}

int Bench(const Flags& flags, uint64_t seed) {
  const Plan plan = BenchPlan(
      seed, flags.operations > 0 ? flags.operations : kBenchOperations);
  RunOptions options;
  options.check_every = 64;
  // Of this process: a busy machine must not count against it.
  const std::clock_t began = std::clock();
  const RunResult result = RunPlan(plan, options);
  const double seconds =
      static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  std::printf(
      "%llu operations (%llu ok) in %.2f s of one core: %.0f a second; %.0f "
      "simulated seconds, %.0f times real time; %.0f events and %.0f "
      "messages a second; %zu violations\n",
      static_cast<unsigned long long>(result.operations),
      static_cast<unsigned long long>(result.answered_ok), seconds,
      static_cast<double>(result.operations) / seconds,
      static_cast<double>(result.simulated) / 1e9,
      static_cast<double>(result.simulated) / 1e9 / seconds,
      static_cast<double>(result.events) / seconds,
      static_cast<double>(result.messages) / seconds, result.violations.size());
  for (const Violation& violation : result.violations) {
    std::printf("  %s %s %s\n", violation.check.c_str(), violation.key.c_str(),
                violation.text.c_str());
  }
  return result.violations.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app{
      "Runs the real node code of RingKV in a simulated world; one "
      "seed decides everything. Exit code 0: all promises held, 1: "
      "one was broken (with the command to repeat it), 2: usage."};
  Flags flags;
  app.add_option("--seed", flags.seed, "Run this one seed");
  app.add_option("--seeds", flags.seeds, "Run the seeds A..B");
  app.add_option("--seeds-file", flags.seeds_file,
                 "Run the seeds of a file, one a line, # begins a comment");
  app.add_option("--jobs", flags.jobs, "Processes at once")
      ->check(CLI::Range(1, 256));
  app.add_option("--repeat-check", flags.repeat_every,
                 "Run every so many-th seed twice and compare the trace hashes")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--check-every", flags.check_every,
                 "Turns of a loop between checks of its invariants")
      ->check(CLI::Range(1, 1000000));
  app.add_flag("--trace", flags.trace,
               "Print what happens, as it happens (with --seed)");
  app.add_flag("--plan", flags.plan,
               "Print what the seed decides and run nothing (with --seed)");
  app.add_flag("--bench", flags.bench,
               "Measure the simulator: five nodes, faults, many operations");
  app.add_option("--operations", flags.operations,
                 "Operations by clients (with --seed, at most those of its "
                 "plan, or --bench)")
      ->check(CLI::Range(1, 10000000));
  app.add_flag("--shrink", flags.shrink,
               "Find a small part of a failing seed that still fails");
  app.add_option("--timeline", flags.timeline,
                 "Write what happens as a page to this file (with --seed)");
  app.add_option("--key", flags.key,
                 "keyspace/key whose messages the timeline shows (else that of "
                 "the first failure)");
  app.add_option("--only-faults", flags.only_faults,
                 "Only these faults of the seed, by number (3,7 or none)");
  app.add_option("--nodes", flags.nodes, "Only the first so many nodes")
      ->check(CLI::Range(1, 64));
  app.add_option("--clients", flags.clients, "Only the first so many clients")
      ->check(CLI::Range(1, 1000));
  app.add_option("--length", flags.length_seconds,
                 "Seconds after which the workload and the faults end")
      ->check(CLI::Range(0.001, 100000.0));
  app.add_flag("--stop-at-first", flags.stop_at_first,
               "Stop at the first seed that fails");
  app.add_flag("--all-marks", flags.marks,
               "Fail if a coverage mark was never reached");
  app.add_flag("--mark-seeds", flags.mark_seeds,
               "Print the lowest seed that reached each coverage mark");
  app.add_option("--unreached", flags.unreached,
                 "File of marks that need not be reached, with the reasons");
  app.add_flag("--quiet", flags.quiet, "No progress line");
  app.add_option("--plant", flags.plant,
                 "Run with this planted bug (see --list-plants)");
  app.add_flag("--list-plants", flags.list_plants,
               "List the planted bugs and how they show");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (flags.list_plants) {
    for (const PlantedBug& bug : kPlantedBugs) {
      std::printf("%-34s %s\n", bug.name, bug.what);
    }
    return 0;
  }
  if (!flags.plant.empty()) {
#if RINGKV_PLANTED_BUGS
    bool known = false;
    for (const PlantedBug& bug : kPlantedBugs) {
      if (flags.plant == bug.name) known = true;
    }
    for (const PlantedBug& bug : kPlantedUnseen) {
      if (flags.plant == bug.name) known = true;
    }
    if (!known) {
      std::fprintf(stderr, "kvsim: no planted bug is called %s\n",
                   flags.plant.c_str());
      return 2;
    }
    SetPlantedBug(flags.plant);
#else
    std::fprintf(stderr,
                 "kvsim: this build has no planted bugs; configure with "
                 "-DRINGKV_PLANTED_BUGS=ON\n");
    return 2;
#endif
  }
  if (!flags.seed.empty() || flags.bench) {
    uint64_t seed = 1;
    if (!flags.seed.empty() && !absl::SimpleAtoi(flags.seed, &seed)) {
      std::fprintf(stderr, "kvsim: not a seed: %s\n", flags.seed.c_str());
      return 2;
    }
    return flags.bench ? Bench(flags, seed) : RunOne(flags, seed);
  }
  const absl::StatusOr<PlanOverrides> overrides = OverridesOf(flags);
  if (!overrides.ok() || !overrides->ToFlags().empty() || flags.shrink ||
      !flags.timeline.empty()) {
    std::fprintf(stderr,
                 "kvsim: --shrink, --timeline and what leaves out parts of a "
                 "plan need one --seed\n");
    return 2;
  }
  std::vector<uint64_t> seeds;
  if (!flags.seeds.empty() && !ParseRange(flags.seeds, seeds)) {
    std::fprintf(stderr, "kvsim: not a range of seeds (A..B): %s\n",
                 flags.seeds.c_str());
    return 2;
  }
  if (!flags.seeds_file.empty() && !ReadSeedsFile(flags.seeds_file, seeds)) {
    return 2;
  }
  if (seeds.empty() && flags.seeds_file.empty()) {
    std::fprintf(stderr,
                 "kvsim: name --seed, --seeds, --seeds-file or "
                 "--bench; see --help\n");
    return 2;
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "kvsim: no seeds in %s\n", flags.seeds_file.c_str());
    return 2;
  }
  return RunSeeds(flags, std::move(seeds));
}

}  // namespace
}  // namespace ringkv::sim

int main(int argc, char** argv) { return ringkv::sim::Main(argc, argv); }
