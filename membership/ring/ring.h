// The ring: who the members are, where they stand, which tokens they own, and
// which keyspaces there are; one immutable snapshot for each ring epoch. Pure
// code, shared by server and client.

#ifndef RINGKV_MEMBERSHIP_RING_RING_H_
#define RINGKV_MEMBERSHIP_RING_RING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace ringkv {

// Bounds of a ring; Ring::Make refuses more.
inline constexpr size_t kMembersMax = 10'000;
inline constexpr size_t kKeyspacesMax = 1'024;
inline constexpr size_t kTokensMax = 4 << 20;
inline constexpr size_t kDepartedMax = 1 << 20;
inline constexpr size_t kFormerLineagesMax = 64;
// Greatest N of a keyspace.
inline constexpr uint32_t kReplicasMax = 16;
// Greatest Q of a balanced ring, and vnodes of weight 1 of a hashed one.
inline constexpr uint32_t kSegmentsMax = 1 << 20;
inline constexpr uint32_t kVnodesMax = 1 << 16;
inline constexpr double kWeightMax = 64;
// Bytes of a member's name or one part of its location, and of an address.
inline constexpr size_t kNameBytesMax = 255;
inline constexpr size_t kAddressBytesMax = 300;

// Failure domains, largest first, each inside the one before: rack "r1" of zone
// "a" is not rack "r1" of zone "b". Empty fields mean: all the same. No part
// has
// ',', '=' or control characters.
struct Location {
  std::string zone;
  std::string rack;
  std::string host;
  auto operator<=>(const Location&) const = default;
  // "zone=a,rack=r1,host=h1"; empty parts are left out.
  std::string ToString() const;
  // The parts in any order; "" is the empty location. INVALID_ARGUMENT names
  // the unknown, repeated, empty or overlong part.
  static absl::StatusOr<Location> Parse(absl::string_view text);
};

struct Member {
  NodeNumber number{};
  NodeId id;
  std::string name;
  std::string client_address;  // host:port
  std::string peer_address;    // host:port
  Location location;
  double weight = 1.0;  // 0 < weight <= 64
  bool operator==(const Member&) const = default;
};

enum class PlacementStrategy : uint8_t { kBalanced = 0, kHashed = 1 };
enum class VersionMode : uint8_t { kSiblings = 0, kLww = 1 };
enum class Durability : uint8_t { kInterval = 0, kSync = 1 };
enum class QuorumMode : uint8_t { kSloppy = 0, kStrict = 1 };

struct Keyspace {
  KeyspaceId id{};
  std::string name;  // 1 to 64 of [A-Za-z0-9_.-]
  uint32_t n = 3;
  uint32_t r = 2;
  uint32_t w = 2;
  VersionMode mode = VersionMode::kSiblings;
  Durability durability = Durability::kInterval;
  QuorumMode quorum = QuorumMode::kSloppy;  // what DEFAULT means
  RingEpoch changed_at =
      1;  // last epoch in which replica sets, N, R or W changed
  bool operator==(const Keyspace&) const = default;
};

// --- Changes of the ring (docs/decisions/0009) ---

// Values are on the wire.
enum class TopologyKind : uint8_t {
  kJoin = 0,
  kDecommission = 1,
  kRemoveDead = 2,
  kReplace = 3,
  kWeight = 4,
  kKeyspace = 5,
};
enum class TopologyPhase : uint8_t { kStart = 0, kSwitch = 1 };

struct Quorums {
  uint32_t n = 0, r = 0, w = 0;
  bool operator==(const Quorums&) const = default;
};

// Who owns what, and how many replicas keyspaces have.
struct Arrangement {
  std::vector<double> weights;     // of RingSpec::members, in their order
  std::vector<Token> tokens;       // as RingSpec::tokens
  std::vector<NodeNumber> owners;  // as RingSpec::owners
  std::vector<Quorums> quorums;    // of RingSpec::keyspaces, in their order
  bool operator==(const Arrangement&) const = default;
};

