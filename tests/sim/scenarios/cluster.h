// A simulated cluster that a test leads by hand: exact faults at exact moments,
// calls that run until they are answered, and what must come of it. The nodes
// are those of kvsim, and so is all around them; only chance is missing.
//
// A violation of what no fault explains (a node that stops by itself, equal
// dots with unequal values) fails the test when the cluster goes.

#ifndef RINGKV_TESTS_SIM_SCENARIOS_CLUSTER_H_
#define RINGKV_TESTS_SIM_SCENARIOS_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "membership/ring/ring.h"
#include "server/messages.h"
#include "tests/sim/network.h"
#include "tests/sim/node.h"
#include "tests/sim/plan.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/trace.h"

namespace ringkv::sim {

class ScenarioCluster {
 public:
  // Forms a ring of `nodes` nodes, with `default` as it always is and `more`
  // keyspaces. `spares` more nodes stand by.
  explicit ScenarioCluster(int nodes, std::vector<Keyspace> more = {},
                           uint64_t hint_bytes_max = 1ull << 30,
                           int spares = 0);
  ~ScenarioCluster();

  int nodes() const { return static_cast<int>(world_->nodes.size()); }
  Node& node(int i) { return *world_->nodes[static_cast<size_t>(i)]; }
  const Ring& ring() const { return *ring_; }

  // --- Time ---
  WorldTime now() const { return scheduler_.now(); }
  void Run(WorldTime span);
  // Runs until `done()`; false if it does not hold within `limit`.
  bool Await(WorldTime limit, const std::function<bool()>& done);
  // All that live serve and see each other, and nothing runs.
  bool AwaitWhole(WorldTime limit = 30 * kSecond);
  bool AwaitHintsGone(WorldTime limit = 60 * kSecond);

  // --- Faults ---
  // The process dies (with `power`, the machine: un-synced writes are gone) and
  // stays down until Start().
  void Kill(int i, bool power = false);
  void Start(int i);
  void Restart(int i) {
    Kill(i);
    Start(i);
  }
  void Cut(int a, int b);
  void CutOff(int i);  // from everybody
  // The nodes of `side` from all others.
  void Split(const std::set<int>& side);
  void HealNetwork();
  // Damages the copy of a key at a node.
  void Damage(int i, const std::string& key, const std::string& space = "");
  // A node is expected to stop because of its disk.
  bool AwaitRefused(int i, WorldTime limit = 30 * kSecond);

  // --- Calls ---
  // Runs until the answer is there. Fails the test if none ever comes.
  ClientAnswer Ask(int i, ClientCall call, WorldTime timeout = 2 * kSecond);
  // A call that is not waited for.
  void Begin(int i, ClientCall call, WorldTime timeout = 2 * kSecond);

  absl::Status Put(int i, const std::string& key, const std::string& value,
                   uint32_t w = 0);
  // With the context that this "client" of the key has read last, if any.
  absl::Status PutWith(int i, const std::string& key, const std::string& value,
                       const std::optional<std::string>& context);
  absl::Status PutBlind(int i, const std::string& key,
                        const std::string& value);
  absl::Status Delete(int i, const std::string& key);
  // The values under a key, sorted; "UNAVAILABLE" and the like for an error.
  std::vector<std::string> Get(int i, const std::string& key, uint32_t r = 0);
  std::optional<std::string> ContextOf(int i, const std::string& key);

  // --- What is stored ---
  std::vector<int> Replicas(const std::string& key,
                            const std::string& space = "") const;
  // A key whose replicas include all of `in` and none of `out`.
  std::string KeyOn(const std::set<int>& in, const std::set<int>& out = {},
                    int number = 0) const;
  std::optional<std::string> Stored(int i, const std::string& key,
                                    const std::string& space = "");
  // All replicas hold the same, and something.
  bool Alike(const std::string& key, const std::string& space = "");
  size_t HintsAt(int i) const;
  size_t Hints() const;
  ShardStats Stats(int i) const;
  // What no fault explained so far; the caller expected it.
  std::vector<std::string> TakeComplaints() {
    return std::exchange(complaints_, {});
  }
  AdminAnswer Admin(int i, AdminCall call);

  // --- Changes of the ring ---
  // Asks node `at` for an operation about nodes of this world: those that stand
  // by are named, members are numbered.
  AdminAnswer Change(int at, TopologyKind kind, const std::vector<int>& about,
                     const std::vector<int>& replacements = {});
  bool ChangeRuns() const;
  // Runs until no operation does and all members serve; ring() is theirs then.
  bool AwaitCalm(WorldTime limit = 60 * kSecond);
  // What a node held and lost is deleted.
  void AwaitDropped() { Run(10 * kSecond); }

 private:
  const Keyspace& Space(const std::string& name) const {
    return *ring_->FindKeyspace(name.empty() ? "default" : name);
  }
  void Form(int founders, const std::vector<Keyspace>& more);

  Plan plan_;
  Scheduler scheduler_;
  Trace trace_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<World> world_;
  std::shared_ptr<const Ring> ring_;
  std::vector<std::pair<int, int>> blocked_;
  std::vector<std::string> complaints_;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_SCENARIOS_CLUSTER_H_
