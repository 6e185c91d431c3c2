// Direct liveness in Control: heartbeats, clocks, and what the shards are told
// of peers.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mark.h"
#include "membership/control/control_impl.h"
#include "membership/control/meta.h"

namespace ringkv {
namespace {

constexpr size_t kSentMax = 16;

std::string Seconds(absl::Duration span) {
  return absl::FormatDuration(absl::Trunc(span, absl::Milliseconds(1)));
}

}  // namespace

bool Control::Impl::IsHeard(const Peer& peer) const {
  return peer.IsUp(LinkKind::kControl) && peer.beat_on_link &&
         time_.now - peer.last_beat < SilenceOf(peer, options_.down_after);
}

absl::Duration Control::Impl::BeatPeriod() const {
  size_t peers = 0;
  for (const auto& [id, peer] : peers_) {
    peers += peer.IsUp(LinkKind::kControl) ? 1 : 0;
  }
  const size_t rounds =
      std::max<size_t>(1, (peers + kBeatsPerRound - 1) / kBeatsPerRound);
  return options_.heartbeat_interval * static_cast<int64_t>(rounds);
}

absl::Duration Control::Impl::SilenceOf(const Peer& peer,
                                        absl::Duration after) const {
  if (!peer.beat.has_value()) return after;
  const Gossip::Member* const member = gossip_.Find(peer.id);
  // Nobody else hears it either: there is nothing to wait for.
  if (member != nullptr && member->state == Liveness::kDead) return after;
  const absl::Duration next = absl::Microseconds(
      std::min(peer.beat->next_micros, kNextHeartbeatMicrosMax));
  return after *
         std::max(1.0, absl::FDivDuration(next, options_.heartbeat_interval));
}

void Control::Impl::Remember(const NodeFacts& facts) {
  Remember(facts.id, facts.incarnation, facts.start_id, facts.hlc_bound);
}

void Control::Impl::Remember(const NodeId& id, uint64_t incarnation,
                             uint64_t start_id, HlcTimestamp bound) {
  SeenPeer& seen = seen_[id];
  const SeenPeer before = seen;
  if (incarnation > seen.incarnation) {
    seen.incarnation = incarnation;
    seen.start_id = start_id;
  }
  seen.hlc_bound = std::max(seen.hlc_bound, bound);
  seen_changed_ = seen_changed_ || seen != before;
}

void Control::Impl::RememberFirst(const Peer& peer, HlcTimestamp bound,
                                  std::function<void()> action) {
  const auto found = seen_.find(peer.id);
  if (peer.beat.has_value() && (seen_changed_ || found == seen_.end() ||
                                found->second.hlc_bound < bound)) {
    Remember(peer.id, peer.beat->incarnation, peer.beat->start_id, bound);
    Write(WriteSeen(seen_));
    seen_changed_ = false;
    seen_written_ = time_.now;
  }
  AfterSync(std::move(action));
}

void Control::Impl::Take(Peer& peer, const Heartbeat& beat) {
  if (beat.start_id != peer.stream(LinkKind::kControl).start_id) return;
  if (peer.beat.has_value() && beat.sequence <= peer.beat->sequence) return;
  if (ring_ != nullptr && !beat.cluster_id.IsNone() &&
      (beat.cluster_id != ring_->spec().cluster_id ||
       !LineageFits(beat.lineage, peer.facts->former_lineages))) {
    // It was standby when the streams were made, and went elsewhere.
    LogRefusal(
        peer.id, HelloOutcome::kForeignCluster,
        absl::StrCat("this node is of cluster ",
                     ring_->spec().cluster_id.ToString(), ", ", Called(peer),
                     " is now of cluster ", beat.cluster_id.ToString()));
    DropLinks(peer);
    return gossip_.Forget(peer.id);
  }
  const bool was_heard = IsHeard(peer);
  for (const auto& [sequence, at] : peer.sent) {
    if (sequence != beat.echo_sequence) continue;
    const absl::Duration round_trip =
        time_.now - at -
        absl::Microseconds(
            std::min<uint64_t>(beat.echo_delay_micros, uint64_t{1} << 40));
    peer.clock.Add(round_trip, WallTime{beat.wall_micros}, time_.wall);
  }
  for (const HintLoad& hints : beat.load.hints) {
    peer.rates.Report(hints.target, hints.delivered, time_.now);
  }
  views_stale_ = true;  // the offset of its clock
  step_stale_ = true;
  peer.beat = beat;
  peer.last_beat = time_.now;
  peer.beat_on_link = true;
  peer.last_heard = time_.now;
  peer.facts->cluster_id = beat.cluster_id;
  peer.facts->lineage = beat.lineage;
  peer.facts->number = beat.number;
  peer.facts->ring_epoch = beat.known_epoch;
  Remember(peer.id, beat.incarnation, beat.start_id, beat.hlc_bound);
  // It learns at once that it is heard, and need not wait for the next round.
  if (!was_heard) SendHeartbeat(peer);
  UpdateLiveness(peer);
  CheckPledge(peer, beat);
  const RingEpoch known =
      std::max(learning_, ring_ == nullptr ? 0 : ring_->epoch());
  if (beat.known_epoch > known) FetchRing(peer);
}

Heartbeat Control::Impl::MakeHeartbeat(const Peer& peer) {
  Heartbeat beat;
  beat.incarnation = incarnation_;
  beat.start_id = start_id_;
  beat.sequence = ++sequence_;
  if (peer.beat.has_value()) {
    beat.echo_sequence = peer.beat->sequence;
    beat.echo_delay_micros = static_cast<uint64_t>(
        absl::ToInt64Microseconds(time_.now - peer.last_beat));
  }
  beat.hears_you = IsHeard(peer);
  beat.next_micros =
      static_cast<uint64_t>(absl::ToInt64Microseconds(BeatPeriod()));
  if (ring_ != nullptr) {
    beat.cluster_id = ring_->spec().cluster_id;
    beat.lineage = ring_->spec().lineage;
    beat.known_epoch = ring_->epoch();
  }
  beat.number = number_;
  beat.adopted_epoch = adopted_epoch_;
  beat.wall_micros = time_.wall.micros;
  beat.hlc = hlc_.Last();
  beat.hlc_bound = bound_;
  beat.draining = draining_;
  if (init_.has_value()) beat.init = init_->init;
  beat.load.in_flight = load_.in_flight;
  beat.load.disk_bytes = load_.disk_bytes;
  beat.load.read_only = load_.read_only;
  beat.load.keys = load_.keys;
  for (const LoadReported::Backlog& backlog : load_.hints) {
    HintLoad& hints = beat.load.hints.emplace_back();
    hints.target = backlog.target;
    hints.hints = backlog.hints;
    hints.bytes = backlog.bytes;
    if (backlog.oldest_ms > 0) {
      hints.oldest_age_ms = static_cast<uint64_t>(
          std::max<int64_t>(0, time_.wall.millis() - backlog.oldest_ms));
    }
    hints.refused = backlog.refused;
    hints.delivered = backlog.delivered;
  }
  if (beat.load.hints.size() > kHintTargetsMax) {
    std::sort(beat.load.hints.begin(), beat.load.hints.end(),
              [](const HintLoad& a, const HintLoad& b) {
                return a.hints != b.hints ? a.hints > b.hints
                                          : a.target < b.target;
              });
    beat.load.hints.resize(kHintTargetsMax);
  }
  beat.load.epoch = load_epoch_;
  const TopologyOperation* const running = Running();
  if (running != nullptr && transfers_.operation == running->id) {
    beat.transfers = transfers_;
  }
  beat.silent = Silent();
  return beat;
}

void Control::Impl::Send(Peer& peer, ControlMessage message) {
  if (!peer.IsUp(LinkKind::kControl)) return;
  out_->messages.push_back(
      {peer.stream(LinkKind::kControl).link, std::move(message)});
}

void Control::Impl::SendHeartbeat(Peer& peer) {
  if (!peer.IsUp(LinkKind::kControl)) return;
  Heartbeat beat = MakeHeartbeat(peer);
  ++beats_sent_;
  peer.sent.push_back({beat.sequence, time_.now});
  if (peer.sent.size() > kSentMax) peer.sent.pop_front();
  Send(peer, std::move(beat));
}

void Control::Impl::BeatMembers() {
  for (auto& [id, peer] : peers_) {
    if (IsMember(id)) SendHeartbeat(peer);
  }
}

void Control::Impl::UpdateLiveness(Peer& peer) {
  const bool heard = IsHeard(peer);
  const bool draining = heard && peer.beat->draining;
  const bool well = heard && peer.beat->hears_you &&
                    peer.IsUp(LinkKind::kData) && !draining &&
                    IsVouchedFor(peer);
  if (!well) {
    peer.well_since.reset();
    if (!peer.alive) return;
    peer.alive = false;
    views_stale_ = true;
    peer.down_since = time_.now;
    if (draining) {
      Log(LogLevel::kInfo, absl::StrCat(Called(peer), " is draining"));
      return;
    }
    if (heard && !peer.beat->hears_you)
      RINGKV_MARK("peer-does-not-hear-this-node");
    peer.damping.WentDown(time_.now);
    ++peer.flaps;
    const std::string why =
        !peer.IsUp(LinkKind::kControl) ? "its stream ended"
        : !heard                       ? "it is silent"
        : !peer.beat->hears_you        ? "it does not hear this node"
        : !peer.IsUp(LinkKind::kData)  ? "its data stream ended"
                                       : GossipAgainst(peer);
    Log(LogLevel::kWarning, absl::StrCat(Called(peer), " is down: ", why));
    return;
  }
  if (!peer.well_since.has_value()) peer.well_since = time_.now;
  if (peer.alive ||
      time_.now - *peer.well_since <
          peer.damping.Hold(time_.now, options_.heartbeat_interval)) {
    if (!peer.alive && peer.down_since.has_value())
      RINGKV_MARK("flapping-peer-held-back");
    return;
  }
  peer.alive = true;
  views_stale_ = true;
  Log(LogLevel::kInfo,
      absl::StrCat(Called(peer), " is alive",
                   peer.down_since.has_value()
                       ? absl::StrCat(" again after ",
                                      Seconds(time_.now - *peer.down_since))
                       : ""));
  peer.down_since.reset();
}

void Control::Impl::TickHeartbeats() {
  const Instant now = time_.now;
  if (next_heartbeat_ <= now) {
    for (auto& [id, peer] : peers_) {
      if (peer.next_beat > now) continue;
      SendHeartbeat(peer);
      peer.next_beat = now + BeatPeriod();
    }
    next_heartbeat_ = now + options_.heartbeat_interval;
  }
  for (auto& [id, peer] : peers_) {
    const Stream& control = peer.stream(LinkKind::kControl);
    const Stream& data = peer.stream(LinkKind::kData);
    if (control.state == Stream::State::kUp) {
      const Instant last = peer.beat_on_link
                               ? std::max(control.since, peer.last_beat)
                               : control.since;
      if (now - last >= SilenceOf(peer, options_.close_after)) {
        RINGKV_MARK("silent-streams-closed");
        Log(LogLevel::kInfo,
            absl::StrCat("closing the streams to ", Called(peer),
                         ": silent for ", Seconds(now - last)));
        DropLinks(peer);
      }
    } else if (data.state == Stream::State::kUp &&
               now - data.since >= options_.close_after &&
               now - control.since >= options_.close_after) {
      RINGKV_MARK("data-stream-without-control");
      DropStream(peer, LinkKind::kData, /*close=*/true);
    }
    UpdateLiveness(peer);
  }
}

void Control::Impl::WantHeartbeats(Instant& next) const {
  next = std::min({next, next_heartbeat_, gossip_.NextTimer()});
  for (const auto& [id, peer] : peers_) {
    const Stream& control = peer.stream(LinkKind::kControl);
    if (control.state == Stream::State::kUp) {
      const Instant last = peer.beat_on_link
                               ? std::max(control.since, peer.last_beat)
                               : control.since;
      next = std::min(next, last + SilenceOf(peer, options_.close_after));
    } else if (peer.IsUp(LinkKind::kData)) {
      next = std::min(
          next, std::max(control.since, peer.stream(LinkKind::kData).since) +
                    options_.close_after);
    }
    if (IsHeard(peer)) {
      next =
          std::min(next, peer.last_beat + SilenceOf(peer, options_.down_after));
    }
    if (peer.well_since.has_value() && !peer.alive) {
      next = std::min(
          next, *peer.well_since +
                    peer.damping.Hold(time_.now, options_.heartbeat_interval));
    }
  }
}

bool Control::Impl::ClockIsAhead() const {
  size_t known = 0;
  size_t ahead = 0;
  for (const auto& [id, peer] : peers_) {
    if (!IsMember(id) || !IsHeard(peer)) continue;
    const std::optional<absl::Duration> offset = peer.clock.Offset();
    if (!offset.has_value()) continue;
    ++known;
    if (-*offset > options_.max_clock_drift) ++ahead;
  }
  return ahead * 2 > known;
}

void Control::Impl::UpdateViews() {
  if (!views_stale_) return;
  views_stale_ = false;
  const bool clock_ok = !ClockIsAhead();
  const bool clock_changed = clock_ok != clock_ok_;
  if (clock_changed) {
    clock_ok_ = clock_ok;
    if (clock_ok) {
      Log(LogLevel::kInfo, "the clock of this node is near its peers' again");
    } else {
      RINGKV_MARK("clock-ahead-of-peers");
      Log(LogLevel::kError,
          absl::StrCat("the clock of this node is more than ",
                       Seconds(options_.max_clock_drift),
                       " ahead of its peers': it coordinates no writes until "
                       "that is mended"));
    }
  }
  if (ring_ == nullptr) return;
  const bool checked = MayVote();
  const bool checked_changed = checked != checked_;
  if (checked_changed) {
    checked_ = checked;
    Log(LogLevel::kInfo,
        "a majority of the members is up and has checked the disk of this "
        "node: it votes, and its reads count");
  }
  PeerView view;
  AddressView addresses;
  for (const Member& member : ring_->spec().members) {
    PeerAddresses& where = addresses[member.number];
    where = {member.client_address, member.peer_address};
    if (member.id == id_) {
      where = {options_.client_address, options_.peer_address};
      continue;
    }
    PeerHealth& health = view[member.number];
    const Peer* const peer = FindPeer(member.id);
    if (peer == nullptr || !peer->facts.has_value()) continue;
    where = {peer->facts->client_address, peer->facts->peer_address};
    health.alive = peer->alive;
    health.start_id = peer->facts->start_id;
    if (peer->IsUp(LinkKind::kData)) {
      health.data_link = peer->stream(LinkKind::kData).link;
    }
  }
  if (!view_sent_ || clock_changed || checked_changed || view != view_) {
    view_ = std::move(view);
    out_->peers = std::make_shared<const PeerView>(view_);
  }
  if (!view_sent_ || addresses != addresses_) {
    addresses_ = std::move(addresses);
    out_->addresses = std::make_shared<const AddressView>(addresses_);
  }
  view_sent_ = true;
}

}  // namespace ringkv
