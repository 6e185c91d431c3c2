#include "server/coordinator/scan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/coding.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/status.h"
#include "base/token.h"
#include "server/coordinator/common.h"

namespace ringkv {
namespace {

constexpr uint32_t kPageEntriesDefault = 1000;
constexpr uint32_t kPageEntriesMax = 10000;
// Values on one page; one object on top may be as large as objects get.
constexpr size_t kPageBytesMax = 1 << 20;
constexpr char kCursorFormat = 1;

}  // namespace

std::string EncodeScanCursor(const ScanCursor& cursor) {
  std::string out(1, kCursorFormat);
  AppendBigEndian32(out, ToInt(cursor.keyspace));
  AppendBigEndian64(out, cursor.token);
  out += cursor.key;
  AppendFixed64(out, Hash64(out));
  return out;
}

absl::StatusOr<ScanCursor> DecodeScanCursor(absl::string_view bytes,
                                            KeyspaceId keyspace) {
  constexpr size_t kChecksumBytes = 8;
  const absl::Status bad = absl::InvalidArgumentError(absl::StrCat(
      "the scan cursor (", bytes.size(),
      " bytes) is damaged or of another keyspace; start the scan anew"));
  if (bytes.size() < kChecksumBytes) return bad;
  const absl::string_view body = bytes.substr(0, bytes.size() - kChecksumBytes);
  FieldReader checksum(bytes.substr(body.size()));
  if (checksum.Fixed64() != Hash64(body)) return bad;
  FieldReader fields(body);
  const bool known_format = fields.Byte() == kCursorFormat;
  ScanCursor cursor;
  cursor.keyspace = KeyspaceId{fields.BigEndian32()};
  cursor.token = fields.BigEndian64();
  cursor.key = std::string(fields.rest());
  if (!fields.ok() || !known_format || cursor.keyspace != keyspace ||
      cursor.key.size() > kKeyBytesMax) {
    return bad;
  }
  return cursor;
}

void ScanCoordinator::Start(CallId call, ScanCall scan, Instant deadline) {
  call_ = call;
  scan_ = std::move(scan);
  deadline_ = deadline;
  started_ = core_.now();
  core_.BindCall(call, id());
  Begin();
}

void ScanCoordinator::Begin() {
  ring_ = core_.ring();
  replies_.clear();
  failed_.clear();
  waiting_.clear();
  absl::StatusOr<const Keyspace*> keyspace =
      ResolveKeyspace(*ring_, scan_.keyspace);
  if (!keyspace.ok()) return Fail(keyspace.status());
  keyspace_ = *keyspace;
  absl::StatusOr<QuorumNeed> need =
      ReadNeed(*ring_, *keyspace_, scan_.r, Quorum::kSloppy);
  if (!need.ok()) return Fail(need.status());
  required_ = need->required;
  from_start_ = scan_.cursor.empty();
  if (!from_start_) {
    absl::StatusOr<ScanCursor> cursor =
        DecodeScanCursor(scan_.cursor, keyspace_->id);
    if (!cursor.ok()) return Fail(cursor.status());
    cursor_ = *std::move(cursor);
  }
  entries_max_ = std::min(scan_.limit == 0 ? kPageEntriesDefault : scan_.limit,
                          kPageEntriesMax);
  const uint32_t members = ring_->spec().members.size();
  // Each member holds about N/members of what comes next; a little more spares
  // a second page when shares are uneven.
  const uint32_t ask_for = std::min<uint64_t>(
      entries_max_,
      uint64_t{entries_max_} * need->n / std::max(members, 1u) * 5 / 4 + 16);
  for (const Member& member : ring_->spec().members) {
    if (core_.IsAlive(member.number)) {
      waiting_.insert(member.number);
    } else {
      failed_[member.number] = "is down";
    }
  }
  const std::set<NodeNumber> ask = waiting_;
  for (NodeNumber node : ask) {
    RangeRequest request;
    request.operation = id();
    request.keyspace = keyspace_->id;
    request.from_start = from_start_;
    request.after_token = cursor_.token;
    request.after_key = cursor_.key;
    request.entries_max = ask_for;
    request.bytes_max = kPageBytesMax;
    request.keys_only = scan_.keys_only;
    request.remaining = deadline_ - core_.now();
    core_.Send(node, std::move(request));
  }
  core_.SetTimer(*this, AnswerBy(started_, deadline_));
}

void ScanCoordinator::OnReply(NodeNumber from, DataBody& body,
                              Release release) {
  auto* reply = std::get_if<RangeReply>(&body);
  // A refusal for an old ring is about what was asked before this scan began
  // anew: the newer ring has been adopted by now.
  if (reply == nullptr || reply->code == ReplyCode::kStaleRing ||
      waiting_.erase(from) == 0) {
    if (reply != nullptr && reply->code == ReplyCode::kStaleRing) {
      RINGKV_MARK("stale-ring-amid-scan");
    }
    return;
  }
  if (reply->code == ReplyCode::kOk) {
    replies_[from] = std::move(*reply);
  } else {
    failed_[from] = std::string(ReplyCodeText(reply->code));
  }
  Evaluate();
}

void ScanCoordinator::OnPeersChanged() {
  bool lost = false;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (core_.IsAlive(*it)) {
      ++it;
      continue;
    }
    RINGKV_MARK("scan-lost-a-node");
    failed_[*it] = "went down";
    it = waiting_.erase(it);
    lost = true;
  }
  if (lost) Evaluate();
}

