#include "membership/control/control.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "membership/control/clock_bound.h"
#include "membership/control/control_impl.h"
#include "membership/control/meta.h"

namespace ringkv {

Control::Control(ControlOptions options, StartedNode started, Hlc& hlc,
                 Random& random)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(started), hlc,
                                   random)) {}
Control::~Control() = default;

void Control::Step(const ControlEvent& event, Time time,
                   ControlEffects& effects) {
  impl_->Step(event, time, effects);
}
Instant Control::NextTimer() const { return impl_->NextTimer(); }
const NodeId& Control::id() const { return impl_->id(); }
uint64_t Control::start_id() const { return impl_->start_id(); }
NodeNumber Control::number() const { return impl_->number(); }
std::shared_ptr<const Ring> Control::ring() const { return impl_->ring(); }
RingEpoch Control::adopted_epoch() const { return impl_->adopted_epoch(); }
size_t Control::peers_alive() const { return impl_->peers_alive(); }
void Control::CheckInvariants() const { impl_->CheckInvariants(); }

LivenessStats Control::liveness() const { return impl_->liveness(); }

namespace {

constexpr absl::Duration kSeenEvery = absl::Seconds(10);

GossipOptions GossipOptionsOf(const ControlOptions& options) {
  GossipOptions gossip;
  gossip.probe_interval = options.heartbeat_interval;
  // A node that stands still for less than the verdict is not accused.
  gossip.ack_timeout = options.down_after / 5;
  gossip.verdict_timeout = options.down_after * 3 / 5;
  gossip.exchange_interval = options.exchange_interval;
  return gossip;
}

}  // namespace

Control::Impl::Impl(ControlOptions options, StartedNode started, Hlc& hlc,
                    Random& random)
    : options_(std::move(options)),
      id_(started.id),
      incarnation_(started.incarnation),
      start_id_(started.start_id),
      hlc_(hlc),
      random_(random),
      bound_found_(started.hlc_floor),
      bound_(started.hlc_bound),
      bound_written_(started.hlc_bound),
      seen_(std::move(started.seen)),
      gossip_(GossipOptionsOf(options_), id_, incarnation_, random_),
      ring_(std::move(started.ring)),
      history_(std::move(started.history)),
      acceptor_(std::move(started.acceptor)),
      finished_(std::move(started.finished)),
      pledge_(std::move(started.pledge)) {
  RINGKV_CHECK(!id_.IsNone());
  RINGKV_CHECK(start_id_ != 0);
  options_.location = started.location;
  hlc_.RaiseBound(bound_);
  if (ring_ != nullptr) number_ = ring_->FindMember(id_)->number;
  for (const std::string& address : options_.seeds) {
    seeds_.push_back(Seed{address});
  }
}

void Control::Impl::Step(const ControlEvent& event, Time time,
                         ControlEffects& effects) {
  RINGKV_CHECK(time.now >= time_.now || !running_);
  time_ = time;
  out_ = &effects;
  if (!stopped_) {
    std::visit([this](const auto& body) { Handle(body); }, event);
  }
  if (!stopped_) Tick();
  if (!stopped_) UpdateViews();
  ComputeNextTimer();
  if (!effects.writes.empty()) effects.ticket = ticket_;
  effects.clock_ok = clock_ok_;
  effects.checked = checked_;
  out_ = nullptr;
}

void Control::Impl::Handle(const ControlStarted&) {
  RINGKV_CHECK(!running_);
  running_ = true;
  started_ = time_.now;
  next_heartbeat_ = time_.now + options_.heartbeat_interval;
  seen_written_ = time_.now;
  for (Seed& seed : seeds_) {
    seed.next_attempt = time_.now;
    seed.is_self = seed.address == options_.peer_address;
  }
  Log(LogLevel::kInfo,
      absl::StrCat(
          "node ", id_.ToString(), " starts, incarnation ", incarnation_,
          ring_ == nullptr
              ? ", in no ring yet"
              : absl::StrCat(", as node ", ToInt(number_), " of ring epoch ",
                             ring_->epoch(), " of cluster ",
                             ring_->spec().cluster_id.ToString())));
  if (ring_ == nullptr && pledge_.has_value() && pledge_->initiator == id_) {
    // An init that this node led and did not finish is given up: had it
    // succeeded, its ring would be on disk.
    ReleasePledge();
  }
  if (ring_ != nullptr) {
    AddRingPeers();
    out_->ring = ring_;
    FollowOperation(nullptr);
  } else if (options_.init_single) {
    InitSingle();
  }
}

