// The ring: who the members are, where they stand, which tokens they own, and
// which keyspaces there are; one immutable snapshot for each ring epoch. Pure
// code, shared by server and client.

#ifndef RINGKV_MEMBERSHIP_RING_RING_H_
#define RINGKV_MEMBERSHIP_RING_RING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace ringkv {

// Failure domains, largest first. Empty fields mean: all the same.
struct Location {
  std::string zone;
  std::string rack;
  std::string host;
  auto operator<=>(const Location&) const = default;
  // "zone=a,rack=r1,host=h1"
  std::string ToString() const;
  // INVALID_ARGUMENT names the unknown or repeated part.
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
  RingEpoch changed_at = 1;  // last epoch in which replica sets, N, R or W changed
  bool operator==(const Keyspace&) const = default;
};

// Everything that a ring epoch decides, as plain data.
struct RingSpec {
  ClusterId cluster_id;
  uint64_t lineage = 0;  // differs after an unsafe recovery
  RingEpoch epoch = 0;
  uint32_t feature_level = 1;
  PlacementStrategy placement = PlacementStrategy::kBalanced;
  // kBalanced: Q, the number of equal segments (a power of two). kHashed: vnodes
  // of a node of weight 1.
  uint32_t vnodes = 16384;
  std::vector<Member> members;        // sorted by number
  std::vector<Keyspace> keyspaces;    // sorted by id
  // Sorted tokens with their owners (parallel arrays). For kBalanced token i is
  // (i + 1) * 2^64 / Q - 1, so only owners are sent and stored.
  std::vector<Token> tokens;
  std::vector<NodeNumber> owners;
  std::vector<NodeNumber> departed;   // numbers that never come back
  NodeNumber next_node_number{1};
  KeyspaceId next_keyspace_id{1};
  bool operator==(const RingSpec&) const = default;
};

// Immutable once made; share it through shared_ptr<const Ring>. Thread-safe.
class Ring {
 public:
  // INVALID_ARGUMENT names what is inconsistent (unsorted or unequal arrays, an
  // owner that is no member, N, R or W out of range, two members with one id ...).
  static absl::StatusOr<std::shared_ptr<const Ring>> Make(RingSpec spec);

  const RingSpec& spec() const { return spec_; }
  RingEpoch epoch() const { return spec_.epoch; }

  const Member* FindMember(NodeNumber number) const;
  const Member* FindMember(const NodeId& id) const;
  const Keyspace* FindKeyspace(absl::string_view name) const;
  const Keyspace* FindKeyspace(KeyspaceId id) const;

  // Segments are numbered 0 .. segments()-1 in token order; segment i is the range
  // (token i-1, token i], and segment 0 wraps.
  size_t segments() const { return spec_.owners.size(); }
  size_t SegmentOf(Token token) const;
  // The last token of segment `i`.
  Token SegmentEnd(size_t i) const;

  // N, R and W of `keyspace` with fewer nodes than N: min(_, members).
  uint32_t EffectiveN(const Keyspace& keyspace) const;
  uint32_t EffectiveR(const Keyspace& keyspace) const;
  uint32_t EffectiveW(const Keyspace& keyspace) const;

  // The natural replicas of a token, in preference order; EffectiveN of them.
  // Requires `keyspace` of this ring. The span lives as long as the ring. O(1)
  // (balanced) or O(log tokens) (hashed), no allocation.
  absl::Span<const NodeNumber> PreferenceList(const Keyspace& keyspace,
                                              Token token) const;
  absl::Span<const NodeNumber> PreferenceListOfSegment(const Keyspace& keyspace,
                                                       size_t segment) const;

  // Every other member, in the order in which the walk goes on to take fallbacks
  // (new zone first, else new rack, else new host). Computed on demand.
  std::vector<NodeNumber> Fallbacks(const Keyspace& keyspace, Token token) const;

  bool IsReplica(const Keyspace& keyspace, Token token, NodeNumber node) const;

 private:
  struct Lists;  // preference lists of one keyspace's N
  explicit Ring(RingSpec spec);

  RingSpec spec_;
  std::map<uint32_t, std::shared_ptr<const Lists>> lists_;  // by effective N
  std::vector<std::shared_ptr<const Lists>> by_keyspace_;
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_RING_RING_H_
