// Ids that cross module borders. Different ids are different types, so that one
// is never passed for another.

#ifndef RINGKV_BASE_IDS_H_
#define RINGKV_BASE_IDS_H_

#include <compare>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringkv {

// A member's number: given once by the ring, from 1 up, never reused. 0 is
// nobody.
enum class NodeNumber : uint32_t {};
inline constexpr NodeNumber kNoNode{0};

// A keyspace's number: given once by the ring, from 1 up, never reused.
enum class KeyspaceId : uint32_t {};

// Numbers the decided rings of a cluster: 0 is "no ring yet", `init` decides 1.
using RingEpoch = uint64_t;

// A position on the ring; see base/token.h.
using Token = uint64_t;

inline uint32_t ToInt(NodeNumber node) { return static_cast<uint32_t>(node); }
inline uint32_t ToInt(KeyspaceId id) { return static_cast<uint32_t>(id); }

// 128 random bits that name a node's data directory (NodeId) or a cluster
// (ClusterId). Written as 32 hexadecimal digits; all zero is "none".
template <class Tag>
struct Id128 {
  uint64_t high = 0;
  uint64_t low = 0;

  auto operator<=>(const Id128&) const = default;
  bool IsNone() const { return high == 0 && low == 0; }
  std::string ToString() const;

  // INVALID_ARGUMENT unless `text` is exactly 32 hexadecimal digits.
  static absl::StatusOr<Id128> Parse(absl::string_view text);

  // 16 bytes, big-endian, as messages and records carry it.
  std::string ToBytes() const;
  // INVALID_ARGUMENT unless `bytes` are exactly 16.
  static absl::StatusOr<Id128> FromBytes(absl::string_view bytes);

  template <typename H>
  friend H AbslHashValue(H h, const Id128& id) {
    return H::combine(std::move(h), id.high, id.low);
  }
};

using NodeId = Id128<struct NodeIdTag>;
using ClusterId = Id128<struct ClusterIdTag>;

}  // namespace ringkv

#endif  // RINGKV_BASE_IDS_H_
