#include "server/codec/control_codec.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "membership/ring/ring_codec.h"
#include "server/codec/field_checks.h"
#include "server/codec/gossip_codec.h"

namespace ringkv {
namespace {

namespace pb = internal::v1;

using codec::CheckCount;
using codec::CheckSize;
using codec::Cut;
using codec::IdBytes;
using codec::IdOf;
using codec::Invalid;
using codec::SomeIdOf;

// --- Handshake ---

void ToProto(const NodeFacts& facts, pb::NodeFacts& out) {
  out.set_node_id(IdBytes(facts.id));
  out.set_cluster_id(IdBytes(facts.cluster_id));
  out.set_lineage(facts.lineage);
  out.mutable_former_lineages()->Add(facts.former_lineages.begin(),
                                     facts.former_lineages.end());
  out.set_number(ToInt(facts.number));
  out.set_ring_epoch(facts.ring_epoch);
  out.set_incarnation(facts.incarnation);
  out.set_start_id(facts.start_id);
  out.set_hlc_bound(ToInt(facts.hlc_bound));
  out.set_hlc_found(ToInt(facts.hlc_found));
  out.set_protocol_min(facts.protocol_min);
  out.set_protocol_max(facts.protocol_max);
  out.set_feature_level_max(facts.feature_level_max);
  out.set_name(Cut(facts.name, kNameBytesMax));
  out.set_client_address(Cut(facts.client_address, kAddressBytesMax));
  out.set_peer_address(Cut(facts.peer_address, kAddressBytesMax));
  LocationToProto(facts.location, out.mutable_location());
  out.set_weight(facts.weight);
  out.set_version(Cut(facts.version, kNameBytesMax));
}

absl::StatusOr<NodeFacts> FactsOf(const pb::NodeFacts& in) {
  NodeFacts facts;
  ASSIGN_OR_RETURN(facts.id, SomeIdOf<NodeId>("node_id", in.node_id()));
  ASSIGN_OR_RETURN(facts.cluster_id,
                   IdOf<ClusterId>("cluster_id", in.cluster_id()));
  facts.lineage = in.lineage();
  RETURN_IF_ERROR(CheckCount("former_lineages", in.former_lineages_size(),
                             kFormerLineagesMax));
  facts.former_lineages.assign(in.former_lineages().begin(),
                               in.former_lineages().end());
  facts.number = NodeNumber{in.number()};
  facts.ring_epoch = in.ring_epoch();
  facts.incarnation = in.incarnation();
  facts.start_id = in.start_id();
  if (facts.start_id == 0) return Invalid("start_id", "is missing");
  facts.hlc_bound = HlcTimestamp{in.hlc_bound()};
  facts.hlc_found = HlcTimestamp{in.hlc_found()};
  facts.protocol_min = in.protocol_min();
  facts.protocol_max = in.protocol_max();
  if (facts.protocol_min > facts.protocol_max) {
    return Invalid("protocol_min",
                   absl::StrCat(facts.protocol_min, " is above protocol_max ",
                                facts.protocol_max));
  }
  facts.feature_level_max = in.feature_level_max();
  RETURN_IF_ERROR(CheckSize("name", in.name().size(), kNameBytesMax));
  facts.name = in.name();
  RETURN_IF_ERROR(CheckSize("client_address", in.client_address().size(),
                            kAddressBytesMax));
  facts.client_address = in.client_address();
  RETURN_IF_ERROR(
      CheckSize("peer_address", in.peer_address().size(), kAddressBytesMax));
  facts.peer_address = in.peer_address();
  facts.location = LocationFromProto(in.location());
  RETURN_IF_ERROR(
      CheckSize("location.zone", facts.location.zone.size(), kNameBytesMax));
  RETURN_IF_ERROR(
      CheckSize("location.rack", facts.location.rack.size(), kNameBytesMax));
  RETURN_IF_ERROR(
      CheckSize("location.host", facts.location.host.size(), kNameBytesMax));
  facts.weight = in.weight();
  if (!(facts.weight > 0 && facts.weight <= kWeightMax)) {
    return Invalid(
        "weight",
        absl::StrCat(facts.weight, " is not above 0 and up to ", kWeightMax));
  }
  RETURN_IF_ERROR(CheckSize("version", in.version().size(), kNameBytesMax));
  facts.version = in.version();
  return facts;
}

template <class Repeated>
void KnownToProto(const std::vector<KnownPeer>& known, Repeated& out) {
  for (size_t i = 0; i < std::min(known.size(), kKnownPeersMax); ++i) {
    if (known[i].id.IsNone()) continue;
    pb::KnownPeer& peer = *out.Add();
    peer.set_node_id(known[i].id.ToBytes());
    peer.set_peer_address(Cut(known[i].peer_address, kAddressBytesMax));
  }
}

template <class Repeated>
absl::StatusOr<std::vector<KnownPeer>> KnownOf(const Repeated& in) {
  RETURN_IF_ERROR(CheckCount("known", in.size(), kKnownPeersMax));
  std::vector<KnownPeer> known;
  known.reserve(static_cast<size_t>(in.size()));
  for (const pb::KnownPeer& peer : in) {
    KnownPeer& entry = known.emplace_back();
    ASSIGN_OR_RETURN(entry.id,
                     SomeIdOf<NodeId>("known.node_id", peer.node_id()));
    RETURN_IF_ERROR(CheckSize("known.peer_address", peer.peer_address().size(),
                              kAddressBytesMax));
    entry.peer_address = peer.peer_address();
  }
  return known;
}

// --- Control stream ---

void ToProto(const Heartbeat& beat, pb::ControlMessage& out) {
  pb::Heartbeat& to = *out.mutable_heartbeat();
  to.set_incarnation(beat.incarnation);
  to.set_start_id(beat.start_id);
  to.set_sequence(beat.sequence);
  to.set_echo_sequence(beat.echo_sequence);
  to.set_echo_delay_micros(beat.echo_delay_micros);
  to.set_hears_you(beat.hears_you);
  to.set_next_micros(std::min(beat.next_micros, kNextHeartbeatMicrosMax));
  to.set_cluster_id(IdBytes(beat.cluster_id));
  to.set_lineage(beat.lineage);
  to.set_number(ToInt(beat.number));
  to.set_known_epoch(beat.known_epoch);
  to.set_adopted_epoch(beat.adopted_epoch);
  to.set_wall_micros(beat.wall_micros);
  to.set_hlc(ToInt(beat.hlc));
  to.set_hlc_bound(ToInt(beat.hlc_bound));
  to.set_draining(beat.draining);
  to.set_init(IdBytes(beat.init));
  pb::LoadSummary& load = *to.mutable_load();
  load.set_in_flight(beat.load.in_flight);
  load.set_disk_bytes(beat.load.disk_bytes);
  load.set_read_only(beat.load.read_only);
  load.set_keys(beat.load.keys);
  for (size_t i = 0; i < std::min(beat.load.hints.size(), kHintTargetsMax);
       ++i) {
    const HintLoad& hints = beat.load.hints[i];
    pb::HintLoad& entry = *load.add_hints();
    entry.set_target(ToInt(hints.target));
    entry.set_hints(hints.hints);
    entry.set_bytes(hints.bytes);
    entry.set_oldest_age_ms(hints.oldest_age_ms);
    entry.set_refused(hints.refused);
    entry.set_delivered(hints.delivered);
  }
  load.set_epoch(beat.load.epoch);
  if (beat.transfers.operation != 0) {
    pb::TransferReport& transfers = *to.mutable_transfers();
    transfers.set_operation(beat.transfers.operation);
    transfers.set_ranges(beat.transfers.ranges);
    transfers.set_ranges_done(beat.transfers.ranges_done);
    transfers.set_keys(beat.transfers.keys);
    transfers.set_bytes(beat.transfers.bytes);
    transfers.set_done(beat.transfers.done);
  }
  for (size_t i = 0; i < std::min(beat.silent.size(), kSilentMax); ++i) {
    to.add_silent(ToInt(beat.silent[i]));
  }
}

absl::StatusOr<TransferReport> TransfersOf(const pb::TransferReport& in) {
  TransferReport report;
  report.operation = in.operation();
  report.ranges = in.ranges();
  report.ranges_done = in.ranges_done();
  report.keys = in.keys();
  report.bytes = in.bytes();
  report.done = in.done();
  if (report.ranges_done > report.ranges) {
    return Invalid("transfers.ranges_done",
                   absl::StrCat(report.ranges_done, " of ", report.ranges));
  }
  if (report.done &&
      (report.operation == 0 || report.ranges_done < report.ranges)) {
    return Invalid(
        "transfers.done",
        absl::StrCat("is set with ", report.ranges_done, " of ", report.ranges,
                     " ranges of operation ", report.operation));
  }
  // Of no operation there is nothing to say, and nothing is sent.
  if (report.operation == 0) return TransferReport();
  return report;
}

absl::StatusOr<ControlMessage> HeartbeatOf(const pb::Heartbeat& in) {
  Heartbeat beat;
  beat.incarnation = in.incarnation();
  beat.start_id = in.start_id();
  beat.sequence = in.sequence();
  beat.echo_sequence = in.echo_sequence();
  beat.echo_delay_micros = in.echo_delay_micros();
  beat.hears_you = in.hears_you();
  beat.next_micros = in.next_micros();
  if (beat.next_micros > kNextHeartbeatMicrosMax) {
    return Invalid("next_micros", absl::StrCat(beat.next_micros, " is above ",
                                               kNextHeartbeatMicrosMax));
  }
  ASSIGN_OR_RETURN(beat.cluster_id,
                   IdOf<ClusterId>("cluster_id", in.cluster_id()));
  beat.lineage = in.lineage();
  beat.number = NodeNumber{in.number()};
  beat.known_epoch = in.known_epoch();
  beat.adopted_epoch = in.adopted_epoch();
  beat.wall_micros = in.wall_micros();
  beat.hlc = HlcTimestamp{in.hlc()};
  beat.hlc_bound = HlcTimestamp{in.hlc_bound()};
  beat.draining = in.draining();
  ASSIGN_OR_RETURN(beat.init, IdOf<ClusterId>("init", in.init()));
  beat.load.in_flight = in.load().in_flight();
  beat.load.disk_bytes = in.load().disk_bytes();
  beat.load.read_only = in.load().read_only();
  beat.load.keys = in.load().keys();
  RETURN_IF_ERROR(
      CheckCount("load.hints", in.load().hints_size(), kHintTargetsMax));
  beat.load.hints.reserve(static_cast<size_t>(in.load().hints_size()));
  for (const pb::HintLoad& hints : in.load().hints()) {
    if (hints.target() == 0)
      return Invalid("load.hints.target", "0 is no node");
    beat.load.hints.push_back({NodeNumber{hints.target()}, hints.hints(),
                               hints.bytes(), hints.oldest_age_ms(),
                               hints.refused(), hints.delivered()});
  }
  beat.load.epoch = in.load().epoch();
  ASSIGN_OR_RETURN(beat.transfers, TransfersOf(in.transfers()));
  RETURN_IF_ERROR(CheckCount("silent", in.silent_size(), kSilentMax));
  beat.silent.reserve(static_cast<size_t>(in.silent_size()));
  for (const uint32_t number : in.silent()) {
    if (number == 0) return Invalid("silent", "0 is no node");
    beat.silent.push_back(NodeNumber{number});
  }
  return beat;
}

void ToProto(const ProposalId& id, pb::ProposalId& out) {
  out.set_start_id(id.start_id);
  out.set_counter(id.counter);
}
ProposalId ProposalOf(const pb::ProposalId& in) {
  return {in.start_id(), in.counter()};
}

void ToProto(const Ballot& ballot, pb::Ballot& out) {
  out.set_round(ballot.round);
  out.set_proposer(ToInt(ballot.proposer));
  out.set_start_id(ballot.start_id);
}
Ballot BallotOf(const pb::Ballot& in) {
  return {in.round(), NodeNumber{in.proposer()}, in.start_id()};
}
absl::StatusOr<Ballot> SomeBallotOf(const pb::Ballot& in) {
  const Ballot ballot = BallotOf(in);
  if (ballot.IsNone()) return Invalid("ballot", "is missing");
  return ballot;
}

void ToProto(const PaxosValue& value, pb::PaxosValue& out) {
  ToProto(value.id, *out.mutable_id());
  out.set_ring(value.ring);
}
absl::StatusOr<PaxosValue> ValueOf(const pb::PaxosValue& in) {
  RETURN_IF_ERROR(
      CheckSize("value.ring", in.ring().size(), kEncodedRingBytesMax));
  return PaxosValue{ProposalOf(in.id()), in.ring()};
}

void ToProto(const RingFetch& fetch, pb::ControlMessage& out) {
  out.mutable_ring_fetch()->set_have_epoch(fetch.have_epoch);
}

void ToProto(const RingDecided& decided, pb::ControlMessage& out) {
  pb::RingDecided& to = *out.mutable_ring_decided();
  to.set_epoch(decided.epoch);
  to.set_ring(decided.ring);
  const size_t skip = decided.history.size() > kProposalHistoryMax
                          ? decided.history.size() - kProposalHistoryMax
                          : 0;
  for (size_t i = skip; i < decided.history.size(); ++i) {
    pb::DecidedProposal& entry = *to.add_history();
    entry.set_epoch(decided.history[i].epoch);
    ToProto(decided.history[i].id, *entry.mutable_id());
  }
}

absl::StatusOr<ControlMessage> DecidedOf(const pb::RingDecided& in) {
  RingDecided decided;
  decided.epoch = in.epoch();
  RETURN_IF_ERROR(CheckSize("ring", in.ring().size(), kEncodedRingBytesMax));
  decided.ring = in.ring();
  RETURN_IF_ERROR(
      CheckCount("history", in.history_size(), kProposalHistoryMax));
  for (const pb::DecidedProposal& entry : in.history()) {
    decided.history.push_back({entry.epoch(), ProposalOf(entry.id())});
  }
  return decided;
}

void ToProto(const PaxosPrepare& prepare, pb::ControlMessage& out) {
  pb::PaxosPrepare& to = *out.mutable_paxos_prepare();
  to.set_epoch(prepare.epoch);
  ToProto(prepare.ballot, *to.mutable_ballot());
}

void ToProto(const PaxosPromise& promise, pb::ControlMessage& out) {
  pb::PaxosPromise& to = *out.mutable_paxos_promise();
  to.set_epoch(promise.epoch);
  ToProto(promise.ballot, *to.mutable_ballot());
  to.set_granted(promise.granted);
  ToProto(promise.promised, *to.mutable_promised());
  if (!promise.accepted.IsNone()) {
    ToProto(promise.accepted, *to.mutable_accepted());
    ToProto(promise.value, *to.mutable_value());
  }
  to.set_known_epoch(promise.known_epoch);
  to.set_hlc_bound(ToInt(promise.hlc_bound));
}

absl::StatusOr<ControlMessage> PromiseOf(const pb::PaxosPromise& in) {
  PaxosPromise promise;
  promise.epoch = in.epoch();
  ASSIGN_OR_RETURN(promise.ballot, SomeBallotOf(in.ballot()));
  promise.granted = in.granted();
  promise.promised = BallotOf(in.promised());
  promise.accepted = BallotOf(in.accepted());
  if (promise.accepted.IsNone() && in.has_value()) {
    return Invalid("value", "comes without the ballot that it was accepted at");
  }
  ASSIGN_OR_RETURN(promise.value, ValueOf(in.value()));
  promise.known_epoch = in.known_epoch();
  promise.hlc_bound = HlcTimestamp{in.hlc_bound()};
  return promise;
}

void ToProto(const PaxosAccept& accept, pb::ControlMessage& out) {
  pb::PaxosAccept& to = *out.mutable_paxos_accept();
  to.set_epoch(accept.epoch);
  ToProto(accept.ballot, *to.mutable_ballot());
  ToProto(accept.value, *to.mutable_value());
}

void ToProto(const PaxosAccepted& accepted, pb::ControlMessage& out) {
  pb::PaxosAccepted& to = *out.mutable_paxos_accepted();
  to.set_epoch(accepted.epoch);
  ToProto(accepted.ballot, *to.mutable_ballot());
  to.set_granted(accepted.granted);
  ToProto(accepted.promised, *to.mutable_promised());
  to.set_known_epoch(accepted.known_epoch);
  to.set_hlc_bound(ToInt(accepted.hlc_bound));
}

void ToProto(const InitPrepare& prepare, pb::ControlMessage& out) {
  pb::InitPrepare& to = *out.mutable_init_prepare();
  to.set_init(IdBytes(prepare.init));
  to.set_sequence(prepare.sequence);
}

void ToProto(const InitVote& vote, pb::ControlMessage& out) {
  pb::InitVote& to = *out.mutable_init_vote();
  to.set_init(IdBytes(vote.init));
  to.set_granted(vote.granted);
  to.set_message(Cut(vote.message, kControlTextBytesMax));
}

void ToProto(const InitRelease& release, pb::ControlMessage& out) {
  out.mutable_init_release()->set_init(IdBytes(release.init));
}

void ToProto(const GossipMessage& gossip, pb::ControlMessage& out) {
  GossipToProto(gossip, *out.mutable_gossip());
}

template <class Proto>
absl::StatusOr<Proto> Parse(absl::string_view bytes, absl::string_view what) {
  Proto message;
  if (bytes.size() > (kEncodedRingBytesMax + (1 << 20)) ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes that are no ", what));
  }
  return message;
}

}  // namespace

void HelloRequestToProto(const HelloRequest& hello, pb::HelloRequest& out) {
  ToProto(hello.from, *out.mutable_from());
  out.set_expected_node_id(IdBytes(hello.expected));
  KnownToProto(hello.known, *out.mutable_known());
}

absl::StatusOr<HelloRequest> HelloRequestFromProto(const pb::HelloRequest& in) {
  HelloRequest hello;
  ASSIGN_OR_RETURN(hello.from, FactsOf(in.from()));
  ASSIGN_OR_RETURN(hello.expected,
                   IdOf<NodeId>("expected_node_id", in.expected_node_id()));
  ASSIGN_OR_RETURN(hello.known, KnownOf(in.known()));
  return hello;
}

void HelloReplyToProto(const HelloReply& reply, pb::HelloReply& out) {
  out.set_outcome(static_cast<pb::HelloOutcome>(reply.outcome));
  out.set_message(Cut(reply.message, kControlTextBytesMax));
  ToProto(reply.from, *out.mutable_from());
  KnownToProto(reply.known, *out.mutable_known());
  out.set_live_incarnation(reply.live_incarnation);
}

absl::StatusOr<HelloReply> HelloReplyFromProto(const pb::HelloReply& in) {
  HelloReply reply;
  // A newer version may have more reasons to refuse.
  reply.outcome =
      in.outcome() >= 0 &&
              in.outcome() <= static_cast<int>(HelloOutcome::kRefused)
          ? static_cast<HelloOutcome>(in.outcome())
          : HelloOutcome::kRefused;
  RETURN_IF_ERROR(
      CheckSize("message", in.message().size(), kControlTextBytesMax));
  reply.message = in.message();
  ASSIGN_OR_RETURN(reply.from, FactsOf(in.from()));
  ASSIGN_OR_RETURN(reply.known, KnownOf(in.known()));
  reply.live_incarnation = in.live_incarnation();
  return reply;
}

void ControlToProto(const ControlMessage& message, pb::ControlMessage& out) {
  std::visit([&](const auto& body) { ToProto(body, out); }, message);
}

absl::StatusOr<ControlMessage> ControlFromProto(const pb::ControlMessage& in) {
  switch (in.body_case()) {
    case pb::ControlMessage::kHeartbeat:
      return HeartbeatOf(in.heartbeat());
    case pb::ControlMessage::kRingFetch:
      return RingFetch{in.ring_fetch().have_epoch()};
    case pb::ControlMessage::kRingDecided:
      return DecidedOf(in.ring_decided());
    case pb::ControlMessage::kPaxosPrepare: {
      PaxosPrepare prepare;
      prepare.epoch = in.paxos_prepare().epoch();
      ASSIGN_OR_RETURN(prepare.ballot,
                       SomeBallotOf(in.paxos_prepare().ballot()));
      return prepare;
    }
    case pb::ControlMessage::kPaxosPromise:
      return PromiseOf(in.paxos_promise());
    case pb::ControlMessage::kPaxosAccept: {
      PaxosAccept accept;
      accept.epoch = in.paxos_accept().epoch();
      ASSIGN_OR_RETURN(accept.ballot, SomeBallotOf(in.paxos_accept().ballot()));
      ASSIGN_OR_RETURN(accept.value, ValueOf(in.paxos_accept().value()));
      return accept;
    }
    case pb::ControlMessage::kPaxosAccepted: {
      const pb::PaxosAccepted& from = in.paxos_accepted();
      PaxosAccepted accepted;
      accepted.epoch = from.epoch();
      ASSIGN_OR_RETURN(accepted.ballot, SomeBallotOf(from.ballot()));
      accepted.granted = from.granted();
      accepted.promised = BallotOf(from.promised());
      accepted.known_epoch = from.known_epoch();
      accepted.hlc_bound = HlcTimestamp{from.hlc_bound()};
      return accepted;
    }
    case pb::ControlMessage::kInitPrepare: {
      InitPrepare prepare;
      ASSIGN_OR_RETURN(prepare.init,
                       SomeIdOf<ClusterId>("init", in.init_prepare().init()));
      prepare.sequence = in.init_prepare().sequence();
      return prepare;
    }
    case pb::ControlMessage::kInitVote: {
      InitVote vote;
      ASSIGN_OR_RETURN(vote.init,
                       SomeIdOf<ClusterId>("init", in.init_vote().init()));
      vote.granted = in.init_vote().granted();
      RETURN_IF_ERROR(CheckSize("message", in.init_vote().message().size(),
                                kControlTextBytesMax));
      vote.message = in.init_vote().message();
      return vote;
    }
    case pb::ControlMessage::kInitRelease: {
      InitRelease release;
      ASSIGN_OR_RETURN(release.init,
                       SomeIdOf<ClusterId>("init", in.init_release().init()));
      return release;
    }
    case pb::ControlMessage::kGossip: {
      ASSIGN_OR_RETURN(GossipMessage gossip, GossipFromProto(in.gossip()));
      return ControlMessage(std::move(gossip));
    }
    case pb::ControlMessage::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a control message without a body that this version knows");
}

std::string EncodeHelloRequest(const HelloRequest& hello) {
  pb::HelloRequest message;
  HelloRequestToProto(hello, message);
  return message.SerializeAsString();
}
absl::StatusOr<HelloRequest> DecodeHelloRequest(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const pb::HelloRequest message,
                   Parse<pb::HelloRequest>(bytes, "HelloRequest"));
  return HelloRequestFromProto(message);
}

std::string EncodeHelloReply(const HelloReply& reply) {
  pb::HelloReply message;
  HelloReplyToProto(reply, message);
  return message.SerializeAsString();
}
absl::StatusOr<HelloReply> DecodeHelloReply(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const pb::HelloReply message,
                   Parse<pb::HelloReply>(bytes, "HelloReply"));
  return HelloReplyFromProto(message);
}

std::string EncodeControl(const ControlMessage& control) {
  pb::ControlMessage message;
  ControlToProto(control, message);
  return message.SerializeAsString();
}
absl::StatusOr<ControlMessage> DecodeControl(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const pb::ControlMessage message,
                   Parse<pb::ControlMessage>(bytes, "ControlMessage"));
  return ControlFromProto(message);
}

}  // namespace ringkv
