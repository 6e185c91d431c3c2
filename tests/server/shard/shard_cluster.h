// A few shards, one a node, joined by hand: messages stay in a queue until the
// test lets them go, engines are in memory, and time moves when the test says
// so.

#ifndef RINGKV_TESTS_SERVER_SHARD_SHARD_CLUSTER_H_
#define RINGKV_TESTS_SERVER_SHARD_SHARD_CLUSTER_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/token.h"
#include "membership/ring/placement.h"
#include "membership/ring/ring.h"
#include "server/loop/turn_loop.h"
#include "server/shard/shard.h"
#include "server/streaming/report.h"
#include "storage/hints/hint_store.h"
#include "storage/memory_engine.h"
#include "storage/version/object.h"

namespace ringkv {

class ShardCluster {
 public:
  explicit ShardCluster(int nodes, std::vector<Keyspace> keyspaces = {},
                        ShardOptions options = {})
      : options_(options) {
    RingSpec spec;
    spec.cluster_id = ClusterId{1, 2};
    spec.epoch = 1;
    spec.vnodes = 256;
    for (int i = 1; i <= nodes; ++i) {
      Member member;
      member.number = NodeNumber{static_cast<uint32_t>(i)};
      member.id = NodeId{7, static_cast<uint64_t>(i)};
      member.name = "n" + std::to_string(i);
      member.client_address = "127.0.0.1:" + std::to_string(7000 + i);
      member.peer_address = "127.0.0.1:" + std::to_string(8000 + i);
      member.location.rack = "r" + std::to_string(i);
      member.location.host = member.name;
      spec.members.push_back(member);
    }
    spec.next_node_number = NodeNumber{static_cast<uint32_t>(nodes + 1)};
    if (keyspaces.empty()) {
      Keyspace keyspace;
      keyspace.name = "default";
      keyspaces.push_back(keyspace);
    }
    uint32_t id = 0;
    for (Keyspace& keyspace : keyspaces) keyspace.id = KeyspaceId{++id};
    spec.keyspaces = keyspaces;
    spec.next_keyspace_id = KeyspaceId{id + 1};
    PlacementOptions placement;
    placement.vnodes = spec.vnodes;
    auto assignment = Place(placement, spec.members, {});
    RINGKV_CHECK(assignment.ok());
    spec.tokens = assignment->tokens;
    spec.owners = assignment->owners;
    auto ring = Ring::Make(spec);
    RINGKV_CHECK(ring.ok());
    ring_ = *ring;
    for (const Member& member : ring_->spec().members) {
      nodes_[member.number].engine = std::make_unique<MemoryEngine>();
      up_.insert(member.number);
    }
    for (const Member& member : ring_->spec().members) StartNode(member.number);
  }

  const Ring& ring() const { return *ring_; }
  const Keyspace& keyspace(int index = 0) const {
    return ring_->spec().keyspaces[index];
  }
  MemoryEngine& engine(NodeNumber node) { return *nodes_[node].engine; }
  Shard& shard(NodeNumber node, int shard = 0) {
    return *nodes_[node].loops[shard]->shard;
  }
  int shards(NodeNumber node) { return nodes_[node].shards; }
  // From its next start on.
  void SetShards(NodeNumber node, int shards) { nodes_[node].shards = shards; }
  uint64_t Sum(NodeNumber node, uint64_t ShardStats::*counter) {
    uint64_t sum = 0;
    for (auto& loop : nodes_[node].loops) sum += loop->shard->Stats().*counter;
    return sum;
  }
  // The newest that its shards have reported, summed.
  TransferReport Transfers(NodeNumber node) {
    std::vector<TransferReport> reports;
    for (auto& loop : nodes_[node].loops) reports.push_back(loop->transfers);
    return SumOf(reports);
  }
  // The epoch that all its shards have adopted, durably.
  RingEpoch Adopted(NodeNumber node) {
    RingEpoch least = ~RingEpoch{0};
    for (auto& loop : nodes_[node].loops) {
      least = std::min(least, loop->adopted);
    }
    return least;
  }
  void Post(NodeNumber node, const ShardEvent& event) {
    for (auto& loop : nodes_[node].loops) loop->inbox.push_back(event);
  }
  // Drops what waits for it, and it until it is started anew.
  void Stop(NodeNumber node) { nodes_[node].loops.clear(); }

