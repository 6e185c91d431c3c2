#include "membership/topology/segments.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/planted.h"

namespace ringkv {
namespace {

constexpr Token kLastToken = std::numeric_limits<Token>::max();

std::vector<NodeNumber> Without(absl::Span<const NodeNumber> nodes,
                                absl::Span<const NodeNumber> others) {
  std::vector<NodeNumber> left;
  for (NodeNumber node : nodes) {
    if (!absl::c_linear_search(others, node)) left.push_back(node);
  }
  // Pairs must not depend on preference orders.
  std::sort(left.begin(), left.end());
  return left;
}

// Walks the segments of one arrangement in token order.
class SegmentWalk {
 public:
  SegmentWalk(const Ring& ring, const Keyspace& keyspace)
      : ring_(ring), keyspace_(*ring.FindKeyspace(keyspace.id)) {
    set_.n = ring_.EffectiveN(keyspace_);
    set_.r = ring_.EffectiveR(keyspace_);
    set_.w = ring_.EffectiveW(keyspace_);
    Load();
  }

  // Of the present segment; tokens above the last one belong to segment 0.
  Token last() const { return last_; }
  const ReplicaSet& set() const { return set_; }
  void Next() {
    ++segment_;
    Load();
  }

 private:
  void Load() {
    const bool wraps = segment_ >= ring_.segments();
    last_ = wraps ? kLastToken : ring_.SegmentEnd(segment_);
    set_.nodes = ring_.PreferenceListOfSegment(keyspace_, wraps ? 0 : segment_);
  }

