#include "tests/sim/simulation.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/token.h"
#include "storage/hints/hint_store.h"
#include "storage/version/object.h"
#include "tests/sim/availability.h"
#include "tests/sim/disaster.h"
#include "tests/sim/network.h"
#include "tests/sim/node.h"
#include "tests/sim/operators.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/topology.h"
#include "tests/sim/workload.h"

namespace ringkv::sim {
namespace {

// Bounds of simulated time, once there are no faults.
constexpr WorldTime kFormingMax = 120 * kSecond;
constexpr WorldTime kRecoveryMax = 60 * kSecond;
// What a slow disk began ends, a silence of then is noticed, and so is the room
// that a full disk has again. Before that all may look well and not be.
constexpr WorldTime kAftermath = 5 * kSecond;
// What was begun of an operation goes on to its end, and dead members are taken
// out one after the other.
constexpr WorldTime kTopologyMax = 240 * kSecond;
// What a node holds no more is deleted by then.
constexpr WorldTime kDropMax = 15 * kSecond;
constexpr WorldTime kHintsMax = 120 * kSecond;
constexpr WorldTime kQuietMax = 60 * kSecond;
constexpr WorldTime kFinalReadsMax = 120 * kSecond;
constexpr WorldTime kFinalTimeout = 5 * kSecond;
// A put's coordinator that lives this long after it has brought the value, or a
// hint, to every replica.
constexpr WorldTime kFollowUpMax = 30 * kSecond;
// How long a client goes on writing to a node that was down.
constexpr WorldTime kHammerAfter = 500 * kMillisecond;
// Bounds of what the world itself holds.
constexpr WorldTime kResourcesEvery = 5 * kSecond;
constexpr size_t kLinkGenerationsMax = 64;
constexpr size_t kPendingMax = 200000;
// Final reads that run at once.
constexpr int kFinalParallel = 16;

class Simulation {
 public:
  Simulation(const Plan& plan, const RunOptions& options)
      : plan_(plan),
        options_(options),
        trace_(options.live_trace, options.keep_trace),
        network_(scheduler_, trace_, plan.network,
                 static_cast<int>(plan.nodes.size()),
                 RandomFor(plan.seed, Purpose::kNetwork)),
        world_{plan_, scheduler_, trace_, network_},
        random_(RandomFor(plan.seed, Purpose::kFinal, 1)),
        connectivity_(static_cast<int>(plan.nodes.size())) {
    world_.check_every = options.check_every;
    world_.complain = [this](std::string text) {
      Complain("node", std::move(text));
    };
    node_states_.assign(plan.nodes.size(), RunStory::NodeState::kDown);
    world_.processes_changed = [this] {
      NoteConnectivity();
      if (options_.keep_trace) NoteStates();
    };
    world_.power_lost = [this](int node, WorldTime synced) {
      power_losses_.push_back({synced, scheduler_.now(), node, true});
    };
    world_.disk_lost = [this](int node, WorldTime kept) {
      // One that comes back as somebody else never answers as what it was.
      const bool serves_on = kept >= 0;
      disk_losses_.push_back({kept, scheduler_.now(), node, serves_on});
    };
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      world_.nodes.push_back(
          std::make_unique<Node>(world_, static_cast<int>(i)));
      if (static_cast<int>(i) >= Founders()) world_.nodes.back()->StandBy();
    }
  }

  RunResult Run() {
    if (Form()) {
      Work();
      Heal();
      const bool recovered = AwaitRecovery();
      if (recovered && operators_ != nullptr) {
        operators_->Check(
            [this](std::string text) { Complain("ring", std::move(text)); });
      }
      if (recovered && AwaitHintsGone()) {
        CompareWithoutReads();
        FinalReads();
        if (AwaitQuiet() && AwaitHintsGone()) {
          CompareReplicas();
          CheckScans();
          CheckBounds();
        }
        CheckWritesWork();
      }
      Judge();
      if (violations_.empty() && plan_.disaster) LoseMajority();
    }
    RunResult result;
    result.seed = plan_.seed;
    result.hash = trace_.hash();
    result.events = scheduler_.executed();
    result.messages = network_.messages();
    if (workload_ != nullptr) {
      result.operations = workload_->operations();
      result.answered_ok = workload_->answered_ok();
      result.unknown = workload_->unknown();
    }
    result.simulated = scheduler_.now();
    result.violations = std::move(violations_);
    result.records = trace_.records();
    if (options_.keep_trace) Tell(result.story);
    return result;
  }

 private:
  int Nodes() const { return static_cast<int>(world_.nodes.size()); }
  // The nodes that form the ring; the others stand by.
  int Founders() const {
    return static_cast<int>(plan_.nodes.size()) - plan_.topology.spares;
  }
  // Those that are members still.
  std::vector<int> LiveNodes() const {
    std::vector<int> live;
    for (const auto& node : world_.nodes) {
      if (!node->gone()) live.push_back(node->index());
    }
    return live;
  }
  int AnyLiveNode() {
    const std::vector<int> live = LiveNodes();
    return live[random_.Uniform(live.size())];
  }
  Node& At(int node) { return *world_.nodes[static_cast<size_t>(node)]; }

  void Say(Trace::Kind kind, std::string text) {
    if (!trace_.readable()) return;
    trace_.Say({.nanos = scheduler_.now(),
                .lane = kWorldLane,
                .kind = kind,
                .text = std::move(text)});
  }

  void Complain(const char* check, std::string text, std::string key = "") {
    if (violations_.size() > 20) return;
    Say(Trace::Kind::kCheck, absl::StrCat("VIOLATION ", check, ": ", text));
    violations_.push_back(
        {check, std::move(text), std::move(key), scheduler_.now(), {}});
  }

  // Runs the world until `done()`, looking every `step`; false after `limit`.
  bool Await(WorldTime limit, WorldTime step,
             const std::function<bool()>& done) {
    const WorldTime until = scheduler_.now() + limit;
    while (!done()) {
      if (scheduler_.now() >= until) return false;
      const WorldTime next = std::min(until, scheduler_.now() + step);
      while (scheduler_.RunNext(next)) {
      }
    }
    return true;
  }

  // --- Phases ---

