#include "tests/sim/scheduler.h"

#include <algorithm>
#include <utility>

namespace ringkv::sim {

void Scheduler::At(WorldTime when, Action action) {
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(actions_.size());
    actions_.push_back(std::move(action));
  } else {
    index = free_.back();
    free_.pop_back();
    actions_[index] = std::move(action);
  }
  heap_.push_back({std::max(when, now_), order_++, index});
  std::push_heap(heap_.begin(), heap_.end(), Later());
}

bool Scheduler::RunNext(WorldTime until) {
  if (heap_.empty() || heap_.front().when > until) {
    now_ = std::max(now_, until);
    return false;
  }
  std::pop_heap(heap_.begin(), heap_.end(), Later());
  const Slot slot = heap_.back();
  heap_.pop_back();
  now_ = slot.when;
  ++executed_;
  // Taken out first: the action may add others and move the vector.
  Action action = std::move(actions_[slot.action]);
  free_.push_back(slot.action);
  action();
  return true;
}

}  // namespace ringkv::sim
