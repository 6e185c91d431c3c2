#include "tests/sim/scenarios/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/token.h"
#include "gtest/gtest.h"
#include "storage/hints/hint_store.h"
#include "storage/version/object.h"

namespace ringkv::sim {
namespace {

Plan QuietPlan(int nodes, uint64_t hint_bytes_max, int spares) {
  Plan plan;
  plan.topology.spares = spares;
  if (spares > 0) plan.topology.at.push_back(0);
  plan.hint_bytes_max = hint_bytes_max;
  plan.seed = 1;
  for (int i = 0; i < nodes; ++i) {
    NodePlan node;
    node.rack = absl::StrCat("r", i);
    node.host = absl::StrCat("h", i);
    plan.nodes.push_back(node);
  }
  return plan;
}

}  // namespace

ScenarioCluster::ScenarioCluster(int nodes, std::vector<Keyspace> more,
                                 uint64_t hint_bytes_max, int spares)
    : plan_(QuietPlan(nodes + spares, hint_bytes_max, spares)),
      trace_(std::getenv("RINGKV_SCENARIO_TRACE") != nullptr, false) {
  network_ = std::make_unique<Network>(scheduler_, trace_, plan_.network,
                                       nodes + spares,
                                       RandomFor(1, Purpose::kNetwork));
  world_ = std::make_unique<World>(World{plan_, scheduler_, trace_, *network_});
  world_->complain = [this](std::string text) {
    complaints_.push_back(std::move(text));
  };
  for (int i = 0; i < nodes + spares; ++i) {
    world_->nodes.push_back(std::make_unique<Node>(*world_, i));
    if (i >= nodes) node(i).StandBy();
  }
  Form(nodes, more);
}

ScenarioCluster::~ScenarioCluster() {
  for (const std::string& complaint : complaints_) ADD_FAILURE() << complaint;
  for (int i = 0; i < nodes(); ++i) {
    if (node(i).serving()) {
      EXPECT_EQ(Stats(i).unequal_dots, 0u) << "n" << i;
    }
  }
}

void ScenarioCluster::Form(int founders, const std::vector<Keyspace>& more) {
  for (int i = 0; i < founders; ++i) node(i).Start();
  InitCall init;
  init.expected_nodes = static_cast<uint32_t>(founders);
  init.placement = PlacementStrategy::kHashed;
  init.vnodes = 16;
  for (int tries = 0; !Admin(0, init).status.ok(); ++tries) {
    RINGKV_CHECK(tries < 100);
    Run(200 * kMillisecond);
  }
  for (const Keyspace& keyspace : more) {
    const AdminAnswer answer = Admin(0, CreateKeyspaceCall{keyspace});
    RINGKV_CHECK(answer.status.ok());
  }
  ring_ = node(0).control()->ring();
  RINGKV_CHECK(AwaitWhole());
  for (int i = founders; i < nodes(); ++i) node(i).Start();
  if (founders < nodes()) Run(6 * kSecond);
}

AdminAnswer ScenarioCluster::Change(int at, TopologyKind kind,
                                    const std::vector<int>& about,
                                    const std::vector<int>& replacements) {
  StartOperationCall call;
  call.kind = kind;
  for (const int i : about) {
    std::string name = node(i).name();
    for (const Member& member : world_->newest_ring->spec().members) {
      if (member.peer_address == node(i).PeerAddress()) {
        name = absl::StrCat(ToInt(member.number));
      }
    }
    call.nodes.push_back(std::move(name));
  }
  for (const int i : replacements) call.replacements.push_back(node(i).name());
  return Admin(at, std::move(call));
}

bool ScenarioCluster::ChangeRuns() const {
  return world_->newest_ring->spec().operation.has_value();
}

bool ScenarioCluster::AwaitCalm(WorldTime limit) {
  if (!Await(limit, [this] { return !ChangeRuns(); })) return false;
  ring_ = world_->newest_ring;
  return AwaitWhole(limit) && ring_ == world_->newest_ring;
}

AdminAnswer ScenarioCluster::Admin(int i, AdminCall call) {
  std::optional<AdminAnswer> answer;
  node(i).Admin(std::move(call), 10 * kSecond,
                [&](AdminAnswer got) { answer = std::move(got); });
  RINGKV_CHECK(Await(30 * kSecond, [&] { return answer.has_value(); }));
  return *answer;
}

void ScenarioCluster::Run(WorldTime span) {
  const WorldTime until = scheduler_.now() + span;
  while (scheduler_.RunNext(until)) {
  }
}

bool ScenarioCluster::Await(WorldTime limit,
                            const std::function<bool()>& done) {
  const WorldTime until = scheduler_.now() + limit;
  while (!done()) {
    if (scheduler_.now() >= until) return false;
    Run(10 * kMillisecond);
  }
  return true;
}

bool ScenarioCluster::AwaitWhole(WorldTime limit) {
  return Await(limit, [this] {
    size_t live = 0;
    for (int i = 0; i < nodes(); ++i) live += node(i).gone() ? 0 : 1;
    for (int i = 0; i < nodes(); ++i) {
      if (node(i).gone()) continue;
      if (!node(i).serving() || node(i).peers_alive() + 1 != live) return false;
      for (int s = 0; s < node(i).shards(); ++s) {
        if (node(i).shard(s).in_flight() != 0) return false;
      }
    }
    return true;
  });
}

bool ScenarioCluster::AwaitHintsGone(WorldTime limit) {
  return Await(limit, [this] { return Hints() == 0; });
}

void ScenarioCluster::Kill(int i, bool power) {
  node(i).ArmCrash(CrashPoint::kBetweenTurns, power, kForever);
}
void ScenarioCluster::Start(int i) { node(i).Start(); }

void ScenarioCluster::Cut(int a, int b) {
  for (const auto& [from, to] : {std::pair{a, b}, std::pair{b, a}}) {
    network_->Block(from, to);
    blocked_.emplace_back(from, to);
  }
}

void ScenarioCluster::CutOff(int i) { Split({i}); }

void ScenarioCluster::Split(const std::set<int>& side) {
  for (int a = 0; a < nodes(); ++a) {
    for (int b = 0; b < nodes(); ++b) {
      if (side.contains(a) && !side.contains(b)) Cut(a, b);
    }
  }
}

void ScenarioCluster::HealNetwork() {
  for (const auto& [from, to] : std::exchange(blocked_, {})) {
    network_->Unblock(from, to);
  }
}

void ScenarioCluster::Damage(int i, const std::string& key,
                             const std::string& space) {
  node(i).engine().Damage(Family::kData,
                          DataKey(Space(space).id, TokenOf(key), key));
}

bool ScenarioCluster::AwaitRefused(int i, WorldTime limit) {
  return Await(limit, [&] { return node(i).gone() && !node(i).up(); });
}

// --- Calls ---

ClientAnswer ScenarioCluster::Ask(int i, ClientCall call, WorldTime timeout) {
  std::optional<CallResult> result;
  node(i).Call(std::move(call), timeout,
               [&](CallResult got) { result = std::move(got); });
  if (!Await(timeout + kSecond, [&] { return result.has_value(); })) {
    ADD_FAILURE() << "n" << i << " never answers";
  }
  ClientAnswer none;
  none.status = absl::UnavailableError("no answer");
  return result.has_value() && result->answer.has_value()
             ? *std::move(result->answer)
             : none;
}

void ScenarioCluster::Begin(int i, ClientCall call, WorldTime timeout) {
  node(i).Call(std::move(call), timeout, [](CallResult) {});
}

absl::Status ScenarioCluster::Put(int i, const std::string& key,
                                  const std::string& value, uint32_t w) {
  PutCall put;
  put.key = key;
  put.value = value;
  put.w = w;
  return Ask(i, put).status;
}

absl::Status ScenarioCluster::PutWith(
    int i, const std::string& key, const std::string& value,
    const std::optional<std::string>& context) {
  PutCall put;
  put.key = key;
  put.value = value;
  put.context = context;
  put.blind = !context.has_value();
  return Ask(i, put).status;
}

absl::Status ScenarioCluster::PutBlind(int i, const std::string& key,
                                       const std::string& value) {
  return PutWith(i, key, value, std::nullopt);
}

absl::Status ScenarioCluster::Delete(int i, const std::string& key) {
  PutCall put;
  put.key = key;
  put.is_delete = true;
  return Ask(i, put).status;
}

std::vector<std::string> ScenarioCluster::Get(int i, const std::string& key,
                                              uint32_t r) {
  GetCall get;
  get.key = key;
  get.r = r;
  const ClientAnswer answer = Ask(i, get);
  if (!answer.status.ok()) {
    return {std::string(absl::StatusCodeToString(answer.status.code()))};
  }
  std::vector<std::string> values;
  for (const SiblingAnswer& sibling :
       std::get<GetAnswer>(answer.answer).siblings) {
    values.push_back(sibling.value);
  }
  std::sort(values.begin(), values.end());
  return values;
}

std::optional<std::string> ScenarioCluster::ContextOf(int i,
                                                      const std::string& key) {
  GetCall get;
  get.key = key;
  const ClientAnswer answer = Ask(i, get);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  if (!answer.status.ok()) return std::nullopt;
  return std::get<GetAnswer>(answer.answer).context;
}

// --- What is stored ---

std::vector<int> ScenarioCluster::Replicas(const std::string& key,
                                           const std::string& space) const {
  std::vector<int> replicas;
  for (const NodeNumber number :
       ring_->PreferenceList(Space(space), TokenOf(key))) {
    replicas.push_back(
        world_->AtAddress(ring_->FindMember(number)->peer_address)->index());
  }
  return replicas;
}

std::string ScenarioCluster::KeyOn(const std::set<int>& in,
                                   const std::set<int>& out, int number) const {
  for (int i = 0; i < 100000; ++i) {
    const std::string key = absl::StrCat("key-", i);
    const std::vector<int> replicas = Replicas(key);
    const auto has = [&](int node) {
      return std::find(replicas.begin(), replicas.end(), node) !=
             replicas.end();
    };
    if (std::all_of(in.begin(), in.end(), has) &&
        std::none_of(out.begin(), out.end(), has) && number-- == 0) {
      return key;
    }
  }
  RINGKV_CHECK(false);
  return "";
}

std::optional<std::string> ScenarioCluster::Stored(int i,
                                                   const std::string& key,
                                                   const std::string& space) {
  const ReadResult found = node(i).engine().Get(
      Family::kData, DataKey(Space(space).id, TokenOf(key), key),
      ReadTier::kAll);
  if (found.outcome != ReadResult::Outcome::kFound) return std::nullopt;
  absl::StatusOr<StoredRecord> record = DecodeStored(found.value);
  RINGKV_CHECK(record.ok());
  return std::move(record->object);
}

bool ScenarioCluster::Alike(const std::string& key, const std::string& space) {
  const std::vector<int> replicas = Replicas(key, space);
  const std::optional<std::string> first = Stored(replicas[0], key, space);
  return first.has_value() &&
         std::all_of(replicas.begin(), replicas.end(),
                     [&](int i) { return Stored(i, key, space) == first; });
}

size_t ScenarioCluster::HintsAt(int i) const {
  // Each record has an entry in the order of its target beside it.
  return world_->nodes[static_cast<size_t>(i)]
      ->engine()
      .Keys(Family::kHints)
      .size();
}

size_t ScenarioCluster::Hints() const {
  size_t hints = 0;
  for (int i = 0; i < nodes(); ++i) hints += HintsAt(i);
  return hints;
}

ShardStats ScenarioCluster::Stats(int i) const {
  return world_->nodes[static_cast<size_t>(i)]->shard(0).Stats();
}

}  // namespace ringkv::sim
