// What goes in and out of a shard: client calls with their answers, and the
// messages between nodes, as plain structs. server/codec turns them into
// protobuf and back, and treats everything from the network as hostile: what is
// a struct here has passed size limits and enum checks, nothing more.

#ifndef RINGKV_SERVER_MESSAGES_H_
#define RINGKV_SERVER_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/hlc.h"
#include "base/ids.h"
#include "base/time.h"

namespace ringkv {

// --- Client calls ---

enum class Quorum : uint8_t { kDefault = 0, kSloppy = 1, kStrict = 2 };

struct RequestKey {
  std::string id;  // empty: no repeat possible; at most 64 bytes
  absl::Duration age = absl::ZeroDuration();
  uint64_t coordinator_start_id = 0;
  bool operator==(const RequestKey&) const = default;
};

struct GetCall {
  std::string keyspace;  // empty: "default"
  std::string key;
  uint32_t r = 0;
  Quorum quorum = Quorum::kDefault;
  uint32_t max_answer_bytes = 0;
  bool operator==(const GetCall&) const = default;
};

// A put, or a delete if `is_delete` (then value, blind and ttl are unused).
struct PutCall {
  std::string keyspace;
  std::string key;
  bool is_delete = false;
  std::string value;
  std::optional<std::string> context;  // encoded, as the client sent it
  bool blind = false;
  uint32_t w = 0;
  Quorum quorum = Quorum::kDefault;
  absl::Duration ttl = absl::ZeroDuration();  // zero: none
  RequestKey request;
  bool operator==(const PutCall&) const = default;
};

struct ScanCall {
  std::string keyspace;
  std::string cursor;
  uint32_t limit = 0;  // entries in this page; 0: as many as fit
  bool keys_only = false;
  uint32_t r = 0;
  bool operator==(const ScanCall&) const = default;
};

struct LocateCall {
  std::string keyspace;
  std::string key;
  bool operator==(const LocateCall&) const = default;
};

using ClientCall = std::variant<GetCall, PutCall, ScanCall, LocateCall>;

struct SiblingAnswer {
  std::string value;
  HlcTimestamp hlc{};
  int64_t expires_at_ms = 0;
  bool operator==(const SiblingAnswer&) const = default;
};

struct GetAnswer {
  std::vector<SiblingAnswer> siblings;
  std::optional<std::string> context;
  bool operator==(const GetAnswer&) const = default;
};

struct PutAnswer {
  std::optional<std::string> context;
  uint32_t unresolved_siblings = 0;
  uint32_t replica_acks = 0;
  uint32_t stand_in_acks = 0;
  bool operator==(const PutAnswer&) const = default;
};

struct ScanAnswer {
  struct Entry {
    std::string key;
    std::vector<SiblingAnswer> siblings;
    std::string context;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  std::string cursor;  // empty: the end was reached
  bool operator==(const ScanAnswer&) const = default;
};

struct LocateAnswer {
  struct Copy {
    NodeNumber node{};
    bool replica = false;
    // Of the replicas before or after a topology change, whichever are not
    // read: shown, but asked for hints only.
    bool pending = false;
    absl::Status status;  // of asking; the rest is valid if OK
    bool found = false;
    bool tombstone = false;
    uint32_t siblings = 0;
    uint64_t bytes = 0;
    uint64_t digest = 0;
    HlcTimestamp newest{};
    std::vector<NodeNumber> hint_for;
    bool operator==(const Copy&) const = default;
  };
  Token token = 0;
  std::vector<Copy> copies;
  bool operator==(const LocateAnswer&) const = default;
};

struct ClientAnswer {
  absl::Status status;
  // What belongs to the call, if status is OK.
  std::variant<std::monostate, GetAnswer, PutAnswer, ScanAnswer, LocateAnswer>
      answer;
  RingEpoch ring_epoch = 0;
  bool operator==(const ClientAnswer&) const = default;
};

// --- Messages between nodes (data stream) ---

// How a peer answers beside OK. Values are on the wire.
enum class ReplyCode : uint8_t {
  kOk = 0,
  kStaleRing = 1,   // the sender's epoch is older than the segment's change
  kNotReplica = 2,  // the receiver is neither replica nor asked as a stand-in
  kOverloaded = 3,  // or disk reserve reached, or a hint bound
  kFailed = 4,      // I/O error, corruption
  kWrongStart = 5,  // the request names another run of this node
  kExpired = 6,     // the deadline had passed on arrival
  kUnchecked = 7,   // too few peers have checked the disk of the receiver yet
};

enum class ReadKind : uint8_t {
  kFull = 0,    // the encoded object
  kDigest = 1,  // its digest only
  kClock = 2,   // the object without values, to put on top of
};

// Asks a replica for its object, or a stand-in for its hint.
struct ReadRequest {
  uint64_t operation = 0;  // the coordinator's, comes back
  KeyspaceId keyspace{};
  std::string key;
  ReadKind kind = ReadKind::kFull;
  bool from_hints = false;   // asked as a stand-in: answer from hints only
  absl::Duration remaining;  // of the deadline
  bool operator==(const ReadRequest&) const = default;
};

struct ReadReply {
  uint64_t operation = 0;
  ReplyCode code = ReplyCode::kOk;
  ReadKind kind = ReadKind::kFull;
  bool found = false;
  uint64_t digest = 0;  // of the whole object, for every kind; 0 if not found
  std::string object;   // kFull, kClock
  std::vector<NodeNumber> hint_for;  // targets of the hint, if from hints
  bool operator==(const ReadReply&) const = default;
};

enum class WritePurpose : uint8_t {
  kPut = 0,
  kRepair = 1,   // read repair or write-back
  kHandoff = 2,  // delivery of a hint
};

// Merges an object into the receiver's replica, or, with `hint_for`, into a
// hint that it keeps for those replicas.
struct WriteRequest {
  uint64_t operation = 0;
  KeyspaceId keyspace{};
  std::string key;
  std::string object;  // encoded, whole
  std::vector<NodeNumber> hint_for;
  WritePurpose purpose = WritePurpose::kPut;
  bool operator==(const WriteRequest&) const = default;
};

struct WriteReply {
  uint64_t operation = 0;
  bool hint = false;  // of a request with hint_for: one node may be sent both
  ReplyCode code = ReplyCode::kOk;
  std::string message;
  bool operator==(const WriteReply&) const = default;
};

// Hands a client call to a replica of its key.
struct ForwardRequest {
  uint64_t operation = 0;
  uint64_t start_id = 0;  // of the run of the receiver that may serve; 0: any
  ClientCall call;
  absl::Duration remaining;
  // By the sender's calendar. A receiver that was frozen, or a stream that was,
  // would else serve a call long after its caller gave up, and bring back what
  // was replaced since.
  WallTime sent;
  bool operator==(const ForwardRequest&) const = default;
};

struct ForwardReply {
  uint64_t operation = 0;
  ReplyCode code = ReplyCode::kOk;
  ClientAnswer answer;  // if kOk
  bool operator==(const ForwardReply&) const = default;
};

// Asks for the receiver's objects in (after, end] of a keyspace, in storage
// order (token, key), as far as it is a natural replica of them.
struct RangeRequest {
  uint64_t operation = 0;
  KeyspaceId keyspace{};
  Token after_token = 0;  // together with after_key: the cursor, exclusive
  std::string after_key;
  bool from_start = false;  // no cursor: from token 0 on
  uint32_t entries_max = 0;
  uint32_t bytes_max = 0;
  bool keys_only = false;  // objects without values
  absl::Duration remaining;
  bool operator==(const RangeRequest&) const = default;
};

struct RangeReply {
  struct Item {
    std::string key;
    std::string object;
    bool operator==(const Item&) const = default;
  };
  uint64_t operation = 0;
  ReplyCode code = ReplyCode::kOk;
  std::vector<Item> items;
  // True: nothing of the keyspace is left after `items`. False: all in the
  // receiver's ranges up to (covered_token, covered_key) is in `items`.
  bool complete = false;
  Token covered_token = 0;
  std::string covered_key;
  bool operator==(const RangeReply&) const = default;
};

// Where a walk over a keyspace goes on: the first place not covered yet, in
// storage order.
struct StreamPosition {
  Token token = 0;
  std::string key;  // empty: the first of the token
  auto operator<=>(const StreamPosition&) const = default;
};

enum class StreamKind : uint8_t {
  kObjects = 0,  // whole objects, tombstones too
  kDigests = 1,  // keys with the digests of their objects
};

// Asks who holds a range for a piece of it, in a topology operation that gives
// it to the sender. The receiver answers from its own slice of the tokens.
struct StreamRequest {
  uint64_t operation = 0;
  RingEpoch topology = 0;  // TopologyOperation::id
  KeyspaceId keyspace{};
  StreamKind kind = StreamKind::kObjects;
  StreamPosition from;
  Token last = 0;  // the end of the range, included
  uint32_t entries_max = 0;
  uint32_t bytes_max = 0;
  bool operator==(const StreamRequest&) const = default;
};

struct StreamChunk {
  struct Item {
    std::string key;
    std::string object;   // kObjects
    uint64_t digest = 0;  // kDigests
    bool operator==(const Item&) const = default;
  };
  uint64_t operation = 0;
  ReplyCode code = ReplyCode::kOk;
  StreamKind kind = StreamKind::kObjects;
  StreamPosition from;      // of the request
  std::vector<Item> items;  // in storage order: all in [from, next)
  bool complete = false;    // nothing is left of the range; `next` is unused
  StreamPosition next;
  uint64_t checksum = 0;  // ChecksumOf all of the above but `operation`
  bool operator==(const StreamChunk&) const = default;
};

using DataBody = std::variant<ReadRequest, ReadReply, WriteRequest, WriteReply,
                              ForwardRequest, ForwardReply, RangeRequest,
                              RangeReply, StreamRequest, StreamChunk>;

// One message of the data stream. Shards of one node number their operations
// apart: the upper 16 bits of `operation` are the shard that a reply goes to.
struct DataMessage {
  RingEpoch epoch = 0;  // the sender's, when it was sent
  DataBody body;
  bool operator==(const DataMessage&) const = default;
};

constexpr int kOperationShardShift = 48;

// Limits on fresh input; beyond them INVALID_ARGUMENT with limit and size.
constexpr size_t kKeyBytesMax = 4096;
constexpr size_t kValueBytesMax = 1 << 20;
constexpr size_t kSiblingsMax = 100;
constexpr size_t kObjectBytesMax = 3 << 20;
constexpr size_t kAnswerBytesMaxDefault = 3 << 20;
constexpr size_t kPublicMessageBytesMax = 4 << 20;
constexpr size_t kPeerMessageBytesMax = 64 << 20;

}  // namespace ringkv

#endif  // RINGKV_SERVER_MESSAGES_H_
