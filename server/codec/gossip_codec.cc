#include "server/codec/gossip_codec.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "membership/ring/ring_codec.h"
#include "server/codec/field_checks.h"

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

void ToProto(const NodeProfile& profile, pb::NodeProfile& out) {
  out.set_serial(profile.serial);
  out.set_start_id(profile.start_id);
  out.set_cluster_id(IdBytes(profile.cluster_id));
  out.set_number(ToInt(profile.number));
  out.set_name(Cut(profile.name, kNameBytesMax));
  out.set_client_address(Cut(profile.client_address, kAddressBytesMax));
  out.set_peer_address(Cut(profile.peer_address, kAddressBytesMax));
  LocationToProto(profile.location, out.mutable_location());
  out.set_ring_epoch(profile.ring_epoch);
  out.set_draining(profile.draining);
  out.set_in_flight(profile.in_flight);
  out.set_disk_bytes(profile.disk_bytes);
  out.set_read_only(profile.read_only);
}

absl::StatusOr<NodeProfile> ProfileOf(const pb::NodeProfile& in) {
  NodeProfile profile;
  profile.serial = in.serial();
  profile.start_id = in.start_id();
  ASSIGN_OR_RETURN(profile.cluster_id,
                   IdOf<ClusterId>("profile.cluster_id", in.cluster_id()));
  profile.number = NodeNumber{in.number()};
  RETURN_IF_ERROR(CheckSize("profile.name", in.name().size(), kNameBytesMax));
  profile.name = in.name();
  RETURN_IF_ERROR(CheckSize("profile.client_address",
                            in.client_address().size(), kAddressBytesMax));
  profile.client_address = in.client_address();
  RETURN_IF_ERROR(CheckSize("profile.peer_address", in.peer_address().size(),
                            kAddressBytesMax));
  profile.peer_address = in.peer_address();
  profile.location = LocationFromProto(in.location());
  RETURN_IF_ERROR(CheckSize("profile.location.zone",
                            profile.location.zone.size(), kNameBytesMax));
  RETURN_IF_ERROR(CheckSize("profile.location.rack",
                            profile.location.rack.size(), kNameBytesMax));
  RETURN_IF_ERROR(CheckSize("profile.location.host",
                            profile.location.host.size(), kNameBytesMax));
  profile.ring_epoch = in.ring_epoch();
  profile.draining = in.draining();
  profile.in_flight = in.in_flight();
  profile.disk_bytes = in.disk_bytes();
  profile.read_only = in.read_only();
  return profile;
}

template <class Repeated>
void UpdatesToProto(const std::vector<GossipUpdate>& updates, size_t max,
                    Repeated& out) {
  for (size_t i = 0; i < std::min(updates.size(), max); ++i) {
    const GossipUpdate& update = updates[i];
    pb::GossipUpdate& to = *out.Add();
    to.set_node_id(IdBytes(update.id));
    to.set_incarnation(update.version.incarnation);
    to.set_refutations(update.version.refutations);
    to.set_state(static_cast<pb::Liveness>(update.state));
    to.set_accuser_id(IdBytes(update.accuser));
    if (update.profile.has_value()) {
      ToProto(*update.profile, *to.mutable_profile());
    }
  }
}

absl::StatusOr<GossipUpdate> UpdateOf(const pb::GossipUpdate& in) {
  GossipUpdate update;
  ASSIGN_OR_RETURN(update.id, SomeIdOf<NodeId>("node_id", in.node_id()));
  update.version = {in.incarnation(), in.refutations()};
  if (update.version.refutations > kRefutationsMax) {
    return Invalid("refutations", absl::StrCat(update.version.refutations,
                                               " is above ", kRefutationsMax));
  }
  if (in.state() < 0 || in.state() > static_cast<int>(Liveness::kDead)) {
    return Invalid("state", absl::StrCat(static_cast<int>(in.state()),
                                         " is no state that is known here"));
  }
  update.state = static_cast<Liveness>(in.state());
  ASSIGN_OR_RETURN(update.accuser, IdOf<NodeId>("accuser_id", in.accuser_id()));
  if (update.state == Liveness::kAlive) {
    if (!in.has_profile()) {
      return Invalid("profile", "is missing, of a node that is alive");
    }
    if (!update.accuser.IsNone()) {
      return Invalid("accuser_id", "is set, of a node that is alive");
    }
  }
  if (in.has_profile()) {
    ASSIGN_OR_RETURN(update.profile, ProfileOf(in.profile()));
  }
  return update;
}

