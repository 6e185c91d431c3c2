#include "server/replica/replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/token.h"

namespace ringkv {
namespace {

// kOk if a message of `epoch` about this keyspace may be served here.
ReplyCode CheckEpoch(ShardCore& core, const Keyspace* keyspace,
                     RingEpoch epoch) {
  if (keyspace == nullptr) return ReplyCode::kNotReplica;
  if (epoch < keyspace->changed_at && !Planted("old-ring-accepted")) {
    ++core.stats().stale_ring_refused;
    return ReplyCode::kStaleRing;
  }
  return ReplyCode::kOk;
}

// The object without its values: for a coordinator that puts on top of it.
std::string ClockOnly(const Object& object) {
  Object clock;
  clock.mode = object.mode;
  clock.clock = object.clock;
  clock.newest = object.newest;
  return EncodeObject(clock);
}

void FillFound(ReadReply& reply, ReadKind kind, const std::string& encoded) {
  reply.found = true;
  reply.digest = DigestOf(encoded);
  if (kind == ReadKind::kFull) {
    reply.object = encoded;
  } else if (kind == ReadKind::kClock) {
    absl::StatusOr<Object> object = DecodeObject(encoded);
    if (object.ok()) {
      reply.object = ClockOnly(*object);
    } else {
      reply.found = false;
      reply.code = ReplyCode::kFailed;
    }
  }
}

// Whether an object takes room for a value; what is no object at all, too.
bool HasValues(const std::string& encoded) {
  absl::StatusOr<Object> object = DecodeObject(encoded);
  return !object.ok() || !object->siblings.empty();
}

// Range requests list values of whole objects up to here, so that a reply stays
// well within the peer message limit even with the largest object on top.
constexpr size_t kRangeBytesMax = 8 << 20;
constexpr uint32_t kRangeEntriesMax = 20000;

}  // namespace

void HandleRead(ShardCore& core, NodeNumber from, RingEpoch epoch,
                const ReadRequest& request) {
  ReadReply reply;
  reply.operation = request.operation;
  reply.kind = request.kind;
  const Keyspace* keyspace = core.ring()->FindKeyspace(request.keyspace);
  const Token token = TokenOf(request.key);
  reply.code = CheckEpoch(core, keyspace, epoch);
  if (reply.code == ReplyCode::kOk && !request.from_hints &&
      !core.ring()->IsReplica(*keyspace, token, core.self())) {
    reply.code = ReplyCode::kNotReplica;
  }
  if (request.remaining <= absl::ZeroDuration()) {
    RINGKV_MARK("read-expired-on-arrival");
    ++core.stats().expired_dropped;
    reply.code = ReplyCode::kExpired;
  }
  if (reply.code == ReplyCode::kOk && !core.checked()) {
    RINGKV_MARK("replica-unchecked-read");
    ++core.stats().unchecked_refused;
    reply.code = ReplyCode::kUnchecked;
  }
  if (reply.code != ReplyCode::kOk) {
    core.Send(from, std::move(reply));
    return;
  }
  ++core.stats().replica_reads;
  if (request.from_hints) {
    core.Load(Family::kHints, HintRecordKey(keyspace->id, token, request.key),
              [&core, from, reply](const ReadResult& found) mutable {
                if (found.outcome == ReadResult::Outcome::kFound) {
                  absl::StatusOr<HintRecord> record =
                      DecodeHintRecord(found.value);
                  if (record.ok()) {
                    RINGKV_MARK("stand-in-answers-from-hint");
                    FillFound(reply, reply.kind, record->object);
                    for (const HintTarget& target : record->targets) {
                      reply.hint_for.push_back(target.node);
                    }
                  } else {
                    reply.code = ReplyCode::kFailed;
                  }
                } else if (found.outcome != ReadResult::Outcome::kMissing) {
                  reply.code = ReplyCode::kFailed;
                }
                // What a stand-in shows was fsynced before it was acknowledged;
                // a hint of this very turn is not yet.
                core.Send(from, std::move(reply), Release::kSynced);
              });
    return;
  }
  core.Load(Family::kData, DataKey(keyspace->id, token, request.key),
            [&core, from, reply, id = keyspace->id,
             key = request.key](const ReadResult& found) mutable {
              const Keyspace* keyspace = core.ring()->FindKeyspace(id);
              if (keyspace == nullptr) {
                reply.code = ReplyCode::kNotReplica;
              } else if (found.outcome == ReadResult::Outcome::kFound) {
                absl::StatusOr<StoredRecord> record = DecodeStored(found.value);
                if (record.ok()) {
                  FillFound(reply, reply.kind, record->object);
                } else {
                  reply.code = ReplyCode::kFailed;
                }
              } else if (found.outcome != ReadResult::Outcome::kMissing) {
                reply.code = ReplyCode::kFailed;
              }
              if (reply.code == ReplyCode::kFailed) {
                if (found.outcome == ReadResult::Outcome::kFound ||
                    absl::IsDataLoss(found.status)) {
                  core.NoteDamaged(*keyspace, key);
                } else {
                  ++core.stats().corrupt_reads;
                }
              }
              core.Send(from, std::move(reply),
                        keyspace == nullptr ? Release::kWritten
                                            : core.ReleaseOf(*keyspace, key));
            });
}

void HandleWrite(ShardCore& core, NodeNumber from, RingEpoch epoch,
                 WriteRequest request) {
  WriteReply reply;
  reply.operation = request.operation;
  reply.hint = !request.hint_for.empty();
  const Keyspace* keyspace = core.ring()->FindKeyspace(request.keyspace);
  reply.code = CheckEpoch(core, keyspace, epoch);
  if (reply.code == ReplyCode::kOk && request.hint_for.empty() &&
      !core.ring()->IsHolder(*keyspace, TokenOf(request.key), core.self())) {
    reply.code = ReplyCode::kNotReplica;
  }
  for (NodeNumber target : request.hint_for) {
    if (core.ring()->FindMember(target) == nullptr) {
      reply.code = ReplyCode::kFailed;
      reply.message = absl::StrCat("node ", ToInt(target), " is no member");
    }
  }
  // What this node coordinates itself was let in before.
  if (reply.code == ReplyCode::kOk && core.read_only() && from != core.self() &&
      HasValues(request.object)) {
    reply.code = ReplyCode::kOverloaded;
    reply.message = std::string(kDiskReserved);
  }
  if (reply.code != ReplyCode::kOk) {
    core.Send(from, std::move(reply));
    return;
  }
  ++core.stats().replica_writes;
  if (!request.hint_for.empty()) {
    core.StoreHint(
        *keyspace, request.key, std::move(request.object),
        std::move(request.hint_for),
        [&core, from, reply](ReplyCode code, std::string why) mutable {
          reply.code = code;
          reply.message = std::move(why);
          // The intended replica relies on this copy: fsync first.
          core.Send(from, std::move(reply), Release::kSynced);
        });
    return;
  }
  const bool handoff = request.purpose == WritePurpose::kHandoff;
  core.MergeLocal(*keyspace, request.key, std::move(request.object),
                  [&core, from, reply, handoff, id = keyspace->id,
                   key = request.key](ReplyCode code, std::string why) mutable {
                    reply.code = code;
                    reply.message = std::move(why);
                    const Keyspace* keyspace = core.ring()->FindKeyspace(id);
                    // The sender of a hint forgets it after this ack: fsync
                    // first.
                    const Release release =
                        handoff || keyspace == nullptr
                            ? Release::kSynced
                            : core.ReleaseOf(*keyspace, key);
                    core.Send(from, std::move(reply), release);
                  });
}

void HandleRange(ShardCore& core, NodeNumber from, RingEpoch epoch,
                 const RangeRequest& request) {
  RangeReply reply;
  reply.operation = request.operation;
  const Keyspace* keyspace = core.ring()->FindKeyspace(request.keyspace);
  reply.code = CheckEpoch(core, keyspace, epoch);
  if (request.remaining <= absl::ZeroDuration()) {
    ++core.stats().expired_dropped;
    reply.code = ReplyCode::kExpired;
  }
  if (reply.code == ReplyCode::kOk && !core.checked()) {
    ++core.stats().unchecked_refused;
    reply.code = ReplyCode::kUnchecked;
  }
  if (reply.code != ReplyCode::kOk) {
    core.Send(from, std::move(reply));
    return;
  }
  std::string begin = DataKey(keyspace->id, 0, "");
  if (!request.from_start) {
    begin = DataKey(keyspace->id, request.after_token, request.after_key);
    begin.push_back('\0');  // the first key after the cursor
  }
  const std::string end = DataKey(KeyspaceId{ToInt(keyspace->id) + 1}, 0, "");
  RangeLimits limits;
  limits.entries_max =
      std::clamp<uint32_t>(request.entries_max, 1, kRangeEntriesMax);
  limits.bytes_max = std::clamp<size_t>(request.bytes_max, 1, kRangeBytesMax);
  core.LoadRange(
      Family::kData, std::move(begin), end, limits,
      [&core, from, reply, id = keyspace->id, keys_only = request.keys_only](
          const absl::StatusOr<RangeResult>& range) mutable {
        const Keyspace* keyspace = core.ring()->FindKeyspace(id);
        if (!range.ok() || keyspace == nullptr) {
          if (!range.ok()) ++core.stats().corrupt_reads;
          reply.code = range.ok() ? ReplyCode::kNotReplica : ReplyCode::kFailed;
          core.Send(from, std::move(reply));
          return;
        }
        reply.complete = range->complete;
        for (const Entry& entry : range->entries) {
          absl::StatusOr<DataKeyParts> parts = ParseDataKey(entry.key);
          absl::StatusOr<StoredRecord> record = DecodeStored(entry.value);
          if (!parts.ok() || !record.ok()) {
            ++core.stats().corrupt_reads;
            reply.code = ReplyCode::kFailed;
            reply.items.clear();
            break;
          }
          reply.covered_token = parts->token;
          reply.covered_key = std::string(parts->key);
          if (!core.ring()->IsReplica(*keyspace, parts->token, core.self())) {
            continue;  // left over from an earlier ring
          }
          if (keys_only) {
            // Siblings and stamps stay, so that expiry and merge work.
            absl::StatusOr<Object> object = DecodeObject(record->object);
            if (!object.ok()) {
              reply.code = ReplyCode::kFailed;
              reply.items.clear();
              break;
            }
            for (Sibling& sibling : object->siblings) sibling.value.clear();
            record->object = EncodeObject(*object);
          }
          reply.items.push_back(
              {std::string(parts->key), std::move(record->object)});
        }
        // The engine shows unsynced versions of `sync` keyspaces too.
        core.Send(from, std::move(reply),
                  keyspace->durability == Durability::kSync
                      ? Release::kSynced
                      : Release::kWritten);
      });
}

}  // namespace ringkv
