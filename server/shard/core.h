// What the parts of a shard share: the store with the turn's own writes on top,
// messages to peers and to itself, timers, the ring, and the running
// operations. Internal to server/; adapters use shard.h.

#ifndef RINGKV_SERVER_SHARD_CORE_H_
#define RINGKV_SERVER_SHARD_CORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/hlc.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "membership/ring/ring.h"
#include "membership/topology/segments.h"
#include "server/coordinator/latency.h"
#include "server/coordinator/outcomes.h"
#include "server/shard/events.h"
#include "server/shard/shard.h"
#include "storage/engine.h"
#include "storage/hints/hint_store.h"
#include "storage/version/object.h"

namespace ringkv {

class ShardCore;

// Something that a shard runs across several steps: the coordination of a call,
// or the delivery of hints to one target. Ends exactly once; late replies,
// timers and loads for an ended operation are dropped by their number.
class Operation {
 public:
  Operation(ShardCore& core, uint64_t id) : core_(core), id_(id) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  uint64_t id() const { return id_; }

  // A reply by `from`. `release` is when an answer that builds on it may leave:
  // beyond kWritten only for a reply of this node itself.
  virtual void OnReply(NodeNumber from, DataBody& reply, Release release) = 0;
  virtual void OnTimer() {}
  // Replies sent in an older ring epoch are dropped: what their sender held
  // then may be gone, or is asked for again.
  virtual RingEpoch replies_since() const { return 0; }
  // Some peer changed between alive and not.
  virtual void OnPeersChanged() {}
  // A newer ring was adopted.
  virtual void OnRing() {}
  // The caller went away.
  virtual void OnCancelled(CallId call) {}
  // Works for no caller, and is not waited for when the node drains.
  virtual bool IsBackground() const { return false; }

 protected:
  ShardCore& core_;

 private:
  uint64_t id_;
};

using LoadCallback = std::function<void(const ReadResult&)>;

class ShardCore {
 public:
  ShardCore(ShardOptions options, const Engine& engine, Hlc& hlc,
            Random& random);

  // --- Facts ---
  const ShardOptions& options() const { return options_; }
  Instant now() const { return time_.now; }
  WallTime wall() const { return time_.wall; }
  bool has_ring() const { return ring_ != nullptr; }
  const std::shared_ptr<const Ring>& ring() const { return ring_; }
  NodeNumber self() const { return self_; }
  bool IsAlive(NodeNumber node) const {
    return node == self_ || PeerOf(node).alive;
  }
  PeerHealth PeerOf(NodeNumber node) const;
  std::vector<NodeNumber> AliveMembers() const;
  Hlc& hlc() { return hlc_; }
  Random& random() { return random_; }
  ShardStats& stats() { return stats_; }
  LatencyTracker& latency() { return latency_; }
  Outcomes& outcomes() { return outcomes_; }
  HintStore& hints() { return hints_; }
  // A majority of the members has checked this node's disk; until then it
  // answers no reads.
  bool checked() const { return checked_; }
  // Only deletes find room on the disk.
  bool read_only() const { return read_only_; }

  // --- Store ---
  // Calls `done` with what stands under `key`: the turn's own writes first,
  // then the engine. At once if memory has it, else when a reader has fetched
  // it; the callers for one key are served in order, and none writes it
  // meanwhile. What `done` captures must outlive it, or be looked up by number.
  void Load(Family family, const std::string& key, LoadCallback done);
  // As Load(), but only what is at hand: the turn's own writes and memory.
  ReadResult ReadNow(Family family, absl::string_view key) const;
  void Write(Family family, std::string key, std::string value);
  void Delete(Family family, std::string key);
  // Appends `batch` and makes its writes visible to later loads of this turn.
  void Apply(WriteBatch batch);
  // Deletes all of a keyspace in `range`. Loads from there that are under way
  // fail with ABORTED: what they bring is of before.
  void DropRange(KeyspaceId keyspace, const TokenRange& range);
  // Entries of [begin, end), as the engine has them (without the turn's
  // writes).
  void LoadRange(Family family, std::string begin, std::string end,
                 RangeLimits limits,
                 std::function<void(const absl::StatusOr<RangeResult>&)> done);

