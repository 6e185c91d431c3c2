// A small deterministic network of gossip machines: simulated time, loss,
// delay, one-way cuts, frozen nodes and restarts. One seed gives one run.

#ifndef RINGKV_TESTS_MEMBERSHIP_GOSSIP_GOSSIP_NETWORK_H_
#define RINGKV_TESTS_MEMBERSHIP_GOSSIP_GOSSIP_NETWORK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "membership/gossip/gossip.h"

namespace ringkv {

class GossipNetwork {
 public:
  struct Options {
    int nodes = 100;
    double loss = 0;
    absl::Duration delay_min = absl::Microseconds(200);
    absl::Duration delay_max = absl::Milliseconds(5);
    // This share of messages takes up to `slow_max`.
    double slow_share = 0.01;
    absl::Duration slow_max = absl::Milliseconds(200);
    GossipOptions gossip;
  };

  struct Traffic {
    uint64_t messages = 0;  // without full exchanges
    uint64_t updates = 0;   // in these
    uint64_t exchanges = 0;
    uint64_t updates_in_one = 0;  // at most
  };

  GossipNetwork(uint64_t seed, Options options)
      : options_(options), random_(seed), nodes_(options.nodes) {
    for (int i = 0; i < options_.nodes; ++i) StartRun(i);
    for (int i = 0; i < options_.nodes; ++i) {
      for (int j = 0; j < options_.nodes; ++j) {
        if (i != j) Meet(i, j);
      }
    }
  }

  static NodeId IdOf(int i) { return NodeId{1, static_cast<uint64_t>(i) + 1}; }
  static int IndexOf(const NodeId& id) { return static_cast<int>(id.low) - 1; }

  Instant now() const { return now_; }
  const Gossip& gossip(int i) const { return *nodes_[i].gossip; }
  // Nullopt: `by` has not met `of` in its present run.
  std::optional<Liveness> Seen(int by, int of) const {
    const Gossip::Member* const member = nodes_[by].gossip->Find(IdOf(of));
    if (member == nullptr) return std::nullopt;
    return member->state;
  }
  const Gossip::Member& Member(int by, int of) const {
    return *nodes_[by].gossip->Find(IdOf(of));
  }
  // Every node that runs holds node `of` in `state`.
  bool AllSee(int of, Liveness state) const {
    for (int i = 0; i < options_.nodes; ++i) {
      if (i == of || !nodes_[i].running || nodes_[i].frozen) continue;
      if (Seen(i, of) != state) return false;
    }
    return true;
  }
  bool AllAlive() const {
    for (int i = 0; i < options_.nodes; ++i) {
      if (!AllSee(i, Liveness::kAlive)) return false;
    }
    return true;
  }

  // --- Faults ---

  // The machine goes silent; nobody is told.
  void Crash(int i) { nodes_[i].running = false; }
  // Begins a new run, which meets every node within `span`.
  void Restart(int i, absl::Duration span = absl::Seconds(1)) {
    StartRun(i);
    Reconnect(i, span);
  }
  void Freeze(int i) { nodes_[i].frozen = true; }
  void Thaw(int i) {
    nodes_[i].frozen = false;
    std::vector<Event> kept;
    kept.swap(nodes_[i].kept);
    for (Event& event : kept) {
      event.at = now_;
      Push(std::move(event));
    }
    Arm(i);
  }
  // Messages from one node to another are lost.
  void Cut(int from, int to, bool cut = true) {
    if (cut) {
      cut_.insert({from, to});
    } else {
      cut_.erase({from, to});
    }
  }
  void HealAll() { cut_.clear(); }
  // New streams between `i` and everybody within `span`.
  void Reconnect(int i, absl::Duration span = absl::Seconds(1)) {
    for (int j = 0; j < options_.nodes; ++j) {
      if (j == i || !nodes_[j].running) continue;
      Event event;
      event.at = now_ + span * random_.NextDouble();
      event.to = i;
      event.run = nodes_[i].run;
      event.meets = j;
      Push(std::move(event));
    }
  }

  // --- Time ---

  void RunFor(absl::Duration span) { RunUntil(now_ + span); }
  void RunUntil(Instant end) {
    while (!events_.empty() && events_.top().at <= end) {
      // The queue gives no way to move its top out.
      Event event = std::move(const_cast<Event&>(events_.top()));
      events_.pop();
      now_ = event.at;
      Handle(std::move(event));
    }
    now_ = end;
  }
  // Checks every 50 ms whether `done` holds; nullopt: not within `limit`.
  template <class Done>
  std::optional<absl::Duration> TimeUntil(const Done& done,
                                          absl::Duration limit) {
    const Instant begin = now_;
    while (!done()) {
      if (now_ - begin >= limit) return std::nullopt;
      RunFor(absl::Milliseconds(50));
    }
    return now_ - begin;
  }

  // --- What came out ---

  const Traffic& traffic(int i) const { return nodes_[i].traffic; }
  // State changes in which a running node was taken for dead, over all nodes.
  uint64_t false_deaths() const { return false_deaths_; }
  uint64_t suspicions() const { return suspicions_; }
  uint64_t hash() const { return hash_; }
  uint64_t events() const { return order_; }
  const std::vector<GossipEvent>& log(int i) const { return nodes_[i].log; }
  void CheckInvariants() const {
    for (const Node& node : nodes_) node.gossip->CheckInvariants();
  }

