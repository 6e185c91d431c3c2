// One shard of a node: replica and coordinator for the keys whose token maps to
// it. Single-threaded and deterministic: Step() is told what happened and what
// time it is, and appends to Effects what must now be done.

#ifndef RINGKV_SERVER_SHARD_SHARD_H_
#define RINGKV_SERVER_SHARD_SHARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/hlc.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "server/shard/events.h"
#include "storage/engine.h"

namespace ringkv {

struct ShardOptions {
  int shard = 0;   // this one, in [0, shards)
  int shards = 1;  // of the node; at most 256
  // This run of the node: 64 random bits, fresh at every start, never 0.
  uint64_t start_id = 1;

  // How far a fresh put may be stamped ahead of the wall clock.
  absl::Duration max_clock_drift = absl::Seconds(5);
  // A replica that has not answered a write within this share of the time left,
  // or its recent p99 if that is shorter (but never below the minimum), gets a
  // stand-in.
  double hint_after_share = 0.3;
  absl::Duration hint_after_min = absl::Milliseconds(10);
  absl::Duration hint_after_max = absl::Seconds(2);
  // Bounds on stored hints for one target.
  uint64_t hint_bytes_max = 1ull << 30;
  absl::Duration hint_age_max = absl::Hours(24 * 7);
  // Hint delivery: objects in flight to one target, and bytes a second over
  // all.
  uint32_t handoff_in_flight_max = 32;
  uint64_t handoff_bytes_per_second = 16ull << 20;
  // Reads: ask one more replica when the slowest is past its p95.
  bool hedged_reads = true;
  absl::Duration hedge_after_min = absl::Milliseconds(2);
  // Bytes a second that this node receives in a topology operation, over all
  // its shards; 0: no bound.
  uint64_t stream_rate = 0;
  // What the node holds no more is deleted so long after the ring has changed.
  absl::Duration drop_grace = absl::Minutes(1);
  // Operations that this shard coordinates at once; more are refused.
  uint32_t coordinations_max = 20000;
  // Remembered outcomes of puts with a request id.
  absl::Duration outcomes_kept = absl::Seconds(60);
  uint64_t outcome_bytes_max = 64ull << 20;
};

// Counters of one shard since the start of the run; names are those of metrics.
struct ShardStats {
  uint64_t gets = 0, puts = 0, deletes = 0, scans = 0, forwards = 0;
  uint64_t answered_ok = 0, answered_unavailable = 0, answered_deadline = 0,
           answered_refused = 0;
  uint64_t replica_reads = 0, replica_writes = 0, expired_dropped = 0;
  uint64_t read_repairs = 0, hedged_reads = 0, digest_mismatches = 0;
  uint64_t hints_stored = 0, hints_delivered = 0, hints_refused = 0;
  uint64_t stale_ring_refused = 0;
  uint64_t lww_dropped = 0, lww_ties = 0, unequal_dots = 0, large_clocks = 0;
  uint64_t repeats_answered = 0;
  uint64_t corrupt_reads = 0;
  uint64_t copies_rebuilt = 0;     // damaged, and made anew from other replicas
  uint64_t unchecked_refused = 0;  // reads, before peers had checked the disk
  // Topology operations: what was received and given, pieces that this node
  // refused, that it was refused, and that arrived damaged.
  uint64_t stream_keys_in = 0, stream_bytes_in = 0;
  uint64_t stream_keys_out = 0, stream_bytes_out = 0;
  uint64_t stream_chunks_refused = 0, stream_refusals = 0,
           stream_chunks_damaged = 0;
  uint64_t ranges_wiped = 0, ranges_dropped = 0;
  // Gauges.
  uint64_t stream_ranges_left = 0;
  uint64_t coordinations = 0;
  struct HintBacklog {
    uint64_t hints = 0, bytes = 0;
    int64_t oldest_ms = 0;  // wall time of the oldest; 0 if none
    uint64_t refused = 0, delivered = 0;
  };
  std::map<NodeNumber, HintBacklog> hints;  // by target
};

class Shard {
 public:
  // `engine` is read at ReadTier::kCached only, inside Step. `hlc` is shared by
  // all loops of the node. All outlive the shard.
  Shard(ShardOptions options, const Engine& engine, Hlc& hlc, Random& random);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Reads the stored hints of this shard. Call once before the first Step;
  // reads the disk.
  absl::Status Recover();

  // Advances on one event. Requires: `time.now` never goes back; between two
  // Steps whose effects are not committed yet only BeginTurn separates turns.
  void Step(const ShardEvent& event, Time time, Effects& effects);
  void Step(ShardEvent&& event, Time time, Effects& effects);

  // The loop has committed the batch of the turn: later reads find it in the
  // engine. `sequence` is what Engine::Write returned (or LastSequence()).
  void TurnCommitted(uint64_t sequence);
  // Everything up to `sequence` is fsynced.
  void Synced(uint64_t sequence);

  // When to Step with TimerFired at the latest; Instant::Infinite() if never.
  Instant NextTimer() const;

  // No new calls from now on; those that run go on. For SIGTERM.
  void Drain();
  // Coordinations, forwards and scans that still run.
  size_t in_flight() const;

  ShardStats Stats() const;

  // Dies with a message if a structural invariant is broken. For kvsim.
  void CheckInvariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_SHARD_SHARD_H_