void Control::Impl::Handle(const AdminArrived& event) {
  const uint64_t call = event.call;
  if (std::holds_alternative<StatusCall>(event.request)) {
    Answer(call, StatusNow());
  } else if (std::holds_alternative<HintsCall>(event.request)) {
    Answer(call, HintsNow());
  } else if (const auto* init = std::get_if<InitCall>(&event.request)) {
    StartInit(call, event.deadline, *init);
  } else if (const auto* create =
                 std::get_if<CreateKeyspaceCall>(&event.request)) {
    StartChange(call, event.deadline, *create);
  } else if (const auto* alter =
                 std::get_if<AlterKeyspaceCall>(&event.request)) {
    StartChange(call, event.deadline, *alter);
  } else if (const auto* drop = std::get_if<DropKeyspaceCall>(&event.request)) {
    StartChange(call, event.deadline, *drop);
  } else if (const auto* start =
                 std::get_if<StartOperationCall>(&event.request)) {
    StartTopology(call, event.deadline, *start);
  } else if (std::holds_alternative<OperationsCall>(event.request)) {
    Answer(call, OperationsNow());
  } else if (const auto* abort =
                 std::get_if<AbortOperationCall>(&event.request)) {
    StartAbort(call, event.deadline, *abort);
  } else if (const auto* recover = std::get_if<RecoverCall>(&event.request)) {
    StartRecovery(call, *recover);
  } else if (const auto* finish =
                 std::get_if<FinishUpgradeCall>(&event.request)) {
    StartFinishUpgrade(call, event.deadline, *finish);
  }
}

void Control::Impl::Handle(const LoadReported& event) {
  load_ = event;
  load_at_ = time_.now;
  // Some loop may have measured its part just before the report came; after
  // the report before, all had.
  load_epoch_ = reported_epoch_;
  reported_epoch_ = adopted_epoch_;
  step_stale_ = true;
  for (const LoadReported::Backlog& backlog : load_.hints) {
    own_rates_.Report(backlog.target, backlog.delivered, time_.now);
  }
  TellHintsDelivered();
}

void Control::Impl::Handle(const ClockBoundLow&) {
  RenewBound(/*force=*/false);
}

void Control::Impl::Handle(const DrainRequested&) {
  if (draining_) return;
  draining_ = true;
  Log(LogLevel::kInfo, "draining: peers are told to route around this node");
  // At once, so that no request is routed here for another interval.
  for (auto& [id, peer] : peers_) SendHeartbeat(peer);
}

void Control::Impl::Handle(const MetaPersisted& event) {
  persisted_ = std::max(persisted_, event.ticket);
  while (!deferred_.empty() && deferred_.front().ticket <= persisted_) {
    const std::function<void()> action = std::move(deferred_.front().action);
    deferred_.pop_front();
    action();
    if (stopped_) return;
  }
}

void Control::Impl::Handle(const ControlArrived& event) {
  const auto found = links_.find(event.link);
  if (found == links_.end() || found->second.kind != LinkKind::kControl) return;
  Peer* const peer = FindPeer(found->second.peer);
  RINGKV_CHECK(peer != nullptr);
  if (!peer->IsUp(LinkKind::kControl)) return;
  peer->last_heard = time_.now;
  if (!std::holds_alternative<GossipMessage>(event.message)) {
    GossipEffects effects;
    gossip_.Heard(peer->id, time_.now, effects);
    CarryOut(effects);
  }
  std::visit([&](const auto& body) { Take(*peer, body); }, event.message);
}

void Control::Impl::Tick() {
  if (!running_) return;
  TickGossip();
  TickHeartbeats();
  TickLinks();
  if (stopped_) return;
  TickInit();
  TickRings();
  TickTopology();
  RenewBound(/*force=*/false);
}

void Control::Impl::ComputeNextTimer() {
  Instant next = Instant::Infinite();
  if (running_ && !stopped_) {
    WantHeartbeats(next);
    WantLinks(next);
    WantInit(next);
    WantRings(next);
    WantTopology(next);
  }
  next_timer_ = next;
}

