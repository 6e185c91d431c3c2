// A node as replica, or as stand-in: answers reads, merges writes, keeps hints
// and lists ranges for coordinators, its own included.

#ifndef RINGKV_SERVER_REPLICA_REPLICA_H_
#define RINGKV_SERVER_REPLICA_REPLICA_H_

#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "server/messages.h"
#include "server/shard/core.h"

namespace ringkv {

// What a node answers whose disk is nearly full.
inline constexpr absl::string_view kDiskReserved =
    "the disk of this node is nearly full and takes no more values; nothing "
    "was done";

// Each answers `from` through `core`, at once or when a reader has fetched what
// is needed. `epoch` is the sender's.
void HandleRead(ShardCore& core, NodeNumber from, RingEpoch epoch,
                const ReadRequest& request);
void HandleWrite(ShardCore& core, NodeNumber from, RingEpoch epoch,
                 WriteRequest request);
void HandleRange(ShardCore& core, NodeNumber from, RingEpoch epoch,
                 const RangeRequest& request);

}  // namespace ringkv

#endif  // RINGKV_SERVER_REPLICA_REPLICA_H_