  bool Form() {
    for (int i = 0; i < Founders(); ++i) {
      scheduler_.At(static_cast<WorldTime>(random_.Uniform(kSecond)),
                    [this, i] { At(i).Start(); });
    }
    const int leader =
        static_cast<int>(random_.Uniform(static_cast<uint64_t>(Founders())));
    TryInit(leader);
    if (plan_.forming_troubled) TroubleForming();
    if (!Await(kFormingMax, 50 * kMillisecond, [&] { return init_made_; })) {
      Complain("forming", absl::StrCat("no ring after ", kFormingMax / kSecond,
                                       " s: ", forming_status_.ToString()));
      return false;
    }
    for (size_t k = 1; k < plan_.keyspaces.size(); ++k) {
      bool created = false;
      TryCreate(plan_.keyspaces[k], created);
      if (!Await(kFormingMax, 50 * kMillisecond, [&] { return created; })) {
        Complain("forming",
                 absl::StrCat("no keyspace ", plan_.keyspaces[k].name, ": ",
                              forming_status_.ToString()));
        return false;
      }
    }
    // A late answer of a repeated call must not find these locals gone: every
    // call has ended by its timeout.
    if (!Await(kFormingMax, 100 * kMillisecond,
               [this] { return AllServe() && calls_out_ == 0; })) {
      Complain("forming", "not all nodes adopted the ring");
      return false;
    }
    ring_ = At(0).control()->ring();
    return true;
  }

  void TroubleForming() {
    SeededRandom random = RandomFor(plan_.seed, Purpose::kForming, 1);
    const auto any = [&] {
      return static_cast<int>(
          random.Uniform(static_cast<uint64_t>(Founders())));
    };
    if (random.Chance(0.5)) TryInit(any());
    for (uint64_t i = 1 + random.Uniform(4); i > 0; --i) {
      scheduler_.At(
          kSecond + static_cast<WorldTime>(random.Uniform(1500)) * kMillisecond,
          [this, node = any(),
           down = static_cast<WorldTime>(random.Uniform(3000)) * kMillisecond] {
            At(node).ArmCrash(CrashPoint::kBetweenTurns, false, down);
          });
    }
  }

  void TryInit(int leader) {
    scheduler_.After(500 * kMillisecond, [this, leader] {
      if (init_made_) return;
      InitCall call;
      call.expected_nodes = static_cast<uint32_t>(Founders());
      call.placement = plan_.placement;
      call.vnodes = plan_.vnodes;
      ++calls_out_;
      At(leader).Admin(call, 10 * kSecond, [this, leader](AdminAnswer answer) {
        --calls_out_;
        forming_status_ = answer.status;
        if (answer.status.ok() || (At(leader).control() != nullptr &&
                                   At(leader).control()->ring() != nullptr)) {
          init_made_ = true;
        } else {
          TryInit(leader);
        }
      });
    });
  }

  void TryCreate(const Keyspace& keyspace, bool& created) {
    const int node =
        static_cast<int>(random_.Uniform(static_cast<uint64_t>(Founders())));
    scheduler_.After(50 * kMillisecond, [this, node, &keyspace, &created] {
      ++calls_out_;
      At(node).Admin(
          CreateKeyspaceCall{keyspace}, 10 * kSecond,
          [this, &keyspace, &created](AdminAnswer answer) {
            --calls_out_;
            forming_status_ = answer.status;
            // It may have been made by a call whose answer was lost.
            if (answer.status.ok() ||
                world_.newest_ring->FindKeyspace(keyspace.name) != nullptr) {
              created = true;
            } else {
              TryCreate(keyspace, created);
            }
          });
    });
  }

  // Every member serves the newest ring and sees every other alive.
  bool AllServe() {
    RingEpoch newest = 0;
    const size_t live = LiveNodes().size();
    for (const auto& node : world_.nodes) {
      if (node->gone()) continue;
      if (!node->serving() || node->frozen()) return false;
      newest = std::max(newest, node->control()->ring()->epoch());
    }
    for (const auto& node : world_.nodes) {
      if (node->gone()) continue;
      if (node->control()->adopted_epoch() != newest) return false;
      if (node->peers_alive() + 1 != live) return false;
    }
    return true;
  }

  void Work() {
    Say(Trace::Kind::kProcess, "the workload begins");
    NoteConnectivity();
    workload_ = std::make_unique<Workload>(world_);
    const WorldTime begin = scheduler_.now();
    story_.work_began = begin;
    for (const Fault& fault : plan_.faults) {
      if (fault.moment != Moment::kNone) continue;
      if (fault.kind == FaultKind::kOldDisk) {
        scheduler_.At(begin + fault.at - fault.amount, [this, &fault] {
          if (!At(fault.node).gone()) {
            backups_[&fault] = At(fault.node).TakeBackup();
          }
        });
      }
      scheduler_.At(begin + fault.at, [this, &fault] {
        if (!healed_) Inject(fault);
      });
    }
    CheckResources();
    if (plan_.operators) {
      operators_ = std::make_unique<Operators>(world_);
      operators_->Start(plan_.length);
    }
    if (plan_.topology.changes()) {
      for (int i = Founders(); i < Nodes(); ++i) {
        scheduler_.After(static_cast<WorldTime>(random_.Uniform(10 * kSecond)),
                         [this, i] { At(i).Start(); });
      }
      topology_ = std::make_unique<Topology>(world_);
      topology_->Start();
      world_.ring_moved = [this](int node, const Ring& before) {
        OnRingMoved(node, before);
      };
    }
    workload_->Start();
    Await(plan_.length, plan_.length, [] { return false; });
    // Clients stop by themselves: every operation has a timeout.
    if (!Await(2 * plan_.length, kSecond,
               [this] { return workload_->Finished(); })) {
      workload_->Stop();
      if (!Await(60 * kSecond, kSecond,
                 [this] { return workload_->Finished(); })) {
        Complain("liveness", "clients wait for ever");
      }
    }
  }

