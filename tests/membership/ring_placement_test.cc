#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "base/token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/ring/fair_share.h"
#include "membership/ring/placement.h"

namespace ringkv {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;

constexpr uint32_t kN = 3;

Member MakeMember(uint32_t number, const std::string& rack, double weight = 1,
                  const std::string& zone = "") {
  Member member;
  member.number = NodeNumber{number};
  member.id = NodeId{0x9e3779b97f4a7c15 * number, number};
  member.name = absl::StrCat("n", number);
  member.location = {zone, rack, absl::StrCat("h", number)};
  member.weight = weight;
  return member;
}

std::vector<Member> MakeMembers(uint32_t count, uint32_t racks = 1) {
  std::vector<Member> members;
  for (uint32_t i = 0; i < count; ++i) {
    members.push_back(MakeMember(i + 1, absl::StrCat("r", i % racks)));
  }
  return members;
}

std::shared_ptr<const Ring> MakeRing(PlacementStrategy strategy,
                                     uint32_t vnodes,
                                     const std::vector<Member>& members,
                                     const Assignment& assignment,
                                     uint32_t n = kN) {
  RingSpec spec;
  spec.cluster_id = {1, 2};
  spec.epoch = 1;
  spec.placement = strategy;
  spec.vnodes = vnodes;
  spec.members = members;
  spec.tokens = assignment.tokens;
  spec.owners = assignment.owners;
  Keyspace keyspace;
  keyspace.id = KeyspaceId{1};
  keyspace.name = "default";
  keyspace.n = n;
  keyspace.r = keyspace.w = 1;
  spec.keyspaces = {keyspace};
  spec.next_node_number = NodeNumber{1'000'000};
  spec.next_keyspace_id = KeyspaceId{2};
  auto ring = Ring::Make(std::move(spec));
  EXPECT_TRUE(ring.ok()) << ring.status();
  return *ring;
}

// A balanced cluster that changes, with what each change did.
class Cluster {
 public:
  explicit Cluster(uint32_t segments = 16384) : segments_(segments) {}

  void Join(const std::string& rack, double weight = 1) {
    members.push_back(MakeMember(next_++, rack, weight));
  }
  void Leave(size_t i) { members.erase(members.begin() + i); }

  void Place() {
    const Assignment before = assignment;
    const auto placed = ringkv::Place(
        {PlacementStrategy::kBalanced, segments_, kN}, members, before);
    ASSERT_TRUE(placed.ok()) << placed.status();
    assignment = *placed;
    ring =
        MakeRing(PlacementStrategy::kBalanced, segments_, members, assignment);
    report = Inspect(*ring, kN);
    violations = CheckRing(*ring, 10);
    CountMoves(before);
  }

  // Equal weights, and racks of equal size.
  bool Even() const {
    std::map<std::string, int> racks;
    for (const Member& member : members) ++racks[member.location.rack];
    return std::all_of(members.begin(), members.end(), [&](const Member& m) {
      return m.weight == members[0].weight &&
             racks[m.location.rack] == racks.begin()->second;
    });
  }

  std::string Describe() const {
    std::map<std::string, int> racks;
    for (const Member& member : members) ++racks[member.location.rack];
    std::vector<int> sizes;
    for (const auto& [rack, size] : racks) sizes.push_back(size);
    std::string text = absl::StrCat(members.size(), " nodes in racks of ",
                                    absl::StrJoin(sizes, ","), ", weights");
    for (const Member& member : members)
      absl::StrAppend(&text, " ", member.weight);
    return text;
  }

  std::vector<Member> members;
  Assignment assignment;
  std::shared_ptr<const Ring> ring;
  PlacementReport report;
  std::vector<RingViolation> violations;
  size_t moved = 0;  // primary tokens
  // The fewest that bring each node to less than one token of its fair share.
  size_t least = 0;

 private:
  void CountMoves(const Assignment& before) {
    moved = least = 0;
    if (before.owners.empty()) return;
    std::map<NodeNumber, double> held;
    for (size_t i = 0; i < segments_; ++i) {
      moved += before.owners[i] != assignment.owners[i];
      ++held[before.owners[i]];
    }
    double gives = 0, gets = 0;
    for (const PlacementReport::Node& node : report.nodes) {
      const double fair =
          node.fair_share / std::min<size_t>(kN, members.size()) * segments_;
      gives += std::max(0.0, held[node.number] - std::ceil(fair - 1e-6));
      gets += std::max(0.0, std::floor(fair + 1e-6) - held[node.number]);
      held.erase(node.number);
    }
    for (const auto& [left, tokens] : held) gives += tokens;
    least = static_cast<size_t>(std::max(gives, gets));
  }

