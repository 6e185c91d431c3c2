// Runs many seeds in processes of their own, so that a run that dies is one
// failure and not the end.

#ifndef RINGKV_TESTS_SIM_RUNNER_H_
#define RINGKV_TESTS_SIM_RUNNER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/plan.h"

namespace ringkv::sim {

struct SeedOutcome {
  uint64_t seed = 0;
  bool failed = false;
  std::string check;  // of the first violation, or "crash", "determinism"
  std::string text;   // all violations, or how the process ended
  std::vector<std::string> checks;  // of all violations
  uint64_t hash = 0;
  uint64_t operations = 0;
  uint64_t answered_ok = 0;
  double simulated_seconds = 0;
  // Names of the marks that the run reached.
  std::vector<std::string> marks;
};

struct ManyOptions {
  std::vector<uint64_t> seeds;
  int jobs = 1;
  int repeat_every = 0;  // every so many seeds run twice; 0: none
  int check_every = 1;
  bool stop_at_first = false;
  // Tells on stderr how far it is: a line that is written over on a terminal,
  // else a line now and then.
  bool progress = false;
  // How to run one seed again, up to the seed's number.
  std::string command;
};

struct ManyResult {
  uint64_t runs = 0;
  uint64_t repeated = 0;
  uint64_t operations = 0;
  double simulated_seconds = 0;
  double seconds = 0;
  std::vector<SeedOutcome> failures;  // by seed
  // The lowest seed that reached each mark.
  std::map<std::string, uint64_t> marks;
};

ManyResult RunMany(const ManyOptions& options);

// One plan in this process; `twice`: and once more, to compare the traces.
SeedOutcome RunHere(const Plan& plan, bool twice, int check_every);
// One plan in a process of its own.
SeedOutcome RunApart(const Plan& plan, int check_every);

// "120 of 500 seeds, 1 failed, 31 seeds/s, 12 s left": after `seconds`.
std::string ProgressText(uint64_t done, uint64_t all, uint64_t failed,
                         double seconds);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_RUNNER_H_
