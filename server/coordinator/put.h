// Coordinates one put or delete.
//
//   reading a context --enough answers or time--> minting --> distributing
//        (only without one)                                   |       |
//                                                    W acks --> answered, but
//                                                    it
//                          goes on until every replica has it or a hint is
//                          stored
//
// The coordinator puts the new value on top of what it holds itself, under a
// dot that is new in the history of the cluster, and sends the whole object to
// every natural replica. A replica that is down or does not answer in time gets
// a stand-in: the next fallback keeps the object with a hint.
//
// While the ring is changed, all of this goes for the replicas before and after
// the change together, and W must be reached in each of the two sets.

#ifndef RINGKV_SERVER_COORDINATOR_PUT_H_
#define RINGKV_SERVER_COORDINATOR_PUT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/planted.h"
#include "server/coordinator/quorum.h"
#include "server/shard/core.h"

namespace ringkv {

class PutCoordinator final : public Operation {
 public:
  PutCoordinator(ShardCore& core, uint64_t id) : Operation(core, id) {}

  // Exactly one of these begins it. `minted` is set in a repeat of a put that
  // failed: the same dot goes on.
  void Start(CallId call, PutCall put, Instant deadline,
             std::shared_ptr<const MintedWrite> minted);
  void StartForwarded(NodeNumber from, uint64_t operation, PutCall put,
                      Instant deadline,
                      std::shared_ptr<const MintedWrite> minted);
  // A repeat of the running put: it is answered with it.
  void Join(CallId call);
  void JoinForwarded(NodeNumber from, uint64_t operation);

  void OnReply(NodeNumber from, DataBody& reply, Release release) override;
  void OnTimer() override;
  void OnPeersChanged() override;
  void OnRing() override;
  void OnCancelled(CallId call) override;
  RingEpoch replies_since() const override {
    if (Planted("put-kept-over-refresh")) return 0;
    return keyspace_ == nullptr ? 0 : keyspace_->changed_at;
  }

 private:
  enum class State { kReading, kMinting, kDistributing };

  // Where one replica stands, natural or pending.
  struct Replica {
    bool sent = false;
    bool acked = false;
    bool failed = false;  // refused, down, or overdue: wants a stand-in
    ReplyCode code = ReplyCode::kOk;
    std::string reason;
    Instant sent_at;
    bool hinted = false;          // a stand-in holds it
    NodeNumber asked_stand_in{};  // that has not answered yet
    Instant stand_in_sent_at;
  };

  void Begin();
  // What the ring does not allow, before or after something was written.
  void Refuse(const absl::Status& status);
  void BeginReading();
  void AskContext(NodeNumber node, bool from_hints);
  // One more replica in place of one that failed or is slow.
  bool AskContextOfAnother();
  void FinishReading();
  void Mint();
  void MintOn(const ReadResult& found, bool is_replica);
  void Distribute();
  void SendTo(NodeNumber replica);
  void AssignStandIns();
  bool IsStandInCandidate(NodeNumber node) const;
  void OnWriteReply(NodeNumber from, const WriteReply& reply, Release release);
  void Evaluate();
  void MaybeEnd();
  struct Counted {
    uint32_t from_replicas = 0;
    uint32_t from_stand_ins = 0;
    bool operator==(const Counted&) const = default;
  };
  Counted AllAcks() const;
  // How many acknowledgements count towards the W of `set`.
  uint32_t AcksIn(const WriteSet& set) const;
  bool EnoughAcks() const;
  // Somebody may still answer for a replica of `set`.
  bool HasHope(const WriteSet& set) const;
  void AnswerOk();
  void AnswerError(absl::Status status);
  void AnswerUnavailable(absl::string_view why);
  void AnswerAll(const ClientAnswer& answer);
  void ArmTimer();
  absl::Duration HintAfter(NodeNumber node) const;

  struct Waiter {
    CallId call = 0;
    NodeNumber from{};
    uint64_t operation = 0;
  };

  std::vector<Waiter> waiters_;
  PutCall put_;
  Instant deadline_;
  Instant started_;
  Instant answer_by_;
  State state_ = State::kReading;
  bool answered_ = false;

  std::shared_ptr<const Ring> ring_;
  const Keyspace* keyspace_ = nullptr;
  Token token_ = 0;
  QuorumNeed need_;  // of the read set
  WriteSets sets_;   // of ring_
  Context context_;  // given, or read here
  bool has_context_ = false;

  // Reading.
  std::map<NodeNumber, Instant> reads_sent_;  // and not answered yet
  std::set<NodeNumber> reads_asked_;          // ever
  uint32_t reads_answered_ = 0;
  uint32_t reads_needed_ = 0;
  bool reading_must_reach_ = false;
  Instant read_until_;
  Instant hedge_at_ = Instant::Infinite();

  // Distributing.
  std::shared_ptr<const MintedWrite> minted_;
  std::map<NodeNumber, Replica> replicas_;
  std::vector<NodeNumber> fallbacks_;
  size_t next_fallback_ = 0;
  bool fallbacks_known_ = false;
  std::map<NodeNumber, std::vector<NodeNumber>>
      hint_acks_;  // holder -> for whom
  Release release_ = Release::kWritten;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_PUT_H_
