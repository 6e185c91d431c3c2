// Hands a client call to a replica of its key, and its answer back.
//
// Reads go to the next replica when one does not answer. A put or delete
// without a context is handed over once: if its fate is not known it must not
// be tried elsewhere, where it would get another dot.

#ifndef RINGKV_SERVER_COORDINATOR_FORWARD_H_
#define RINGKV_SERVER_COORDINATOR_FORWARD_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/shard/core.h"

namespace ringkv {

class ForwardCoordinator final : public Operation {
 public:
  ForwardCoordinator(ShardCore& core, uint64_t id) : Operation(core, id) {}

  // `only` and `only_start_id` bind a repeat to the node and run that it was
  // first handed to; kNoNode: any live replica.
  void Start(CallId call, ClientCall request, Instant deadline, NodeNumber only,
             uint64_t only_start_id);
  // A repeat of the running call.
  void Join(CallId call);

  void OnReply(NodeNumber from, DataBody& reply, Release release) override;
  void OnTimer() override;
  void OnPeersChanged() override;
  void OnCancelled(CallId call) override;

 private:
  // Hands it to the next replica. False if none is left.
  bool HandOn();
  void AnswerAll(ClientAnswer answer);
  void Fail(absl::string_view why, bool may_take_effect);
  void ArmTimer();
  // May it run twice without harm?
  bool Repeatable() const;

  std::vector<CallId> calls_;
  ClientCall request_;
  Instant deadline_;
  Instant started_;
  NodeNumber only_{};
  uint64_t only_start_id_ = 0;
  std::set<NodeNumber> tried_;
  std::map<NodeNumber, Instant> waiting_;  // handed to, not answered
  std::string refusals_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_FORWARD_H_
