// Gossip in Control: what the machine in membership/gossip is told, and what
// follows from what it says. It goes over the control streams; a node becomes a
// member of it when its handshake was accepted on one, never by hearsay.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mark.h"
#include "membership/control/control_impl.h"

namespace ringkv {

NodeProfile Control::Impl::OwnProfile() const {
  NodeProfile profile;
  profile.start_id = start_id_;
  if (ring_ != nullptr) {
    profile.cluster_id = ring_->spec().cluster_id;
    profile.ring_epoch = ring_->epoch();
  }
  profile.number = number_;
  profile.name = options_.name;
  profile.client_address = options_.client_address;
  profile.peer_address = options_.peer_address;
  profile.location = options_.location;
  profile.draining = draining_;
  profile.in_flight = load_.in_flight;
  profile.disk_bytes = load_.disk_bytes;
  profile.read_only = load_.read_only;
  return profile;
}

void Control::Impl::MetPeer(Peer& peer) {
  const NodeFacts& facts = *peer.facts;
  NodeProfile profile;
  profile.start_id = facts.start_id;
  profile.cluster_id = facts.cluster_id;
  profile.number = facts.number;
  profile.name = facts.name;
  profile.client_address = facts.client_address;
  profile.peer_address = facts.peer_address;
  profile.location = facts.location;
  profile.ring_epoch = facts.ring_epoch;
  GossipEffects effects;
  gossip_.Met(peer.id, facts.incarnation, std::move(profile), time_.now,
              effects);
  CarryOut(effects);
}

void Control::Impl::ForgetPeer(const NodeId& id) {
  seen_.erase(id);
  fetched_.erase(id);
  gossip_.Forget(id);
}

void Control::Impl::Take(Peer& peer, const GossipMessage& message) {
  GossipEffects effects;
  gossip_.Receive(peer.id, message, time_.now, effects);
  CarryOut(effects);
}

void Control::Impl::TickGossip() {
  gossip_.SetSelf(OwnProfile());
  if (gossip_.NextTimer() > time_.now) return;
  GossipEffects effects;
  gossip_.Tick(time_.now, effects);
  CarryOut(effects);
}

void Control::Impl::CarryOut(GossipEffects& effects) {
  for (GossipOut& out : effects.messages) {
    if (Peer* const to = FindPeer(out.to); to != nullptr) {
      Send(*to, std::move(out.message));
    }
  }
  for (const GossipEvent& event : effects.events) {
    std::visit([this](const auto& body) { On(body); }, event);
  }
}

std::string Control::Impl::NameOfNode(const NodeId& id) const {
  if (id == id_) return "this node";
  const auto found = peers_.find(id);
  return found == peers_.end() ? absl::StrCat("node ", id.ToString())
                               : Called(found->second);
}

void Control::Impl::On(const GossipStateChanged& event) {
  views_stale_ = true;
  if (event.to == Liveness::kSuspect) {
    Log(LogLevel::kInfo,
        absl::StrCat(NameOfNode(event.id), " is suspected: ",
                     NameOfNode(event.accuser), " gets no answer from it"));
  } else if (event.to == Liveness::kDead) {
    Log(LogLevel::kWarning,
        absl::StrCat(NameOfNode(event.id),
                     " is taken for dead: it did not deny that in time"));
  } else if (event.from != Liveness::kAlive) {
    Log(LogLevel::kInfo,
        absl::StrCat(NameOfNode(event.id), " denies that it is ",
                     event.from == Liveness::kDead ? "dead" : "suspect"));
  }
}

void Control::Impl::On(const GossipLinkDoubted& event) {
  views_stale_ = true;
  Log(event.doubted ? LogLevel::kWarning : LogLevel::kInfo,
      event.doubted
          ? absl::StrCat("others reach ", NameOfNode(event.id),
                         ", this node does not: the way between them is broken")
          : absl::StrCat("the way to ", NameOfNode(event.id), " works again"));
}

void Control::Impl::On(const GossipHearsay& event) {
  const NodeProfile& profile = event.profile;
  if (ring_ != nullptr && !profile.cluster_id.IsNone()) {
    if (profile.cluster_id != ring_->spec().cluster_id) return;
    // Who left for good stays away, however long its name goes round.
    if (std::binary_search(ring_->spec().departed.begin(),
                           ring_->spec().departed.end(), profile.number)) {
      RINGKV_MARK("hearsay-of-a-departed-node");
      return;
    }
  }
  // To be dialled; nothing is believed of it before its handshake.
  TakeKnown({{event.id, profile.peer_address}});
}

void Control::Impl::On(const GossipRefuted& event) {
  Log(LogLevel::kInfo,
      absl::StrCat(NameOfNode(event.accuser),
                   " got no answer from this node, which now denies that it is "
                   "dead"));
}

void Control::Impl::On(const GossipRingSeen& event) {
  const RingEpoch known =
      std::max(learning_, ring_ == nullptr ? 0 : ring_->epoch());
  if (event.epoch <= known) return;
  if (Peer* const peer = FindPeer(event.teller); peer != nullptr) {
    FetchRing(*peer);
  }
}

bool Control::Impl::IsVouchedFor(const Peer& peer) const {
  return GossipAgainst(peer).empty();
}

std::string Control::Impl::GossipAgainst(const Peer& peer) const {
  const Gossip::Member* const member = gossip_.Find(peer.id);
  if (member == nullptr) return "it has not been met";
  if (member->link_doubted) return "others reach it, this node does not";
  switch (member->state) {
    case Liveness::kAlive:
      return "";
    case Liveness::kSuspect:
      // What this node heard itself since then counts for more.
      if (member->direct.has_value() && *member->direct > member->since) {
        RINGKV_MARK("suspect-heard-directly");
        return "";
      }
      return "it is suspected: it does not answer";
    case Liveness::kDead:
      break;
  }
  return "it does not answer anybody";
}

}  // namespace ringkv