  // Faults that wait for this moment find out now whom they hit.
  void OnRingMoved(int first, const Ring& before) {
    if (healed_) return;
    const auto& was = before.spec().operation;
    const auto& is = world_.newest_ring->spec().operation;
    Moment moment = Moment::kNone;
    if (is.has_value() && (!was.has_value() || was->id != is->id)) {
      moment = Moment::kStart;
    } else if (is.has_value() && is->phase != was->phase) {
      moment = Moment::kSwitch;
    } else if (was.has_value() && !is.has_value()) {
      moment = Moment::kEnd;
    }
    if (moment == Moment::kNone) return;
    const int occurrence = moments_[moment]++;
    for (const Fault& planned : plan_.faults) {
      if (planned.moment != moment || planned.occurrence != occurrence) {
        continue;
      }
      for (const Fault& fault : Aimed(planned, first)) {
        aimed_.push_back(fault);
        scheduler_.After(fault.at, [this, &fault = aimed_.back()] {
          if (!healed_) Inject(fault);
        });
      }
    }
  }

  // `planned` for those whom it hits when `first` is the first to know.
  std::vector<Fault> Aimed(const Fault& planned, int first) const {
    Fault fault = planned;
    const uint64_t all = (1ull << Nodes()) - 1;
    std::vector<int> others;
    for (int i = 0; i < Nodes(); ++i) {
      if (i != first) others.push_back(i);
    }
    if (others.empty()) return {fault};
    const auto pick = static_cast<size_t>(planned.node);
    std::vector<Fault> faults;
    switch (planned.role) {
      case Role::kAsDrawn:
        break;
      case Role::kUnaware:
        fault.node = others[pick % others.size()];
        fault.mask &= ~(1ull << first) & all;
        if (fault.mask == 0) fault.mask = 1ull << fault.node;
        break;
      case Role::kFirst:
        fault.node = first;
        fault.mask = 1ull << first;
        break;
      case Role::kOthers:
        for (const int other : others) {
          fault.node = other;
          fault.mask = 1ull << other;
          faults.push_back(fault);
        }
        return faults;
      case Role::kGainer:
        if (const int gainer = topology_->Gainer(pick); gainer >= 0) {
          fault.node = gainer;
          fault.mask = 1ull << gainer;
        }
        break;
    }
    return {fault};
  }

  void Inject(const Fault& fault) {
    Say(Trace::Kind::kFault, absl::StrCat("fault: ", fault.ToString()));
    Node& node = At(fault.node);
    switch (fault.kind) {
      case FaultKind::kKill:
      case FaultKind::kPowerLoss:
        if (fault.hammer > 0) {
          workload_->Hammer(fault.node, fault.hammered,
                            fault.hammer + fault.duration + kHammerAfter);
        }
        scheduler_.After(fault.hammer, [this, &node, &fault] {
          if (healed_) return;
          node.ArmCrash(fault.point, fault.kind == FaultKind::kPowerLoss,
                        fault.duration);
          NoteConnectivity();
        });
        break;
      case FaultKind::kFreeze:
        if (!node.up() || node.frozen()) break;
        node.Freeze();
        Undo(fault.duration, [&node, run = node.run()] {
          if (node.run() == run) node.Thaw();
        });
        break;
      case FaultKind::kPartition:
      case FaultKind::kOneWay:
        for (int a = 0; a < Nodes(); ++a) {
          for (int b = 0; b < Nodes(); ++b) {
            const bool a_in = (fault.mask >> a) & 1;
            const bool b_in = (fault.mask >> b) & 1;
            if (a_in && !b_in) {
              BlockFor(a, b, fault.duration);
              if (fault.kind == FaultKind::kPartition) {
                BlockFor(b, a, fault.duration);
              }
            }
          }
        }
        break;
      case FaultKind::kPartial:
        for (int b = 0; b < Nodes(); ++b) {
          if (b != fault.node && ((fault.mask >> b) & 1)) {
            BlockFor(fault.node, b, fault.duration);
            BlockFor(b, fault.node, fault.duration);
          }
        }
        break;
      case FaultKind::kCutStreams:
        network_.CutLinks(fault.node);
        NoteConnectivity(true);
        break;
      case FaultKind::kClockStep:
        StepClock(node, fault.amount);
        break;
      case FaultKind::kDiskStall:
        node.SetDiskStalled(true);
        Undo(fault.duration, [&node] { node.SetDiskStalled(false); });
        break;
      case FaultKind::kSlowDisk:
        node.SetDiskSlowness(fault.amount);
        Undo(fault.duration, [&node] { node.SetDiskSlowness(1); });
        break;
      case FaultKind::kSlowNode:
        node.SetTurnDelay(fault.amount);
        Undo(fault.duration,
             [this, &node] { node.SetTurnDelay(plan_.turn_mean); });
        break;
      case FaultKind::kDiskFull:
        node.SetDiskFull(true, fault.amount != 0);
        Undo(fault.duration, [&node] { node.SetDiskFull(false, false); });
        break;
      case FaultKind::kBitRot:
        Rot(node, static_cast<uint64_t>(fault.amount));
        break;
      case FaultKind::kLostDisk:
        node.ExchangeDisk(std::nullopt, fault.duration);
        break;
      case FaultKind::kOldDisk:
        if (const auto backup = backups_.find(&fault);
            backup != backups_.end()) {
          node.ExchangeDisk(std::move(backup->second), fault.duration);
        }
        break;
      case FaultKind::kBadMemory:
        node.SetBadMemory(true);
        Undo(fault.duration, [&node] { node.SetBadMemory(false); });
        break;
      case FaultKind::kAbort:
      case FaultKind::kAbortAgain:
      case FaultKind::kBurn:
      case FaultKind::kAskAnother:
        if (topology_ != nullptr) topology_->Meddle(fault);
        break;
    }
    NoteConnectivity();
  }

  // Calendars stay within the drift that nodes bear in most runs; a
  // clock that is further ahead makes its node refuse writes.
  void StepClock(Node& node, int64_t micros) {
    constexpr int64_t kAheadMax = 3 * 1000 * 1000;
    const int64_t error = node.clocks().WallErrorMicros(scheduler_.now());
    if (plan_.seed % 8 != 0) {
      micros = std::min(micros, kAheadMax - error);
    }
    node.clocks().StepWall(micros);
  }

