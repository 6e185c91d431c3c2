#include "membership/ring/ring.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Member MakeMember(uint32_t number, std::string zone = "", std::string rack = "",
                  std::string host = "") {
  Member member;
  member.number = NodeNumber{number};
  member.id = NodeId{0x1111, number};
  member.name = absl::StrCat("n", number);
  member.client_address = absl::StrCat("127.0.0.1:", 7000 + number);
  member.peer_address = absl::StrCat("127.0.0.1:", 8000 + number);
  member.location = {std::move(zone), std::move(rack), std::move(host)};
  return member;
}

Keyspace MakeKeyspace(uint32_t n, uint32_t id = 1) {
  Keyspace keyspace;
  keyspace.id = KeyspaceId{id};
  keyspace.name = absl::StrCat("k", id);
  keyspace.n = n;
  keyspace.r = keyspace.w = n / 2 + 1;
  return keyspace;
}

// A ring of explicit tokens.
RingSpec HashedSpec(std::vector<Member> members, std::vector<Token> tokens,
                    const std::vector<uint32_t>& owners, uint32_t n = 3) {
  RingSpec spec;
  spec.cluster_id = {1, 2};
  spec.epoch = 1;
  spec.placement = PlacementStrategy::kHashed;
  spec.vnodes = 256;
  spec.members = std::move(members);
  spec.keyspaces = {MakeKeyspace(n)};
  spec.tokens = std::move(tokens);
  for (uint32_t owner : owners) spec.owners.push_back(NodeNumber{owner});
  spec.next_node_number = NodeNumber{1000};
  spec.next_keyspace_id = KeyspaceId{2};
  return spec;
}

RingSpec BalancedSpec(std::vector<Member> members,
                      const std::vector<uint32_t>& owners, uint32_t n = 3) {
  RingSpec spec = HashedSpec(std::move(members), {}, owners, n);
  spec.placement = PlacementStrategy::kBalanced;
  spec.vnodes = static_cast<uint32_t>(owners.size());
  return spec;
}

std::shared_ptr<const Ring> MakeRing(RingSpec spec) {
  auto ring = Ring::Make(std::move(spec));
  EXPECT_TRUE(ring.ok()) << ring.status();
  return *ring;
}

std::vector<uint32_t> Numbers(absl::Span<const NodeNumber> nodes) {
  std::vector<uint32_t> numbers;
  for (NodeNumber node : nodes) numbers.push_back(ToInt(node));
  return numbers;
}

TEST(LocationTest, ParsesPartsInAnyOrder) {
  EXPECT_EQ(*Location::Parse("host=h,zone=z,rack=r"),
            (Location{"z", "r", "h"}));
  EXPECT_EQ(*Location::Parse("rack=r"), (Location{"", "r", ""}));
  EXPECT_EQ(*Location::Parse(""), Location());
}

TEST(LocationTest, PrintsWhatItParses) {
  for (const char* text :
       {"", "zone=z,rack=r,host=h", "zone=z,host=h", "host=h"}) {
    EXPECT_EQ(Location::Parse(text)->ToString(), text);
  }
}

TEST(LocationTest, NamesTheWrongPart) {
  for (const auto& [text, part] : std::map<std::string, std::string>{
           {"rank=1", "rank=1"},
           {"rack=a,rack=b", "rack=b"},
           {"zone=", "zone="},
           {"zone=z,,host=h", "\"\""},
           {"rack", "rack"},
           {"rack=a=b", "a=b"},
           {"rack=a\n", "a\\n"},
           {"rack=" + std::string(256, 'x'), "256"}}) {
    const auto location = Location::Parse(text);
    ASSERT_FALSE(location.ok()) << text;
    EXPECT_EQ(location.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(location.status().message()), HasSubstr(part));
  }
}

