#include "membership/gossip/gossip.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/mark.h"

namespace ringkv {
namespace {

// Pings that are sent for others at one time.
constexpr size_t kRelaysMax = 256;
// A direct way counts as broken after so many pings in a row that others could
// get answered, and this node not; a single loss is none.
constexpr int kMissedMax = 3;
// Probes that the accusations of one full exchange may cause.
constexpr size_t kChecksMax = 8;

}  // namespace

Gossip::Gossip(GossipOptions options, NodeId id, uint64_t incarnation,
               Random& random)
    : options_(options), id_(id), random_(random) {
  RINGKV_CHECK(!id_.IsNone());
  RINGKV_CHECK(options_.probe_interval > absl::ZeroDuration());
  RINGKV_CHECK(options_.ack_timeout > absl::ZeroDuration());
  RINGKV_CHECK(options_.verdict_timeout > options_.ack_timeout);
  RINGKV_CHECK(options_.exchange_interval > absl::ZeroDuration());
  version_.incarnation = incarnation;
}

void Gossip::SetSelf(NodeProfile profile) {
  profile.serial = self_.serial;
  if (profile == self_) return;
  ++profile.serial;
  self_ = std::move(profile);
  newest_epoch_ = std::max(newest_epoch_, self_.ring_epoch);
}

const Gossip::Member* Gossip::Find(const NodeId& id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

// --- Members ---

void Gossip::Met(const NodeId& id, uint64_t incarnation, NodeProfile profile,
                 Instant now, GossipEffects& effects) {
  RINGKV_CHECK(id != id_);
  Notice(now);
  const auto [found, added] = members_.try_emplace(id);
  Member& member = found->second;
  const NodeVersion version{incarnation, 0};
  if (added) {
    member.version = version;
    member.since = now;
    member.profile = std::move(profile);
    member.profile_at = now;
    // A random place, so that not all probe a newcomer at the same time.
    const size_t place = random_.Uniform(order_.size() + 1);
    order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(place), id);
    if (place < next_in_order_) ++next_in_order_;
    queue_.Put(UpdateOf(id, member, /*with_profile=*/true));
    if (members_.size() == 1) {
      next_probe_ = now + Jittered(options_.probe_interval);
      next_exchange_ = now + Jittered(options_.exchange_interval);
    }
  } else if (version > member.version) {
    BecomeAlive(id, member, version, now, effects);
    member.profile = std::move(profile);
    member.profile_at = now;
    queue_.Put(UpdateOf(id, member, /*with_profile=*/true));
  }
  member.reachable = true;
  Heard(id, now, effects);
}

void Gossip::SetReachable(const NodeId& id, bool reachable) {
  const auto found = members_.find(id);
  if (found != members_.end()) found->second.reachable = reachable;
}

void Gossip::Heard(const NodeId& id, Instant now, GossipEffects& effects) {
  Notice(now);
  const auto found = members_.find(id);
  if (found == members_.end()) return Rest(now);
  Member& member = found->second;
  member.direct = now;
  if (member.state != Liveness::kAlive && member.next_accusation <= now) {
    // It does not know yet what is said of it.
    member.next_accusation = now + options_.probe_interval;
    Send(id, GossipPing{++sequence_, UpdatesFor(id)}, effects);
  }
  PingAgain(id, now, effects);
  Rest(now);
}

bool Gossip::IsProbed(const NodeId& id) const {
  return std::any_of(probes_.begin(), probes_.end(), [&](const auto& entry) {
    return entry.second.target == id && !entry.second.link_only;
  });
}

void Gossip::PingAgain(const NodeId& id, Instant now, GossipEffects& effects) {
  // Its answer may be lost, or the way was cut until now; and the verdict of a
  // node that doubts itself is far off. That it speaks does not show that it
  // hears, but it is worth another ping.
  for (auto& [sequence, probe] : probes_) {
    if (probe.target != id || now - probe.pinged < options_.ack_timeout) {
      continue;
    }
    probe.pinged = now;
    Send(id, GossipPing{sequence, UpdatesFor(id)}, effects);
  }
}

void Gossip::Forget(const NodeId& id) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  if (found->second.state == Liveness::kDead) --dead_;
  members_.erase(found);
  suspects_.erase(id);
  outdated_.erase(id);
  doubted_.erase(id);
  queue_.Erase(id);
  const auto place = std::find(order_.begin(), order_.end(), id);
  RINGKV_CHECK(place != order_.end());
  if (static_cast<size_t>(place - order_.begin()) < next_in_order_) {
    --next_in_order_;
  }
  order_.erase(place);
  for (auto it = probes_.begin(); it != probes_.end();) {
    it = it->second.target == id ? probes_.erase(it) : std::next(it);
  }
  for (auto it = relays_.begin(); it != relays_.end();) {
    it = it->second.target == id || it->second.asker == id ? relays_.erase(it)
                                                           : std::next(it);
  }
  if (members_.empty()) {
    next_probe_ = Instant::Infinite();
    next_exchange_ = Instant::Infinite();
  }
  Rest(now_);
}