  // Damages one of the records that `node` holds as a replica beside others
  // that are whole: the `pick`th, counted round.
  void Rot(Node& node, uint64_t pick) {
    std::vector<std::string> keys;
    for (std::string& data_key : node.engine().Keys(Family::kData)) {
      const absl::StatusOr<DataKeyParts> parts = ParseDataKey(data_key);
      RINGKV_CHECK(parts.ok());
      const Keyspace* keyspace = ring_->FindKeyspace(parts->keyspace);
      if (keyspace == nullptr || ring_->EffectiveN(*keyspace) < 2) continue;
      bool whole = true;
      for (const auto& other : world_.nodes) {
        whole = whole && !other->engine().IsDamaged(Family::kData, data_key);
      }
      if (whole) keys.push_back(std::move(data_key));
    }
    if (keys.empty()) return;
    const std::string& data_key = keys[pick % keys.size()];
    const DataKeyParts parts = *ParseDataKey(data_key);
    const Keyspace& keyspace = *ring_->FindKeyspace(parts.keyspace);
    node.engine().Damage(Family::kData, data_key);
    Say(Trace::Kind::kFault,
        absl::StrCat("n", node.index(), "'s copy of ", keyspace.name, "/",
                     parts.key, " is damaged"));
    // What the others hold is all that it can be rebuilt from: if they are too
    // few to be sure of what was acknowledged, what it had alone is gone.
    const uint32_t n = ring_->EffectiveN(keyspace);
    const bool sure = std::max(ring_->EffectiveR(keyspace),
                               n - ring_->EffectiveW(keyspace) + 1) <= n - 1;
    key_losses_[{keyspace.name, std::string(parts.key)}].push_back(
        {-kForever, scheduler_.now(), node.index(), !sure});
  }

  void BlockFor(int from, int to, WorldTime duration) {
    network_.Block(from, to);
    Undo(duration, [this, from, to] { network_.Unblock(from, to); });
  }

  // Runs `undo` after `duration`, or when the faults stop.
  void Undo(WorldTime duration, std::function<void()> undo) {
    const size_t index = undos_.size();
    undos_.push_back(std::move(undo));
    scheduler_.After(duration, [this, index] {
      RunUndo(index);
      NoteConnectivity();
    });
  }
  void RunUndo(size_t index) {
    std::function<void()> undo;
    undo.swap(undos_[index]);
    if (undo) undo();
  }

  void Heal() {
    Say(Trace::Kind::kFault, "the faults stop");
    healed_ = true;
    story_.healed = scheduler_.now();
    for (size_t i = 0; i < undos_.size(); ++i) RunUndo(i);
    network_.Heal();
    for (const auto& node : world_.nodes) {
      node->Heal();
      node->Thaw();
      node->clocks().StepWall(
          -node->clocks().WallErrorMicros(scheduler_.now()));
      node->StartNow();
    }
    if (topology_ != nullptr) topology_->Settle();
    NoteConnectivity();
    // Messages that are kept back belong to the faults.
    const WorldTime last = network_.last_held_arrival();
    if (last > scheduler_.now()) {
      Await(last - scheduler_.now() + kMillisecond, kForever / 4,
            [] { return false; });
    }
    Await(kAftermath, kSecond, [] { return false; });
  }

  // Every operation comes to its end, and the ring has no dead members.
  bool AwaitTopology() {
    if (topology_ == nullptr) return true;
    if (!Await(kTopologyMax, 100 * kMillisecond, [this] {
          for (const auto& node : world_.nodes) {
            if (!node->doomed()) node->StartNow();
          }
          return topology_->Settled();
        })) {
      Complain("liveness",
               absl::StrCat("the ring is not at rest ", kTopologyMax / kSecond,
                            " s after the faults: ", topology_->Trouble()));
      return false;
    }
    ring_ = world_.newest_ring;
    Await(kDropMax, kSecond, [] { return false; });
    return true;
  }

  bool AwaitRecovery() {
    if (!AwaitTopology()) return false;
    // Crashes that were armed before the faults stopped may still come.
    const bool recovered = Await(kRecoveryMax, 100 * kMillisecond, [this] {
      for (const auto& node : world_.nodes) {
        if (node->doomed()) return false;
        node->StartNow();
      }
      return AllServe();
    });
    if (recovered) return true;
    std::string state;
    for (const auto& node : world_.nodes) {
      absl::StrAppend(&state, " n", node->index(), node->up() ? " up" : " down",
                      node->gone() ? " gone" : "",
                      node->serving() ? " serving" : "", " sees ",
                      node->peers_alive(), ";");
    }
    Complain("liveness",
             absl::StrCat("the cluster is not whole ", kRecoveryMax / kSecond,
                          " s after the faults:", state));
    return false;
  }

  size_t HintsLeft(std::string* where) {
    size_t hints = 0;
    for (const auto& node : world_.nodes) {
      if (node->gone()) continue;
      const absl::Status visited = node->engine().Visit(
          Family::kHints, "", "",
          [&](absl::string_view key, absl::string_view value) {
            if (IsForTheGone(key, value)) return true;
            ++hints;
            if (where != nullptr) absl::StrAppend(where, " n", node->index());
            return true;
          });
      RINGKV_CHECK(visited.ok());
    }
    return hints;
  }

  bool IsGone(NodeNumber number) {
    const Member* member = ring_->FindMember(number);
    return member != nullptr && world_.AtAddress(member->peer_address)->gone();
  }

  // Whether an entry of the hints waits for nodes only that are gone. What it
  // holds is noted for the checkers.
  bool IsForTheGone(absl::string_view key, absl::string_view value) {
    if (LiveNodes().size() == world_.nodes.size()) return false;
    const absl::StatusOr<HintRecordKeyParts> parts = ParseHintRecordKey(key);
    const absl::StatusOr<HintRecord> record = DecodeHintRecord(value);
    if (!parts.ok() || !record.ok()) {
      // An entry of the index, by target.
      const absl::StatusOr<HintRecordKeyParts> named =
          ParseHintRecordKey(value);
      if (!named.ok()) return false;
      for (const Member& member : ring_->spec().members) {
        const HintRange range = HintIndexRangeFrom(member.number, 0);
        if (key >= range.begin && key < range.end) {
          return IsGone(member.number);
        }
      }
      return false;
    }
    for (const HintTarget& target : record->targets) {
      if (!IsGone(target.node)) return false;
    }
    const Keyspace* keyspace = ring_->FindKeyspace(parts->keyspace);
    const absl::StatusOr<Object> object = DecodeObject(record->object);
    if (keyspace != nullptr && object.ok()) {
      std::set<OperationId>& values =
          in_hints_[{keyspace->name, std::string(parts->key)}];
      for (const Sibling& sibling : object->siblings) {
        values.insert(WriterOf(sibling.value));
      }
    }
    return true;
  }

