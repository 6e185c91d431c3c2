#include "server/codec/data_codec.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ringkv {
namespace {

namespace pb = internal::v1;

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

absl::Status Invalid(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}

absl::Status CheckBytes(absl::string_view field, size_t size, size_t min,
                        size_t max) {
  if (size >= min && size <= max) return absl::OkStatus();
  return Invalid(field,
                 absl::StrCat(size, " bytes, allowed are ", min, " to ", max));
}

// Every enum here starts at 0 without gaps, and its numbers are those on the
// wire.
template <class Enum>
absl::StatusOr<Enum> CheckEnum(absl::string_view field, int value, Enum last) {
  if (value >= 0 && value <= static_cast<int>(last)) {
    return static_cast<Enum>(value);
  }
  return Invalid(field, absl::StrCat("unknown value ", value));
}
absl::StatusOr<ReplyCode> CodeOf(int value) {
  return CheckEnum("code", value, ReplyCode::kUnchecked);
}
absl::StatusOr<ReadKind> KindOf(int value) {
  return CheckEnum("kind", value, ReadKind::kClock);
}
absl::StatusOr<Quorum> QuorumOf(int value) {
  return CheckEnum("quorum", value, Quorum::kStrict);
}

uint64_t ToMicros(absl::Duration duration, absl::Duration max) {
  if (duration <= absl::ZeroDuration()) return 0;
  duration = std::min(duration, max);
  return static_cast<uint64_t>(
      absl::ToInt64Microseconds(absl::Ceil(duration, absl::Microseconds(1))));
}
absl::Duration FromMicros(uint64_t micros, absl::Duration max) {
  const uint64_t limit = static_cast<uint64_t>(absl::ToInt64Microseconds(max));
  return absl::Microseconds(static_cast<int64_t>(std::min(micros, limit)));
}

std::string Text(absl::string_view text) {
  return std::string(text.substr(0, kErrorTextBytesMax));
}

absl::StatusOr<NodeNumber> NodeOf(absl::string_view field, uint32_t number) {
  if (number == 0) return Invalid(field, "0 is no node");
  return NodeNumber{number};
}

template <class Repeated>
absl::StatusOr<std::vector<NodeNumber>> NodesOf(absl::string_view field,
                                                const Repeated& numbers) {
  std::vector<NodeNumber> nodes;
  nodes.reserve(numbers.size());
  for (const uint32_t number : numbers) {
    ASSIGN_OR_RETURN(const NodeNumber node, NodeOf(field, number));
    nodes.push_back(node);
  }
  return nodes;
}

template <class Repeated>
void PutNodes(const std::vector<NodeNumber>& nodes, Repeated& out) {
  out.Reserve(static_cast<int>(nodes.size()));
  for (const NodeNumber node : nodes) out.Add(ToInt(node));
}

absl::StatusOr<KeyspaceId> KeyspaceOf(uint32_t id) {
  if (id == 0) return Invalid("keyspace", "0 is no keyspace");
  return KeyspaceId{id};
}

absl::Status CheckKey(absl::string_view key) {
  return CheckBytes("key", key.size(), 1, kKeyBytesMax);
}
absl::Status CheckKeyspaceName(absl::string_view name) {
  return CheckBytes("keyspace", name.size(), 0, kKeyspaceNameBytesMax);
}

// --- Client calls and answers ---

void ToProto(GetCall&& call, pb::ClientCall& out) {
  pb::GetCall& get = *out.mutable_get();
  get.set_keyspace(std::move(call.keyspace));
  get.set_key(std::move(call.key));
  get.set_r(call.r);
  get.set_quorum(static_cast<pb::CallQuorum>(call.quorum));
  get.set_max_answer_bytes(call.max_answer_bytes);
}

void ToProto(PutCall&& call, pb::ClientCall& out) {
  pb::PutCall& put = *out.mutable_put();
  put.set_keyspace(std::move(call.keyspace));
  put.set_key(std::move(call.key));
  put.set_is_delete(call.is_delete);
  put.set_value(std::move(call.value));
  if (call.context.has_value()) put.set_context(*std::move(call.context));
  put.set_blind(call.blind);
  put.set_w(call.w);
  put.set_quorum(static_cast<pb::CallQuorum>(call.quorum));
  put.set_ttl_us(ToMicros(call.ttl, kTtlMax));
  if (call.request == RequestKey()) return;
  pb::RequestKey& request = *put.mutable_request();
  request.set_id(std::move(call.request.id));
  request.set_age_us(ToMicros(call.request.age, kTtlMax));
  request.set_coordinator_start_id(call.request.coordinator_start_id);
}

void ToProto(ScanCall&& call, pb::ClientCall& out) {
  pb::ScanCall& scan = *out.mutable_scan();
  scan.set_keyspace(std::move(call.keyspace));
  scan.set_cursor(std::move(call.cursor));
  scan.set_limit(call.limit);
  scan.set_keys_only(call.keys_only);
  scan.set_r(call.r);
}

void ToProto(LocateCall&& call, pb::ClientCall& out) {
  pb::LocateCall& locate = *out.mutable_locate();
  locate.set_keyspace(std::move(call.keyspace));
  locate.set_key(std::move(call.key));
}

absl::StatusOr<ClientCall> FromProto(pb::GetCall&& in) {
  RETURN_IF_ERROR(CheckKeyspaceName(in.keyspace()));
  RETURN_IF_ERROR(CheckKey(in.key()));
  GetCall call;
  ASSIGN_OR_RETURN(call.quorum, QuorumOf(in.quorum()));
  call.keyspace = std::move(*in.mutable_keyspace());
  call.key = std::move(*in.mutable_key());
  call.r = in.r();
  call.max_answer_bytes = in.max_answer_bytes();
  return call;
}

absl::StatusOr<ClientCall> FromProto(pb::PutCall&& in) {
  RETURN_IF_ERROR(CheckKeyspaceName(in.keyspace()));
  RETURN_IF_ERROR(CheckKey(in.key()));
  RETURN_IF_ERROR(CheckBytes("value", in.value().size(), 0, kValueBytesMax));
  RETURN_IF_ERROR(CheckBytes("request id", in.request().id().size(), 0,
                             kRequestIdBytesMax));
  PutCall call;
  ASSIGN_OR_RETURN(call.quorum, QuorumOf(in.quorum()));
  call.keyspace = std::move(*in.mutable_keyspace());
  call.key = std::move(*in.mutable_key());
  call.is_delete = in.is_delete();
  call.value = std::move(*in.mutable_value());
  if (in.has_context()) call.context = std::move(*in.mutable_context());
  call.blind = in.blind();
  call.w = in.w();
  call.ttl = FromMicros(in.ttl_us(), kTtlMax);
  if (in.has_request()) {
    pb::RequestKey& request = *in.mutable_request();
    call.request.id = std::move(*request.mutable_id());
    call.request.age = FromMicros(request.age_us(), kTtlMax);
    call.request.coordinator_start_id = request.coordinator_start_id();
  }
  return call;
}

absl::StatusOr<ClientCall> FromProto(pb::ScanCall&& in) {
  RETURN_IF_ERROR(CheckKeyspaceName(in.keyspace()));
  ScanCall call;
  call.keyspace = std::move(*in.mutable_keyspace());
  call.cursor = std::move(*in.mutable_cursor());
  call.limit = in.limit();
  call.keys_only = in.keys_only();
  call.r = in.r();
  return call;
}

absl::StatusOr<ClientCall> FromProto(pb::LocateCall&& in) {
  RETURN_IF_ERROR(CheckKeyspaceName(in.keyspace()));
  RETURN_IF_ERROR(CheckKey(in.key()));
  LocateCall call;
  call.keyspace = std::move(*in.mutable_keyspace());
  call.key = std::move(*in.mutable_key());
  return call;
}

absl::StatusOr<ClientCall> FromProto(pb::ClientCall&& in) {
  switch (in.call_case()) {
    case pb::ClientCall::kGet:
      return FromProto(std::move(*in.mutable_get()));
    case pb::ClientCall::kPut:
      return FromProto(std::move(*in.mutable_put()));
    case pb::ClientCall::kScan:
      return FromProto(std::move(*in.mutable_scan()));
    case pb::ClientCall::kLocate:
      return FromProto(std::move(*in.mutable_locate()));
    case pb::ClientCall::CALL_NOT_SET:
      break;
  }
  return Invalid("call", "missing or unknown");
}

void ToProto(const absl::Status& status, pb::CallStatus& out) {
  out.set_code(static_cast<uint32_t>(status.code()));
  out.set_message(Text(absl::string_view(status.message())));
}

absl::Status FromProto(const pb::CallStatus& in, absl::Status& status) {
  if (in.code() > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return Invalid("status code", absl::StrCat("unknown value ", in.code()));
  }
  status = absl::Status(
      static_cast<absl::StatusCode>(in.code()),
      absl::string_view(in.message()).substr(0, kErrorTextBytesMax));
  return absl::OkStatus();
}

void ToProto(std::vector<SiblingAnswer>&& siblings,
             google::protobuf::RepeatedPtrField<pb::SiblingAnswer>& out) {
  out.Reserve(static_cast<int>(siblings.size()));
  for (SiblingAnswer& sibling : siblings) {
    pb::SiblingAnswer& to = *out.Add();
    to.set_value(std::move(sibling.value));
    to.set_hlc_timestamp(ToInt(sibling.hlc));
    to.set_expires_at_ms(sibling.expires_at_ms);
  }
}

std::vector<SiblingAnswer> FromProto(
    google::protobuf::RepeatedPtrField<pb::SiblingAnswer>& in) {
  std::vector<SiblingAnswer> siblings;
  siblings.reserve(in.size());
  for (pb::SiblingAnswer& from : in) {
    siblings.push_back({std::move(*from.mutable_value()),
                        HlcTimestamp{from.hlc_timestamp()},
                        from.expires_at_ms()});
  }
  return siblings;
}

void ToProto(LocateAnswer&& answer, pb::LocateAnswer& out) {
  out.set_token(answer.token);
  for (const LocateAnswer::Copy& copy : answer.copies) {
    pb::LocateAnswer::Copy& to = *out.add_copies();
    to.set_node(ToInt(copy.node));
    to.set_replica(copy.replica);
    to.set_pending(copy.pending);
    if (!copy.status.ok()) ToProto(copy.status, *to.mutable_status());
    to.set_found(copy.found);
    to.set_tombstone(copy.tombstone);
    to.set_siblings(copy.siblings);
    to.set_bytes(copy.bytes);
    to.set_digest(copy.digest);
    to.set_newest(ToInt(copy.newest));
    PutNodes(copy.hint_for, *to.mutable_hint_for());
  }
}

absl::StatusOr<LocateAnswer> FromProto(const pb::LocateAnswer& in) {
  LocateAnswer answer;
  answer.token = in.token();
  answer.copies.reserve(in.copies_size());
  for (const pb::LocateAnswer::Copy& from : in.copies()) {
    LocateAnswer::Copy& copy = answer.copies.emplace_back();
    ASSIGN_OR_RETURN(copy.node, NodeOf("node", from.node()));
    copy.replica = from.replica();
    copy.pending = from.pending();
    if (from.has_status()) {
      RETURN_IF_ERROR(FromProto(from.status(), copy.status));
    }
    copy.found = from.found();
    copy.tombstone = from.tombstone();
    copy.siblings = from.siblings();
    copy.bytes = from.bytes();
    copy.digest = from.digest();
    copy.newest = HlcTimestamp{from.newest()};
    ASSIGN_OR_RETURN(copy.hint_for, NodesOf("hint_for", from.hint_for()));
  }
  return answer;
}

void ToProto(ClientAnswer&& answer, pb::ClientAnswer& out) {
  if (!answer.status.ok()) ToProto(answer.status, *out.mutable_status());
  out.set_ring_epoch(answer.ring_epoch);
  std::visit(Overloaded{
                 [](std::monostate) {},
                 [&out](GetAnswer& get) {
                   pb::GetAnswer& to = *out.mutable_get();
                   ToProto(std::move(get.siblings), *to.mutable_siblings());
                   if (get.context.has_value()) {
                     to.set_context(*std::move(get.context));
                   }
                 },
                 [&out](PutAnswer& put) {
                   pb::PutAnswer& to = *out.mutable_put();
                   if (put.context.has_value()) {
                     to.set_context(*std::move(put.context));
                   }
                   to.set_unresolved_siblings(put.unresolved_siblings);
                   to.set_replica_acks(put.replica_acks);
                   to.set_stand_in_acks(put.stand_in_acks);
                 },
                 [&out](ScanAnswer& scan) {
                   pb::ScanAnswer& to = *out.mutable_scan();
                   for (ScanAnswer::Entry& entry : scan.entries) {
                     pb::ScanAnswer::Entry& item = *to.add_entries();
                     item.set_key(std::move(entry.key));
                     ToProto(std::move(entry.siblings),
                             *item.mutable_siblings());
                     item.set_context(std::move(entry.context));
                   }
                   to.set_cursor(std::move(scan.cursor));
                 },
                 [&out](LocateAnswer& locate) {
                   ToProto(std::move(locate), *out.mutable_locate());
                 },
             },
             answer.answer);
}

absl::StatusOr<ClientAnswer> FromProto(pb::ClientAnswer&& in) {
  ClientAnswer answer;
  if (in.has_status()) {
    RETURN_IF_ERROR(FromProto(in.status(), answer.status));
  }
  answer.ring_epoch = in.ring_epoch();
  switch (in.answer_case()) {
    case pb::ClientAnswer::kGet: {
      pb::GetAnswer& from = *in.mutable_get();
      GetAnswer get;
      get.siblings = FromProto(*from.mutable_siblings());
      if (from.has_context()) get.context = std::move(*from.mutable_context());
      answer.answer = std::move(get);
      break;
    }
    case pb::ClientAnswer::kPut: {
      pb::PutAnswer& from = *in.mutable_put();
      PutAnswer put;
      if (from.has_context()) put.context = std::move(*from.mutable_context());
      put.unresolved_siblings = from.unresolved_siblings();
      put.replica_acks = from.replica_acks();
      put.stand_in_acks = from.stand_in_acks();
      answer.answer = std::move(put);
      break;
    }
    case pb::ClientAnswer::kScan: {
      ScanAnswer scan;
      scan.entries.reserve(in.scan().entries_size());
      for (pb::ScanAnswer::Entry& from :
           *in.mutable_scan()->mutable_entries()) {
        RETURN_IF_ERROR(CheckKey(from.key()));
        scan.entries.push_back({std::move(*from.mutable_key()),
                                FromProto(*from.mutable_siblings()),
                                std::move(*from.mutable_context())});
      }
      scan.cursor = std::move(*in.mutable_scan()->mutable_cursor());
      answer.answer = std::move(scan);
      break;
    }
    case pb::ClientAnswer::kLocate: {
      ASSIGN_OR_RETURN(answer.answer, FromProto(in.locate()));
      break;
    }
    case pb::ClientAnswer::ANSWER_NOT_SET:
      break;
  }
  return answer;
}

// --- Bodies ---

void BodyToProto(ReadRequest&& body, pb::DataMessage& out) {
  pb::ReadRequest& to = *out.mutable_read_request();
  to.set_operation(body.operation);
  to.set_keyspace(ToInt(body.keyspace));
  to.set_key(std::move(body.key));
  to.set_kind(static_cast<pb::ReadKind>(body.kind));
  to.set_from_hints(body.from_hints);
  to.set_remaining_us(ToMicros(body.remaining, kDeadlineMax));
}

absl::StatusOr<DataBody> BodyFromProto(pb::ReadRequest&& in) {
  RETURN_IF_ERROR(CheckKey(in.key()));
  ReadRequest body;
  body.operation = in.operation();
  ASSIGN_OR_RETURN(body.keyspace, KeyspaceOf(in.keyspace()));
  ASSIGN_OR_RETURN(body.kind, KindOf(in.kind()));
  body.key = std::move(*in.mutable_key());
  body.from_hints = in.from_hints();
  body.remaining = FromMicros(in.remaining_us(), kDeadlineMax);
  return body;
}

void BodyToProto(ReadReply&& body, pb::DataMessage& out) {
  pb::ReadReply& to = *out.mutable_read_reply();
  to.set_operation(body.operation);
  to.set_code(static_cast<pb::ReplyCode>(body.code));
  to.set_kind(static_cast<pb::ReadKind>(body.kind));
  to.set_found(body.found);
  to.set_digest(body.digest);
  to.set_object(std::move(body.object));
  PutNodes(body.hint_for, *to.mutable_hint_for());
}

absl::StatusOr<DataBody> BodyFromProto(pb::ReadReply&& in) {
  ReadReply body;
  body.operation = in.operation();
  ASSIGN_OR_RETURN(body.code, CodeOf(in.code()));
  ASSIGN_OR_RETURN(body.kind, KindOf(in.kind()));
  body.found = in.found();
  body.digest = in.digest();
  body.object = std::move(*in.mutable_object());
  ASSIGN_OR_RETURN(body.hint_for, NodesOf("hint_for", in.hint_for()));
  return body;
}

void BodyToProto(WriteRequest&& body, pb::DataMessage& out) {
  pb::WriteRequest& to = *out.mutable_write_request();
  to.set_operation(body.operation);
  to.set_keyspace(ToInt(body.keyspace));
  to.set_key(std::move(body.key));
  to.set_object(std::move(body.object));
  PutNodes(body.hint_for, *to.mutable_hint_for());
  to.set_purpose(static_cast<pb::WritePurpose>(body.purpose));
}

absl::StatusOr<DataBody> BodyFromProto(pb::WriteRequest&& in) {
  RETURN_IF_ERROR(CheckKey(in.key()));
  if (in.object().empty()) return Invalid("object", "empty");
  WriteRequest body;
  body.operation = in.operation();
  ASSIGN_OR_RETURN(body.keyspace, KeyspaceOf(in.keyspace()));
  ASSIGN_OR_RETURN(body.purpose,
                   CheckEnum("purpose", in.purpose(), WritePurpose::kHandoff));
  body.key = std::move(*in.mutable_key());
  body.object = std::move(*in.mutable_object());
  ASSIGN_OR_RETURN(body.hint_for, NodesOf("hint_for", in.hint_for()));
  return body;
}

void BodyToProto(WriteReply&& body, pb::DataMessage& out) {
  pb::WriteReply& to = *out.mutable_write_reply();
  to.set_operation(body.operation);
  to.set_hint(body.hint);
  to.set_code(static_cast<pb::ReplyCode>(body.code));
  if (!body.message.empty()) to.set_message(Text(body.message));
}

absl::StatusOr<DataBody> BodyFromProto(pb::WriteReply&& in) {
  WriteReply body;
  body.operation = in.operation();
  body.hint = in.hint();
  ASSIGN_OR_RETURN(body.code, CodeOf(in.code()));
  body.message = std::move(*in.mutable_message());
  if (body.message.size() > kErrorTextBytesMax) {
    body.message.resize(kErrorTextBytesMax);
  }
  return body;
}

void BodyToProto(ForwardRequest&& body, pb::DataMessage& out) {
  pb::ForwardRequest& to = *out.mutable_forward_request();
  to.set_operation(body.operation);
  to.set_start_id(body.start_id);
  pb::ClientCall& call = *to.mutable_call();
  std::visit([&call](auto& from) { ToProto(std::move(from), call); },
             body.call);
  to.set_remaining_us(ToMicros(body.remaining, kDeadlineMax));
  to.set_sent_us(body.sent.micros);
}

absl::StatusOr<DataBody> BodyFromProto(pb::ForwardRequest&& in) {
  ForwardRequest body;
  body.operation = in.operation();
  body.start_id = in.start_id();
  ASSIGN_OR_RETURN(body.call, FromProto(std::move(*in.mutable_call())));
  body.remaining = FromMicros(in.remaining_us(), kDeadlineMax);
  // Differences of calendars must not overflow.
  if (in.sent_us() < 0 || in.sent_us() > int64_t{1} << 60) {
    return Invalid("forward_request.sent_us",
                   absl::StrCat(in.sent_us(), " is no calendar's time"));
  }
  body.sent = WallTime{in.sent_us()};
  return body;
}

void BodyToProto(ForwardReply&& body, pb::DataMessage& out) {
  pb::ForwardReply& to = *out.mutable_forward_reply();
  to.set_operation(body.operation);
  to.set_code(static_cast<pb::ReplyCode>(body.code));
  ToProto(std::move(body.answer), *to.mutable_answer());
}

absl::StatusOr<DataBody> BodyFromProto(pb::ForwardReply&& in) {
  ForwardReply body;
  body.operation = in.operation();
  ASSIGN_OR_RETURN(body.code, CodeOf(in.code()));
  ASSIGN_OR_RETURN(body.answer, FromProto(std::move(*in.mutable_answer())));
  return body;
}

void BodyToProto(RangeRequest&& body, pb::DataMessage& out) {
  pb::RangeRequest& to = *out.mutable_range_request();
  to.set_operation(body.operation);
  to.set_keyspace(ToInt(body.keyspace));
  to.set_after_token(body.after_token);
  to.set_after_key(std::move(body.after_key));
  to.set_from_start(body.from_start);
  to.set_entries_max(body.entries_max);
  to.set_bytes_max(body.bytes_max);
  to.set_keys_only(body.keys_only);
  to.set_remaining_us(ToMicros(body.remaining, kDeadlineMax));
}

absl::StatusOr<DataBody> BodyFromProto(pb::RangeRequest&& in) {
  RETURN_IF_ERROR(
      CheckBytes("after_key", in.after_key().size(), 0, kKeyBytesMax));
  RangeRequest body;
  body.operation = in.operation();
  ASSIGN_OR_RETURN(body.keyspace, KeyspaceOf(in.keyspace()));
  body.after_token = in.after_token();
  body.after_key = std::move(*in.mutable_after_key());
  body.from_start = in.from_start();
  body.entries_max = in.entries_max();
  body.bytes_max = in.bytes_max();
  body.keys_only = in.keys_only();
  body.remaining = FromMicros(in.remaining_us(), kDeadlineMax);
  return body;
}

void BodyToProto(RangeReply&& body, pb::DataMessage& out) {
  pb::RangeReply& to = *out.mutable_range_reply();
  to.set_operation(body.operation);
  to.set_code(static_cast<pb::ReplyCode>(body.code));
  for (RangeReply::Item& item : body.items) {
    pb::RangeReply::Item& added = *to.add_items();
    added.set_key(std::move(item.key));
    added.set_object(std::move(item.object));
  }
  to.set_complete(body.complete);
  to.set_covered_token(body.covered_token);
  to.set_covered_key(std::move(body.covered_key));
}

absl::StatusOr<DataBody> BodyFromProto(pb::RangeReply&& in) {
  RETURN_IF_ERROR(
      CheckBytes("covered_key", in.covered_key().size(), 0, kKeyBytesMax));
  RangeReply body;
  body.operation = in.operation();
  ASSIGN_OR_RETURN(body.code, CodeOf(in.code()));
  body.items.reserve(in.items_size());
  for (pb::RangeReply::Item& item : *in.mutable_items()) {
    RETURN_IF_ERROR(CheckKey(item.key()));
    if (item.object().empty()) return Invalid("object", "empty");
    body.items.push_back(
        {std::move(*item.mutable_key()), std::move(*item.mutable_object())});
  }
  body.complete = in.complete();
  body.covered_token = in.covered_token();
  body.covered_key = std::move(*in.mutable_covered_key());
  return body;
}

void ToProto(StreamPosition&& position, pb::StreamPosition& out) {
  out.set_token(position.token);
  out.set_key(std::move(position.key));
}

absl::StatusOr<StreamPosition> FromProto(pb::StreamPosition&& in) {
  RETURN_IF_ERROR(
      CheckBytes("position key", in.key().size(), 0, kKeyBytesMax + 1));
  return StreamPosition{in.token(), std::move(*in.mutable_key())};
}

absl::StatusOr<StreamKind> StreamKindOf(int value) {
  return CheckEnum("kind", value, StreamKind::kDigests);
}

void BodyToProto(StreamRequest&& body, pb::DataMessage& out) {
  pb::StreamRequest& to = *out.mutable_stream_request();
  to.set_operation(body.operation);
  to.set_topology(body.topology);
  to.set_keyspace(ToInt(body.keyspace));
  to.set_kind(static_cast<pb::StreamKind>(body.kind));
  ToProto(std::move(body.from), *to.mutable_from());
  to.set_last(body.last);
  to.set_entries_max(body.entries_max);
  to.set_bytes_max(body.bytes_max);
}

absl::StatusOr<DataBody> BodyFromProto(pb::StreamRequest&& in) {
  StreamRequest body;
  body.operation = in.operation();
  body.topology = in.topology();
  ASSIGN_OR_RETURN(body.keyspace, KeyspaceOf(in.keyspace()));
  ASSIGN_OR_RETURN(body.kind, StreamKindOf(in.kind()));
  ASSIGN_OR_RETURN(body.from, FromProto(std::move(*in.mutable_from())));
  body.last = in.last();
  if (body.from.token > body.last) return Invalid("from", "above the end");
  body.entries_max = in.entries_max();
  body.bytes_max = in.bytes_max();
  return body;
}

void BodyToProto(StreamChunk&& body, pb::DataMessage& out) {
  pb::StreamChunk& to = *out.mutable_stream_chunk();
  to.set_operation(body.operation);
  to.set_code(static_cast<pb::ReplyCode>(body.code));
  to.set_kind(static_cast<pb::StreamKind>(body.kind));
  ToProto(std::move(body.from), *to.mutable_from());
  for (StreamChunk::Item& item : body.items) {
    pb::StreamChunk::Item& added = *to.add_items();
    added.set_key(std::move(item.key));
    if (!item.object.empty()) added.set_object(std::move(item.object));
    added.set_digest(item.digest);
  }
  to.set_complete(body.complete);
  ToProto(std::move(body.next), *to.mutable_next());
  to.set_checksum(body.checksum);
}

absl::StatusOr<DataBody> BodyFromProto(pb::StreamChunk&& in) {
  StreamChunk body;
  body.operation = in.operation();
  ASSIGN_OR_RETURN(body.code, CodeOf(in.code()));
  ASSIGN_OR_RETURN(body.kind, StreamKindOf(in.kind()));
  ASSIGN_OR_RETURN(body.from, FromProto(std::move(*in.mutable_from())));
  body.items.reserve(in.items_size());
  for (pb::StreamChunk::Item& item : *in.mutable_items()) {
    RETURN_IF_ERROR(CheckKey(item.key()));
    if (item.object().empty() != (body.kind == StreamKind::kDigests)) {
      return Invalid("object", "does not fit the kind");
    }
    body.items.push_back({std::move(*item.mutable_key()),
                          std::move(*item.mutable_object()), item.digest()});
  }
  body.complete = in.complete();
  ASSIGN_OR_RETURN(body.next, FromProto(std::move(*in.mutable_next())));
  body.checksum = in.checksum();
  return body;
}

absl::StatusOr<DataBody> BodyFromProto(pb::DataMessage&& in) {
  switch (in.body_case()) {
    case pb::DataMessage::kReadRequest:
      return BodyFromProto(std::move(*in.mutable_read_request()));
    case pb::DataMessage::kReadReply:
      return BodyFromProto(std::move(*in.mutable_read_reply()));
    case pb::DataMessage::kWriteRequest:
      return BodyFromProto(std::move(*in.mutable_write_request()));
    case pb::DataMessage::kWriteReply:
      return BodyFromProto(std::move(*in.mutable_write_reply()));
    case pb::DataMessage::kForwardRequest:
      return BodyFromProto(std::move(*in.mutable_forward_request()));
    case pb::DataMessage::kForwardReply:
      return BodyFromProto(std::move(*in.mutable_forward_reply()));
    case pb::DataMessage::kRangeRequest:
      return BodyFromProto(std::move(*in.mutable_range_request()));
    case pb::DataMessage::kRangeReply:
      return BodyFromProto(std::move(*in.mutable_range_reply()));
    case pb::DataMessage::kStreamRequest:
      return BodyFromProto(std::move(*in.mutable_stream_request()));
    case pb::DataMessage::kStreamChunk:
      return BodyFromProto(std::move(*in.mutable_stream_chunk()));
    case pb::DataMessage::BODY_NOT_SET:
      break;
  }
  return Invalid("body", "missing or unknown");
}

// A message and its parts in one place, most of them on the stack.
class MessageArena {
 public:
  MessageArena() : arena_(block_, sizeof(block_)) {}
  pb::DataMessage& Make() {
    return *google::protobuf::Arena::CreateMessage<pb::DataMessage>(&arena_);
  }