TEST(RingTest, OwnerIsTheFirstTokenAtOrClockwiseAfterTheKey) {
  const auto ring =
      MakeRing(HashedSpec({MakeMember(1), MakeMember(2), MakeMember(3)},
                          {100, 200, 300}, {1, 2, 3}, 1));
  const Keyspace& keyspace = ring->spec().keyspaces[0];
  const auto owner = [&](Token token) {
    return ToInt(ring->PreferenceList(keyspace, token)[0]);
  };
  EXPECT_EQ(owner(0), 1u);
  EXPECT_EQ(owner(100), 1u);
  EXPECT_EQ(owner(101), 2u);
  EXPECT_EQ(owner(200), 2u);
  EXPECT_EQ(owner(300), 3u);
  EXPECT_EQ(owner(301), 1u);
  EXPECT_EQ(owner(UINT64_MAX), 1u);
  EXPECT_EQ(ring->SegmentEnd(1), 200u);
}

TEST(RingTest, BalancedSegmentsAreEqualAndEndBeforeTheNextOne) {
  for (size_t segments : {1, 2, 4, 1024}) {
    const auto ring = MakeRing(
        BalancedSpec({MakeMember(1)}, std::vector<uint32_t>(segments, 1)));
    EXPECT_EQ(ring->SegmentEnd(segments - 1), UINT64_MAX);
    for (size_t i = 0; i < segments; ++i) {
      EXPECT_EQ(ring->SegmentOf(ring->SegmentEnd(i)), i);
      EXPECT_EQ(ring->SegmentOf(ring->SegmentEnd(i) + 1), (i + 1) % segments);
    }
  }
}

TEST(RingTest, SearchFindsWhatUpperBoundFinds) {
  SeededRandom random(7);
  for (int round = 0; round < 60; ++round) {
    // From evenly spread to all in one bucket.
    const int shift = static_cast<int>(random.Uniform(60));
    std::set<Token> tokens;
    const size_t count = 1 + random.Uniform(300);
    while (tokens.size() < std::min<size_t>(count, 12))
      tokens.insert(random.Next() >> shift);
    for (size_t i = 0; i < count; ++i) tokens.insert(random.Next() >> shift);
    if (random.Chance(0.2)) tokens.insert(0);
    if (random.Chance(0.2)) tokens.insert(UINT64_MAX);
    const std::vector<Token> sorted(tokens.begin(), tokens.end());
    const auto ring = MakeRing(HashedSpec(
        {MakeMember(1)}, sorted, std::vector<uint32_t>(sorted.size(), 1)));
    const auto expect = [&](Token token) {
      const auto at = std::lower_bound(sorted.begin(), sorted.end(), token);
      const size_t want = at == sorted.end() ? 0 : at - sorted.begin();
      EXPECT_EQ(ring->SegmentOf(token), want) << token;
    };
    for (Token token : sorted) {
      expect(token);
      expect(token + 1);
      expect(token - 1);
    }
    for (int i = 0; i < 200; ++i) expect(random.Next() >> random.Uniform(64));
    expect(0);
    expect(UINT64_MAX);
  }
}

TEST(RingTest, PreferenceListTakesEveryRackOnceBeforeRepeatingOne) {
  const auto ring =
      MakeRing(HashedSpec({MakeMember(1, "", "a"), MakeMember(2, "", "a"),
                           MakeMember(3, "", "b"), MakeMember(4, "", "c")},
                          {10, 20, 30, 40}, {1, 2, 3, 4}));
  const Keyspace& keyspace = ring->spec().keyspaces[0];
  EXPECT_THAT(Numbers(ring->PreferenceList(keyspace, 5)), ElementsAre(1, 3, 4));
  EXPECT_THAT(Numbers(ring->PreferenceList(keyspace, 15)),
              ElementsAre(2, 3, 4));
  EXPECT_THAT(Numbers(ring->PreferenceList(keyspace, 25)),
              ElementsAre(3, 4, 1));
  EXPECT_THAT(Numbers(ring->Fallbacks(keyspace, 5)), ElementsAre(2));
}

TEST(RingTest, PreferenceListTakesANewZoneBeforeANewRack) {
  const auto ring =
      MakeRing(HashedSpec({MakeMember(1, "x", "a"), MakeMember(2, "x", "b"),
                           MakeMember(3, "x", "c"), MakeMember(4, "y", "a")},
                          {10, 20, 30, 40}, {1, 2, 3, 4}));
  const Keyspace& keyspace = ring->spec().keyspaces[0];
  EXPECT_THAT(Numbers(ring->PreferenceList(keyspace, 10)),
              ElementsAre(1, 4, 2));
  EXPECT_THAT(Numbers(ring->Fallbacks(keyspace, 10)), ElementsAre(3));
}