  size_t InFlight() {
    size_t running = 0;
    for (const auto& node : world_.nodes) {
      if (node->gone()) continue;
      if (!node->up() || !node->serving()) return 1;
      for (int s = 0; s < node->shards(); ++s) {
        running += node->shard(s).in_flight();
      }
    }
    return running;
  }

  bool AwaitHintsGone() {
    if (Await(kHintsMax, 200 * kMillisecond,
              [this] { return InFlight() == 0 && HintsLeft(nullptr) == 0; })) {
      return true;
    }
    std::string where;
    const size_t hints = HintsLeft(&where);
    Complain("P6",
             absl::StrCat(hints, " hint records are left ", kHintsMax / kSecond,
                          " s after the faults at", where,
                          ", and operations that run: ", InFlight()));
    return false;
  }

  bool AwaitQuiet() {
    if (Await(kQuietMax, 100 * kMillisecond,
              [this] { return InFlight() == 0; })) {
      // Repairs that were sent last.
      Await(3 * kSecond, kSecond, [] { return false; });
      return true;
    }
    Complain("liveness",
             absl::StrCat(InFlight(), " operations never end after the reads"));
    return false;
  }

  // --- Comparing what is stored ---

  const Keyspace& SpaceInRing(int space) const {
    return *ring_->FindKeyspace(
        plan_.keyspaces[static_cast<size_t>(space)].name);
  }

  // The encoded object that a node holds; nothing if there is none.
  std::optional<std::string> Stored(int node, int space,
                                    const std::string& key) {
    const std::string data_key =
        DataKey(SpaceInRing(space).id, TokenOf(key), key);
    const ReadResult result =
        At(node).engine().Get(Family::kData, data_key, ReadTier::kAll);
    if (result.outcome != ReadResult::Outcome::kFound) return std::nullopt;
    absl::StatusOr<StoredRecord> record = DecodeStored(result.value);
    RINGKV_CHECK(record.ok());
    return std::move(record->object);
  }

  std::vector<int> ReplicasOf(int space, const std::string& key) {
    std::vector<int> nodes;
    for (const NodeNumber number :
         ring_->PreferenceList(SpaceInRing(space), TokenOf(key))) {
      const Node& node =
          *world_.AtAddress(ring_->FindMember(number)->peer_address);
      if (!node.gone()) nodes.push_back(node.index());
    }
    return nodes;
  }

  // Two replicas that hold different things; nothing if all are alike.
  std::optional<std::pair<int, int>> Difference(int space,
                                                const std::string& name) {
    const std::vector<int> replicas = ReplicasOf(space, name);
    for (size_t i = 1; i < replicas.size(); ++i) {
      if (Stored(replicas[i], space, name) !=
          Stored(replicas[0], space, name)) {
        return std::make_pair(replicas[0], replicas[i]);
      }
    }
    return std::nullopt;
  }

  void CompareKey(int space, int key, const char* when) {
    const std::string name = workload_->KeyName(key);
    const std::optional<std::pair<int, int>> pair = Difference(space, name);
    if (!pair.has_value()) return;
    Complain("P6",
             absl::StrCat("replicas n", pair->first, " and n", pair->second,
                          " differ ", when, ": ",
                          Describe(Stored(pair->first, space, name)), " and ",
                          Describe(Stored(pair->second, space, name))),
             absl::StrCat(plan_.keyspaces[static_cast<size_t>(space)].name, "/",
                          name));
  }

  static std::string Describe(const std::optional<std::string>& encoded) {
    if (!encoded.has_value()) return "nothing";
    const absl::StatusOr<Object> object = DecodeObject(*encoded);
    if (!object.ok()) return object.status().ToString();
    std::string text = "[";
    for (const Sibling& sibling : object->siblings) {
      absl::StrAppend(&text, " #", WriterOf(sibling.value), "@",
                      ToInt(sibling.dot.actor.node), ".",
                      sibling.dot.actor.birth % 10000, ":",
                      sibling.dot.counter);
    }
    absl::StrAppend(&text, " | clock");
    for (const ClockEntry& entry : object->clock.entries()) {
      absl::StrAppend(&text, " ", ToInt(entry.actor.node), ".",
                      entry.actor.birth % 10000, ":", entry.counter);
    }
    absl::StrAppend(&text, " | newest ", ToInt(object->newest.hlc), "/",
                    ToInt(object->newest.node), "]");
    return text;
  }

  // Hints alone must have brought every write to every replica, where no
  // coordinator died over it.
  void CompareWithoutReads() {
    std::set<std::pair<int, int>> disturbed;
    std::set<std::pair<int, int>> touched;
    for (const Recorded& recorded : workload_->recorded()) {
      const Operation& operation = recorded.operation;
      const std::pair<int, int> key(recorded.space, recorded.key);
      touched.insert(key);
      if (!operation.IsWrite() || !operation.MayHaveRun()) continue;
      const WorldTime last =
          std::min(operation.ended,
                   operation.invoked + 4 * plan_.workload.timeout) +
          kFollowUpMax;
      if (connectivity_.CrashWithin(operation.invoked, last)) {
        disturbed.insert(key);
      }
    }
    for (const auto& [space, key] : touched) {
      // A power loss takes what nobody hints any more.
      const bool lossy =
          plan_.keyspaces[static_cast<size_t>(space)].durability ==
              Durability::kInterval &&
          !power_losses_.empty();
      const bool rotten = key_losses_.contains(
          {plan_.keyspaces[static_cast<size_t>(space)].name,
           workload_->KeyName(key)});
      // What a source had missed, and a hint brought to enough others, waits
      // for a read.
      if (!lossy && topology_ == nullptr && plan_.RoomForHints() &&
          disk_losses_.empty() && !rotten &&
          !disturbed.contains({space, key}) && network_.MayHold() == false) {
        CompareKey(space, key, "though no coordinator died");
      }
    }
  }

