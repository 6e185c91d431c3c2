// The thread of one shard: takes what others handed in, makes one turn of it,
// and hands out what the turn released: answers to their calls, one batch of
// messages to each peer, reads to the reader pool.
//
// Thread-safe but for the constructor and Start/Stop, which one thread calls.

#ifndef RINGKV_SERVER_RPC_LOOP_THREAD_H_
#define RINGKV_SERVER_RPC_LOOP_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "server/loop/turn_loop.h"
#include "server/rpc/call_sink.h"
#include "server/rpc/mailbox.h"
#include "server/rpc/pulse.h"
#include "server/shard/shard.h"
#include "storage/engine.h"

namespace ringkv {

// A call with the place that its answer goes to.
struct PostedCall {
  CallId id = 0;
  CallHandle handle;
  ClientCall call;
  Instant deadline;
};

class LoopThread {
 public:
  // What the loop needs of the rest of the node. Called on the loop's thread.
  struct Hooks {
    // Sends to a peer; may lose.
    std::function<void(LinkId link, std::vector<DataMessage>&& messages)> send;
    // Messages that this node sends to itself.
    std::function<void(NodeNumber self, std::vector<DataMessage>&& messages)>
        send_self;
    std::function<void(ReadJob&& job)> read;
    std::function<void()> wants_sync;
    std::function<void(NodeNumber from)> wants_ring;
    // After the turn: the clock's bound is near, if it is.
    std::function<void()> check_clock;
    // What the shard has received in the running topology operation.
    std::function<void(const TransferReport& report)> transfers;
    // The engine can no longer be trusted; the loop has ended.
    std::function<void(absl::Status)> failed;
  };

  struct Limits {
    // Of what waits in the mailbox; beyond, calls are refused and messages of
    // peers are dropped.
    size_t mailbox_items_max = 100000;
    size_t mailbox_bytes_max = 256 << 20;
  };

  // `engine` outlives the loop. `shard` has recovered.
  LoopThread(std::unique_ptr<Shard> shard, Engine& engine, Limits limits,
             Hooks hooks);
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  void Start();
  // What the loop has not answered yet is answered UNAVAILABLE, and so is what
  // comes: for a stop that a stalled engine would hold up for ever.
  void GiveUp();
  // Ends the thread after its present turn and waits for it. Calls that still
  // run are answered UNAVAILABLE.
  void Stop();

  // False, and `call` is left as it was, if the loop has too much to do.
  bool Offer(PostedCall&& call);
  // False if the message was dropped for the same reason.
  bool Offer(MessageArrived&& message);
  // Calls [first, first + count) will not be waited for.
  void Cancel(CallId first, uint64_t count);
  // Nor will any call of this sink.
  void CancelAll(uint64_t sink_serial);
  // `adopted` is called once every batch that was begun under an older ring is
  // committed, and what the adoption wrote is fsynced.
  void Adopt(RingAdopted ring, std::function<void()> adopted);
  void PeersChange(PeersChanged peers);
  void Begin(BeginTransfers begin);
  void ReadEnds(ReadDone done);
  // Everything up to `sequence` is durable.
  void Synced(uint64_t sequence);
  // No new calls; see Shard::Drain.
  void Drain();
  // While set, puts of clients and writes of peers are refused: the space that
  // is left on the disk is kept for the store itself. Deletes go on.
  void SetReadOnly(bool read_only);

  // As of the last turn.
  size_t in_flight() const { return in_flight_.load(); }
  bool drained() const { return drained_.load() && in_flight() == 0; }
  // As of at most a second ago.
  ShardStats Stats() const;
  // It turns at least once a second, unless something holds it up.
  const Pulse& pulse() const { return pulse_; }
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  uint64_t stalls() const { return stalls_.load(std::memory_order_relaxed); }
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  size_t waiting() const { return mailbox_.size(); }

 private:
  struct CancelCalls {
    CallId first;
    uint64_t count;
  };
  struct CancelSink {
    uint64_t serial;
  };
  struct AdoptRing {
    RingAdopted ring;
    std::function<void()> adopted;
  };
  struct DrainNow {};
  struct GiveUpNow {};
  using Item = std::variant<PostedCall, MessageArrived, CancelCalls, CancelSink,
                            AdoptRing, PeersChanged, ReadOnlyChanged, ReadDone,
                            BeginTransfers, DrainNow, GiveUpNow>;

  void Run();
  void Accept(Item&& item, Instant now);
  void Accept(PostedCall&& call, Instant now);
  // What waits while the engine stalls for longer than a client should wait.
  void RefuseWaiting();
  void Answer(const CallHandle& handle, ClientAnswer&& answer);
  void Fail(CallId id, absl::Status status);
  void HandOut(Released& released);
  void TellAdopted(RingEpoch epoch);
  void FlushSinks();
  void PublishStats(Instant now);
  void EndCalls();
  void AnswerAll();

  const std::unique_ptr<Shard> shard_;
  TurnLoop turn_;
  const Hooks hooks_;
  Mailbox<Item> mailbox_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> synced_{0};
  std::atomic<size_t> in_flight_{0};
  std::atomic<bool> drained_{false};
  Pulse pulse_;
  std::atomic<uint64_t> turns_{0};
  std::atomic<uint64_t> stalls_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> refused_{0};

  mutable std::mutex stats_mutex_;
  ShardStats stats_;  // under stats_mutex_

  // Of the loop's thread.
  std::vector<ShardEvent> events_;
  absl::flat_hash_map<CallId, CallHandle> calls_;
  std::vector<CallSink*> flushes_;
  std::vector<std::pair<RingEpoch, std::function<void()>>> adoptions_;
  std::shared_ptr<const PeerView> peers_;
  NodeNumber self_ = kNoNode;
  bool draining_ = false;
  bool gave_up_ = false;
  std::map<NodeNumber, std::vector<DataMessage>> outgoing_;
  uint64_t synced_told_ = 0;
  Instant stalled_since_{};  // 0: not stalled
  std::vector<Item> kept_;   // taken while stalled, for afterwards
  Instant stats_due_;

  std::thread thread_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_LOOP_THREAD_H_
