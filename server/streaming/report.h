// How far a node is, from how far its shards are.

#ifndef RINGKV_SERVER_STREAMING_REPORT_H_
#define RINGKV_SERVER_STREAMING_REPORT_H_

#include <algorithm>
#include <vector>

#include "membership/control/messages.h"

namespace ringkv {

// The sum over the newest reports of all shards, one each; only of those that
// are about the newest operation named. Done if all are.
inline TransferReport SumOf(const std::vector<TransferReport>& shards) {
  TransferReport sum;
  for (const TransferReport& shard : shards) {
    sum.operation = std::max(sum.operation, shard.operation);
  }
  sum.done = sum.operation != 0;
  for (const TransferReport& shard : shards) {
    if (shard.operation != sum.operation) {
      sum.done = false;
      continue;
    }
    sum.ranges += shard.ranges;
    sum.ranges_done += shard.ranges_done;
    sum.keys += shard.keys;
    sum.bytes += shard.bytes;
    sum.done = sum.done && shard.done;
  }
  return sum;
}

}  // namespace ringkv

#endif  // RINGKV_SERVER_STREAMING_REPORT_H_
