// The border of a shard: what it is told and what it answers with. A shard
// never waits, sends, writes or reads a clock; the loop (server/loop) does.

#ifndef RINGKV_SERVER_SHARD_EVENTS_H_
#define RINGKV_SERVER_SHARD_EVENTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/time.h"
#include "membership/control/messages.h"
#include "membership/control/peers.h"
#include "membership/ring/ring.h"
#include "server/messages.h"
#include "storage/engine.h"

namespace ringkv {

// Names a client call towards the adapter that posted it.
using CallId = uint64_t;

// --- Events ---

struct CallArrived {
  CallId id = 0;
  ClientCall call;
  Instant deadline;
};

// The client went away; the answer will not be read. Writes that were sent
// stay.
struct CallCancelled {
  CallId id = 0;
};

struct MessageArrived {
  NodeNumber from{};
  DataMessage message;
};

// A newer ring. Given to every shard before the node acknowledges the epoch.
struct RingAdopted {
  std::shared_ptr<const Ring> ring;
  NodeNumber self{};  // this node's number in it
};

// Who can be routed to; see membership/control/peers.h.
struct PeersChanged {
  std::shared_ptr<const PeerView> peers;
  // False while this node's clock is so far ahead of its peers' that it must
  // not coordinate writes.
  bool clock_ok = true;
  // A majority of the members has checked this node's disk; until then what it
  // reads does not count towards R.
  bool checked = true;
};

// The disk's reserve is being used up (or is free again): what is left is kept
// for the store itself and for deletes.
struct ReadOnlyChanged {
  bool read_only = false;
};

// A read that the shard had ordered is done.
struct ReadDone {
  uint64_t job = 0;
  ReadResult result;                                  // of a point read
  absl::StatusOr<RangeResult> range = RangeResult{};  // of a range read
};

// In the running topology operation no quorum can be formed on an older ring
// any more: what this node must receive may now be fetched. Given again after a
// restart.
struct BeginTransfers {
  RingEpoch operation = 0;
};

// Time has reached Shard::NextTimer().
struct TimerFired {};

using ShardEvent = std::variant<CallArrived, CallCancelled, MessageArrived,
                                RingAdopted, PeersChanged, ReadOnlyChanged,
                                ReadDone, BeginTransfers, TimerFired>;

// --- Effects ---

// When an outgoing message or answer may leave.
enum class Release : uint8_t {
  kNow = 0,      // before the turn's batch is written
  kWritten = 1,  // once the turn's batch is in the log
  kSynced = 2,   // once everything written up to this turn is fsynced
};

struct OutgoingMessage {
  NodeNumber to{};
  DataMessage message;
  Release release = Release::kWritten;
};

struct OutgoingAnswer {
  CallId id = 0;
  ClientAnswer answer;
  Release release = Release::kWritten;
};

// A read that may touch the disk, for the reader pool: a point read of `begin`
// if `is_range` is false, else entries of [begin, end) within `limits`.
struct ReadJob {
  uint64_t job = 0;
  bool is_range = false;
  Family family = Family::kData;
  std::string begin;
  std::string end;
  RangeLimits limits;
};

struct Effects {
  WriteBatch batch;
  std::vector<OutgoingMessage> messages;
  std::vector<OutgoingAnswer> answers;
  std::vector<ReadJob> reads;
  // Set when this turn has adopted a ring, and when transfers got on: the
  // newest of each. Both may leave once the turn's batch is fsynced.
  RingEpoch adopted = 0;
  std::optional<TransferReport> transfers;
  bool wants_ring = false;  // a peer has a newer epoch: fetch it
  NodeNumber wants_ring_from{};
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_SHARD_EVENTS_H_
