// A small deterministic cluster of Control machines: simulated time, clocks,
// disks and network. One seed gives one run. Streams here may lose, delay,
// repeat and reorder messages, which is more than the real ones do.

#ifndef RINGKV_TESTS_MEMBERSHIP_CONTROL_CLUSTER_H_
#define RINGKV_TESTS_MEMBERSHIP_CONTROL_CLUSTER_H_

#include <algorithm>
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

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hlc.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "membership/control/control.h"
#include "membership/control/start.h"
#include "membership/ring/ring.h"
#include "server/codec/control_codec.h"

namespace ringkv {

struct NetworkOptions {
  double loss = 0;
  double duplicate = 0;
  absl::Duration delay_min = absl::Microseconds(100);
  absl::Duration delay_max = absl::Milliseconds(2);
  absl::Duration sync_max = absl::Milliseconds(5);
};

class ControlCluster {
 public:
  struct Node {
    ControlOptions options;
    std::string address;  // empty: nobody can reach it
    // Disk: what survives, and what is written but not yet synced.
    std::map<std::string, std::string> durable;
    std::deque<std::pair<uint64_t, std::vector<MetaWrite>>> unsynced;
    bool sync_running = false;
    // One run.
    uint64_t run = 0;
    bool running = false;
    std::unique_ptr<SeededRandom> random;
    std::unique_ptr<Hlc> hlc;
    std::unique_ptr<Control> control;
    uint64_t next_inbound = 1;
    Instant armed = Instant::Infinite();
    absl::Duration wall_skew;
    bool frozen = false;
    // What came out.
    std::shared_ptr<const Ring> ring;
    std::shared_ptr<const PeerView> peers;
    std::shared_ptr<const AddressView> addresses;
    bool clock_ok = true;
    // The shards take new rings in; otherwise the test says when they have.
    bool adopts = true;
    // Of the operation whose transfers began in this run, and how long the
    // shards take for them; infinite: the test reports them.
    RingEpoch transfers_begun = 0;
    absl::Duration transfers_take = absl::Milliseconds(50);
    bool checked = false;
    std::optional<StopRequest> stop;
    absl::Status start_error;
    std::vector<std::string> log;
  };

  explicit ControlCluster(uint64_t seed, NetworkOptions network = {})
      : network(network), random_(seed) {}

  // --- Nodes ---

  int Add(std::string name, std::vector<std::string> seeds,
          std::string rack = "") {
    Node& node = nodes_.emplace_back();
    node.options.name = name;
    node.options.seeds = std::move(seeds);
    node.options.peer_address = absl::StrCat(name, ":7800");
    node.options.client_address = absl::StrCat(name, ":7700");
    node.options.location.rack = std::move(rack);
    node.options.version = "test";
    node.address = node.options.peer_address;
    return static_cast<int>(nodes_.size()) - 1;
  }
  Node& node(int i) { return nodes_[i]; }
  size_t size() const { return nodes_.size(); }

  void Start(int i) {
    Node& node = nodes_[i];
    RINGKV_CHECK(!node.running);
    node.stop.reset();
    node.unsynced.clear();
    node.sync_running = false;
    node.random = std::make_unique<SeededRandom>(random_.Next());
    StartOptions options;
    options.name = node.options.name;
    options.location = node.options.location;
    options.feature_level_max = node.options.feature_level_max;
    options.has_data = !node.durable.empty();
    absl::StatusOr<StartedNode> started = StartNode(
        [&node](absl::string_view key)
            -> absl::StatusOr<std::optional<std::string>> {
          const auto found = node.durable.find(std::string(key));
          if (found == node.durable.end()) return std::optional<std::string>();
          return std::optional<std::string>(found->second);
        },
        options, TimeOf(node).wall, *node.random);
    node.start_error = started.status();
    if (!started.ok()) return;
    Apply(node, started->writes);
    started->writes.clear();
    ++node.run;
    node.running = true;
    node.ring = nullptr;
    node.peers = nullptr;
    node.addresses = nullptr;
    node.clock_ok = true;
    node.transfers_begun = 0;
    node.checked = false;
    node.next_inbound = 1;
    node.hlc = std::make_unique<Hlc>(started->hlc_floor);
    node.control = std::make_unique<Control>(node.options, *std::move(started),
                                             *node.hlc, *node.random);
    Step(i, ControlStarted());
  }
  void StartAll() {
    for (size_t i = 0; i < nodes_.size(); ++i) Start(static_cast<int>(i));
  }