// A change under way. Reads follow the ring's own arrangement, writes that one
// and `other`. Without an operation the ring is what it says.
struct TopologyOperation {
  TopologyKind kind = TopologyKind::kJoin;
  TopologyPhase phase = TopologyPhase::kStart;
  RingEpoch id = 0;  // the epoch of its start
  // Whom it is about, sorted: who joins, leaves, gets another weight; the new
  // nodes of a replacement.
  std::vector<NodeNumber> nodes;
  // kReplace: the dead node of each of `nodes`.
  std::vector<NodeNumber> replaced;
  // kSwitch: members that the operator vouches for as stopped, so that the
  // operation need not wait for them; sorted.
  std::vector<NodeNumber> stopped;
  // kStart: the arrangement to come. kSwitch: the one before.
  Arrangement other;
  KeyspaceId keyspace{};  // kKeyspace
  bool operator==(const TopologyOperation&) const = default;

  // A member only from its end on.
  bool Joins(NodeNumber node) const;
  // A member no more from its end on, alive or dead.
  bool Leaves(NodeNumber node) const;
  // One who leaves, and has nothing to say in it.
  bool TakesForDead(NodeNumber node) const;
  // Leaves as dead, or is vouched for as stopped while this runs.
  bool GoesOnWithout(NodeNumber node) const;
};

// "join", "decommission", "remove-dead", "replace", "weight", "keyspace"; else
// "unknown".
const char* NameOf(TopologyKind kind);

struct Domains;  // domains.h

// Everything that a ring epoch decides, as plain data.
struct RingSpec {
  ClusterId cluster_id;
  // Differs after an unsafe recovery: a new random one then.
  uint64_t lineage = 0;
  // Those before, oldest first: their nodes are known, and refused unless the
  // ring has them.
  std::vector<uint64_t> former_lineages;
  RingEpoch epoch = 0;
  uint32_t feature_level = 1;
  PlacementStrategy placement = PlacementStrategy::kBalanced;
  // kBalanced: Q, the number of equal segments (a power of two). kHashed:
  // vnodes of a node of weight 1.
  uint32_t vnodes = 16384;
  std::vector<Member> members;      // sorted by number
  std::vector<Keyspace> keyspaces;  // sorted by id
  // Strictly increasing tokens with their owners (parallel arrays). For
  // kBalanced token i is (i + 1) * 2^64 / Q - 1, so only owners are sent and
  // stored, and `tokens` is empty.
  std::vector<Token> tokens;
  std::vector<NodeNumber> owners;
  std::vector<NodeNumber> departed;  // numbers that never come back; sorted
  // Above every number given so far.
  NodeNumber next_node_number{1};
  KeyspaceId next_keyspace_id{1};
  std::optional<TopologyOperation> operation;
  bool operator==(const RingSpec&) const = default;
};

// Whether `former` names `lineage`.
bool IsFormerLineage(const std::vector<uint64_t>& former, uint64_t lineage);

// A keyspace's name: 1 to 64 of [A-Za-z0-9_.-].
// INVALID_ARGUMENT says what is wrong with it.
absl::Status CheckKeyspaceName(absl::string_view name);

// INVALID_ARGUMENT names the first field of `keyspace` that no ring may have:
// the name, or N, R or W out of 1 <= R, W <= N <= kReplicasMax.
absl::Status CheckKeyspace(const Keyspace& keyspace);

// Immutable once made; share it through shared_ptr<const Ring>. Thread-safe.
class Ring {
 public:
  // INVALID_ARGUMENT names what is inconsistent (unsorted or unequal arrays, an
  // owner that is no member, N, R or W out of range, two members with one id
  // ...). Safe for a spec of any origin: time and memory are bounded by the
  // limits above. A balanced spec may carry its tokens, which are checked and
  // dropped.
  static absl::StatusOr<std::shared_ptr<const Ring>> Make(RingSpec spec);

  const RingSpec& spec() const { return spec_; }
  RingEpoch epoch() const { return spec_.epoch; }

  const Member* FindMember(NodeNumber number) const;
  const Member* FindMember(const NodeId& id) const;
  const Keyspace* FindKeyspace(absl::string_view name) const;
  const Keyspace* FindKeyspace(KeyspaceId id) const;

