#include "membership/ring/ring_codec.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "membership/ring/placement.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;

// A ring with every field set.
RingSpec FullSpec(PlacementStrategy placement, uint32_t nodes,
                  uint32_t vnodes) {
  RingSpec spec;
  spec.cluster_id = {0x0123456789abcdef, 0xfedcba9876543210};
  spec.lineage = 0xffeeddccbbaa9988;
  spec.former_lineages = {0, 77};
  spec.epoch = 12;
  spec.feature_level = 3;
  spec.placement = placement;
  spec.vnodes = vnodes;
  for (uint32_t i = 0; i < nodes; ++i) {
    Member member;
    member.number = NodeNumber{3 * i + 2};
    member.id = {~uint64_t{i}, i + 1};
    member.name = absl::StrCat("node-", i);
    member.client_address = absl::StrCat("10.0.0.", i, ":7400");
    member.peer_address = absl::StrCat("[fd00::", i, "]:7401");
    member.location = {absl::StrCat("z", i % 2), absl::StrCat("r", i % 3),
                       absl::StrCat("h\xc3\xa9", i)};
    member.weight = 0.5 + i;
    spec.members.push_back(std::move(member));
  }
  for (uint32_t i = 1; i <= 3; ++i) {
    Keyspace keyspace;
    keyspace.id = KeyspaceId{2 * i};
    keyspace.name = absl::StrCat("keyspace-", i);
    keyspace.n = i + 1;
    keyspace.r = i;
    keyspace.w = 1;
    keyspace.mode = i == 1 ? VersionMode::kLww : VersionMode::kSiblings;
    keyspace.durability = i == 2 ? Durability::kSync : Durability::kInterval;
    keyspace.quorum = i == 3 ? QuorumMode::kStrict : QuorumMode::kSloppy;
    keyspace.changed_at = i;
    spec.keyspaces.push_back(std::move(keyspace));
  }
  const auto assignment = Place({placement, vnodes, 3}, spec.members, {});
  EXPECT_TRUE(assignment.ok()) << assignment.status();
  spec.tokens = assignment->tokens;
  spec.owners = assignment->owners;
  spec.departed = {NodeNumber{1}, NodeNumber{90}};
  spec.next_node_number = NodeNumber{100};
  spec.next_keyspace_id = KeyspaceId{9};
  return spec;
}

TEST(RingCodecTest, DecodesWhatItEncodes) {
  for (const RingSpec& spec : {FullSpec(PlacementStrategy::kBalanced, 7, 256),
                               FullSpec(PlacementStrategy::kHashed, 7, 16)}) {
    const auto decoded = DecodeRing(EncodeRing(spec));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, spec);
    EXPECT_TRUE(Ring::Make(*decoded).ok());
  }
}

TEST(RingCodecTest, BalancedTokensAreNotSent) {
  const RingSpec spec = FullSpec(PlacementStrategy::kBalanced, 7, 16384);
  EXPECT_LT(EncodeRing(spec).size(), 16384 + 2048);
}

TEST(RingCodecTest, RefusesForeignBytes) {
  for (const std::string& bytes :
       {std::string("hello"), std::string(100, '\xff'), std::string(1, '\0')}) {
    const auto decoded = DecodeRing(bytes);
    ASSERT_FALSE(decoded.ok());
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  }
  // Nothing at all is a message without fields, and so without a cluster id.
  EXPECT_THAT(std::string(DecodeRing("").status().message()),
              HasSubstr("the cluster id has 0 bytes instead of 16"));
}

