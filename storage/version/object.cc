#include "storage/version/object.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/coding.h"
#include "base/planted.h"
#include "base/status.h"
#include "base/token.h"

namespace ringkv {
namespace {

constexpr uint8_t kObjectFormat = 1;
constexpr uint8_t kContextFormat = 1;
constexpr uint8_t kStoredFormat = 1;

// Fewest bytes that one item takes: node, birth, counter.
constexpr size_t kClockEntryBytesMin = 1 + 8 + 1;
// Actor's place in the clock, counter, stamp, expiry, length.
constexpr size_t kSiblingBytesMin = 1 + 1 + 8 + 1 + 1 + 1;

// Keeps hashes of one purpose from meeting those of another.
constexpr uint64_t kContextKeySeed = 0x636f6e7465787400;
constexpr uint64_t kContextChecksumSeed = 0x63686b73756d0001;

bool IsBefore(const ClockEntry& entry, const Actor& actor) {
  return entry.actor < actor;
}

// Which of two values under one dot stays. Any total order over all fields
// does; replicas only have to agree.
bool IsGreater(const Sibling& a, const Sibling& b) {
  const auto fields = [](const Sibling& s) {
    return std::tie(s.value, s.stamp, s.expires_at_ms);
  };
  return fields(a) > fields(b);
}

// True if `sibling` stays in a merge with an object that does not hold it and
// whose clock is `clock`: it has not been replaced there.
bool Survives(const Sibling& sibling, const Clock& clock) {
  if (Planted("merge-drops-cover")) return true;
  return !clock.Covers(sibling.dot);
}

std::vector<Sibling> MergeSiblings(const Object& a, const Object& b,
                                   MergeReport* report) {
  std::vector<Sibling> merged;
  merged.reserve(a.siblings.size() + b.siblings.size());
  auto left = a.siblings.begin();
  auto right = b.siblings.begin();
  while (left != a.siblings.end() || right != b.siblings.end()) {
    if (right == b.siblings.end() ||
        (left != a.siblings.end() && left->dot < right->dot)) {
      if (Survives(*left, b.clock)) merged.push_back(*left);
      ++left;
    } else if (left == a.siblings.end() || right->dot < left->dot) {
      if (Survives(*right, a.clock)) merged.push_back(*right);
      ++right;
    } else {
      if (report != nullptr && *left != *right) {
        ++report->equal_dots_with_unequal_values;
      }
      merged.push_back(IsGreater(*right, *left) ? *right : *left);
      ++left;
      ++right;
    }
  }
  return merged;
}

const Object& LwwWinner(const Object& a, const Object& b, MergeReport* report) {
  if (Planted("lww-tie") && a.newest.hlc == b.newest.hlc) return a;
  if (a.newest == b.newest) {
    if (a == b) return a;
    if (report != nullptr) ++report->lww_ties;
    return EncodeObject(a) > EncodeObject(b) ? a : b;
  }
  const Object& winner = a.newest > b.newest ? a : b;
  const Object& loser = &winner == &a ? b : a;
  if (report != nullptr && !loser.IsTombstone()) ++report->lww_dropped;
  return winner;
}

void AppendStamp(std::string& out, const Stamp& stamp) {
  AppendFixed64(out, ToInt(stamp.hlc));
  AppendVarint(out, ToInt(stamp.node));
}

Stamp ReadStamp(FieldReader& reader) {
  Stamp stamp;
  stamp.hlc = HlcTimestamp{reader.Fixed64()};
  stamp.node = NodeNumber{static_cast<uint32_t>(reader.Varint(UINT32_MAX))};
  return stamp;
}

void AppendClock(std::string& out, const Clock& clock) {
  AppendVarint(out, clock.entries().size());
  for (const ClockEntry& entry : clock.entries()) {
    AppendVarint(out, ToInt(entry.actor.node));
    AppendFixed64(out, entry.actor.birth);
    AppendVarint(out, entry.counter);
  }
}

// Fails the reader on entries that are unsorted, repeated or zero.
Clock ReadClock(FieldReader& reader) {
  const size_t count = reader.Count(kClockEntryBytesMin);
  std::vector<ClockEntry> entries;
  entries.reserve(count);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    ClockEntry entry;
    entry.actor.node =
        NodeNumber{static_cast<uint32_t>(reader.Varint(UINT32_MAX))};
    entry.actor.birth = reader.Fixed64();
    entry.counter = reader.Varint();
    if (entry.counter == 0 ||
        (!entries.empty() && !(entries.back().actor < entry.actor))) {
      reader.Fail();
    }
    entries.push_back(entry);
  }
  if (!reader.ok()) return Clock();
  return Clock::FromSorted(std::move(entries));
}

void AppendValue(std::string& out, const Sibling& sibling) {
  AppendVarint(out, static_cast<uint64_t>(sibling.expires_at_ms));
  AppendBytes(out, sibling.value);
}

void ReadValue(FieldReader& reader, Sibling& sibling) {
  sibling.expires_at_ms = static_cast<int64_t>(reader.Varint());
  sibling.value = std::string(reader.Bytes());
}

// A sibling's dot is always covered by the object's clock, so its actor is
// written as a place in the clock.
void AppendSiblings(std::string& out, const Object& object) {
  const std::vector<ClockEntry>& entries = object.clock.entries();
  AppendVarint(out, object.siblings.size());
  const Dot* previous = nullptr;
  for (const Sibling& sibling : object.siblings) {
    const auto place = std::lower_bound(entries.begin(), entries.end(),
                                        sibling.dot.actor, IsBefore);
    RINGKV_CHECK(place != entries.end() && place->actor == sibling.dot.actor);
    RINGKV_CHECK(sibling.dot.counter > 0 &&
                 sibling.dot.counter <= place->counter);
    RINGKV_CHECK(previous == nullptr || *previous < sibling.dot);
    previous = &sibling.dot;
    AppendVarint(out, static_cast<uint64_t>(place - entries.begin()));
    AppendVarint(out, sibling.dot.counter);
    AppendStamp(out, sibling.stamp);
    AppendValue(out, sibling);
  }
}

void ReadSiblings(FieldReader& reader, Object& object) {
  const std::vector<ClockEntry>& entries = object.clock.entries();
  const size_t count = reader.Count(kSiblingBytesMin);
  object.siblings.reserve(count);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    Sibling sibling;
    const uint64_t place = reader.Varint();
    if (place >= entries.size()) {
      reader.Fail();
      return;
    }
    sibling.dot.actor = entries[place].actor;
    sibling.dot.counter = reader.Varint(entries[place].counter);
    sibling.stamp = ReadStamp(reader);
    ReadValue(reader, sibling);
    if (sibling.dot.counter == 0 ||
        (i > 0 && !(object.siblings.back().dot < sibling.dot))) {
      reader.Fail();
    }
    object.siblings.push_back(std::move(sibling));
  }
}

