// The inside of Control. One object, since its parts share the tables of peers
// and links; one file for each conversation:
//   control.cc    dispatch, timers, the outbox of what waits for the disk
//   links.cc      discovery, handshake, streams
//   heartbeats.cc direct liveness, clocks, what the shards are told about peers
//   gossiping.cc  what gossip is told, and what it says
//   rings.cc      ring epochs: learning, voting, proposing
//   topology.cc   operations that change who holds what, from START to FINISH
//   operations.cc what operators ask of them and are told
//   recovery.cc   the ring after the loss of a majority
//   upgrade.cc    feature levels
//   init.cc       the first ring
//   status.cc     what is told to operators

#ifndef RINGKV_MEMBERSHIP_CONTROL_CONTROL_IMPL_H_
#define RINGKV_MEMBERSHIP_CONTROL_CONTROL_IMPL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "membership/control/control.h"
#include "membership/control/liveness.h"
#include "membership/epochs/acceptor.h"
#include "membership/epochs/proposer.h"
#include "membership/epochs/ring_change.h"

namespace ringkv {

class Control::Impl {
 public:
  Impl(ControlOptions options, StartedNode started, Hlc& hlc, Random& random);

  void Step(const ControlEvent& event, Time time, ControlEffects& effects);
  Instant NextTimer() const { return next_timer_; }

  const NodeId& id() const { return id_; }
  uint64_t start_id() const { return start_id_; }
  NodeNumber number() const { return number_; }
  std::shared_ptr<const Ring> ring() const { return ring_; }
  RingEpoch adopted_epoch() const { return adopted_epoch_; }
  size_t peers_alive() const;
  LivenessStats liveness() const;
  void CheckInvariants() const;

 private:
  // One stream to one peer, as this side knows it.
  struct Stream {
    enum class State { kNone, kDialling, kUp };
    State state = State::kNone;
    LinkId link = kNoLink;
    uint64_t start_id = 0;  // of the peer's run, once up
    Instant since;          // of the state
    // Of dialling, if this node is the one that dials.
    Instant next_attempt;
    absl::Duration backoff = absl::ZeroDuration();
  };

  struct Peer {
    NodeId id;
    // From the newest accepted handshake.
    std::optional<NodeFacts> facts;
    // To try, most trusted first; never empty. `attempt` rotates through them.
    std::vector<std::string> addresses;
    size_t attempt = 0;
    Stream streams[2];  // by LinkKind
    // Hellos to a peer that is to dial us.
    Instant next_hello;
    absl::Duration hello_backoff = absl::ZeroDuration();
    Instant known_since;

    // Of its present run, as heartbeats tell.
    std::optional<Heartbeat> beat;
    Instant last_beat;          // of this run; meaningless without `beat`
    bool beat_on_link = false;  // one came on the present control stream
    std::optional<Instant> last_heard;              // ever
    std::deque<std::pair<uint64_t, Instant>> sent;  // heartbeats, by sequence
    bool was_heard = false;
    Instant next_beat;  // when it is due its next heartbeat

    bool alive = false;
    uint64_t flaps = 0;  // from alive to not alive, drains not counted
    std::optional<Instant> well_since;  // all conditions but damping hold
    std::optional<Instant> down_since;  // it was alive before
    FlapDamping damping;
    ClockOffset clock;
    DeliveryRates rates;

    Stream& stream(LinkKind kind) { return streams[static_cast<int>(kind)]; }
    const Stream& stream(LinkKind kind) const {
      return streams[static_cast<int>(kind)];
    }
    bool IsUp(LinkKind kind) const {
      return stream(kind).state == Stream::State::kUp;
    }
  };

  struct Seed {
    std::string address;
    bool is_self = false;
    std::optional<NodeId> found;
    Instant next_attempt;
    absl::Duration backoff = absl::ZeroDuration();
  };

  // A unary Hello that has not been answered.
  struct PendingHello {
    std::optional<size_t> seed;  // index into seeds_
    std::optional<NodeId> peer;
    Instant deadline;
  };

  // Somebody says that our node id is alive in another run.
  struct CloneReport {
    Instant since;
    Instant last;
    int count = 0;
    uint64_t live_incarnation = 0;
  };

  struct LinkOwner {
    NodeId peer;
    LinkKind kind = LinkKind::kControl;
  };

