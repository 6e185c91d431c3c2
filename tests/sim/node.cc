#include "tests/sim/node.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/token.h"
#include "membership/ring/ring_codec.h"
#include "server/codec/control_codec.h"
#include "server/codec/data_codec.h"
#include "server/streaming/report.h"
#include "tests/sim/message_note.h"

namespace ringkv::sim {
namespace {

constexpr WorldTime kStallRetry = 5 * kMillisecond;
constexpr WorldTime kLoadInterval = kSecond;
// The longest fsync or read.
constexpr WorldTime kDiskTimeMax = 2 * kSecond;
// A crash that waits for its point in a turn comes by then in any case.
constexpr WorldTime kCrashPatience = 50 * kMillisecond;
// What a node holds no more goes within the run.
constexpr absl::Duration kDropGrace = absl::Seconds(5);
// The clock's bound counts as near when it is closer than this.
constexpr int64_t kBoundNearMillis = 2000;

const char* WhereOf(CrashPoint point) {
  switch (point) {
    case CrashPoint::kBetweenTurns:
      return "between turns";
    case CrashPoint::kBeforeRun:
      return "before a turn";
    case CrashPoint::kBeforeWrite:
      return "before the write of a turn";
    case CrashPoint::kBeforeRelease:
      return "after the write of a turn";
    case CrashPoint::kAmidRelease:
      return "amid the release of a turn";
    case CrashPoint::kAfterSync:
      return "after an fsync";
  }
  return "?";
}

// As the real store: what is left is for its own records.
bool FillsTheDisk(const WriteBatch& batch) {
  return std::any_of(batch.operations().begin(), batch.operations().end(),
                     [](const WriteBatch::Operation& operation) {
                       return operation.kind == WriteBatch::Kind::kPut &&
                              operation.family != Family::kMeta;
                     });
}

}  // namespace

Node* World::AtAddress(absl::string_view address) {
  size_t index = 0;
  if (!absl::ConsumePrefix(&address, "10.0.0.") ||
      !absl::ConsumeSuffix(&address, ":7800") ||
      !absl::SimpleAtoi(address, &index) || index >= nodes.size()) {
    return nullptr;
  }
  return nodes[index].get();
}

Node::Node(World& world, int index)
    : world_(world),
      index_(index),
      plan_(world.plan.nodes[static_cast<size_t>(index)]),
      clocks_(plan_.clock_origin, plan_.clock_rate_ppm,
              plan_.wall_offset_micros),
      random_(RandomFor(world.plan.seed, Purpose::kDisk,
                        static_cast<uint64_t>(index))),
      turn_delay_(world.plan.turn_mean),
      not_cached_share_(world.plan.disk.not_cached_share) {
  engine_.set_not_cached([this](Family, absl::string_view) {
    return not_cached_share_ > 0 && random_.Chance(not_cached_share_);
  });
  engine_.set_write_error([this](const WriteBatch& batch) {
    if (stalled_) return absl::ResourceExhaustedError("the disk stalls");
    if (no_room_ && FillsTheDisk(batch)) {
      return absl::ResourceExhaustedError("the disk is full");
    }
    return absl::OkStatus();
  });
}

std::string Node::PeerAddress() const {
  return absl::StrCat("10.0.0.", index_, ":7800");
}

bool Node::serving() const {
  return up() && process_->epoch_confirmed != 0 &&
         process_->epoch_confirmed == process_->epoch_offered;
}

bool Node::stands_by() const {
  return up() && disk_ == Disk::kEmpty && process_->control != nullptr &&
         process_->control->ring() == nullptr;
}

bool Node::HasLost(const NodeId& id) const {
  const auto it = std::find(ids_.begin(), ids_.end(), id);
  return it != ids_.end() && (it + 1 != ids_.end() || refused_);
}

bool Node::HasLeft() const {
  if (ids_.empty() || world_.newest_ring == nullptr) return false;
  const NodeId& id = ids_.back();
  if (world_.members.count(id) == 0) return false;
  const Member* member = world_.newest_ring->FindMember(id);
  if (member == nullptr) return true;
  // It may be the first to hear of the end.
  const auto& operation = world_.newest_ring->spec().operation;
  return operation.has_value() && (operation->Leaves(member->number) ||
                                   operation->Joins(member->number));
}

std::string Node::name() const {
  return generation_ == 0 ? absl::StrCat("node-", index_)
                          : absl::StrCat("node-", index_, "-", generation_);
}

const Control* Node::control() const {
  return up() ? process_->control.get() : nullptr;
}
uint64_t Node::start_id() const {
  return up() && process_->control ? process_->control->start_id() : 0;
}
const Shard& Node::shard(int i) const {
  return *process_->loops[static_cast<size_t>(i)].shard;
}
size_t Node::peers_alive() const {
  if (!up() || process_->peers == nullptr) return 0;
  size_t alive = 0;
  for (const auto& [number, health] : *process_->peers) {
    if (health.alive) ++alive;
  }
  return alive;
}

void Node::Say(Trace::Kind kind, std::string text) const {
  if (!world_.trace.readable()) return;
  world_.trace.Say({.nanos = world_.scheduler.now(),
                    .lane = index_,
                    .kind = kind,
                    .text = std::move(text)});
}

void Node::Later(WorldTime delay, std::function<void()> action) {
  world_.scheduler.After(
      delay, [this, run = run_, action = std::move(action)]() mutable {
        if (run != run_ || !up()) return;
        if (frozen_) {
          thawing_.push_back([this, run, action = std::move(action)] {
            if (run == run_ && up()) action();
          });
          return;
        }
        action();
      });
}

WorldTime Node::Draw(WorldTime mean) {
  if (mean <= 0) return 0;
  return static_cast<WorldTime>(-static_cast<double>(mean) *
                                std::log1p(-random_.NextDouble()));
}

WorldTime Node::DiskTime(WorldTime min, WorldTime mean) {
  // A slow disk's tail must not reach from the faults into the time after them.
  return std::min((min + Draw(mean)) * disk_factor_, kDiskTimeMax);
}

// --- Process ---

void Node::StartNow() {
  if (!up() && start_at_ != kForever) Start();
}

void Node::Start() {
  RINGKV_CHECK(!up());
  start_at_ = kForever;
  ++run_;
  frozen_ = false;
  world_.network.SetPower(index_, true);
  process_ = std::make_unique<Process>(Process{
      .random = RandomFor(world_.plan.seed, Purpose::kNode,
                          static_cast<uint64_t>(index_) * 1000 + run_)});
  world_.trace.Mix(0x5741525400000000ull + static_cast<uint64_t>(index_));
  if (world_.processes_changed) world_.processes_changed();
  Boot();
}

void Node::Boot() {
  Process& process = *process_;
  StartOptions start;
  start.name = name();
  start.location = {"z", plan_.rack, plan_.host};
  start.has_data = engine_.Stats().data_keys > 0 || engine_.LastSequence() > 0;
  absl::StatusOr<StartedNode> started =
      StartNode(ReadMeta(engine_), start, Now().wall, process.random);
  if (!started.ok() && HasLeft()) {
    departed_ = true;
    Say(Trace::Kind::kControl, std::string(started.status().message()));
    Crash(false, kForever);
    return;
  }
  if (!started.ok()) {
    world_.complain(absl::StrCat(
        "n", index_, " would not start: ", started.status().ToString()));
    Crash(false, kForever);
    return;
  }
  Say(Trace::Kind::kProcess,
      absl::StrCat("starts, incarnation ", started->incarnation, ", start id ",
                   started->start_id));
  // Written before anybody hears of this run; retried if the disk stalls.
  const absl::StatusOr<uint64_t> written =
      engine_.Write(ToBatch(started->writes));
  if (!written.ok()) {
    Later(kStallRetry, [this] { Boot(); });
    return;
  }
  auto shared = std::make_shared<StartedNode>(*std::move(started));
  Later(DiskTime(world_.plan.disk.sync_min, world_.plan.disk.sync_mean),
        [this, shared, sequence = *written] {
          RINGKV_CHECK(engine_.SyncTo(sequence).ok());
          Process& process = *process_;
          process.synced = sequence;
          process.hlc = std::make_unique<Hlc>(shared->hlc_floor);
          ControlOptions options;
          options.name = name();
          options.client_address = absl::StrCat("10.0.0.", index_, ":7700");
          options.peer_address = PeerAddress();
          options.location = {"z", plan_.rack, plan_.host};
          options.weight = plan_.weight;
          // The first two know each other and everybody else knows them. When
          // the ring changes nobody stays for sure.
          const size_t seeds = world_.plan.topology.changes() ? 64 : 2;
          for (size_t seed = 0; seed < std::min(seeds, world_.nodes.size());
               ++seed) {
            options.seeds.push_back(absl::StrCat("10.0.0.", seed, ":7800"));
          }
          options.version = "sim";
          const uint64_t start_id = shared->start_id;
          process.control = std::make_unique<Control>(
              options, std::move(*shared), *process.hlc, process.random);
          if (ids_.empty() || ids_.back() != process.control->id()) {
            ids_.push_back(process.control->id());
          }
          process.control_loop =
              std::make_unique<ControlTurnLoop>(*process.control, engine_);
          process.loops.resize(static_cast<size_t>(plan_.shards));
          for (int i = 0; i < plan_.shards; ++i) {
            Loop& loop = process.loops[static_cast<size_t>(i)];
            ShardOptions shard;
            shard.shard = i;
            shard.shards = plan_.shards;
            shard.start_id = start_id;
            shard.hint_bytes_max = world_.plan.hint_bytes_max /
                                   static_cast<uint64_t>(plan_.shards);
            shard.hint_age_max = absl::Nanoseconds(world_.plan.hint_age_max);
            shard.handoff_bytes_per_second = world_.plan.hint_rate;
            shard.drop_grace = kDropGrace;
            shard.stream_rate = world_.plan.topology.stream_rate;
            loop.shard = std::make_unique<Shard>(shard, engine_, *process.hlc,
                                                 process.random);
            const absl::Status recovered = loop.shard->Recover();
            if (!recovered.ok()) {
              world_.complain(absl::StrCat(
                  "n", index_, " cannot recover: ", recovered.ToString()));
            }
            loop.loop = std::make_unique<TurnLoop>(*loop.shard, engine_);
          }
          PostControl(ControlStarted{});
          Later(kLoadInterval, [this] { ReportLoad(); });
          Later(world_.plan.disk.interval, [this] { IntervalSync(); });
        });
}

void Node::ArmCrash(CrashPoint point, bool power, WorldTime down) {
  if (!up()) return;
  crash_ = ArmedCrash{point, power, down};
  if (point == CrashPoint::kBetweenTurns) {
    CrashHere(point);
    return;
  }
  world_.scheduler.After(kCrashPatience, [this, run = run_] {
    if (run == run_ && up() && crash_.has_value()) {
      CrashHere(crash_->point);
    }
  });
}

bool Node::CrashHere(CrashPoint point) {
  if (!crash_.has_value() || crash_->point != point) return false;
  const ArmedCrash crash = *crash_;
  crash_.reset();
  Say(Trace::Kind::kFault,
      absl::StrCat(crash.power ? "loses power " : "dies ", WhereOf(point)));
  Crash(crash.power, crash.down);
  return true;
}

void Node::Crash(bool power, WorldTime down) {
  ++crashes_;
  crash_.reset();
  if (serving()) {
    for (int s = 0; s < shards(); ++s) {
      if (shard(s).Stats().unequal_dots == 0) continue;
      world_.complain(
          absl::StrCat("n", index_, " met equal dots with unequal values"));
    }
  }
  world_.trace.Mix(0x4352415348000000ull + static_cast<uint64_t>(index_));
  if (power) {
    const size_t unsynced = engine_.UnsyncedWrites();
    const size_t keep = static_cast<size_t>(random_.Uniform(unsynced + 1));
    Say(Trace::Kind::kFault,
        absl::StrCat("keeps ", keep, " of ", unsynced, " un-synced writes"));
    engine_.Crash(keep);
    if (world_.power_lost) world_.power_lost(index_, synced_by_);
    synced_by_ = world_.scheduler.now();
    world_.network.SetPower(index_, false);
  }
  world_.network.Died({index_, run_}, !power);
  DropCalls();
  process_.reset();
  frozen_ = false;
  thawing_.clear();
  if (world_.processes_changed) world_.processes_changed();
  if (down != kForever) StartAfter(down);
}

void Node::StartAfter(WorldTime down) {
  start_at_ = world_.scheduler.now() + down;
  world_.scheduler.At(start_at_, [this, expected = start_at_] {
    if (!up() && start_at_ == expected) Start();
  });
}

void Node::ExchangeDisk(std::optional<Backup> backup, WorldTime down) {
  if (up()) {
    Crash(false, down);
  } else {
    StartAfter(down);
  }
  Say(Trace::Kind::kFault,
      backup.has_value() ? "gets an older disk" : "gets an empty disk");
  if (world_.disk_lost && !departed_ && disk_ != Disk::kEmpty) {
    world_.disk_lost(index_, backup.has_value() ? backup->synced : -kForever);
  }
  refused_ = departed_ = false;
  if (!backup.has_value()) {
    ++generation_;
    ids_.emplace_back();  // until the new disk has one
  }
  disk_ = backup.has_value() ? Disk::kOld : Disk::kEmpty;
  synced_by_ = world_.scheduler.now();
  engine_.Replace(backup.has_value() ? std::move(backup->image)
                                     : MemoryEngine::Image());
  if (world_.processes_changed) world_.processes_changed();
}

void Node::DropCalls() {
  std::map<uint64_t, CallDone> calls;
  calls.swap(process_->calls);
  for (auto& [id, done] : calls) done(CallResult{});
  for (auto& [id, done] : process_->admin_calls) {
    AdminAnswer answer;
    answer.status = absl::UnavailableError("the node died");
    done(std::move(answer));
  }
}

void Node::Freeze() {
  if (!up() || frozen_) return;
  frozen_ = true;
  Say(Trace::Kind::kFault, "freezes");
  if (world_.processes_changed) world_.processes_changed();
}

void Node::Thaw() {
  if (!up() || !frozen_) return;
  frozen_ = false;
  Say(Trace::Kind::kFault, "goes on");
  if (world_.processes_changed) world_.processes_changed();
  std::vector<std::function<void()>> actions;
  actions.swap(thawing_);
  for (std::function<void()>& action : actions) action();
}

void Node::Heal() {
  SetDiskFull(false, false);
  bad_memory_ = false;
  stalled_ = false;
  disk_factor_ = 1;
  turn_delay_ = world_.plan.turn_mean;
  not_cached_share_ = std::min(not_cached_share_, 0.1);
}

// --- Shard loops ---

int Node::ShardOfMessage(const DataMessage& message) const {
  const int shards = plan_.shards;
  return std::visit(
      [shards](const auto& body) -> int {
        using T = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<T, ReadRequest> ||
                      std::is_same_v<T, WriteRequest>) {
          return ShardOf(TokenOf(body.key), shards);
        } else if constexpr (std::is_same_v<T, ForwardRequest>) {
          return std::visit(
              [shards](const auto& call) -> int {
                using C = std::decay_t<decltype(call)>;
                if constexpr (std::is_same_v<C, ScanCall>) {
                  return 0;
                } else {
                  return ShardOf(TokenOf(call.key), shards);
                }
              },
              body.call);
        } else if constexpr (std::is_same_v<T, RangeRequest>) {
          return ShardOf(body.after_token, shards);
        } else if constexpr (std::is_same_v<T, StreamRequest>) {
          return ShardOf(body.from.token, shards);
        } else {
          const uint64_t shard = body.operation >> kOperationShardShift;
          return shard < static_cast<uint64_t>(shards) ? static_cast<int>(shard)
                                                       : 0;
        }
      },
      message.body);
}

