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

// What `node` must get of one range; false: nothing.
bool TransferOf(const Ring& ring, NodeNumber node, const ReplicaSet& before,
                const ReplicaSet& after, Transfer& transfer) {
  if (!absl::c_linear_search(after.nodes, node)) return false;
  const std::vector<NodeNumber> gainers = Without(after.nodes, before.nodes);
  const std::vector<NodeNumber> losers = Without(before.nodes, after.nodes);
  transfer.sources.clear();
  const auto at = std::find(gainers.begin(), gainers.end(), node);
  if (at != gainers.end()) {
    transfer.gains = true;
    transfer.sources_needed = 1;
    const size_t index = static_cast<size_t>(at - gainers.begin());
    if (Planted("stream-from-any") && !before.nodes.empty()) {
      transfer.sources.push_back(before.nodes.front());
    } else if (index < losers.size() && !IsTakenForDead(ring, losers[index])) {
      transfer.sources.push_back(losers[index]);
    } else {
      for (NodeNumber old : before.nodes) {
        if (!IsTakenForDead(ring, old)) transfer.sources.push_back(old);
      }
      std::sort(transfer.sources.begin(), transfer.sources.end());
      // What only those who are dead had acknowledged is gone with them.
      transfer.sources_needed =
          std::min(before.n - before.w + 1,
                   static_cast<uint32_t>(transfer.sources.size()));
    }
  }
  // Losers beyond the pairs go to everybody, whoever gains.
  for (size_t i = gainers.size(); i < losers.size(); ++i) {
    if (IsTakenForDead(ring, losers[i])) continue;
    if (at == gainers.end()) transfer.gains = false;
    if (!absl::c_linear_search(transfer.sources, losers[i])) {
      transfer.sources.push_back(losers[i]);
    }
    transfer.sources_needed = static_cast<uint32_t>(transfer.sources.size());
  }
  return !transfer.sources.empty();
}

double ShareOf(const TokenRange& range) {
  return (static_cast<double>(range.last - range.first) + 1) * 0x1p-64;
}

// Visits the ranges whose replicas change, of all keyspaces.
void ForEachChange(
    const Ring& ring,
    const std::function<void(const TokenRange& range, const ReplicaSet& before,
                             const ReplicaSet& after)>& visit) {
  if (ring.other() == nullptr) return;
  for (const Keyspace& keyspace : ring.spec().keyspaces) {
    ForEachRange(ring, keyspace,
                 [&](const TokenRange& range, const ReplicaSet& before,
                     const ReplicaSet& after) {
                   if (before.nodes != after.nodes) visit(range, before, after);
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
  ForEachChange(ring, [&](const TokenRange&, const ReplicaSet& before,
                          const ReplicaSet& after) {
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
  ForEachChange(ring, [&](const TokenRange& range, const ReplicaSet& before,
                          const ReplicaSet& after) {
    for (NodeNumber node : after.nodes) {
      Transfer transfer;
      if (!TransferOf(ring, node, before, after, transfer)) continue;
      for (NodeNumber source : transfer.sources) {
        Sum& sum = sums[{node, source}];
        ++sum.ranges;
        sum.share += ShareOf(range);
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
