// Receives one range from one source: the objects, piece by piece, then one
// pass over the digests of all that the source has.
//
//   asking --chunk--> merging --all merged: cursor kept--> asking ...
//      |                                            (range through)
//      v
//   listing --digests--> comparing --what is lacking: fetched, merged-->
//   listing ... --range through--> done, or once more if anything older than
//                                  the barrier was lacking
//
// Ends without success at the first refusal, loss or damage; the owner starts
// it again, from the cursor, after a pause.

#ifndef RINGKV_SERVER_STREAMING_RANGE_STREAM_H_
#define RINGKV_SERVER_STREAMING_RANGE_STREAM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/handoff/handoff.h"
#include "server/shard/core.h"
#include "server/streaming/progress.h"

namespace ringkv {

class RangeStream final : public Operation {
 public:
  // Told what comes of the stream. Outlives it.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Everything up to `progress` is merged in this turn or before.
    virtual void OnProgress(const TransferId& id,
                            const TransferProgress& progress) = 0;
    // It has ended; done if its last progress says so.
    virtual void OnEnd(const TransferId& id) = 0;
  };

  RangeStream(ShardCore& core, uint64_t id) : Operation(core, id) {}

  // `barrier`: what is stamped above it reaches both sides by itself.
  void Start(Owner* owner, HandoffBudget* budget, const TransferId& transfer,
             const TransferProgress& progress, HlcTimestamp barrier);

  void OnReply(NodeNumber from, DataBody& reply, Release release) override;
  void OnTimer() override;
  void OnPeersChanged() override;
  bool IsBackground() const override { return true; }
  RingEpoch replies_since() const override { return transfer_.operation; }

 private:
  // Waiting for the budget if `request_` has not been sent.
  enum class State { kWaiting, kAsking, kMerging };

  // Asks for what follows `at`.
  void AskFrom(StreamPosition at);
  void SendWhenAllowed();
  void OnChunk(StreamChunk& chunk);
  void MergeChunk(StreamChunk& chunk);
  void CompareChunk(StreamChunk& chunk);
  void Compared(const std::string& key, uint64_t digest,
                const ReadResult& found);
  void FetchLacking();
  void OnFetched(StreamChunk& chunk);
  // One of the objects of the piece at hand is merged, or could not be.
  void Merged(ReplyCode code);
  void PieceDone();
  void PassDone();
  void Fail();
  bool verifying() const {
    return progress_.stage == TransferProgress::Stage::kVerifying;
  }

  Owner* owner_ = nullptr;
  HandoffBudget* budget_ = nullptr;
  TransferId transfer_;
  TransferProgress progress_;
  HlcTimestamp barrier_{};
  State state_ = State::kWaiting;
  StreamRequest request_;

  // The piece at hand.
  bool complete_ = false;
  StreamPosition next_;
  size_t pending_ = 0;  // objects that are being compared or merged
  bool failed_ = false;
  // Keys whose objects differ at the source, with what is held here. They are
  // fetched one by one.
  std::map<std::string, std::string> lacking_;
  // Anything older than the barrier was lacking in this pass.
  bool lacked_old_ = false;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_STREAMING_RANGE_STREAM_H_