int Node::ShardOfCall(const ClientCall& call) {
  return std::visit(
      [this](const auto& call) -> int {
        using C = std::decay_t<decltype(call)>;
        if constexpr (std::is_same_v<C, ScanCall>) {
          return static_cast<int>(
              random_.Uniform(static_cast<uint64_t>(plan_.shards)));
        } else {
          return ShardOf(TokenOf(call.key), plan_.shards);
        }
      },
      call);
}

void Node::Post(int shard, ShardEvent event) {
  process_->loops[static_cast<size_t>(shard)].mailbox.push_back(
      std::move(event));
  ScheduleTurn(shard);
}

void Node::ScheduleTurn(int shard) {
  Loop& loop = process_->loops[static_cast<size_t>(shard)];
  if (loop.turn_due || loop.committing) return;
  loop.turn_due = true;
  Later(Draw(turn_delay_), [this, shard] { RunTurn(shard); });
}

void Node::RunTurn(int shard) {
  Loop& loop = process_->loops[static_cast<size_t>(shard)];
  loop.turn_due = false;
  if (loop.committing) return;
  const Time time = Now();
  ++turns_;
  ++loop.turns;
  auto released = std::make_shared<Released>();
  if (!loop.loop->stalled()) {
    if (loop.shard->NextTimer() <= time.now) {
      loop.mailbox.push_back(TimerFired{});
    }
    if (loop.mailbox.empty()) {
      ArmTimer(shard);
      return;
    }
    if (CrashHere(CrashPoint::kBeforeRun)) return;
    for (const ShardEvent& event : loop.mailbox) {
      world_.trace.Mix(event.index());
    }
    world_.trace.Mix(static_cast<uint64_t>(time.now.nanos));
    loop.loop->Run(loop.mailbox, time, *released);
    if (!Release(*released, shard)) return;
    if (CrashHere(CrashPoint::kBeforeWrite)) return;
    if (world_.plan.disk.late_commit_share > 0 &&
        random_.Chance(world_.plan.disk.late_commit_share)) {
      loop.committing = true;
      Later(DiskTime(0, world_.plan.disk.commit_mean), [this, shard, released] {
        process_->loops[static_cast<size_t>(shard)].committing = false;
        CommitTurn(shard, released);
      });
      return;
    }
  }
  CommitTurn(shard, released);
}

