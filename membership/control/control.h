// The machine of a node's control loop: finds the other nodes, keeps a control
// and a data stream to each, knows who is alive, decides ring epochs with them,
// and answers admin calls. Single-threaded and deterministic: Step() is told
// what happened and what time it is, and appends to ControlEffects what must
// now be done.
//
// Durable before said: whatever depends on a meta write is kept here until the
// loop reports that write fsynced (MetaPersisted); so all effects of a Step may
// be carried out at once and in any order.
//
// Streams. For each pair of nodes there is one control and one data stream. The
// node with the smaller NodeId dials both; the other makes itself known to it
// by a unary Hello. The dialling side's first message on a stream is a
// HelloRequest, the other side's first is the HelloReply; after an accepting
// reply the stream is up for both.
//
// Liveness. A member is alive while gossip says so (membership/gossip) and the
// direct way works: its heartbeats come, it says that it hears ours, and both
// streams are up. Heartbeats are few, whatever the number of nodes; gossip
// finds a failed node faster than they do where there are many. Only local
// monotone time counts; what is decided here steers routing and never changes
// the ring.

#ifndef RINGKV_MEMBERSHIP_CONTROL_CONTROL_H_
#define RINGKV_MEMBERSHIP_CONTROL_CONTROL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/hlc.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "membership/control/admin.h"
#include "membership/control/messages.h"
#include "membership/control/peers.h"
#include "membership/control/start.h"
#include "membership/gossip/gossip.h"
#include "membership/ring/ring.h"

namespace ringkv {

// Heartbeats that a node sends in one round, whatever the number of its peers:
// up to 100 nodes each peer gets one within 10 s at the default interval.
inline constexpr size_t kBeatsPerRound = 5;

struct ControlOptions {
  std::string name;
  // host:port at which clients and peers reach this node.
  std::string client_address;
  std::string peer_address;
  Location location;
  double weight = 1.0;  // 0 < weight <= 64; counts when the node joins a ring
  // Peer addresses to find others at. This node's own may be among them.
  std::vector<std::string> seeds;
  // Shown in status; does not decide compatibility.
  std::string version;
  // The newest ring feature level that this program knows.
  uint32_t feature_level_max = kFeatureLevelMax;
  // Make a ring of this node alone if it has none.
  bool init_single = false;

  // Between probes of gossip, and between rounds of up to kBeatsPerRound
  // heartbeats. Shorter finds failures sooner and costs messages.
  absl::Duration heartbeat_interval = absl::Milliseconds(500);
  // Silence after which a peer is down. Below three intervals a single lost
  // heartbeat can bring it down. A probe asks others after a fifth of it, and
  // suspects after three fifths. With more than kBeatsPerRound peers the
  // silence of heartbeats may be longer in proportion.
  absl::Duration down_after = absl::Seconds(2);
  // Silence after which a stream is closed and dialled anew. No longer than
  // down_after: what a broken stream still holds is of calls that have been
  // given up, and must not arrive once the network heals. Longer in proportion,
  // as above.
  absl::Duration close_after = absl::Seconds(2);
  // Between two full exchanges of what gossip knows, with one node each.
  // Shorter repairs lost news sooner and costs a message of all states each.
  absl::Duration exchange_interval = absl::Seconds(30);
  // A dial or Hello that has not been answered by then has failed.
  absl::Duration connect_timeout = absl::Seconds(3);
  // Waits between attempts to reach a peer or seed: doubled from min to max,
  // with jitter.
  absl::Duration retry_min = absl::Milliseconds(100);
  absl::Duration retry_max = absl::Seconds(2);
  // How long "your node id is alive elsewhere" is borne before the node stops.
  absl::Duration clone_grace = absl::Seconds(10);
  // This node stops coordinating writes when most peers show its clock to be
  // further ahead than this.
  absl::Duration max_clock_drift = absl::Seconds(5);
  // A node that is in no ring and has not been heard from is forgotten after
  // this.
  absl::Duration forget_after = absl::Minutes(10);
  // Ring proposals: messages are repeated, and lost ballots tried again, after
  // about this.
  absl::Duration propose_retry = absl::Milliseconds(300);
  // Calls that change the ring take at most this, whatever their deadline.
  absl::Duration propose_timeout = absl::Seconds(30);
};

// --- Events ---

enum class LinkKind : uint8_t { kControl = 0, kData = 1 };

// The first event of a run.
struct ControlStarted {};

// A unary Hello came in. Answered in the same Step through `hello_answers`.
struct HelloArrived {
  uint64_t call = 0;  // named by the adapter
  HelloRequest request;
};

// A unary Hello of ours (ControlEffects::hellos) was answered or failed.
struct HelloAnswered {
  uint64_t hello = 0;
  absl::StatusOr<HelloReply> reply;
};

// A peer dialled us and said Hello on the new stream. Answered in the same Step
// through `link_answers`: either the stream is up from then, or the adapter
// sends the refusal and closes it (no LinkClosed is expected then).
struct LinkOffered {
  LinkId link = kNoLink;  // named by the adapter, with kInboundLinkBit
  LinkKind kind = LinkKind::kControl;
  HelloRequest request;
};

// A stream that we dialled brought its HelloReply. If Control does not like it,
// it answers with `closes`.
struct LinkAnswered {
  LinkId link = kNoLink;
  HelloReply reply;
};

// A stream has ended, whoever began it, or could not be made. Not expected for
// links that Control closed; harmless for them.
struct LinkClosed {
  LinkId link = kNoLink;
  absl::Status reason;
};

struct ControlArrived {
  LinkId link = kNoLink;
  ControlMessage message;
};

struct AdminArrived {
  uint64_t call = 0;  // named by the adapter
  Instant deadline;
  AdminCall request;
};

// What the shard loops have to report, summed over them; about once a second.
struct LoadReported {
  struct Backlog {
    NodeNumber target{};
    uint64_t hints = 0;
    uint64_t bytes = 0;
    int64_t oldest_ms = 0;  // wall time of the oldest; 0: none
    uint64_t refused = 0;
    uint64_t delivered = 0;
  };
  uint64_t in_flight = 0;
  uint64_t disk_bytes = 0;
  uint64_t keys = 0;
  bool read_only = false;      // below the disk reserve: refuses puts
  std::vector<Backlog> hints;  // one for each target
};

// Every shard loop has adopted this epoch, and committed every batch that it
// began under an older one.
struct EpochAdopted {
  RingEpoch epoch = 0;
};

// What the shard loops receive in the running topology operation, summed over
// them; about once a second while it runs, and when all of it is done.
struct TransfersReported {
  TransferReport report;
};

// A shard met a peer with a newer ring.
struct RingWanted {
  NodeNumber from{};
};

// A loop was refused a timestamp because the clock's bound is too near.
struct ClockBoundLow {};

// All writes with this ticket and below are fsynced.
struct MetaPersisted {
  uint64_t ticket = 0;
};

// From now on say that this node finishes its work and stops.
struct DrainRequested {};

// Time has reached Control::NextTimer().
struct ControlTimer {};

using ControlEvent =
    std::variant<ControlStarted, HelloArrived, HelloAnswered, LinkOffered,
                 LinkAnswered, LinkClosed, ControlArrived, AdminArrived,
                 LoadReported, EpochAdopted, TransfersReported, RingWanted,
                 ClockBoundLow, MetaPersisted, DrainRequested, ControlTimer>;

// --- Effects ---

// Say Hello at an address, once; answer with HelloAnswered.
struct HelloCall {
  uint64_t hello = 0;
  std::string address;
  HelloRequest request;
};

struct HelloAnswer {
  uint64_t call = 0;
  HelloReply reply;
};

// Open a stream; answer with LinkAnswered or LinkClosed.
struct LinkDial {
  LinkId link = kNoLink;
  LinkKind kind = LinkKind::kControl;
  std::string address;
  HelloRequest request;
};

// Send `reply` on an offered stream; close it after that unless it accepts.
struct LinkAnswer {
  LinkId link = kNoLink;
  HelloReply reply;
};

// A link that is gone takes its messages with it.
struct ControlOut {
  LinkId link = kNoLink;
  ControlMessage message;
};

struct AdminOut {
  uint64_t call = 0;
  AdminAnswer answer;
};

enum class LogLevel : uint8_t { kInfo, kWarning, kError };
struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

// The node must end.
struct StopRequest {
  int exit_code = 1;
  std::string message;
};

struct ControlEffects {
  // Write these to kMeta in order, fsync, then report MetaPersisted{ticket}. If
  // a turn has several Steps, the last ticket stands for all. 0: nothing to
  // write.
  std::vector<MetaWrite> writes;
  uint64_t ticket = 0;

