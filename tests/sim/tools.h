// What kvsim does with one seed beside running it.

#ifndef RINGKV_TESTS_SIM_TOOLS_H_
#define RINGKV_TESTS_SIM_TOOLS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tests/sim/overrides.h"
#include "tests/sim/plan.h"
#include "tests/sim/simulation.h"

namespace ringkv::sim {

// Runs the seed, and if it fails, ever smaller parts of it; prints the smallest
// plan that still fails the same check, and the command that runs it. `command`
// is kvsim with all flags up to the overrides. Returns kvsim's exit code: 1 if
// the seed fails, else 0.
int ShrinkSeed(uint64_t seed, const PlanOverrides& start, int check_every,
               const std::string& command);

// Writes the timeline of `result`, which was made with keep_trace, to `path`.
// An empty `key` stands for that of the first violation.
absl::Status WriteTimeline(const std::string& path, const Plan& plan,
                           const RunResult& result, const std::string& key,
                           const std::string& command);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_TOOLS_H_