  void CompareReplicas() {
    for (const auto& [key, read] : final_reads_) {
      CompareKey(key.first, key.second, "after reads of all");
    }
    // And nobody else holds anything.
    for (const auto& node : world_.nodes) {
      if (node->gone()) continue;
      for (const std::string& data_key : node->engine().Keys(Family::kData)) {
        const absl::StatusOr<DataKeyParts> parts = ParseDataKey(data_key);
        RINGKV_CHECK(parts.ok());
        const Keyspace* keyspace = ring_->FindKeyspace(parts->keyspace);
        const char* wrong = nullptr;
        if (keyspace == nullptr ||
            !ring_->IsReplica(*keyspace, parts->token,
                              node->control()->number())) {
          wrong = ", of which it is no replica";
        } else if (node->engine().IsDamaged(Family::kData, data_key)) {
          wrong = " damaged still, after reads of all";
        }
        if (wrong == nullptr) continue;
        Complain("P6", absl::StrCat("n", node->index(), " holds ", parts->key,
                                    wrong));
        break;
      }
    }
  }

  void CheckBounds() {
    for (const auto& node : world_.nodes) {
      if (node->gone()) continue;
      for (int s = 0; s < node->shards(); ++s) {
        const ShardStats stats = node->shard(s).Stats();
        if (stats.unequal_dots != 0) {
          Complain("P1", absl::StrCat("n", node->index(),
                                      " met equal dots with unequal values"));
        }
        for (const auto& [target, backlog] : stats.hints) {
          if (IsGone(target)) continue;
          if (backlog.hints != 0 || backlog.bytes != 0) {
            Complain("bounds", absl::StrCat("n", node->index(), " counts ",
                                            backlog.hints, " hints of ",
                                            backlog.bytes, " bytes for node ",
                                            ToInt(target), " and holds none"));
          }
        }
      }
    }
  }

  // --- Final reads ---

  void FinalReads() {
    std::set<std::pair<int, int>> keys;
    for (const Recorded& recorded : workload_->recorded()) {
      // Of some keys every replica may be gone.
      if (ReplicasOf(recorded.space, workload_->KeyName(recorded.key))
              .empty()) {
        continue;
      }
      keys.insert({recorded.space, recorded.key});
    }
    todo_.assign(keys.rbegin(), keys.rend());
    size_t wanted = todo_.size();
    for (int i = 0; i < kFinalParallel; ++i) NextFinalRead();
    if (!Await(kFinalReadsMax, 100 * kMillisecond,
               [&] { return final_reads_.size() == wanted; })) {
      Complain("liveness",
               absl::StrCat(wanted - final_reads_.size(),
                            " final reads never succeed; the last error: ",
                            last_error_));
      todo_.clear();
    }
    reading_over_ = true;
  }

  void NextFinalRead() {
    if (todo_.empty() || reading_over_) return;
    const std::pair<int, int> key = todo_.back();
    todo_.pop_back();
    GetCall call;
    call.keyspace = plan_.keyspaces[static_cast<size_t>(key.first)].name;
    call.key = workload_->KeyName(key.second);
    call.r = SpaceInRing(key.first).n;
    // At strict with R = N every replica is read itself, none by a stand-in.
    call.quorum = Quorum::kStrict;
    const size_t left = ReplicasOf(key.first, call.key).size();
    const bool some_gone = left < call.r;
    if (some_gone) {
      // All that are left; and again, until that has made them equal.
      call.r = static_cast<uint32_t>(left);
      call.quorum = Quorum::kSloppy;
    }
    const WorldTime began = scheduler_.now();
    const int node = AnyLiveNode();
    const std::string call_key =
        absl::StrCat(call.keyspace, "/", call.key, " at n", node);
    workload_->Ask(
        node, std::move(call), kFinalTimeout,
        [this, key, began, call_key, some_gone](CallResult result) {
          if (reading_over_) return;
          const GetAnswer* get =
              result.answer.has_value()
                  ? std::get_if<GetAnswer>(&result.answer->answer)
                  : nullptr;
          const bool ok = get != nullptr && result.answer->status.ok();
          if (!ok || (some_gone &&
                      Difference(key.first, workload_->KeyName(key.second))
                          .has_value())) {
            last_error_ = ok ? "what is left of the replicas differs"
                          : result.answer.has_value()
                              ? result.answer->status.ToString()
                              : "no answer";
            todo_.insert(todo_.begin(), key);
            scheduler_.After(100 * kMillisecond, [this] { NextFinalRead(); });
            return;
          }
          Operation operation;
          operation.id = static_cast<OperationId>(workload_->recorded().size() +
                                                  final_reads_.size());
          operation.kind = OperationKind::kGet;
          operation.invoked = began;
          operation.ended = scheduler_.now();
          operation.outcome = Outcome::kOk;
          Workload::Fill(operation, get->siblings, get->context.has_value());
          if (trace_.readable()) {
            std::string text =
                absl::StrCat("final read of ", call_key, " shows");
            for (const Shown& shown : operation.shown) {
              absl::StrAppend(&text, " #", shown.writer);
            }
            if (operation.shown.empty()) absl::StrAppend(&text, " nothing");
            if (operation.answered_context)
              absl::StrAppend(&text, " + context");
            Say(Trace::Kind::kClient, std::move(text));
          }
          final_reads_.emplace(key, std::move(operation));
          NextFinalRead();
        });
  }

  // What grows has a bound, all the time.
  void CheckResources() {
    // One control and one data stream for each pair; old ones go by and by.
    const size_t pairs = static_cast<size_t>(Nodes() * (Nodes() - 1) / 2);
    if (network_.links() > 2 * pairs * kLinkGenerationsMax) {
      Complain("bounds", absl::StrCat(network_.links(), " streams between ",
                                      Nodes(), " nodes"));
    }
    if (scheduler_.pending() > kPendingMax) {
      Complain("bounds",
               absl::StrCat(scheduler_.pending(), " events wait in the world"));
    }
    for (const auto& node : world_.nodes) {
      if (!node->up() || !node->serving()) continue;
      for (int s = 0; s < node->shards(); ++s) {
        const ShardStats stats = node->shard(s).Stats();
        for (const auto& [target, backlog] : stats.hints) {
          const uint64_t bound =
              plan_.hint_bytes_max / static_cast<uint64_t>(node->shards());
          if (backlog.bytes <= bound) continue;
          Complain("bounds",
                   absl::StrCat("n", node->index(), " holds ", backlog.bytes,
                                " bytes of hints for node ", ToInt(target),
                                ", the bound is ", bound));
        }
      }
    }
    if (!healed_) {
      scheduler_.After(kResourcesEvery, [this] { CheckResources(); });
    }
  }

