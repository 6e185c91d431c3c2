// What a node has on disk about the ranges that it receives in a topology
// operation: which of them it has wiped before it accepted anything there, and
// how far each transfer has come. All of it belongs to one operation and is
// void in any other. A restart goes on from here, also with another number of
// shards.
//
// Owned by one shard; thread-compatible.

#ifndef RINGKV_SERVER_STREAMING_PROGRESS_H_
#define RINGKV_SERVER_STREAMING_PROGRESS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "membership/topology/segments.h"
#include "server/messages.h"
#include "storage/engine.h"

namespace ringkv {

// One transfer, or the part of it that lies in the slice of a shard, from one
// of its sources.
struct TransferId {
  RingEpoch operation = 0;  // TopologyOperation::id
  KeyspaceId keyspace{};
  TokenRange range;
  NodeNumber source{};
  auto operator<=>(const TransferId&) const = default;
};

struct TransferProgress {
  enum class Stage : uint8_t { kStreaming = 0, kVerifying = 1, kDone = 2 };
  Stage stage = Stage::kStreaming;
  StreamPosition next;  // kStreaming: all before it has been merged
  uint64_t keys = 0;    // received so far
  uint64_t bytes = 0;
  bool operator==(const TransferProgress&) const = default;
};

class TransferLog {
 public:
  // Reads what is stored, of all shards. Reads the disk. DATA_LOSS for records
  // that this class never made.
  absl::Status Recover(const Engine& engine);

  // The parts of `slice` that were not wiped in `operation`.
  std::vector<TokenRange> NotWiped(RingEpoch operation,
                                   const TokenRange& slice) const;
  void NoteWiped(WriteBatch& batch, RingEpoch operation,
                 const TokenRange& slice);

  // Where the transfer stands; at its start if nothing is known of it.
  TransferProgress Find(const TransferId& id) const;
  void Note(WriteBatch& batch, const TransferId& id,
            const TransferProgress& progress);

  // Forgets all that belongs to other operations.
  void KeepOnly(WriteBatch& batch, RingEpoch operation);

 private:
  std::map<RingEpoch, std::set<TokenRange>> wiped_;
  std::map<TransferId, TransferProgress> progress_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_STREAMING_PROGRESS_H_
