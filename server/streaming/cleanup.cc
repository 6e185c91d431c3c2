#include "server/streaming/cleanup.h"

#include "base/mark.h"
#include "base/planted.h"
#include "server/streaming/slice.h"

namespace ringkv {

void Cleanup::Start() {
  next_ = SliceOf(core_.options().shard, core_.options().shards).first;
  Search();
}

void Cleanup::Search() {
  const auto& keyspaces = core_.ring()->spec().keyspaces;
  if (keyspace_ >= keyspaces.size()) return core_.End(*this);
  const KeyspaceId keyspace = keyspaces[keyspace_].id;
  const TokenRange slice =
      SliceOf(core_.options().shard, core_.options().shards);
  RangeLimits limits;
  limits.entries_max = 1;
  core_.LoadRange(
      Family::kData, DataKey(keyspace, next_, ""),
      DataKeyAfter(keyspace, slice.last), limits,
      [&core = core_, id = id()](const absl::StatusOr<RangeResult>& range) {
        auto* self = dynamic_cast<Cleanup*>(core.Find(id));
        if (self != nullptr) self->Found(range);
      });
}

void Cleanup::Found(const absl::StatusOr<RangeResult>& range) {
  const Ring& ring = *core_.ring();
  const Keyspace& keyspace = ring.spec().keyspaces[keyspace_];
  const TokenRange slice =
      SliceOf(core_.options().shard, core_.options().shards);
  absl::StatusOr<DataKeyParts> parts = absl::NotFoundError("nothing");
  if (range.ok() && !range->entries.empty()) {
    parts = ParseDataKey(range->entries[0].key);
  }
  if (!range.ok()) {
    ++core_.stats().corrupt_reads;
    return core_.End(*this);
  }
  Token last = slice.last;
  if (parts.ok()) {
    const Run run = RunFrom(ring, parts->token, slice.last, [&](Token token) {
      return Planted("cleanup-while-pending")
                 ? ring.IsReplica(keyspace, token, core_.self())
                 : ring.IsHolder(keyspace, token, core_.self());
    });
    last = run.range.last;
    if (!run.held) {
      RINGKV_MARK("range-of-former-owner-dropped");
      ++core_.stats().ranges_dropped;
      core_.DropRange(keyspace.id, run.range);
    }
  }
  if (last == slice.last) {
    ++keyspace_;
    next_ = slice.first;
  } else {
    next_ = last + 1;
  }
  Search();
}

}  // namespace ringkv