  // A full scan shows exactly the keys that reads show, in token order.
  void CheckScans() {
    const std::set<std::pair<int, int>> expiring = KeysThatMayExpire();
    for (size_t space = 0; space < plan_.keyspaces.size(); ++space) {
      if (!CanScan(static_cast<int>(space))) continue;
      scanned_.clear();
      scan_over_ = false;
      scan_failed_ = false;
      ScanPage(static_cast<int>(space), "");
      if (!Await(kFinalReadsMax, 50 * kMillisecond,
                 [this] { return scan_over_; })) {
        Complain("liveness", "a scan never ends");
        return;
      }
      if (scan_failed_) return;
      std::set<std::string> expected;
      for (const auto& [key, read] : final_reads_) {
        if (key.first == static_cast<int>(space) && !expiring.contains(key) &&
            !read.shown.empty()) {
          expected.insert(workload_->KeyName(key.second));
        }
      }
      std::set<std::string> seen;
      Token last = 0;
      for (const auto& [key, values] : scanned_) {
        if (!seen.insert(key).second || TokenOf(key) < last) {
          Complain("scan",
                   absl::StrCat("a scan of ", plan_.keyspaces[space].name,
                                " shows ", key, " out of order"));
        }
        last = TokenOf(key);
        expected.erase(key);
      }
      for (const std::string& key : expected) {
        Complain("scan",
                 absl::StrCat("a scan of ", plan_.keyspaces[space].name,
                              " misses ", key),
                 absl::StrCat(plan_.keyspaces[space].name, "/", key));
        break;
      }
      const std::map<std::string, std::set<OperationId>> by_key(
          scanned_.begin(), scanned_.end());
      for (const auto& [key, read] : final_reads_) {
        if (key.first != static_cast<int>(space) || expiring.contains(key)) {
          continue;
        }
        const auto it = by_key.find(workload_->KeyName(key.second));
        if (it == by_key.end()) continue;
        std::set<OperationId> read_values;
        for (const Shown& shown : read.shown) read_values.insert(shown.writer);
        if (read_values != it->second) {
          Complain("scan", absl::StrCat("a scan and a read of ",
                                        plan_.keyspaces[space].name, "/",
                                        it->first, " show different values"));
        }
      }
    }
  }

  // Whether R replicas of each segment are left.
  bool CanScan(int space) {
    const Keyspace& keyspace = SpaceInRing(space);
    for (size_t segment = 0; segment < ring_->segments(); ++segment) {
      uint32_t left = 0;
      for (const NodeNumber number :
           ring_->PreferenceListOfSegment(keyspace, segment)) {
        if (!IsGone(number)) ++left;
      }
      if (left < ring_->EffectiveR(keyspace)) return false;
    }
    return true;
  }

  std::set<std::pair<int, int>> KeysThatMayExpire() const {
    std::set<std::pair<int, int>> keys;
    for (const Recorded& recorded : workload_->recorded()) {
      if (recorded.operation.expires) {
        keys.insert({recorded.space, recorded.key});
      }
    }
    return keys;
  }

  void ScanPage(int space, std::string cursor) {
    ScanCall call;
    call.keyspace = plan_.keyspaces[static_cast<size_t>(space)].name;
    call.cursor = cursor;
    call.limit = 1 + static_cast<uint32_t>(random_.Uniform(12));
    workload_->Ask(
        AnyLiveNode(), std::move(call), kFinalTimeout,
        [this, space, cursor](CallResult result) {
          const ScanAnswer* scan =
              result.answer.has_value()
                  ? std::get_if<ScanAnswer>(&result.answer->answer)
                  : nullptr;
          if (scan == nullptr || !result.answer->status.ok()) {
            Complain("scan",
                     absl::StrCat("a page of a scan fails without faults: ",
                                  result.answer.has_value()
                                      ? result.answer->status.ToString()
                                      : "no answer"));
            scan_failed_ = true;
            scan_over_ = true;
            return;
          }
          for (const ScanAnswer::Entry& entry : scan->entries) {
            std::set<OperationId> values;
            for (const SiblingAnswer& sibling : entry.siblings) {
              values.insert(WriterOf(sibling.value));
            }
            scanned_.emplace_back(entry.key, std::move(values));
          }
          if (scan->cursor.empty()) {
            scan_over_ = true;
          } else {
            ScanPage(space, scan->cursor);
          }
        });
  }

  // Whether enough nodes are left for it, at the keyspace's own settings.
  bool CanWrite(int space, const std::string& key) {
    const Keyspace& keyspace = SpaceInRing(space);
    const uint32_t w = ring_->EffectiveW(keyspace);
    // Stand-ins that take no hints for the gone are no help.
    if (keyspace.quorum != QuorumMode::kStrict && plan_.RoomForHints()) {
      return LiveNodes().size() >= w;
    }
    return ReplicasOf(space, key).size() >=
           std::max(w, ring_->EffectiveR(keyspace));
  }

  // Every node coordinates writes again, in every keyspace.
  void CheckWritesWork() {
    for (size_t space = 0; space < plan_.keyspaces.size(); ++space) {
      for (const int node : LiveNodes()) {
        int left = 1;
        PutCall call;
        call.keyspace = plan_.keyspaces[space].name;
        call.key = absl::StrCat("last-", node);
        if (!CanWrite(static_cast<int>(space), call.key)) continue;
        call.value = "x";
        absl::Status status;
        workload_->Ask(node, std::move(call), kFinalTimeout,
                       [&](CallResult result) {
                         left = 0;
                         status = result.answer.has_value()
                                      ? result.answer->status
                                      : absl::UnknownError("no answer");
                       });
        Await(2 * kFinalTimeout, 10 * kMillisecond, [&] { return left == 0; });
        if (!status.ok()) {
          Complain("liveness",
                   absl::StrCat(
                       "a put at n", node, " in ", plan_.keyspaces[space].name,
                       " fails after the faults: ", status.ToString()));
          return;
        }
      }
    }
  }

