// Decides which of the nodes that this one has met are alive, together with
// them: SWIM with the refinements of Lifeguard. Single-threaded and
// deterministic: it is told what came and what time it is, and appends to
// GossipEffects what is to be sent and what has changed. What it decides steers
// routing and never changes the ring.
//
//            probe failed, or told so             no refutation in time
//   alive ------------------------------> suspect --------------------> dead
//     ^                                      |                            |
//     +----- a higher version, from the node itself or passed on ---------+
//
// Each probe interval one node is pinged; if it does not answer, a few others
// are asked to ping it; if none of them reaches it, it is suspected. What
// changes rides on these messages, each change a bounded number of times, so
// that a node's traffic does not depend on the number of nodes. Now and then
// all that is known is exchanged with one other node.
//
// Only nodes that were met (a handshake both ways) are members here; hearsay of
// others is reported, so that they may be dialled, and not passed on.
//
// Only local monotonic time is used. A pause of this node itself accuses
// nobody.
//
// Invariant: a member's version only grows, and within one version its state
// only goes from alive over suspect to dead.
//
// Sources: Das, Gupta, Motivala, "SWIM: Scalable Weakly-consistent
// Infection-style Process Group Membership Protocol", DSN 2002; Dadgar,
// Phillips, Currey, "Lifeguard", DSN 2018.

#ifndef RINGKV_MEMBERSHIP_GOSSIP_GOSSIP_H_
#define RINGKV_MEMBERSHIP_GOSSIP_GOSSIP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "membership/gossip/lifeguard.h"
#include "membership/gossip/messages.h"
#include "membership/gossip/update_queue.h"

namespace ringkv {

struct GossipOptions {
  // One node is probed each. Shorter finds failures sooner and costs messages.
  absl::Duration probe_interval = absl::Milliseconds(500);
  // Silence of the probed node after which others are asked; a node whose
  // answers take longer is not accused for that alone. Below a few round trips
  // every probe needs help.
  absl::Duration ack_timeout = absl::Milliseconds(400);
  // Since the ping; after that the node is suspected. Probes may overlap, so
  // this may be longer than the interval.
  absl::Duration verdict_timeout = absl::Milliseconds(1200);
  // How many others are asked.
  size_t indirect_probes = 3;
  // Between full exchanges: bounds how long a lost update stays unknown. Costs
  // a message of all states each.
  absl::Duration exchange_interval = absl::Seconds(30);
};

// --- Effects ---

struct GossipOut {
  NodeId to;
  GossipMessage message;
};

// What is held of a member has changed. `to` equal to `from`: it was started
// anew.
struct GossipStateChanged {
  NodeId id;
  Liveness from = Liveness::kAlive;
  Liveness to = Liveness::kAlive;
  NodeId accuser;  // who found it unresponsive
};

// Others reach the member and this node does not, or no longer so.
struct GossipLinkDoubted {
  NodeId id;
  bool doubted = false;
};

// Somebody knows a living node that this one has not met, or a newer run of one
// that it has.
struct GossipHearsay {
  NodeId id;
  NodeId teller;
  NodeProfile profile;
};

// This node was accused and has denied it.
struct GossipRefuted {
  NodeId accuser;
};

// `teller` or one that it knows has a newer ring than any member before.
struct GossipRingSeen {
  RingEpoch epoch = 0;
  NodeId teller;
};

using GossipEvent = std::variant<GossipStateChanged, GossipLinkDoubted,
                                 GossipHearsay, GossipRefuted, GossipRingSeen>;

struct GossipEffects {
  std::vector<GossipOut> messages;
  std::vector<GossipEvent> events;
};

// For operators; since the start.
struct GossipCounters {
  uint64_t probes = 0;
  uint64_t probes_indirect = 0;  // needed the help of others
  uint64_t probes_failed = 0;
  uint64_t suspicions = 0;  // of members by anybody
  uint64_t deaths = 0;
  uint64_t refutations = 0;  // of this node
  uint64_t messages = 0;     // sent
};

class Gossip {
 public:
  struct Member {
    NodeVersion version;
    Liveness state = Liveness::kAlive;
    Instant since;  // of state
    NodeProfile profile;
    Instant profile_at;  // when the profile came, or the member confirmed it
    // Last message of its present run from itself; none: none since it was met.
    std::optional<Instant> direct;
    // There is a stream to it.
    bool reachable = false;
    // Others reach it, this node does not.
    bool link_doubted = false;
    // How often it went from alive to suspect.
    uint64_t flaps = 0;

    // Of a suspect.
    std::set<NodeId> accusers;
    Instant suspected;  // when the suspicion began
    Instant deadline;
    // When this node makes sure that it missed no refutation.
    Instant recheck;
    // Pings in a row that only others could get answered.
    int missed = 0;
    Instant next_accusation;  // when it may next be told that it is accused
  };

  // `random` outlives the machine. `id` is this node's, `incarnation` counts
  // its starts.
  Gossip(GossipOptions options, NodeId id, uint64_t incarnation,
         Random& random);

  // Says what this node tells of itself; `serial` is set here.
  void SetSelf(NodeProfile profile);

  // `id` was met: it answered a handshake in run `incarnation`. Makes it a
  // member, or a member of that run; one that is taken for dead is told so, and
  // may refute.
  void Met(const NodeId& id, uint64_t incarnation, NodeProfile profile,
           Instant now, GossipEffects& effects);
  // Whether messages to the member have a way.
  void SetReachable(const NodeId& id, bool reachable);
  // Anything came from the member itself.
  void Heard(const NodeId& id, Instant now, GossipEffects& effects);
  void Forget(const NodeId& id);