void Node::CommitTurn(int shard, std::shared_ptr<Released> released) {
  Loop& loop = process_->loops[static_cast<size_t>(shard)];
  const absl::Status status = loop.loop->Commit(*released);
  if (!status.ok()) {
    world_.complain(
        absl::StrCat("n", index_, " cannot write: ", status.ToString()));
    return;
  }
  if (loop.loop->stalled()) {
    loop.turn_due = true;
    Later(kStallRetry, [this, shard] { RunTurn(shard); });
    return;
  }
  if (CrashHere(CrashPoint::kBeforeRelease)) return;
  // What the commit lets go: an answer that needs no fsync or is fsynced.
  if (!Release(*released, shard)) return;
  if (loop.turns % static_cast<uint64_t>(world_.check_every) == 0) {
    loop.shard->CheckInvariants();
  }
  const Hlc& hlc = *process_->hlc;
  const int64_t ahead = HlcMillis(hlc.bound()) -
                        std::max(HlcMillis(hlc.Last()), Now().wall.millis());
  if (ahead < kBoundNearMillis &&
      process_->refused_at_bound != ToInt(hlc.bound())) {
    process_->refused_at_bound = ToInt(hlc.bound());
    PostControl(ClockBoundLow{});
  }
  if (!loop.mailbox.empty()) {
    ScheduleTurn(shard);
  } else {
    ArmTimer(shard);
  }
}