  // Merges `object` (encoded, of keyspace's mode) into the local replica, and
  // calls `done` with kOk, or kFailed and a reason. With kOk, what may leave
  // when is `ReleaseOf(keyspace, key)`.
  using MergeCallback = std::function<void(ReplyCode, std::string)>;
  void MergeLocal(const Keyspace& keyspace, const std::string& key,
                  std::string object, MergeCallback done);
  // Writes a stored record of a keyspace, remembering it as un-synced.
  void WriteRecord(const Keyspace& keyspace, const std::string& key,
                   Token token, const std::optional<OwnRecord>& own,
                   absl::string_view object);
  // Keeps a hint for `targets`. kOverloaded with the reason beyond a bound.
  void StoreHint(const Keyspace& keyspace, const std::string& key,
                 std::string object, std::vector<NodeNumber> targets,
                 MergeCallback done);
  // This node's copy of `key` cannot be read: it is counted, and rebuilt from
  // the other replicas (replica/rebuild.h).
  void NoteDamaged(const Keyspace& keyspace, const std::string& key);
  // Keys that were noted since the last call.
  std::vector<std::pair<KeyspaceId, std::string>> TakeDamaged() {
    return std::exchange(damaged_, {});
  }
  // A record was written since the start.
  bool has_written() const { return has_written_; }
  // The epoch of the ring under which, or under later ones, all batches were
  // made that are not committed yet.
  RingEpoch committed_epoch() const { return committed_epoch_; }
  // When an answer that shows what this node holds of `key` may leave.
  Release ReleaseOf(const Keyspace& keyspace, absl::string_view key) const;

  // --- Messages, answers, timers ---
  // To a peer, or to this node itself (then handled before the step ends).
  void Send(NodeNumber to, DataBody body, Release release = Release::kNow);
  void Answer(CallId call, ClientAnswer answer, Release release);
  // One timer for each operation; a new one replaces it.
  void SetTimer(const Operation& operation, Instant when);
  // Tells control how far this shard is, once that is fsynced.
  void ReportTransfers(const TransferReport& report);
  // A newer ring than ours is out there.
  void WantRing(NodeNumber from);

  // --- Operations ---
  uint64_t NextOperationId();
  template <class T, class... Args>
  T& Begin(Args&&... args) {
    const uint64_t id = NextOperationId();
    auto operation =
        std::make_unique<T>(*this, id, std::forward<Args>(args)...);
    T& result = *operation;
    operations_.emplace(id, std::move(operation));
    return result;
  }
  // Null if it ended.
  Operation* Find(uint64_t id);
  // Ends an operation; it is deleted when the current event has been handled.
  void End(const Operation& operation);
  // Binds a client call to the operation that will answer it.
  void BindCall(CallId call, uint64_t operation) { calls_[call] = operation; }

 private:
  friend class Shard;

  struct PendingLoad {
    std::deque<LoadCallback> waiting;
    uint64_t job = 0;
  };
  using StorageKey = std::pair<Family, std::string>;

  // Handled before the step ends.
  struct LocalMessage {
    DataBody body;
    Release release;  // of a reply: when what builds on it may leave
  };

  ShardOptions options_;
  const Engine& engine_;
  Hlc& hlc_;
  Random& random_;
  Time time_{};
  Effects* effects_ = nullptr;

  std::shared_ptr<const Ring> ring_;
  NodeNumber self_ = kNoNode;
  std::shared_ptr<const PeerView> peers_;
  bool checked_ = false;
  bool read_only_ = false;

  ShardStats stats_;
  LatencyTracker latency_;
  Outcomes outcomes_;
  HintStore hints_;

  // The turn's own writes: absent value means deleted.
  absl::flat_hash_map<std::string, std::optional<std::string>>
      overlay_[kFamilies];
  // Storage keys [first, second) that the turn has deleted before what stands
  // in the overlay.
  std::vector<std::pair<std::string, std::string>> dropped_;
  std::vector<LoadCallback> dropped_loads_;
  bool has_written_ = false;
  RingEpoch committed_epoch_ = 0;
  std::map<StorageKey, PendingLoad> loads_;
  std::map<uint64_t, StorageKey> load_jobs_;
  std::map<uint64_t, std::function<void(const absl::StatusOr<RangeResult>&)>>
      range_jobs_;
  uint64_t next_job_ = 1;
  // Found in this step.
  std::vector<std::pair<KeyspaceId, std::string>> damaged_;

  // Keys of `sync` keyspaces that were written and not fsynced yet, by hash,
  // with the turn or, once committed, the sequence they wait for.
  absl::flat_hash_map<uint64_t, uint64_t> unsynced_;
  std::vector<uint64_t> written_this_turn_;
  std::deque<std::pair<uint64_t, std::vector<uint64_t>>> unsynced_order_;

  std::deque<LocalMessage> local_;
  std::map<uint64_t, std::unique_ptr<Operation>> operations_;
  std::vector<std::unique_ptr<Operation>> ended_;
  std::map<CallId, uint64_t> calls_;
  uint64_t next_operation_ = 0;
  std::set<std::pair<Instant, uint64_t>> timers_;
  absl::flat_hash_map<uint64_t, Instant> timer_of_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_SHARD_CORE_H_
