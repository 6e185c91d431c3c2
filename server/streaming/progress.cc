#include "server/streaming/progress.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/coding.h"
#include "base/planted.h"
#include "base/status.h"

namespace ringkv {
namespace {

// Keys in kMeta: "stream/w" | operation (8) | first (8) | last (8), and
// "stream/p" | operation (8) | keyspace (4) | first (8) | last (8) | source
// (4), big-endian.
constexpr absl::string_view kWiped = "stream/w";
constexpr absl::string_view kProgress = "stream/p";
constexpr absl::string_view kEnd = "stream/x";
constexpr uint8_t kFormat = 1;

std::string WipedKey(RingEpoch operation, const TokenRange& slice) {
  std::string key(kWiped);
  AppendBigEndian64(key, operation);
  AppendBigEndian64(key, slice.first);
  AppendBigEndian64(key, slice.last);
  return key;
}

std::string ProgressKey(const TransferId& id) {
  std::string key(kProgress);
  AppendBigEndian64(key, id.operation);
  AppendBigEndian32(key, ToInt(id.keyspace));
  AppendBigEndian64(key, id.range.first);
  AppendBigEndian64(key, id.range.last);
  AppendBigEndian32(key, ToInt(id.source));
  return key;
}

std::string Encode(const TransferProgress& progress) {
  std::string value;
  AppendByte(value, kFormat);
  AppendByte(value, static_cast<uint8_t>(progress.stage));
  AppendFixed64(value, progress.next.token);
  AppendBytes(value, progress.next.key);
  AppendVarint(value, progress.keys);
  AppendVarint(value, progress.bytes);
  return value;
}

absl::Status Damaged(absl::string_view key) {
  return absl::DataLossError(absl::StrCat(
      "the record of a transfer in the data directory is damaged (its key has ",
      key.size(), " bytes)"));
}

}  // namespace

absl::Status TransferLog::Recover(const Engine& engine) {
  absl::Status status;
  RETURN_IF_ERROR(engine.Visit(
      Family::kMeta, kProgress, kEnd,
      [&](absl::string_view key, absl::string_view value) {
        FieldReader fields(value);
        const uint8_t format = fields.Byte();
        FieldReader id(key.substr(kWiped.size()));
        bool good = format == kFormat;
        if (absl::StartsWith(key, kWiped)) {
          const RingEpoch operation = id.BigEndian64();
          TokenRange slice;
          slice.first = id.BigEndian64();
          slice.last = id.BigEndian64();
          good = good && id.Finished() && fields.Finished() &&
                 slice.first <= slice.last;
          if (good) wiped_[operation].insert(slice);
        } else {
          TransferId transfer;
          transfer.operation = id.BigEndian64();
          transfer.keyspace = KeyspaceId{id.BigEndian32()};
          transfer.range.first = id.BigEndian64();
          transfer.range.last = id.BigEndian64();
          transfer.source = NodeNumber{id.BigEndian32()};
          TransferProgress progress;
          const uint8_t stage = fields.Byte();
          progress.stage = static_cast<TransferProgress::Stage>(stage);
          progress.next.token = fields.Fixed64();
          progress.next.key = std::string(fields.Bytes());
          progress.keys = fields.Varint();
          progress.bytes = fields.Varint();
          good = good && id.Finished() && fields.Finished() && stage <= 2;
          if (good) progress_[transfer] = progress;
        }
        if (!good) status = Damaged(key);
        return good;
      }));
  return status;
}

std::vector<TokenRange> TransferLog::NotWiped(RingEpoch operation,
                                              const TokenRange& slice) const {
  std::vector<TokenRange> left;
  TokenRange rest = slice;
  const auto wiped = wiped_.find(operation);
  if (wiped != wiped_.end()) {
    for (const TokenRange& done : wiped->second) {
      if (done.last < rest.first) continue;
      if (done.first > rest.last) break;
      if (done.first > rest.first) left.push_back({rest.first, done.first - 1});
      if (done.last >= rest.last) return left;
      rest.first = done.last + 1;
    }
  }
  left.push_back(rest);
  return left;
}

void TransferLog::NoteWiped(WriteBatch& batch, RingEpoch operation,
                            const TokenRange& slice) {
  wiped_[operation].insert(slice);
  batch.Put(Family::kMeta, WipedKey(operation, slice), std::string(1, kFormat));
}

TransferProgress TransferLog::Find(const TransferId& id) const {
  if (Planted("progress-kept-over-abort")) {
    for (const auto& [known, progress] : progress_) {
      TransferId same = known;
      same.operation = id.operation;
      if (same == id) return progress;
    }
  }
  const auto it = progress_.find(id);
  if (it != progress_.end()) return it->second;
  // Made by another number of shards: whoever is through has its part too.
  for (const auto& [known, progress] : progress_) {
    if (known.operation == id.operation && known.keyspace == id.keyspace &&
        known.source == id.source && known.range.first <= id.range.first &&
        known.range.last >= id.range.last &&
        progress.stage == TransferProgress::Stage::kDone) {
      TransferProgress done;
      done.stage = TransferProgress::Stage::kDone;
      return done;
    }
  }
  TransferProgress start;
  start.next.token = id.range.first;
  return start;
}

void TransferLog::Note(WriteBatch& batch, const TransferId& id,
                       const TransferProgress& progress) {
  progress_[id] = progress;
  batch.Put(Family::kMeta, ProgressKey(id), Encode(progress));
}

void TransferLog::KeepOnly(WriteBatch& batch, RingEpoch operation) {
  for (auto it = wiped_.begin(); it != wiped_.end();) {
    if (it->first == operation) {
      ++it;
      continue;
    }
    for (const TokenRange& slice : it->second) {
      batch.Delete(Family::kMeta, WipedKey(it->first, slice));
    }
    it = wiped_.erase(it);
  }
  if (Planted("progress-kept-over-abort")) return;
  for (auto it = progress_.begin(); it != progress_.end();) {
    if (it->first.operation == operation) {
      ++it;
      continue;
    }
    batch.Delete(Family::kMeta, ProgressKey(it->first));
    it = progress_.erase(it);
  }
}

}  // namespace ringkv
