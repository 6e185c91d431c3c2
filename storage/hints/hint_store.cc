#include "storage/hints/hint_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/coding.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/status.h"
#include "base/token.h"
#include "storage/version/object.h"

namespace ringkv {
namespace {

constexpr uint8_t kHintFormat = 1;
constexpr char kRecordPrefix = 'K';
constexpr char kIndexPrefix = 'T';
constexpr int kShardBits = 8;
// Node, creation time, sequence.
constexpr size_t kTargetBytesMin = 1 + 1 + 1;

std::string IndexKey(NodeNumber target, uint64_t sequence) {
  std::string out(1, kIndexPrefix);
  AppendBigEndian32(out, ToInt(target));
  AppendBigEndian64(out, sequence);
  return out;
}

// The first key after all those that begin with `prefix`; prefixes here begin
// with a letter, so there is one.
std::string PrefixEnd(std::string prefix) {
  while (static_cast<uint8_t>(prefix.back()) == 0xff) prefix.pop_back();
  ++prefix.back();
  return prefix;
}

bool IsBefore(const HintTarget& target, NodeNumber node) {
  return target.node < node;
}

std::vector<HintTarget>::iterator PlaceOf(HintRecord& record, NodeNumber node) {
  return std::lower_bound(record.targets.begin(), record.targets.end(), node,
                          IsBefore);
}

bool Names(HintRecord& record, NodeNumber node) {
  const auto place = PlaceOf(record, node);
  return place != record.targets.end() && place->node == node;
}

// What was read under a record key; no targets and no object if nothing.
absl::StatusOr<HintRecord> RecordIn(const ReadResult& found) {
  // Without the answer there is nothing to merge with.
  RINGKV_CHECK(found.outcome != ReadResult::Outcome::kNotCached);
  if (found.outcome == ReadResult::Outcome::kFailed) return found.status;
  if (found.outcome == ReadResult::Outcome::kMissing) return HintRecord{};
  return DecodeHintRecord(found.value);
}

// `object` merged with the encoded `stored`, encoded. Bytes of the stored one
// are our own, those of the other come from a client or a peer.
absl::StatusOr<std::string> Merged(absl::string_view stored,
                                   absl::string_view object) {
  ASSIGN_OR_RETURN(const Object added, DecodeObject(object));
  if (stored.empty() || stored == object) return std::string(object);
  ASSIGN_OR_RETURN(const Object kept, DecodeObject(stored));
  if (kept.mode != added.mode) {
    return absl::InvalidArgumentError(
        "the hint's object has another conflict rule than the stored one");
  }
  return EncodeObject(Merge(kept, added));
}

}  // namespace

// Layout: format (1 byte), number of targets (varint), for each its node,
// creation time and sequence (varints), then the object up to the end.
std::string EncodeHintRecord(const HintRecord& record) {
  RINGKV_CHECK(!record.targets.empty());
  RINGKV_CHECK(!record.object.empty());
  std::string out;
  out.reserve(16 + record.targets.size() * 24 + record.object.size());
  AppendByte(out, kHintFormat);
  AppendVarint(out, record.targets.size());
  for (size_t i = 0; i < record.targets.size(); ++i) {
    const HintTarget& target = record.targets[i];
    RINGKV_CHECK(i == 0 || record.targets[i - 1].node < target.node);
    AppendVarint(out, ToInt(target.node));
    AppendVarint(out, static_cast<uint64_t>(target.created_ms));
    AppendVarint(out, target.sequence);
  }
  out.append(record.object);
  return out;
}

absl::StatusOr<HintRecord> DecodeHintRecord(absl::string_view bytes) {
  FieldReader reader(bytes);
  const uint8_t format = reader.Byte();
  if (format > kHintFormat) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the hint has format ", static_cast<int>(format),
        ", newer than format ", static_cast<int>(kHintFormat),
        ", the newest that this release knows: upgrade this node"));
  }
  if (format == 0) reader.Fail();
  HintRecord record;
  const size_t count = reader.Count(kTargetBytesMin);
  if (count == 0) reader.Fail();
  record.targets.reserve(count);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    HintTarget target;
    target.node = NodeNumber{static_cast<uint32_t>(reader.Varint(UINT32_MAX))};
    target.created_ms = static_cast<int64_t>(reader.Varint());
    target.sequence = reader.Varint();
    if (i > 0 && record.targets.back().node >= target.node) reader.Fail();
    record.targets.push_back(target);
  }
  if (!reader.ok() || reader.rest().empty()) {
    return absl::DataLossError(absl::StrCat("the hint record of ", bytes.size(),
                                            " bytes is malformed"));
  }
  record.object = std::string(reader.rest());
  return record;
}

