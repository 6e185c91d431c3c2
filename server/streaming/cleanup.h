// Deletes, in this shard's slice, what the node holds no more. Walks over what
// is stored, so that a range without data costs nothing, and ends when the ring
// changes.

#ifndef RINGKV_SERVER_STREAMING_CLEANUP_H_
#define RINGKV_SERVER_STREAMING_CLEANUP_H_

#include "server/shard/core.h"

namespace ringkv {

class Cleanup final : public Operation {
 public:
  Cleanup(ShardCore& core, uint64_t id) : Operation(core, id) {}

  void Start();

  void OnReply(NodeNumber, DataBody&, Release) override {}
  void OnRing() override { core_.End(*this); }
  bool IsBackground() const override { return true; }

 private:
  // Looks for the next key from `next_` on.
  void Search();
  void Found(const absl::StatusOr<RangeResult>& range);

  size_t keyspace_ = 0;  // in the ring's
  Token next_ = 0;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_STREAMING_CLEANUP_H_