template <class Repeated>
absl::StatusOr<std::vector<GossipUpdate>> UpdatesOf(absl::string_view field,
                                                    const Repeated& in,
                                                    size_t max) {
  RETURN_IF_ERROR(CheckCount(field, in.size(), max));
  std::vector<GossipUpdate> updates;
  updates.reserve(static_cast<size_t>(in.size()));
  for (const pb::GossipUpdate& update : in) {
    ASSIGN_OR_RETURN(GossipUpdate one, UpdateOf(update));
    updates.push_back(std::move(one));
  }
  return updates;
}

void ToProto(const GossipPing& ping, pb::GossipMessage& out) {
  pb::GossipPing& to = *out.mutable_ping();
  to.set_sequence(ping.sequence);
  UpdatesToProto(ping.updates, kGossipUpdatesMax, *to.mutable_updates());
}
void ToProto(const GossipRequest& request, pb::GossipMessage& out) {
  pb::GossipRequest& to = *out.mutable_request();
  to.set_sequence(request.sequence);
  to.set_target_id(IdBytes(request.target));
  UpdatesToProto(request.updates, kGossipUpdatesMax, *to.mutable_updates());
}
void ToProto(const GossipAck& ack, pb::GossipMessage& out) {
  pb::GossipAck& to = *out.mutable_ack();
  to.set_sequence(ack.sequence);
  to.set_target_id(IdBytes(ack.target));
  UpdatesToProto(ack.updates, kGossipUpdatesMax, *to.mutable_updates());
}
void ToProto(const GossipNack& nack, pb::GossipMessage& out) {
  out.mutable_nack()->set_sequence(nack.sequence);
}
void ToProto(const GossipExchange& exchange, pb::GossipMessage& out) {
  pb::GossipExchange& to = *out.mutable_exchange();
  to.set_wants_answer(exchange.wants_answer);
  UpdatesToProto(exchange.states, kGossipStatesMax, *to.mutable_states());
}

}  // namespace

void GossipToProto(const GossipMessage& message, pb::GossipMessage& out) {
  std::visit([&](const auto& body) { ToProto(body, out); }, message);
}

absl::StatusOr<GossipMessage> GossipFromProto(const pb::GossipMessage& in) {
  switch (in.body_case()) {
    case pb::GossipMessage::kPing: {
      GossipPing ping;
      ping.sequence = in.ping().sequence();
      ASSIGN_OR_RETURN(ping.updates, UpdatesOf("updates", in.ping().updates(),
                                               kGossipUpdatesMax));
      return ping;
    }
    case pb::GossipMessage::kRequest: {
      GossipRequest request;
      request.sequence = in.request().sequence();
      ASSIGN_OR_RETURN(request.target,
                       SomeIdOf<NodeId>("target_id", in.request().target_id()));
      ASSIGN_OR_RETURN(
          request.updates,
          UpdatesOf("updates", in.request().updates(), kGossipUpdatesMax));
      return request;
    }
    case pb::GossipMessage::kAck: {
      GossipAck ack;
      ack.sequence = in.ack().sequence();
      ASSIGN_OR_RETURN(ack.target,
                       SomeIdOf<NodeId>("target_id", in.ack().target_id()));
      ASSIGN_OR_RETURN(ack.updates, UpdatesOf("updates", in.ack().updates(),
                                              kGossipUpdatesMax));
      return ack;
    }
    case pb::GossipMessage::kNack:
      return GossipNack{in.nack().sequence()};
    case pb::GossipMessage::kExchange: {
      GossipExchange exchange;
      exchange.wants_answer = in.exchange().wants_answer();
      ASSIGN_OR_RETURN(
          exchange.states,
          UpdatesOf("states", in.exchange().states(), kGossipStatesMax));
      return exchange;
    }
    case pb::GossipMessage::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "gossip without a body that this version knows");
}

}  // namespace ringkv