std::string HintRecordKey(KeyspaceId keyspace, Token token,
                          absl::string_view key) {
  std::string out;
  out.reserve(1 + 4 + 8 + key.size());
  out.push_back(kRecordPrefix);
  AppendBigEndian32(out, ToInt(keyspace));
  AppendBigEndian64(out, token);
  out.append(key.data(), key.size());
  return out;
}

absl::StatusOr<HintRecordKeyParts> ParseHintRecordKey(
    absl::string_view record_key) {
  FieldReader reader(record_key);
  const uint8_t prefix = reader.Byte();
  HintRecordKeyParts parts;
  parts.keyspace = KeyspaceId{reader.BigEndian32()};
  parts.token = reader.BigEndian64();
  if (!reader.ok() || prefix != kRecordPrefix) {
    return absl::DataLossError(absl::StrCat(
        "a key of ", record_key.size(), " bytes is not that of a hint record"));
  }
  parts.key = reader.rest();
  return parts;
}

HintRange HintIndexRange(NodeNumber target) {
  std::string begin(1, kIndexPrefix);
  AppendBigEndian32(begin, ToInt(target));
  std::string end = PrefixEnd(begin);
  return {std::move(begin), std::move(end)};
}

HintRange HintIndexRangeFrom(NodeNumber target, uint64_t sequence) {
  return {IndexKey(target, sequence), HintIndexRange(target).end};
}

HintRange HintKeyspaceRange(KeyspaceId keyspace) {
  std::string begin(1, kRecordPrefix);
  AppendBigEndian32(begin, ToInt(keyspace));
  std::string end = PrefixEnd(begin);
  return {std::move(begin), std::move(end)};
}

absl::StatusOr<uint64_t> HintIndexSequence(absl::string_view index_key) {
  FieldReader reader(index_key);
  const uint8_t prefix = reader.Byte();
  reader.BigEndian32();
  const uint64_t sequence = reader.BigEndian64();
  if (!reader.Finished() || prefix != kIndexPrefix) {
    return absl::DataLossError(
        absl::StrCat("a key of ", index_key.size(),
                     " bytes is not that of a hint's place in the order"));
  }
  return sequence;
}

HintStore::HintStore(HintStoreOptions options) : options_(options) {
  RINGKV_CHECK(options_.shards >= 1 && options_.shards <= 1 << kShardBits);
  RINGKV_CHECK(options_.shard >= 0 && options_.shard < options_.shards);
}

absl::Status HintStore::Recover(const Engine& engine) {
  backlogs_.clear();
  ages_.clear();
  next_counter_ = 1;
  if (Planted("hint-lost-at-restart")) return absl::OkStatus();
  absl::Status damage;
  // Sequences of all shards: with another number of shards than before, this
  // one may own records that another one numbered.
  RETURN_IF_ERROR(engine.Visit(
      Family::kHints, std::string(1, kIndexPrefix),
      std::string(1, kIndexPrefix + 1),
      [&](absl::string_view index_key, absl::string_view) {
        const absl::StatusOr<uint64_t> sequence = HintIndexSequence(index_key);
        damage = sequence.status();
        if (!damage.ok()) return false;
        next_counter_ = std::max(next_counter_, (*sequence >> kShardBits) + 1);
        return true;
      }));
  RETURN_IF_ERROR(damage);
  RETURN_IF_ERROR(
      engine.Visit(Family::kHints, std::string(1, kRecordPrefix),
                   std::string(1, kRecordPrefix + 1),
                   [&](absl::string_view record_key, absl::string_view value) {
                     damage = RecoverRecord(record_key, value);
                     return damage.ok();
                   }));
  return damage;
}