  const Ring& ring_;
  const Keyspace& keyspace_;
  size_t segment_ = 0;
  Token last_ = 0;
  ReplicaSet set_;
};

// How the replicas of one range change.
struct RangeChange {
  std::vector<NodeNumber> gainers;
  std::vector<NodeNumber> losers;
  std::vector<NodeNumber> living;  // of those before; sorted
  // Every replica must merge so many others that it has whatever was
  // acknowledged. Otherwise a write has W copies afterwards anyway: where it
  // was, or at the partner of a loser that had it, and at the gainers that
  // merge the old set for want of a partner.
  bool all_merge = false;
};

bool HasPartner(const Ring& ring, const RangeChange& change, size_t gainer) {
  return gainer < change.losers.size() &&
         !IsTakenForDead(ring, change.losers[gainer]);
}

RangeChange ChangeOf(const Ring& ring, const ReplicaSet& before,
                     const ReplicaSet& after) {
  RangeChange change;
  change.gainers = Without(after.nodes, before.nodes);
  change.losers = Without(before.nodes, after.nodes);
  for (NodeNumber node : before.nodes) {
    if (!IsTakenForDead(ring, node)) change.living.push_back(node);
  }
  std::sort(change.living.begin(), change.living.end());
  const uint32_t dead =
      static_cast<uint32_t>(before.nodes.size() - change.living.size());
  uint32_t copies = before.w - std::min(before.w, dead);
  for (size_t i = 0; i < change.gainers.size(); ++i) {
    if (!HasPartner(ring, change, i)) ++copies;
  }
  change.all_merge =
      copies < after.w && !Planted("too-few-copies-after-change");
  return change;
}

// What `node` must get of one range; false: nothing.
bool TransferOf(const Ring& ring, NodeNumber node, const ReplicaSet& before,
                const ReplicaSet& after, Transfer& transfer) {
  if (!absl::c_linear_search(after.nodes, node)) return false;
  const RangeChange change = ChangeOf(ring, before, after);
  const auto at = std::find(change.gainers.begin(), change.gainers.end(), node);
  const size_t gainer = static_cast<size_t>(at - change.gainers.begin());
  transfer.gains = at != change.gainers.end();
  transfer.sources.clear();
  transfer.sources_needed = 1;
  // N-W+1 old replicas have whatever was acknowledged, this one among them.
  // Fewer are left only where the operator accepted what that loses.
  const auto merge_old = [&] {
    for (NodeNumber old : change.living) {
      if (old != node) transfer.sources.push_back(old);
    }
    transfer.sources_needed =
        std::min<uint32_t>(before.n - before.w + (transfer.gains ? 1 : 0),
                           static_cast<uint32_t>(transfer.sources.size()));
  };
  if (transfer.gains && Planted("stream-from-any") && !before.nodes.empty()) {
    transfer.sources.push_back(before.nodes.front());
  } else if (change.all_merge) {
    merge_old();
    return transfer.gains || transfer.sources_needed > 0;
  } else if (transfer.gains && HasPartner(ring, change, gainer)) {
    transfer.sources.push_back(change.losers[gainer]);
  } else if (transfer.gains) {
    merge_old();
  }
  // Losers beyond the pairs go to everybody, whoever gains.
  for (size_t i = change.gainers.size(); i < change.losers.size(); ++i) {
    const NodeNumber loser = change.losers[i];
    if (IsTakenForDead(ring, loser)) continue;
    if (!absl::c_linear_search(transfer.sources, loser)) {
      transfer.sources.push_back(loser);
    }
    transfer.sources_needed = static_cast<uint32_t>(transfer.sources.size());
  }
  // Also with nobody to receive from: it wipes what it has left of the range.
  return transfer.gains || !transfer.sources.empty();
}

double ShareOf(const TokenRange& range) {
  return (static_cast<double>(range.last - range.first) + 1) * 0x1p-64;
}

// Visits the ranges whose replicas change, of all keyspaces.
void ForEachChange(
    const Ring& ring,
    const std::function<void(const Keyspace& keyspace, const TokenRange& range,
                             const ReplicaSet& before,
                             const ReplicaSet& after)>& visit) {
  if (ring.other() == nullptr) return;
  for (const Keyspace& keyspace : ring.spec().keyspaces) {
    ForEachRange(ring, keyspace,
                 [&](const TokenRange& range, const ReplicaSet& before,
                     const ReplicaSet& after) {
                   if (before.nodes != after.nodes || before.w != after.w) {
                     visit(keyspace, range, before, after);
                   }
                 });
  }
}

}  // namespace

void ForEachRange(
    const Ring& ring, const Keyspace& keyspace,
    const std::function<void(const TokenRange& range, const ReplicaSet& before,
                             const ReplicaSet& after)>& visit) {
  const Ring* before = &ring;
  const Ring* after = &ring;
  if (ring.other() != nullptr) {
    const bool switched =
        ring.spec().operation->phase == TopologyPhase::kSwitch;
    (switched ? before : after) = ring.other();
  }
  SegmentWalk old_walk(*before, keyspace);
  SegmentWalk new_walk(*after, keyspace);
  TokenRange range;
  while (true) {
    range.last = std::min(old_walk.last(), new_walk.last());
    visit(range, old_walk.set(), new_walk.set());
    if (range.last == kLastToken) return;
    if (old_walk.last() == range.last) old_walk.Next();
    if (new_walk.last() == range.last) new_walk.Next();
    range.first = range.last + 1;
  }
}

bool IsTakenForDead(const Ring& ring, NodeNumber node) {
  return ring.spec().operation.has_value() &&
         ring.spec().operation->GoesOnWithout(node);
}

std::vector<Transfer> TransfersOf(const Ring& ring, NodeNumber node) {
  std::vector<Transfer> transfers;
  if (ring.other() == nullptr) return transfers;
  for (const Keyspace& keyspace : ring.spec().keyspaces) {
    ForEachRange(ring, keyspace,
                 [&](const TokenRange& range, const ReplicaSet& before,
                     const ReplicaSet& after) {
                   Transfer transfer;
                   transfer.keyspace = keyspace.id;
                   transfer.range = range;
                   if (!TransferOf(ring, node, before, after, transfer)) return;
                   if (!transfers.empty()) {
                     Transfer& last = transfers.back();
                     if (last.keyspace == transfer.keyspace &&
                         last.range.last + 1 == range.first &&
                         last.sources == transfer.sources &&
                         last.sources_needed == transfer.sources_needed &&
                         last.gains == transfer.gains) {
                       last.range.last = range.last;
                       return;
                     }
                   }
                   transfers.push_back(std::move(transfer));
                 });
  }
  return transfers;
}

std::vector<NodeNumber> ReceiversOf(const Ring& ring) {
  std::set<NodeNumber> receivers;
  ForEachChange(ring, [&](const Keyspace&, const TokenRange&,
                          const ReplicaSet& before, const ReplicaSet& after) {
    for (NodeNumber node : after.nodes) {
      Transfer transfer;
      if (receivers.count(node) == 0 &&
          TransferOf(ring, node, before, after, transfer)) {
        receivers.insert(node);
      }
    }
  });
  return {receivers.begin(), receivers.end()};
}

std::vector<Move> MovesOf(const Ring& ring) {
  struct Sum {
    uint64_t ranges = 0;
    double share = 0;  // of the token space
  };
  std::map<std::pair<NodeNumber, NodeNumber>, Sum> sums;  // receiver, sender
  std::map<NodeNumber, double> held;
  if (ring.other() == nullptr) return {};
  for (const Keyspace& keyspace : ring.spec().keyspaces) {
    ForEachRange(ring, keyspace,
                 [&](const TokenRange& range, const ReplicaSet& before,
                     const ReplicaSet&) {
                   const double share = ShareOf(range);
                   for (NodeNumber node : before.nodes) held[node] += share;
                 });
  }
  ForEachChange(ring, [&](const Keyspace&, const TokenRange& range,
                          const ReplicaSet& before, const ReplicaSet& after) {
    for (NodeNumber node : after.nodes) {
      Transfer transfer;
      if (!TransferOf(ring, node, before, after, transfer)) continue;
      for (NodeNumber source : transfer.sources) {
        Sum& sum = sums[{node, source}];
        ++sum.ranges;
        // Otherwise the two compare, and move what differs.
        if (transfer.gains) sum.share += ShareOf(range);
      }
    }
  });
  std::vector<Move> moves;
  for (const auto& [nodes, sum] : sums) {
    const double all = held[nodes.second];
    moves.push_back(
        {nodes.second, nodes.first, sum.ranges, all > 0 ? sum.share / all : 0});
  }
  return moves;
}

std::vector<Shortage> ShortagesOf(const Ring& ring) {
  std::map<KeyspaceId, Shortage> shortages;
  ForEachChange(ring, [&](const Keyspace& keyspace, const TokenRange& range,
                          const ReplicaSet& before, const ReplicaSet&) {
    std::vector<NodeNumber> dead;
    for (NodeNumber node : before.nodes) {
      if (IsTakenForDead(ring, node)) dead.push_back(node);
    }
    const uint32_t living =
        static_cast<uint32_t>(before.nodes.size() - dead.size());
    const uint32_t needed = before.n - before.w + 1;
    if (dead.empty() || living >= needed) return;
    const auto [found, added] = shortages.try_emplace(keyspace.id);
    Shortage& shortage = found->second;
    shortage.keyspace = keyspace.id;
    shortage.needed = needed;
    shortage.living = added ? living : std::min(shortage.living, living);
    shortage.share += ShareOf(range);
    if (living == 0) shortage.share_gone += ShareOf(range);
    for (NodeNumber node : dead) {
      if (!absl::c_linear_search(shortage.dead, node)) {
        shortage.dead.push_back(node);
      }
    }
  });
  std::vector<Shortage> sorted;
  for (auto& [keyspace, shortage] : shortages) {
    std::sort(shortage.dead.begin(), shortage.dead.end());
    sorted.push_back(std::move(shortage));
  }
  return sorted;
}

bool BarrierReached(const Ring& ring,
                    const std::function<bool(NodeNumber)>& acknowledged) {
  const auto enough = [&](const ReplicaSet& set) {
    uint32_t count = 0;
    for (NodeNumber node : set.nodes) {
      if (IsTakenForDead(ring, node) || acknowledged(node)) ++count;
    }
    const uint32_t needed =
        Planted("barrier-too-small")
            ? 1
            : std::max(set.n - set.r + 1, set.n - set.w + 1);
    return count >= needed;
  };
  bool reached = true;
  for (const Keyspace& keyspace : ring.spec().keyspaces) {
    ForEachRange(ring, keyspace,
                 [&](const TokenRange&, const ReplicaSet& before,
                     const ReplicaSet& after) {
                   reached = reached && enough(before) && enough(after);
                 });
  }
  return reached;
}

}  // namespace ringkv
