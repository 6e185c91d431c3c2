// One turn of a shard's loop: step the machine over what came in, write all it
// wrote as one batch, then let go what was waiting for that. "Durable before
// acknowledged" is kept here and nowhere else. No thread, no clock: the real
// loop and the simulator both drive this class.

#ifndef RINGKV_SERVER_LOOP_TURN_LOOP_H_
#define RINGKV_SERVER_LOOP_TURN_LOOP_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "server/shard/events.h"
#include "server/shard/shard.h"
#include "storage/engine.h"

namespace ringkv {

// What the shell must do now.
struct Released {
  std::vector<OutgoingMessage> messages;  // `release` is spent
  std::vector<OutgoingAnswer> answers;
  std::vector<ReadJob> reads;
  // The newest epoch that the shard has adopted, with every batch that it began
  // under an older one committed, and what the adoption wrote fsynced. 0: no
  // news.
  RingEpoch adopted = 0;
  std::optional<TransferReport> transfers;
  bool wants_ring = false;
  NodeNumber wants_ring_from{};
  // Something waits for a sync beyond what has been requested: call
  // Engine::Sync() on the commit thread, then Synced() with its result.
  bool wants_sync = false;
  void Clear();
};

class TurnLoop {
 public:
  // Both outlive the loop.
  TurnLoop(Shard& shard, Engine& engine);

  // Steps the shard over `events` (left empty), unless a stalled batch is kept:
  // then only that is tried again, and `events` stays as it is. Returns an
  // error if the engine can no longer be trusted; the node must stop.
  absl::Status Turn(std::vector<ShardEvent>& events, Time time,
                    Released& released);

  // The engine stalls: Turn takes no input. Try again soon.
  bool stalled() const { return stalled_; }

  void Synced(uint64_t sequence, Released& released);

  // Messages and answers that wait for a sync.
  size_t waiting() const { return waiting_.size(); }

  // The two halves of Turn, for a simulator that crashes between them: after
  // Run the batch is not written and only `kNow` messages are released; Commit
  // writes and releases the rest.
  void Run(std::vector<ShardEvent>& events, Time time, Released& released);
  absl::Status Commit(Released& released);

 private:
  struct Waiting {
    uint64_t sequence;
    std::variant<OutgoingMessage, OutgoingAnswer, RingEpoch, TransferReport>
        what;
  };

  static void LetGo(Waiting& waiting, Released& released);
  // Now if all up to `sequence` is fsynced, else then.
  void LetGoSynced(Waiting waiting, Released& released);

  Shard& shard_;
  Engine& engine_;
  Effects effects_;
  bool stalled_ = false;
  uint64_t synced_ = 0;
  std::deque<Waiting> waiting_;  // by sequence
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_LOOP_TURN_LOOP_H_