absl::Status HintStore::RecoverRecord(absl::string_view record_key,
                                      absl::string_view value) {
  ASSIGN_OR_RETURN(const HintRecordKeyParts parts,
                   ParseHintRecordKey(record_key));
  if (ShardOf(parts.token, options_.shards) != options_.shard) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const HintRecord record, DecodeHintRecord(value));
  for (const HintTarget& target : record.targets) {
    CountIn(target, record.object.size());
  }
  return absl::OkStatus();
}

absl::Status HintStore::CheckBounds(NodeNumber target, uint64_t bytes_added,
                                    int64_t now_ms) {
  const auto place = backlogs_.find(target);
  const HintBacklogStats backlog =
      place == backlogs_.end() ? HintBacklogStats{} : place->second;
  if (backlog.bytes + bytes_added > options_.bytes_max) {
    RINGKV_MARK("hint-refused-for-its-bytes");
    ++backlogs_[target].refused;
    return absl::ResourceExhaustedError(
        absl::StrCat("no more hints for node ", ToInt(target), ": ",
                     backlog.bytes, " bytes are stored, this one adds ",
                     bytes_added, ", the limit is ", options_.bytes_max));
  }
  const absl::Duration age = absl::Milliseconds(now_ms - backlog.oldest_ms);
  if (backlog.hints > 0 && age > options_.age_max) {
    RINGKV_MARK("hint-refused-for-age");
    ++backlogs_[target].refused;
    return absl::ResourceExhaustedError(absl::StrCat(
        "no more hints for node ", ToInt(target), ": the oldest is ",
        absl::FormatDuration(age), " old, the limit is ",
        absl::FormatDuration(options_.age_max)));
  }
  return absl::OkStatus();
}

absl::Status HintStore::Add(WriteBatch& batch, const ReadResult& found,
                            KeyspaceId keyspace, Token token,
                            absl::string_view key, absl::string_view object,
                            const std::vector<NodeNumber>& targets,
                            int64_t now_ms) {
  RINGKV_CHECK(!targets.empty());
  if (Planted("hint-not-stored")) return absl::OkStatus();
  ASSIGN_OR_RETURN(HintRecord record, RecordIn(found));
  ASSIGN_OR_RETURN(std::string merged, Merged(record.object, object));
  const bool object_changes = merged != record.object;
  const uint64_t old_bytes = record.object.size();
  const uint64_t growth =
      merged.size() > old_bytes ? merged.size() - old_bytes : 0;
  bool target_added = false;
  for (NodeNumber target : targets) {
    const bool known = Names(record, target);
    target_added = target_added || !known;
    if (known && !object_changes) continue;
    RETURN_IF_ERROR(
        CheckBounds(target, known ? growth : merged.size(), now_ms));
  }
  // The record grows for everybody whom it names.
  for (const HintTarget& target : record.targets) {
    if (growth == 0 || std::find(targets.begin(), targets.end(), target.node) !=
                           targets.end()) {
      continue;
    }
    const uint64_t bytes = backlogs_[target.node].bytes;
    if (bytes + growth <= options_.bytes_max) continue;
    RINGKV_MARK("hint-refused-for-another-target");
    ++backlogs_[targets.front()].refused;
    return absl::ResourceExhaustedError(
        absl::StrCat("no more hints for node ", ToInt(target.node),
                     ", which shares this "
                     "one: ",
                     bytes, " bytes are stored, this one adds ", growth,
                     ", the limit is ", options_.bytes_max));
  }
  if (!object_changes && !target_added) {
    RINGKV_MARK("hint-stored-already");
    return absl::OkStatus();
  }
  if (target_added && !record.targets.empty()) {
    RINGKV_MARK("hint-gets-another-target");
  }

  for (const HintTarget& target : record.targets) {
    HintBacklogStats& backlog = backlogs_[target.node];
    backlog.bytes = backlog.bytes - old_bytes + merged.size();
  }
  record.object = std::move(merged);
  const std::string record_key = HintRecordKey(keyspace, token, key);
  for (NodeNumber node : targets) {
    const auto place = PlaceOf(record, node);
    if (place != record.targets.end() && place->node == node) continue;
    const HintTarget target{
        node, now_ms,
        next_counter_++ << kShardBits | static_cast<uint64_t>(options_.shard)};
    record.targets.insert(place, target);
    batch.Put(Family::kHints, IndexKey(node, target.sequence), record_key);
    CountIn(target, record.object.size());
  }
  batch.Put(Family::kHints, record_key, EncodeHintRecord(record));
  return absl::OkStatus();
}

