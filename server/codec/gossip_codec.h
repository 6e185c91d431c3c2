// Gossip between structs and protobuf. What arrives is hostile: ids, enums,
// counts and sizes are checked before a struct exists. Pure functions, without
// gRPC.

#ifndef RINGKV_SERVER_CODEC_GOSSIP_CODEC_H_
#define RINGKV_SERVER_CODEC_GOSSIP_CODEC_H_

#include "absl/status/statusor.h"
#include "membership/gossip/messages.h"
#include "ringkv/internal/v1/gossip.pb.h"

namespace ringkv {

// Fills `out`, which must be empty. Texts and lists above their limits are cut.
void GossipToProto(const GossipMessage& message,
                   internal::v1::GossipMessage& out);

// INVALID_ARGUMENT names the field, its limit and what was found.
absl::StatusOr<GossipMessage> GossipFromProto(
    const internal::v1::GossipMessage& in);

}  // namespace ringkv

#endif  // RINGKV_SERVER_CODEC_GOSSIP_CODEC_H_