  const uint32_t segments_;
  uint32_t next_ = 1;
};

TEST(FairShareTest, FollowsWeightWhereNothingHinders) {
  std::vector<Member> members = MakeMembers(4);
  members[0].weight = 2;
  members[1].weight = 2;
  EXPECT_THAT(
      FairShares(members, 2),
      Pointwise(DoubleNear(1e-9), {4.0 / 6, 4.0 / 6, 2.0 / 6, 2.0 / 6}));
}

TEST(FairShareTest, NoNodeHoldsTwoReplicas) {
  std::vector<Member> members = MakeMembers(4);
  members[0].weight = 64;
  EXPECT_THAT(FairShares(members, 3),
              Pointwise(DoubleNear(1e-9), {1.0, 2.0 / 3, 2.0 / 3, 2.0 / 3}));
}

TEST(FairShareTest, ARackHoldsOneReplicaWhileThereAreNRacks) {
  const std::vector<Member> members = {MakeMember(1, "a"), MakeMember(2, "a"),
                                       MakeMember(3, "a"), MakeMember(4, "b"),
                                       MakeMember(5, "c")};
  EXPECT_THAT(
      FairShares(members, 3),
      Pointwise(DoubleNear(1e-9), {1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0, 1.0}));
}

TEST(FairShareTest, EveryRackHoldsOneReplicaIfThereAreFewer) {
  const std::vector<Member> members = {MakeMember(1, "a"), MakeMember(2, "a"),
                                       MakeMember(3, "a"), MakeMember(4, "a"),
                                       MakeMember(5, "b", 0.5)};
  EXPECT_THAT(FairShares(members, 3),
              Pointwise(DoubleNear(1e-9), {0.5, 0.5, 0.5, 0.5, 1.0}));
}

TEST(FairShareTest, ZonesComeBeforeRacks) {
  const std::vector<Member> members = {
      MakeMember(1, "a", 1, "x"), MakeMember(2, "b", 1, "x"),
      MakeMember(3, "c", 1, "x"), MakeMember(4, "a", 1, "y")};
  EXPECT_THAT(FairShares(members, 2),
              Pointwise(DoubleNear(1e-9), {1.0 / 3, 1.0 / 3, 1.0 / 3, 1.0}));
}

TEST(FairShareTest, SharesAddUpAndKeepTheirBounds) {
  SeededRandom random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Member> members;
    const uint32_t count = 1 + static_cast<uint32_t>(random.Uniform(30));
    for (uint32_t i = 1; i <= count; ++i) {
      members.push_back(
          MakeMember(i, absl::StrCat("r", random.Uniform(5)),
                     random.Chance(0.1) ? 1e-9 : 64 * (1 - random.NextDouble()),
                     absl::StrCat("z", random.Uniform(3))));
    }
    const uint32_t n = 1 + static_cast<uint32_t>(random.Uniform(6));
    double sum = 0;
    std::map<std::string, double> zones;
    const std::vector<double> shares = FairShares(members, n);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_GT(shares[i], 0);
      EXPECT_LE(shares[i], 1 + 1e-9);
      sum += shares[i];
      zones[members[i].location.zone] += shares[i];
    }
    EXPECT_NEAR(sum, std::min(n, count), 1e-6);
    for (const auto& [zone, share] : zones) {
      if (zones.size() >= n) {
        EXPECT_LE(share, 1 + 1e-6);
      } else {
        EXPECT_GE(share, 1 - 1e-6);
      }
    }
  }
}

