// The side of a transfer that has the range: answers with pieces of it, from
// the slice of this shard.

#ifndef RINGKV_SERVER_STREAMING_SOURCE_H_
#define RINGKV_SERVER_STREAMING_SOURCE_H_

#include "base/ids.h"
#include "server/messages.h"
#include "server/shard/core.h"

namespace ringkv {

// Answers `from` once a reader has fetched the piece. Refuses with kStaleRing
// what belongs to no running operation, or comes before every batch that was
// begun under an older ring is committed here: such a write could count in the
// old set alone and be missed. kNotReplica if this node does not hold the whole
// piece before the change; kUnchecked while its disk may be an old one; kFailed
// if it cannot be read.
void HandleStream(ShardCore& core, NodeNumber from,
                  const StreamRequest& request);

}  // namespace ringkv

#endif  // RINGKV_SERVER_STREAMING_SOURCE_H_