 private:
  alignas(std::max_align_t) char block_[2048];
  google::protobuf::Arena arena_;
};

// --- Sizes ---

size_t CallBytes(const ClientCall& call) {
  return std::visit(
      Overloaded{
          [](const GetCall& get) {
            return get.keyspace.size() + get.key.size();
          },
          [](const PutCall& put) {
            return put.keyspace.size() + put.key.size() + put.value.size() +
                   (put.context.has_value() ? put.context->size() : 0) +
                   put.request.id.size();
          },
          [](const ScanCall& scan) {
            return scan.keyspace.size() + scan.cursor.size();
          },
          [](const LocateCall& locate) {
            return locate.keyspace.size() + locate.key.size();
          },
      },
      call);
}

size_t SiblingBytes(const std::vector<SiblingAnswer>& siblings) {
  size_t bytes = 0;
  for (const SiblingAnswer& sibling : siblings) {
    bytes += 24 + sibling.value.size();
  }
  return bytes;
}

size_t BodyBytes(const ReadRequest& body) { return body.key.size(); }
size_t BodyBytes(const ReadReply& body) { return body.object.size(); }
size_t BodyBytes(const WriteRequest& body) {
  return body.key.size() + body.object.size() + 5 * body.hint_for.size();
}
size_t BodyBytes(const WriteReply& body) { return body.message.size(); }
size_t BodyBytes(const ForwardRequest& body) { return CallBytes(body.call); }
size_t BodyBytes(const ForwardReply& body) { return AnswerBytes(body.answer); }
size_t BodyBytes(const RangeRequest& body) { return body.after_key.size(); }
size_t BodyBytes(const StreamRequest& body) { return body.from.key.size(); }
size_t BodyBytes(const StreamChunk& body) {
  size_t bytes = body.from.key.size() + body.next.key.size();
  for (const StreamChunk::Item& item : body.items) {
    bytes += 24 + item.key.size() + item.object.size();
  }
  return bytes;
}
size_t BodyBytes(const RangeReply& body) {
  size_t bytes = body.covered_key.size();
  for (const RangeReply::Item& item : body.items) {
    bytes += 16 + item.key.size() + item.object.size();
  }
  return bytes;
}

}  // namespace