// --- Time ---

void Gossip::Notice(Instant now) {
  RINGKV_CHECK(now >= now_);
  if (next_timer_ != Instant::Infinite() &&
      now - next_timer_ > options_.ack_timeout) {
    // This node stood still: answers may lie unread, and nobody's time to
    // refute has passed meanwhile.
    RINGKV_MARK("gossip-paused-itself");
    const absl::Duration late = now - next_timer_;
    health_.Unwell(1);
    probes_.clear();
    relays_.clear();
    for (const NodeId& id : suspects_) {
      Member& member = members_.at(id);
      member.suspected = member.suspected + late;
      member.deadline = member.deadline + late;
      member.recheck = member.recheck + late;
    }
    if (!members_.empty()) next_probe_ = now + options_.probe_interval;
    next_timer_ = Instant::Infinite();
  }
  now_ = now;
}

void Gossip::Rest(Instant now) {
  now_ = now;
  Instant next = std::min(next_probe_, next_exchange_);
  for (const auto& [sequence, probe] : probes_) {
    next = std::min(
        next, probe.asked || probe.link_only ? probe.ends_at : probe.ask_at);
  }
  for (const auto& [sequence, relay] : relays_) {
    next = std::min(next, relay.nacked ? relay.ends_at : relay.nack_at);
  }
  for (const NodeId& id : suspects_) {
    const Member& member = members_.at(id);
    next = std::min({next, member.deadline, member.recheck});
  }
  next_timer_ = next;
}

Instant Gossip::NextTimer() const {
  // What came due in between two Ticks is done in the next one.
  return std::max(next_timer_, now_ + absl::Nanoseconds(1));
}

void Gossip::Tick(Instant now, GossipEffects& effects) {
  Notice(now);
  TickProbes(now, effects);
  TickRelays(now, effects);
  TickSuspects(now, effects);
  TickExchange(now, effects);
  Rest(now);
}

absl::Duration Gossip::Jittered(absl::Duration span) {
  return span * (0.5 + 0.5 * random_.NextDouble());
}

// --- Probes ---

std::optional<NodeId> Gossip::NextTarget() {
  // Round-robin in a random order that is drawn anew each time: the time until
  // a node is probed has a bound, and different nodes probe different ones.
  for (size_t tried = 0; tried < order_.size(); ++tried) {
    if (next_in_order_ >= order_.size()) {
      next_in_order_ = 0;
      for (size_t i = order_.size(); i > 1; --i) {
        std::swap(order_[i - 1], order_[random_.Uniform(i)]);
      }
    }
    const NodeId id = order_[next_in_order_++];
    // A dead one makes itself known when it is back.
    if (members_.at(id).state != Liveness::kDead) return id;
  }
  return std::nullopt;
}

