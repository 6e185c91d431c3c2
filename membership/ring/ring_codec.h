// The ring as bytes: between RingSpec and ringkv.v1.RingSnapshot.
//
// Decoding checks what the message alone can tell (known enum values, lengths,
// sizes); Ring::Make then checks that the parts agree. Bytes that passed both
// are safe to use, wherever they came from. The bytes are not canonical:
// compare specs, not encodings.

#ifndef RINGKV_MEMBERSHIP_RING_RING_CODEC_H_
#define RINGKV_MEMBERSHIP_RING_RING_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "membership/ring/ring.h"
#include "ringkv/v1/ring.pb.h"

namespace ringkv {

// An encoded ring is never longer; 4 Mi tokens take 48 MiB.
inline constexpr size_t kEncodedRingBytesMax = 64 << 20;

std::string EncodeRing(const RingSpec& spec);

// INVALID_ARGUMENT if `bytes` are no RingSnapshot, hold an enum value that this
// version does not know, an id that is not 16 bytes long, or more members,
// keyspaces or tokens than a ring may have.
absl::StatusOr<RingSpec> DecodeRing(absl::string_view bytes);

// The same, for messages that carry a ring inside.
void RingToProto(const RingSpec& spec, v1::RingSnapshot* message);
absl::StatusOr<RingSpec> RingFromProto(const v1::RingSnapshot& message);

void MemberToProto(const Member& member, v1::Member* message);
absl::StatusOr<Member> MemberFromProto(const v1::Member& message);

void LocationToProto(const Location& location, v1::Location* message);
Location LocationFromProto(const v1::Location& message);

void KeyspaceToProto(const Keyspace& keyspace, v1::KeyspaceConfig* message);
absl::StatusOr<Keyspace> KeyspaceFromProto(const v1::KeyspaceConfig& message);

// INVALID_ARGUMENT for a value that this version does not know.
absl::StatusOr<PlacementStrategy> PlacementFromProto(
    v1::PlacementStrategy value);
v1::PlacementStrategy PlacementToProto(PlacementStrategy value);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_RING_RING_CODEC_H_