  // A change of the ring that an operator waits for, or the next step of the
  // running operation.
  struct PendingChange {
    std::optional<uint64_t> call;  // none: nobody waits
    Instant deadline;
    RingChange change;
    OperationPlan plan;  // of a TopologyRequest
    // Of the proposal that carries it now; zero: not yet proposed.
    ProposalId proposal;
    RingEpoch proposed_for = 0;
    bool value_sent = false;  // an acceptor may hold it
  };

  // An answer that is given once the loops of this node have adopted an epoch,
  // and, unless that takes too long, those of every member that is alive: so
  // that the next request on any node finds what the operator was told.
  struct AwaitedAdoption {
    RingEpoch epoch = 0;
    Instant give_up;
    AdminOut out;
  };

  // What this node knows of how far the present step of the running operation
  // is. Facts only grow: a node that acknowledged an epoch never goes back, and
  // what it reported as received is on its disk.
  struct StepProgress {
    RingEpoch ring_epoch = 0;     // of the ring that this is about
    RingEpoch barrier_epoch = 0;  // to be acknowledged
    std::set<NodeNumber> acknowledged;
    bool barrier_reached = false;
    std::vector<NodeNumber> receivers;
    std::set<NodeNumber> received;  // of these
    // Since when this node sees that the next step may be taken.
    std::optional<Instant> ready_since;
  };

  // An operation as it is remembered.
  struct KnownOperation {
    TopologyOperation operation;
    OperationStatus status;  // without what changes; progress as at the switch
    Instant since;
  };

  // The `init` that this node leads.
  struct InitRun {
    // kVoting: every node found is asked for its promise. kWaiting: one
    // refused; tried again soon. kCommitting: all promised, the ring is on its
    // way to the disk, and from there on it cannot be given up. kSpreading: the
    // others get it.
    enum class Phase { kWaiting, kVoting, kCommitting, kSpreading };
    uint64_t call = 0;
    InitCall request;
    Instant deadline;
    Phase phase = Phase::kWaiting;
    ClusterId init;  // of this attempt
    std::vector<NodeId> nodes;
    std::set<NodeId> granted;
    Instant timer;      // next repeat or attempt
    Instant phase_end;  // of kVoting and kSpreading
    int attempts = 0;
    std::string last_refusal;
  };

  // --- control.cc ---
  void Handle(const ControlStarted&);
  void Handle(const AdminArrived& event);
  void Handle(const LoadReported& event);
  void Handle(const ClockBoundLow&);
  void Handle(const MetaPersisted& event);
  void Handle(const DrainRequested&);
  void Handle(const ControlTimer&) {}
  void Handle(const ControlArrived& event);
  void Tick();
  void ComputeNextTimer();
  void Write(MetaWrite write);
  // Runs `action` in the Step that learns that all writes so far are durable.
  void AfterSync(std::function<void()> action);
  void RenewBound(bool force);
  void Log(LogLevel level, std::string text);
  void Stop(std::string message);
  void Answer(uint64_t call, AdminAnswer answer);
  void Refuse(uint64_t call, absl::Status status);
  absl::Duration Jittered(absl::Duration wait);
  absl::Duration NextBackoff(absl::Duration& backoff);

  // --- links.cc ---
  void Handle(const HelloArrived& event);
  void Handle(const HelloAnswered& event);
  void Handle(const LinkOffered& event);
  void Handle(const LinkAnswered& event);
  void Handle(const LinkClosed& event);
  NodeFacts Facts() const;
  HelloRequest MakeHello(const NodeId& expected) const;
  std::vector<KnownPeer> KnownPeers() const;
  // What this node thinks of a node that says Hello, or answers one.
  HelloReply Judge(const NodeFacts& from, const NodeId& expected);
  void TakeFacts(const NodeFacts& from);
  void TakeKnown(const std::vector<KnownPeer>& known);
  // `reply` is not accepting.
  void TakeRefusal(const HelloReply& reply);
  void LogRefusal(const NodeId& id, HelloOutcome outcome, std::string text);
  void CheckCloneReports();
  Peer* FindPeer(const NodeId& id);
  Peer* AddPeer(const NodeId& id, const std::string& address);
  void AddRingPeers();
  void UseAddress(Peer& peer, const std::string& address);
  void LinkIsUp(Peer& peer, LinkKind kind, LinkId link, uint64_t start_id);
  // Forgets the stream; tells the adapter to close it if `close`.
  void DropStream(Peer& peer, LinkKind kind, bool close);
  void DropLinks(Peer& peer);
  void AttemptFailed(Peer& peer, LinkKind kind, bool refused);
  void HelloFailed(const PendingHello& hello, bool refused);
  bool IsDialler(const Peer& peer) const { return id_ < peer.id; }
  bool SeedIsServed(const Seed& seed) const;
  bool WantsHello(const Peer& peer) const;
  bool WantsDial(const Peer& peer, LinkKind kind) const;
  Instant ForgetAt(const Peer& peer) const;
  void SendHello(std::optional<size_t> seed, Peer* peer);
  void Dial(Peer& peer, LinkKind kind);
  void TickLinks();
  void WantLinks(Instant& next) const;
  bool IsMember(const NodeId& id) const;
  // Whether a node of `lineage` is of this node's cluster: of the same lineage,
  // or one of the two was recovered from the other's. Requires a ring.
  bool LineageFits(uint64_t lineage, const std::vector<uint64_t>& former) const;
  std::string Called(const NodeFacts& facts) const;
  std::string Called(const Peer& peer) const;