void Gossip::BeginProbe(const NodeId& target, bool link_only, Instant now,
                        GossipEffects& effects) {
  const Member& member = members_.at(target);
  Probe probe;
  probe.target = target;
  probe.pinged = now;
  probe.link_only = link_only;
  probe.ask_at = now + options_.ack_timeout * health_.multiplier();
  probe.ends_at =
      now + (link_only ? options_.ack_timeout : options_.verdict_timeout) *
                health_.multiplier();
  const uint64_t sequence = ++sequence_;
  ++counters_.probes;
  if (member.reachable) {
    Send(target, GossipPing{sequence, UpdatesFor(target)}, effects);
  } else {
    AskOthers(sequence, probe, effects);
  }
  probes_.emplace(sequence, std::move(probe));
}

template <class Wanted>
std::vector<NodeId> Gossip::Choose(size_t count, const Wanted& wanted) {
  std::vector<NodeId> fit;
  for (const auto& [id, member] : members_) {
    if (wanted(id, member)) fit.push_back(id);
  }
  count = std::min(count, fit.size());
  for (size_t i = 0; i < count; ++i) {
    std::swap(fit[i], fit[i + random_.Uniform(fit.size() - i)]);
  }
  fit.resize(count);
  return fit;
}

void Gossip::AskOthers(uint64_t sequence, Probe& probe,
                       GossipEffects& effects) {
  probe.asked = true;
  ++counters_.probes_indirect;
  for (const NodeId& helper :
       Choose(options_.indirect_probes, [&](const NodeId&id, const Member&m) {
         return m.state == Liveness::kAlive && m.reachable &&
                id != probe.target;
       })) {
    probe.asked_nodes.insert(helper);
    Send(helper, GossipRequest{sequence, probe.target, UpdatesFor(helper)},
         effects);
  }
}

void Gossip::EndProbe(const Probe& probe, Instant now, GossipEffects& effects) {
  Member& member = members_.at(probe.target);
  if (probe.link_only || probe.answered_by_others) {
    MissedLink(probe.target, member, effects);
    return;
  }
  ++counters_.probes_failed;
  // Helpers that did not even say "no answer yet" hint at trouble on this side.
  const int silent = static_cast<int>(probe.asked_nodes.size()) -
                     static_cast<int>(probe.nacks.size());
  health_.Unwell(probe.asked_nodes.empty() ? 1 : silent);
  if (member.state == Liveness::kDead) return;
  RINGKV_MARK("probe-failed");
  Suspect(probe.target, member, member.version, id_, now, effects);
}

void Gossip::MissedLink(const NodeId& id, Member& member,
                        GossipEffects& effects) {
  if (member.state == Liveness::kDead) return;
  doubted_.insert(id);
  if (++member.missed < kMissedMax || member.link_doubted) return;
  RINGKV_MARK("link-doubted");
  member.link_doubted = true;
  effects.events.push_back(GossipLinkDoubted{id, true});
}

void Gossip::LinkWorks(const NodeId& id, Member& member,
                       GossipEffects& effects) {
  member.missed = 0;
  doubted_.erase(id);
  if (!member.link_doubted) return;
  member.link_doubted = false;
  effects.events.push_back(GossipLinkDoubted{id, false});
}

void Gossip::TickProbes(Instant now, GossipEffects& effects) {
  std::vector<Probe> ended;
  for (auto it = probes_.begin(); it != probes_.end();) {
    Probe& probe = it->second;
    if (!probe.asked && !probe.link_only && probe.ask_at <= now) {
      AskOthers(it->first, probe, effects);
    }
    if (probe.ends_at > now) {
      ++it;
      continue;
    }
    ended.push_back(std::move(probe));
    it = probes_.erase(it);
  }
  for (const Probe& probe : ended) EndProbe(probe, now, effects);
  if (next_probe_ > now || members_.empty()) return;
  next_probe_ = now + options_.probe_interval * health_.multiplier();
  if (const std::optional<NodeId> target = NextTarget(); target.has_value()) {
    BeginProbe(*target, /*link_only=*/false, now, effects);
  }
  // One of the doubted links too: what others reach and this node does not must
  // not wait for its turn.
  if (!doubted_.empty()) {
    auto it = doubted_.begin();
    std::advance(it,
                 static_cast<std::ptrdiff_t>(random_.Uniform(doubted_.size())));
    const NodeId id = *it;
    if (members_.at(id).reachable) {
      BeginProbe(id, /*link_only=*/true, now, effects);
    }
  }
}

