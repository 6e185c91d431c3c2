// What the control loop tells the rest of the node about its peers: whom to
// route to, and where they are reached now.

#ifndef RINGKV_MEMBERSHIP_CONTROL_PEERS_H_
#define RINGKV_MEMBERSHIP_CONTROL_PEERS_H_

#include <cstdint>
#include <map>
#include <string>

#include "base/ids.h"
#include "membership/ring/ring.h"

namespace ringkv {

// Names one stream to a peer, within one run of this node. Never 0. Links that
// this node dials are numbered by Control, from 1 up; links that are offered to
// it are numbered by the adapter that accepts them, with this bit set.
using LinkId = uint64_t;
inline constexpr LinkId kNoLink = 0;
inline constexpr LinkId kInboundLinkBit = LinkId{1} << 63;

// What the control loop knows of one member of the ring.
struct PeerHealth {
  // Heartbeats go both ways, both streams are up, and it is not draining.
  bool alive = false;
  uint64_t start_id = 0;       // of its present run; 0 if unknown
  LinkId data_link = kNoLink;  // the stream for data messages, if one is up
  bool operator==(const PeerHealth&) const = default;
};

// Replaced as a whole whenever something changes. Holds every member of the
// ring but this node itself; absent peers are not alive.
using PeerView = std::map<NodeNumber, PeerHealth>;

// Where a member is reached now: what it says of itself, else what the ring
// says.
struct PeerAddresses {
  std::string client_address;
  std::string peer_address;
  bool operator==(const PeerAddresses&) const = default;
};
// Of every member of the ring, this node included. Replaced as a whole.
using AddressView = std::map<NodeNumber, PeerAddresses>;

// `spec` with the addresses of `view` in place of those that the ring was
// decided with; for the snapshots that clients watch.
RingSpec WithAddresses(RingSpec spec, const AddressView& view);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_PEERS_H_
