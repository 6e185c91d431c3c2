// Which of a node's loops gets what.

#ifndef RINGKV_SERVER_RPC_ROUTER_H_
#define RINGKV_SERVER_RPC_ROUTER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/rpc/loop_thread.h"

namespace ringkv {

// Thread-safe. The loops outlive it.
class Router {
 public:
  explicit Router(std::vector<LoopThread*> loops);

  int shards() const { return static_cast<int>(loops_.size()); }
  const std::vector<LoopThread*>& loops() const { return loops_; }

  // `count` ids in a row that no other call has in this run.
  CallId NewIds(uint64_t count) {
    return next_id_.fetch_add(count, std::memory_order_relaxed);
  }

  // The shard that coordinates a call: the one that owns the key; any for a
  // scan.
  int ShardOf(const ClientCall& call);

  // RESOURCE_EXHAUSTED if the loop has too much to do; nothing was begun then.
  absl::Status Post(int shard, PostedCall&& call);
  void Cancel(int shard, CallId id);
  void CancelRange(CallId first, uint64_t count);
  void CancelAll(uint64_t sink_serial);

  // Hands messages of a peer to the shards they are for.
  void Deliver(NodeNumber from, std::vector<DataMessage>&& messages);

 private:
  int ShardOf(const DataMessage& message) const;

  const std::vector<LoopThread*> loops_;
  std::atomic<CallId> next_id_{1};
  std::atomic<uint32_t> next_scan_{0};
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_ROUTER_H_