void Control::Impl::Write(MetaWrite write) {
  if (out_->writes.empty()) ++ticket_;
  out_->writes.push_back(std::move(write));
}

void Control::Impl::AfterSync(std::function<void()> action) {
  if (ticket_ <= persisted_) return action();
  deferred_.push_back({ticket_, std::move(action)});
}

void Control::Impl::RenewBound(bool force) {
  const HlcTimestamp last = hlc_.Last();
  if (!force && !BoundIsLow(bound_written_, last, time_.wall)) return;
  const HlcTimestamp next = std::max(NextBound(last, time_.wall),
                                     HlcTimestamp{ToInt(bound_written_) + 1});
  bound_written_ = next;
  Write(WriteClockBound(next));
  if (seen_changed_ && time_.now - seen_written_ >= kSeenEvery) {
    Write(WriteSeen(seen_));
    seen_changed_ = false;
    seen_written_ = time_.now;
  }
  AfterSync([this, next] {
    bound_ = std::max(bound_, next);
    hlc_.RaiseBound(next);
  });
}

void Control::Impl::Log(LogLevel level, std::string text) {
  out_->log.push_back({level, std::move(text)});
}

void Control::Impl::Stop(std::string message) {
  if (stopped_) return;
  stopped_ = true;
  Log(LogLevel::kError, message);
  out_->stop = StopRequest{1, std::move(message)};
}

void Control::Impl::Answer(uint64_t call, AdminAnswer answer) {
  out_->answers.push_back({call, std::move(answer)});
}

void Control::Impl::Refuse(uint64_t call, absl::Status status) {
  RINGKV_CHECK(!status.ok());
  Answer(call, AdminAnswer{std::move(status), {}});
}

absl::Duration Control::Impl::Jittered(absl::Duration wait) {
  return wait * (0.5 + 0.5 * random_.NextDouble());
}

absl::Duration Control::Impl::NextBackoff(absl::Duration& backoff) {
  backoff = std::clamp(backoff * 2, options_.retry_min, options_.retry_max);
  return Jittered(backoff);
}

size_t Control::Impl::peers_alive() const {
  size_t count = 0;
  for (const auto& [id, peer] : peers_) count += peer.alive ? 1 : 0;
  return count;
}

LivenessStats Control::Impl::liveness() const {
  LivenessStats stats;
  stats.gossip = gossip_.counters();
  stats.health_score = gossip_.health_score();
  stats.heartbeats = beats_sent_;
  for (const auto& [id, peer] : peers_) {
    const Member* const member =
        ring_ == nullptr ? nullptr : ring_->FindMember(id);
    if (member != nullptr) stats.flaps[member->number] = peer.flaps;
  }
  return stats;
}

void Control::Impl::CheckInvariants() const {
  gossip_.CheckInvariants();
  RINGKV_CHECK(bound_ <= bound_written_);
  RINGKV_CHECK(hlc_.bound() <= bound_);
  RINGKV_CHECK(persisted_ <= ticket_);
  RINGKV_CHECK((ring_ == nullptr) == (number_ == kNoNode));
  RINGKV_CHECK(ring_ == nullptr || adopted_epoch_ <= ring_->epoch());
  RINGKV_CHECK(peers_.count(id_) == 0);
  size_t streams = 0;
  for (const auto& [id, peer] : peers_) {
    RINGKV_CHECK(peer.id == id);
    RINGKV_CHECK(!peer.addresses.empty());
    for (LinkKind kind : {LinkKind::kControl, LinkKind::kData}) {
      const Stream& stream = peer.stream(kind);
      RINGKV_CHECK((stream.state == Stream::State::kNone) ==
                   (stream.link == kNoLink));
      if (stream.link == kNoLink) continue;
      ++streams;
      const auto owner = links_.find(stream.link);
      RINGKV_CHECK(owner != links_.end());
      RINGKV_CHECK(owner->second.peer == id && owner->second.kind == kind);
    }
    RINGKV_CHECK(!peer.alive ||
                 (peer.IsUp(LinkKind::kControl) && peer.IsUp(LinkKind::kData)));
  }
  RINGKV_CHECK(streams == links_.size());
}

}  // namespace ringkv