// Removes the siblings that `context` covers and takes in what it knows.
Object Replace(const Object* local, const Clock& context, Stamp stamp) {
  Object object;
  if (local != nullptr) {
    RINGKV_CHECK(local->mode == ObjectMode::kSiblings);
    object.clock = local->clock;
    object.newest = local->newest;
    object.siblings.reserve(local->siblings.size() + 1);
    for (const Sibling& sibling : local->siblings) {
      if (!context.Covers(sibling.dot)) object.siblings.push_back(sibling);
    }
  }
  object.clock.Merge(context);
  object.newest = std::max(object.newest, stamp);
  return object;
}

absl::Status NewerFormat(absl::string_view what, uint8_t found, uint8_t known) {
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " has format ", static_cast<int>(found),
                   ", newer than format ", static_cast<int>(known),
                   ", the newest that this release knows: upgrade this node"));
}

// Reads and judges the format version that every record begins with.
absl::Status ReadFormat(FieldReader& reader, absl::string_view what,
                        uint8_t known) {
  const uint8_t format = reader.Byte();
  if (!reader.ok() || format == 0) {
    return absl::DataLossError(
        absl::StrCat("the ", what, " does not begin with a format version"));
  }
  if (format > known) return NewerFormat(what, format, known);
  return absl::OkStatus();
}

