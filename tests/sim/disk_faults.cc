#include "tests/sim/disk_faults.h"

#include <algorithm>
#include <set>

namespace ringkv::sim {
namespace {

WorldTime TimeBetween(Random& random, WorldTime low, WorldTime high) {
  return low + static_cast<WorldTime>(
                   random.Uniform(static_cast<uint64_t>(high - low) + 1));
}

Fault At(Random& random, const Plan& plan, FaultKind kind) {
  Fault fault;
  fault.kind = kind;
  fault.node = static_cast<int>(random.Uniform(plan.nodes.size()));
  fault.at = TimeBetween(random, 0, plan.length * 9 / 10);
  return fault;
}

void PlanFullDisks(Random& random, Plan& plan) {
  const uint64_t count = 1 + random.Uniform(4);
  for (uint64_t i = 0; i < count; ++i) {
    Fault fault = At(random, plan, FaultKind::kDiskFull);
    fault.duration = TimeBetween(random, 500, 20000) * kMillisecond;
    fault.amount = random.Chance(0.3) ? 1 : 0;
    plan.faults.push_back(fault);
  }
}

// Answers, but slowly, for so long that nobody can wait it out.
void PlanGrayFailures(Random& random, Plan& plan) {
  const uint64_t count = 1 + random.Uniform(2);
  for (uint64_t i = 0; i < count; ++i) {
    Fault fault = At(random, plan, FaultKind::kSlowNode);
    fault.amount = TimeBetween(random, 20, 300) * kMillisecond;
    fault.duration = TimeBetween(random, 20, 60) * kSecond;
    plan.faults.push_back(fault);
  }
}

void PlanRot(Random& random, Plan& plan) {
  const uint64_t count = 1 + random.Uniform(12);
  for (uint64_t i = 0; i < count; ++i) {
    Fault fault = At(random, plan, FaultKind::kBitRot);
    fault.amount = static_cast<int64_t>(random.Next() >> 1);
    plan.faults.push_back(fault);
  }
}

void PlanLostDisks(Random& random, Plan& plan) {
  // A majority of the members stays what it was.
  const size_t nodes = plan.nodes.size();
  if (nodes < 3) return;
  const uint64_t count = nodes < 5 ? 1 : 1 + random.Uniform(2);
  std::set<int> lost;
  for (uint64_t i = 0; i < count; ++i) {
    const bool empty = random.Chance(0.5);
    Fault fault =
        At(random, plan, empty ? FaultKind::kLostDisk : FaultKind::kOldDisk);
    fault.duration = TimeBetween(random, 10, 10000) * kMillisecond;
    // From a moment ago to the first day: identity and ring, and no data.
    constexpr WorldTime kAges[] = {2 * kSecond, 5 * kSecond, 15 * kSecond,
                                   40 * kSecond, 1000 * kSecond};
    const WorldTime age = kAges[random.Uniform(5)];
    if (!empty) fault.amount = std::min(age, fault.at);
    if (lost.insert(fault.node).second) plan.faults.push_back(fault);
  }
}

}  // namespace

void PlanDiskFaults(Plan& plan) {
  SeededRandom random = RandomFor(plan.seed, Purpose::kDiskFault);
  if (random.Chance(0.4)) return;
  if (random.Chance(0.1)) {
    plan.hint_bytes_max = 2000 + random.Uniform(50000);
  }
  if (random.Chance(0.35)) PlanFullDisks(random, plan);
  if (random.Chance(0.25)) PlanGrayFailures(random, plan);
  switch (random.Uniform(4)) {
    case 0:
      PlanRot(random, plan);
      break;
    case 1:
      PlanLostDisks(random, plan);
      break;
    default:
      break;
  }
  SortByTime(plan.faults);
}

}  // namespace ringkv::sim
