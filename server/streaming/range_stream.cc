#include "server/streaming/range_stream.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/mark.h"
#include "base/token.h"
#include "server/streaming/chunk.h"

namespace ringkv {
namespace {

constexpr absl::Duration kChunkPatience = absl::Seconds(5);
constexpr absl::Duration kFullDiskPause = absl::Seconds(1);
constexpr absl::Duration kBudgetPause = absl::Milliseconds(20);

// `theirs` has a value, or a delete, of up to `barrier` that `ours` (encoded,
// empty: nothing) has neither taken in nor replaced.
bool LacksOld(const std::string& ours, const Object& theirs,
              HlcTimestamp barrier) {
  const absl::StatusOr<Object> held =
      ours.empty() ? Object{} : DecodeObject(ours);
  if (!held.ok()) return true;
  if (theirs.newest.hlc <= barrier && held->newest < theirs.newest) return true;
  if (theirs.mode == ObjectMode::kLww) return false;
  for (const Sibling& sibling : theirs.siblings) {
    if (sibling.stamp.hlc <= barrier && !held->clock.Covers(sibling.dot)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void RangeStream::Start(Owner* owner, HandoffBudget* budget,
                        const TransferId& transfer,
                        const TransferProgress& progress,
                        HlcTimestamp barrier) {
  owner_ = owner;
  budget_ = budget;
  transfer_ = transfer;
  progress_ = progress;
  barrier_ = barrier;
  AskFrom(verifying() ? StreamPosition{transfer.range.first, ""}
                      : progress.next);
}

void RangeStream::AskFrom(StreamPosition at) {
  request_.operation = id();
  request_.topology = transfer_.operation;
  request_.keyspace = transfer_.keyspace;
  request_.kind = verifying() ? StreamKind::kDigests : StreamKind::kObjects;
  request_.from = std::move(at);
  request_.last = transfer_.range.last;
  request_.entries_max = kChunkEntriesMax;
  request_.bytes_max = verifying() ? kDigestBytesMax : kChunkBytesMax;
  SendWhenAllowed();
}

void RangeStream::SendWhenAllowed() {
  if (core_.read_only()) {
    // What is left of the disk is not for this.
    state_ = State::kWaiting;
    core_.SetTimer(*this, core_.now() + kFullDiskPause);
    return;
  }
  const uint64_t rate = core_.options().stream_rate;
  const uint64_t shards = static_cast<uint64_t>(core_.options().shards);
  if (rate > 0 &&
      !budget_->HasRoom(core_.now(), std::max<uint64_t>(rate / shards, 1))) {
    RINGKV_MARK("stream-waits-for-its-rate");
    state_ = State::kWaiting;
    core_.SetTimer(*this, core_.now() + kBudgetPause);
    return;
  }
  state_ = State::kAsking;
  core_.SetTimer(*this, core_.now() + kChunkPatience);
  core_.Send(transfer_.source, request_);
}

void RangeStream::OnReply(NodeNumber from, DataBody& body, Release release) {
  if (from != transfer_.source) return;
  auto* chunk = std::get_if<StreamChunk>(&body);
  // A late or repeated one answers an earlier question.
  if (chunk == nullptr || state_ != State::kAsking ||
      chunk->kind != request_.kind || chunk->from != request_.from) {
    return;
  }
  OnChunk(*chunk);
}

void RangeStream::OnChunk(StreamChunk& chunk) {
  if (chunk.code != ReplyCode::kOk) {
    RINGKV_MARK("stream-refused-by-source");
    ++core_.stats().stream_refusals;
    return Fail();
  }
  if (absl::Status status = CheckChunk(request_, chunk); !status.ok()) {
    RINGKV_MARK("stream-chunk-damaged");
    ++core_.stats().stream_chunks_damaged;
    return Fail();
  }
  failed_ = false;
  core_.SetTimer(*this, Instant::Infinite());
  if (!lacking_.empty()) return OnFetched(chunk);
  complete_ = chunk.complete;
  next_ = chunk.next;
  if (verifying()) {
    CompareChunk(chunk);
  } else {
    MergeChunk(chunk);
  }
}

void RangeStream::MergeChunk(StreamChunk& chunk) {
  const Keyspace* keyspace = core_.ring()->FindKeyspace(transfer_.keyspace);
  if (keyspace == nullptr) return Fail();
  state_ = State::kMerging;
  const uint64_t bytes = ContentBytes(chunk);
  budget_->Take(bytes);
  progress_.keys += chunk.items.size();
  progress_.bytes += bytes;
  core_.stats().stream_keys_in += chunk.items.size();
  core_.stats().stream_bytes_in += bytes;
  pending_ = chunk.items.size() + 1;
  for (StreamChunk::Item& item : chunk.items) {
    core_.MergeLocal(*keyspace, item.key, std::move(item.object),
                     [&core = core_, id = id()](ReplyCode code, std::string) {
                       auto* self = dynamic_cast<RangeStream*>(core.Find(id));
                       if (self != nullptr) self->Merged(code);
                     });
  }
  Merged(ReplyCode::kOk);
}

void RangeStream::CompareChunk(StreamChunk& chunk) {
  state_ = State::kMerging;
  pending_ = chunk.items.size() + 1;
  for (const StreamChunk::Item& item : chunk.items) {
    core_.Load(Family::kData,
               DataKey(transfer_.keyspace, TokenOf(item.key), item.key),
               [&core = core_, id = id(), key = item.key,
                digest = item.digest](const ReadResult& found) {
                 auto* self = dynamic_cast<RangeStream*>(core.Find(id));
                 if (self != nullptr) self->Compared(key, digest, found);
               });
  }
  Merged(ReplyCode::kOk);
}

void RangeStream::Compared(const std::string& key, uint64_t digest,
                           const ReadResult& found) {
  if (found.outcome == ReadResult::Outcome::kMissing) {
    lacking_[key];
    return Merged(ReplyCode::kOk);
  }
  absl::StatusOr<StoredRecord> record =
      found.outcome == ReadResult::Outcome::kFound
          ? DecodeStored(found.value)
          : absl::StatusOr<StoredRecord>(found.status);
  if (!record.ok()) {
    const Keyspace* keyspace = core_.ring()->FindKeyspace(transfer_.keyspace);
    if (keyspace != nullptr) core_.NoteDamaged(*keyspace, key);
    return Merged(ReplyCode::kFailed);
  }
  if (DigestOf(record->object) != digest) {
    lacking_[key] = std::move(record->object);
  }
  Merged(ReplyCode::kOk);
}

void RangeStream::Merged(ReplyCode code) {
  if (code != ReplyCode::kOk) failed_ = true;
  if (--pending_ > 0) return;
  if (failed_) return Fail();
  if (!lacking_.empty()) return FetchLacking();
  PieceDone();
}

void RangeStream::FetchLacking() {
  // By its own key and no other.
  request_.kind = StreamKind::kObjects;
  request_.from = {TokenOf(lacking_.begin()->first), lacking_.begin()->first};
  request_.last = request_.from.token;
  request_.entries_max = 1;
  request_.bytes_max = 1;
  SendWhenAllowed();
}

void RangeStream::OnFetched(StreamChunk& chunk) {
  const auto lacking = lacking_.begin();
  const std::string held = std::move(lacking->second);
  const bool found =
      !chunk.items.empty() && chunk.items[0].key == lacking->first;
  lacking_.erase(lacking);
  if (!found) {  // gone meanwhile
    pending_ = 1;
    return Merged(ReplyCode::kOk);
  }
  const absl::StatusOr<Object> theirs = DecodeObject(chunk.items[0].object);
  if (theirs.ok() && LacksOld(held, *theirs, barrier_)) {
    RINGKV_MARK("verification-finds-an-old-write");
    lacked_old_ = true;
  }
  chunk.items.resize(1);
  MergeChunk(chunk);
}

void RangeStream::PieceDone() {
  if (complete_) return PassDone();
  if (!verifying()) {
    progress_.next = next_;
    owner_->OnProgress(transfer_, progress_);
  }
  AskFrom(next_);
}

void RangeStream::PassDone() {
  const StreamPosition front{transfer_.range.first, ""};
  if (!verifying()) {
    progress_.stage = TransferProgress::Stage::kVerifying;
    progress_.next = front;
  } else if (!lacked_old_) {
    progress_.stage = TransferProgress::Stage::kDone;
  } else {
    RINGKV_MARK("verification-begins-again");
  }
  lacked_old_ = false;
  owner_->OnProgress(transfer_, progress_);
  if (progress_.stage != TransferProgress::Stage::kDone) return AskFrom(front);
  core_.End(*this);
  owner_->OnEnd(transfer_);
}

void RangeStream::Fail() {
  core_.End(*this);
  owner_->OnEnd(transfer_);
}

void RangeStream::OnTimer() {
  if (state_ == State::kWaiting) return SendWhenAllowed();
  RINGKV_MARK("stream-chunk-overdue");
  Fail();
}

void RangeStream::OnPeersChanged() {
  if (!core_.IsAlive(transfer_.source)) Fail();
}

}  // namespace ringkv