  // --- heartbeats.cc ---
  void Take(Peer& peer, const Heartbeat& beat);
  Heartbeat MakeHeartbeat(const Peer& peer);
  void SendHeartbeat(Peer& peer);
  bool IsHeard(const Peer& peer) const;
  void UpdateLiveness(Peer& peer);
  void BeatMembers();
  // Of this node's own heartbeats to one peer.
  absl::Duration BeatPeriod() const;
  // `after`, stretched for a peer that says that its heartbeats are rare.
  absl::Duration SilenceOf(const Peer& peer, absl::Duration after) const;
  void TickHeartbeats();
  void WantHeartbeats(Instant& next) const;
  void UpdateViews();
  void Remember(const NodeFacts& facts);
  // Remembers that `peer` has shown `bound`, and runs `action` once that is
  // durable: whatever builds on what the peer said outlives its disk then.
  void RememberFirst(const Peer& peer, HlcTimestamp bound,
                     std::function<void()> action);
  void Remember(const NodeId& id, uint64_t incarnation, uint64_t start_id,
                HlcTimestamp bound);
  bool ClockIsAhead() const;

  // --- gossiping.cc ---
  void Take(Peer& peer, const GossipMessage& message);
  NodeProfile OwnProfile() const;
  void MetPeer(Peer& peer);
  void ForgetPeer(const NodeId& id);
  // Sends what gossip wants sent, and follows what it says.
  void CarryOut(GossipEffects& effects);
  void On(const GossipStateChanged& event);
  void On(const GossipLinkDoubted& event);
  void On(const GossipHearsay& event);
  void On(const GossipRefuted& event);
  void On(const GossipRingSeen& event);
  // Gossip does not hold against routing to it.
  bool IsVouchedFor(const Peer& peer) const;
  // Why not; empty: it does not.
  std::string GossipAgainst(const Peer& peer) const;
  std::string NameOfNode(const NodeId& id) const;
  void TickGossip();

  // --- rings.cc ---
  void Take(Peer& peer, const RingFetch& fetch);
  void Take(Peer& peer, const RingDecided& decided);
  void Take(Peer& peer, const PaxosPrepare& prepare);
  void Take(Peer& peer, const PaxosPromise& promise);
  void Take(Peer& peer, const PaxosAccept& accept);
  void Take(Peer& peer, const PaxosAccepted& accepted);
  void Handle(const EpochAdopted& event);
  void Handle(const RingWanted& event);
  void FetchRing(Peer& peer);
  // Makes `ring`, which is decided, this node's newest. Returns false if it is
  // not newer than what is known or being written.
  bool Learn(std::shared_ptr<const Ring> ring,
             std::vector<DecidedProposal> history, std::function<void()> after);
  void RingIsDurable(std::shared_ptr<const Ring> ring,
                     std::vector<DecidedProposal> history);
  RingDecided Decided() const;
  bool MayVote();
  void OnPrepare(NodeNumber from, const PaxosPrepare& prepare);
  void OnAccept(NodeNumber from, const PaxosAccept& accept);
  void OnPromise(NodeNumber from, const PaxosPromise& promise);
  void OnAccepted(NodeNumber from, const PaxosAccepted& accepted);
  void PersistAcceptor();
  void SendToMember(NodeNumber to, ControlMessage message);
  void SendPaxos(std::vector<Proposer::Out> out);
  void AfterProposerStep(std::vector<Proposer::Out> out);
  void StartChange(uint64_t call, Instant deadline, RingChange change);
  void ProposeNext();
  void SettleChanges();
  void AnswerChange(const PendingChange& change);
  AdminAnswer AnswerTo(const PendingChange& change) const;
  void RefuseChange(const PendingChange& change, absl::Status status);
  // What this node knows against a change that the ring itself allows.
  absl::Status CheckChange(const RingChange& change) const;
  bool AllHaveAdopted(RingEpoch epoch) const;
  void TickRings();
  void WantRings(Instant& next) const;
  std::string NamesOf(const std::vector<NodeNumber>& numbers) const;