TEST(RingTest, PreferenceListTakesANewHostBeforeASecondNodeOfOne) {
  const auto ring = MakeRing(
      HashedSpec({MakeMember(1, "", "", "h1"), MakeMember(2, "", "", "h1"),
                  MakeMember(3, "", "", "h2"), MakeMember(4, "", "", "h2")},
                 {10, 20, 30, 40}, {1, 2, 3, 4}));
  const Keyspace& keyspace = ring->spec().keyspaces[0];
  EXPECT_THAT(Numbers(ring->PreferenceList(keyspace, 10)),
              ElementsAre(1, 3, 2));
  EXPECT_THAT(Numbers(ring->Fallbacks(keyspace, 10)), ElementsAre(4));
}

TEST(RingTest, EffectiveNumbersShrinkWithTheMembers) {
  const auto ring =
      MakeRing(HashedSpec({MakeMember(1), MakeMember(2)}, {10, 20}, {1, 2}));
  Keyspace keyspace = ring->spec().keyspaces[0];
  EXPECT_EQ(ring->EffectiveN(keyspace), 2u);
  EXPECT_EQ(ring->EffectiveR(keyspace), 2u);
  keyspace.r = 1;
  keyspace.w = 3;
  EXPECT_EQ(ring->EffectiveR(keyspace), 1u);
  EXPECT_EQ(ring->EffectiveW(keyspace), 2u);
  // A copy of a keyspace will do.
  EXPECT_THAT(Numbers(ring->PreferenceList(keyspace, 11)), ElementsAre(2, 1));
}

TEST(RingTest, MembersWithoutTokensAreTheLastFallbacks) {
  const auto ring = MakeRing(
      HashedSpec({MakeMember(1), MakeMember(2), MakeMember(3, "elsewhere")},
                 {10, 20}, {1, 2}, 2));
  const Keyspace& keyspace = ring->spec().keyspaces[0];
  EXPECT_THAT(Numbers(ring->PreferenceList(keyspace, 1)), ElementsAre(1, 2));
  EXPECT_THAT(Numbers(ring->Fallbacks(keyspace, 1)), ElementsAre(3));
}

TEST(RingTest, FindsMembersAndKeyspaces) {
  RingSpec spec = HashedSpec({MakeMember(3), MakeMember(7), MakeMember(9)},
                             {10, 20, 30}, {7, 9, 3});
  spec.keyspaces = {MakeKeyspace(3, 1), MakeKeyspace(2, 5), MakeKeyspace(3, 6)};
  spec.keyspaces[1].name = "a";
  spec.next_keyspace_id = KeyspaceId{7};
  const auto ring = MakeRing(spec);
  EXPECT_EQ(ring->FindMember(NodeNumber{7})->name, "n7");
  EXPECT_EQ(ring->FindMember(NodeNumber{0}), nullptr);
  EXPECT_EQ(ring->FindMember(NodeNumber{8}), nullptr);
  EXPECT_EQ(ring->FindMember(NodeNumber{10}), nullptr);
  EXPECT_EQ(ring->FindMember(NodeId{0x1111, 9})->name, "n9");
  EXPECT_EQ(ring->FindMember(NodeId{0x1111, 8}), nullptr);
  EXPECT_EQ(ring->FindKeyspace("a")->id, KeyspaceId{5});
  EXPECT_EQ(ring->FindKeyspace("b"), nullptr);
  EXPECT_EQ(ring->FindKeyspace(KeyspaceId{6})->name, "k6");
  EXPECT_EQ(ring->FindKeyspace(KeyspaceId{2}), nullptr);
  EXPECT_TRUE(ring->IsReplica(ring->spec().keyspaces[1], 10, NodeNumber{7}));
  EXPECT_FALSE(ring->IsReplica(ring->spec().keyspaces[1], 10, NodeNumber{3}));
}

TEST(RingTest, BalancedTokensMayBeGivenAndAreDropped) {
  RingSpec spec = BalancedSpec({MakeMember(1), MakeMember(2)}, {1, 2});
  spec.tokens = {(Token{1} << 63) - 1, UINT64_MAX};
  EXPECT_THAT(MakeRing(spec)->spec().tokens, IsEmpty());
}