  // Ends the run; a random part of what was not synced is lost. `silent`: peers
  // are not told that the streams are gone.
  void Crash(int i, bool silent = false) {
    Node& node = nodes_[i];
    if (!node.running) return;
    size_t kept = random_.Uniform(node.unsynced.size() + 1);
    for (auto& [ticket, writes] : node.unsynced) {
      if (kept-- == 0) break;
      Apply(node, writes);
    }
    node.unsynced.clear();
    node.running = false;
    node.control.reset();
    for (auto& [id, link] : net_links_) {
      for (int side = 0; side < 2; ++side) {
        if (link.ends[side].node == i && link.ends[side].run == node.run) {
          link.ends[side].gone = true;
          if (!silent) NotifyClosed(id, 1 - side);
        }
      }
    }
  }
  void Wipe(int i) { nodes_[i].durable.clear(); }
  // Stops stepping the node, without losing anything.
  void Freeze(int i, bool frozen) {
    nodes_[i].frozen = frozen;
    if (!frozen) Arm(i);
  }

  // Blocks messages from one node to another.
  void Block(int from, int to, bool blocked = true) {
    if (blocked) {
      blocked_.insert({from, to});
    } else {
      blocked_.erase({from, to});
    }
  }
  void Isolate(int i, bool isolated = true) {
    for (int j = 0; j < static_cast<int>(nodes_.size()); ++j) {
      Block(i, j, isolated);
      Block(j, i, isolated);
    }
  }
  void Heal() { blocked_.clear(); }

  // --- Time ---

  Instant now() const { return now_; }
  Time TimeOf(const Node& node) const {
    const int64_t base = 1'700'000'000'000'000;
    return {now_, WallTime{base + now_.nanos / 1000 +
                           absl::ToInt64Microseconds(node.wall_skew)}};
  }

  void RunFor(absl::Duration span) { RunUntil(now_ + span); }
  void RunUntil(Instant end) {
    while (!queue_.empty() && queue_.begin()->first.first <= end) {
      auto first = queue_.begin();
      now_ = std::max(now_, first->first.first);
      const std::function<void()> action = std::move(first->second);
      queue_.erase(first);
      action();
    }
    now_ = std::max(now_, end);
  }
  // Runs until `done` holds, at most `limit`; returns whether it does.
  bool RunUntilTrue(const std::function<bool()>& done,
                    absl::Duration limit = absl::Seconds(30)) {
    const Instant end = now_ + limit;
    while (!done()) {
      if (queue_.empty() || queue_.begin()->first.first > end) {
        now_ = end;
        return done();
      }
      RunUntil(queue_.begin()->first.first);
    }
    return true;
  }
  void At(absl::Duration after, std::function<void()> action) {
    queue_.emplace(std::make_pair(now_ + after, next_event_++),
                   std::move(action));
  }

  // --- Calls ---

  uint64_t Call(int i, AdminCall request,
                absl::Duration timeout = absl::Seconds(20)) {
    const uint64_t call = ++next_call_;
    Step(i, AdminArrived{call, now_ + timeout, std::move(request)});
    return call;
  }
  bool Answered(uint64_t call) const { return answers_.count(call) > 0; }
  const AdminAnswer& answer(uint64_t call) { return answers_.at(call); }
  // Runs until the call is answered.
  AdminAnswer Ask(int i, AdminCall request,
                  absl::Duration timeout = absl::Seconds(20)) {
    const uint64_t call = Call(i, std::move(request), timeout);
    EXPECT_TRUE(RunUntilTrue([&] { return Answered(call); },
                             timeout + absl::Seconds(20)));
    if (!Answered(call)) return {absl::UnknownError("never answered"), {}};
    return answers_.at(call);
  }

  void Step(int i, const ControlEvent& event) {
    Node& node = nodes_[i];
    if (!node.running) return;
    ControlEffects effects;
    node.control->Step(event, TimeOf(node), effects);
    node.control->CheckInvariants();
    const Instant next = node.control->NextTimer();
    // A timer that is due at once would spin.
    EXPECT_GT(next, now_) << "node " << i << " event " << event.index();
    CarryOut(i, effects);
    Arm(i);
  }