absl::Status InvalidContext(absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the context ", reason, "; read the key again and use that context"));
}

#if RINGKV_PLANTED_BUGS
// What a digest covers under the planted bug "digest-misses-field".
std::string WithoutStamps(absl::string_view encoded_object) {
  absl::StatusOr<Object> object = DecodeObject(encoded_object);
  if (!object.ok()) return std::string(encoded_object);
  object->newest = Stamp{};
  for (Sibling& sibling : object->siblings) {
    sibling.stamp = Stamp{};
    sibling.expires_at_ms = 0;
  }
  return EncodeObject(*object);
}
#endif

}  // namespace

Clock Clock::FromSorted(std::vector<ClockEntry> entries) {
  for (size_t i = 0; i < entries.size(); ++i) {
    RINGKV_CHECK(entries[i].counter > 0);
    RINGKV_CHECK(i == 0 || entries[i - 1].actor < entries[i].actor);
  }
  Clock clock;
  clock.entries_ = std::move(entries);
  return clock;
}

uint64_t Clock::CounterOf(const Actor& actor) const {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), actor, IsBefore);
  return place != entries_.end() && place->actor == actor ? place->counter : 0;
}

bool Clock::Covers(const Clock& other) const {
  return std::all_of(other.entries_.begin(), other.entries_.end(),
                     [this](const ClockEntry& entry) {
                       return CounterOf(entry.actor) >= entry.counter;
                     });
}

void Clock::Add(const Dot& dot) {
  RINGKV_CHECK(dot.counter > 0);
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), dot.actor, IsBefore);
  if (place != entries_.end() && place->actor == dot.actor) {
    place->counter = std::max(place->counter, dot.counter);
  } else {
    entries_.insert(place, ClockEntry{dot.actor, dot.counter});
  }
}

void Clock::Merge(const Clock& other) {
  if (other.entries_.empty()) return;
  std::vector<ClockEntry> merged;
  merged.reserve(entries_.size() + other.entries_.size());
  auto left = entries_.begin();
  auto right = other.entries_.begin();
  while (left != entries_.end() || right != other.entries_.end()) {
    if (right == other.entries_.end() ||
        (left != entries_.end() && left->actor < right->actor)) {
      merged.push_back(*left++);
    } else if (left == entries_.end() || right->actor < left->actor) {
      merged.push_back(*right++);
    } else {
      merged.push_back({left->actor, std::max(left->counter, right->counter)});
      ++left;
      ++right;
    }
  }
  entries_ = std::move(merged);
}

Object Merge(const Object& a, const Object& b, MergeReport* report) {
  RINGKV_CHECK(a.mode == b.mode);
  if (a.mode == ObjectMode::kLww) return LwwWinner(a, b, report);
  Object merged;
  merged.mode = a.mode;
  merged.siblings = MergeSiblings(a, b, report);
  merged.clock = a.clock;
  merged.clock.Merge(b.clock);
  merged.newest =
      Planted("merge-order") ? a.newest : std::max(a.newest, b.newest);
  return merged;
}

uint64_t ContextKeyHash(KeyspaceId keyspace, absl::string_view key) {
  return Hash64(key, kContextKeySeed + ToInt(keyspace));
}

Context ContextOf(const Object& object, KeyspaceId keyspace,
                  absl::string_view key) {
  return {ContextKeyHash(keyspace, key), object.clock, object.newest.hlc};
}

std::string EncodeContext(const Context& context) {
  std::string out;
  AppendByte(out, kContextFormat);
  AppendFixed64(out, context.key_hash);
  AppendFixed64(out, ToInt(context.newest));
  AppendClock(out, context.clock);
  AppendFixed64(out, Hash64(out, kContextChecksumSeed));
  return out;
}