TEST(RingCodecTest, RefusesWhatThisVersionDoesNotKnow) {
  struct Case {
    const char* message;
    void (*spoil)(v1::RingSnapshot&);
  };
  const std::vector<Case> cases = {
      {"placement strategy 7",
       [](v1::RingSnapshot& m) {
         m.set_placement(static_cast<v1::PlacementStrategy>(7));
       }},
      {"version mode 2",
       [](v1::RingSnapshot& m) {
         m.mutable_keyspaces(0)->set_mode(static_cast<v1::VersionMode>(2));
       }},
      {"durability -1",
       [](v1::RingSnapshot& m) {
         m.mutable_keyspaces(1)->set_durability(
             static_cast<v1::Durability>(-1));
       }},
      {"quorum mode 9",
       [](v1::RingSnapshot& m) {
         m.mutable_keyspaces(2)->set_quorum(static_cast<v1::QuorumMode>(9));
       }},
      {"cluster id has 15 bytes",
       [](v1::RingSnapshot& m) { m.mutable_cluster_id()->pop_back(); }},
      {"id of member 5 has 17 bytes",
       [](v1::RingSnapshot& m) {
         m.mutable_members(1)->mutable_id()->push_back('x');
       }},
      {"10001 members",
       [](v1::RingSnapshot& m) {
         while (m.members_size() <= 10'000) m.add_members();
       }},
      {"1025 keyspaces",
       [](v1::RingSnapshot& m) {
         while (m.keyspaces_size() <= 1024) m.add_keyspaces();
       }},
      {"4194305 tokens",
       [](v1::RingSnapshot& m) {
         m.mutable_tokens()->Resize((4 << 20) + 1, 0);
       }},
      {"4194305 owners",
       [](v1::RingSnapshot& m) {
         m.mutable_owners()->Resize((4 << 20) + 1, 0);
       }},
      {"1048577 departed",
       [](v1::RingSnapshot& m) {
         m.mutable_departed()->Resize((1 << 20) + 1, 0);
       }},
  };
  v1::RingSnapshot good;
  RingToProto(FullSpec(PlacementStrategy::kHashed, 4, 4), &good);
  for (const Case& c : cases) {
    v1::RingSnapshot message = good;
    c.spoil(message);
    const auto decoded = DecodeRing(message.SerializeAsString());
    ASSERT_FALSE(decoded.ok()) << c.message;
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(decoded.status().message()), HasSubstr(c.message));
  }
}

TEST(RingCodecTest, RefusesOverlongBytesUnread) {
  const std::string bytes(kEncodedRingBytesMax + 1, '\0');
  EXPECT_THAT(std::string(DecodeRing(bytes).status().message()),
              HasSubstr("more than the limit"));
}

TEST(RingCodecTest, KeepsFieldsOfNewerVersionsFromDoingHarm) {
  const RingSpec spec = FullSpec(PlacementStrategy::kBalanced, 3, 8);
  // Field 1000, a varint.
  const auto decoded = DecodeRing(EncodeRing(spec) + "\xc0\x3e\x05");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, spec);
}

// Asks a ring everything that its callers ask.
void Exercise(const Ring& ring, Random& random) {
  for (const Keyspace& keyspace : ring.spec().keyspaces) {
    for (Token token : {Token{0}, random.Next(), UINT64_MAX}) {
      const auto list = ring.PreferenceList(keyspace, token);
      EXPECT_EQ(list.size(), ring.EffectiveN(keyspace));
      for (NodeNumber node : list) EXPECT_NE(ring.FindMember(node), nullptr);
      EXPECT_TRUE(ring.IsReplica(keyspace, token, list[0]));
      EXPECT_EQ(ring.Fallbacks(keyspace, token).size() + list.size(),
                ring.spec().members.size());
    }
  }
  for (const RingViolation& violation : CheckRing(ring, 10)) {
    EXPECT_EQ(violation.kind, RingViolation::Kind::kFewerReplicas);
  }
  EXPECT_FALSE(Inspect(ring, 3).nodes.empty());
  EXPECT_GT(ring.MemoryBytes(), 0u);
}

// The messages' library prints what it cannot parse; here that is expected.
class RingFuzzTest : public testing::Test {
 private:
  google::protobuf::LogSilencer silencer_;
};

// Cut, flipped, doubled, dropped and invented bytes.
void Mutate(std::string& bytes, Random& random) {
  for (uint64_t edits = 1 + random.Uniform(4); edits > 0 && !bytes.empty();
       --edits) {
    const size_t at = random.Uniform(bytes.size());
    switch (random.Uniform(5)) {
      case 0:
        bytes[at] = static_cast<char>(random.Next());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Uniform(8)));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(
            at, bytes.substr(random.Uniform(bytes.size()), random.Uniform(20)));
        break;
      default:
        bytes.erase(at, 1 + random.Uniform(8));
        break;
    }
  }
}

