#include "tests/sim/workload.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/token.h"

namespace ringkv::sim {
namespace {

constexpr absl::string_view kKeyPrefix = "key-";
// Contexts that clients pass among themselves, for each key.
constexpr size_t kSharedContextsMax = 6;
constexpr int kAttemptsMax = 3;
// Writes of one client that writes a key without a pause.
constexpr int kHammeredMax = 80;
// How long after its deadline a client waits for the answer that says so.
constexpr WorldTime kGrace = 50 * kMillisecond;

}  // namespace

struct Workload::Attempt {
  Client* client;
  Request request;
  ReplyDone done;
  OperationId id = kNoOperation;
  ClientCall call;
  WorldTime began = 0;
  WorldTime deadline = 0;
  int node = 0;
  int tries = 0;
  bool maybe_ran = false;      // an earlier try may have taken effect
  uint64_t node_start_id = 0;  // of the run that was asked first
  uint64_t round = 0;          // of the answer that is waited for
  bool over = false;
};

Workload::Workload(World& world)
    : world_(world), ask_random_(RandomFor(world.plan.seed, Purpose::kFinal)) {
  const size_t slots = world.plan.keyspaces.size() *
                       static_cast<size_t>(world.plan.workload.keys);
  shared_contexts_.resize(slots);
  writes_.resize(slots);
  for (int i = 0; i < world.plan.workload.clients; ++i) {
    auto client = std::make_unique<Client>(
        Client{.index = i,
               .random = RandomFor(world.plan.seed, Purpose::kClient,
                                   static_cast<uint64_t>(i))});
    client->contexts.resize(slots);
    client->sticky = client->random.Chance(world.plan.workload.sticky_share);
    client->sticky_node = AnyMember(client->random);
    clients_.push_back(std::move(client));
  }
}

Workload::~Workload() = default;

std::string Workload::KeyName(int key) const {
  return absl::StrCat(kKeyPrefix, key);
}

int Workload::KeyOfName(absl::string_view name) const {
  int key = -1;
  if (!absl::ConsumePrefix(&name, kKeyPrefix) ||
      !absl::SimpleAtoi(name, &key) || key < 0 ||
      key >= world_.plan.workload.keys) {
    return -1;
  }
  return absl::StrCat(key) == name ? key : -1;
}

void Workload::Say(const Client& client, std::string text) {
  world_.trace.Say({.nanos = world_.scheduler.now(),
                    .lane = ClientLane(client.index),
                    .kind = Trace::Kind::kClient,
                    .text = std::move(text)});
}

WorldTime Workload::ClientDelay(Client& client) {
  return world_.plan.network.delay_min +
         static_cast<WorldTime>(
             -static_cast<double>(world_.plan.network.delay_mean) *
             std::log1p(-client.random.NextDouble()));
}

void Workload::After(Client& client, WorldTime delay,
                     std::function<void()> action) {
  world_.scheduler.After(delay, std::move(action));
}

void Workload::Start() {
  running_clients_ = static_cast<int>(clients_.size());
  for (const auto& client : clients_) {
    const WorldTime first = static_cast<WorldTime>(client->random.Uniform(
        static_cast<uint64_t>(world_.plan.workload.think_mean) + 1));
    After(*client, first, [this, client = client.get()] { NextOf(*client); });
  }
}

void Workload::NextOf(Client& client) {
  const WorkloadPlan& plan = world_.plan.workload;
  if (stopping_ || issued_ - hammered_ >= plan.operations) {
    --running_clients_;
    return;
  }
  const auto again = [this, &client] {
    const WorldTime think = static_cast<WorldTime>(
        -static_cast<double>(world_.plan.workload.think_mean) *
        std::log1p(-client.random.NextDouble()));
    After(client, think, [this, &client] { NextOf(client); });
  };
  const double weights[] = {plan.get,         plan.put_plain, plan.put_blind,
                            plan.put_context, plan.remove,    plan.update,
                            plan.scan,        plan.burst};
  double total = 0;
  for (const double weight : weights) total += weight;
  double drawn = client.random.NextDouble() * total;
  size_t action = 0;
  while (action + 1 < std::size(weights) && drawn >= weights[action]) {
    drawn -= weights[action++];
  }
  const auto one = [&](Request request) {
    Issue(client, std::move(request), [again](const Reply&) { again(); });
  };
  switch (action) {
    case 0:
      one(Draw(client, OperationKind::kGet));
      break;
    case 1: {
      Request request = Draw(client, OperationKind::kPut);
      request.context.reset();
      one(std::move(request));
      break;
    }
    case 2: {
      Request request = Draw(client, OperationKind::kPut);
      request.context.reset();
      request.blind = true;
      one(std::move(request));
      break;
    }
    case 3:
      one(Draw(client, OperationKind::kPut));
      break;
    case 4: {
      Request request = Draw(client, OperationKind::kDelete);
      if (client.random.Chance(0.4)) request.context.reset();
      one(std::move(request));
      break;
    }
    case 5:
      Update(client, Draw(client, OperationKind::kPut), 4, again);
      break;
    case 6:
      Scan(
          client,
          static_cast<int>(client.random.Uniform(world_.plan.keyspaces.size())),
          "", plan.scan_pages, -1, again);
      break;
    default:
      Burst(client, again);
  }
}

Workload::Request Workload::Draw(Client& client, OperationKind kind) {
  const WorkloadPlan& plan = world_.plan.workload;
  SeededRandom& random = client.random;
  Request request;
  request.kind = kind;
  request.space =
      static_cast<int>(random.Uniform(world_.plan.keyspaces.size()));
  request.key = static_cast<int>(random.Uniform(static_cast<uint64_t>(
      random.Chance(plan.hot_share) ? std::min(plan.hot_keys, plan.keys)
                                    : plan.keys)));
  DrawQuorum(client, request);
  if (kind != OperationKind::kGet) {
    const size_t slot = Slot(request.space, request.key);
    const std::vector<HeldContext>& shared = shared_contexts_[slot];
    if (client.contexts[slot].source != kNoOperation && random.Chance(0.6)) {
      request.context = client.contexts[slot];
    } else if (!shared.empty()) {
      request.context = shared[random.Uniform(shared.size())];
    }
    request.expires =
        kind == OperationKind::kPut && random.Chance(plan.expires_share);
    if (random.Chance(plan.request_id_share)) {
      // One id stands for one write of a key; for another key it is another.
      if (client.last_request_id.empty() ||
          client.last_request_slots.contains(slot) ||
          !random.Chance(plan.reused_request_id_share)) {
        client.last_request_id =
            absl::StrCat("c", client.index, "-", ++client.request_ids);
        client.last_request_slots.clear();
      }
      if (!client.last_request_slots.empty()) {
        client.shared_request_ids.insert(client.last_request_id);
      }
      client.last_request_slots.insert(slot);
      request.request_id = client.last_request_id;
    }
  }
  return request;
}

void Workload::DrawQuorum(Client& client, Request& request) {
  const WorkloadPlan& plan = world_.plan.workload;
  SeededRandom& random = client.random;
  const Keyspace& space = Space(request.space);
  request.r = request.w = 0;
  request.strict =
      space.quorum == QuorumMode::kStrict || random.Chance(plan.strict_share);
  // Strict without a quorum that overlaps is refused: asked for now and then,
  // to see that it is.
  if (space.r + space.w <= space.n && !random.Chance(0.02)) {
    request.strict = false;
  }
  if (!random.Chance(plan.other_quorum_share)) return;
  const uint32_t least_r = request.strict ? space.r : 1;
  const uint32_t least_w = request.strict ? space.w : 1;
  request.r =
      least_r + static_cast<uint32_t>(random.Uniform(space.n - least_r + 1));
  request.w =
      least_w + static_cast<uint32_t>(random.Uniform(space.n - least_w + 1));
}

int Workload::AnyMember(SeededRandom& random) const {
  std::vector<int> nodes;
  for (const Member& member : world_.newest_ring->spec().members) {
    nodes.push_back(world_.AtAddress(member.peer_address)->index());
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes[random.Uniform(nodes.size())];
}

uint32_t Workload::Least(int space, uint32_t asked,
                         uint32_t Keyspace::*setting) const {
  uint32_t least = UINT32_MAX;
  const auto note = [&](const Ring* ring) {
    if (ring == nullptr) return;
    const Keyspace* keyspace = ring->FindKeyspace(Space(space).name);
    if (keyspace == nullptr) return;
    Keyspace meant = *keyspace;
    if (asked != 0) meant.*setting = asked;
    least = std::min({least, meant.*setting, ring->EffectiveN(*keyspace)});
  };
  for (const auto& node : world_.nodes) {
    if (node->control() == nullptr || node->control()->ring() == nullptr) {
      continue;
    }
    note(node->control()->ring().get());
    note(node->control()->ring()->other());
  }
  note(world_.newest_ring.get());
  return least;
}

int Workload::DrawNode(Client& client, int space, int key) {
  SeededRandom& random = client.random;
  if (client.sticky && random.Chance(0.9)) return client.sticky_node;
  if (random.Chance(world_.plan.workload.direct_share)) {
    const Ring& ring = *world_.newest_ring;
    const Keyspace* keyspace = ring.FindKeyspace(Space(space).name);
    const auto replicas = ring.PreferenceList(*keyspace, TokenOf(KeyName(key)));
    const NodeNumber number = replicas[random.Uniform(replicas.size())];
    const Member* member = ring.FindMember(number);
    const Node* node = world_.AtAddress(member->peer_address);
    return node->index();
  }
  return AnyMember(random);
}

void Workload::Issue(Client& client, Request request, ReplyDone done) {
  ++issued_;
  ++operations_;
  ++in_flight_;
  const Keyspace& space = Space(request.space);
  auto attempt = std::make_shared<Attempt>();
  attempt->client = &client;
  attempt->request = std::move(request);
  attempt->done = std::move(done);
  attempt->id = static_cast<OperationId>(recorded_.size());
  attempt->began = world_.scheduler.now();
  attempt->deadline = attempt->began + world_.plan.workload.timeout;
  const Request& asked = attempt->request;
  attempt->node =
      asked.node >= 0 ? asked.node : DrawNode(client, asked.space, asked.key);
  attempt->node_start_id =
      world_.nodes[static_cast<size_t>(attempt->node)]->start_id();

  Recorded recorded;
  recorded.space = asked.space;
  recorded.key = asked.key;
  recorded.node = attempt->node;
  recorded.r = Least(asked.space, asked.r, &Keyspace::r);
  recorded.overlaps =
      asked.kind == OperationKind::kGet
          ? (asked.r != 0 ? asked.r : space.r) + space.w > space.n
          : (asked.w != 0 ? asked.w : space.w) + space.r > space.n;
  if (asked.kind != OperationKind::kGet) {
    ++writes_[Slot(asked.space, asked.key)];
  }
  Operation& operation = recorded.operation;
  operation.id = attempt->id;
  operation.kind = asked.kind;
  operation.client = client.index;
  operation.invoked = attempt->began;
  operation.strict = asked.strict;
  operation.blind = asked.blind;
  operation.expires = asked.expires;
  operation.acks_needed = Least(asked.space, asked.w, &Keyspace::w);
  if (asked.context.has_value()) operation.context_from = asked.context->source;

  const Quorum quorum =
      asked.strict == (space.quorum == QuorumMode::kStrict) &&
              client.random.Chance(0.5)
          ? Quorum::kDefault
          : (asked.strict ? Quorum::kStrict : Quorum::kSloppy);
  // The first keyspace is what an empty name means.
  const std::string name = asked.space == 0 && client.random.Chance(0.5)
                               ? std::string()
                               : space.name;
  if (asked.kind == OperationKind::kGet) {
    GetCall call;
    call.keyspace = name;
    call.key = KeyName(asked.key);
    call.r = asked.r;
    call.quorum = quorum;
    attempt->call = std::move(call);
  } else {
    PutCall call;
    call.keyspace = name;
    call.key = KeyName(asked.key);
    call.w = asked.w;
    call.quorum = quorum;
    call.is_delete = asked.kind == OperationKind::kDelete;
    if (asked.context.has_value()) call.context = asked.context->bytes;
    if (!call.is_delete) {
      call.value =
          ValueOf(attempt->id, client.random.Uniform(static_cast<uint64_t>(
                                   world_.plan.workload.value_bytes_max)));
      call.blind = asked.blind;
      if (asked.expires) {
        call.ttl = absl::Milliseconds(100 + client.random.Uniform(20000));
      }
    }
    if (!asked.request_id.empty()) {
      call.request.id = asked.request_id;
      call.request.coordinator_start_id = attempt->node_start_id;
    }
    attempt->call = std::move(call);
  }
  if (world_.trace.readable()) {
    Say(client,
        absl::StrCat(
            "#", attempt->id, " ", asked.strict ? "strict " : "",
            asked.kind == OperationKind::kGet      ? "get "
            : asked.kind == OperationKind::kDelete ? "delete "
            : asked.blind                          ? "blind put "
                                                   : "put ",
            space.name, "/", KeyName(asked.key),
            asked.context.has_value()
                ? absl::StrCat(" with the context of #", asked.context->source)
                : "",
            " at n", attempt->node));
  }
  world_.trace.Mix((static_cast<uint64_t>(attempt->id) << 16) +
                   static_cast<uint64_t>(attempt->node));
  recorded_.push_back(std::move(recorded));
  Send(std::move(attempt));
}

void Workload::Send(std::shared_ptr<Attempt> attempt) {
  Client& client = *attempt->client;
  const uint64_t round = ++attempt->round;
  ++attempt->tries;
  ++recorded_[attempt->id].attempts;
  const WorldTime there = ClientDelay(client);
  const WorldTime back = ClientDelay(client);
  const WorldTime now = world_.scheduler.now();
  const WorldTime remaining = attempt->deadline - now;
  ClientCall call = attempt->call;
  if (PutCall* put = std::get_if<PutCall>(&call)) {
    put->request.age = absl::Nanoseconds(now - attempt->began);
  }
  Node* node = world_.nodes[static_cast<size_t>(attempt->node)].get();
  auto shared = std::make_shared<ClientCall>(std::move(call));
  auto call_number = std::make_shared<std::pair<uint64_t, uint64_t>>(0, 0);
  After(client, there,
        [this, attempt, round, node, shared, back, remaining, there,
         call_number] {
          if (attempt->over || attempt->round != round) return;
          const auto done = [this, attempt, round, back](CallResult result) {
            auto kept = std::make_shared<CallResult>(std::move(result));
            After(*attempt->client, back, [this, attempt, round, kept] {
              if (attempt->over || attempt->round != round) return;
              OnResult(attempt, std::move(*kept));
            });
          };
          const uint64_t run = node->run();
          const uint64_t number =
              node->Call(std::move(*shared),
                         std::max<WorldTime>(0, remaining - there), done);
          *call_number = {run, number};
        });
  After(client, remaining + kGrace, [this, attempt, round, node, call_number] {
    if (attempt->over || attempt->round != round) return;
    // The client goes away.
    if (call_number->second != 0 && node->up() &&
        node->run() == call_number->first) {
      node->Cancel(call_number->second);
    }
    CallResult result;
    OnResult(attempt, std::move(result));
  });
}

void Workload::OnResult(std::shared_ptr<Attempt> attempt, CallResult result) {
  Client& client = *attempt->client;
  const Request& request = attempt->request;
  const bool is_write = request.kind != OperationKind::kGet;
  const bool time_left =
      world_.scheduler.now() + kMillisecond < attempt->deadline;
  if (result.answer.has_value()) {
    recorded_[attempt->id].code = result.answer->status.code();
    recorded_[attempt->id].message =
        std::string(result.answer->status.message());
  }
  if (result.not_sent) {
    if (attempt->tries < kAttemptsMax && time_left && request.node < 0 &&
        !attempt->maybe_ran) {
      attempt->node = AnyMember(client.random);
      attempt->node_start_id =
          world_.nodes[static_cast<size_t>(attempt->node)]->start_id();
      if (PutCall* put = std::get_if<PutCall>(&attempt->call)) {
        if (!put->request.id.empty()) {
          put->request.coordinator_start_id = attempt->node_start_id;
        }
      }
      recorded_[attempt->id].node = attempt->node;
      Send(std::move(attempt));
      return;
    }
    Finish(
        attempt,
        attempt->maybe_ran && is_write ? Outcome::kUnknown : Outcome::kRefused,
        nullptr);
    return;
  }
  if (result.answer.has_value() && result.answer->status.ok()) {
    Finish(attempt, Outcome::kOk, &*result.answer);
    return;
  }
  bool refused = false;
  if (result.answer.has_value()) {
    switch (result.answer->status.code()) {
      case absl::StatusCode::kInvalidArgument:
      case absl::StatusCode::kNotFound:
      case absl::StatusCode::kFailedPrecondition:
        refused = true;
        break;
      default:
        break;
    }
    Judge(recorded_[attempt->id], result.answer->status,
          client.shared_request_ids.contains(request.request_id));
  }
  if (refused && !attempt->maybe_ran) {
    Finish(attempt, Outcome::kRefused, nullptr);
    return;
  }
  if (!is_write) {
    Finish(attempt, Outcome::kUnknown, nullptr);
    return;
  }
  attempt->maybe_ran = true;
  // Unknown by now. A repeat is allowed where it cannot make a second write.
  const bool lww = Space(request.space).mode == VersionMode::kLww;
  const bool answered = result.answer.has_value();
  if (attempt->tries < kAttemptsMax && (time_left || !answered) && !refused &&
      client.random.Chance(0.6)) {
    if (!time_left) {
      // The client's own patience begins anew.
      attempt->deadline = world_.scheduler.now() + world_.plan.workload.timeout;
    }
    if (request.context.has_value() && !lww && client.random.Chance(0.7)) {
      attempt->node = AnyMember(client.random);
      if (PutCall* put = std::get_if<PutCall>(&attempt->call)) {
        put->request = RequestKey{};
      }
      recorded_[attempt->id].operation.repeated = true;
      Send(std::move(attempt));
      return;
    }
    const PutCall& put = std::get<PutCall>(attempt->call);
    if (!put.request.id.empty() && put.request.coordinator_start_id != 0) {
      Send(std::move(attempt));
      return;
    }
  }
  Finish(attempt, Outcome::kUnknown, nullptr);
}

void Workload::Judge(const Recorded& recorded, const absl::Status& status,
                     bool shared_id) {
  const bool impossible = recorded.operation.strict && !recorded.overlaps;
  bool expected = false;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      expected = !impossible || SettingsChange();
      break;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kAborted:
      expected = true;
      break;
    case absl::StatusCode::kFailedPrecondition:
      // A node that is in no ring, or in none any more, says so.
      expected = recorded.operation.IsWrite() || SettingsChange();
      break;
    case absl::StatusCode::kInvalidArgument:
      expected = impossible || shared_id || SettingsChange() ||
                 (recorded.operation.IsWrite() &&
                  writes_[Slot(recorded.space, recorded.key)] >= kSiblingsMax);
      break;
    default:
      break;
  }
  if (expected) return;
  complaints_.push_back(absl::StrCat(
      "operation #", recorded.operation.id, " at n", recorded.node,
      " got an answer that nothing explains: ", status.ToString()));
}

void Workload::Fill(Operation& operation,
                    const std::vector<SiblingAnswer>& siblings,
                    bool has_context) {
  operation.answered_context = has_context;
  for (const SiblingAnswer& sibling : siblings) {
    Shown shown;
    shown.writer = WriterOf(sibling.value);
    shown.hlc = ToInt(sibling.hlc);
    if (shown.writer == kNoOperation) shown.raw = sibling.value;
    operation.shown.push_back(std::move(shown));
  }
}

void Workload::Finish(std::shared_ptr<Attempt> attempt, Outcome outcome,
                      const ClientAnswer* answer) {
  attempt->over = true;
  --in_flight_;
  Client& client = *attempt->client;
  Recorded& recorded = recorded_[attempt->id];
  Operation& operation = recorded.operation;
  operation.outcome = outcome;
  Reply reply;
  reply.id = attempt->id;
  reply.outcome = outcome;
  if (outcome == Outcome::kUnknown) ++unknown_;
  if (outcome == Outcome::kRefused) operation.ended = world_.scheduler.now();
  if (answer != nullptr) {
    ++answered_ok_;
    operation.ended = world_.scheduler.now();
    Judge(recorded, answer->status, false);
    operation.acks_needed =
        std::min(operation.acks_needed,
                 Least(recorded.space, attempt->request.w, &Keyspace::w));
    if (const GetAnswer* get = std::get_if<GetAnswer>(&answer->answer)) {
      Fill(operation, get->siblings, get->context.has_value());
      reply.context = get->context;
      for (const Shown& shown : operation.shown) {
        reply.values.push_back(shown.writer);
      }
    } else if (const PutAnswer* put = std::get_if<PutAnswer>(&answer->answer)) {
      operation.answered_context = put->context.has_value();
      operation.unresolved_siblings = put->unresolved_siblings;
      operation.replica_acks = put->replica_acks;
      operation.stand_in_acks = put->stand_in_acks;
      reply.context = put->context;
    }
    if (operation.IsWrite() !=
        std::holds_alternative<PutAnswer>(answer->answer)) {
      complaints_.push_back(absl::StrCat("operation #", operation.id,
                                         " got the answer of another kind"));
    }
  }
  if (reply.context.has_value()) {
    const size_t slot = Slot(recorded.space, recorded.key);
    client.contexts[slot] = {*reply.context, attempt->id};
    std::vector<HeldContext>& shared = shared_contexts_[slot];
    if (shared.size() >= kSharedContextsMax) shared.erase(shared.begin());
    shared.push_back(client.contexts[slot]);
  }
  if (world_.trace.readable()) {
    std::string text =
        absl::StrCat("#", attempt->id,
                     outcome == Outcome::kOk        ? " ok"
                     : outcome == Outcome::kUnknown ? " unknown"
                                                    : " refused");
    if (operation.IsRead() && outcome == Outcome::kOk) {
      absl::StrAppend(&text, " shows");
      for (const Shown& shown : operation.shown) {
        absl::StrAppend(&text, " #", shown.writer);
      }
      if (operation.shown.empty()) absl::StrAppend(&text, " nothing");
      if (operation.answered_context) absl::StrAppend(&text, " + context");
    } else if (outcome == Outcome::kOk) {
      absl::StrAppend(&text, ", acks ", operation.replica_acks, "+",
                      operation.stand_in_acks,
                      operation.answered_context ? " + context" : "");
    } else if (!recorded.message.empty()) {
      absl::StrAppend(&text, ": ", recorded.message);
    }
    Say(client, std::move(text));
  }
  const ReplyDone done = std::move(attempt->done);
  done(reply);
}

void Workload::Update(Client& client, Request request, int rounds,
                      std::function<void()> done) {
  Request get;
  get.kind = OperationKind::kGet;
  get.space = request.space;
  get.key = request.key;
  get.strict = request.strict;
  Issue(client, get, [this, &client, request, rounds, done](const Reply& read) {
    if (read.outcome != Outcome::kOk) {
      done();
      return;
    }
    Request put = request;
    put.context.reset();
    if (read.context.has_value()) {
      put.context = HeldContext{*read.context, read.id};
    }
    Issue(client, put,
          [this, &client, request, rounds, done](const Reply& written) {
            if (written.outcome == Outcome::kUnknown && rounds > 1) {
              // Another value is another write.
              Request next = request;
              next.request_id.clear();
              Update(client, next, rounds - 1, done);
            } else {
              done();
            }
          });
  });
}

void Workload::Burst(Client& client, std::function<void()> done) {
  const int count = 2 + static_cast<int>(client.random.Uniform(12));
  const bool one_key = client.random.Chance(0.5);
  Request first = Draw(client, OperationKind::kPut);
  first.node = DrawNode(client, first.space, first.key);
  auto left = std::make_shared<int>(count);
  for (int i = 0; i < count; ++i) {
    Request request =
        Draw(client, client.random.Chance(0.3) ? OperationKind::kGet
                                               : OperationKind::kPut);
    if (one_key) {
      request.space = first.space;
      request.key = first.key;
      request.context =
          request.kind == OperationKind::kGet ? std::nullopt : first.context;
      request.request_id.clear();
      DrawQuorum(client, request);
    }
    if (client.random.Chance(0.4)) request.context.reset();
    if (request.kind == OperationKind::kPut && client.random.Chance(0.4)) {
      request.context.reset();
      request.blind = true;
    }
    request.node = first.node;
    Issue(client, std::move(request), [left, done](const Reply&) {
      if (--*left == 0) done();
    });
  }
}

void Workload::Hammer(int node, uint64_t pick, WorldTime length) {
  if (stopping_) return;
  const Ring& ring = *world_.newest_ring;
  std::vector<Request> owned;
  for (size_t space = 0; space < world_.plan.keyspaces.size(); ++space) {
    const Keyspace* keyspace =
        ring.FindKeyspace(world_.plan.keyspaces[space].name);
    for (int key = 0; key < world_.plan.workload.keys; ++key) {
      for (const NodeNumber number :
           ring.PreferenceList(*keyspace, TokenOf(KeyName(key)))) {
        const Member& member = *ring.FindMember(number);
        if (world_.AtAddress(member.peer_address)->index() != node) continue;
        Request request;
        request.kind = OperationKind::kPut;
        request.space = static_cast<int>(space);
        request.key = key;
        request.node = node;
        owned.push_back(std::move(request));
      }
    }
  }
  if (owned.empty()) return;
  const int index = static_cast<int>(clients_.size());
  auto client = std::make_unique<Client>(
      Client{.index = index,
             .random = RandomFor(world_.plan.seed, Purpose::kClient,
                                 static_cast<uint64_t>(index))});
  client->contexts.resize(shared_contexts_.size());
  ++running_clients_;
  clients_.push_back(std::move(client));
  HammerOn(*clients_.back(), owned[pick % owned.size()], kHammeredMax,
           world_.scheduler.now() + length);
}

void Workload::HammerOn(Client& client, const Request& target, int left,
                        WorldTime until) {
  if (stopping_ || left == 0 || world_.scheduler.now() >= until) {
    --running_clients_;
    return;
  }
  Request request = target;
  DrawQuorum(client, request);
  const HeldContext& held = client.contexts[Slot(target.space, target.key)];
  if (held.source != kNoOperation && client.random.Chance(0.5)) {
    request.context = held;
  } else {
    request.blind = client.random.Chance(0.3);
  }
  ++hammered_;
  Issue(client, std::move(request),
        [this, &client, target, left, until](const Reply& reply) {
          // A node that is down refuses at once.
          const WorldTime pause =
              reply.outcome == Outcome::kOk
                  ? static_cast<WorldTime>(client.random.Uniform(8)) *
                        kMillisecond
                  : 20 * kMillisecond;
          After(client, pause, [this, &client, target, left, until] {
            HammerOn(client, target, left - 1, until);
          });
        });
}

void Workload::Scan(Client& client, int space, std::string cursor, int pages,
                    int node, std::function<void()> done) {
  if (node < 0) {
    node = AnyMember(client.random);
    ++operations_;  // all pages are one
  }
  ScanCall call;
  call.keyspace = Space(space).name;
  call.cursor = std::move(cursor);
  call.limit = 1 + static_cast<uint32_t>(client.random.Uniform(20));
  const WorldTime began = world_.scheduler.now();
  ++issued_;
  ++in_flight_;
  Ask(node, std::move(call), world_.plan.workload.timeout,
      [this, &client, space, pages, node, began, done](CallResult result) {
        --in_flight_;
        const ScanAnswer* scan =
            result.answer.has_value()
                ? std::get_if<ScanAnswer>(&result.answer->answer)
                : nullptr;
        if (scan == nullptr || !result.answer->status.ok()) {
          done();
          return;
        }
        for (const ScanAnswer::Entry& entry : scan->entries) {
          const int key = KeyOfName(entry.key);
          if (key < 0) {
            complaints_.push_back(
                absl::StrCat("a scan shows a key nobody wrote: ", entry.key));
            continue;
          }
          Recorded recorded;
          recorded.space = space;
          recorded.key = key;
          recorded.node = node;
          Operation& operation = recorded.operation;
          operation.id = static_cast<OperationId>(recorded_.size());
          operation.kind = OperationKind::kScan;
          operation.client = client.index;
          operation.invoked = began;
          operation.ended = world_.scheduler.now();
          operation.outcome = Outcome::kOk;
          Fill(operation, entry.siblings, !entry.context.empty());
          if (!entry.context.empty()) {
            client.contexts[Slot(space, key)] = {entry.context, operation.id};
          }
          recorded_.push_back(std::move(recorded));
        }
        if (scan->cursor.empty() || pages <= 1) {
          done();
        } else {
          Scan(client, space, scan->cursor, pages - 1, node, done);
        }
      });
}

void Workload::Ask(int node, ClientCall call, WorldTime timeout,
                   std::function<void(CallResult)> done) {
  const WorldTime there = world_.plan.network.delay_min;
  auto over = std::make_shared<bool>(false);
  auto shared = std::make_shared<ClientCall>(std::move(call));
  auto finish = [over, done](CallResult result) {
    if (*over) return;
    *over = true;
    done(std::move(result));
  };
  Node* target = world_.nodes[static_cast<size_t>(node)].get();
  world_.scheduler.After(there, [this, target, shared, timeout, there, finish] {
    target->Call(std::move(*shared), timeout,
                 [this, there, finish](CallResult result) {
                   auto kept = std::make_shared<CallResult>(std::move(result));
                   world_.scheduler.After(
                       there, [finish, kept] { finish(std::move(*kept)); });
                 });
  });
  world_.scheduler.After(timeout + kGrace, [finish] { finish(CallResult{}); });
}

}  // namespace ringkv::sim
