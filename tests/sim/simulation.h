// One run: a cluster forms, clients work on it while faults happen, the faults
// stop, and everything must come right again.

#ifndef RINGKV_TESTS_SIM_SIMULATION_H_
#define RINGKV_TESTS_SIM_SIMULATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/key_checker.h"
#include "tests/sim/plan.h"
#include "tests/sim/trace.h"
#include "tests/sim/workload.h"

namespace ringkv::sim {

struct RunOptions {
  bool live_trace = false;  // print lines as they happen
  bool keep_trace = false;  // keep records for a timeline
  int check_every = 1;      // turns of a loop between checks of its invariants
};

// What a timeline shows beside the records of the trace.
struct RunStory {
  enum class NodeState : uint8_t { kDown, kUp, kFrozen };
  struct Change {
    WorldTime at = 0;
    int node = 0;
    NodeState state = NodeState::kDown;
  };
  WorldTime work_began = 0;
  WorldTime healed = 0;  // the faults stopped
  std::vector<Change> changes;
  std::vector<Recorded> operations;   // by id
  std::vector<Recorded> final_reads;  // of all replicas
};

struct RunResult {
  uint64_t seed = 0;
  uint64_t hash = 0;
  uint64_t events = 0;      // of the world's queue
  uint64_t messages = 0;    // between nodes
  uint64_t operations = 0;  // by clients
  uint64_t answered_ok = 0;
  uint64_t unknown = 0;
  WorldTime simulated = 0;
  std::vector<Violation> violations;
  // With keep_trace:
  std::vector<Trace::Record> records;
  RunStory story;
};

RunResult RunPlan(const Plan& plan, const RunOptions& options);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_SIMULATION_H_
