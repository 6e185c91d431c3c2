#include "tests/sim/tools.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "tests/sim/runner.h"
#include "tests/sim/shrink.h"
#include "tests/sim/timeline.h"

namespace ringkv::sim {
namespace {

Plan PlanWith(const Plan& whole, const PlanOverrides& overrides) {
  Plan plan = whole;
  RINGKV_CHECK(ApplyOverrides(overrides, plan).ok());
  return plan;
}

std::string SizeText(const Plan& plan) {
  return absl::StrFormat(
      "%d faults, %d operations by %d clients at %d nodes in %.1f s",
      plan.faults.size(), plan.workload.operations, plan.workload.clients,
      plan.nodes.size(), static_cast<double>(plan.length) / kSecond);
}

}  // namespace

int ShrinkSeed(uint64_t seed, const PlanOverrides& start, int check_every,
               const std::string& command) {
  const Plan whole = PlanOf(seed);
  const SeedOutcome first = RunApart(PlanWith(whole, start), check_every);
  if (!first.failed) {
    std::printf("seed %d holds all promises: nothing to shrink\n",
                static_cast<int>(seed));
    return 0;
  }
  std::printf("seed %s fails %s:\n%s", absl::StrCat(seed).c_str(),
              first.check.c_str(), first.text.c_str());
  std::fflush(stdout);
  const bool terminal = isatty(STDERR_FILENO) == 1;
  ShrinkOptions options;
  options.still_fails = [&](const PlanOverrides& overrides) {
    const SeedOutcome outcome =
        RunApart(PlanWith(whole, overrides), check_every);
    return std::find(outcome.checks.begin(), outcome.checks.end(),
                     first.check) != outcome.checks.end();
  };
  options.progress = [&](const PlanOverrides& overrides, int trials) {
    if (!terminal) return;
    std::fprintf(stderr, "\r\033[K%d runs: %s ", trials,
                 SizeText(PlanWith(whole, overrides)).c_str());
  };
  const Shrunk shrunk = Shrink(whole, start, options);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  const Plan small = PlanWith(whole, shrunk.overrides);
  const SeedOutcome last = RunApart(small, check_every);
  std::printf("\nshrunk in %d runs%s from %s\n  to %s:\n%s\n%s", shrunk.trials,
              shrunk.smallest ? "" : " (stopped at the limit)",
              SizeText(whole).c_str(), SizeText(small).c_str(),
              small.ToString().c_str(), last.text.c_str());
  std::printf("repeat: %s%s --trace\n", command.c_str(),
              shrunk.overrides.ToFlags().c_str());
  return 1;
}

absl::Status WriteTimeline(const std::string& path, const Plan& plan,
                           const RunResult& result, const std::string& key,
                           const std::string& command) {
  std::ofstream out(path, std::ios::binary);
  out << TimelinePage(plan, result, key.empty() ? KeyToShow(plan, result) : key,
                      command);
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace ringkv::sim