void Gossip::TickRelays(Instant now, GossipEffects& effects) {
  for (auto it = relays_.begin(); it != relays_.end();) {
    Relay& relay = it->second;
    if (!relay.nacked && relay.nack_at <= now) {
      relay.nacked = true;
      Send(relay.asker, GossipNack{relay.sequence}, effects);
    }
    it = relay.ends_at <= now ? relays_.erase(it) : std::next(it);
  }
}

void Gossip::TickSuspects(Instant now, GossipEffects& effects) {
  std::vector<NodeId> due;
  for (const NodeId& id : suspects_) {
    Member& member = members_.at(id);
    if (member.deadline <= now) {
      due.push_back(id);
    } else if (member.recheck <= now) {
      // Few agree, or it were dead by now: it may have refuted, and this node
      // is the one that did not hear of it. Whoever knows better will say so.
      RINGKV_MARK("suspicion-rechecked");
      member.recheck = Instant::Infinite();
      queue_.Put(UpdateOf(id, member, /*with_profile=*/false));
      BeginProbe(id, /*link_only=*/false, now, effects);
    }
  }
  for (const NodeId& id : due) {
    Member& member = members_.at(id);
    BecomeDead(id, member, member.version, id_, now, effects);
  }
}

void Gossip::TickExchange(Instant now, GossipEffects& effects) {
  if (next_exchange_ > now) return;
  next_exchange_ = now + Jittered(options_.exchange_interval);
  // Also with one that is taken for dead, if there is a way to it: that is how
  // two halves that lost each other meet again.
  for (const NodeId& id :
       Choose(1, [](const NodeId&, const Member& m) { return m.reachable; })) {
    Send(id, GossipExchange{true, AllStates()}, effects);
  }
}

// --- Messages ---

void Gossip::Send(const NodeId& to, GossipMessage message,
                  GossipEffects& effects) {
  ++counters_.messages;
  effects.messages.push_back({to, std::move(message)});
}

GossipUpdate Gossip::OwnUpdate() const {
  return {id_, version_, Liveness::kAlive, NodeId(), self_};
}

GossipUpdate Gossip::UpdateOf(const NodeId& id, const Member& member,
                              bool with_profile) const {
  GossipUpdate update{id, member.version, member.state, NodeId(), {}};
  if (!member.accusers.empty()) update.accuser = *member.accusers.begin();
  if (with_profile || member.state == Liveness::kAlive) {
    update.profile = member.profile;
  }
  return update;
}

std::vector<GossipUpdate> Gossip::UpdatesFor(const NodeId& to) {
  std::vector<GossipUpdate> updates;
  updates.reserve(4);
  updates.push_back(OwnUpdate());
  const auto found = members_.find(to);
  if (found != members_.end() && found->second.state != Liveness::kAlive) {
    // Whoever is accused hears of it first, and can refute (buddy system).
    updates.push_back(UpdateOf(to, found->second, /*with_profile=*/false));
  }
  for (const NodeId& id : outdated_) {
    if (id == to || updates.size() >= kGossipUpdatesMax / 2) continue;
    updates.push_back(UpdateOf(id, members_.at(id), /*with_profile=*/false));
  }
  outdated_.clear();
  if (SeemsCutOff()) {
    // Once it is back, its view of the others must not become theirs.
    RINGKV_MARK("accusations-kept-back");
    queue_.EraseAccusations();
  }
  queue_.Take(kGossipUpdatesMax - updates.size(), Retransmits(living()), to,
              updates);
  return updates;
}

std::vector<GossipUpdate> Gossip::AllStates() const {
  std::vector<GossipUpdate> states;
  states.reserve(members_.size() + 1);
  states.push_back(OwnUpdate());
  for (const auto& [id, member] : members_) {
    if (states.size() >= kGossipStatesMax) break;
    states.push_back(UpdateOf(id, member, /*with_profile=*/true));
  }
  return states;
}