  void LoseMajority() {
    const std::vector<Member>& members = world_.newest_ring->spec().members;
    const bool all_up = std::all_of(
        members.begin(), members.end(), [this](const Member& member) {
          const Node& node = *world_.AtAddress(member.peer_address);
          return node.serving() && !node.HasLost(member.id);
        });
    if (members.size() < 2 || !all_up) return;
    // The operators of the run have nothing to mend here.
    if (topology_ != nullptr) topology_->Retire();
    Disaster disaster(world_, RandomFor(plan_.seed, Purpose::kDisaster, 1));
    disaster.Strike();
    if (!Await(kTopologyMax, 100 * kMillisecond,
               [&disaster] { return disaster.Recovered(); })) {
      Complain("liveness",
               absl::StrCat("the survivors of a majority's loss are "
                            "not recovered ",
                            kTopologyMax / kSecond,
                            " s later: ", disaster.Trouble()));
      return;
    }
    ring_ = world_.newest_ring;
    CheckWritesWork();
  }

  // --- Judging the histories ---

  void Judge() {
    for (const std::string& complaint : workload_->complaints()) {
      Complain("answer", complaint);
    }
    std::map<std::pair<int, int>, KeyHistory> histories;
    for (const Recorded& recorded : workload_->recorded()) {
      KeyHistory& history = histories[{recorded.space, recorded.key}];
      history.operations.push_back(recorded.operation);
    }
    for (auto& [key, history] : histories) {
      const Keyspace& keyspace =
          plan_.keyspaces[static_cast<size_t>(key.first)];
      history.keyspace = keyspace.name;
      history.key = workload_->KeyName(key.second);
      history.lww = keyspace.mode == VersionMode::kLww;
      if (topology_ != nullptr) {
        history.least_copies = world_.least_copies[keyspace.name];
      }
      std::stable_sort(history.operations.begin(), history.operations.end(),
                       [](const Operation& a, const Operation& b) {
                         return a.invoked < b.invoked;
                       });
      Losses losses;
      losses.losses = disk_losses_;
      if (keyspace.durability == Durability::kInterval) {
        losses.losses.insert(losses.losses.end(), power_losses_.begin(),
                             power_losses_.end());
      }
      const std::pair<std::string, std::string> name(history.keyspace,
                                                     history.key);
      if (const auto rot = key_losses_.find(name); rot != key_losses_.end()) {
        losses.losses.insert(losses.losses.end(), rot->second.begin(),
                             rot->second.end());
      }
      if (const auto hinted = in_hints_.find(name); hinted != in_hints_.end()) {
        history.hints_left = true;
        history.in_hints = hinted->second;
      }
      const auto read = final_reads_.find(key);
      std::vector<Violation> found;
      CheckKey(history, losses,
               read == final_reads_.end() ? nullptr : &read->second, found);
      for (Violation& violation : found) {
        if (violations_.size() > 20) break;
        Say(Trace::Kind::kCheck,
            absl::StrCat("VIOLATION ", violation.check, " ", violation.key,
                         ": ", violation.text));
        violations_.push_back(std::move(violation));
      }
    }
    const auto rotten = [this](const Recorded& recorded) {
      const auto losses = key_losses_.find(
          {plan_.keyspaces[static_cast<size_t>(recorded.space)].name,
           workload_->KeyName(recorded.key)});
      return losses != key_losses_.end() &&
             losses->second.front().at < recorded.operation.ended;
    };
    const auto ring_during = [this](WorldTime from, WorldTime until) {
      return topology_ == nullptr ? ring_ : topology_->RingDuring(from, until);
    };
    CheckAvailability(connectivity_, ring_during, world_, workload_->recorded(),
                      rotten, [this](const char* check, std::string text) {
                        Complain(check, std::move(text));
                      });
  }

  void NoteStates() {
    // The first processes begin while the world is still made.
    for (size_t i = 0; i < world_.nodes.size(); ++i) {
      const Node& node = *world_.nodes[i];
      const RunStory::NodeState state = !node.up() ? RunStory::NodeState::kDown
                                        : node.frozen()
                                            ? RunStory::NodeState::kFrozen
                                            : RunStory::NodeState::kUp;
      if (state == node_states_[i]) continue;
      node_states_[i] = state;
      story_.changes.push_back({scheduler_.now(), static_cast<int>(i), state});
    }
  }

  void Tell(RunStory& story) {
    story = std::move(story_);
    if (workload_ != nullptr) story.operations = workload_->recorded();
    for (const auto& [key, read] : final_reads_) {
      Recorded recorded;
      recorded.space = key.first;
      recorded.key = key.second;
      recorded.operation = read;
      recorded.operation.client = -1;  // nor has it one node
      recorded.node = -1;
      story.final_reads.push_back(std::move(recorded));
    }
  }

  void NoteConnectivity(bool surely = false) {
    if (world_.nodes.size() != plan_.nodes.size()) return;
    connectivity_.Note(scheduler_.now(), network_, world_, surely);
  }

  const Plan& plan_;
  const RunOptions options_;
  Scheduler scheduler_;
  Trace trace_;
  Network network_;
  World world_;
  SeededRandom random_;
  Connectivity connectivity_;
  std::vector<Loss> power_losses_;
  std::vector<Loss> disk_losses_;
  std::map<const Fault*, Node::Backup> backups_;
  std::map<Moment, int> moments_;  // that have come
  std::deque<Fault> aimed_;        // faults of these moments
  using KeyspaceAndKey = std::pair<std::string, std::string>;
  std::map<KeyspaceAndKey, std::vector<Loss>> key_losses_;
  std::map<KeyspaceAndKey, std::set<OperationId>> in_hints_;
  std::shared_ptr<const Ring> ring_;
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<Operators> operators_;
  std::unique_ptr<Topology> topology_;
  std::vector<std::function<void()>> undos_;
  bool healed_ = false;
  int calls_out_ = 0;
  // Members, since a second attempt may look at them when the ring is made.
  bool init_made_ = false;
  absl::Status forming_status_;
  std::vector<Violation> violations_;
  std::vector<RunStory::NodeState> node_states_;
  RunStory story_;

  std::vector<std::pair<int, int>> todo_;
  std::map<std::pair<int, int>, Operation> final_reads_;
  bool reading_over_ = false;
  std::string last_error_;
  std::vector<std::pair<std::string, std::set<OperationId>>> scanned_;
  bool scan_over_ = false;
  bool scan_failed_ = false;
};

}  // namespace

RunResult RunPlan(const Plan& plan, const RunOptions& options) {
  return Simulation(plan, options).Run();
}

}  // namespace ringkv::sim