void Node::ArmTimer(int shard) {
  Loop& loop = process_->loops[static_cast<size_t>(shard)];
  const WorldTime when = clocks_.WorldOf(loop.shard->NextTimer());
  if (when >= loop.timer_at) return;
  loop.timer_at = when;
  Later(std::max<WorldTime>(0, when - world_.scheduler.now()),
        [this, shard, when] {
          Loop& loop = process_->loops[static_cast<size_t>(shard)];
          if (loop.timer_at != when) return;
          loop.timer_at = kForever;
          ScheduleTurn(shard);
        });
}

bool Node::Release(Released& released, int shard) {
  const size_t things = released.messages.size() + released.answers.size();
  size_t count = things;
  bool dies = false;
  if (things > 0 && crash_.has_value() &&
      crash_->point == CrashPoint::kAmidRelease) {
    count = static_cast<size_t>(random_.Uniform(things));
    dies = true;
  }
  SendData(released.messages, std::min(count, released.messages.size()));
  for (size_t i = 0; i < released.answers.size(); ++i) {
    if (released.messages.size() + i >= count) break;
    OutgoingAnswer& answer = released.answers[i];
    const auto it = process_->calls.find(answer.id);
    if (it == process_->calls.end()) continue;
    CallDone done = std::move(it->second);
    process_->calls.erase(it);
    world_.trace.Mix(static_cast<uint64_t>(answer.answer.status.code()) +
                     (answer.id << 8));
    CallResult result;
    result.answer = std::move(answer.answer);
    result.start_id = start_id();
    done(std::move(result));
  }
  if (dies) {
    CrashHere(CrashPoint::kAmidRelease);
    return false;
  }
  for (ReadJob& job : released.reads) StartRead(shard, std::move(job));
  Loop& loop = process_->loops[static_cast<size_t>(shard)];
  if (released.adopted != 0) {
    loop.adopted = released.adopted;
    ConfirmEpoch();
  }
  if (released.transfers.has_value()) {
    loop.transfers = *released.transfers;
    std::vector<TransferReport> transfers;
    for (const Loop& each : process_->loops) {
      transfers.push_back(each.transfers);
    }
    PostControl(TransfersReported{SumOf(transfers)});
  }
  if (released.wants_ring) {
    PostControl(RingWanted{released.wants_ring_from});
  }
  if (released.wants_sync) WantSync();
  released.Clear();
  return true;
}

