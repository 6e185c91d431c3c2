// The one queue of a simulated world: what happens next, and when. Events of
// one instant run in the order in which they were added, so a run depends on
// its seed alone.

#ifndef RINGKV_TESTS_SIM_SCHEDULER_H_
#define RINGKV_TESTS_SIM_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/time/time.h"

namespace ringkv::sim {

// Nanoseconds since the world began. No node sees it: nodes have clocks of
// their own.
using WorldTime = int64_t;

constexpr WorldTime kMicrosecond = 1000;
constexpr WorldTime kMillisecond = 1000 * kMicrosecond;
constexpr WorldTime kSecond = 1000 * kMillisecond;
constexpr WorldTime kForever = INT64_MAX;

class Scheduler {
 public:
  WorldTime now() const { return now_; }

  // Runs `action` at `when`, or now if that is past.
  void At(WorldTime when, std::function<void()> action);
  void After(WorldTime delay, std::function<void()> action) {
    At(now_ + delay, std::move(action));
  }

  // Runs the next event if it is due by `until`; false if none is (time then
  // stands at `until`).
  bool RunNext(WorldTime until);

  size_t pending() const { return heap_.size(); }
  uint64_t executed() const { return executed_; }

 private:
  struct Slot {
    WorldTime when;
    uint64_t order;
    uint32_t action;
  };
  static bool Later(const Slot& a, const Slot& b) {
    return a.when != b.when ? a.when > b.when : a.order > b.order;
  }

  WorldTime now_ = 0;
  uint64_t order_ = 0;
  uint64_t executed_ = 0;
  std::vector<Slot> heap_;
  std::vector<std::function<void()>> actions_;
  std::vector<uint32_t> free_;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_SCHEDULER_H_
