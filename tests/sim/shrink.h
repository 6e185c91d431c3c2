// Makes a failing run small: leaves out faults, operations, time, clients and
// nodes as long as the same check fails.
//
// Source of the idea: Zeller and Hildebrandt, "Simplifying and Isolating
// Failure-Inducing Input", 2002.

#ifndef RINGKV_TESTS_SIM_SHRINK_H_
#define RINGKV_TESTS_SIM_SHRINK_H_

#include <functional>

#include "tests/sim/overrides.h"
#include "tests/sim/plan.h"

namespace ringkv::sim {

struct ShrinkOptions {
  int trials_max = 600;
  // Whether the plan of the seed, with this left out, still fails as it did.
  std::function<bool(const PlanOverrides&)> still_fails;
  // After each trial that fails: what is left out by then. May be null.
  std::function<void(const PlanOverrides&, int trials)> progress;
};

struct Shrunk {
  PlanOverrides overrides;
  int trials = 0;
  // No single step makes it smaller; false if `trials_max` was reached first.
  bool smallest = false;
};

// `plan` is what the seed decides; it fails with `start` left out of it. The
// same input gives the same result.
Shrunk Shrink(const Plan& plan, const PlanOverrides& start,
              const ShrinkOptions& options);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_SHRINK_H_