  // Segments are numbered 0 .. segments()-1 in token order; segment i is the
  // range (token i-1, token i], and segment 0 wraps.
  size_t segments() const { return spec_.owners.size(); }
  size_t SegmentOf(Token token) const;
  // The last token of segment `i`.
  Token SegmentEnd(size_t i) const;

  // N, R and W of `keyspace` with fewer nodes than N: min(_, members that own
  // tokens).
  uint32_t EffectiveN(const Keyspace& keyspace) const;
  uint32_t EffectiveR(const Keyspace& keyspace) const;
  uint32_t EffectiveW(const Keyspace& keyspace) const;

  // The natural replicas of a token, in preference order; EffectiveN of them.
  // Requires a keyspace of this ring, or a copy of one (slower). The span lives
  // as long as the ring. O(1) (balanced; hashed if the tokens are spread as
  // hashes are) or O(log tokens) (any tokens), no allocation.
  absl::Span<const NodeNumber> PreferenceList(const Keyspace& keyspace,
                                              Token token) const;
  absl::Span<const NodeNumber> PreferenceListOfSegment(const Keyspace& keyspace,
                                                       size_t segment) const;

  // Every other member, in the order in which the walk goes on to take
  // fallbacks (new zone first, else new rack, else new host), then those
  // without tokens by number. Computed on demand.
  std::vector<NodeNumber> Fallbacks(const Keyspace& keyspace,
                                    Token token) const;

  bool IsReplica(const Keyspace& keyspace, Token token, NodeNumber node) const;

  // --- While the ring is being changed ---

  // The arrangement of TopologyOperation::other as a ring of the same epoch,
  // members and keyspaces (with their other N, R and W); null without an
  // operation.
  const Ring* other() const { return other_.get(); }
  // The replicas in the other arrangement, whose W must be met as well; empty
  // without an operation, or if sets and settings are the same there.
  absl::Span<const NodeNumber> OtherList(const Keyspace& keyspace,
                                         Token token) const;
  // A replica in either arrangement: a natural one, a pending one, or one that
  // is about to lose the token.
  bool IsHolder(const Keyspace& keyspace, Token token, NodeNumber node) const;
  // A member that comes with the running operation; it has no vote.
  bool IsJoining(NodeNumber node) const;
  // A member that leaves as soon as it has delivered the hints that it holds:
  // it takes no new ones.
  bool IsLeaving(NodeNumber node) const;

  // Bytes that this ring occupies.
  size_t MemoryBytes() const;

 private:
  // The preference lists of one N.
  struct Lists {
    uint32_t n = 0;
    // Lists of n nodes, one after the other.
    std::vector<NodeNumber> nodes;
    // For each segment the number of its list; empty if list i is segment i's,
    // which is smaller when few lists are equal.
    std::vector<uint32_t> index;

    absl::Span<const NodeNumber> Of(size_t segment) const {
      const size_t list = index.empty() ? segment : index[segment];
      return {nodes.data() + list * n, n};
    }
  };

  explicit Ring(RingSpec spec);

  absl::Status Validate();
  absl::Status ValidateOperation() const;
  absl::Status MakeOther();
  void IndexTokens();
  std::shared_ptr<const Lists> MakeLists(uint32_t n) const;
  // Position of a member in spec_.members, or members.size().
  size_t MemberIndex(NodeNumber number) const;
  const Lists& ListsOf(const Keyspace& keyspace) const;

  RingSpec spec_;
  std::shared_ptr<const Ring> other_;
  std::vector<uint32_t> members_by_id_;      // positions, sorted by id
  std::vector<uint32_t> keyspaces_by_name_;  // positions, sorted by name
  std::shared_ptr<const Domains> domains_;   // of members that own tokens
  uint32_t owner_count_ = 0;
  // Balanced: a token's segment is token >> shift_. Hashed: the tokens with
  // equal token >> shift_ are those from buckets_[_] up to buckets_[_ + 1].
  int shift_ = 0;
  std::vector<uint32_t> buckets_;
  std::vector<std::shared_ptr<const Lists>>
      by_keyspace_;  // parallel; may share
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_RING_RING_H_
