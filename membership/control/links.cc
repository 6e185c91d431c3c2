// Discovery, handshake and the streams of Control.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/planted.h"
#include "membership/control/control_impl.h"
#include "membership/topology/segments.h"

namespace ringkv {
namespace {

// Waits after a refusal that only an operator can change.
constexpr absl::Duration kRefusedRetry = absl::Seconds(15);
constexpr absl::Duration kRefusalLogEvery = absl::Minutes(5);
constexpr size_t kRefusalsLoggedMax = 1000;
constexpr size_t kAddressesMax = 4;
// A stream that lived this long was a good one: the next dial does not wait.
constexpr absl::Duration kStreamGoodAfter = absl::Seconds(3);
// A report of a clone that is not repeated for so long is forgotten.
constexpr absl::Duration kCloneReportKept = absl::Seconds(12);
constexpr int kCloneReportsMin = 3;

bool NeedsOperator(HelloOutcome outcome) {
  return outcome == HelloOutcome::kForeignCluster ||
         outcome == HelloOutcome::kProtocol ||
         outcome == HelloOutcome::kOldDisk ||
         outcome == HelloOutcome::kDeparted;
}

}  // namespace

NodeFacts Control::Impl::Facts() const {
  NodeFacts facts;
  facts.id = id_;
  if (ring_ != nullptr) {
    facts.cluster_id = ring_->spec().cluster_id;
    facts.lineage = ring_->spec().lineage;
    facts.former_lineages = ring_->spec().former_lineages;
    facts.ring_epoch = ring_->epoch();
  }
  facts.number = number_;
  facts.incarnation = incarnation_;
  facts.start_id = start_id_;
  facts.hlc_bound = bound_;
  facts.hlc_found = bound_found_;
  facts.name = options_.name;
  facts.client_address = options_.client_address;
  facts.peer_address = options_.peer_address;
  facts.location = options_.location;
  facts.weight = options_.weight;
  facts.version = options_.version;
  facts.feature_level_max = options_.feature_level_max;
  return facts;
}

std::vector<KnownPeer> Control::Impl::KnownPeers() const {
  std::vector<KnownPeer> known;
  for (const auto& [id, peer] : peers_) {
    if (known.size() >= kKnownPeersMax) break;
    // Only who was met, or is in the ring: hearsay would circle for ever.
    if (!peer.facts.has_value() && !IsMember(id)) continue;
    known.push_back({id, peer.addresses.front()});
  }
  return known;
}

HelloRequest Control::Impl::MakeHello(const NodeId& expected) const {
  return {Facts(), expected, KnownPeers()};
}

bool Control::Impl::IsMember(const NodeId& id) const {
  return ring_ != nullptr && ring_->FindMember(id) != nullptr;
}

std::string Control::Impl::Called(const NodeFacts& facts) const {
  return absl::StrCat("node ",
                      facts.name.empty() ? facts.id.ToString() : facts.name,
                      " (", facts.peer_address, ")");
}

std::string Control::Impl::Called(const Peer& peer) const {
  if (peer.facts.has_value()) return Called(*peer.facts);
  if (const Member* member =
          ring_ == nullptr ? nullptr : ring_->FindMember(peer.id);
      member != nullptr) {
    return absl::StrCat("node ", member->name, " (", member->peer_address, ")");
  }
  return absl::StrCat("node ", peer.id.ToString(), " (", peer.addresses.front(),
                      ")");
}

// --- What is thought of a node ---

HelloReply Control::Impl::Judge(const NodeFacts& from, const NodeId& expected) {
  HelloReply reply;
  reply.from = Facts();
  reply.known = KnownPeers();
  const auto refuse = [&](HelloOutcome outcome, std::string message) {
    reply.outcome = outcome;
    reply.message = std::move(message);
    return reply;
  };
  if (from.id == id_) {
    if (from.start_id == start_id_) {
      return refuse(HelloOutcome::kSelf, "a node has reached itself");
    }
    reply.live_incarnation = incarnation_;
    return refuse(
        HelloOutcome::kClone,
        absl::StrCat("node id ", id_.ToString(), " is alive at ",
                     options_.peer_address, " (incarnation ", incarnation_,
                     ") and was started at ", from.peer_address,
                     " (incarnation ", from.incarnation,
                     ") too: one data directory is a copy of the other"));
  }
  if (from.protocol_max < kProtocolMin || from.protocol_min > kProtocolMax) {
    return refuse(HelloOutcome::kProtocol,
                  absl::StrCat("no common protocol version: ", Called(Facts()),
                               " speaks ", kProtocolMin, " to ", kProtocolMax,
                               ", ", Called(from), " speaks ",
                               from.protocol_min, " to ", from.protocol_max));
  }
  if (ring_ != nullptr && !from.cluster_id.IsNone()) {
    const RingSpec& spec = ring_->spec();
    if (from.cluster_id != spec.cluster_id) {
      return refuse(
          HelloOutcome::kForeignCluster,
          absl::StrCat(Called(Facts()), " is of cluster ",
                       spec.cluster_id.ToString(), ", ", Called(from),
                       " is of cluster ", from.cluster_id.ToString()));
    }
    if (!LineageFits(from.lineage, from.former_lineages)) {
      return refuse(
          HelloOutcome::kForeignCluster,
          absl::StrCat("cluster ", spec.cluster_id.ToString(),
                       " was recovered without some of its nodes: ",
                       Called(Facts()), " is of lineage ", spec.lineage, ", ",
                       Called(from), " is of lineage ", from.lineage));
    }
    const Member* const named = ring_->FindMember(from.number);
    if (from.lineage != spec.lineage &&
        IsFormerLineage(spec.former_lineages, from.lineage) &&
        (named == nullptr || named->id != from.id ||
         IsTakenForDead(*ring_, from.number))) {
      return refuse(HelloOutcome::kDeparted,
                    absl::StrCat("cluster ", spec.cluster_id.ToString(),
                                 " was recovered without node number ",
                                 ToInt(from.number), " (", from.name,
                                 "): that one is of lineage ", from.lineage,
                                 ", the cluster is of lineage ", spec.lineage,
                                 " since its recovery"));
    }
    if (from.number != kNoNode && from.ring_epoch <= spec.epoch &&
        !Planted("departed-comes-back")) {
      const Member* const member = named;
      if (member != nullptr && member->id == from.id &&
          IsTakenForDead(*ring_, from.number)) {
        return refuse(
            HelloOutcome::kDeparted,
            absl::StrCat("node number ", ToInt(from.number), " (", from.name,
                         ") is being taken out of the ring as dead, since "
                         "epoch ",
                         spec.operation->id));
      }
      if (member == nullptr || member->id != from.id) {
        return refuse(
            HelloOutcome::kDeparted,
            absl::StrCat("node number ", ToInt(from.number), " (", from.name,
                         ") has left the ring: it is not in epoch ", spec.epoch,
                         ", and its last one was ", from.ring_epoch));
      }
    }
  }
  if (const Peer* peer = FindPeer(from.id); peer != nullptr) {
    const Stream& control = peer->stream(LinkKind::kControl);
    if (control.state == Stream::State::kUp &&
        control.start_id != from.start_id && IsHeard(*peer)) {
      reply.live_incarnation = peer->facts->incarnation;
      return refuse(
          HelloOutcome::kClone,
          absl::StrCat("node id ", from.id.ToString(), " is alive at ",
                       peer->facts->peer_address, " (incarnation ",
                       peer->facts->incarnation, ") and was started at ",
                       from.peer_address, " (incarnation ", from.incarnation,
                       ") too: one data directory is a copy of the other"));
    }
  }
  if (const auto found = seen_.find(from.id); found != seen_.end()) {
    const SeenPeer& seen = found->second;
    // Of the same run a Hello may be late; of another it must show more. What
    // counts is the bound that it found: the one it has raised since tells
    // nothing of the age of its disk.
    const HlcTimestamp bound =
        from.hlc_found == HlcTimestamp{} ? from.hlc_bound : from.hlc_found;
    if (from.start_id != seen.start_id &&
        (from.incarnation <= seen.incarnation || bound < seen.hlc_bound)) {
      return refuse(
          HelloOutcome::kOldDisk,
          absl::StrCat("the disk of ", Called(from), " is older than ",
                       Called(Facts()), " remembers: incarnation ",
                       from.incarnation, " after ", seen.incarnation,
                       ", clock bound ", ToInt(bound), " after ",
                       ToInt(seen.hlc_bound)));
    }
  }
  if (!expected.IsNone() && expected != id_) {
    return refuse(HelloOutcome::kWrongNode,
                  absl::StrCat("node ", expected.ToString(), " was meant, but ",
                               Called(Facts()), " with id ", id_.ToString(),
                               " lives here"));
  }
  return reply;
}

bool Control::Impl::LineageFits(uint64_t lineage,
                                const std::vector<uint64_t>& former) const {
  const RingSpec& spec = ring_->spec();
  return lineage == spec.lineage ||
         IsFormerLineage(spec.former_lineages, lineage) ||
         IsFormerLineage(former, spec.lineage);
}

void Control::Impl::LogRefusal(const NodeId& id, HelloOutcome outcome,
                               std::string text) {
  if (refusals_logged_.size() >= kRefusalsLoggedMax) refusals_logged_.clear();
  const auto [found, added] =
      refusals_logged_.try_emplace({id, outcome}, time_.now);
  if (!added && time_.now - found->second < kRefusalLogEvery) return;
  found->second = time_.now;
  Log(LogLevel::kWarning, std::move(text));
}

void Control::Impl::TakeRefusal(const HelloReply& reply) {
  const bool own_cluster = ring_ != nullptr &&
                           reply.from.cluster_id == ring_->spec().cluster_id &&
                           reply.from.lineage == ring_->spec().lineage;
  const bool recovered =
      ring_ != nullptr && reply.from.cluster_id == ring_->spec().cluster_id &&
      IsFormerLineage(reply.from.former_lineages, ring_->spec().lineage);
  switch (reply.outcome) {
    case HelloOutcome::kAccepted:
    case HelloOutcome::kSelf:
      return;
    case HelloOutcome::kClone: {
      CloneReport& report = clone_reports_[reply.from.id];
      if (report.count++ == 0) report.since = time_.now;
      report.last = time_.now;
      report.live_incarnation = reply.live_incarnation;
      break;
    }
    case HelloOutcome::kDeparted:
      if ((own_cluster && reply.from.ring_epoch > ring_->epoch()) ||
          recovered) {
        return Stop(absl::StrCat(
            reply.message,
            ". This node stops; to add the machine again, start it with an "
            "empty data directory and join it as a new node"));
      }
      break;
    case HelloOutcome::kOldDisk:
      if (own_cluster) {
        return Stop(absl::StrCat(
            reply.message,
            ". A restored or copied data directory must not serve under its "
            "old "
            "number. This node stops; replace it by a new one with an empty "
            "data directory"));
      }
      break;
    case HelloOutcome::kForeignCluster:
    case HelloOutcome::kProtocol:
    case HelloOutcome::kWrongNode:
    case HelloOutcome::kRefused:
      break;
  }
  LogRefusal(reply.from.id, reply.outcome,
             absl::StrCat("handshake refused by ", Called(reply.from), ": ",
                          reply.message));
}

void Control::Impl::CheckCloneReports() {
  for (auto it = clone_reports_.begin(); it != clone_reports_.end();) {
    const CloneReport& report = it->second;
    if (time_.now - report.last > kCloneReportKept) {
      it = clone_reports_.erase(it);
      continue;
    }
    // A node that restarts fast is taken for its own copy until its old
    // heartbeats are missed; so the report must be repeated for longer than
    // that. Of two copies the one that came later goes, and one that nobody
    // talks to anyway.
    bool connected = false;
    for (const auto& [id, peer] : peers_) {
      connected = connected || peer.IsUp(LinkKind::kControl);
    }
    if (report.count >= kCloneReportsMin &&
        report.last - report.since >= options_.clone_grace &&
        (!connected || incarnation_ >= report.live_incarnation)) {
      return Stop(absl::StrCat(
          "node id ", id_.ToString(),
          " is alive in another process: this data directory is a copy. This "
          "node stops; start it with an empty data directory"));
    }
    ++it;
  }
}

// --- The table of peers ---

Control::Impl::Peer* Control::Impl::FindPeer(const NodeId& id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

Control::Impl::Peer* Control::Impl::AddPeer(const NodeId& id,
                                            const std::string& address) {
  RINGKV_CHECK(id != id_);
  if (Peer* known = FindPeer(id); known != nullptr) return known;
  if (peers_.size() >= kKnownPeersMax && !IsMember(id)) return nullptr;
  Peer& peer = peers_[id];
  peer.id = id;
  peer.addresses.push_back(address);
  peer.known_since = time_.now;
  for (Stream& stream : peer.streams) stream.next_attempt = time_.now;
  peer.next_hello = time_.now;
  return &peer;
}

void Control::Impl::UseAddress(Peer& peer, const std::string& address) {
  std::vector<std::string>& all = peer.addresses;
  if (!all.empty() && all.front() == address) return;
  all.erase(std::remove(all.begin(), all.end(), address), all.end());
  all.insert(all.begin(), address);
  if (all.size() > kAddressesMax) all.pop_back();
  peer.attempt = 0;
}

void Control::Impl::AddRingPeers() {
  for (const Member& member : ring_->spec().members) {
    if (member.id != id_) AddPeer(member.id, member.peer_address);
  }
}

void Control::Impl::TakeKnown(const std::vector<KnownPeer>& known) {
  for (const KnownPeer& entry : known) {
    if (entry.id == id_ || entry.id.IsNone() || entry.peer_address.empty()) {
      continue;
    }
    Peer* const peer = AddPeer(entry.id, entry.peer_address);
    if (peer == nullptr || peer->IsUp(LinkKind::kControl)) continue;
    // One more place to look for it, after those that it named itself.
    std::vector<std::string>& all = peer->addresses;
    if (all.size() < kAddressesMax &&
        std::find(all.begin(), all.end(), entry.peer_address) == all.end()) {
      all.push_back(entry.peer_address);
    }
  }
}

void Control::Impl::TakeFacts(const NodeFacts& from) {
  Peer* const peer = AddPeer(from.id, from.peer_address);
  if (peer == nullptr) return;
  const bool new_run =
      !peer->facts.has_value() || peer->facts->start_id != from.start_id;
  if (peer->facts.has_value() && new_run &&
      from.incarnation < peer->facts->incarnation) {
    return;  // an old Hello that was long on its way
  }
  if (new_run) {
    for (LinkKind kind : {LinkKind::kControl, LinkKind::kData}) {
      if (peer->IsUp(kind) && peer->stream(kind).start_id != from.start_id) {
        DropStream(*peer, kind, /*close=*/true);
      }
    }
    peer->beat.reset();
    peer->beat_on_link = false;
    peer->sent.clear();
    peer->clock.Clear();
    peer->rates.Clear();
  }
  views_stale_ = true;
  peer->facts = from;
  UseAddress(*peer, from.peer_address);
  Remember(from);
}

Instant Control::Impl::ForgetAt(const Peer& peer) const {
  for (const Stream& stream : peer.streams) {
    if (stream.state != Stream::State::kNone) return Instant::Infinite();
  }
  if (IsMember(peer.id)) return Instant::Infinite();
  // It is told when it calls.
  if (KnowsDeparted(peer)) return Instant{};
  return std::max(peer.known_since, peer.last_heard.value_or(Instant{})) +
         options_.forget_after;
}

// --- Hello ---

void Control::Impl::SendHello(std::optional<size_t> seed, Peer* peer) {
  const uint64_t hello = next_hello_id_++;
  PendingHello& pending = hellos_[hello];
  pending.deadline = time_.now + options_.connect_timeout;
  HelloCall call;
  call.hello = hello;
  if (seed.has_value()) {
    pending.seed = seed;
    call.address = seeds_[*seed].address;
    call.request = MakeHello(NodeId());
    seeds_[*seed].next_attempt = Instant::Infinite();
  } else {
    pending.peer = peer->id;
    call.address = peer->addresses[peer->attempt % peer->addresses.size()];
    call.request = MakeHello(peer->id);
    peer->next_hello = Instant::Infinite();
  }
  out_->hellos.push_back(std::move(call));
}

void Control::Impl::HelloFailed(const PendingHello& hello, bool refused) {
  if (hello.seed.has_value()) {
    Seed& seed = seeds_[*hello.seed];
    seed.next_attempt = time_.now + (refused ? Jittered(kRefusedRetry)
                                             : NextBackoff(seed.backoff));
  }
  if (!hello.peer.has_value()) return;
  if (Peer* peer = FindPeer(*hello.peer); peer != nullptr) {
    peer->next_hello = time_.now + (refused ? Jittered(kRefusedRetry)
                                            : NextBackoff(peer->hello_backoff));
    ++peer->attempt;
  }
}

void Control::Impl::Handle(const HelloArrived& event) {
  const NodeFacts& from = event.request.from;
  HelloReply reply = Judge(from, event.request.expected);
  if (reply.outcome == HelloOutcome::kAccepted ||
      reply.outcome == HelloOutcome::kWrongNode) {
    // Who looks for somebody else is found all the same.
    TakeFacts(from);
    TakeKnown(event.request.known);
    // It has no stream to us: do not wait longer with ours to it.
    if (Peer* peer = FindPeer(from.id); peer != nullptr) {
      for (Stream& stream : peer->streams) {
        stream.next_attempt = std::min(stream.next_attempt, time_.now);
      }
    }
  } else if (reply.outcome != HelloOutcome::kSelf) {
    LogRefusal(from.id, reply.outcome,
               absl::StrCat("refused the handshake of ", Called(from), ": ",
                            reply.message));
  }
  out_->hello_answers.push_back({event.call, std::move(reply)});
}

void Control::Impl::Handle(const HelloAnswered& event) {
  const auto found = hellos_.find(event.hello);
  if (found == hellos_.end()) return;
  const PendingHello hello = found->second;
  hellos_.erase(found);
  // What comes too late, to a node that was frozen say, tells of the past.
  if (!event.reply.ok() || hello.deadline <= time_.now) {
    return HelloFailed(hello, /*refused=*/false);
  }
  const HelloReply& reply = *event.reply;
  if (reply.outcome == HelloOutcome::kSelf || reply.from.id == id_) {
    if (hello.seed.has_value() && reply.from.start_id == start_id_) {
      seeds_[*hello.seed].is_self = true;
      return;
    }
  }
  if (reply.outcome == HelloOutcome::kAccepted ||
      reply.outcome == HelloOutcome::kWrongNode) {
    const HelloReply judged = Judge(reply.from, NodeId());
    if (judged.outcome == HelloOutcome::kAccepted) {
      TakeFacts(reply.from);
      TakeKnown(reply.known);
      if (hello.seed.has_value()) seeds_[*hello.seed].found = reply.from.id;
    } else {
      LogRefusal(reply.from.id, judged.outcome,
                 absl::StrCat("cannot talk to ", Called(reply.from), ": ",
                              judged.message));
      return HelloFailed(hello, NeedsOperator(judged.outcome));
    }
  }
  if (reply.outcome != HelloOutcome::kAccepted) {
    TakeRefusal(reply);
    if (stopped_) return;
  }
  // Also after success: until the streams are up, it is told again.
  HelloFailed(hello, NeedsOperator(reply.outcome));
  if (reply.outcome == HelloOutcome::kAccepted && hello.peer.has_value()) {
    // The address was right.
    if (Peer* peer = FindPeer(*hello.peer); peer != nullptr) peer->attempt = 0;
  }
}

// --- Streams ---

void Control::Impl::LinkIsUp(Peer& peer, LinkKind kind, LinkId link,
                             uint64_t start_id) {
  Stream& stream = peer.stream(kind);
  if (stream.link != link) {
    // The other side knows better than we do that the old one is gone.
    DropStream(peer, kind, /*close=*/true);
    stream.link = link;
    links_[link] = {peer.id, kind};
  }
  stream.state = Stream::State::kUp;
  stream.start_id = start_id;
  stream.since = time_.now;
  clone_reports_.erase(peer.id);
  views_stale_ = true;
  if (kind != LinkKind::kControl) return;
  peer.beat_on_link = false;
  peer.was_heard = false;
  peer.hello_backoff = absl::ZeroDuration();
  if (const Member* member =
          ring_ == nullptr ? nullptr : ring_->FindMember(peer.id);
      member != nullptr) {
    checked_by_.insert(member->number);
  }
  SendHeartbeat(peer);
  // Spread over the rounds from there on.
  peer.next_beat =
      time_.now +
      options_.heartbeat_interval *
          static_cast<int64_t>(random_.Uniform(static_cast<uint64_t>(
              BeatPeriod() / options_.heartbeat_interval)));
  MetPeer(peer);
}

void Control::Impl::DropStream(Peer& peer, LinkKind kind, bool close) {
  Stream& stream = peer.stream(kind);
  if (stream.state == Stream::State::kNone) return;
  if (close) out_->closes.push_back(stream.link);
  links_.erase(stream.link);
  views_stale_ = true;
  if (stream.state == Stream::State::kUp &&
      time_.now - stream.since >= kStreamGoodAfter) {
    stream.backoff = absl::ZeroDuration();
  }
  stream.state = Stream::State::kNone;
  stream.link = kNoLink;
  stream.start_id = 0;
  stream.next_attempt = time_.now + NextBackoff(stream.backoff);
  if (kind == LinkKind::kControl) {
    gossip_.SetReachable(peer.id, false);
    peer.beat_on_link = false;
    peer.next_hello = std::min(peer.next_hello, stream.next_attempt);
  }
}

void Control::Impl::DropLinks(Peer& peer) {
  DropStream(peer, LinkKind::kControl, /*close=*/true);
  DropStream(peer, LinkKind::kData, /*close=*/true);
}

void Control::Impl::AttemptFailed(Peer& peer, LinkKind kind, bool refused) {
  DropStream(peer, kind, /*close=*/true);
  if (kind == LinkKind::kControl) ++peer.attempt;
  if (refused) {
    peer.stream(kind).next_attempt = time_.now + Jittered(kRefusedRetry);
  }
}

void Control::Impl::Dial(Peer& peer, LinkKind kind) {
  Stream& stream = peer.stream(kind);
  stream.state = Stream::State::kDialling;
  stream.link = next_link_++;
  stream.since = time_.now;
  links_[stream.link] = {peer.id, kind};
  LinkDial dial;
  dial.link = stream.link;
  dial.kind = kind;
  dial.address = peer.addresses[peer.attempt % peer.addresses.size()];
  dial.request = MakeHello(peer.id);
  out_->dials.push_back(std::move(dial));
}

void Control::Impl::Handle(const LinkOffered& event) {
  RINGKV_CHECK((event.link & kInboundLinkBit) != 0);
  const NodeFacts& from = event.request.from;
  HelloReply reply = Judge(from, event.request.expected);
  if (reply.outcome == HelloOutcome::kAccepted && from.id > id_) {
    reply.outcome = HelloOutcome::kRefused;
    reply.message =
        "of two nodes the one with the smaller node id dials the streams";
  }
  Peer* peer = nullptr;
  if (reply.outcome == HelloOutcome::kAccepted) {
    TakeFacts(from);
    TakeKnown(event.request.known);
    peer = FindPeer(from.id);
    if (peer == nullptr || peer->facts->start_id != from.start_id) {
      peer = nullptr;
      reply.outcome = HelloOutcome::kRefused;
      reply.message =
          absl::StrCat("too many peers are known: the limit is ",
                       kKnownPeersMax, "; or the Hello is of an older run");
    }
  }
  if (peer == nullptr) {
    LogRefusal(from.id, reply.outcome,
               absl::StrCat("refused the stream of ", Called(from), ": ",
                            reply.message));
  }
  out_->link_answers.push_back({event.link, std::move(reply)});
  if (peer != nullptr) LinkIsUp(*peer, event.kind, event.link, from.start_id);
}

void Control::Impl::Handle(const LinkAnswered& event) {
  const auto found = links_.find(event.link);
  if (found == links_.end()) return;  // given up meanwhile
  const LinkKind kind = found->second.kind;
  Peer* peer = FindPeer(found->second.peer);
  RINGKV_CHECK(peer != nullptr);
  const Stream& stream = peer->stream(kind);
  if (stream.state != Stream::State::kDialling) return;
  if (stream.since + options_.connect_timeout <= time_.now) {
    return AttemptFailed(*peer, kind, /*refused=*/false);
  }
  const HelloReply& reply = event.reply;
  if (reply.outcome != HelloOutcome::kAccepted) {
    AttemptFailed(*peer, kind, NeedsOperator(reply.outcome));
    if (reply.outcome == HelloOutcome::kWrongNode &&
        Judge(reply.from, NodeId()).outcome == HelloOutcome::kAccepted) {
      TakeFacts(reply.from);
    }
    return TakeRefusal(reply);
  }
  const HelloReply judged = Judge(reply.from, NodeId());
  if (judged.outcome != HelloOutcome::kAccepted || reply.from.id != peer->id) {
    LogRefusal(
        reply.from.id, judged.outcome,
        absl::StrCat("cannot talk to ", Called(reply.from), ": ",
                     judged.message.empty() ? "it answers for another node"
                                            : judged.message));
    return AttemptFailed(*peer, kind, NeedsOperator(judged.outcome));
  }
  TakeFacts(reply.from);
  TakeKnown(reply.known);
  if (peer->facts->start_id != reply.from.start_id) {
    return AttemptFailed(*peer, kind, /*refused=*/false);
  }
  LinkIsUp(*peer, kind, event.link, reply.from.start_id);
}

void Control::Impl::Handle(const LinkClosed& event) {
  const auto found = links_.find(event.link);
  if (found == links_.end()) return;
  const LinkKind kind = found->second.kind;
  Peer* const peer = FindPeer(found->second.peer);
  RINGKV_CHECK(peer != nullptr);
  const bool was_up = peer->IsUp(kind);
  if (!was_up && kind == LinkKind::kControl) ++peer->attempt;
  DropStream(*peer, kind, /*close=*/false);
  if (was_up && kind == LinkKind::kControl) {
    Log(LogLevel::kInfo, absl::StrCat("the control stream to ", Called(*peer),
                                      " ended: ", event.reason.message()));
  }
}

// --- Time ---

bool Control::Impl::SeedIsServed(const Seed& seed) const {
  if (seed.is_self) return true;
  if (!seed.found.has_value()) return false;
  const auto found = peers_.find(*seed.found);
  return found != peers_.end() && found->second.IsUp(LinkKind::kControl);
}

bool Control::Impl::WantsHello(const Peer& peer) const {
  return !IsDialler(peer) &&
         !(peer.IsUp(LinkKind::kControl) && peer.IsUp(LinkKind::kData));
}

bool Control::Impl::WantsDial(const Peer& peer, LinkKind kind) const {
  return IsDialler(peer) && peer.stream(kind).state == Stream::State::kNone &&
         (kind == LinkKind::kControl || peer.IsUp(LinkKind::kControl));
}

void Control::Impl::TickLinks() {
  const Instant now = time_.now;
  for (auto it = hellos_.begin(); it != hellos_.end();) {
    if (it->second.deadline > now) {
      ++it;
      continue;
    }
    const PendingHello hello = it->second;
    it = hellos_.erase(it);
    HelloFailed(hello, /*refused=*/false);
  }
  for (size_t i = 0; i < seeds_.size(); ++i) {
    Seed& seed = seeds_[i];
    if (SeedIsServed(seed)) {
      seed.backoff = absl::ZeroDuration();
    } else if (seed.next_attempt <= now) {
      SendHello(i, nullptr);
    }
  }
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = it->second;
    if (KnowsDeparted(peer) && ForgetAt(peer) <= now) {
      ForgetPeer(peer.id);
      it = peers_.erase(it);
      continue;
    }
    for (LinkKind kind : {LinkKind::kControl, LinkKind::kData}) {
      const Stream& stream = peer.stream(kind);
      if (stream.state == Stream::State::kDialling &&
          stream.since + options_.connect_timeout <= now) {
        AttemptFailed(peer, kind, /*refused=*/false);
      }
      if (WantsDial(peer, kind) && stream.next_attempt <= now) {
        Dial(peer, kind);
      }
    }
    if (WantsHello(peer) && peer.next_hello <= now) SendHello({}, &peer);
    if (ForgetAt(peer) <= now) {
      ForgetPeer(peer.id);
      it = peers_.erase(it);
    } else {
      ++it;
    }
  }
  CheckCloneReports();
}

void Control::Impl::WantLinks(Instant& next) const {
  for (const auto& [id, hello] : hellos_) next = std::min(next, hello.deadline);
  for (const Seed& seed : seeds_) {
    if (!SeedIsServed(seed)) next = std::min(next, seed.next_attempt);
  }
  for (const auto& [id, peer] : peers_) {
    for (LinkKind kind : {LinkKind::kControl, LinkKind::kData}) {
      const Stream& stream = peer.stream(kind);
      if (stream.state == Stream::State::kDialling) {
        next = std::min(next, stream.since + options_.connect_timeout);
      }
      if (WantsDial(peer, kind)) next = std::min(next, stream.next_attempt);
    }
    if (WantsHello(peer)) next = std::min(next, peer.next_hello);
    next = std::min(next, ForgetAt(peer));
  }
  for (const auto& [id, report] : clone_reports_) {
    next =
        std::min(next, report.last + kCloneReportKept + absl::Nanoseconds(1));
  }
}

}  // namespace ringkv