void Gossip::Receive(const NodeId& from, const GossipMessage& message,
                     Instant now, GossipEffects& effects) {
  if (members_.count(from) == 0) return;
  Notice(now);
  outdated_.clear();
  std::visit([&](const auto& body) { Take(from, body, now, effects); },
             message);
  // After the updates: an accusation that they have answered is not sent.
  Heard(from, now, effects);
}

void Gossip::Take(const NodeId& from, const GossipPing& ping, Instant now,
                  GossipEffects& effects) {
  for (const GossipUpdate& update : ping.updates) {
    Learn(from, update, now, effects);
  }
  Send(from, GossipAck{ping.sequence, id_, UpdatesFor(from)}, effects);
}

void Gossip::Take(const NodeId& from, const GossipRequest& request, Instant now,
                  GossipEffects& effects) {
  for (const GossipUpdate& update : request.updates) {
    Learn(from, update, now, effects);
  }
  const auto found = members_.find(request.target);
  const bool can = found != members_.end() && found->second.reachable &&
                   relays_.size() < kRelaysMax;
  if (!can) {
    // It is told at once that its message came.
    RINGKV_MARK("indirect-probe-refused");
    Send(from, GossipNack{request.sequence}, effects);
    return;
  }
  Relay relay;
  relay.asker = from;
  relay.sequence = request.sequence;
  relay.target = request.target;
  // So that a nack is there before the asker's verdict.
  const absl::Duration left = options_.verdict_timeout - options_.ack_timeout;
  relay.nack_at = now + left * 0.5;
  relay.ends_at = now + left * LocalHealth::kWorst;
  const uint64_t sequence = ++sequence_;
  relays_.emplace(sequence, relay);
  Send(request.target, GossipPing{sequence, UpdatesFor(request.target)},
       effects);
}

void Gossip::Take(const NodeId& from, const GossipAck& ack, Instant now,
                  GossipEffects& effects) {
  for (const GossipUpdate& update : ack.updates) {
    Learn(from, update, now, effects);
  }
  const auto relayed = relays_.find(ack.sequence);
  if (relayed != relays_.end() && relayed->second.target == from) {
    const Relay relay = relayed->second;
    relays_.erase(relayed);
    GossipAck answer{relay.sequence, relay.target, UpdatesFor(relay.asker)};
    // What it says of itself may be a refutation that the asker waits for.
    if (!ack.updates.empty() && ack.updates.front().id == from) {
      if (answer.updates.size() >= kGossipUpdatesMax) answer.updates.pop_back();
      answer.updates.push_back(ack.updates.front());
    }
    Send(relay.asker, std::move(answer), effects);
    return;
  }
  const auto found = probes_.find(ack.sequence);
  if (found == probes_.end()) return;
  Probe& probe = found->second;
  if (from == probe.target) {
    health_.Well();
    LinkWorks(from, members_.at(from), effects);
    probes_.erase(found);
  } else if (probe.asked_nodes.count(from) > 0 && ack.target == probe.target) {
    // It lives; whether the direct way works is told by the rest of the time.
    if (!probe.answered_by_others) health_.Well();
    probe.answered_by_others = true;
  }
}

void Gossip::Take(const NodeId& from, const GossipNack& nack, Instant,
                  GossipEffects&) {
  const auto found = probes_.find(nack.sequence);
  if (found == probes_.end()) return;
  if (found->second.asked_nodes.count(from) > 0) {
    found->second.nacks.insert(from);
  }
}

void Gossip::Take(const NodeId& from, const GossipExchange& exchange,
                  Instant now, GossipEffects& effects) {
  size_t checks = 0;
  for (GossipUpdate update : exchange.states) {
    const auto found = members_.find(update.id);
    if (update.state != Liveness::kAlive && found != members_.end() &&
        found->second.state == Liveness::kAlive &&
        update.version == found->second.version) {
      // Old news perhaps, from a side that was cut off: it is not believed, but
      // looked into.
      if (checks < kChecksMax && !IsProbed(update.id)) {
        RINGKV_MARK("old-accusation-checked");
        ++checks;
        BeginProbe(update.id, /*link_only=*/false, now, effects);
      }
      continue;
    }
    if (update.state == Liveness::kDead && update.id != from) {
      // It may still be refuted.
      update.state = Liveness::kSuspect;
      if (update.accuser.IsNone()) update.accuser = from;
    }
    Learn(from, update, now, effects);
  }
  if (exchange.wants_answer) {
    Send(from, GossipExchange{false, AllStates()}, effects);
  }
}