  bool KnowsDeparted(const Peer& peer) const;
  void Depart(const Ring& ring);
  // Why this node must not serve under `ring`; empty: it may.
  std::string WhyExpelled(const Ring& ring) const;

  // --- topology.cc ---
  void Handle(const TransfersReported& event);
  // The running operation; null: none.
  const TopologyOperation* Running() const;
  void FollowOperation(const Ring* before);
  void ResetStep();
  void UpdateStep();
  bool HintsAreDelivered(NodeNumber leaver) const;
  // Tells the others once that the hints of this node, which leaves, are
  // delivered: they wait for that.
  void TellHintsDelivered();
  bool StepIsReady() const;
  absl::Duration StepInDelay() const;
  void TickTopology();
  void WantTopology(Instant& next) const;
  // FAILED_PRECONDITION names who sees one of the nodes alive that `request`
  // takes for dead.
  absl::Status CheckDead(const TopologyRequest& request) const;
  const std::vector<NodeNumber>& Silent();

  // --- operations.cc ---
  void StartTopology(uint64_t call, Instant deadline,
                     const StartOperationCall& request);
  void StartAbort(uint64_t call, Instant deadline,
                  const AbortOperationCall& request);
  AdminAnswer OperationsNow() const;
  absl::StatusOr<TopologyRequest> Resolve(
      const StartOperationCall& request) const;
  absl::StatusOr<NodeNumber> ResolveMember(const std::string& text) const;
  absl::StatusOr<Member> ResolveStandby(const std::string& text) const;
  // Of a ring that has the operation.
  OperationPlan PlanOf(const Ring& ring) const;
  std::vector<OperationWait> Waits() const;
  // Of the nodes that receive something before the switch.
  std::vector<OperationProgress> Progress(RingEpoch operation) const;
  bool IsUp(const Member& member) const;
  // Whom `node` must receive something from that is down, so that it waits.
  std::vector<NodeNumber> DownSourcesOf(const Ring& ring,
                                        NodeNumber node) const;
  void WarnOfTheDown(const Ring& ring,
                     std::vector<std::string>& warnings) const;
  NodeRef RefTo(NodeNumber node) const;
  uint64_t DiskBytesOf(NodeNumber node) const;

  // --- recovery.cc ---
  void StartRecovery(uint64_t call, const RecoverCall& request);
  absl::StatusOr<std::vector<NodeNumber>> SurvivorsOf(
      const RecoverCall& request) const;
  // Whether `survivors` are all that is left, and too few to decide anything.
  absl::Status CheckRecovery(const std::vector<NodeNumber>& survivors,
                             const std::vector<NodeNumber>& lost) const;

  // --- upgrade.cc ---
  void StartFinishUpgrade(uint64_t call, Instant deadline,
                          const FinishUpgradeCall& request);
  // The newest level that any member has shown to know.
  uint32_t NewestLevelKnown() const;
  // FAILED_PRECONDITION names the members that do not know `level`, or are not
  // there to say so.
  absl::Status CheckLevel(uint32_t level) const;
  // FAILED_PRECONDITION: a joiner knows too little for the ring as it is now.
  absl::Status CheckJoiners(const TopologyRequest& request) const;

  // --- init.cc ---
  void Take(Peer& peer, const InitPrepare& prepare);
  void Take(Peer& peer, const InitVote& vote);
  void Take(Peer& peer, const InitRelease& release);
  void StartInit(uint64_t call, Instant deadline, const InitCall& request);
  void InitSingle();
  std::vector<const Peer*> FoundStandby() const;
  absl::Status CheckInit(const InitCall& request) const;
  void BeginInitAttempt();
  void EndInitAttempt(std::string reason);
  void SendInitPrepares();
  void GrantInit(const NodeId& id);
  void CommitInit();
  void FinishInit(absl::Status status);
  absl::StatusOr<std::shared_ptr<const Ring>> MakeFirstRing(
      const ClusterId& id, const InitCall& request,
      std::vector<NodeFacts> nodes) const;
  std::vector<NodeStatus> FoundStatus() const;
  std::string PledgedText() const;
  void ReleasePledge();
  void CheckPledge(const Peer& peer, const Heartbeat& beat);
  void TickInit();
  void WantInit(Instant& next) const;
  // Everybody in the new ring is known to have it.
  bool InitHasSpread() const;

