// Hints on disk: objects that this node keeps for replicas that were away. One
// record for each key, so that a stand-in's read finds it; one ordered index
// for each target, so that delivery goes in order. Bounds stop new hints only;
// a stored one goes when its target (or W replicas) has it, never before.
//
// Bookkeeping only: reads come as arguments, writes go into a batch. Owned by
// one shard; thread-compatible.

#ifndef RINGKV_STORAGE_HINTS_HINT_STORE_H_
#define RINGKV_STORAGE_HINTS_HINT_STORE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "storage/engine.h"

namespace ringkv {

struct HintStoreOptions {
  uint64_t bytes_max = 1ull << 30;               // stored for one target
  absl::Duration age_max = absl::Hours(24 * 7);  // of the oldest for one target
  int shard = 0;
  int shards = 1;
};

struct HintTarget {
  NodeNumber node{};
  int64_t created_ms = 0;  // wall time of the first hint for it under this key
  uint64_t sequence = 0;   // place in the target's order
  bool operator==(const HintTarget&) const = default;
};

// What stands in the `hints` family under HintRecordKey.
struct HintRecord {
  std::string object;               // encoded
  std::vector<HintTarget> targets;  // sorted by node, at least one
  bool operator==(const HintRecord&) const = default;
};
std::string EncodeHintRecord(const HintRecord& record);
// Does not decode the object. DATA_LOSS for bytes that EncodeHintRecord never
// made; INVALID_ARGUMENT for a newer format.
absl::StatusOr<HintRecord> DecodeHintRecord(absl::string_view bytes);

// "K" | keyspace (4) | token (8) | key, big-endian.
std::string HintRecordKey(KeyspaceId keyspace, Token token,
                          absl::string_view key);
struct HintRecordKeyParts {
  KeyspaceId keyspace{};
  Token token = 0;
  absl::string_view key;  // points into the argument
};
absl::StatusOr<HintRecordKeyParts> ParseHintRecordKey(
    absl::string_view record_key);

// The order index of one target: entries are "T" | target (4) | sequence (8),
// and their value is a HintRecordKey. [begin, end) holds those of all shards.
struct HintRange {
  std::string begin;
  std::string end;
};
HintRange HintIndexRange(NodeNumber target);
// Entries from `sequence` on.
HintRange HintIndexRangeFrom(NodeNumber target, uint64_t sequence);
// Records of one keyspace, of all shards.
HintRange HintKeyspaceRange(KeyspaceId keyspace);
// Sequence of an index key. DATA_LOSS if it is none.
absl::StatusOr<uint64_t> HintIndexSequence(absl::string_view index_key);

struct HintBacklogStats {
  uint64_t hints = 0;
  uint64_t bytes = 0;     // of the objects
  int64_t oldest_ms = 0;  // wall time, up to one second early; 0 if none
  uint64_t refused = 0;   // since the start of the run
  uint64_t delivered = 0;
};

class HintStore {
 public:
  explicit HintStore(HintStoreOptions options);

  // Rebuilds the backlogs from what is stored (this shard's part). Reads the
  // disk.
  absl::Status Recover(const Engine& engine);

  // Keeps `object` (encoded) for `targets` (at least one): merged with the
  // record that is there, `found` being what stands under its HintRecordKey,
  // with the turn's own writes; never kNotCached. A target that the record
  // names keeps its place. Writes nothing if the record holds all of it
  // already. RESOURCE_EXHAUSTED, naming target, limit and size, if a target's
  // bound is reached; DATA_LOSS if the stored record or the object is damaged;
  // INVALID_ARGUMENT if they have different conflict rules; the status of a
  // read that failed. Nothing is written then.
  absl::Status Add(WriteBatch& batch, const ReadResult& found,
                   KeyspaceId keyspace, Token token, absl::string_view key,
                   absl::string_view object,
                   const std::vector<NodeNumber>& targets, int64_t now_ms);

  // `target` (or enough others) holds the object with `delivered_digest`
  // (DigestOf) durably: takes it off the record, unless the record's object has
  // changed since; returns whether it did. The record goes with its last
  // target.
  absl::StatusOr<bool> RemoveTarget(WriteBatch& batch, const ReadResult& found,
                                    KeyspaceId keyspace, Token token,
                                    absl::string_view key, NodeNumber target,
                                    uint64_t delivered_digest);

  // Takes the whole record away, undelivered: its keyspace is gone. Returns
  // whether there was one.
  absl::StatusOr<bool> Drop(WriteBatch& batch, const ReadResult& found,
                            KeyspaceId keyspace, Token token,
                            absl::string_view key);

  // By target; only those with hints or counts. They change with Add and the
  // others, before the batch is committed.
  const std::map<NodeNumber, HintBacklogStats>& backlogs() const {
    return backlogs_;
  }

 private:
  // Hints for one target that were made in the same second: a map by hint would
  // outgrow the hints.
  static constexpr int64_t kAgeGroupMs = 1000;
  struct AgeGroup {
    uint64_t hints = 0;
    int64_t oldest_ms = 0;
  };

  absl::Status RecoverRecord(absl::string_view record_key,
                             absl::string_view value);
  absl::Status CheckBounds(NodeNumber target, uint64_t bytes_added,
                           int64_t now_ms);
  void CountIn(const HintTarget& target, uint64_t bytes);
  void CountOut(const HintTarget& target, uint64_t bytes);

  HintStoreOptions options_;
  // Sequences are (counter << 8) | shard: unique over the shards of a node,
  // which share each target's index.
  uint64_t next_counter_ = 1;
  std::map<NodeNumber, HintBacklogStats> backlogs_;
  // For each target, by creation time in seconds.
  std::map<NodeNumber, std::map<int64_t, AgeGroup>> ages_;
};

}  // namespace ringkv

#endif  // RINGKV_STORAGE_HINTS_HINT_STORE_H_