  // What node `i` calls its control stream to `j`; kNoLink if there is none.
  LinkId ControlLink(int i, int j) {
    for (auto& [id, link] : net_links_) {
      if (link.kind != LinkKind::kControl) continue;
      for (int side = 0; side < 2; ++side) {
        const End& mine = link.ends[side];
        const End& other = link.ends[1 - side];
        if (mine.node == i && other.node == j && !mine.gone && !other.gone &&
            mine.run == nodes_[i].run && other.run == nodes_[j].run) {
          return mine.link;
        }
      }
    }
    return kNoLink;
  }

  // --- What should hold ---

  bool SeesAlive(int i, int j) {
    const Node& a = nodes_[i];
    const Node& b = nodes_[j];
    if (!a.running || a.ring == nullptr || a.peers == nullptr) return false;
    const Member* member = nullptr;
    for (const Member& m : a.ring->spec().members) {
      if (m.name == b.options.name) member = &m;
    }
    if (member == nullptr) return false;
    const auto found = a.peers->find(member->number);
    return found != a.peers->end() && found->second.alive;
  }
  bool AllSeeAll() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (size_t j = 0; j < nodes_.size(); ++j) {
        if (i == j || !nodes_[i].running || !nodes_[j].running) continue;
        if (!SeesAlive(static_cast<int>(i), static_cast<int>(j))) return false;
      }
    }
    return true;
  }
  size_t PeersAlive(int i) { return nodes_[i].control->peers_alive(); }
  // Every running node has all other running ones as alive peers.
  bool FullMesh() {
    size_t running = 0;
    for (const Node& node : nodes_) running += node.running ? 1 : 0;
    for (const Node& node : nodes_) {
      if (node.running && node.control->peers_alive() != running - 1) {
        return false;
      }
    }
    return true;
  }
  RingEpoch EpochOf(int i) {
    return nodes_[i].running ? nodes_[i].control->adopted_epoch() : 0;
  }
  bool AllAtEpoch(RingEpoch epoch) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].running && EpochOf(static_cast<int>(i)) != epoch) {
        return false;
      }
    }
    return true;
  }
  bool Logged(int i, absl::string_view text) {
    for (const std::string& line : nodes_[i].log) {
      if (absl::StrContains(line, text)) return true;
    }
    return false;
  }
  // Rings that any node adopted: by cluster and epoch. Two different ones for
  // one epoch break the promise of this module.
  bool SafetyHolds() const { return !safety_broken_; }

  SeededRandom& random() { return random_; }
  NetworkOptions network;
  bool expect_safety = true;

 private:
  struct End {
    int node = -1;
    uint64_t run = 0;
    LinkId link = kNoLink;
    bool gone = false;
  };
  struct NetLink {
    LinkKind kind = LinkKind::kControl;
    End ends[2];  // dialler, acceptor
  };

  static void Apply(Node& node, const std::vector<MetaWrite>& writes) {
    for (const MetaWrite& write : writes) {
      if (write.value.has_value()) {
        node.durable[write.key] = *write.value;
      } else {
        node.durable.erase(write.key);
      }
    }
  }

  absl::Duration Delay() {
    return network.delay_min +
           (network.delay_max - network.delay_min) * random_.NextDouble();
  }

  // Runs `action` at the node after a network delay, if it still is in `run`
  // then; a frozen node gets to it once it runs again.
  void Deliver(int from, int to, uint64_t run, std::function<void()> action) {
    if (blocked_.count({from, to}) > 0) return;
    Hand(to, run, Delay(), std::move(action));
  }
  void Hand(int to, uint64_t run, absl::Duration delay,
            std::function<void()> action) {
    At(delay, [this, to, run, action = std::move(action)] {
      const Node& node = nodes_[to];
      if (!node.running || node.run != run) return;
      if (!node.frozen) return action();
      Hand(to, run, absl::Milliseconds(100), action);
    });
  }

  int NodeAt(const std::string& address) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].running && nodes_[i].address == address) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  void Arm(int i) {
    Node& node = nodes_[i];
    if (!node.running || node.frozen) return;
    const Instant next = node.control->NextTimer();
    node.armed = next;
    if (next == Instant::Infinite()) return;
    At(next - now_, [this, i, next, run = node.run] {
      Node& node = nodes_[i];
      if (!node.running || node.frozen || node.run != run ||
          node.armed != next) {
        return;
      }
      Step(i, ControlTimer());
    });
  }

  void NotifyClosed(uint64_t net_link, int side) {
    NetLink& link = net_links_[net_link];
    End& end = link.ends[side];
    if (end.gone || end.node < 0) return;
    end.gone = true;
    const int from = link.ends[1 - side].node;
    Deliver(from < 0 ? end.node : from, end.node, end.run,
            [this, i = end.node, id = end.link] {
              Step(i, LinkClosed{id, absl::UnavailableError("closed")});
            });
  }

  // The network link that a node calls `link`, and which of its ends that is.
  std::optional<std::pair<uint64_t, int>> Find(int i, LinkId link) {
    const auto found = by_end_.find({i, nodes_[i].run, link});
    if (found == by_end_.end()) return std::nullopt;
    return found->second;
  }

  void CarryOut(int i, ControlEffects& effects) {
    Node& node = nodes_[i];
    for (LogLine& line : effects.log) {
      node.log.push_back(std::move(line.text));
    }
    if (!effects.writes.empty()) {
      node.unsynced.push_back({effects.ticket, effects.writes});
      StartSync(i);
    }
    for (HelloCall& call : effects.hellos) SayHello(i, std::move(call));
    for (HelloAnswer& answer : effects.hello_answers) {
      const auto found = hello_calls_.find(answer.call);
      RINGKV_CHECK(found != hello_calls_.end());
      const auto [caller, run, hello] = found->second;
      hello_calls_.erase(found);
      Deliver(i, caller, run,
              [this, caller = caller, hello = hello,
               bytes = EncodeHelloReply(answer.reply)] {
                Step(caller, HelloAnswered{hello, *DecodeHelloReply(bytes)});
              });
    }
    for (LinkDial& dial : effects.dials) DialLink(i, std::move(dial));
    for (LinkAnswer& answer : effects.link_answers) {
      const auto found = Find(i, answer.link);
      RINGKV_CHECK(found.has_value());
      NetLink& link = net_links_[found->first];
      const End& dialler = link.ends[0];
      Deliver(i, dialler.node, dialler.run,
              [this, at = dialler.node, id = dialler.link,
               bytes = EncodeHelloReply(answer.reply)] {
                Step(at, LinkAnswered{id, *DecodeHelloReply(bytes)});
              });
      if (answer.reply.outcome != HelloOutcome::kAccepted) {
        link.ends[1].gone = true;
      }
    }
    for (ControlOut& out : effects.messages) SendOn(i, out);
    for (AdminOut& out : effects.answers) {
      EXPECT_EQ(answers_.count(out.call), 0u) << "answered twice";
      answers_[out.call] = std::move(out.answer);
    }
    for (LinkId link : effects.closes) {
      const auto found = Find(i, link);
      if (!found.has_value()) continue;
      net_links_[found->first].ends[found->second].gone = true;
      NotifyClosed(found->first, 1 - found->second);
    }
    if (effects.ring != nullptr) {
      node.ring = effects.ring;
      NoteRing(*effects.ring);
      At(Delay(), [this, i, run = node.run, epoch = effects.ring->epoch()] {
        if (nodes_[i].running && nodes_[i].run == run && nodes_[i].adopts) {
          Step(i, EpochAdopted{epoch});
        }
      });
    }
    if (effects.begin_transfers != 0) BeginTransfers(i, effects);
    if (effects.peers != nullptr) {
      node.peers = effects.peers;
      node.clock_ok = effects.clock_ok;
      node.checked = effects.checked;
    }
    if (effects.addresses != nullptr) node.addresses = effects.addresses;
    if (effects.stop.has_value()) {
      node.stop = effects.stop;
      At(absl::ZeroDuration(), [this, i, run = node.run] {
        if (nodes_[i].run == run) Crash(i);
      });
    }
  }

  void BeginTransfers(int i, const ControlEffects& effects) {
    Node& node = nodes_[i];
    const RingEpoch operation = effects.begin_transfers;
    EXPECT_EQ(effects.ring, nullptr) << "begun before the epoch is adopted";
    EXPECT_GE(node.control->adopted_epoch(), operation);
    EXPECT_NE(node.transfers_begun, operation) << "begun twice";
    node.transfers_begun = operation;
    if (node.transfers_take == absl::InfiniteDuration()) return;
    At(node.transfers_take, [this, i, run = node.run, operation] {
      if (!nodes_[i].running || nodes_[i].run != run) return;
      Step(i, TransfersReported{{operation, 4, 4, 100, 1000, true}});
    });
  }

  void StartSync(int i) {
    Node& node = nodes_[i];
    if (node.sync_running || node.unsynced.empty()) return;
    node.sync_running = true;
    const uint64_t ticket = node.unsynced.back().first;
    At(network.sync_max * random_.NextDouble(), [this, i, ticket,
                                                 run = node.run] {
      Node& node = nodes_[i];
      if (!node.running || node.run != run) return;
      node.sync_running = false;
      while (!node.unsynced.empty() && node.unsynced.front().first <= ticket) {
        Apply(node, node.unsynced.front().second);
        node.unsynced.pop_front();
      }
      Step(i, MetaPersisted{ticket});
      StartSync(i);
    });
  }

  void SayHello(int i, HelloCall call) {
    const int to = NodeAt(call.address);
    const uint64_t run = nodes_[i].run;
    if (to < 0) {
      Deliver(i, i, run, [this, i, hello = call.hello] {
        Step(i, HelloAnswered{hello, absl::UnavailableError("refused")});
      });
      return;
    }
    const uint64_t id = ++next_hello_;
    hello_calls_[id] = {i, run, call.hello};
    Deliver(i, to, nodes_[to].run,
            [this, to, id, bytes = EncodeHelloRequest(call.request)] {
              Step(to, HelloArrived{id, *DecodeHelloRequest(bytes)});
            });
  }

  void DialLink(int i, LinkDial dial) {
    const int to = NodeAt(dial.address);
    const uint64_t run = nodes_[i].run;
    if (to < 0) {
      Deliver(i, i, run, [this, i, link = dial.link] {
        Step(i, LinkClosed{link, absl::UnavailableError("refused")});
      });
      return;
    }
    const uint64_t id = ++next_net_link_;
    NetLink& link = net_links_[id];
    link.kind = dial.kind;
    link.ends[0] = {i, run, dial.link};
    link.ends[1] = {to, nodes_[to].run,
                    kInboundLinkBit | nodes_[to].next_inbound++};
    by_end_[{i, run, link.ends[0].link}] = {id, 0};
    by_end_[{to, link.ends[1].run, link.ends[1].link}] = {id, 1};
    Deliver(i, to, link.ends[1].run,
            [this, to, at = link.ends[1].link, kind = dial.kind,
             bytes = EncodeHelloRequest(dial.request)] {
              Step(to, LinkOffered{at, kind, *DecodeHelloRequest(bytes)});
            });
  }

  void SendOn(int i, const ControlOut& out) {
    const auto found = Find(i, out.link);
    RINGKV_CHECK(found.has_value());
    const NetLink& link = net_links_[found->first];
    EXPECT_EQ(link.kind, LinkKind::kControl);
    const End& end = link.ends[1 - found->second];
    if (end.gone || link.ends[found->second].gone) return;
    if (random_.Chance(network.loss)) return;
    const std::string bytes = EncodeControl(out.message);
    const int copies = random_.Chance(network.duplicate) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      Deliver(i, end.node, end.run,
              [this, at = end.node, id = end.link, bytes] {
                Step(at, ControlArrived{id, *DecodeControl(bytes)});
              });
    }
  }

  void NoteRing(const Ring& ring) {
    const auto [found, added] =
        rings_.try_emplace({ring.spec().cluster_id, ring.epoch()}, ring.spec());
    if (!added && !(found->second == ring.spec())) {
      safety_broken_ = true;
      if (expect_safety) {
        ADD_FAILURE() << "two rings for epoch " << ring.epoch();
      }
    }
  }

  Instant now_{1'000'000'000};
  SeededRandom random_;
  std::deque<Node> nodes_;
  std::map<std::pair<Instant, uint64_t>, std::function<void()>> queue_;
  uint64_t next_event_ = 0;
  uint64_t next_call_ = 0;
  uint64_t next_hello_ = 0;
  uint64_t next_net_link_ = 0;
  std::map<uint64_t, AdminAnswer> answers_;
  std::map<uint64_t, std::tuple<int, uint64_t, uint64_t>> hello_calls_;
  std::map<uint64_t, NetLink> net_links_;
  std::map<std::tuple<int, uint64_t, LinkId>, std::pair<uint64_t, int>> by_end_;
  std::set<std::pair<int, int>> blocked_;
  std::map<std::pair<ClusterId, RingEpoch>, RingSpec> rings_;
  bool safety_broken_ = false;
};

}  // namespace ringkv

#endif  // RINGKV_TESTS_MEMBERSHIP_CONTROL_CLUSTER_H_