void Node::StartRead(int shard, ReadJob job) {
  auto shared = std::make_shared<ReadJob>(std::move(job));
  Later(DiskTime(0, world_.plan.disk.read_mean), [this, shard, shared] {
    ReadDone done;
    done.job = shared->job;
    if (shared->is_range) {
      done.range = engine_.Range(shared->family, shared->begin, shared->end,
                                 shared->limits);
    } else {
      done.result = engine_.Get(shared->family, shared->begin, ReadTier::kAll);
    }
    auto result = std::make_shared<ReadDone>(std::move(done));
    Later(Draw(10 * kMicrosecond),
          [this, shard, result] { Post(shard, std::move(*result)); });
  });
}

// --- Fsync ---

void Node::WantSync() {
  process_->sync_wanted = true;
  if (!process_->syncing) BeginSync();
}

void Node::BeginSync() {
  process_->syncing = true;
  process_->sync_wanted = false;
  Later(DiskTime(world_.plan.disk.sync_min, world_.plan.disk.sync_mean),
        [this, sequence = engine_.LastSequence(),
         began = world_.scheduler.now()] { EndSync(sequence, began); });
}

void Node::EndSync(uint64_t sequence, WorldTime began) {
  RINGKV_CHECK(engine_.SyncTo(sequence).ok());
  synced_by_ = std::max(synced_by_, began);
  if (CrashHere(CrashPoint::kAfterSync)) return;
  Process& process = *process_;
  process.syncing = false;
  process.synced = std::max(process.synced, sequence);
  for (int i = 0; i < plan_.shards; ++i) {
    Released released;
    process.loops[static_cast<size_t>(i)].loop->Synced(sequence, released);
    if (!Release(released, i)) return;
    ArmTimer(i);
  }
  ControlEffects effects;
  process.control_loop->Synced(sequence, Now(), effects);
  Perform(effects);
  if (!up() || process_.get() != &process) return;
  if ((process.sync_wanted || process.control_loop->wants_sync()) &&
      !process.syncing) {
    BeginSync();
  }
  ArmControlTimer();
}

void Node::IntervalSync() {
  if (!process_->syncing && engine_.LastSequence() > process_->synced) {
    BeginSync();
  }
  Later(world_.plan.disk.interval, [this] { IntervalSync(); });
}

// --- Data messages ---

size_t Node::SayMessage(const DataMessage& message, int to) const {
  if (process_->ring == nullptr) return Trace::kNotKept;
  MessageNote note = NoteOf(message, *process_->ring);
  if (note.is_reply) {
    note.key = world_.trace.KeyOfRequest(to, note.operation);
  } else if (!note.key.empty()) {
    world_.trace.NoteRequest(index_, note.operation, note.key);
  }
  std::string text = absl::StrCat("-> n", to, " ", note.text);
  if (note.is_reply && !note.key.empty()) {
    absl::StrAppend(&text, " (", note.key, ")");
  }
  return world_.trace.Say({.nanos = world_.scheduler.now(),
                           .lane = index_,
                           .kind = Trace::Kind::kMessage,
                           .text = std::move(text),
                           .to = to,
                           .key = std::move(note.key)});
}

void Node::SendData(std::vector<OutgoingMessage>& messages, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    OutgoingMessage& out = messages[i];
    if (process_->peers == nullptr) continue;
    const auto health = process_->peers->find(out.to);
    if (health == process_->peers->end()) continue;
    const auto link = process_->links.find(health->second.data_link);
    if (link == process_->links.end()) continue;
    Node& peer = *world_.nodes[static_cast<size_t>(link->second.peer)];
    // A client call must not run twice; all else may come again.
    const bool may_repeat =
        !std::holds_alternative<ForwardRequest>(out.message.body);
    const size_t record = world_.trace.readable()
                              ? SayMessage(out.message, peer.index())
                              : Trace::kNotKept;
    if (bad_memory_) Damage(out.message);
    std::string bytes = EncodeData(std::move(out.message));
    world_.trace.Mix(bytes);
    const size_t size = bytes.size();
    world_.network.Send(link->second.number, index_, may_repeat, size,
                        [&peer, from = index_, id = process_->control->id(),
                         run = peer.run_, record, bytes = std::move(bytes)] {
                          if (!peer.up() || peer.run_ != run) return;
                          peer.world_.trace.Arrived(
                              record, peer.world_.scheduler.now());
                          peer.OnData(from, id, bytes);
                        });
  }
}

void Node::Damage(DataMessage& message) {
  auto* chunk = std::get_if<StreamChunk>(&message.body);
  if (chunk == nullptr || chunk->items.empty() || random_.Chance(0.5)) return;
  StreamChunk::Item& item = chunk->items[random_.Uniform(chunk->items.size())];
  if (item.object.empty()) {
    ++item.digest;
  } else {
    item.object[random_.Uniform(item.object.size())] ^= 1;
  }
}

void Node::OnData(int from_node, const NodeId& from_id,
                  const std::string& bytes) {
  if (frozen_) {
    thawing_.push_back([this, run = run_, from_node, from_id, bytes] {
      if (run == run_ && up()) OnData(from_node, from_id, bytes);
    });
    return;
  }
  if (process_->loops.empty() || process_->ring == nullptr) return;
  absl::StatusOr<DataMessage> message = DecodeData(bytes);
  if (!message.ok()) {
    world_.complain(absl::StrCat("n", index_, " cannot read a message of n",
                                 from_node, ": ", message.status().ToString()));
    return;
  }
  const Member* from = process_->ring->FindMember(from_id);
  if (from == nullptr) return;
  const int shard = ShardOfMessage(*message);
  Post(shard, MessageArrived{from->number, *std::move(message)});
}