  // `from` sent `message`. What is not of a member is ignored.
  void Receive(const NodeId& from, const GossipMessage& message, Instant now,
               GossipEffects& effects);
  // Does what is due. Requires: `now` never goes back over all calls.
  void Tick(Instant now, GossipEffects& effects);
  // When to Tick at the latest; later than the last `now`.
  Instant NextTimer() const;

  // Null: never met, or forgotten. Valid until the next change.
  const Member* Find(const NodeId& id) const;
  // Members and this node, those that are dead not counted.
  size_t living() const { return members_.size() - dead_ + 1; }
  size_t members() const { return members_.size(); }
  const NodeVersion& version() const { return version_; }
  int health_score() const { return health_.score(); }
  const GossipCounters& counters() const { return counters_; }

  // Dies with a message if a structural invariant is broken.
  void CheckInvariants() const;

 private:
  struct Probe {
    NodeId target;
    Instant pinged;   // last
    Instant ask_at;   // others, unless it answered
    Instant ends_at;  // with a verdict
    bool asked = false;
    // Only tells whether the direct way works again: gets no verdict.
    bool link_only = false;
    bool answered_by_others = false;
    std::set<NodeId> asked_nodes;
    std::set<NodeId> nacks;  // of these
  };
  // A ping that was sent for somebody else.
  struct Relay {
    NodeId asker;
    uint64_t sequence = 0;  // the asker's
    NodeId target;
    Instant nack_at;
    bool nacked = false;
    Instant ends_at;
  };

  void Notice(Instant now);
  void Rest(Instant now);
  void Take(const NodeId& from, const GossipPing& ping, Instant now,
            GossipEffects& effects);
  void Take(const NodeId& from, const GossipRequest& request, Instant now,
            GossipEffects& effects);
  void Take(const NodeId& from, const GossipAck& ack, Instant now,
            GossipEffects& effects);
  void Take(const NodeId& from, const GossipNack& nack, Instant now,
            GossipEffects& effects);
  void Take(const NodeId& from, const GossipExchange& exchange, Instant now,
            GossipEffects& effects);

  void Learn(const NodeId& from, const GossipUpdate& update, Instant now,
             GossipEffects& effects);
  void LearnOfSelf(const GossipUpdate& update, GossipEffects& effects);
  void LearnProfile(const NodeId& from, const NodeId& id, Member& member,
                    const NodeProfile& profile, Instant now,
                    GossipEffects& effects);
  void TakeVersion(const NodeId& id, Member& member, NodeVersion version,
                   GossipEffects& effects);
  void BecomeAlive(const NodeId& id, Member& member, NodeVersion version,
                   Instant now, GossipEffects& effects);
  void Suspect(const NodeId& id, Member& member, NodeVersion version,
               const NodeId& accuser, Instant now, GossipEffects& effects);
  void BecomeDead(const NodeId& id, Member& member, NodeVersion version,
                  const NodeId& accuser, Instant now, GossipEffects& effects);
  void Change(const NodeId& id, Member& member, Liveness to, Instant now,
              const NodeId& accuser, GossipEffects& effects);
  SuspicionOptions Options() const;
  void SetDeadline(Member& member);
  // Most others seem not to live: more likely it is this node that is cut off.
  bool SeemsCutOff() const {
    return suspects_.size() + dead_ > members_.size() / 2;
  }
  GossipUpdate UpdateOf(const NodeId& id, const Member& member,
                        bool with_profile) const;
  GossipUpdate OwnUpdate() const;
  std::vector<GossipUpdate> UpdatesFor(const NodeId& to);
  void Send(const NodeId& to, GossipMessage message, GossipEffects& effects);

  void BeginProbe(const NodeId& target, bool link_only, Instant now,
                  GossipEffects& effects);
  void AskOthers(uint64_t sequence, Probe& probe, GossipEffects& effects);
  void EndProbe(const Probe& probe, Instant now, GossipEffects& effects);
  // The target of unanswered probes was heard.
  void PingAgain(const NodeId& id, Instant now, GossipEffects& effects);
  bool IsProbed(const NodeId& id) const;
  void MissedLink(const NodeId& id, Member& member, GossipEffects& effects);
  void LinkWorks(const NodeId& id, Member& member, GossipEffects& effects);
  std::optional<NodeId> NextTarget();
  void TickProbes(Instant now, GossipEffects& effects);
  void TickRelays(Instant now, GossipEffects& effects);
  void TickSuspects(Instant now, GossipEffects& effects);
  void TickExchange(Instant now, GossipEffects& effects);
  // Members that `wanted` says true of, `count` of them, by chance.
  template <class Wanted>
  std::vector<NodeId> Choose(size_t count, const Wanted& wanted);
  absl::Duration Jittered(absl::Duration span);
  std::vector<GossipUpdate> AllStates() const;

  const GossipOptions options_;
  const NodeId id_;
  Random& random_;

  NodeVersion version_;
  NodeProfile self_;
  std::map<NodeId, Member> members_;
  std::set<NodeId> suspects_;  // members that are suspect
  std::set<NodeId> doubted_;   // whose link missed a ping or more
  // Of the message being handled: whom it accuses of what was refuted.
  std::set<NodeId> outdated_;
  size_t dead_ = 0;
  UpdateQueue queue_;
  LocalHealth health_;
  RingEpoch newest_epoch_ = 0;
  GossipCounters counters_;

  std::vector<NodeId> order_;  // of probing; every member once
  size_t next_in_order_ = 0;
  uint64_t sequence_ = 0;
  std::map<uint64_t, Probe> probes_;
  std::map<uint64_t, Relay> relays_;
  Instant next_probe_ = Instant::Infinite();
  Instant next_exchange_ = Instant::Infinite();
  // Of the last call.
  Instant now_;
  Instant next_timer_ = Instant::Infinite();
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_GOSSIP_GOSSIP_H_