 private:
  // A message that arrives, a timer, or two nodes that meet.
  struct Event {
    Instant at;
    uint64_t order = 0;
    int to = 0;
    uint64_t run = 0;
    int from = -1;
    int meets = -1;
    std::shared_ptr<const GossipMessage> message;
    bool operator<(const Event& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Node {
    bool running = false;
    bool frozen = false;
    uint64_t run = 0;
    std::unique_ptr<SeededRandom> random;
    std::unique_ptr<Gossip> gossip;
    Instant armed = Instant::Infinite();
    std::vector<Event> kept;  // that came while it was frozen
    Traffic traffic;
    std::vector<GossipEvent> log;
  };

  static NodeProfile ProfileOf(int i) {
    NodeProfile profile;
    profile.number = NodeNumber{static_cast<uint32_t>(i) + 1};
    profile.name = absl::StrCat("n", i + 1);
    profile.peer_address = absl::StrCat("n", i + 1, ":7800");
    return profile;
  }

  void StartRun(int i) {
    Node& node = nodes_[i];
    ++node.run;
    node.running = true;
    node.frozen = false;
    node.kept.clear();
    node.random = std::make_unique<SeededRandom>(random_.Next());
    node.gossip = std::make_unique<Gossip>(options_.gossip, IdOf(i), node.run,
                                           *node.random);
    node.gossip->SetSelf(ProfileOf(i));
    node.armed = Instant::Infinite();
  }

  void Push(Event event) {
    event.order = ++order_;
    events_.push(std::move(event));
  }

  void Arm(int i) {
    Node& node = nodes_[i];
    const Instant next = node.gossip->NextTimer();
    // An earlier one that is set already will set this one.
    if (next == Instant::Infinite() || node.armed <= next) return;
    node.armed = std::max(next, now_);
    Event event;
    event.at = node.armed;
    event.to = i;
    event.run = node.run;
    Push(std::move(event));
  }

  // `i` has met `j`, which runs.
  void Meet(int i, int j) {
    if (!nodes_[i].running || !nodes_[j].running) return;
    if (cut_.count({i, j}) > 0 || cut_.count({j, i}) > 0) return;
    GossipEffects effects;
    nodes_[i].gossip->Met(IdOf(j), nodes_[j].run, ProfileOf(j), now_, effects);
    CarryOut(i, effects);
  }

  void Handle(Event event) {
    Node& node = nodes_[event.to];
    if (!node.running || node.run != event.run) return;
    const bool timer = event.from < 0 && event.meets < 0;
    if (timer && event.at != node.armed)
      return;  // an earlier one took its place
    if (node.frozen) {
      if (!timer) node.kept.push_back(std::move(event));
      if (timer) node.armed = Instant::Infinite();
      return;
    }
    if (event.meets >= 0) {
      Meet(event.to, event.meets);
      Meet(event.meets, event.to);
      return;
    }
    GossipEffects effects;
    if (timer) {
      node.armed = Instant::Infinite();
      if (node.gossip->NextTimer() > now_) return Arm(event.to);
    } else {
      node.gossip->Receive(IdOf(event.from), *event.message, now_, effects);
    }
    if (timer) node.gossip->Tick(now_, effects);
    CarryOut(event.to, effects);
  }

  absl::Duration Delay() {
    const absl::Duration max = random_.Chance(options_.slow_share)
                                   ? options_.slow_max
                                   : options_.delay_max;
    return options_.delay_min +
           (max - options_.delay_min) * random_.NextDouble();
  }

  void Count(const GossipMessage& message, Traffic& traffic) {
    std::visit(
        [&](const auto& body) {
          using Body = std::decay_t<decltype(body)>;
          if constexpr (std::is_same_v<Body, GossipExchange>) {
            ++traffic.exchanges;
          } else {
            ++traffic.messages;
            if constexpr (!std::is_same_v<Body, GossipNack>) {
              traffic.updates += body.updates.size();
              traffic.updates_in_one = std::max<uint64_t>(
                  traffic.updates_in_one, body.updates.size());
            }
          }
        },
        message);
  }

  void Mix(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3ull; }

  void CarryOut(int i, GossipEffects& effects) {
    Node& node = nodes_[i];
    for (GossipOut& out : effects.messages) {
      const int to = IndexOf(out.to);
      Count(out.message, node.traffic);
      Mix(static_cast<uint64_t>(now_.nanos));
      Mix(static_cast<uint64_t>(i * 1000 + to) * 8 + out.message.index());
      if (cut_.count({i, to}) > 0 || random_.Chance(options_.loss)) continue;
      Event event;
      event.at = now_ + Delay();
      event.to = to;
      event.run = nodes_[to].run;
      event.from = i;
      event.message =
          std::make_shared<const GossipMessage>(std::move(out.message));
      Push(std::move(event));
    }
    for (GossipEvent& event : effects.events) {
      if (const auto* change = std::get_if<GossipStateChanged>(&event)) {
        const int about = IndexOf(change->id);
        suspicions_ += change->to == Liveness::kSuspect;
        if (change->to == Liveness::kDead && nodes_[about].running) {
          ++false_deaths_;
        }
        Mix(static_cast<uint64_t>(about) * 4 +
            static_cast<uint64_t>(change->to));
      }
      if (node.log.size() < 1000) node.log.push_back(event);
    }
    Arm(i);
  }

  const Options options_;
  SeededRandom random_;
  Instant now_{1};
  uint64_t order_ = 0;
  std::priority_queue<Event> events_;
  std::vector<Node> nodes_;
  std::set<std::pair<int, int>> cut_;
  uint64_t false_deaths_ = 0;
  uint64_t suspicions_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

}  // namespace ringkv

#endif  // RINGKV_TESTS_MEMBERSHIP_GOSSIP_GOSSIP_NETWORK_H_