  std::vector<NodeNumber> Replicas(const std::string& key, int keyspace = 0) {
    const auto list =
        ring_->PreferenceList(this->keyspace(keyspace), TokenOf(key));
    return {list.begin(), list.end()};
  }

  // A key of which `node` is a replica (or not).
  std::string KeyOn(NodeNumber node, bool replica = true) {
    for (int i = 0;; ++i) {
      const std::string key = "key" + std::to_string(i);
      if (ring_->IsReplica(keyspace(), TokenOf(key), node) == replica) {
        return key;
      }
    }
  }

  // The ring of whoever starts, or asks for a newer one, from now on; new
  // members start with it. Others have to Adopt() it.
  void SetRing(const RingSpec& spec) {
    auto ring = Ring::Make(spec);
    RINGKV_CHECK(ring.ok());
    ring_ = *ring;
    for (const Member& member : ring_->spec().members) {
      Node& node = nodes_[member.number];
      if (node.engine != nullptr) continue;
      node.engine = std::make_unique<MemoryEngine>();
      up_.insert(member.number);
      StartNode(member.number);
    }
  }
  void Adopt(NodeNumber node) { Post(node, RingAdopted{ring_, node}); }
  // The same for all members, and all that it brings with it at once.
  void AdoptAll(const RingSpec& spec) {
    SetRing(spec);
    for (const Member& member : ring_->spec().members) Adopt(member.number);
    Settle();
  }

  // Loses what was not synced and starts anew under a fresh start id.
  void Restart(NodeNumber node) {
    nodes_[node].engine->Crash(0);
    StartNode(node);
  }

  // Peers see it down (or up again); messages to and from it are lost
  // meanwhile.
  void SetUp(NodeNumber node, bool up) {
    if (up) {
      up_.insert(node);
    } else {
      up_.erase(node);
    }
    TellPeers();
  }
  // Messages to and from it are lost, and nobody knows.
  void Cut(NodeNumber node, bool cut) {
    if (cut) {
      cut_.insert(node);
    } else {
      cut_.erase(node);
    }
  }

  CallId Call(NodeNumber node, ClientCall call,
              absl::Duration timeout = absl::Seconds(10)) {
    CallArrived arrived;
    arrived.id = next_call_++;
    arrived.call = std::move(call);
    arrived.deadline = now_ + timeout;
    const std::string key = KeyOfCall(arrived.call);
    InboxOf(node, TokenOf(key)).push_back(arrived);
    return arrived.id;
  }

  // Something that a node is told by itself.
  void Tell(NodeNumber node, ShardEvent event) { Post(node, event); }

  // Flips a bit of what `node` has stored of `key`.
  void Damage(NodeNumber node, const std::string& key) {
    engine(node).Damage(Family::kData,
                        DataKey(keyspace().id, TokenOf(key), key));
  }

  // As if `from` had sent it.
  void Inject(NodeNumber from, NodeNumber to, DataMessage message) {
    Deliver(from, to, std::move(message));
  }

