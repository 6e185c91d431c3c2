#include "membership/gossip/update_queue.h"

#include <algorithm>
#include <utility>

namespace ringkv {

void UpdateQueue::Put(GossipUpdate update) {
  const NodeId id = update.id;
  const bool urgent =
      update.state != Liveness::kAlive || update.version.refutations > 0;
  entries_[id] = {std::move(update), urgent, 0, next_order_++};
}

void UpdateQueue::EraseAccusations() {
  for (auto it = entries_.begin(); it != entries_.end();) {
    it = it->second.update.state == Liveness::kAlive ? std::next(it)
                                                     : entries_.erase(it);
  }
}

void UpdateQueue::Take(size_t max, int times, const NodeId& except,
                       std::vector<GossipUpdate>& out) {
  if (entries_.empty() || max == 0) return;
  std::vector<Entry*> best;
  best.reserve(entries_.size());
  for (auto& [id, entry] : entries_) {
    if (id != except) best.push_back(&entry);
  }
  const auto first = [](const Entry* a, const Entry* b) {
    if (a->urgent != b->urgent) return a->urgent;
    return a->passed_on != b->passed_on ? a->passed_on < b->passed_on
                                        : a->order > b->order;
  };
  if (best.size() > max) {
    std::partial_sort(best.begin(),
                      best.begin() + static_cast<std::ptrdiff_t>(max),
                      best.end(), first);
    best.resize(max);
  } else {
    std::sort(best.begin(), best.end(), first);
  }
  for (Entry* entry : best) {
    out.push_back(entry->update);
    if (++entry->passed_on >= times) entries_.erase(NodeId(entry->update.id));
  }
}

}  // namespace ringkv
