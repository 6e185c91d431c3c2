// One simulated machine with its disk, and on it, now and then, a process that
// runs the real node: control machine, shards, turn loops and engine. What
// kvnode does with threads, streams and files this does with events of one
// queue, and it dies wherever a fault wants it to.

#ifndef RINGKV_TESTS_SIM_NODE_H_
#define RINGKV_TESTS_SIM_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/hlc.h"
#include "base/random.h"
#include "membership/control/control.h"
#include "server/loop/control_turn_loop.h"
#include "server/loop/turn_loop.h"
#include "server/shard/shard.h"
#include "storage/memory_engine.h"
#include "tests/sim/clocks.h"
#include "tests/sim/network.h"
#include "tests/sim/plan.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/trace.h"

namespace ringkv::sim {

class Node;

// What nodes share. Outlives them.
struct World {
  const Plan& plan;
  Scheduler& scheduler;
  Trace& trace;
  Network& network;
  std::vector<std::unique_ptr<Node>> nodes;
  // After how many turns of a loop its invariants are checked.
  int check_every = 1;
  // A node did what no fault explains (stopped by itself, would not start).
  std::function<void(std::string)> complain;
  // A process began or ended.
  std::function<void()> processes_changed;
  // Node `node` lost power; all that it wrote by `synced` is safe.
  std::function<void(int node, WorldTime synced)> power_lost;
  // The newest ring that any node has adopted.
  std::shared_ptr<const Ring> newest_ring;
  // Node `node` is the first to have it; `before` was the newest.
  std::function<void(int node, const Ring& before)> ring_moved;
  // Each epoch's ring as the first to adopt it has it.
  std::map<RingEpoch, std::string> rings;
  // On how many nodes at least, at any time, was what is acknowledged in each
  // keyspace, or what a strict read showed.
  std::map<std::string, uint32_t> least_copies;
  // Everybody who has been in one of them.
  std::set<NodeId> members;
  // The disk of `node` was exchanged; of what it wrote after `kept` nothing is
  // left.
  std::function<void(int node, WorldTime kept)> disk_lost;

  // The node at "10.0.0.<index>:7800"; null if there is none.
  Node* AtAddress(absl::string_view address);
};

// How a client's call at a node ended.
struct CallResult {
  // The node was not there, or said so at once: nothing was done. Otherwise, if
  // `answer` is empty, the connection broke and anything may have happened.
  bool not_sent = false;
  std::optional<ClientAnswer> answer;
  uint64_t start_id = 0;  // of the run that answered
};

class Node {
 public:
  Node(World& world, int index);

  int index() const { return index_; }
  bool up() const { return process_ != nullptr; }
  // Up, with a ring whose adoption all its loops have finished.
  bool serving() const;
  bool frozen() const { return frozen_; }
  // A crash is armed and has not come yet.
  bool doomed() const { return crash_.has_value(); }
  // What is on its disk is no member: it stands by, has left the ring, or its
  // peers have refused an older disk.
  bool gone() const { return disk_ == Disk::kEmpty || refused_ || departed_; }
  // It runs, with an empty disk, and is in no ring.
  bool stands_by() const;
  // It left the ring and stopped.
  bool departed() const { return departed_; }
  // `id` was this node's, and no disk has it any more.
  bool HasLost(const NodeId& id) const;
  // As it calls itself: each new disk has a name of its own.
  std::string name() const;
  // Slower than planned, or refusing writes.
  bool hampered() const {
    return stalled_ || full_ || no_room_ || disk_factor_ != 1 ||
           turn_delay_ != world_.plan.turn_mean;
  }
  std::string PeerAddress() const;
  NodeClocks& clocks() { return clocks_; }
  const MemoryEngine& engine() const { return engine_; }
  MemoryEngine& engine() { return engine_; }
  const Control* control() const;
  // 0 while down.
  uint64_t start_id() const;
  uint64_t crashes() const { return crashes_; }
  int shards() const { return plan_.shards; }
  const Shard& shard(int i) const;
  // Peers that the control loop calls alive.
  size_t peers_alive() const;