// --- Claims ---

void Gossip::Learn(const NodeId& from, const GossipUpdate& update, Instant now,
                   GossipEffects& effects) {
  if (update.id == id_) return LearnOfSelf(update, effects);
  const auto found = members_.find(update.id);
  if (found == members_.end()) {
    if (update.state == Liveness::kAlive && update.profile.has_value()) {
      effects.events.push_back(GossipHearsay{update.id, from, *update.profile});
    }
    return;
  }
  Member& member = found->second;
  if (update.version < member.version) {
    // Its teller is told with the answer, if it wants one.
    if (update.state != Liveness::kAlive) outdated_.insert(update.id);
    return;
  }
  if (update.version.incarnation > member.version.incarnation &&
      update.profile.has_value() && update.id != from) {
    // It was started anew, perhaps elsewhere.
    effects.events.push_back(GossipHearsay{update.id, from, *update.profile});
  }
  const bool newer = update.version > member.version;
  switch (update.state) {
    case Liveness::kAlive:
      if (newer) {
        BecomeAlive(update.id, member, update.version, now, effects);
      }
      break;
    case Liveness::kSuspect:
      Suspect(update.id, member, update.version, update.accuser, now, effects);
      break;
    case Liveness::kDead:
      BecomeDead(update.id, member, update.version, update.accuser, now,
                 effects);
      break;
  }
  if (update.profile.has_value() && update.version == member.version) {
    LearnProfile(from, update.id, member, *update.profile, now, effects);
  }
  if (newer && update.state == Liveness::kAlive) {
    queue_.Put(UpdateOf(update.id, member, /*with_profile=*/true));
  }
}

void Gossip::TakeVersion(const NodeId& id, Member& member, NodeVersion version,
                         GossipEffects& effects) {
  if (version.incarnation > member.version.incarnation) {
    // Another run, of which nothing is known yet.
    member.profile.serial = 0;
    member.direct.reset();
    LinkWorks(id, member, effects);
  }
  member.version = version;
}

void Gossip::LearnOfSelf(const GossipUpdate& update, GossipEffects& effects) {
  if (update.version.incarnation != version_.incarnation) return;
  if (update.state == Liveness::kAlive ||
      update.version.refutations < version_.refutations) {
    return;
  }
  RINGKV_MARK("suspicion-refuted");
  ++counters_.refutations;
  version_.refutations =
      std::min(update.version.refutations, kRefutationsMax - 1) + 1;
  // That somebody got no answer is a sign of trouble on this side.
  health_.Unwell(1);
  // Every message begins with it.
  effects.events.push_back(GossipRefuted{update.accuser});
}

void Gossip::LearnProfile(const NodeId& from, const NodeId& id, Member& member,
                          const NodeProfile& profile, Instant now,
                          GossipEffects& effects) {
  if (profile.serial < member.profile.serial) return;
  if (profile.serial > member.profile.serial) {
    member.profile = profile;
    member.profile_at = now;
  } else if (from == id) {
    member.profile_at = now;
  }
  if (profile.ring_epoch > newest_epoch_) {
    newest_epoch_ = profile.ring_epoch;
    effects.events.push_back(GossipRingSeen{profile.ring_epoch, from});
  }
}

void Gossip::Change(const NodeId& id, Member& member, Liveness to, Instant now,
                    const NodeId& accuser, GossipEffects& effects) {
  const Liveness before = member.state;
  if (before == Liveness::kSuspect) suspects_.erase(id);
  if (before == Liveness::kDead) --dead_;
  member.state = to;
  member.since = now;
  if (to == Liveness::kSuspect) {
    suspects_.insert(id);
    ++counters_.suspicions;
  }
  if (to == Liveness::kDead) {
    ++dead_;
    ++counters_.deaths;
  }
  if (before == Liveness::kAlive && to != Liveness::kAlive) ++member.flaps;
  effects.events.push_back(GossipStateChanged{id, before, to, accuser});
}

