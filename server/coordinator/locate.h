// Asks every replica and every stand-in what it holds of one key; repairs
// nothing.

#ifndef RINGKV_SERVER_COORDINATOR_LOCATE_H_
#define RINGKV_SERVER_COORDINATOR_LOCATE_H_

#include <set>

#include "server/shard/core.h"

namespace ringkv {

class LocateCoordinator final : public Operation {
 public:
  LocateCoordinator(ShardCore& core, uint64_t id) : Operation(core, id) {}

  void Start(CallId call, LocateCall locate, Instant deadline);

  void OnReply(NodeNumber from, DataBody& reply, Release release) override;
  void OnTimer() override;
  void OnPeersChanged() override;
  void OnCancelled(CallId call) override;

 private:
  LocateAnswer::Copy& CopyOf(NodeNumber node);
  void MaybeFinish();
  void Finish();

  CallId call_ = 0;
  Instant deadline_;
  Instant started_;
  std::set<NodeNumber> waiting_;
  LocateAnswer answer_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_LOCATE_H_
