// Which updates ride on the next message: each is passed on a bounded number of
// times, accusations and their refutations first (newcomers by the hundred must
// not hold them up), then those that were passed on least.
//
// Invariant: one update for each node, the newest that was put in. Thread-
// compatible; owned by the gossip machine.

#ifndef RINGKV_MEMBERSHIP_GOSSIP_UPDATE_QUEUE_H_
#define RINGKV_MEMBERSHIP_GOSSIP_UPDATE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "membership/gossip/messages.h"

namespace ringkv {

class UpdateQueue {
 public:
  // Takes the place of any other update about the same node.
  void Put(GossipUpdate update);
  void Erase(const NodeId& id) { entries_.erase(id); }
  // Drops all that says that somebody does not live.
  void EraseAccusations();
  // Appends up to `max` updates to `out`, none about `except`, and counts each
  // as passed on; one that has been `times` times is dropped after that.
  void Take(size_t max, int times, const NodeId& except,
            std::vector<GossipUpdate>& out);
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    GossipUpdate update;
    bool urgent = false;
    int passed_on = 0;
    uint64_t order = 0;  // greater: put in later
  };
  std::map<NodeId, Entry> entries_;
  uint64_t next_order_ = 1;
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_GOSSIP_UPDATE_QUEUE_H_