void Gossip::BecomeAlive(const NodeId& id, Member& member, NodeVersion version,
                         Instant now, GossipEffects& effects) {
  RINGKV_CHECK(version > member.version);
  const bool new_run = version.incarnation > member.version.incarnation;
  TakeVersion(id, member, version, effects);
  member.accusers.clear();
  if (member.state != Liveness::kAlive || new_run) {
    Change(id, member, Liveness::kAlive, now, NodeId(), effects);
  }
}

SuspicionOptions Gossip::Options() const {
  SuspicionOptions options;
  options.probe_interval = options_.probe_interval;
  return options;
}

void Gossip::SetDeadline(Member& member) {
  const absl::Duration timeout = SuspicionTimeout(
      Options(), living(), static_cast<int>(member.accusers.size()) - 1);
  member.deadline = member.suspected + timeout;
}

void Gossip::Suspect(const NodeId& id, Member& member, NodeVersion version,
                     const NodeId& accuser, Instant now,
                     GossipEffects& effects) {
  if (version < member.version) return;
  const bool newer = version > member.version;
  if (member.state == Liveness::kDead && !newer) return;
  if (member.state == Liveness::kSuspect && !newer) {
    const size_t wanted =
        static_cast<size_t>(ConfirmationsWanted(living())) + 1;
    if (accuser.IsNone() || member.accusers.size() >= wanted ||
        !member.accusers.insert(accuser).second) {
      return;
    }
    SetDeadline(member);
  } else {
    TakeVersion(id, member, version, effects);
    member.accusers = {accuser.IsNone() ? id_ : accuser};
    member.suspected = now;
    Change(id, member, Liveness::kSuspect, now, accuser, effects);
    SetDeadline(member);
    member.recheck = now + ShortestSuspicion(Options(), living()) * 2;
  }
  GossipUpdate update = UpdateOf(id, member, /*with_profile=*/false);
  update.accuser = accuser;
  queue_.Put(std::move(update));
}

void Gossip::BecomeDead(const NodeId& id, Member& member, NodeVersion version,
                        const NodeId& accuser, Instant now,
                        GossipEffects& effects) {
  if (version < member.version) return;
  if (member.state == Liveness::kDead && version == member.version) return;
  TakeVersion(id, member, version, effects);
  const bool was_dead = member.state == Liveness::kDead;
  member.accusers = {accuser.IsNone() ? id_ : accuser};
  if (!was_dead) {
    Change(id, member, Liveness::kDead, now, accuser, effects);
    LinkWorks(id, member, effects);
  }
  queue_.Put(UpdateOf(id, member, /*with_profile=*/false));
}

void Gossip::CheckInvariants() const {
  size_t dead = 0;
  size_t suspects = 0;
  for (const auto& [id, member] : members_) {
    RINGKV_CHECK(id != id_);
    RINGKV_CHECK(member.version.refutations <= kRefutationsMax);
    dead += member.state == Liveness::kDead ? 1 : 0;
    suspects += member.state == Liveness::kSuspect ? 1 : 0;
    RINGKV_CHECK((member.state == Liveness::kSuspect) ==
                 (suspects_.count(id) > 0));
    RINGKV_CHECK((member.state == Liveness::kAlive) == member.accusers.empty());
    RINGKV_CHECK(!member.link_doubted || doubted_.count(id) > 0);
  }
  RINGKV_CHECK(dead == dead_);
  RINGKV_CHECK(suspects == suspects_.size());
  RINGKV_CHECK(order_.size() == members_.size());
  RINGKV_CHECK(next_in_order_ <= order_.size());
  RINGKV_CHECK(queue_.size() <= members_.size() + 1);
  RINGKV_CHECK(relays_.size() <= kRelaysMax);
  for (const auto& [sequence, probe] : probes_) {
    RINGKV_CHECK(members_.count(probe.target) > 0);
  }
}

}  // namespace ringkv
