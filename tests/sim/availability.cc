#include "tests/sim/availability.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/token.h"

namespace ringkv::sim {
namespace {

// By then nodes that live have found each other again, and those that do not
// are known to be down.
constexpr WorldTime kSettled = 20 * kSecond;
// An operation with less time than this may fail for being slow.
constexpr WorldTime kPatience = 1500 * kMillisecond;

}  // namespace

void Connectivity::Note(WorldTime now, const Network& network,
                        const World& world, bool surely) {
  Snapshot snapshot;
  snapshot.since = now;
  uint64_t crashes = 0;
  for (int from = 0; from < nodes_; ++from) {
    const Node& node = *world.nodes[static_cast<size_t>(from)];
    crashes += node.crashes();
    if (node.up() && !node.gone() && !node.frozen())
      snapshot.up |= 1ull << from;
    if (node.hampered()) snapshot.calm = false;
    uint64_t open = 0;
    for (int to = 0; to < nodes_; ++to) {
      if (to == from || network.Open(from, to)) open |= 1ull << to;
    }
    snapshot.out.push_back(open);
  }
  for (; crashes_seen_ < crashes; ++crashes_seen_) crashes_.push_back(now);
  if (!surely && !snapshots_.empty() && snapshots_.back() == snapshot) return;
  snapshots_.push_back(std::move(snapshot));
}

bool Connectivity::CrashWithin(WorldTime from, WorldTime until) const {
  const auto it = std::lower_bound(crashes_.begin(), crashes_.end(), from);
  return it != crashes_.end() && *it <= until;
}

const Connectivity::Snapshot* Connectivity::During(WorldTime from,
                                                   WorldTime until,
                                                   WorldTime before) const {
  const auto next = std::upper_bound(
      snapshots_.begin(), snapshots_.end(), from,
      [](WorldTime time, const Snapshot& s) { return time < s.since; });
  if (next == snapshots_.begin()) return nullptr;
  if (next != snapshots_.end() && next->since <= until) return nullptr;
  const Snapshot& snapshot = *(next - 1);
  return snapshot.since + before < from ? &snapshot : nullptr;
}

uint64_t Connectivity::AtMost(const Snapshot& snapshot, int node) const {
  uint64_t group = 1ull << node;
  for (bool grows = true; grows;) {
    grows = false;
    for (int a = 0; a < nodes_; ++a) {
      if (((group >> a) & 1) == 0) continue;
      for (int b = 0; b < nodes_; ++b) {
        const bool joined = ((snapshot.out[static_cast<size_t>(a)] >> b) & 1) ||
                            ((snapshot.out[static_cast<size_t>(b)] >> a) & 1);
        if (joined && ((snapshot.up >> b) & 1) && ((group >> b) & 1) == 0) {
          group |= 1ull << b;
          grows = true;
        }
      }
    }
  }
  return group;
}

uint64_t Connectivity::Exactly(const Snapshot& snapshot, int node) const {
  const uint64_t group = AtMost(snapshot, node);
  if ((group & ~snapshot.up) != 0) return 0;
  for (int a = 0; a < nodes_; ++a) {
    if (((group >> a) & 1) == 0) continue;
    if ((snapshot.out[static_cast<size_t>(a)] & group) != group) return 0;
  }
  return group;
}

void CheckAvailability(const Connectivity& connectivity,
                       const RingDuringCallback& ring_during, World& world,
                       const std::vector<Recorded>& recorded,
                       const std::function<bool(const Recorded&)>& rotten,
                       const ComplainCallback& complain) {
  const Plan& plan = world.plan;
  bool clocks_step = false;
  for (const Fault& fault : plan.faults) {
    if (fault.kind == FaultKind::kClockStep) clocks_step = true;
  }
  const bool reliable =
      (plan.network.streams || plan.network.lost_share == 0) &&
      plan.network.held_share == 0 &&
      (plan.network.slow_share == 0 ||
       plan.network.slow_mean <= 50 * kMillisecond);
  // A stand-in may refuse a hint for which it has no room.
  const bool room_for_hints = plan.RoomForHints();
  for (const Recorded& record : recorded) {
    const Operation& operation = record.operation;
    if (record.attempts != 1 || operation.kind == OperationKind::kScan) {
      continue;
    }
    const std::shared_ptr<const Ring> held = ring_during(
        operation.invoked, operation.outcome == Outcome::kOk
                               ? operation.ended
                               : operation.invoked + 2 * plan.workload.timeout);
    if (held == nullptr) continue;
    const Ring& ring = *held;
    const Keyspace& keyspace = *ring.FindKeyspace(
        plan.keyspaces[static_cast<size_t>(record.space)].name);
    const Token token = TokenOf(absl::StrCat("key-", record.key));
    uint64_t replicas = 0;
    for (const NodeNumber number : ring.PreferenceList(keyspace, token)) {
      replicas |=
          1ull
          << world.AtAddress(ring.FindMember(number)->peer_address)->index();
    }
    const auto count = [](uint64_t nodes) {
      return static_cast<uint32_t>(std::popcount(nodes));
    };
    const bool is_write = operation.IsWrite();
    const uint32_t needed = is_write ? operation.acks_needed : record.r;
    const auto name = [&] {
      return absl::StrCat(operation.strict ? "strict " : "sloppy ",
                          is_write ? "write" : "read", " #", operation.id,
                          " at n", record.node);
    };

    if (operation.outcome == Outcome::kOk) {
      const Connectivity::Snapshot* snapshot =
          connectivity.During(operation.invoked, operation.ended, 0);
      if (snapshot == nullptr) continue;
      const uint64_t group = connectivity.AtMost(*snapshot, record.node);
      const uint32_t could = count(operation.strict ? group & replicas : group);
      if (could < needed) {
        complain(is_write ? "P1" : "P5",
                 absl::StrCat(name(), " succeeded with ", needed,
                              " answers, but only ", could,
                              operation.strict ? " replicas" : " nodes",
                              " could be reached"));
      }
      if (!is_write && operation.shown.empty() && !operation.answered_context &&
          (group & replicas) == 0) {
        complain("P1", absl::StrCat(name(),
                                    " answers nothing, but no replica "
                                    "could be reached"));
      }
      continue;
    }
    if (operation.outcome != Outcome::kUnknown || !reliable || clocks_step ||
        plan.workload.timeout < kPatience || rotten(record)) {
      continue;
    }
    const Connectivity::Snapshot* snapshot = connectivity.During(
        operation.invoked, operation.invoked + 2 * plan.workload.timeout,
        kSettled);
    if (snapshot == nullptr || !snapshot->calm) continue;
    const uint64_t group = connectivity.Exactly(*snapshot, record.node);
    if (group == 0) continue;
    // A node that started among too few others answers no reads.
    const bool reads = !is_write || operation.strict;
    if (reads && 2 * count(group) <= ring.spec().members.size()) continue;
    // At strict, a put without a context reads first.
    // A strict read may have to bring its value to as many replicas first as no
    // later strict read can miss.
    const uint32_t must_read =
        !operation.strict ? 0
        : is_write        ? ring.EffectiveR(keyspace)
                   : ring.EffectiveN(keyspace) - ring.EffectiveR(keyspace) + 1;
    const uint32_t available = count(
        operation.strict || !is_write || !room_for_hints ? group & replicas
                                                         : group);
    if (available >= std::max(needed, must_read)) {
      complain("P4",
               absl::StrCat(name(), " failed though ", available,
                            " nodes that count could be reached, needs ",
                            std::max(needed, must_read), ": ", record.message));
    }
  }
}

}  // namespace ringkv::sim