TEST_F(RingFuzzTest, MutatedBytesAreRefusedOrMakeARingThatWorks) {
  SeededRandom random(3);
  int decoded_rings = 0, made_rings = 0;
  for (const RingSpec& spec : {FullSpec(PlacementStrategy::kBalanced, 5, 16),
                               FullSpec(PlacementStrategy::kHashed, 5, 2)}) {
    const std::string good = EncodeRing(spec);
    for (int i = 0; i < 8000; ++i) {
      std::string bytes = good;
      Mutate(bytes, random);
      const auto decoded = DecodeRing(bytes);
      if (!decoded.ok()) continue;
      ++decoded_rings;
      const auto ring = Ring::Make(*decoded);
      if (!ring.ok()) continue;
      ++made_rings;
      Exercise(**ring, random);
    }
  }
  // Both gates were tried.
  EXPECT_GT(decoded_rings, 100);
  EXPECT_GT(made_rings, 20);
}

TEST_F(RingFuzzTest, EveryTruncationIsRefusedOrMakesARingThatWorks) {
  SeededRandom random(4);
  const std::string good =
      EncodeRing(FullSpec(PlacementStrategy::kHashed, 5, 4));
  for (size_t size = 0; size < good.size(); ++size) {
    const auto decoded = DecodeRing(good.substr(0, size));
    if (!decoded.ok()) continue;
    const auto ring = Ring::Make(*decoded);
    if (ring.ok()) Exercise(**ring, random);
  }
}

// Mutates fields rather than bytes, which gets past the first gate far more
// often.
TEST_F(RingFuzzTest, SpoiledFieldsAreRefusedOrMakeARingThatWorks) {
  SeededRandom random(5);
  const auto number = [&]() -> uint32_t {
    const uint32_t edges[] = {0, 1, 2, 3, 4, 16, 17, 1u << 20, UINT32_MAX};
    return random.Chance(0.5) ? edges[random.Uniform(9)]
                              : static_cast<uint32_t>(random.Next());
  };
  const double doubles[] = {0,
                            -1,
                            1e-300,
                            64,
                            65,
                            1e300,
                            -0.0,
                            std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()};
  std::vector<RingSpec> good;
  for (uint32_t nodes = 1; nodes <= 5; ++nodes) {
    good.push_back(FullSpec(PlacementStrategy::kBalanced, nodes, 8));
    good.push_back(FullSpec(PlacementStrategy::kHashed, nodes, 2));
  }
  int made_rings = 0;
  for (int i = 0; i < 6000; ++i) {
    RingSpec spec = good[random.Uniform(good.size())];
    for (uint64_t edits = 1 + random.Uniform(2); edits > 0; --edits) {
      Member& member = spec.members[random.Uniform(spec.members.size())];
      Keyspace& keyspace =
          spec.keyspaces[random.Uniform(spec.keyspaces.size())];
      switch (random.Uniform(16)) {
        case 0:
          spec.epoch = number();
          break;
        case 1:
          spec.vnodes = number();
          break;
        case 2:
          member.number = NodeNumber{number()};
          break;
        case 3:
          member.id.low = number();
          break;
        case 4:
          member.weight = doubles[random.Uniform(9)];
          break;
        case 5:
          member.location = {};
          break;
        case 6:
          keyspace.n = number();
          break;
        case 7:
          keyspace.r = number();
          break;
        case 8:
          keyspace.id = KeyspaceId{number()};
          break;
        case 9:
          keyspace.name = "keyspace-1";
          break;
        case 10:
          spec.owners[random.Uniform(spec.owners.size())] = member.number;
          break;
        case 11:
          spec.owners[random.Uniform(spec.owners.size())] =
              NodeNumber{number()};
          break;
        case 12:
          if (!spec.tokens.empty()) {
            spec.tokens[random.Uniform(spec.tokens.size())] = random.Next();
          }
          break;
        case 13:
          std::fill(spec.owners.begin(), spec.owners.end(), member.number);
          break;
        case 14:
          spec.next_node_number = NodeNumber{number()};
          break;
        default:
          spec.departed.push_back(NodeNumber{number()});
          break;
      }
    }
    const auto decoded = DecodeRing(EncodeRing(spec));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    const auto ring = Ring::Make(*decoded);
    if (!ring.ok()) continue;
    ++made_rings;
    Exercise(**ring, random);
  }
  EXPECT_GT(made_rings, 500);
}

}  // namespace
}  // namespace ringkv