  // --- Faults ---
  void Start();
  // Dies at `point` of a coming turn (soon, whatever happens) and starts again
  // after `down`. With `power`, a suffix of the un-synced writes is lost.
  void ArmCrash(CrashPoint point, bool power, WorldTime down);
  void Freeze();
  void Thaw();
  void SetDiskStalled(bool stalled) { stalled_ = stalled; }
  void SetDiskSlowness(int64_t factor) { disk_factor_ = factor; }
  void SetTurnDelay(WorldTime delay) { turn_delay_ = delay; }
  void SetBadMemory(bool bad) { bad_memory_ = bad; }
  // Below the reserve, which the process notices; `no_room`: the store takes no
  // value either.
  void SetDiskFull(bool full, bool no_room) {
    full_ = full;
    no_room_ = full && no_room;
  }
  // What a backup taken now would hold.
  struct Backup {
    MemoryEngine::Image image;
    WorldTime synced = 0;  // what was written by then is in it
  };
  Backup TakeBackup() const { return {engine_.DurableImage(), synced_by_}; }
  // Forms no ring; comes up with an empty disk.
  void StandBy() { disk_ = Disk::kEmpty; }
  // The machine loses its disk and gets an empty one, or one with `backup` on
  // it; it starts after `down`.
  void ExchangeDisk(std::optional<Backup> backup, WorldTime down);
  // Faults are over: reads are cheap, turns are quick.
  void Heal();
  // Starts at once if a restart is pending.
  void StartNow();

  // --- Clients ---
  using CallDone = std::function<void(CallResult)>;
  // A call arrives; `remaining` is what its deadline leaves. `done` runs once,
  // at this node's end of the network. Returns a number for Cancel().
  uint64_t Call(ClientCall call, WorldTime remaining, CallDone done);
  void Cancel(uint64_t call);
  void Admin(AdminCall call, WorldTime remaining,
             std::function<void(AdminAnswer)> done);

  // --- Network ---
  // Called at the receiving machine; false: there is no process.
  using HelloDone = std::function<void(const std::string& reply_bytes)>;
  bool OnHello(const std::string& request_bytes, HelloDone done);
  struct Accepted {
    uint64_t run = 0;
    LinkId link = kNoLink;  // as this side calls it
    std::string reply_bytes;
    bool accepted = false;
  };
  using OfferDone = std::function<void(Accepted)>;
  bool OnOffer(LinkKind kind, int dialler, const std::string& request_bytes,
               OfferDone done);
  // The accepting side's end of a link is in place.
  void BindLink(LinkId link, Network::LinkNumber number, int peer,
                LinkKind kind);
  Network::ClosedCallback ClosedCallbackFor(uint64_t run, LinkId link);
  uint64_t run() const { return run_; }

  uint64_t turns() const { return turns_; }

 private:
  struct BoundLink {
    Network::LinkNumber number = 0;
    int peer = 0;
    LinkKind kind = LinkKind::kControl;
  };
  struct Loop {
    std::unique_ptr<Shard> shard;
    std::unique_ptr<TurnLoop> loop;
    std::vector<ShardEvent> mailbox;
    bool turn_due = false;
    bool committing = false;
    WorldTime timer_at = kForever;
    RingEpoch adopted = 0;  // and fsynced
    TransferReport transfers;
    uint64_t turns = 0;
  };
  struct Process {
    SeededRandom random;
    std::unique_ptr<Hlc> hlc;
    std::unique_ptr<Control> control;
    std::unique_ptr<ControlTurnLoop> control_loop;
    std::vector<ControlEvent> control_mailbox;
    bool control_turn_due = false;
    WorldTime control_timer_at = kForever;
    std::vector<Loop> loops;
    std::shared_ptr<const PeerView> peers;
    std::map<LinkId, BoundLink> links;
    std::map<Network::LinkNumber, LinkId> link_of;
    LinkId next_inbound = 1;
    uint64_t next_call = 1;
    std::map<uint64_t, CallDone> calls;
    std::map<uint64_t, std::function<void(AdminAnswer)>> admin_calls;
    std::map<uint64_t, HelloDone> hellos;
    struct Offer {
      LinkKind kind;
      int dialler;
      OfferDone done;
    };
    std::map<LinkId, Offer> offers;
    bool syncing = false;
    bool sync_wanted = false;
    uint64_t synced = 0;
    RingEpoch epoch_offered = 0;
    RingEpoch epoch_confirmed = 0;
    std::shared_ptr<const Ring> ring;
    uint64_t refused_at_bound = 0;
    bool told_full = false;
  };
  enum class Disk { kOwn, kEmpty, kOld };
  struct ArmedCrash {
    CrashPoint point;
    bool power;
    WorldTime down;
  };