void DataToProto(DataMessage&& message, internal::v1::DataMessage& out) {
  out.set_epoch(message.epoch);
  std::visit([&out](auto& body) { BodyToProto(std::move(body), out); },
             message.body);
}

absl::StatusOr<DataMessage> DataFromProto(internal::v1::DataMessage&& in) {
  DataMessage message;
  message.epoch = in.epoch();
  ASSIGN_OR_RETURN(message.body, BodyFromProto(std::move(in)));
  return message;
}

std::string EncodeData(DataMessage message) {
  MessageArena arena;
  pb::DataMessage& proto = arena.Make();
  DataToProto(std::move(message), proto);
  return proto.SerializeAsString();
}

absl::StatusOr<DataMessage> DecodeData(absl::string_view bytes) {
  RETURN_IF_ERROR(
      CheckBytes("data message", bytes.size(), 0, kPeerMessageBytesMax));
  MessageArena arena;
  pb::DataMessage& proto = arena.Make();
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Invalid("data message", "malformed");
  }
  return DataFromProto(std::move(proto));
}

size_t AnswerBytes(const ClientAnswer& answer) {
  return answer.status.message().size() +
         std::visit(
             Overloaded{
                 [](std::monostate) { return size_t{0}; },
                 [](const GetAnswer& get) {
                   return SiblingBytes(get.siblings) +
                          (get.context.has_value() ? get.context->size() : 0);
                 },
                 [](const PutAnswer& put) {
                   return put.context.has_value() ? put.context->size() : 0;
                 },
                 [](const ScanAnswer& scan) {
                   size_t bytes = scan.cursor.size();
                   for (const ScanAnswer::Entry& entry : scan.entries) {
                     bytes += 16 + entry.key.size() + entry.context.size() +
                              SiblingBytes(entry.siblings);
                   }
                   return bytes;
                 },
                 [](const LocateAnswer& locate) {
                   return 128 * locate.copies.size();
                 },
             },
             answer.answer);
}

size_t DataBytes(const DataMessage& message) {
  constexpr size_t kFixedParts = 64;
  return kFixedParts +
         std::visit([](const auto& body) { return BodyBytes(body); },
                    message.body);
}

}  // namespace ringkv
