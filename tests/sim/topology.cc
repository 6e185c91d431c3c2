#include "tests/sim/topology.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

namespace ringkv::sim {
namespace {

constexpr WorldTime kTick = 500 * kMillisecond;
constexpr WorldTime kTimeout = 15 * kSecond;
constexpr double kWeights[] = {0.5, 1, 2};

template <class T>
const T& Any(SeededRandom& random, const std::vector<T>& of) {
  return of[random.Uniform(of.size())];
}

}  // namespace

Topology::Topology(World& world)
    : world_(world),
      random_(RandomFor(world.plan.seed, Purpose::kTopology, 1)) {}

void Topology::Start() {
  for (const WorldTime at : world_.plan.topology.at) {
    world_.scheduler.After(at, [this] {
      if (!settling_) Think();
    });
  }
  Tick();
}

bool Topology::Settled() const {
  return asked_ == 0 && !ring().spec().operation.has_value() &&
         LostMembers().empty();
}

std::string Topology::Trouble() const {
  std::string trouble = absl::StrCat("ring epoch ", ring().epoch());
  if (const auto& operation = ring().spec().operation) {
    absl::StrAppend(
        &trouble, ", a ", NameOf(operation->kind), " of epoch ", operation->id,
        " in phase ",
        operation->phase == TopologyPhase::kStart ? "start" : "switch");
  }
  for (NodeNumber lost : LostMembers()) {
    absl::StrAppend(&trouble, ", node ", ToInt(lost), " is lost");
  }
  if (asked_ > 0) absl::StrAppend(&trouble, ", ", asked_, " calls run");
  return trouble;
}

std::shared_ptr<const Ring> Topology::RingDuring(WorldTime from,
                                                 WorldTime until) const {
  for (const Calm& calm : calm_) {
    if (calm.from <= from && until <= calm.until) return calm.ring;
  }
  return nullptr;
}

// --- What they see ---

Node* Topology::NodeOf(const Member& member) const {
  return world_.AtAddress(member.peer_address);
}

std::shared_ptr<const Ring> Topology::KnownRing() const {
  std::shared_ptr<const Ring> newest;
  for (const auto& node : world_.nodes) {
    if (node->gone() || node->control() == nullptr) continue;
    std::shared_ptr<const Ring> ring = node->control()->ring();
    if (ring != nullptr &&
        (newest == nullptr || newest->epoch() < ring->epoch())) {
      newest = std::move(ring);
    }
  }
  return newest;
}

std::vector<NodeNumber> Topology::LostMembers() const {
  std::vector<NodeNumber> lost;
  for (const Member& member : ring().spec().members) {
    if (NodeOf(member)->HasLost(member.id)) lost.push_back(member.number);
  }
  return lost;
}

std::vector<Node*> Topology::Standbys() const {
  std::vector<Node*> nodes;
  for (const auto& node : world_.nodes) {
    if (node->stands_by()) nodes.push_back(node.get());
  }
  return nodes;
}

void Topology::Tick() {
  if (retired_) return;
  NoteCalm();
  Revive();
  if (asked_ == 0 && world_.scheduler.now() >= mend_at_ && Mend()) {
    mend_at_ = world_.scheduler.now() + 2 * kSecond;
  }
  world_.scheduler.After(kTick, [this] { Tick(); });
}

void Topology::NoteCalm() {
  bool is_calm = !ring().spec().operation.has_value();
  for (const auto& node : world_.nodes) {
    if (node->gone() || !node->up()) continue;
    is_calm = is_calm && node->serving() &&
              node->control()->adopted_epoch() == ring().epoch();
  }
  const WorldTime now = world_.scheduler.now();
  const bool goes_on = !calm_.empty() && calm_.back().until == now - kTick &&
                       calm_.back().ring == world_.newest_ring;
  if (!is_calm) return;
  if (goes_on) {
    calm_.back().until = now;
  } else {
    calm_.push_back({world_.newest_ring, now, now});
  }
}

// --- What they do ---

void Topology::Think() {
  const double drawn = random_.NextDouble();
  if (drawn < 0.3) return Join();
  if (drawn < 0.5) return Decommission();
  if (drawn < 0.7) {
    if (!Burn(Any(random_, ring().spec().members))) Join();
    return;
  }
  if (drawn < 0.85) return Weigh();
  AlterKeyspace();
}

void Topology::Join() {
  std::vector<Node*> standbys = Standbys();
  if (standbys.empty()) return Weigh();
  StartOperationCall call;
  call.kind = TopologyKind::kJoin;
  const size_t first = random_.Uniform(standbys.size());
  call.nodes.push_back(standbys[first]->name());
  if (standbys.size() > 1 && random_.Chance(0.3)) {
    call.nodes.push_back(standbys[(first + 1) % standbys.size()]->name());
  }
  Ask(std::move(call), "join");
}

void Topology::Decommission() {
  const std::vector<Member>& members = ring().spec().members;
  // With a dead one among those who are left they may be no majority.
  if (!LostMembers().empty()) return Weigh();
  StartOperationCall call;
  call.kind = TopologyKind::kDecommission;
  call.allow_fewer_replicas = random_.Chance(0.4);
  const size_t first = random_.Uniform(members.size());
  call.nodes.push_back(absl::StrCat(ToInt(members[first].number)));
  if (members.size() > 4 && random_.Chance(0.2)) {
    call.nodes.push_back(
        absl::StrCat(ToInt(members[(first + 1) % members.size()].number)));
  }
  Ask(std::move(call), "decommission");
}

void Topology::Weigh() {
  StartOperationCall call;
  call.kind = TopologyKind::kWeight;
  call.nodes.push_back(
      absl::StrCat(ToInt(Any(random_, ring().spec().members).number)));
  call.weight = kWeights[random_.Uniform(std::size(kWeights))];
  Ask(std::move(call), "give another weight to");
}

void Topology::AlterKeyspace() {
  const std::vector<Keyspace>& planned = world_.plan.keyspaces;
  AlterKeyspaceCall call;
  call.name = planned[random_.Uniform(planned.size())].name;
  uint32_t n = 1 + static_cast<uint32_t>(random_.Uniform(4));
  // R and W alone are a change of their own.
  if (random_.Chance(0.5)) n = ring().FindKeyspace(call.name)->n;
  call.n = n;
  call.r = 1 + static_cast<uint32_t>(random_.Uniform(n));
  call.w = 1 + static_cast<uint32_t>(random_.Uniform(n));
  Ask(std::move(call), absl::StrCat("alter to N=", n, " R=", *call.r,
                                    " W=", *call.w, " keyspace"));
}

// Whether the ring can still decide without `node`, now and after what runs.
bool Topology::CanSpare(NodeNumber node) const {
  const auto& operation = ring().spec().operation;
  size_t full = 0;
  size_t staying = 0;
  for (const Member& member : ring().spec().members) {
    const bool joins = operation.has_value() && operation->Joins(member.number);
    const bool leaves =
        operation.has_value() && operation->Leaves(member.number);
    if (!joins) ++full;
    if (!joins && !leaves) ++staying;
  }
  if (ring().IsJoining(node)) return full >= 1;
  const bool leaves = operation.has_value() && operation->Leaves(node);
  return full >= 3 && (leaves || staying >= 3);
}

// A machine burns down, and another one takes its rack and address. One at a
// time: with two gone, writes that only they had are gone too.
bool Topology::Burn(const Member& member) {
  if (!LostMembers().empty() || !CanSpare(member.number)) return false;
  // Until it has been told of its ring it is nobody yet.
  Node* node = NodeOf(member);
  if (node->gone()) return true;
  world_.trace.Say(
      {.nanos = world_.scheduler.now(),
       .lane = kWorldLane,
       .kind = Trace::Kind::kFault,
       .text = absl::StrCat("n", node->index(), " burns down, node ",
                            ToInt(member.number))});
  const WorldTime down =
      random_.Chance(0.5)
          ? static_cast<WorldTime>(random_.Uniform(10)) * kSecond
          : static_cast<WorldTime>(1 + random_.Uniform(2000)) * kMillisecond;
  node->ExchangeDisk(std::nullopt, down);
  return true;
}

// Whoever has left gets an empty disk and stands by.
void Topology::Revive() {
  for (const auto& node : world_.nodes) {
    if (node->departed() && random_.Chance(0.1)) {
      node->ExchangeDisk(std::nullopt, kSecond);
    }
  }
}

// True if somebody was asked.
bool Topology::Mend() {
  const std::vector<NodeNumber> lost = LostMembers();
  if (lost.empty()) return false;
  const NodeNumber node = lost.front();
  // What only the dead had heard of comes to light when somebody proposes.
  const std::shared_ptr<const Ring> known = KnownRing();
  if (known == nullptr) return false;
  if (known->spec().operation.has_value()) {
    MendRunning(*known, node);
    return true;
  }
  StartOperationCall call;
  call.nodes.push_back(absl::StrCat(ToInt(node)));
  // What only that machine had acknowledged is gone with it.
  call.accept_data_loss = true;
  const std::vector<Node*> standbys = Standbys();
  if (!standbys.empty() && random_.Chance(0.6)) {
    call.kind = TopologyKind::kReplace;
    call.replacements.push_back(Any(random_, standbys)->name());
    Ask(std::move(call), "replace");
    return true;
  }
  call.kind = TopologyKind::kRemoveDead;
  call.allow_fewer_replicas = random_.Chance(0.3);
  Ask(std::move(call), "remove the dead");
  return true;
}

// An operation that may wait for a burnt machine for ever.
void Topology::MendRunning(const Ring& ring, NodeNumber lost) {
  const TopologyOperation& operation = *ring.spec().operation;
  if (operation.GoesOnWithout(lost)) return;  // this is the mending
  if (operation.phase == TopologyPhase::kStart) {
    AskAbort();
  } else {
    StartOperationCall call;
    call.kind = TopologyKind::kRemoveDead;
    call.nodes.push_back(absl::StrCat(ToInt(lost)));
    Ask(std::move(call), "go on without");
  }
}

int Topology::Gainer(uint64_t pick) const {
  std::vector<int> gainers;
  for (const Member& member : ring().spec().members) {
    if (ring().IsJoining(member.number)) {
      gainers.push_back(NodeOf(member)->index());
    }
  }
  return gainers.empty() ? -1 : gainers[pick % gainers.size()];
}

void Topology::Meddle(const Fault& fault) {
  if (settling_) return;
  Node& node = *world_.nodes[static_cast<size_t>(fault.node)];
  switch (fault.kind) {
    case FaultKind::kAbort:
      return AskAbort();
    case FaultKind::kAbortAgain:
      if (!ring().spec().operation.has_value()) return;
      AskAbort();
      world_.scheduler.After(kSecond, [this] {
        if (!settling_) AskAgain();
      });
      return;
    case FaultKind::kBurn:
      for (const Member& member : ring().spec().members) {
        if (NodeOf(member) == &node) {
          Burn(member);
          return;
        }
      }
      return;
    case FaultKind::kAskAnother:
      if (node.up() && !node.gone()) next_asked_ = &node;
      Think();
      next_asked_ = nullptr;
      return;
    default:
      return;
  }
}

void Topology::AskAgain() {
  if (last_change_.has_value()) {
    Ask(AdminCall(*last_change_), "do the same once more");
  }
}

void Topology::AskAbort() { Ask(AbortOperationCall{}, "abort"); }

void Topology::Ask(AdminCall call, std::string what) {
  std::vector<Node*> members;
  for (const auto& node : world_.nodes) {
    if (node->up() && !node->gone()) members.push_back(node.get());
  }
  if (members.empty()) return;
  Node* const node =
      next_asked_ != nullptr ? next_asked_ : Any(random_, members);
  if (!std::holds_alternative<AbortOperationCall>(call)) last_change_ = call;
  if (world_.trace.readable()) {
    if (const auto* start = std::get_if<StartOperationCall>(&call)) {
      for (const std::string& name : start->nodes) {
        absl::StrAppend(&what, " ", name);
      }
      for (const std::string& name : start->replacements) {
        absl::StrAppend(&what, " by ", name);
      }
    } else if (const auto* alter = std::get_if<AlterKeyspaceCall>(&call)) {
      absl::StrAppend(&what, " ", alter->name);
    }
    world_.trace.Say({.nanos = world_.scheduler.now(),
                      .lane = kWorldLane,
                      .kind = Trace::Kind::kControl,
                      .text = absl::StrCat("an operator asks n", node->index(),
                                           " to ", what)});
  }
  const bool may_abort = !std::holds_alternative<AbortOperationCall>(call) &&
                         !settling_ && random_.Chance(0.2);
  const WorldTime abort_after =
      static_cast<WorldTime>(random_.Uniform(5000)) * kMillisecond;
  ++asked_;
  node->Admin(std::move(call), kTimeout,
              [this, what, index = node->index(), may_abort,
               abort_after](const AdminAnswer& answer) {
                --asked_;
                if (world_.trace.readable()) {
                  world_.trace.Say(
                      {.nanos = world_.scheduler.now(),
                       .lane = kWorldLane,
                       .kind = Trace::Kind::kControl,
                       .text = absl::StrCat("n", index, " answers to ", what,
                                            ": ", answer.status.ToString())});
                }
                if (!may_abort || !answer.status.ok()) return;
                world_.scheduler.After(abort_after, [this] {
                  if (!settling_) AskAbort();
                });
              });
}

}  // namespace ringkv::sim
