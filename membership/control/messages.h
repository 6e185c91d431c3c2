// What nodes say to each other about membership, as plain structs. Field by
// field the same as proto/ringkv/internal/v1/control.proto, whose decoder
// (server/codec/control_codec.h) has checked sizes, enums and ranges, nothing
// more.

#ifndef RINGKV_MEMBERSHIP_CONTROL_MESSAGES_H_
#define RINGKV_MEMBERSHIP_CONTROL_MESSAGES_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/hlc.h"
#include "base/ids.h"
#include "membership/gossip/messages.h"
#include "membership/ring/ring.h"

namespace ringkv {

// The versions of the node-to-node protocol that this build speaks.
inline constexpr uint32_t kProtocolMin = 1;
inline constexpr uint32_t kProtocolMax = 1;
// The newest ring feature level that this build knows.
inline constexpr uint32_t kFeatureLevelMax = 1;

// Bounds of what is taken from a peer.
inline constexpr size_t kKnownPeersMax = 1024;
inline constexpr size_t kHintTargetsMax = 256;
inline constexpr size_t kSilentMax = 1024;
inline constexpr size_t kControlTextBytesMax = 4096;
inline constexpr size_t kProposalHistoryMax = 32;
// Longest time between two heartbeats that a peer may announce.
inline constexpr uint64_t kNextHeartbeatMicrosMax = 3'600'000'000;

// --- Handshake ---

// What a node says of itself.
struct NodeFacts {
  NodeId id;
  // None while the node is standby (in no ring).
  ClusterId cluster_id;
  uint64_t lineage = 0;
  // Of its ring (RingSpec).
  std::vector<uint64_t> former_lineages;
  NodeNumber number{};
  RingEpoch ring_epoch = 0;
  // Starts of its data directory so far, this one included; on disk.
  uint64_t incarnation = 0;
  // Random, of this run.
  uint64_t start_id = 0;
  // No timestamp above it was given so far; on disk.
  HlcTimestamp hlc_bound{};
  // The bound that this run found on its disk. Below what the node has shown
  // before, the disk is an older copy. 0: not told (or a first start).
  HlcTimestamp hlc_found{};
  uint32_t protocol_min = kProtocolMin;
  uint32_t protocol_max = kProtocolMax;
  uint32_t feature_level_max = kFeatureLevelMax;
  std::string name;
  std::string client_address;
  std::string peer_address;
  Location location;
  double weight = 1.0;
  std::string version;
  bool operator==(const NodeFacts&) const = default;
};

// A node that somebody has heard of.
struct KnownPeer {
  NodeId id;
  std::string peer_address;
  bool operator==(const KnownPeer&) const = default;
};

// The first thing said: alone to an address (discovery), and as the first
// message on each stream, by the side that dials.
struct HelloRequest {
  NodeFacts from;
  // Whom the caller means to reach; none: whoever lives at the address.
  NodeId expected;
  std::vector<KnownPeer> known;
  bool operator==(const HelloRequest&) const = default;
};

// Values are on the wire.
enum class HelloOutcome : uint8_t {
  kAccepted = 0,
  kForeignCluster = 1,  // another cluster id or lineage
  kProtocol = 2,        // no common protocol version
  kClone = 3,           // this node id is alive from another run
  kDeparted = 4,        // this number left the ring for good
  kOldDisk = 5,         // incarnation or clock bound is older than remembered
  kWrongNode = 6,       // somebody else lives at this address
  kSelf = 7,            // the caller has reached itself
  kRefused = 8,         // anything else; the message says what
};

struct HelloReply {
  HelloOutcome outcome = HelloOutcome::kAccepted;
  std::string message;  // why not, for people
  NodeFacts from;
  std::vector<KnownPeer> known;
  // kClone: the incarnation that is alive.
  uint64_t live_incarnation = 0;
  bool operator==(const HelloReply&) const = default;
};

// --- Control stream ---

struct HintLoad {
  NodeNumber target{};
  uint64_t hints = 0;
  uint64_t bytes = 0;
  uint64_t oldest_age_ms = 0;
  uint64_t refused = 0;    // since the holder's start
  uint64_t delivered = 0;  // since the holder's start
  bool operator==(const HintLoad&) const = default;
};

// How far a node is with what it receives in a running topology operation.
struct TransferReport {
  RingEpoch operation = 0;  // TopologyOperation::id; 0: no such
  uint64_t ranges = 0;
  uint64_t ranges_done = 0;  // verified and fsynced
  uint64_t keys = 0;         // taken over so far
  uint64_t bytes = 0;
  // All ranges are done: the node may be read in them.
  bool done = false;
  bool operator==(const TransferReport&) const = default;
};

struct LoadSummary {
  uint64_t in_flight = 0;
  uint64_t disk_bytes = 0;
  uint64_t keys = 0;
  bool read_only = false;
  // By target; the largest kHintTargetsMax backlogs.
  std::vector<HintLoad> hints;
  // All loops had adopted this epoch before the above was measured.
  RingEpoch epoch = 0;
  bool operator==(const LoadSummary&) const = default;
};

// What a node tells each peer directly: what must come from itself, and what
// shows that both directions of the link work. Whether it is alive is found out
// by gossip.
struct Heartbeat {
  uint64_t incarnation = 0;
  uint64_t start_id = 0;
  // Counts the sender's heartbeats in this run, to all peers together, from 1.
  uint64_t sequence = 0;
  // The receiver's newest heartbeat that the sender has got on any stream of
  // this run of the receiver, and how long before sending; 0: none yet.
  uint64_t echo_sequence = 0;
  uint64_t echo_delay_micros = 0;
  // The sender counts the receiver as heard.
  bool hears_you = false;
  // The sender's next one to the receiver comes within this; 0: not told.
  uint64_t next_micros = 0;
  ClusterId cluster_id;
  uint64_t lineage = 0;
  NodeNumber number{};
  // Newest ring on the sender's disk, and the one that all its loops have
  // adopted.
  RingEpoch known_epoch = 0;
  RingEpoch adopted_epoch = 0;
  int64_t wall_micros = 0;
  HlcTimestamp hlc{};
  HlcTimestamp hlc_bound{};
  bool draining = false;
  // The `init` that the sender leads at this moment; none: no such.
  ClusterId init;
  LoadSummary load;
  // Of the running topology operation.
  TransferReport transfers;
  // Members that the sender does not hear, by number; at most kSilentMax.
  std::vector<NodeNumber> silent;
  bool operator==(const Heartbeat&) const = default;
};

// Asks for the receiver's newest ring if it is newer than `have_epoch`.
struct RingFetch {
  RingEpoch have_epoch = 0;
  bool operator==(const RingFetch&) const = default;
};

// Names one proposal, so that its proposer knows it again whoever completes it.
struct ProposalId {
  uint64_t start_id = 0;
  uint64_t counter = 0;
  auto operator<=>(const ProposalId&) const = default;
};

struct DecidedProposal {
  RingEpoch epoch = 0;
  ProposalId id;
  bool operator==(const DecidedProposal&) const = default;
};

// A decided ring (encoded as membership/ring/ring_codec.h does), with the
// proposals that made the newest epochs, up to kProposalHistoryMax, oldest
// first.
struct RingDecided {
  RingEpoch epoch = 0;
  std::string ring;
  std::vector<DecidedProposal> history;
  bool operator==(const RingDecided&) const = default;
};

// Orders attempts to decide one epoch. Never used for two values: the start id
// is of the proposer's run, which counts its rounds up. Round 0 is "none".
struct Ballot {
  uint64_t round = 0;
  NodeNumber proposer{};
  uint64_t start_id = 0;
  auto operator<=>(const Ballot&) const = default;
  bool IsNone() const { return round == 0; }
};

// What Paxos decides: the encoded ring of the next epoch, and whose proposal.
struct PaxosValue {
  ProposalId id;
  std::string ring;
  bool operator==(const PaxosValue&) const = default;
};

struct PaxosPrepare {
  RingEpoch epoch = 0;  // to be decided; the voters are those of epoch - 1
  Ballot ballot;
  bool operator==(const PaxosPrepare&) const = default;
};

struct PaxosPromise {
  RingEpoch epoch = 0;
  Ballot ballot;  // of the prepare
  bool granted = false;
  Ballot promised;   // if refused: the higher one
  Ballot accepted;   // none: nothing accepted yet
  PaxosValue value;  // if accepted
  RingEpoch known_epoch = 0;
  // Freshly raised, and durable with what was promised: a disk that has
  // forgotten the promise shows a lower one. 0: nothing was promised.
  HlcTimestamp hlc_bound{};
  bool operator==(const PaxosPromise&) const = default;
};

struct PaxosAccept {
  RingEpoch epoch = 0;
  Ballot ballot;
  PaxosValue value;
  bool operator==(const PaxosAccept&) const = default;
};

struct PaxosAccepted {
  RingEpoch epoch = 0;
  Ballot ballot;  // of the accept
  bool granted = false;
  Ballot promised;  // if refused: the higher one
  RingEpoch known_epoch = 0;
  HlcTimestamp hlc_bound{};  // as in PaxosPromise
  bool operator==(const PaxosAccepted&) const = default;
};

// `init`: every node that was found promises to be in no other ring than the
// one that this init decides, until it is released from that.
struct InitPrepare {
  ClusterId init;         // the id that the cluster will have
  uint64_t sequence = 0;  // the sender's newest heartbeat
  bool operator==(const InitPrepare&) const = default;
};

struct InitVote {
  ClusterId init;
  bool granted = false;
  std::string message;  // why not
  bool operator==(const InitVote&) const = default;
};

struct InitRelease {
  ClusterId init;
  bool operator==(const InitRelease&) const = default;
};

using ControlMessage =
    std::variant<Heartbeat, RingFetch, RingDecided, PaxosPrepare, PaxosPromise,
                 PaxosAccept, PaxosAccepted, InitPrepare, InitVote, InitRelease,
                 GossipMessage>;

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_MESSAGES_H_