TEST(PlacementTest, RefusesWhatCannotBePlaced) {
  const PlacementOptions options{PlacementStrategy::kBalanced, 16, 3};
  const auto message = [](const PlacementOptions& o,
                          const std::vector<Member>& m,
                          const Assignment& current = {}) {
    const auto placed = Place(o, m, current);
    EXPECT_EQ(placed.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(placed.status().message());
  };
  EXPECT_THAT(message(options, {}), HasSubstr("at least one member"));
  EXPECT_THAT(message(options, MakeMembers(17)),
              HasSubstr("17 members are more than 16"));
  EXPECT_THAT(message(options, {MakeMember(1, "", 0)}), HasSubstr("weight 0"));
  EXPECT_THAT(message(options, {MakeMember(1, "", 65)}),
              HasSubstr("weight 65"));
  EXPECT_THAT(message(options, {MakeMember(1, "", std::nan(""))}),
              HasSubstr("weight nan"));
  EXPECT_THAT(message(options, {MakeMember(2, ""), MakeMember(1, "")}),
              HasSubstr("member 1 stands after member 2"));
  EXPECT_THAT(message({PlacementStrategy::kBalanced, 100, 3}, MakeMembers(3)),
              HasSubstr("power of two"));
  EXPECT_THAT(message({PlacementStrategy::kBalanced, 16, 0}, MakeMembers(3)),
              HasSubstr("N=0"));
  EXPECT_THAT(message(options, MakeMembers(3), {{}, {NodeNumber{1}}}),
              HasSubstr("1 segments"));
  EXPECT_THAT(message({PlacementStrategy::kHashed, 0, 3}, MakeMembers(3)),
              HasSubstr("0 vnodes"));
  EXPECT_THAT(message({PlacementStrategy::kHashed, 65536, 3},
                      {MakeMember(1, "", 64), MakeMember(2, "", 1)}),
              HasSubstr("limit of 4194304"));
  EXPECT_THAT(
      message({static_cast<PlacementStrategy>(9), 16, 3}, MakeMembers(3)),
      HasSubstr("unknown placement strategy 9"));
}

TEST(BalancedPlacementTest, IsDeterministic) {
  const PlacementOptions options{PlacementStrategy::kBalanced, 4096, 3};
  const auto first = Place(options, MakeMembers(7, 4), {});
  const auto again = Place(options, MakeMembers(7, 4), {});
  EXPECT_EQ(first->owners, again->owners);
  EXPECT_EQ(Place(options, MakeMembers(8, 4), *first)->owners,
            Place(options, MakeMembers(8, 4), *again)->owners);
}

TEST(BalancedPlacementTest, NothingMovesWithoutAChange) {
  for (uint32_t nodes : {1, 2, 3, 7, 20}) {
    const PlacementOptions options{PlacementStrategy::kBalanced, 4096, 3};
    const auto placed = Place(options, MakeMembers(nodes, 3), {});
    EXPECT_EQ(Place(options, MakeMembers(nodes, 3), *placed)->owners,
              placed->owners);
  }
}

TEST(BalancedPlacementTest, AJoiningNodeTakesAndALeavingNodeGives) {
  Cluster cluster(4096);
  for (int i = 0; i < 3; ++i) cluster.Join("r");
  cluster.Place();
  for (int nodes = 4; nodes <= 12; ++nodes) {
    const Assignment before = cluster.assignment;
    cluster.Join("r");
    cluster.Place();
    EXPECT_LE(cluster.moved, static_cast<size_t>(4096 / nodes + 1));
    for (size_t i = 0; i < before.owners.size(); ++i) {
      if (cluster.assignment.owners[i] != before.owners[i]) {
        EXPECT_EQ(cluster.assignment.owners[i], cluster.members.back().number);
      }
    }
  }
  while (cluster.members.size() > 1) {
    const Assignment before = cluster.assignment;
    const NodeNumber leaver =
        cluster.members[cluster.members.size() / 2].number;
    cluster.Leave(cluster.members.size() / 2);
    cluster.Place();
    for (size_t i = 0; i < before.owners.size(); ++i) {
      EXPECT_NE(cluster.assignment.owners[i], leaver);
      if (before.owners[i] != leaver) {
        EXPECT_EQ(cluster.assignment.owners[i], before.owners[i]);
      }
    }
  }
}

TEST(BalancedPlacementTest, ExactlyNRacksKeepEveryNthPosition) {
  Cluster cluster(4096);
  for (uint32_t i = 0; i < 3; ++i) cluster.Join(absl::StrCat("r", i));
  cluster.Place();
  for (uint32_t i = 0; i < 27; ++i) {
    cluster.Join(absl::StrCat("r", i % 3));
    cluster.Place();
  }
  size_t off = 0;
  for (size_t i = 0; i < 4096; ++i) {
    const auto rack = [&](size_t at) {
      return cluster.ring->FindMember(cluster.assignment.owners[at % 4096])
          ->location.rack;
    };
    off += rack(i) != rack(i + 3);
  }
  // But for the wrap.
  EXPECT_LE(off, 6u);
  EXPECT_LE(cluster.report.coefficient_of_variation, 0.005);
}

void ExpectGood(const Cluster& cluster) {
  EXPECT_THAT(cluster.violations, IsEmpty());
  EXPECT_EQ(cluster.report.host_violations, 0u);
  EXPECT_EQ(cluster.report.rack_violations, 0u);
  EXPECT_LE(static_cast<double>(cluster.moved),
            1.01 * static_cast<double>(cluster.least));
  if (cluster.Even()) {
    EXPECT_LE(cluster.report.coefficient_of_variation, 0.005);
    EXPECT_LE(cluster.report.largest_over_mean, 1.01);
  }
}

// Any order of joins, leaves and weights. Sizes, racks and weights as a cluster
// may have them; once in a while the racks are filled up, so that the promise
// about even clusters is put to the test after any history.
TEST(BalancedPlacementTest, StaysSafeEvenAndFrugalInAnyOrderOfChanges) {
  SeededRandom random(20);
  const double weights[] = {0.5, 1, 1, 1.5, 2, 4};
  size_t even = 0;
  double worst_cv = 0, worst_largest = 0, worst_uneven = 0;
  constexpr int kHistories = 10;
  for (int history = 0; history < kHistories; ++history) {
    const uint64_t racks = 1 + history % 10;
    const bool weighted = random.Chance(0.4);
    const size_t size_max = history % 3 == 0 ? 8 : 60;
    const auto weight = [&] {
      return weighted ? weights[random.Uniform(6)] : 1.0;
    };
    const auto rack = [&] { return absl::StrCat("r", random.Uniform(racks)); };
    Cluster cluster;
    for (uint64_t i = 3 + random.Uniform(size_max - 2); i > 0; --i)
      cluster.Join(rack(), weight());
    for (int change = 0; change < 12; ++change) {
      const size_t size = cluster.members.size();
      switch (size <= 3 ? 0 : random.Uniform(size < size_max ? 5 : 3)) {
        case 1:
        case 2:
          cluster.Leave(random.Uniform(size));
          break;
        case 3:
          cluster.members[random.Uniform(size)].weight = weight();
          break;
        case 4: {
          // Fill up the racks and even out the weights, all at once.
          std::map<std::string, size_t> sizes;
          for (Member& member : cluster.members) {
            member.weight = 1;
            ++sizes[member.location.rack];
          }
          size_t largest = 0;
          for (const auto& [name, count] : sizes)
            largest = std::max(largest, count);
          for (const auto& [name, count] : sizes) {
            for (size_t i = count; i < largest; ++i) cluster.Join(name);
          }
          break;
        }
        default:
          cluster.Join(rack(), weight());
      }
      SCOPED_TRACE(absl::StrCat("history ", history, ", change ", change, ": ",
                                cluster.Describe()));
      cluster.Place();
      ExpectGood(cluster);
      if (cluster.Even()) {
        ++even;
        worst_cv = std::max(worst_cv, cluster.report.coefficient_of_variation);
        worst_largest =
            std::max(worst_largest, cluster.report.largest_over_mean);
      } else {
        worst_uneven =
            std::max(worst_uneven, cluster.report.coefficient_of_variation);
      }
      if (HasFailure()) return;
    }
  }
  std::printf(
      "%zu even clusters: coefficient of variation at most %.3f %%, "
      "largest/mean at most "
      "%.4f; others at most %.2f %% of their fair shares\n",
      even, worst_cv * 100, worst_largest, worst_uneven * 100);
  EXPECT_GT(even, 10u);
}

TEST(BalancedPlacementTest, IsEvenForOtherNumbersOfReplicasAndInZones) {
  for (uint32_t n : {1, 2, 3, 5}) {
    for (uint32_t zones : {1, 2, 3, 6}) {
      const PlacementOptions options{PlacementStrategy::kBalanced, 16384, n};
      std::vector<Member> members;
      Assignment assignment;
      for (uint32_t i = 0; i < 24; ++i) {
        members.push_back(MakeMember(i + 1, absl::StrCat("r", i % 12), 1,
                                     absl::StrCat("z", i % zones)));
        if (i < 11) continue;
        assignment = *Place(options, members, assignment);
      }
      // Keyspaces of fewer replicas live in the same ring.
      for (uint32_t replicas = 1; replicas <= n; ++replicas) {
        const auto ring = MakeRing(PlacementStrategy::kBalanced, 16384, members,
                                   assignment, replicas);
        const PlacementReport report = Inspect(*ring, replicas);
        SCOPED_TRACE(absl::StrCat("placed for N=", n, " in ", zones,
                                  " zones, N=", replicas));
        EXPECT_THAT(CheckRing(*ring, 1), IsEmpty());
        // With fewer zones than N, what spaces N replicas well need not space
        // fewer of them as well; still no worse than random tokens.
        EXPECT_LE(report.coefficient_of_variation,
                  replicas == n ? 0.005 : 0.06);
      }
    }
  }
}

// The figures of the default ring as it grows by one node at a time and
// shrinks.
TEST(BalancedPlacementTest, PrintsItsFigures) {
  for (uint32_t racks : {1, 3, 10}) {
    Cluster cluster;
    SeededRandom random(racks);
    for (uint32_t i = 0; i < 3; ++i) cluster.Join(absl::StrCat("r", i % racks));
    cluster.Place();
    const auto print = [&] {
      std::printf(
          "balanced, %2u racks, %2zu nodes: coefficient of variation %.3f %%, "
          "largest/mean %.4f, moved %5zu of at least %5zu tokens, crowded %.2f "
          "%%\n",
          racks, cluster.members.size(),
          cluster.report.coefficient_of_variation * 100,
          cluster.report.largest_over_mean, cluster.moved, cluster.least,
          100.0 * cluster.report.crowded_segments /
              cluster.assignment.owners.size());
    };
    print();
    for (uint32_t size = 4; size <= 60; ++size) {
      cluster.Join(absl::StrCat("r", (size - 1) % racks));
      cluster.Place();
      ExpectGood(cluster);
      if (size % 10 == 0 || size == 4) print();
    }
    while (cluster.members.size() > 30) {
      cluster.Leave(random.Uniform(cluster.members.size()));
      cluster.Place();
      ExpectGood(cluster);
    }
    print();
  }
}

TEST(BalancedPlacementTest, NeverPutsTwoReplicasOnOneNodeAtAnySize) {
  for (uint32_t segments : {64, 256, 1024}) {
    Cluster cluster(segments);
    for (uint32_t i = 0; i < 2; ++i) cluster.Join(absl::StrCat("r", i));
    for (uint32_t size = 3; size <= 40; ++size) {
      cluster.Join(absl::StrCat("r", size % 4));
      cluster.Place();
      EXPECT_THAT(cluster.violations, IsEmpty()) << size;
    }
    for (uint32_t size = 40; size > 3; --size) {
      cluster.Leave(size / 3);
      cluster.Place();
      EXPECT_THAT(cluster.violations, IsEmpty()) << size;
    }
  }
}

TEST(BalancedPlacementTest, WorksAtTheEdges) {
  // One node; two nodes for three replicas; a segment each; tiny and huge
  // weights.
  for (const auto& [segments, members] :
       std::vector<std::pair<uint32_t, std::vector<Member>>>{
           {1, MakeMembers(1)},
           {2, MakeMembers(2)},
           {16, MakeMembers(16)},
           {16, MakeMembers(16, 3)},
           {16,
            {MakeMember(1, "a", 1e-300), MakeMember(2, "a", 64),
             MakeMember(3, "b", 64)}},
           {4096,
            {MakeMember(1, "a", 64), MakeMember(2, "a", 1e-9),
             MakeMember(3, "b", 1e-9)}}}) {
    for (uint32_t n : {1, 3, 16}) {
      const auto placed =
          Place({PlacementStrategy::kBalanced, segments, n}, members, {});
      ASSERT_TRUE(placed.ok()) << placed.status();
      const std::set<NodeNumber> owners(placed->owners.begin(),
                                        placed->owners.end());
      EXPECT_EQ(owners.size(), members.size());
    }
  }
}

TEST(BalancedPlacementTest, WorksWithHardlyMoreTokensThanNodes) {
  SeededRandom random(6);
  for (int round = 0; round < 300; ++round) {
    const uint32_t segments = 1u << random.Uniform(6);
    const uint32_t n = 1 + static_cast<uint32_t>(random.Uniform(5));
    Assignment current;
    for (int change = 0; change < 4; ++change) {
      std::vector<Member> members;
      const uint64_t racks = 1 + random.Uniform(5);
      while (members.empty() ||
             (members.size() < segments && !random.Chance(0.1))) {
        const auto number = static_cast<uint32_t>(
            (members.empty() ? 0 : ToInt(members.back().number)) + 1 +
            random.Uniform(2));
        members.push_back(MakeMember(
            number, absl::StrCat("r", number % racks),
            random.Chance(0.2) ? 1e-12 : 64 * (1 - random.NextDouble()),
            absl::StrCat("z", number % racks % 2)));
      }
      const auto placed =
          Place({PlacementStrategy::kBalanced, segments, n}, members, current);
      ASSERT_TRUE(placed.ok()) << placed.status();
      current = *placed;
      const auto ring =
          MakeRing(PlacementStrategy::kBalanced, segments, members, current, n);
      EXPECT_EQ(Inspect(*ring, n).nodes.size(), members.size());
    }
  }
}

TEST(BalancedPlacementTest, ReplacingEveryNodeWorks) {
  const PlacementOptions options{PlacementStrategy::kBalanced, 1024, 3};
  const auto before = Place(options, MakeMembers(4), {});
  std::vector<Member> others;
  for (uint32_t i = 11; i <= 16; ++i) others.push_back(MakeMember(i, ""));
  const auto after = Place(options, others, *before);
  ASSERT_TRUE(after.ok());
  EXPECT_LE(
      Inspect(*MakeRing(PlacementStrategy::kBalanced, 1024, others, *after), kN)
          .coefficient_of_variation,
      0.01);
}

// --- hashed ---

std::vector<size_t> KeysPerNode(const Ring& ring, size_t keys,
                                std::vector<NodeNumber>* owners = nullptr) {
  std::vector<size_t> counts(ring.spec().members.size(), 0);
  for (size_t i = 0; i < keys; ++i) {
    const NodeNumber owner = ring.PreferenceList(
        ring.spec().keyspaces[0], TokenOf(absl::StrCat("key-", i)))[0];
    ++counts[ring.FindMember(owner) - ring.spec().members.data()];
    if (owners != nullptr) owners->push_back(owner);
  }
  return counts;
}

TEST(HashedPlacementTest, ShowsTheTextbookFigures) {
  constexpr size_t kKeys = 100'000;
  double last_spread = 1e9;
  for (uint32_t vnodes : {1, 10, 100}) {
    const PlacementOptions options{PlacementStrategy::kHashed, vnodes, kN};
    const std::vector<Member> four = MakeMembers(4);
    const std::vector<Member> five = MakeMembers(5);
    std::vector<NodeNumber> before, after;
    const std::vector<size_t> counts =
        KeysPerNode(*MakeRing(PlacementStrategy::kHashed, vnodes, four,
                              *Place(options, four, {})),
                    kKeys, &before);
    KeysPerNode(*MakeRing(PlacementStrategy::kHashed, vnodes, five,
                          *Place(options, five, {})),
                kKeys, &after);
    size_t moved = 0, between_old = 0;
    for (size_t i = 0; i < kKeys; ++i) {
      if (before[i] == after[i]) continue;
      ++moved;
      if (after[i] != five.back().number) ++between_old;
    }
    double squares = 0;
    for (size_t count : counts) {
      squares += std::pow(static_cast<double>(count) - kKeys / 4.0, 2);
    }
    const double spread = std::sqrt(squares / 4) / (kKeys / 4.0);
    std::printf(
        "hashed, 4 nodes with %3u vnodes: keys %s, spread %.1f %%; a fifth "
        "node "
        "takes %.1f %%, %zu keys move between old nodes\n",
        vnodes, absl::StrJoin(counts, " ").c_str(), spread * 100,
        100.0 * moved / kKeys, between_old);
    EXPECT_LT(spread, last_spread);
    EXPECT_EQ(between_old, 0u);
    if (vnodes == 100) {
      EXPECT_NEAR(static_cast<double>(moved) / kKeys, 0.2, 0.05);
    }
    last_spread = spread;
  }
  EXPECT_LT(last_spread, 0.2);
}

// Averaged over many clusters the fifth node's share is 1/5 with any vnodes.
TEST(HashedPlacementTest, AFifthNodeTakesAFifthOnAverage) {
  for (uint32_t vnodes : {1, 10, 100}) {
    double taken = 0;
    constexpr int kClusters = 300;
    for (uint32_t cluster = 0; cluster < kClusters; ++cluster) {
      std::vector<Member> members = MakeMembers(5);
      for (Member& member : members) member.id.high += 7919 * (cluster + 1);
      const auto placed =
          Place({PlacementStrategy::kHashed, vnodes, kN}, members, {});
      taken += Inspect(*MakeRing(PlacementStrategy::kHashed, vnodes, members,
                                 *placed),
                       kN)
                   .nodes.back()
                   .primary_share;
    }
    EXPECT_NEAR(taken / kClusters, 0.2, 0.03) << vnodes;
  }
}

TEST(HashedPlacementTest, VnodesFollowWeight) {
  const auto placed = Place(
      {PlacementStrategy::kHashed, 100, kN},
      {MakeMember(1, "", 1), MakeMember(2, "", 2.5), MakeMember(3, "", 1e-9)},
      {});
  std::map<uint32_t, int> counts;
  for (NodeNumber owner : placed->owners) ++counts[ToInt(owner)];
  EXPECT_THAT(counts, ElementsAre(testing::Pair(1, 100), testing::Pair(2, 250),
                                  testing::Pair(3, 1)));
}

// So few values that most vnodes collide.
Token Narrow(const NodeId& id, uint32_t index) {
  return VnodeToken(id, index) & 0x7f;
}

TEST(HashedPlacementTest, CollisionsDoNotDependOnWhoJoinedFirst) {
  SeededRandom random(9);
  constexpr uint32_t kVnodes = 16;
  // Owners by id, as numbers tell who joined first.
  const auto place = [&](const std::vector<NodeId>& ids) {
    std::vector<Member> members;
    for (const NodeId& id : ids) {
      members.push_back(
          MakeMember(static_cast<uint32_t>(members.size() + 1), ""));
      members.back().id = id;
    }
    const auto placed = PlaceHashed(kVnodes, members, &Narrow);
    EXPECT_TRUE(placed.ok()) << placed.status();
    EXPECT_TRUE(MakeRing(PlacementStrategy::kHashed, kVnodes, members,
                         *placed) != nullptr);
    std::map<Token, NodeId> owners;
    for (size_t i = 0; i < placed->tokens.size(); ++i) {
      owners[placed->tokens[i]] = members[ToInt(placed->owners[i]) - 1].id;
    }
    return owners;
  };
  std::vector<NodeId> ids;
  for (uint64_t i = 1; i <= 8; ++i) ids.push_back({i * 0x1234567, i});
  const auto expected = place(ids);
  EXPECT_LT(expected.size(), 8 * kVnodes - 20);  // many collided
  for (int order = 0; order < 50; ++order) {
    for (size_t i = ids.size(); i > 1; --i)
      std::swap(ids[i - 1], ids[random.Uniform(i)]);
    EXPECT_EQ(place(ids), expected);
  }
  // Each node that leaves takes its tokens along, or leaves them to whoever has
  // them too; nothing else changes.
  for (size_t gone = 0; gone < ids.size(); ++gone) {
    std::vector<NodeId> rest = ids;
    rest.erase(rest.begin() + gone);
    const auto without = place(rest);
    for (const auto& [token, id] : expected) {
      const auto at = without.find(token);
      if (id != ids[gone]) {
        ASSERT_NE(at, without.end());
        EXPECT_EQ(at->second, id);
      }
    }
    for (const auto& [token, id] : without) {
      EXPECT_NE(id, ids[gone]);
      EXPECT_TRUE(expected.contains(token));
    }
  }
}

Token Constant(const NodeId&, uint32_t) { return 42; }
// Every node's first vnode is the same one.
Token SharedFirst(const NodeId& id, uint32_t index) {
  return index == 0 ? 42 : VnodeToken(id, index);
}

TEST(HashedPlacementTest, ANodeThatLosesEveryVnodeDrawsAnother) {
  const std::vector<Member> members = MakeMembers(5);
  const auto placed = PlaceHashed(1, members, &SharedFirst);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(
      std::set<NodeNumber>(placed->owners.begin(), placed->owners.end()).size(),
      5u);
  EXPECT_EQ(PlaceHashed(1, members, &Constant).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HashedPlacementTest, NeverPutsTwoReplicasOnOneNodeAtAnySize) {
  for (uint32_t vnodes : {8, 64, 256}) {
    for (uint32_t size = 3; size <= 40; size += vnodes == 256 ? 6 : 1) {
      const std::vector<Member> members = MakeMembers(size, 4);
      const auto placed =
          Place({PlacementStrategy::kHashed, vnodes, kN}, members, {});
      EXPECT_THAT(CheckRing(*MakeRing(PlacementStrategy::kHashed, vnodes,
                                      members, *placed),
                            9),
                  IsEmpty());
    }
  }
}

// --- reports ---

TEST(CheckRingTest, WarnsOfFewerNodesThanReplicas) {
  const std::vector<Member> members = MakeMembers(2);
  const auto placed =
      Place({PlacementStrategy::kBalanced, 16, kN}, members, {});
  const auto found = CheckRing(
      *MakeRing(PlacementStrategy::kBalanced, 16, members, *placed), 5);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, RingViolation::Kind::kFewerReplicas);
  EXPECT_EQ(
      found[0].message,
      "keyspace default asks for 3 replicas, but only 2 members own tokens");
  EXPECT_THAT(
      CheckRing(*MakeRing(PlacementStrategy::kBalanced, 16, members, *placed),
                0),
      IsEmpty());
}

TEST(CheckRingTest, NamesTheReplicasThatStandTooNear) {
  std::vector<Member> members = {
      MakeMember(1, "a", 1, "x"), MakeMember(2, "a", 1, "x"),
      MakeMember(3, "b", 1, "x"), MakeMember(4, "c", 1, "y"),
      MakeMember(5, "c", 1, "y")};
  members[4].location.host = members[3].location.host;
  const auto placed =
      Place({PlacementStrategy::kBalanced, 64, kN}, members, {});
  const auto ring =
      MakeRing(PlacementStrategy::kBalanced, 64, members, *placed);
  const auto check = [&](std::vector<uint32_t> numbers) {
    std::vector<NodeNumber> list;
    for (uint32_t number : numbers) list.push_back(NodeNumber{number});
    const auto found =
        CheckPreferenceList(*ring, ring->spec().keyspaces[0], 7, list);
    return found.has_value() ? found->message : "";
  };
  const std::string where = "keyspace default, segment 7: the replicas ";
  EXPECT_EQ(check({1, 3, 4}), "");
  EXPECT_EQ(check({1, 4}), "");
  EXPECT_EQ(check({1, 3, 1}), where + "n1 and n1 are one node");
  EXPECT_EQ(check({1, 4, 5}),
            where + "n4 and n5 share a host, though another was left");
  EXPECT_EQ(check({1, 2, 4}),
            where + "n1 and n2 share a rack, though another was left");
  EXPECT_EQ(check({1, 3}),
            where + "n1 and n3 share a zone, though another was left");
  // Two zones are all there are.
  EXPECT_EQ(check({4, 1, 3}), "");
}

TEST(InspectTest, MeasuresSharesInTokenSpace) {
  const std::vector<Member> members = MakeMembers(2);
  const Token quarter = Token{1} << 62;
  const auto report = Inspect(
      *MakeRing(PlacementStrategy::kHashed, 1, members,
                {{quarter, 2 * quarter}, {NodeNumber{1}, NodeNumber{2}}}, 1),
      1);
  ASSERT_EQ(report.nodes.size(), 2u);
  EXPECT_DOUBLE_EQ(report.nodes[0].primary_share, 0.75);
  EXPECT_DOUBLE_EQ(report.nodes[1].replicated_share, 0.25);
  EXPECT_NEAR(report.nodes[1].fair_share, 0.5, 1e-9);
  EXPECT_NEAR(report.coefficient_of_variation, 0.5, 1e-9);
  EXPECT_NEAR(report.largest_over_mean, 1.5, 1e-9);
}

}  // namespace
}  // namespace ringkv
