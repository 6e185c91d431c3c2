// What Control tells operators: from what it knows, with the age of it.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "membership/control/control_impl.h"
#include "membership/epochs/voters.h"
#include "membership/ring/placement.h"

namespace ringkv {
namespace {

constexpr absl::Duration kHintsReportOld = absl::Seconds(10);

uint64_t Millis(absl::Duration span) {
  return static_cast<uint64_t>(
      std::max<int64_t>(0, absl::ToInt64Milliseconds(span)));
}

template <class Hints>
void SumHints(const Hints& hints, NodeStatus& status) {
  for (const auto& entry : hints) {
    status.hints += entry.hints;
    status.hint_bytes += entry.bytes;
  }
}

}  // namespace

double Control::Impl::OwnershipOf(NodeNumber number) {
  if (ring_ == nullptr) return 0;
  if (ownership_of_ != ring_) {
    ownership_of_ = ring_;
    ownership_.clear();
    const std::vector<Keyspace>& keyspaces = ring_->spec().keyspaces;
    const PlacementReport report =
        Inspect(*ring_, keyspaces.empty() ? 3 : keyspaces.front().n);
    double sum = 0;
    for (const PlacementReport::Node& node : report.nodes) {
      sum += node.replicated_share;
    }
    for (const PlacementReport::Node& node : report.nodes) {
      ownership_[node.number] = sum > 0 ? node.replicated_share / sum : 0;
    }
  }
  const auto found = ownership_.find(number);
  return found == ownership_.end() ? 0 : found->second;
}

NodeStatus Control::Impl::OwnStatus() const {
  NodeStatus status;
  status.number = number_;
  status.id = id_;
  status.name = options_.name;
  status.state = draining_          ? NodeState::kDraining
                 : ring_ == nullptr ? NodeState::kStandby
                                    : NodeState::kAlive;
  status.client_address = options_.client_address;
  status.peer_address = options_.peer_address;
  status.location = options_.location;
  status.weight = options_.weight;
  status.incarnation = incarnation_;
  status.ring_epoch = adopted_epoch_;
  status.disk_bytes = load_.disk_bytes;
  status.read_only = load_.read_only;
  status.keys = load_.keys;
  status.in_flight = load_.in_flight;
  SumHints(load_.hints, status);
  status.version = options_.version;
  status.feature_level_max = options_.feature_level_max;
  return status;
}

NodeStatus Control::Impl::StatusOf(const Peer& peer) const {
  NodeStatus status;
  status.id = peer.id;
  status.peer_address = peer.addresses.front();
  if (const Member* member =
          ring_ == nullptr ? nullptr : ring_->FindMember(peer.id);
      member != nullptr) {
    status.number = member->number;
    status.name = member->name;
    status.client_address = member->client_address;
    status.location = member->location;
    status.weight = member->weight;
  }
  if (peer.facts.has_value()) {
    const NodeFacts& facts = *peer.facts;
    status.name = facts.name;
    status.client_address = facts.client_address;
    status.peer_address = facts.peer_address;
    status.incarnation = facts.incarnation;
    status.version = facts.version;
    status.feature_level_max = facts.feature_level_max;
    if (status.number == kNoNode) {
      status.location = facts.location;
      status.weight = facts.weight;
    }
  }
  status.age_ms =
      Millis(time_.now - peer.last_heard.value_or(peer.known_since));
  if (peer.beat.has_value()) {
    const Heartbeat& beat = *peer.beat;
    status.ring_epoch = beat.adopted_epoch;
    status.disk_bytes = beat.load.disk_bytes;
    status.read_only = beat.load.read_only;
    status.keys = beat.load.keys;
    status.in_flight = beat.load.in_flight;
    SumHints(beat.load.hints, status);
    status.clock_offset_ms = absl::ToInt64Milliseconds(
        peer.clock.Offset().value_or(absl::ZeroDuration()));
  }
  status.flaps = peer.flaps;
  const Gossip::Member* const member = gossip_.Find(peer.id);
  if (member != nullptr && peer.beat.has_value() &&
      member->profile.serial > 0 && member->profile_at > peer.last_beat) {
    // Others have told what is newer than its last heartbeat.
    status.disk_bytes = member->profile.disk_bytes;
    status.in_flight = member->profile.in_flight;
    status.read_only = member->profile.read_only;
  }
  if (!peer.last_heard.has_value()) {
    status.state = NodeState::kUnknown;
  } else if (IsHeard(peer) && peer.beat->draining) {
    status.state = NodeState::kDraining;
  } else if (!peer.alive) {
    status.state = NodeState::kDown;
  } else {
    status.state =
        status.number == kNoNode ? NodeState::kStandby : NodeState::kAlive;
  }
  return status;
}

AdminAnswer Control::Impl::StatusNow() {
  StatusAnswer answer;
  answer.number = number_;
  answer.id = id_;
  answer.name = options_.name;
  if (ring_ != nullptr) {
    answer.cluster_id = ring_->spec().cluster_id;
    answer.ring_epoch = ring_->epoch();
    answer.feature_level = ring_->spec().feature_level;
    for (const Member& member : ring_->spec().members) {
      const Peer* const peer = member.id == id_ ? nullptr : FindPeer(member.id);
      NodeStatus& status = answer.nodes.emplace_back(
          peer == nullptr ? OwnStatus() : StatusOf(*peer));
      status.ownership = OwnershipOf(member.number);
    }
  } else {
    answer.nodes.push_back(OwnStatus());
  }
  std::vector<NodeStatus> standby;
  for (const auto& [id, peer] : peers_) {
    if (!IsMember(id) && peer.last_heard.has_value() && !KnowsDeparted(peer)) {
      standby.push_back(StatusOf(peer));
    }
  }
  std::sort(standby.begin(), standby.end(),
            [](const NodeStatus& a, const NodeStatus& b) {
              return std::tie(a.name, a.id) < std::tie(b.name, b.id);
            });
  for (NodeStatus& status : standby) answer.nodes.push_back(std::move(status));
  answer.warnings = Warnings();
  return {absl::OkStatus(), std::move(answer)};
}

std::vector<std::string> Control::Impl::Warnings() const {
  std::vector<std::string> warnings;
  const auto warn = [&](auto&&... parts) {
    warnings.push_back(absl::StrCat(parts...));
  };
  if (draining_) warn("this node is draining");
  if (!clock_ok_) {
    warn("the clock of this node is more than ",
         absl::FormatDuration(options_.max_clock_drift),
         " ahead of its peers': it coordinates no writes");
  }
  if (pledge_.has_value() && !init_.has_value()) warn(PledgedText());

  size_t reached = 1;
  std::map<std::string, int> names = {{options_.name, 1}};
  for (const auto& [id, peer] : peers_) {
    const std::string called = Called(peer);
    if (IsMember(id)) {
      if (!peer.last_heard.has_value()) {
        warn(called, " has not been heard since this node started ",
             absl::FormatDuration(
                 absl::Trunc(time_.now - started_, absl::Seconds(1))),
             " ago");
      } else if (!peer.alive && !(IsHeard(peer) && peer.beat->draining)) {
        warn(called, " is down; last heard ",
             absl::FormatDuration(
                 absl::Trunc(time_.now - *peer.last_heard, absl::Seconds(1))),
             " ago",
             IsHeard(peer) && !peer.beat->hears_you
                 ? "; it is heard, but does not hear this node"
             : IsVouchedFor(peer) ? "; others have not missed it so far"
                                  : absl::StrCat("; ", GossipAgainst(peer)),
             "; from here, stopped and cut off look the same");
      } else {
        ++reached;
      }
    }
    if (!IsHeard(peer)) continue;
    ++names[peer.facts->name];
    if (IsMember(id)) {
      if (peer.beat->draining) warn(called, " is draining");
      if (peer.beat->adopted_epoch != adopted_epoch_) {
        warn(called, " is at ring epoch ", peer.beat->adopted_epoch,
             ", this node at ", adopted_epoch_);
      }
      if (peer.facts->version != options_.version) {
        warn(called, " runs version ", peer.facts->version, ", this node ",
             options_.version);
      }
    }
    const absl::Duration offset =
        peer.clock.Offset().value_or(absl::ZeroDuration());
    if (absl::AbsDuration(offset) >= options_.max_clock_drift / 5) {
      warn("the clock of ", called, " is ",
           absl::FormatDuration(
               absl::Trunc(absl::AbsDuration(offset), absl::Milliseconds(1))),
           offset > absl::ZeroDuration() ? " ahead of" : " behind",
           " this node's");
    }
  }
  if (gossip_.health_score() >= LocalHealth::kWorst / 2) {
    warn(
        "this node misses many answers, or is asked whether it lives: it may "
        "be "
        "overloaded or badly connected (health score ",
        gossip_.health_score(), " of ", LocalHealth::kWorst,
        ", 0 is well), and is slow to call others dead");
  }
  for (const auto& [name, count] : names) {
    if (count > 1) warn(count, " nodes are named \"", name, "\"");
  }
  if (ring_ == nullptr) return warnings;

  const RingSpec& spec = ring_->spec();
  if (reached < MajorityOf(spec.members.size())) {
    warn("this node reaches ", reached, " of ", spec.members.size(),
         " members, itself counted: it may be cut off, and what it says of the "
         "others may be old");
  }
  std::set<std::pair<std::string, std::string>> racks;
  for (const Member& member : spec.members) {
    racks.insert({member.location.zone, member.location.rack});
  }
  for (const Keyspace& keyspace : spec.keyspaces) {
    if (spec.members.size() < keyspace.n) {
      warn("keyspace \"", keyspace.name, "\" wants N=", keyspace.n,
           ", and the ring has ", spec.members.size(),
           spec.members.size() == 1 ? " node" : " nodes");
    } else if (racks.size() > 1 && racks.size() < keyspace.n) {
      warn("keyspace \"", keyspace.name, "\" wants N=", keyspace.n,
           ", and the ring has ", racks.size(),
           " racks: some replicas share a rack");
    }
  }
  return warnings;
}

AdminAnswer Control::Impl::HintsNow() const {
  HintsAnswer answer;
  const auto add = [&](NodeNumber holder, NodeNumber target, uint64_t hints,
                       uint64_t bytes, uint64_t oldest_ms, uint64_t refused,
                       double rate) {
    if (hints == 0 && refused == 0 && rate == 0) return;
    answer.backlogs.push_back(
        {holder, target, hints, bytes, oldest_ms, refused, rate});
  };
  if (ring_ == nullptr) {
    return {absl::FailedPreconditionError(
                "this node is in no ring yet, so it holds no hints"),
            {}};
  }
  for (const Member& member : ring_->spec().members) {
    if (member.id == id_) {
      if (!load_at_.has_value() || time_.now - *load_at_ > kHintsReportOld) {
        answer.unheard.push_back(number_);
      }
      for (const LoadReported::Backlog& backlog : load_.hints) {
        const uint64_t oldest =
            backlog.oldest_ms == 0
                ? 0
                : static_cast<uint64_t>(std::max<int64_t>(
                      0, time_.wall.millis() - backlog.oldest_ms));
        add(number_, backlog.target, backlog.hints, backlog.bytes, oldest,
            backlog.refused, own_rates_.Rate(backlog.target));
      }
      continue;
    }
    const auto found = peers_.find(member.id);
    if (found == peers_.end() || !found->second.beat.has_value() ||
        time_.now - found->second.last_beat > kHintsReportOld) {
      answer.unheard.push_back(member.number);
    }
    if (found == peers_.end() || !found->second.beat.has_value()) continue;
    const Peer& peer = found->second;
    for (const HintLoad& hints : peer.beat->load.hints) {
      add(member.number, hints.target, hints.hints, hints.bytes,
          hints.oldest_age_ms + Millis(time_.now - peer.last_beat),
          hints.refused, peer.rates.Rate(hints.target));
    }
  }
  std::sort(answer.backlogs.begin(), answer.backlogs.end(),
            [](const HintBacklogStatus& a, const HintBacklogStatus& b) {
              return std::tie(a.holder, a.target) <
                     std::tie(b.holder, b.target);
            });
  return {absl::OkStatus(), std::move(answer)};
}

}  // namespace ringkv