void Node::Publish(std::shared_ptr<const Ring> ring) {
  if (disk_ == Disk::kEmpty && ring->FindMember(process_->control->id())) {
    disk_ = Disk::kOwn;
    if (world_.processes_changed) world_.processes_changed();
  }
  const std::string encoded = EncodeRing(ring->spec());
  const auto [known, is_new] = world_.rings.emplace(ring->epoch(), encoded);
  if (!is_new && known->second != encoded) {
    world_.complain(absl::StrCat("n", index_, " adopts another ring of epoch ",
                                 ring->epoch(), " than its peers"));
  }
  for (const Keyspace& keyspace : ring->spec().keyspaces) {
    uint32_t& copies =
        world_.least_copies.emplace(keyspace.name, UINT32_MAX).first->second;
    copies =
        std::min({copies, ring->EffectiveW(keyspace),
                  ring->EffectiveN(keyspace) - ring->EffectiveR(keyspace) + 1});
  }
  for (const Member& member : ring->spec().members) {
    world_.members.insert(member.id);
  }
  if (world_.newest_ring == nullptr ||
      world_.newest_ring->epoch() < ring->epoch()) {
    const std::shared_ptr<const Ring> before =
        std::exchange(world_.newest_ring, std::move(ring));
    if (before != nullptr && world_.ring_moved) {
      world_.ring_moved(index_, *before);
    }
  }
}

// --- Client calls ---

uint64_t Node::Call(ClientCall call, WorldTime remaining, CallDone done) {
  if (!up() || process_->loops.empty()) {
    CallResult result;
    result.not_sent = true;
    done(std::move(result));
    return 0;
  }
  const uint64_t id = process_->next_call++;
  process_->calls[id] = std::move(done);
  const int shard = ShardOfCall(call);
  auto event = std::make_shared<CallArrived>();
  event->id = id;
  event->call = std::move(call);
  event->deadline = Now().now + absl::Nanoseconds(remaining);
  Later(0, [this, shard, event] { Post(shard, std::move(*event)); });
  return id;
}

void Node::Cancel(uint64_t call) {
  if (!up() || process_->calls.erase(call) == 0) return;
  for (int i = 0; i < plan_.shards; ++i) {
    Later(0, [this, i, call] { Post(i, CallCancelled{call}); });
  }
}

void Node::Admin(AdminCall call, WorldTime remaining,
                 std::function<void(AdminAnswer)> done) {
  if (!up() || process_->control == nullptr) {
    AdminAnswer answer;
    answer.status = absl::UnavailableError("the node is down");
    done(std::move(answer));
    return;
  }
  const uint64_t id = process_->next_call++;
  process_->admin_calls[id] = std::move(done);
  AdminArrived event;
  event.call = id;
  event.deadline = Now().now + absl::Nanoseconds(remaining);
  event.request = std::move(call);
  PostControl(std::move(event));
}

// --- Control loop ---

void Node::PostControl(ControlEvent event) {
  process_->control_mailbox.push_back(std::move(event));
  ScheduleControlTurn();
}

void Node::ScheduleControlTurn() {
  if (process_->control_turn_due) return;
  process_->control_turn_due = true;
  Later(Draw(10 * kMicrosecond), [this] { RunControlTurn(); });
}

void Node::RunControlTurn() {
  Process& process = *process_;
  process.control_turn_due = false;
  const Time time = Now();
  if (process.control->NextTimer() <= time.now) {
    process.control_mailbox.push_back(ControlTimer{});
  }
  for (const ControlEvent& event : process.control_mailbox) {
    world_.trace.Mix(event.index() + 100);
  }
  ControlEffects effects;
  process.control_loop->Run(process.control_mailbox, time, effects);
  if (CrashHere(CrashPoint::kBeforeWrite)) return;
  const absl::Status status = process.control_loop->Commit();
  if (!status.ok()) {
    world_.complain(
        absl::StrCat("n", index_, " cannot write: ", status.ToString()));
    return;
  }
  Perform(effects);
  if (!up() || process_.get() != &process) return;
  process.control->CheckInvariants();
  if (process.control_loop->stalled()) {
    Later(kStallRetry, [this] { ScheduleControlTurn(); });
  }
  if (process.control_loop->wants_sync()) WantSync();
  ArmControlTimer();
}

void Node::ArmControlTimer() {
  Process& process = *process_;
  const WorldTime when = clocks_.WorldOf(process.control->NextTimer());
  if (when >= process.control_timer_at) return;
  process.control_timer_at = when;
  Later(std::max<WorldTime>(0, when - world_.scheduler.now()), [this, when] {
    if (process_->control_timer_at != when) return;
    process_->control_timer_at = kForever;
    ScheduleControlTurn();
  });
}