  // --- status.cc ---
  AdminAnswer StatusNow();
  AdminAnswer HintsNow() const;
  NodeStatus StatusOf(const Peer& peer) const;
  NodeStatus OwnStatus() const;
  std::vector<std::string> Warnings() const;
  double OwnershipOf(NodeNumber number);
  void Send(Peer& peer, ControlMessage message);

  ControlOptions options_;
  const NodeId id_;
  const uint64_t incarnation_;
  const uint64_t start_id_;
  Hlc& hlc_;
  Random& random_;

  // Of the Step that runs.
  Time time_{};
  ControlEffects* out_ = nullptr;
  Instant next_timer_;
  Instant started_;
  bool running_ = false;
  bool stopped_ = false;

  // The outbox.
  struct Deferred {
    uint64_t ticket;
    std::function<void()> action;
  };
  uint64_t ticket_ = 0;  // of the newest write
  uint64_t persisted_ = 0;
  std::deque<Deferred> deferred_;
  const HlcTimestamp bound_found_;  // on disk when this run began
  HlcTimestamp bound_{};            // durable
  HlcTimestamp bound_written_{};    // on its way
  Instant seen_written_;
  bool seen_changed_ = false;

  // Who is there.
  std::map<NodeId, Peer> peers_;
  std::vector<Seed> seeds_;
  std::map<uint64_t, PendingHello> hellos_;
  std::map<LinkId, LinkOwner> links_;
  std::map<NodeId, CloneReport> clone_reports_;  // by who says so
  // When a refusal was logged last, so that a retry is not logged each time.
  std::map<std::pair<NodeId, HelloOutcome>, Instant> refusals_logged_;
  uint64_t next_hello_id_ = 1;
  LinkId next_link_ = 1;
  std::map<NodeId, SeenPeer> seen_;
  bool draining_ = false;
  uint64_t sequence_ = 0;
  uint64_t beats_sent_ = 0;
  Instant next_heartbeat_;
  Gossip gossip_;
  LoadReported load_;
  std::optional<Instant> load_at_;
  DeliveryRates own_rates_;
  PeerView view_;
  AddressView addresses_;
  // Something that the views are made of may have changed.
  bool views_stale_ = true;
  bool view_sent_ = false;
  bool clock_ok_ = true;
  bool checked_ = false;  // as the shards were told

  // Rings.
  NodeNumber number_{};
  std::shared_ptr<const Ring> ring_;  // newest durable
  std::vector<DecidedProposal> history_;
  RingEpoch learning_ = 0;  // epoch on its way to the disk
  RingEpoch adopted_epoch_ = 0;
  std::set<NodeNumber> checked_by_;
  bool may_vote_ = false;
  Acceptor acceptor_;
  std::optional<Proposer> proposer_;
  uint64_t last_round_ = 0;
  uint64_t proposals_ = 0;
  std::deque<PendingChange> changes_;
  std::vector<AwaitedAdoption> awaited_;
  std::map<NodeId, Instant> fetched_;  // last request to a peer
  std::shared_ptr<const Ring> ownership_of_;
  std::map<NodeNumber, double> ownership_;

  // Topology operations.
  StepProgress step_;
  bool step_stale_ = true;  // heartbeats may have brought something
  TransferReport transfers_;
  RingEpoch begun_ = 0;  // told to the shards in this run
  std::optional<KnownOperation> operation_;
  std::deque<OperationStatus> finished_;  // newest first
  RingEpoch load_epoch_ = 0;              // of load_
  RingEpoch reported_epoch_ = 0;          // adopted when load_ came
  RingEpoch hints_told_ = 0;  // ring epoch of the last TellHintsDelivered()
  std::vector<NodeNumber> silent_;  // as of silent_at_
  Instant silent_at_;
  bool silent_known_ = false;

  // Init.
  std::optional<InitPledge> pledge_;
  std::optional<InitRun> init_;
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_CONTROL_IMPL_H_