  std::vector<HelloCall> hellos;
  std::vector<HelloAnswer> hello_answers;
  std::vector<LinkDial> dials;
  std::vector<LinkAnswer> link_answers;
  std::vector<ControlOut> messages;
  std::vector<AdminOut> answers;
  // After the messages.
  std::vector<LinkId> closes;

  // Give to every shard loop; answer with EpochAdopted. Null: unchanged.
  std::shared_ptr<const Ring> ring;
  // The id of the running topology operation, once no quorum can be formed on
  // an older ring: tell every shard loop to receive what it must; answer with
  // TransfersReported. Comes once in a run, after EpochAdopted of that epoch.
  // 0: nothing new.
  RingEpoch begin_transfers = 0;
  // Null: unchanged.
  std::shared_ptr<const PeerView> peers;
  std::shared_ptr<const AddressView> addresses;
  // Goes with `peers`: false while this node's clock is too far ahead of its
  // peers' for it to coordinate writes.
  bool clock_ok = true;
  // Goes with `peers`: a majority of the members, this node included, is up and
  // has found its disk to be as new as they remember. Before that it does not
  // vote, and what it reads does not count.
  bool checked = false;

  std::vector<LogLine> log;
  std::optional<StopRequest> stop;
};

// For metrics.
struct LivenessStats {
  GossipCounters gossip;
  int health_score = 0;     // of this node, 0 (well) to LocalHealth::kWorst
  uint64_t heartbeats = 0;  // sent
  std::map<NodeNumber, uint64_t> flaps;  // alive to not alive, of each member
};

class Control {
 public:
  // `started.writes` must be durable. Raises `hlc` to `started.hlc_bound`.
  // `hlc` is shared by all loops of the node; both outlive Control.
  Control(ControlOptions options, StartedNode started, Hlc& hlc,
          Random& random);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Advances on one event and appends to `effects`. Requires: `time.now` never
  // goes back (`time.wall` may), and ControlStarted comes first.
  void Step(const ControlEvent& event, Time time, ControlEffects& effects);

  // When to Step with ControlTimer at the latest.
  Instant NextTimer() const;

  const NodeId& id() const;
  uint64_t start_id() const;
  // This node's number in its ring; kNoNode while standby.
  NodeNumber number() const;
  // The newest ring on disk; null while standby.
  std::shared_ptr<const Ring> ring() const;
  // The epoch that all loops have adopted.
  RingEpoch adopted_epoch() const;
  // Heard members and standby nodes, this one not counted.
  size_t peers_alive() const;
  LivenessStats liveness() const;

  // Dies with a message if a structural invariant is broken. For kvsim.
  void CheckInvariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_CONTROL_H_
