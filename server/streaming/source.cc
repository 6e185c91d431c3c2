#include "server/streaming/source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/mark.h"
#include "base/planted.h"
#include "base/token.h"
#include "server/streaming/chunk.h"
#include "server/streaming/slice.h"

namespace ringkv {
namespace {

ReplyCode CheckRequest(const ShardCore& core, const Keyspace* keyspace,
                       const StreamRequest& request, Token last) {
  const Ring& ring = *core.ring();
  const auto& operation = ring.spec().operation;
  const bool runs = operation.has_value() &&
                    operation->id == request.topology &&
                    operation->phase == TopologyPhase::kStart;
  if (!runs || (core.committed_epoch() < request.topology &&
                !Planted("stream-before-adoption"))) {
    RINGKV_MARK("stream-asked-too-early-or-late");
    return ReplyCode::kStaleRing;
  }
  if (!core.checked()) return ReplyCode::kUnchecked;
  if (keyspace == nullptr) return ReplyCode::kNotReplica;
  const Run run = RunFrom(ring, request.from.token, last, [&](Token token) {
    return ring.IsReplica(*keyspace, token, core.self());
  });
  return run.held && run.range.last == last ? ReplyCode::kOk
                                            : ReplyCode::kNotReplica;
}

// Appends what `entry` shows. False if it is damaged; it is rebuilt then.
bool AddItem(ShardCore& core, KeyspaceId keyspace, const Entry& entry,
             StreamChunk& chunk) {
  absl::StatusOr<DataKeyParts> parts = ParseDataKey(entry.key);
  absl::StatusOr<StoredRecord> record = DecodeStored(entry.value);
  if (!parts.ok()) return false;
  if (!record.ok()) {
    const Keyspace* known = core.ring()->FindKeyspace(keyspace);
    if (known != nullptr) core.NoteDamaged(*known, std::string(parts->key));
    return false;
  }
  if (Planted("tombstones-not-streamed")) {
    const absl::StatusOr<Object> object = DecodeObject(record->object);
    if (object.ok() && object->siblings.empty()) return true;
  }
  StreamChunk::Item item;
  item.key = std::string(parts->key);
  if (chunk.kind == StreamKind::kObjects) {
    item.object = std::move(record->object);
  } else {
    item.digest = DigestOf(record->object);
  }
  chunk.items.push_back(std::move(item));
  return true;
}

}  // namespace

void HandleStream(ShardCore& core, NodeNumber from,
                  const StreamRequest& request) {
  StreamChunk chunk;
  chunk.operation = request.operation;
  chunk.kind = request.kind;
  chunk.from = request.from;
  const Keyspace* keyspace = core.ring()->FindKeyspace(request.keyspace);
  const TokenRange slice = SliceOf(core.options().shard, core.options().shards);
  const Token last = std::min(request.last, slice.last);
  chunk.code = request.from.token > last || request.from.token < slice.first
                   ? ReplyCode::kNotReplica
                   : CheckRequest(core, keyspace, request, last);
  if (chunk.code != ReplyCode::kOk) {
    ++core.stats().stream_chunks_refused;
    chunk.checksum = ChecksumOf(chunk);
    core.Send(from, std::move(chunk));
    return;
  }
  std::string begin =
      DataKey(keyspace->id, request.from.token, request.from.key);
  std::string end = DataKeyAfter(keyspace->id, last);
  RangeLimits limits;
  limits.entries_max =
      std::clamp<uint32_t>(request.entries_max, 1, kChunkEntriesMax);
  limits.bytes_max = std::clamp<uint32_t>(
      request.bytes_max, 1,
      request.kind == StreamKind::kObjects ? kChunkBytesMax : kDigestBytesMax);
  core.LoadRange(
      Family::kData, std::move(begin), std::move(end), limits,
      [&core, from, id = keyspace->id, chunk = std::move(chunk), last,
       asked = request.last](const absl::StatusOr<RangeResult>& range) mutable {
        bool good = range.ok();
        if (good) {
          for (const Entry& entry : range->entries) {
            good = good && AddItem(core, id, entry, chunk);
          }
        }
        if (!good) {
          ++core.stats().corrupt_reads;
          chunk.code = ReplyCode::kFailed;
          chunk.items.clear();
        } else if (!range->complete) {
          const DataKeyParts last_read =
              *ParseDataKey(range->entries.back().key);
          chunk.next = {last_read.token, std::string(last_read.key)};
          chunk.next.key.push_back('\0');
        } else if (last < asked) {
          chunk.next = {last + 1, ""};  // the next shard has the rest
        } else {
          chunk.complete = true;
        }
        if (chunk.kind == StreamKind::kObjects) {
          core.stats().stream_keys_out += chunk.items.size();
          core.stats().stream_bytes_out += ContentBytes(chunk);
        }
        chunk.checksum = ChecksumOf(chunk);
        core.Send(from, std::move(chunk));
      });
}

}  // namespace ringkv