absl::StatusOr<bool> HintStore::RemoveTarget(WriteBatch& batch,
                                             const ReadResult& found,
                                             KeyspaceId keyspace, Token token,
                                             absl::string_view key,
                                             NodeNumber target,
                                             uint64_t delivered_digest) {
  ASSIGN_OR_RETURN(HintRecord record, RecordIn(found));
  const auto place = PlaceOf(record, target);
  if (place == record.targets.end() || place->node != target ||
      DigestOf(record.object) != delivered_digest) {
    return false;
  }
  batch.Delete(Family::kHints, IndexKey(target, place->sequence));
  CountOut(*place, record.object.size());
  ++backlogs_[target].delivered;
  record.targets.erase(place);
  std::string record_key = HintRecordKey(keyspace, token, key);
  if (record.targets.empty()) {
    batch.Delete(Family::kHints, std::move(record_key));
  } else {
    RINGKV_MARK("hint-kept-for-others");
    batch.Put(Family::kHints, std::move(record_key), EncodeHintRecord(record));
  }
  return true;
}

absl::StatusOr<bool> HintStore::Drop(WriteBatch& batch, const ReadResult& found,
                                     KeyspaceId keyspace, Token token,
                                     absl::string_view key) {
  ASSIGN_OR_RETURN(const HintRecord record, RecordIn(found));
  if (record.targets.empty()) return false;
  for (const HintTarget& target : record.targets) {
    batch.Delete(Family::kHints, IndexKey(target.node, target.sequence));
    CountOut(target, record.object.size());
  }
  batch.Delete(Family::kHints, HintRecordKey(keyspace, token, key));
  return true;
}

void HintStore::CountIn(const HintTarget& target, uint64_t bytes) {
  HintBacklogStats& backlog = backlogs_[target.node];
  ++backlog.hints;
  backlog.bytes += bytes;
  AgeGroup& group = ages_[target.node][target.created_ms / kAgeGroupMs];
  group.oldest_ms = group.hints == 0
                        ? target.created_ms
                        : std::min(group.oldest_ms, target.created_ms);
  ++group.hints;
  backlog.oldest_ms = ages_[target.node].begin()->second.oldest_ms;
}

void HintStore::CountOut(const HintTarget& target, uint64_t bytes) {
  HintBacklogStats& backlog = backlogs_[target.node];
  // Under the planted bug the count is wrong by design, and what the simulator
  // is to find is the hint that nobody delivers.
  if (Planted("hint-lost-at-restart") &&
      (ages_[target.node].count(target.created_ms / kAgeGroupMs) == 0 ||
       backlog.bytes < bytes)) {
    return;
  }
  RINGKV_CHECK(backlog.hints > 0 && backlog.bytes >= bytes);
  --backlog.hints;
  backlog.bytes -= bytes;
  std::map<int64_t, AgeGroup>& groups = ages_[target.node];
  const auto group = groups.find(target.created_ms / kAgeGroupMs);
  RINGKV_CHECK(group != groups.end());
  if (--group->second.hints == 0) groups.erase(group);
  backlog.oldest_ms = groups.empty() ? 0 : groups.begin()->second.oldest_ms;
  if (groups.empty()) ages_.erase(target.node);
}

}  // namespace ringkv
