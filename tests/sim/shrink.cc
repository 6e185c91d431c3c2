#include "tests/sim/shrink.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ringkv::sim {
namespace {

class Shrinker {
 public:
  Shrinker(const Plan& plan, const PlanOverrides& start,
           const ShrinkOptions& options)
      : plan_(plan), options_(options) {
    best_ = start;
    if (!best_.only_faults.has_value()) {
      best_.only_faults.emplace();
      for (const Fault& fault : plan.faults) {
        best_.only_faults->push_back(fault.number);
      }
    }
  }

  Shrunk Run() {
    bool changed = true;
    while (changed && !Spent()) {
      changed = false;
      // Time first: each later trial is the cheaper for it.
      changed |= LowerLength();
      changed |=
          LowerNumber(&PlanOverrides::operations, plan_.workload.operations);
      changed |= DropFaults();
      changed |= LowerNumber(&PlanOverrides::clients, plan_.workload.clients);
      changed |= LowerNumber(&PlanOverrides::nodes,
                             static_cast<int>(plan_.nodes.size()));
    }
    return {Tidy(), trials_, !Spent()};
  }

 private:
  bool Spent() const { return trials_ >= options_.trials_max; }

  bool Try(const PlanOverrides& candidate) {
    if (Spent()) return false;
    Plan plan = plan_;
    if (!ApplyOverrides(candidate, plan).ok()) return false;
    ++trials_;
    if (!options_.still_fails(candidate)) return false;
    best_ = candidate;
    if (options_.progress) options_.progress(best_, trials_);
    return true;
  }

  // All, then halves, quarters and so on down to single ones.
  bool DropFaults() {
    bool changed = false;
    size_t chunk = best_.only_faults->size();
    while (chunk > 0 && !Spent()) {
      for (size_t first = 0; first < best_.only_faults->size();) {
        PlanOverrides candidate = best_;
        std::vector<int>& kept = *candidate.only_faults;
        const size_t last = std::min(first + chunk, kept.size());
        kept.erase(kept.begin() + static_cast<ptrdiff_t>(first),
                   kept.begin() + static_cast<ptrdiff_t>(last));
        if (Try(candidate)) {
          changed = true;
        } else {
          first += chunk;
        }
      }
      chunk /= 2;
    }
    return changed;
  }

  // The smallest that a search by halves finds; failing need not be monotone,
  // so the last steps go down one by one.
  template <class T, class Set>
  bool Lower(T now, T least, T last_step, Set set) {
    bool changed = false;
    for (T step = (now - least + 1) / 2; step >= last_step && !Spent();) {
      PlanOverrides candidate = best_;
      const T next = std::max(least, now - step);
      if (next < now) {
        set(candidate, next);
        if (Try(candidate)) {
          now = next;
          changed = true;
          continue;
        }
      }
      step /= 2;
    }
    return changed;
  }

  bool LowerNumber(std::optional<int> PlanOverrides::*member, int whole) {
    return Lower<int>((best_.*member).value_or(whole), 1, 1,
                      [member](PlanOverrides& candidate, int value) {
                        candidate.*member = value;
                      });
  }

  bool LowerLength() {
    constexpr WorldTime kStepMin = 100;  // milliseconds
    const WorldTime now = best_.length.value_or(plan_.length) / kMillisecond;
    return Lower<WorldTime>(now, 1, kStepMin,
                            [](PlanOverrides& candidate, WorldTime ms) {
                              candidate.length = ms * kMillisecond;
                            });
  }

  // Leaves out what says nothing: numbers of faults that other cuts took away,
  // and a list that names all.
  PlanOverrides Tidy() const {
    PlanOverrides tidy = best_;
    Plan plan = plan_;
    if (!ApplyOverrides(best_, plan).ok()) return tidy;
    std::vector<int> happen;
    for (const Fault& fault : plan.faults) happen.push_back(fault.number);
    std::sort(happen.begin(), happen.end());
    tidy.only_faults = happen;
    if (happen.size() == plan_.faults.size()) tidy.only_faults.reset();
    return tidy;
  }

  const Plan& plan_;
  const ShrinkOptions& options_;
  PlanOverrides best_;
  int trials_ = 0;
};

}  // namespace

Shrunk Shrink(const Plan& plan, const PlanOverrides& start,
              const ShrinkOptions& options) {
  return Shrinker(plan, start, options).Run();
}

}  // namespace ringkv::sim