  // Turns, until nothing moves without time.
  void Settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [number, node] : nodes_) {
        for (size_t i = 0; i < node.loops.size(); ++i) {
          if (node.loops[i]->inbox.empty()) continue;
          moved = true;
          Turn(number, *node.loops[i]);
        }
      }
      std::deque<std::pair<NodeNumber, OutgoingMessage>> wire;
      wire.swap(wire_);
      for (auto& [from, message] : wire) {
        if (drop && drop(from, message)) continue;
        if (Lost(from) || Lost(message.to)) continue;
        moved = true;
        Deliver(from, message.to, std::move(message.message));
      }
    }
  }

  // Moves time, firing timers on the way.
  void Advance(absl::Duration span) {
    const Instant end = now_ + span;
    Settle();
    while (true) {
      Instant next = end;
      for (auto& [number, node] : nodes_) {
        for (auto& loop : node.loops) {
          next = std::min(next, loop->shard->NextTimer());
        }
      }
      wall_.micros += absl::ToInt64Microseconds(next - now_);
      now_ = std::max(now_, next);
      for (auto& [number, node] : nodes_) {
        for (auto& loop : node.loops) {
          if (loop->shard->NextTimer() <= now_) {
            loop->inbox.push_back(TimerFired{});
          }
        }
      }
      Settle();
      if (now_ >= end) return;
    }
  }

  const ClientAnswer* AnswerOf(CallId call) const {
    const auto it = answers_.find(call);
    return it == answers_.end() ? nullptr : &it->second;
  }

  // Call, settle, and the answer, which must be there; time moves if it has to.
  ClientAnswer Ask(NodeNumber node, ClientCall call,
                   absl::Duration timeout = absl::Seconds(10)) {
    const CallId id = Call(node, std::move(call), timeout);
    Settle();
    if (AnswerOf(id) == nullptr) Advance(timeout + absl::Milliseconds(1));
    RINGKV_CHECK(AnswerOf(id) != nullptr);
    return *AnswerOf(id);
  }

  // What `node` has stored as a replica.
  std::optional<std::string> Stored(NodeNumber node, const std::string& key,
                                    int keyspace = 0) {
    const ReadResult found = engine(node).Get(
        Family::kData, DataKey(this->keyspace(keyspace).id, TokenOf(key), key),
        ReadTier::kAll);
    if (found.outcome != ReadResult::Outcome::kFound) return std::nullopt;
    auto record = DecodeStored(found.value);
    RINGKV_CHECK(record.ok());
    return record->object;
  }

  std::optional<HintRecord> Hint(NodeNumber node, const std::string& key) {
    const ReadResult found = engine(node).Get(
        Family::kHints, HintRecordKey(keyspace().id, TokenOf(key), key),
        ReadTier::kAll);
    if (found.outcome != ReadResult::Outcome::kFound) return std::nullopt;
    auto record = DecodeHintRecord(found.value);
    RINGKV_CHECK(record.ok());
    return *record;
  }

  Instant now() const { return now_; }
  WallTime wall() const { return wall_; }
  void StepWall(absl::Duration by) {
    wall_.micros += absl::ToInt64Microseconds(by);
  }
  uint64_t start_id(NodeNumber node) { return nodes_[node].start_id; }

  // Messages for which it answers true are lost.
  std::function<bool(NodeNumber from, const OutgoingMessage&)> drop;
  // No sync ends while set.
  bool hold_syncs = false;

 private:
  struct Loop {
    std::unique_ptr<SeededRandom> random;
    std::unique_ptr<Shard> shard;
    std::unique_ptr<TurnLoop> loop;
    std::vector<ShardEvent> inbox;
    TransferReport transfers;
    RingEpoch adopted = 0;
  };
  struct Node {
    std::unique_ptr<MemoryEngine> engine;
    std::unique_ptr<Hlc> hlc;
    int shards = 1;
    std::vector<std::unique_ptr<Loop>> loops;
    uint64_t start_id = 0;
  };

  static std::string KeyOfCall(const ClientCall& call) {
    return std::visit(
        [](const auto& c) -> std::string {
          using C = std::decay_t<decltype(c)>;
          if constexpr (std::is_same_v<C, ScanCall>) {
            return "";
          } else {
            return c.key;
          }
        },
        call);
  }

  std::vector<ShardEvent>& InboxOf(NodeNumber node, Token token) {
    return nodes_[node].loops[ShardOf(token, nodes_[node].shards)]->inbox;
  }

  void Deliver(NodeNumber from, NodeNumber to, DataMessage message) {
    Node& node = nodes_[to];
    if (node.loops.empty()) return;
    size_t shard = std::visit(
        [&](const auto& body) -> size_t {
          using B = std::decay_t<decltype(body)>;
          const int shards = node.shards;
          if constexpr (std::is_same_v<B, ReadRequest> ||
                        std::is_same_v<B, WriteRequest>) {
            return ShardOf(TokenOf(body.key), shards);
          } else if constexpr (std::is_same_v<B, ForwardRequest>) {
            return ShardOf(TokenOf(KeyOfCall(body.call)), shards);
          } else if constexpr (std::is_same_v<B, RangeRequest>) {
            return ShardOf(body.after_token, shards);
          } else if constexpr (std::is_same_v<B, StreamRequest>) {
            return ShardOf(body.from.token, shards);
          } else {
            return body.operation >> kOperationShardShift;
          }
        },
        message.body);
    if (shard >= node.loops.size()) shard = 0;
    node.loops[shard]->inbox.push_back(
        MessageArrived{from, std::move(message)});
  }

  bool Lost(NodeNumber node) const {
    return !up_.contains(node) || cut_.contains(node);
  }

  void StartNode(NodeNumber number) {
    Node& node = nodes_[number];
    node.loops.clear();
    node.start_id = ++starts_ * 1000 + ToInt(number);
    node.hlc = std::make_unique<Hlc>(kNeverHlc);
    node.hlc->RaiseBound(HlcTimestamp{~uint64_t{0} >> 1});
    ShardOptions options = options_;
    options.start_id = node.start_id;
    options.shards = node.shards;
    for (int i = 0; i < node.shards; ++i) {
      Loop& loop = *node.loops.emplace_back(std::make_unique<Loop>());
      options.shard = i;
      loop.random = std::make_unique<SeededRandom>(node.start_id + i);
      loop.shard = std::make_unique<Shard>(options, *node.engine, *node.hlc,
                                           *loop.random);
      RINGKV_CHECK(loop.shard->Recover().ok());
      loop.loop = std::make_unique<TurnLoop>(*loop.shard, *node.engine);
      loop.inbox.push_back(RingAdopted{ring_, number});
    }
    TellPeers();
  }

  void TellPeers() {
    for (auto& [number, node] : nodes_) {
      auto view = std::make_shared<PeerView>();
      for (const auto& [other, state] : nodes_) {
        (*view)[other].alive = up_.contains(other) && up_.contains(number);
        (*view)[other].start_id = state.start_id;
      }
      Post(number, PeersChanged{std::move(view)});
    }
  }

  void Turn(NodeNumber number, Loop& loop) {
    Node& node = nodes_[number];
    Released released;
    RINGKV_CHECK(loop.loop->Turn(loop.inbox, Time{now_, wall_}, released).ok());
    if (released.wants_sync && !hold_syncs) {
      auto sequence = node.engine->Sync();
      RINGKV_CHECK(sequence.ok());
      loop.loop->Synced(*sequence, released);
    }
    loop.shard->CheckInvariants();
    if (released.adopted != 0) loop.adopted = released.adopted;
    if (released.transfers.has_value()) loop.transfers = *released.transfers;
    if (released.wants_ring) Adopt(number);
    for (OutgoingMessage& message : released.messages) {
      wire_.emplace_back(number, std::move(message));
    }
    for (OutgoingAnswer& answer : released.answers) {
      RINGKV_CHECK(!answers_.contains(answer.id));
      answers_[answer.id] = std::move(answer.answer);
    }
    for (ReadJob& job : released.reads) {
      ReadDone done;
      done.job = job.job;
      if (job.is_range) {
        done.range =
            node.engine->Range(job.family, job.begin, job.end, job.limits);
      } else {
        done.result = node.engine->Get(job.family, job.begin, ReadTier::kAll);
      }
      loop.inbox.push_back(std::move(done));
    }
  }

  ShardOptions options_;
  std::shared_ptr<const Ring> ring_;
  std::map<NodeNumber, Node> nodes_;
  std::set<NodeNumber> up_;
  std::set<NodeNumber> cut_;
  std::deque<std::pair<NodeNumber, OutgoingMessage>> wire_;
  std::map<CallId, ClientAnswer> answers_;
  CallId next_call_ = 1;
  uint64_t starts_ = 0;
  Instant now_{1000000000};
  WallTime wall_{1700000000000000};
};

}  // namespace ringkv

#endif  // RINGKV_TESTS_SERVER_SHARD_SHARD_CLUSTER_H_