  Time Now() const { return clocks_.At(world_.scheduler.now()); }
  void Say(Trace::Kind kind, std::string text) const;
  // Runs `action` after `delay` if this run still lives; a frozen process does
  // it when it goes on.
  void Later(WorldTime delay, std::function<void()> action);
  WorldTime Draw(WorldTime mean);
  WorldTime DiskTime(WorldTime min, WorldTime mean);

  void Boot();
  bool CrashHere(CrashPoint point);
  void Crash(bool power, WorldTime down);
  void StartAfter(WorldTime down);
  void DropCalls();

  void Post(int shard, ShardEvent event);
  void PostControl(ControlEvent event);
  void ScheduleTurn(int shard);
  void RunTurn(int shard);
  void CommitTurn(int shard, std::shared_ptr<Released> released);
  // False if the process died over it.
  bool Release(Released& released, int shard);
  void ArmTimer(int shard);
  void ArmControlTimer();
  void ScheduleControlTurn();
  void RunControlTurn();
  void Perform(ControlEffects& effects);
  void WantSync();
  void BeginSync();
  void EndSync(uint64_t sequence, WorldTime began);
  void StartRead(int shard, ReadJob job);
  // Its place in the trace.
  size_t SayMessage(const DataMessage& message, int to) const;
  void SendData(std::vector<OutgoingMessage>& messages, size_t count);
  // What bad memory does to half of the chunks.
  void Damage(DataMessage& message);
  void ConfirmEpoch();
  void ReportLoad();
  void IntervalSync();
  void SendHello(HelloCall call);
  void Dial(LinkDial dial);
  void OnLinkClosed(LinkId link, absl::Status reason);
  void OnData(int from_node, const NodeId& from_id, const std::string& bytes);
  // Its ring goes on without it, or is about to.
  bool HasLeft() const;
  // Notes a ring for the world, which has one of each epoch.
  void Publish(std::shared_ptr<const Ring> ring);
  int ShardOfMessage(const DataMessage& message) const;
  int ShardOfCall(const ClientCall& call);

  World& world_;
  int index_;
  const NodePlan& plan_;
  NodeClocks clocks_;
  SeededRandom random_;  // of the machine: disk, turns
  MemoryEngine engine_;
  std::unique_ptr<Process> process_;
  uint64_t run_ = 0;
  uint64_t crashes_ = 0;
  uint64_t turns_ = 0;
  std::optional<ArmedCrash> crash_;
  bool frozen_ = false;
  std::vector<std::function<void()>> thawing_;
  bool stalled_ = false;
  bool full_ = false;
  bool no_room_ = false;
  bool bad_memory_ = false;
  Disk disk_ = Disk::kOwn;
  bool refused_ = false;  // an older disk, by its peers
  bool departed_ = false;
  int generation_ = 0;       // of disks
  std::vector<NodeId> ids_;  // of the disks so far, if they have one
  int64_t disk_factor_ = 1;
  WorldTime turn_delay_ = 0;
  double not_cached_share_ = 0;
  WorldTime start_at_ = kForever;
  WorldTime synced_by_ = 0;  // what was written by then is durable
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_NODE_H_