void Node::Perform(ControlEffects& effects) {
  Process& process = *process_;
  for (LogLine& line : effects.log) {
    Say(Trace::Kind::kControl, std::move(line.text));
  }
  for (HelloAnswer& answer : effects.hello_answers) {
    const auto it = process.hellos.find(answer.call);
    if (it == process.hellos.end()) continue;
    HelloDone done = std::move(it->second);
    process.hellos.erase(it);
    done(EncodeHelloReply(answer.reply));
  }
  for (LinkAnswer& answer : effects.link_answers) {
    const auto it = process.offers.find(answer.link);
    if (it == process.offers.end()) continue;
    Process::Offer offer = std::move(it->second);
    process.offers.erase(it);
    Accepted accepted;
    accepted.run = run_;
    accepted.link = answer.link;
    accepted.reply_bytes = EncodeHelloReply(answer.reply);
    accepted.accepted = answer.reply.outcome == HelloOutcome::kAccepted;
    offer.done(std::move(accepted));
  }
  for (HelloCall& call : effects.hellos) SendHello(std::move(call));
  for (LinkDial& dial : effects.dials) Dial(std::move(dial));
  for (ControlOut& out : effects.messages) {
    const auto link = process.links.find(out.link);
    if (link == process.links.end()) continue;
    std::string bytes = EncodeControl(out.message);
    world_.trace.Mix(bytes);
    Node& peer = *world_.nodes[static_cast<size_t>(link->second.peer)];
    const size_t size = bytes.size();
    world_.network.Send(
        link->second.number, index_, true, size,
        [&peer, run = peer.run_, number = link->second.number,
         bytes = std::move(bytes)] {
          if (!peer.up() || peer.run_ != run) return;
          const auto link = peer.process_->link_of.find(number);
          if (link == peer.process_->link_of.end()) return;
          absl::StatusOr<ControlMessage> message = DecodeControl(bytes);
          if (!message.ok()) {
            peer.world_.complain(absl::StrCat("n", peer.index_,
                                              " cannot read a control "
                                              "message: ",
                                              message.status().ToString()));
            return;
          }
          peer.PostControl(ControlArrived{link->second, *std::move(message)});
        });
  }
  for (const LinkId id : effects.closes) {
    const auto link = process.links.find(id);
    if (link == process.links.end()) continue;
    const BoundLink bound = link->second;
    process.links.erase(link);
    process.link_of.erase(bound.number);
    world_.network.Close(bound.number, index_);
  }
  for (AdminOut& out : effects.answers) {
    const auto it = process.admin_calls.find(out.call);
    if (it == process.admin_calls.end()) continue;
    auto done = std::move(it->second);
    process.admin_calls.erase(it);
    done(std::move(out.answer));
  }
  if (effects.ring != nullptr) {
    process.ring = effects.ring;
    Publish(effects.ring);
    process.epoch_offered = effects.ring->epoch();
    Say(Trace::Kind::kControl,
        absl::StrCat("adopts ring epoch ", effects.ring->epoch()));
    for (int i = 0; i < plan_.shards; ++i) {
      Post(i, RingAdopted{effects.ring, process.control->number()});
    }
  }
  if (effects.begin_transfers != 0) {
    for (int i = 0; i < plan_.shards; ++i) {
      Post(i, BeginTransfers{effects.begin_transfers});
    }
  }
  if (effects.peers != nullptr) {
    process.peers = effects.peers;
    if (world_.trace.readable()) {
      std::string alive;
      for (const auto& [number, health] : *effects.peers) {
        absl::StrAppend(&alive, " ", ToInt(number), health.alive ? "+" : "-");
      }
      Say(Trace::Kind::kControl,
          absl::StrCat("sees members", alive,
                       effects.clock_ok ? "" : ", clock too far ahead"));
    }
    for (int i = 0; i < plan_.shards; ++i) {
      Post(i, PeersChanged{effects.peers, effects.clock_ok, effects.checked});
    }
  }
  if (effects.stop.has_value()) {
    if (HasLeft()) {
      departed_ = true;
      Say(Trace::Kind::kControl, effects.stop->message);
    } else if (disk_ == Disk::kOld) {
      refused_ = true;
      // What it took while nobody knew better goes with it.
      if (world_.disk_lost) world_.disk_lost(index_, -kForever);
      Say(Trace::Kind::kControl, effects.stop->message);
    } else {
      world_.complain(absl::StrCat(
          "n", index_, " stops by itself: ", effects.stop->message));
    }
    Crash(false, kForever);
  }
}

void Node::ConfirmEpoch() {
  Process& process = *process_;
  if (process.epoch_confirmed == process.epoch_offered) return;
  for (const Loop& loop : process.loops) {
    if (loop.adopted != process.epoch_offered) return;
  }
  process.epoch_confirmed = process.epoch_offered;
  PostControl(EpochAdopted{process.epoch_confirmed});
}

void Node::ReportLoad() {
  LoadReported report;
  std::map<NodeNumber, LoadReported::Backlog> backlogs;
  for (const Loop& loop : process_->loops) {
    const ShardStats stats = loop.shard->Stats();
    report.in_flight += loop.shard->in_flight();
    for (const auto& [target, hints] : stats.hints) {
      LoadReported::Backlog& backlog = backlogs[target];
      backlog.target = target;
      backlog.hints += hints.hints;
      backlog.bytes += hints.bytes;
      backlog.refused += hints.refused;
      backlog.delivered += hints.delivered;
      if (backlog.oldest_ms == 0 ||
          (hints.oldest_ms != 0 && hints.oldest_ms < backlog.oldest_ms)) {
        backlog.oldest_ms = hints.oldest_ms;
      }
    }
  }
  const EngineStats stats = engine_.Stats();
  report.disk_bytes = stats.disk_bytes;
  report.keys = stats.data_keys;
  if (process_->told_full != full_) {
    process_->told_full = full_;
    for (int i = 0; i < plan_.shards; ++i) Post(i, ReadOnlyChanged{full_});
  }
  for (auto& [target, backlog] : backlogs) report.hints.push_back(backlog);
  PostControl(std::move(report));
  Later(kLoadInterval, [this] { ReportLoad(); });
}

// --- Streams ---