absl::StatusOr<Context> DecodeContext(absl::string_view bytes,
                                      KeyspaceId keyspace,
                                      absl::string_view key) {
  constexpr size_t kChecksumBytes = 8;
  if (bytes.size() < 1 + kChecksumBytes) {
    return InvalidContext(
        absl::StrCat("is truncated, ", bytes.size(), " bytes long"));
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  FieldReader checksum(bytes.substr(body.size()));
  if (checksum.Fixed64() != Hash64(body, kContextChecksumSeed)) {
    return InvalidContext("is damaged: its checksum does not match");
  }
  FieldReader reader(body);
  const uint8_t format = reader.Byte();
  if (format != kContextFormat) {
    return InvalidContext(absl::StrCat("has format ", static_cast<int>(format),
                                       ", this node knows format ",
                                       static_cast<int>(kContextFormat)));
  }
  Context context;
  context.key_hash = reader.Fixed64();
  context.newest = HlcTimestamp{reader.Fixed64()};
  context.clock = ReadClock(reader);
  if (!reader.Finished()) return InvalidContext("is malformed");
  if (context.key_hash != ContextKeyHash(keyspace, key)) {
    return InvalidContext("belongs to another key or keyspace");
  }
  return context;
}

Object ApplyPut(const Object* local, const Clock& context, NewValue value) {
  Object object = Replace(local, context, value.stamp);
  object.clock.Add(value.dot);
  Sibling sibling{value.dot, value.stamp, value.expires_at_ms,
                  std::move(value.value)};
  const auto place = std::lower_bound(
      object.siblings.begin(), object.siblings.end(), sibling.dot,
      [](const Sibling& s, const Dot& dot) { return s.dot < dot; });
  if (place != object.siblings.end() && place->dot == sibling.dot) {
    *place = std::move(sibling);
  } else {
    object.siblings.insert(place, std::move(sibling));
  }
  return object;
}

Object ApplyDelete(const Object* local, const Clock& context, Stamp stamp) {
  return Replace(local, context, stamp);
}

Object MakeLww(Stamp stamp, int64_t expires_at_ms, std::string value) {
  Object object;
  object.mode = ObjectMode::kLww;
  object.newest = stamp;
  object.siblings.push_back({Dot{}, stamp, expires_at_ms, std::move(value)});
  return object;
}

Object MakeLwwTombstone(Stamp stamp) {
  Object object;
  object.mode = ObjectMode::kLww;
  object.newest = stamp;
  return object;
}

// Layout: format (1 byte), mode (1 byte), newest (hlc fixed 8, node varint),
// then
//   siblings: clock (count, then node varint, birth fixed 8, counter varint
//   each),
//             count, then for each sibling: place of its actor in the clock and
//             counter (varints), stamp as above, expiry varint, value;
//   lww:      0, or 1 and expiry varint, value. Its stamp is `newest`.
std::string EncodeObject(const Object& object) {
  size_t bytes = 64 + object.clock.entries().size() * (5 + 8 + 10);
  for (const Sibling& sibling : object.siblings) {
    bytes += 64 + sibling.value.size();
  }
  std::string out;
  out.reserve(bytes);
  AppendByte(out, kObjectFormat);
  AppendByte(out, static_cast<uint8_t>(object.mode));
  AppendStamp(out, object.newest);
  if (object.mode == ObjectMode::kSiblings) {
    AppendClock(out, object.clock);
    AppendSiblings(out, object);
    return out;
  }
  RINGKV_CHECK(object.clock.empty());
  RINGKV_CHECK(object.siblings.size() <= 1);
  AppendByte(out, static_cast<uint8_t>(object.siblings.size()));
  for (const Sibling& sibling : object.siblings) {
    RINGKV_CHECK(sibling.dot == Dot{});
    RINGKV_CHECK(sibling.stamp == object.newest);
    AppendValue(out, sibling);
  }
  return out;
}

absl::StatusOr<Object> DecodeObject(absl::string_view bytes) {
  FieldReader reader(bytes);
  RETURN_IF_ERROR(ReadFormat(reader, "object", kObjectFormat));
  Object object;
  const uint8_t mode = reader.Byte();
  object.newest = ReadStamp(reader);
  if (mode == static_cast<uint8_t>(ObjectMode::kSiblings)) {
    object.clock = ReadClock(reader);
    ReadSiblings(reader, object);
  } else if (mode == static_cast<uint8_t>(ObjectMode::kLww)) {
    object.mode = ObjectMode::kLww;
    const uint8_t count = reader.Byte();
    if (count > 1) reader.Fail();
    if (count == 1) {
      Sibling sibling;
      sibling.stamp = object.newest;
      ReadValue(reader, sibling);
      object.siblings.push_back(std::move(sibling));
    }
  } else {
    reader.Fail();
  }
  if (!reader.Finished()) {
    return absl::DataLossError(
        absl::StrCat("the object of ", bytes.size(), " bytes is malformed"));
  }
  return object;
}

uint64_t DigestOf(absl::string_view encoded_object) {
  if (encoded_object.empty()) return 0;
  uint64_t digest;
#if RINGKV_PLANTED_BUGS
  if (Planted("digest-misses-field")) {
    digest = Hash64(WithoutStamps(encoded_object));
    return digest == 0 ? 1 : digest;
  }
#endif
  digest = Hash64(encoded_object);
  return digest == 0 ? 1 : digest;
}

// Layout: format (1 byte), 0 or 1 for `own`, its fields if 1 (start id and
// birth fixed 8, counter varint), then the object up to the end.
std::string EncodeStored(const std::optional<OwnRecord>& own,
                         absl::string_view encoded_object) {
  RINGKV_CHECK(!encoded_object.empty());
  std::string out;
  out.reserve(2 + 8 + 8 + kVarintBytesMax + encoded_object.size());
  AppendByte(out, kStoredFormat);
  AppendByte(out, own.has_value() ? 1 : 0);
  if (own.has_value()) {
    RINGKV_CHECK(own->counter > 0);
    AppendFixed64(out, own->start_id);
    AppendFixed64(out, own->birth);
    AppendVarint(out, own->counter);
  }
  out.append(encoded_object.data(), encoded_object.size());
  return out;
}

absl::StatusOr<StoredRecord> DecodeStored(absl::string_view bytes) {
  FieldReader reader(bytes);
  RETURN_IF_ERROR(ReadFormat(reader, "stored record", kStoredFormat));
  StoredRecord record;
  const uint8_t has_own = reader.Byte();
  if (has_own > 1) reader.Fail();
  if (has_own == 1) {
    OwnRecord own;
    own.start_id = reader.Fixed64();
    own.birth = reader.Fixed64();
    own.counter = reader.Varint();
    if (own.counter == 0) reader.Fail();
    record.own = own;
  }
  if (!reader.ok() || reader.rest().empty()) {
    return absl::DataLossError(absl::StrCat(
        "the stored record of ", bytes.size(), " bytes is malformed"));
  }
  record.object = std::string(reader.rest());
  return record;
}

std::string DataKey(KeyspaceId keyspace, Token token, absl::string_view key) {
  std::string out;
  out.reserve(4 + 8 + key.size());
  AppendBigEndian32(out, ToInt(keyspace));
  AppendBigEndian64(out, token);
  out.append(key.data(), key.size());
  return out;
}

absl::StatusOr<DataKeyParts> ParseDataKey(absl::string_view data_key) {
  FieldReader reader(data_key);
  DataKeyParts parts;
  parts.keyspace = KeyspaceId{reader.BigEndian32()};
  parts.token = reader.BigEndian64();
  if (!reader.ok()) {
    return absl::DataLossError(absl::StrCat(
        "a data key has at least 12 bytes, this one has ", data_key.size()));
  }
  parts.key = reader.rest();
  return parts;
}

}  // namespace ringkv
