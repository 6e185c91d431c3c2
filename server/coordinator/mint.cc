#include "server/coordinator/mint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/status.h"

namespace ringkv {
namespace {

struct Local {
  std::optional<Object> object;
  std::optional<OwnRecord> own;
};

absl::StatusOr<Local> DecodeLocal(const ReadResult& found) {
  const auto damaged = [](absl::string_view why) {
    return absl::DataLossError(
        absl::StrCat("this node's copy of the key is damaged: ", why,
                     "; nothing was written"));
  };
  Local local;
  if (found.outcome == ReadResult::Outcome::kFailed) {
    return damaged(found.status.message());
  }
  if (found.outcome != ReadResult::Outcome::kFound) return local;
  absl::StatusOr<StoredRecord> record = DecodeStored(found.value);
  if (!record.ok()) return damaged(record.status().message());
  absl::StatusOr<Object> object = DecodeObject(record->object);
  if (!object.ok()) return damaged(object.status().message());
  local.object = *std::move(object);
  local.own = record->own;
  return local;
}

// A stamp above `floor`. One far ahead must not drag the node's clock along: a
// write that follows it is stamped just above it instead.
absl::StatusOr<Stamp> DrawStamp(const MintInput& input, HlcTimestamp floor,
                                Hlc& hlc) {
  const HlcTimestamp limit = HlcFromMillis(
      input.wall.millis() + absl::ToInt64Milliseconds(input.max_clock_drift));
  const bool floor_is_near = floor < limit;
  ASSIGN_OR_RETURN(HlcTimestamp now,
                   hlc.Now(input.wall, floor_is_near ? floor : kNeverHlc));
  if (!floor_is_near) {
    RINGKV_MARK("stamp-far-ahead-followed");
    now = HlcTimestamp{std::max(ToInt(now), ToInt(floor) + 1)};
  } else if (HlcMillis(now) > HlcMillis(limit) + 1) {
    RINGKV_MARK("clock-too-far-behind");
    return absl::UnavailableError(absl::StrCat(
        "this node's clock is ", HlcMillis(now) - input.wall.millis(),
        " ms behind what it has seen, the limit is ",
        absl::FormatDuration(input.max_clock_drift),
        "; set its clock or try another node; nothing was written"));
  }
  return Stamp{now, input.self};
}

// A new actor unless this very run minted the last dot of this key: anything
// weaker lets a dot stand for two values.
Dot NextDot(const MintInput& input, const Local& local, Random& random) {
  Dot dot;
  dot.actor.node = input.self;
  const bool continues =
      local.own.has_value() && (local.own->start_id == input.start_id ||
                                Planted("actor-continued-after-restart"));
  if (continues) {
    dot.actor.birth = local.own->birth;
    dot.counter = local.own->counter + 1;
    return dot;
  }
  if (local.own.has_value()) RINGKV_MARK("actor-begins-anew");
  dot.actor.birth = random.Next();
  dot.counter = 1;
  if (Planted("actor-from-clock") && local.object.has_value()) {
    for (const ClockEntry& entry : local.object->clock.entries()) {
      if (entry.actor.node != input.self) continue;
      dot.actor.birth = entry.actor.birth;
      dot.counter = entry.counter + 1;
    }
  }
  return dot;
}

}  // namespace

absl::StatusOr<Minted> MintWrite(const MintInput& input,
                                 const ReadResult& found, Hlc& hlc,
                                 Random& random) {
  const PutCall& put = input.put;
  ASSIGN_OR_RETURN(Local local, DecodeLocal(found));
  const Object* base = local.object.has_value() ? &*local.object : nullptr;
  const bool lww = input.keyspace.mode == VersionMode::kLww;

  HlcTimestamp floor = input.context.newest;
  if (lww && base != nullptr && !put.blind) {
    floor = std::max(floor, base->newest.hlc);
  }
  if (Planted("lww-stamp-below-seen")) floor = kNeverHlc;
  ASSIGN_OR_RETURN(const Stamp stamp, DrawStamp(input, floor, hlc));
  const int64_t expires_at_ms =
      put.ttl <= absl::ZeroDuration()
          ? 0
          : input.wall.millis() +
                std::max<int64_t>(absl::ToInt64Milliseconds(put.ttl), 1);

  Minted minted;
  minted.own = local.own;
  Object object;
  if (lww) {
    object = put.is_delete ? MakeLwwTombstone(stamp)
                           : MakeLww(stamp, expires_at_ms, put.value);
    if (base != nullptr) object = Merge(*base, object);
  } else if (put.is_delete) {
    object = ApplyDelete(base, input.context.clock, stamp);
  } else {
    const Dot dot = NextDot(input, local, random);
    minted.own = OwnRecord{input.start_id, dot.actor.birth, dot.counter};
    object = ApplyPut(base, input.context.clock,
                      NewValue{dot, stamp, expires_at_ms, put.value});
    if (object.siblings.size() > kSiblingsMax &&
        (base == nullptr || object.siblings.size() > base->siblings.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the key would have ", object.siblings.size(),
                       " siblings, the limit is ", kSiblingsMax,
                       "; read it and put a merged value with its context"));
    }
  }
  minted.object = EncodeObject(object);
  if (minted.object.size() > kObjectBytesMax &&
      minted.object.size() > found.value.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the key's siblings would take ", minted.object.size(),
                     " bytes, the limit is ", kObjectBytesMax,
                     "; read it and put a merged value with its context"));
  }

  // The context must not cover values that the writer never saw.
  const size_t written = put.is_delete ? 0 : 1;
  const bool lost = lww && object.newest != stamp;
  if ((object.siblings.size() == written && !lost) ||
      Planted("put-context-covers-unseen")) {
    minted.write.answer.context =
        EncodeContext(ContextOf(object, input.keyspace.id, put.key));
  } else {
    // A write that lost says so even where a tombstone won, which is no
    // sibling.
    if (lost) RINGKV_MARK("lww-write-lost");
    const size_t others = object.siblings.size() - (lost ? 0 : written);
    minted.write.answer.unresolved_siblings =
        static_cast<uint32_t>(std::max<size_t>(others, 1));
  }
  minted.write.object = minted.object;
  if (Planted("delta-sent") && !lww && !put.is_delete) {
    // Only the new value, under the whole clock.
    std::erase_if(object.siblings, [&](const Sibling& sibling) {
      return sibling.stamp != stamp;
    });
    minted.write.object = EncodeObject(object);
  }
  return minted;
}

}  // namespace ringkv
