// What nodes tell each other about who is alive, as plain structs. Field by
// field the same as proto/ringkv/internal/v1/gossip.proto, whose decoder
// (server/codec/gossip_codec.h) has checked sizes, enums and ranges.

#ifndef RINGKV_MEMBERSHIP_GOSSIP_MESSAGES_H_
#define RINGKV_MEMBERSHIP_GOSSIP_MESSAGES_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "membership/ring/ring.h"

namespace ringkv {

// Updates in one message, the sender's own state included: bounds what gossip
// costs, whatever goes on in the cluster.
inline constexpr size_t kGossipUpdatesMax = 8;
// States in one full exchange: every peer that a node may know, and itself.
inline constexpr size_t kGossipStatesMax = 1025;
// Far above what a node refutes in its life; so that one more always fits.
inline constexpr uint64_t kRefutationsMax = uint64_t{1} << 48;

// Values are on the wire.
enum class Liveness : uint8_t {
  kAlive = 0,
  kSuspect = 1,  // did not answer somebody; may still refute
  kDead = 2,     // did not refute in time
};

// Which claim about a node is newer. `incarnation` counts its starts, and only
// the node itself raises `refutations`, above every claim that it denies.
struct NodeVersion {
  uint64_t incarnation = 0;
  uint64_t refutations = 0;
  auto operator<=>(const NodeVersion&) const = default;
};

// What a node says of itself beside being alive.
struct NodeProfile {
  // Counts the changes of the rest within one incarnation: the greater is
  // newer.
  uint64_t serial = 0;
  uint64_t start_id = 0;
  ClusterId cluster_id;  // none while standby
  NodeNumber number{};
  std::string name;
  std::string client_address;
  std::string peer_address;
  Location location;
  RingEpoch ring_epoch = 0;  // newest on its disk
  bool draining = false;
  uint64_t in_flight = 0;
  uint64_t disk_bytes = 0;
  bool read_only = false;  // below the disk reserve
  bool operator==(const NodeProfile&) const = default;
};

// A claim about one node.
struct GossipUpdate {
  NodeId id;
  NodeVersion version;
  Liveness state = Liveness::kAlive;
  // Who found it unresponsive; none with kAlive.
  NodeId accuser;
  // Always with kAlive; with others in full exchanges.
  std::optional<NodeProfile> profile;
  bool operator==(const GossipUpdate&) const = default;
};

// Wants a GossipAck. As in the other messages the first update is the sender's
// own state.
struct GossipPing {
  uint64_t sequence = 0;
  std::vector<GossipUpdate> updates;
  bool operator==(const GossipPing&) const = default;
};

// Asks the receiver to ping `target` for the sender.
struct GossipRequest {
  uint64_t sequence = 0;
  NodeId target;
  std::vector<GossipUpdate> updates;
  bool operator==(const GossipRequest&) const = default;
};

// `target` answered: the sender itself, or whom it was asked to ping.
struct GossipAck {
  uint64_t sequence = 0;  // of the ping or request
  NodeId target;
  std::vector<GossipUpdate> updates;
  bool operator==(const GossipAck&) const = default;
};

// The target of a request has not answered so far. Tells the asker that its own
// links work.
struct GossipNack {
  uint64_t sequence = 0;
  bool operator==(const GossipNack&) const = default;
};

// All that the sender knows.
struct GossipExchange {
  bool wants_answer = false;
  std::vector<GossipUpdate> states;
  bool operator==(const GossipExchange&) const = default;
};

using GossipMessage = std::variant<GossipPing, GossipRequest, GossipAck,
                                   GossipNack, GossipExchange>;

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_GOSSIP_MESSAGES_H_
