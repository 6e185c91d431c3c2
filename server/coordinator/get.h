// Coordinates one read.
//
//   reading --R answers, all equal--> answered
//      |                                  (strict: when enough replicas hold
//      it)
//      +--R answers, some differ--> gathering --full values--> answered
//
// The full value comes from the first replica (this node itself if it is one),
// digests from the others. Replicas that are down are stood in for by
// fallbacks, which answer from hints only. Stale replicas are repaired with the
// merged object; at strict the answer waits until N-R+1 replicas hold what it
// returns. While the ring is changed, reads ask the read set only, and at
// strict N-R+1 of each set that writes go to must hold the result: later reads
// may ask the other one.

#ifndef RINGKV_SERVER_COORDINATOR_GET_H_
#define RINGKV_SERVER_COORDINATOR_GET_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/coordinator/quorum.h"
#include "server/shard/core.h"

namespace ringkv {

class GetCoordinator final : public Operation {
 public:
  GetCoordinator(ShardCore& core, uint64_t id) : Operation(core, id) {}

  // Exactly one of these begins it. `call` gets the answer.
  void Start(CallId call, GetCall get, Instant deadline);
  // For a call that a peer forwarded: answers it under `operation`.
  void StartForwarded(NodeNumber from, uint64_t operation, GetCall get,
                      Instant deadline);

  void OnReply(NodeNumber from, DataBody& reply, Release release) override;
  void OnTimer() override;
  void OnPeersChanged() override;
  void OnRing() override;
  void OnCancelled(CallId call) override;
  RingEpoch replies_since() const override {
    return keyspace_ == nullptr ? 0 : keyspace_->changed_at;
  }

 private:
  struct Asked {
    NodeNumber stands_for{};  // for a stand-in: the replica it stands for
    bool home = false;
    ReadKind kind = ReadKind::kFull;
    Instant sent;
    bool answered = false;
    bool failed = false;
    ReplyCode code = ReplyCode::kOk;
    bool found = false;
    uint64_t digest = 0;
    std::optional<std::string> object;  // of a full read that found something
    bool full = false;                  // a full read was answered
  };

  void Begin();
  // Sends to `node` and remembers it.
  void Ask(NodeNumber node, bool home, NodeNumber stands_for, ReadKind kind);
  // Asks replicas, then stand-ins, until R answers are possible.
  void AskMore(uint32_t at_most);
  bool AskNextReplica();
  bool AskNextFallback();
  void Evaluate();
  void Merge();
  void Repair();
  // Enough replicas hold the result that a strict read may show it.
  bool HeldByEnough() const;
  void MaybeFinish();
  void Succeed();
  void Fail(absl::Status status);
  void FailUnavailable(absl::string_view why);
  void Reply(ClientAnswer answer);
  void ArmTimer();
  ClientAnswer MakeAnswer() const;

  CallId call_ = 0;
  NodeNumber forwarded_from_{};
  uint64_t forwarded_operation_ = 0;
  GetCall get_;
  Instant deadline_;
  Instant started_;

  std::shared_ptr<const Ring> ring_;
  const Keyspace* keyspace_ = nullptr;  // of ring_
  Token token_ = 0;
  QuorumNeed need_;
  WriteSets sets_;                     // must hold what a strict read shows
  std::vector<NodeNumber> replicas_;   // in the order they are tried
  std::vector<NodeNumber> fallbacks_;  // filled when first needed
  bool fallbacks_known_ = false;
  std::map<NodeNumber, Asked> asked_;
  Instant hedge_at_ = Instant::Infinite();

  bool gathering_ = false;  // enough have answered; objects may be missing
  bool merged_ = false;
  std::string result_;            // encoded; empty: nothing found
  Object object_;                 // of result_
  std::set<NodeNumber> holders_;  // replicas known to hold result_
  std::set<NodeNumber> repairs_sent_;
  Release release_ = Release::kWritten;
  bool cancelled_ = false;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_GET_H_
