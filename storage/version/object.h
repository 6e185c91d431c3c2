// What is stored under a key: the versions that are alive, and a clock of all
// that were ever merged in.
//
// In a `siblings` keyspace an object is a dotted version vector set: a clock
// (actor -> counter) and the sibling values with their dots. A dot that the
// clock covers and that no sibling carries has been replaced. In an `lww`
// keyspace an object has an empty clock and at most one value; the greater
// stamp wins. An object with no sibling is a tombstone; `newest` is then the
// stamp of the delete.
//
// Merge is commutative, associative and idempotent, so replicas, hints, read
// repair and streams all apply one operation. What is sent is always a whole
// merged object, never a value with a bare clock: a delta would cover siblings
// that the receiver has and the sender had not.
//
// Source: Almeida et al., "Scalable and accurate causality tracking for
// eventually consistent stores", DAIS 2014; decisions 0003 and 0004 in
// docs/decisions.

#ifndef RINGKV_STORAGE_VERSION_OBJECT_H_
#define RINGKV_STORAGE_VERSION_OBJECT_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/hlc.h"
#include "base/ids.h"

namespace ringkv {

enum class ObjectMode : uint8_t { kSiblings = 0, kLww = 1 };

// One life of one writer: `birth` is 64 random bits drawn anew for each actor,
// so that no crash, restored disk or clone ever continues another's counters.
struct Actor {
  NodeNumber node{};
  uint64_t birth = 0;
  auto operator<=>(const Actor&) const = default;
};

// Names one write: the `counter`-th of its actor, from 1.
struct Dot {
  Actor actor;
  uint64_t counter = 0;
  auto operator<=>(const Dot&) const = default;
};

// When a write was made, and by which coordinator; decides in `lww`.
struct Stamp {
  HlcTimestamp hlc{};
  NodeNumber node{};
  auto operator<=>(const Stamp&) const = default;
};

struct Sibling {
  Dot dot;  // all zero in `lww`
  Stamp stamp;
  int64_t expires_at_ms = 0;  // wall time in ms since 1970; 0 is never
  std::string value;
  bool operator==(const Sibling&) const = default;
};

struct ClockEntry {
  Actor actor;
  uint64_t counter = 0;
  bool operator==(const ClockEntry&) const = default;
};

// Sorted by actor, each once, counters at least 1.
class Clock {
 public:
  // Requires entries that are sorted by actor, each once, counters at least 1.
  static Clock FromSorted(std::vector<ClockEntry> entries);

  const std::vector<ClockEntry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }

  uint64_t CounterOf(const Actor& actor) const;
  bool Covers(const Dot& dot) const {
    return CounterOf(dot.actor) >= dot.counter;
  }
  bool Covers(const Clock& other) const;

  // Raises the actor's counter to at least `dot.counter`.
  void Add(const Dot& dot);
  void Merge(const Clock& other);

  bool operator==(const Clock&) const = default;

 private:
  std::vector<ClockEntry> entries_;
};

struct Object {
  ObjectMode mode = ObjectMode::kSiblings;
  Clock clock;
  std::vector<Sibling> siblings;  // sorted by dot, dots differ
  Stamp newest;  // stamp of the newest event, put or delete, ever merged in

  bool IsTombstone() const { return siblings.empty(); }
  bool operator==(const Object&) const = default;
};

// What a merge met that ought not to be or that a metric counts.
struct MergeReport {
  int equal_dots_with_unequal_values = 0;  // alarm: must never happen
  // Values that lost to a greater stamp in `lww`. An object does not tell
  // whether the winner had seen them; a coordinator can, by the context of its
  // put.
  int lww_dropped = 0;
  int lww_ties = 0;  // equal stamps, decided by the greater bytes
};

// The merged object. Requires equal modes. Commutative, associative,
// idempotent.
Object Merge(const Object& a, const Object& b, MergeReport* report = nullptr);

// A client's opaque causal context: what it has seen of one key.
struct Context {
  uint64_t key_hash = 0;  // of keyspace id and key
  Clock clock;
  HlcTimestamp newest{};
  bool operator==(const Context&) const = default;
};

uint64_t ContextKeyHash(KeyspaceId keyspace, absl::string_view key);

// The context that a reader of `object` holds.
Context ContextOf(const Object& object, KeyspaceId keyspace,
                  absl::string_view key);

// Opaque bytes for clients: format version, fields, checksum.
std::string EncodeContext(const Context& context);
// INVALID_ARGUMENT for bytes that EncodeContext never made (truncated, flipped,
// of a newer format), or that were made for another keyspace or key.
absl::StatusOr<Context> DecodeContext(absl::string_view bytes,
                                      KeyspaceId keyspace,
                                      absl::string_view key);

// The new object that a put makes on top of what the coordinator holds
// (`local`, null if nothing): siblings that `context` covers go, the others
// stay, the new value joins them under `dot`.
struct NewValue {
  Dot dot;
  Stamp stamp;
  int64_t expires_at_ms = 0;
  std::string value;
};
Object ApplyPut(const Object* local, const Clock& context, NewValue value);

// The same for a delete: siblings that `context` covers go, the others stay.
Object ApplyDelete(const Object* local, const Clock& context, Stamp stamp);

// `lww`: the object that holds just this write.
Object MakeLww(Stamp stamp, int64_t expires_at_ms, std::string value);
Object MakeLwwTombstone(Stamp stamp);

// The canonical encoding: equal objects have equal bytes, and the reverse. This
// is what is stored, sent and digested. Begins with a format version.
std::string EncodeObject(const Object& object);
// DATA_LOSS for bytes that EncodeObject never made; INVALID_ARGUMENT (naming
// both versions) for a newer format.
absl::StatusOr<Object> DecodeObject(absl::string_view bytes);

// 64 bits over EncodeObject(object); 0 stands for "no object".
uint64_t DigestOf(absl::string_view encoded_object);

// The node's last mint for one key, kept beside its object and never sent. An
// actor is continued only from an `own` whose start id is that of this run.
struct OwnRecord {
  uint64_t start_id = 0;
  uint64_t birth = 0;
  uint64_t counter = 0;
  bool operator==(const OwnRecord&) const = default;
};

// What stands in the `data` family under a key.
struct StoredRecord {
  std::optional<OwnRecord> own;
  std::string object;  // as EncodeObject made it
};
std::string EncodeStored(const std::optional<OwnRecord>& own,
                         absl::string_view encoded_object);
// Does not decode the object. DATA_LOSS or INVALID_ARGUMENT as DecodeObject.
absl::StatusOr<StoredRecord> DecodeStored(absl::string_view bytes);

// Storage key in the `data` family: keyspace id (4 bytes) | token (8 bytes) |
// key, big-endian, so that a token range is contiguous.
std::string DataKey(KeyspaceId keyspace, Token token, absl::string_view key);
struct DataKeyParts {
  KeyspaceId keyspace{};
  Token token = 0;
  absl::string_view key;  // points into the argument
};
// DATA_LOSS if shorter than its fixed part.
absl::StatusOr<DataKeyParts> ParseDataKey(absl::string_view data_key);

}  // namespace ringkv

#endif  // RINGKV_STORAGE_VERSION_OBJECT_H_