void ScanCoordinator::Evaluate() {
  if (waiting_.empty()) Finish();
}

absl::Status ScanCoordinator::CheckCovered(bool to_the_end, Token end) const {
  if (failed_.empty()) return absl::OkStatus();
  const size_t first = from_start_ ? 0 : ring_->SegmentOf(cursor_.token);
  // Segment 0 wraps: tokens above the last one belong to it as well.
  const size_t count = ring_->segments();
  const size_t last = to_the_end ? count : ring_->SegmentOf(end);
  const auto check = [&](size_t segment) -> absl::Status {
    uint32_t answered = 0;
    std::string reasons;
    for (NodeNumber node :
         ring_->PreferenceListOfSegment(*keyspace_, segment)) {
      if (replies_.contains(node)) {
        ++answered;
      } else {
        absl::StrAppend(&reasons, reasons.empty() ? "" : ", ", "node ",
                        ToInt(node), " ", failed_.at(node));
      }
    }
    if (answered >= required_) return absl::OkStatus();
    RINGKV_MARK("scan-quorum-not-reached");
    return absl::UnavailableError(absl::StrCat(
        "scan quorum not reached for the tokens up to ",
        absl::Hex(ring_->SegmentEnd(segment), absl::kZeroPad16), ": required ",
        required_, ", received ", answered, " (", reasons, ")"));
  };
  if (last < first) {  // the end lies above the last token, in segment 0
    for (size_t i = first; i < count; ++i) RETURN_IF_ERROR(check(i));
    return check(0);
  }
  for (size_t i = first; i < std::min(last + 1, count); ++i) {
    RETURN_IF_ERROR(check(i));
  }
  return to_the_end ? check(0) : absl::OkStatus();
}

void ScanCoordinator::Finish() {
  // The page ends where the one that got least far ends.
  using Position = std::pair<Token, std::string>;
  std::optional<Position> end;
  for (const auto& [node, reply] : replies_) {
    if (reply.complete) continue;
    Position covered{reply.covered_token, reply.covered_key};
    if (!end.has_value() || covered < *end) end = std::move(covered);
  }
  if (absl::Status status =
          CheckCovered(!end.has_value(), end.has_value() ? end->first : 0);
      !status.ok()) {
    return Fail(std::move(status));
  }
  std::map<Position, Object> merged;
  for (auto& [node, reply] : replies_) {
    for (RangeReply::Item& item : reply.items) {
      Position position{TokenOf(item.key), item.key};
      if (end.has_value() && position > *end) break;
      absl::StatusOr<Object> object = DecodeObject(item.object);
      if (!object.ok() || object->mode != ModeOf(*keyspace_)) {
        ++core_.stats().corrupt_reads;
        return Fail(absl::DataLossError(
            absl::StrCat("node ", ToInt(node), " listed a damaged object")));
      }
      const auto it = merged.find(position);
      if (it == merged.end()) {
        merged.emplace(std::move(position), *std::move(object));
      } else {
        it->second = Merge(it->second, *object);
      }
    }
    reply.items.clear();
  }
  ScanAnswer answer;
  size_t bytes = 0;
  std::optional<Position> stopped;
  for (const auto& [position, object] : merged) {
    if (answer.entries.size() >= entries_max_ || bytes >= kPageBytesMax) {
      break;
    }
    stopped = position;
    ScanAnswer::Entry entry;
    entry.siblings = LiveSiblings(object, core_.wall().millis());
    if (entry.siblings.empty()) continue;  // a tombstone, or expired
    entry.key = position.second;
    entry.context = EncodeContext(ContextOf(object, keyspace_->id, entry.key));
    if (scan_.keys_only) {
      for (SiblingAnswer& sibling : entry.siblings) sibling.value.clear();
    }
    bytes += entry.key.size() + entry.context.size() + 64;
    for (const SiblingAnswer& sibling : entry.siblings) {
      bytes += sibling.value.size();
    }
    answer.entries.push_back(std::move(entry));
  }
  const bool all_merged_shown =
      merged.empty() ||
      (stopped.has_value() && *stopped == merged.rbegin()->first);
  if (!all_merged_shown) {
    auto border = merged.find(*stopped);
    if (Planted("scan-skips-border")) ++border;
    answer.cursor = EncodeScanCursor(
        {keyspace_->id, border->first.first, border->first.second});
  } else if (end.has_value()) {
    answer.cursor = EncodeScanCursor({keyspace_->id, end->first, end->second});
  }
  ClientAnswer result;
  result.answer = std::move(answer);
  core_.Answer(call_, std::move(result),
               keyspace_->durability == Durability::kSync ? Release::kSynced
                                                          : Release::kWritten);
  core_.End(*this);
}

void ScanCoordinator::Fail(absl::Status status) {
  ClientAnswer answer;
  answer.status = std::move(status);
  core_.Answer(call_, std::move(answer), Release::kWritten);
  core_.End(*this);
}

void ScanCoordinator::OnTimer() {
  // Who has not answered is left out; R of the others may do.
  for (NodeNumber node : waiting_) failed_[node] = "gave no answer in time";
  waiting_.clear();
  Finish();
}

void ScanCoordinator::OnRing() {
  const Keyspace* now = core_.ring()->FindKeyspace(keyspace_->id);
  if (now == nullptr || now->changed_at > ring_->epoch()) {
    Begin();
  }
}

void ScanCoordinator::OnCancelled(CallId call) { core_.End(*this); }

}  // namespace ringkv