TEST(RingTest, RefusesWhatIsInconsistentAndSaysWhat) {
  const RingSpec good =
      HashedSpec({MakeMember(1), MakeMember(2), MakeMember(3)}, {100, 200, 300},
                 {1, 2, 3});
  ASSERT_TRUE(Ring::Make(good).ok());
  const RingSpec balanced =
      BalancedSpec({MakeMember(1), MakeMember(2)}, {1, 2, 1, 2});
  ASSERT_TRUE(Ring::Make(balanced).ok());
  struct Case {
    const char* message;
    std::function<void(RingSpec&)> spoil;
    bool balanced = false;
  };
  const std::vector<Case> cases = {
      {"no cluster id", [](RingSpec& s) { s.cluster_id = {}; }},
      {"epoch 0", [](RingSpec& s) { s.epoch = 0; }},
      {"no members", [](RingSpec& s) { s.members.clear(); }},
      {"limit of 10000", [](RingSpec& s) { s.members.resize(10'001); }},
      {"number 0", [](RingSpec& s) { s.members[0].number = kNoNode; }},
      {"has no id", [](RingSpec& s) { s.members[0].id = {}; }},
      {"weight 0", [](RingSpec& s) { s.members[0].weight = 0; }},
      {"weight nan", [](RingSpec& s) { s.members[0].weight = std::nan(""); }},
      {"weight inf", [](RingSpec& s) { s.members[0].weight = INFINITY; }},
      {"weight 64.5", [](RingSpec& s) { s.members[0].weight = 64.5; }},
      {"name of member 1",
       [](RingSpec& s) { s.members[0].name = std::string(256, 'a'); }},
      {"control characters",
       [](RingSpec& s) { s.members[0].name = "a\x1b[2J"; }},
      {"client address of member 2",
       [](RingSpec& s) {
         s.members[1].client_address = std::string(301, 'a');
       }},
      {"peer address of member 2",
       [](RingSpec& s) { s.members[1].peer_address = std::string(301, 'a'); }},
      {"rack of member 1",
       [](RingSpec& s) { s.members[0].location.rack = "a,b"; }},
      {"member 1 stands after member 2",
       [](RingSpec& s) { std::swap(s.members[0], s.members[1]); }},
      {"member 1 stands after member 1",
       [](RingSpec& s) { s.members[1].number = NodeNumber{1}; }},
      {"two members are named", [](RingSpec& s) { s.members[1].name = "n1"; }},
      {"both have id", [](RingSpec& s) { s.members[2].id = s.members[0].id; }},
      {"next node number",
       [](RingSpec& s) { s.next_node_number = NodeNumber{3}; }},
      {"departed member 0", [](RingSpec& s) { s.departed = {kNoNode}; }},
      {"departed member 1000",
       [](RingSpec& s) { s.departed = {NodeNumber{1000}}; }},
      {"is also a departed one",
       [](RingSpec& s) { s.departed = {NodeNumber{2}}; }},
      {"departed member 7 stands after",
       [](RingSpec& s) {
         s.departed = {NodeNumber{8}, NodeNumber{7}};
       }},
      {"N=0", [](RingSpec& s) { s.keyspaces[0].n = 0; }},
      {"N=17", [](RingSpec& s) { s.keyspaces[0].n = 17; }},
      {"R=0", [](RingSpec& s) { s.keyspaces[0].r = 0; }},
      {"R=4", [](RingSpec& s) { s.keyspaces[0].r = 4; }},
      {"W=0", [](RingSpec& s) { s.keyspaces[0].w = 0; }},
      {"W=4294967295", [](RingSpec& s) { s.keyspaces[0].w = UINT32_MAX; }},
      {"keyspace name", [](RingSpec& s) { s.keyspaces[0].name = ""; }},
      {"keyspace name", [](RingSpec& s) { s.keyspaces[0].name = "a b"; }},
      {"keyspace name",
       [](RingSpec& s) { s.keyspaces[0].name = std::string(65, 'a'); }},
      {"has id 0", [](RingSpec& s) { s.keyspaces[0].id = KeyspaceId{0}; }},
      {"has id 2", [](RingSpec& s) { s.keyspaces[0].id = KeyspaceId{2}; }},
      {"keyspace id 1 stands after 1",
       [](RingSpec& s) { s.keyspaces.push_back(s.keyspaces[0]); }},
      {"two keyspaces are named",
       [](RingSpec& s) {
         s.keyspaces.push_back(s.keyspaces[0]);
         s.keyspaces[1].id = KeyspaceId{2};
         s.next_keyspace_id = KeyspaceId{3};
       }},
      {"limit of 1024", [](RingSpec& s) { s.keyspaces.resize(1025); }},
      {"changed in epoch 2",
       [](RingSpec& s) { s.keyspaces[0].changed_at = 2; }},
      {"changed in epoch 0",
       [](RingSpec& s) { s.keyspaces[0].changed_at = 0; }},
      {"token 200 stands after 200", [](RingSpec& s) { s.tokens[2] = 200; }},
      {"token 100 stands after 200",
       [](RingSpec& s) { std::swap(s.tokens[0], s.tokens[1]); }},
      {"names 2 owners", [](RingSpec& s) { s.owners.pop_back(); }},
      {"names 0 owners",
       [](RingSpec& s) {
         s.owners.clear();
         s.tokens.clear();
       }},
      {"node 4, is no member",
       [](RingSpec& s) { s.owners[1] = NodeNumber{4}; }},
      {"0 vnodes", [](RingSpec& s) { s.vnodes = 0; }},
      {"unknown placement",
       [](RingSpec& s) { s.placement = static_cast<PlacementStrategy>(2); }},
      {"not a power of two", [](RingSpec& s) { s.vnodes = 3; }, true},
      {"not a power of two", [](RingSpec& s) { s.vnodes = 0; }, true},
      {"not a power of two", [](RingSpec& s) { s.vnodes = 1u << 31; }, true},
      {"names 4 owners", [](RingSpec& s) { s.vnodes = 8; }, true},
      {"has 1 tokens", [](RingSpec& s) { s.tokens = {5}; }, true},
      {"token 0 of a balanced ring is 5",
       [](RingSpec& s) {
         s.tokens = {5, 6, 7, 8};
       },
       true},
  };
  for (const Case& c : cases) {
    RingSpec spec = c.balanced ? balanced : good;
    c.spoil(spec);
    const auto ring = Ring::Make(spec);
    ASSERT_FALSE(ring.ok()) << c.message;
    EXPECT_EQ(ring.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(ring.status().message()), HasSubstr(c.message));
  }
}

// The walk, written out as plainly as can be: from the token on, again and
// again, the first node that adds a new zone, else a new rack, else a new host.
std::vector<uint32_t> BruteForceWalk(const Ring& ring, size_t segment) {
  const RingSpec& spec = ring.spec();
  std::vector<const Member*> chosen;
  const auto same = [](const Member& a, const Member& b, int level) {
    const Location& x = a.location;
    const Location& y = b.location;
    return level == 3   ? a.number == b.number
           : level == 2 ? x == y
           : level == 1 ? x.zone == y.zone && x.rack == y.rack
                        : x.zone == y.zone;
  };
  for (bool found = true; found;) {
    found = false;
    for (int level = 0; level < 4 && !found; ++level) {
      for (size_t step = 0; step < spec.owners.size() && !found; ++step) {
        const Member* member =
            ring.FindMember(spec.owners[(segment + step) % spec.owners.size()]);
        found = std::none_of(
            chosen.begin(), chosen.end(),
            [&](const Member* other) { return same(*member, *other, level); });
        if (found) chosen.push_back(member);
      }
    }
  }
  std::vector<uint32_t> numbers;
  for (const Member* member : chosen) numbers.push_back(ToInt(member->number));
  return numbers;
}

TEST(RingTest, PreferenceListsAndFallbacksAreTheBruteForceWalk) {
  SeededRandom random(11);
  for (int round = 0; round < 150; ++round) {
    const uint32_t count = 1 + static_cast<uint32_t>(random.Uniform(12));
    const uint64_t zones = 1 + random.Uniform(3);
    const uint64_t racks = 1 + random.Uniform(4);
    const uint64_t hosts = 1 + random.Uniform(6);
    std::vector<Member> members;
    for (uint32_t i = 1; i <= count; ++i) {
      members.push_back(MakeMember(2 * i,
                                   absl::StrCat("z", random.Uniform(zones)),
                                   absl::StrCat("r", random.Uniform(racks)),
                                   absl::StrCat("h", random.Uniform(hosts))));
    }
    const bool balanced = random.Chance(0.5);
    const size_t segments =
        balanced ? size_t{1} << random.Uniform(7) : 1 + random.Uniform(60);
    std::vector<uint32_t> owners;
    std::set<Token> tokens;
    // Sometimes one node owns nearly everything.
    const bool skewed = random.Chance(0.3);
    while (tokens.size() < segments) tokens.insert(random.Next());
    for (size_t i = 0; i < segments; ++i) {
      owners.push_back(
          skewed && random.Chance(0.9)
              ? 2
              : 2 * (1 + static_cast<uint32_t>(random.Uniform(count))));
    }
    RingSpec spec =
        balanced ? BalancedSpec(members, owners)
                 : HashedSpec(members, {tokens.begin(), tokens.end()}, owners);
    spec.keyspaces.clear();
    for (uint32_t n : {1, 2, 3, 3, 5, 16}) {
      spec.keyspaces.push_back(
          MakeKeyspace(n, static_cast<uint32_t>(spec.keyspaces.size() + 1)));
    }
    spec.next_keyspace_id = KeyspaceId{100};
    const auto ring = MakeRing(spec);
    for (size_t segment = 0; segment < segments; ++segment) {
      const std::vector<uint32_t> walk = BruteForceWalk(*ring, segment);
      for (const Keyspace& keyspace : ring->spec().keyspaces) {
        const size_t n = ring->EffectiveN(keyspace);
        ASSERT_EQ(n, std::min<size_t>(keyspace.n, walk.size()));
        const auto list = ring->PreferenceListOfSegment(keyspace, segment);
        ASSERT_EQ(Numbers(list),
                  std::vector<uint32_t>(walk.begin(), walk.begin() + n));
        ASSERT_EQ(
            Numbers(ring->PreferenceList(keyspace, ring->SegmentEnd(segment))),
            Numbers(list));
        std::vector<uint32_t> rest(walk.begin() + n, walk.end());
        for (const Member& member : ring->spec().members) {
          const uint32_t number = ToInt(member.number);
          if (std::find(walk.begin(), walk.end(), number) == walk.end()) {
            rest.push_back(number);
          }
        }
        ASSERT_EQ(Numbers(ring->Fallbacks(keyspace, ring->SegmentEnd(segment))),
                  rest);
      }
    }
  }
}

TEST(RingTest, ARareZoneDoesNotMakeARingSlowToMake) {
  // Every walk passes half the ring on average to find the second zone; the
  // cost of a ring must not be the square of its tokens.
  std::vector<uint32_t> owners(kSegmentsMax, 1);
  owners[12345] = 2;
  RingSpec spec =
      BalancedSpec({MakeMember(1, "a"), MakeMember(2, "b")}, owners, 2);
  const auto ring = MakeRing(std::move(spec));
  EXPECT_THAT(
      Numbers(ring->PreferenceListOfSegment(ring->spec().keyspaces[0], 99)),
      ElementsAre(1, 2));
}

TEST(RingTest, EqualListsAreShared) {
  std::vector<uint32_t> owners;
  for (int i = 0; i < 16384; ++i) owners.push_back(1 + i % 4);
  RingSpec spec = BalancedSpec(
      {MakeMember(1), MakeMember(2), MakeMember(3), MakeMember(4)}, owners);
  const size_t one = MakeRing(spec)->MemoryBytes();
  EXPECT_LT(one, 16384 * 8 + 4096);
  for (uint32_t id = 2; id <= 100; ++id)
    spec.keyspaces.push_back(MakeKeyspace(3, id));
  spec.next_keyspace_id = KeyspaceId{101};
  EXPECT_LT(MakeRing(spec)->MemoryBytes(), one + 100 * 150);
}

}  // namespace
}  // namespace ringkv