void Node::SendHello(HelloCall call) {
  Node* peer = world_.AtAddress(call.address);
  if (peer == nullptr) return;
  auto request =
      std::make_shared<std::string>(EncodeHelloRequest(call.request));
  world_.trace.Mix(*request);
  const auto answer = [this, run = run_,
                       hello = call.hello](absl::StatusOr<std::string> bytes) {
    if (run != run_ || !up()) return;
    if (!bytes.ok()) {
      Later(0, [this, hello, status = bytes.status()] {
        PostControl(HelloAnswered{hello, status});
      });
      return;
    }
    absl::StatusOr<HelloReply> reply = DecodeHelloReply(*bytes);
    if (!reply.ok()) {
      world_.complain(absl::StrCat(
          "n", index_, " cannot read a hello: ", reply.status().ToString()));
      return;
    }
    auto shared = std::make_shared<HelloReply>(*std::move(reply));
    Later(0, [this, hello, shared] {
      PostControl(HelloAnswered{hello, std::move(*shared)});
    });
  };
  world_.network.SendLoose(index_, peer->index_, [this, peer, request, answer] {
    const auto back = [this, peer, answer](absl::StatusOr<std::string> bytes) {
      world_.network.SendLoose(
          peer->index_, index_,
          [answer, bytes = std::move(bytes)] { answer(bytes); });
    };
    if (!peer->OnHello(*request, back) && peer->start_at_ != kForever) {
      back(absl::UnavailableError("connection refused"));
    }
  });
}

bool Node::OnHello(const std::string& request_bytes, HelloDone done) {
  if (!up() || process_->control == nullptr) return false;
  absl::StatusOr<HelloRequest> request = DecodeHelloRequest(request_bytes);
  if (!request.ok()) {
    world_.complain(absl::StrCat(
        "n", index_, " cannot read a hello: ", request.status().ToString()));
    return true;
  }
  const uint64_t call = process_->next_call++;
  process_->hellos[call] = std::move(done);
  auto shared = std::make_shared<HelloRequest>(*std::move(request));
  Later(0, [this, call, shared] {
    PostControl(HelloArrived{call, std::move(*shared)});
  });
  return true;
}

void Node::Dial(LinkDial dial) {
  Node* peer = world_.AtAddress(dial.address);
  if (peer == nullptr) return;
  auto request =
      std::make_shared<std::string>(EncodeHelloRequest(dial.request));
  world_.trace.Mix(*request);
  const auto refused = [this, run = run_,
                        link = dial.link](absl::Status reason) {
    if (run != run_ || !up()) return;
    Later(0, [this, link, reason] { PostControl(LinkClosed{link, reason}); });
  };
  world_.network.SendLoose(
      index_, peer->index_,
      [this, run = run_, peer, request, refused, link = dial.link,
       kind = dial.kind] {
        const auto done = [this, run, peer, link, kind](Accepted accepted) {
          // The stream exists on the accepting side from here on.
          Network::LinkNumber number = 0;
          if (accepted.accepted) {
            number = world_.network.Connect(
                {index_, run}, {peer->index_, accepted.run},
                ClosedCallbackFor(run, link),
                peer->ClosedCallbackFor(accepted.run, accepted.link));
            peer->BindLink(accepted.link, number, index_, kind);
          }
          auto shared = std::make_shared<Accepted>(std::move(accepted));
          const auto arrive = [this, run, link, kind, peer, number, shared] {
            if (run != run_ || !up()) return;
            absl::StatusOr<HelloReply> reply =
                DecodeHelloReply(shared->reply_bytes);
            if (!reply.ok()) {
              world_.complain(absl::StrCat(
                  "n", index_,
                  " cannot read a hello: ", reply.status().ToString()));
              return;
            }
            if (number != 0) BindLink(link, number, peer->index_, kind);
            auto answered = std::make_shared<LinkAnswered>(
                LinkAnswered{link, *std::move(reply)});
            Later(0, [this, answered] { PostControl(std::move(*answered)); });
          };
          if (number != 0) {
            world_.network.Send(number, peer->index_, false,
                                shared->reply_bytes.size(), arrive);
          } else {
            world_.network.SendLoose(peer->index_, index_, arrive);
          }
        };
        if (!peer->OnOffer(kind, index_, *request, done) &&
            peer->start_at_ != kForever) {
          world_.network.SendLoose(peer->index_, index_, [refused] {
            refused(absl::UnavailableError("connection refused"));
          });
        }
      });
}

bool Node::OnOffer(LinkKind kind, int dialler, const std::string& request_bytes,
                   OfferDone done) {
  if (!up() || process_->control == nullptr) return false;
  absl::StatusOr<HelloRequest> request = DecodeHelloRequest(request_bytes);
  if (!request.ok()) {
    world_.complain(absl::StrCat(
        "n", index_, " cannot read a hello: ", request.status().ToString()));
    return true;
  }
  const LinkId link = kInboundLinkBit | process_->next_inbound++;
  process_->offers[link] = {kind, dialler, std::move(done)};
  auto shared = std::make_shared<LinkOffered>(
      LinkOffered{link, kind, *std::move(request)});
  Later(0, [this, shared] { PostControl(std::move(*shared)); });
  return true;
}

void Node::BindLink(LinkId link, Network::LinkNumber number, int peer,
                    LinkKind kind) {
  if (!up()) return;
  process_->links[link] = {number, peer, kind};
  process_->link_of[number] = link;
}

Network::ClosedCallback Node::ClosedCallbackFor(uint64_t run, LinkId link) {
  return [this, run, link] {
    if (run != run_ || !up()) return;
    Later(0, [this, link] {
      OnLinkClosed(link, absl::UnavailableError("the stream broke"));
    });
  };
}

void Node::OnLinkClosed(LinkId link, absl::Status reason) {
  const auto it = process_->links.find(link);
  if (it != process_->links.end()) {
    process_->link_of.erase(it->second.number);
    process_->links.erase(it);
  }
  PostControl(LinkClosed{link, std::move(reason)});
}

}  // namespace ringkv::sim
