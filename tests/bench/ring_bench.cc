// Looking up a key's preference list, beside std::upper_bound over 256,000
// random tokens; and making, and the size of, a large ring.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "benchmark/benchmark.h"
#include "membership/ring/placement.h"
#include "membership/ring/ring.h"

namespace ringkv {
namespace {

constexpr size_t kTokens = 256'000;
constexpr size_t kKeys = 1 << 16;

// A ring of `nodes` nodes in ten racks with one keyspace.
RingSpec MakeSpec(PlacementStrategy strategy, uint32_t nodes, uint32_t vnodes) {
  RingSpec spec;
  spec.cluster_id = {1, 2};
  spec.epoch = 1;
  spec.placement = strategy;
  spec.vnodes = vnodes;
  for (uint32_t i = 1; i <= nodes; ++i) {
    Member member;
    member.number = NodeNumber{i};
    member.id = {0x9e3779b97f4a7c15 * i, i};
    member.name = absl::StrCat("node-", i);
    member.client_address = absl::StrCat("node-", i, ".example.net:7400");
    member.peer_address = absl::StrCat("node-", i, ".example.net:7401");
    member.location = {"zone-a", absl::StrCat("rack-", i % 10),
                       absl::StrCat("host-", i)};
    spec.members.push_back(std::move(member));
  }
  Keyspace keyspace;
  keyspace.id = KeyspaceId{1};
  keyspace.name = "default";
  spec.keyspaces = {keyspace};
  spec.next_node_number = NodeNumber{nodes + 1};
  spec.next_keyspace_id = KeyspaceId{2};
  auto assignment = Place({strategy, vnodes, 3}, spec.members, {});
  RINGKV_CHECK(assignment.ok());
  spec.tokens = std::move(assignment->tokens);
  spec.owners = std::move(assignment->owners);
  return spec;
}

std::shared_ptr<const Ring> MakeRing(RingSpec spec) {
  auto ring = Ring::Make(std::move(spec));
  RINGKV_CHECK(ring.ok());
  return *std::move(ring);
}

const std::vector<Token>& Keys() {
  static const std::vector<Token>* const keys = [] {
    SeededRandom random(1);
    auto* made = new std::vector<Token>(kKeys);
    for (Token& key : *made) key = random.Next();
    return made;
  }();
  return *keys;
}

void BM_UpperBound(benchmark::State& state) {
  SeededRandom random(2);
  std::vector<Token> tokens(kTokens);
  for (Token& token : tokens) token = random.Next();
  std::sort(tokens.begin(), tokens.end());
  const std::vector<Token>& keys = Keys();
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(std::upper_bound(tokens.begin(), tokens.end(),
                                              keys[i++ & (kKeys - 1)]));
  }
}
BENCHMARK(BM_UpperBound);

// Reads the list too, as a caller does.
void LookUp(benchmark::State& state, const Ring& ring) {
  const Keyspace& keyspace = ring.spec().keyspaces[0];
  const std::vector<Token>& keys = Keys();
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        ring.PreferenceList(keyspace, keys[i++ & (kKeys - 1)])[0]);
  }
  state.counters["MB"] = static_cast<double>(ring.MemoryBytes()) / 1e6;
  state.counters["segments"] = static_cast<double>(ring.segments());
}

void BM_LookUpBalanced(benchmark::State& state) {
  LookUp(state,
         *MakeRing(MakeSpec(PlacementStrategy::kBalanced,
                            static_cast<uint32_t>(state.range(0)), 16384)));
}
BENCHMARK(BM_LookUpBalanced)->ArgName("nodes")->Arg(5)->Arg(60)->Arg(1000);

void BM_LookUpHashed(benchmark::State& state) {
  const uint32_t nodes = static_cast<uint32_t>(state.range(0));
  LookUp(state, *MakeRing(MakeSpec(PlacementStrategy::kHashed, nodes,
                                   static_cast<uint32_t>(kTokens / nodes))));
}
BENCHMARK(BM_LookUpHashed)->ArgName("nodes")->Arg(10)->Arg(1000);

void BM_MakeRing(benchmark::State& state) {
  const bool balanced = state.range(0) == 0;
  const RingSpec spec =
      balanced ? MakeSpec(PlacementStrategy::kBalanced, 60, 16384)
               : MakeSpec(PlacementStrategy::kHashed, 1000, kTokens / 1000);
  for (auto _ : state) benchmark::DoNotOptimize(MakeRing(spec));
  state.SetLabel(balanced ? "60 nodes, 16384 segments"
                          : "1000 nodes, 256000 vnodes");
}
BENCHMARK(BM_MakeRing)
    ->ArgName("hashed")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);

void BM_PlaceJoin(benchmark::State& state) {
  const uint32_t nodes = static_cast<uint32_t>(state.range(0));
  const RingSpec before = MakeSpec(PlacementStrategy::kBalanced, nodes, 16384);
  const RingSpec after =
      MakeSpec(PlacementStrategy::kBalanced, nodes + 1, 16384);
  for (auto _ : state) {
    benchmark::DoNotOptimize(Place({PlacementStrategy::kBalanced, 16384, 3},
                                   after.members, {{}, before.owners}));
  }
}
BENCHMARK(BM_PlaceJoin)
    ->ArgName("nodes")
    ->Arg(3)
    ->Arg(30)
    ->Arg(60)
    ->Arg(1000)
    ->Unit(benchmark::kMillisecond);

void BM_Fallbacks(benchmark::State& state) {
  const auto ring =
      MakeRing(MakeSpec(PlacementStrategy::kBalanced,
                        static_cast<uint32_t>(state.range(0)), 16384));
  const Keyspace& keyspace = ring->spec().keyspaces[0];
  const std::vector<Token>& keys = Keys();
  size_t i = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        ring->Fallbacks(keyspace, keys[i++ & (kKeys - 1)]));
  }
}
BENCHMARK(BM_Fallbacks)->ArgName("nodes")->Arg(5)->Arg(60);

}  // namespace
}  // namespace ringkv

BENCHMARK_MAIN();
