#include "server/codec/public_codec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/codec/data_codec.h"

namespace ringkv {
namespace {

constexpr size_t kTextBytesMax = 4 << 10;

absl::Status CheckKeyspace(absl::string_view name) {
  if (name.size() <= kKeyspaceNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("keyspace: a name has at most ", kKeyspaceNameBytesMax,
                   " bytes, this one has ", name.size()));
}

absl::Status CheckKey(absl::string_view key) {
  if (key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("key: empty; a key has 1 to ", kKeyBytesMax, " bytes"));
  }
  if (key.size() <= kKeyBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("key: ", key.size(),
                                                 " bytes, above the limit of ",
                                                 kKeyBytesMax, " bytes"));
}

absl::Status CheckValue(absl::string_view value) {
  if (value.size() <= kValueBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("value: ", value.size(),
                                                 " bytes, above the limit of ",
                                                 kValueBytesMax, " bytes"));
}

absl::StatusOr<Quorum> QuorumOf(v1::Quorum quorum) {
  switch (quorum) {
    case v1::QUORUM_DEFAULT:
      return Quorum::kDefault;
    case v1::QUORUM_SLOPPY:
      return Quorum::kSloppy;
    case v1::QUORUM_STRICT:
      return Quorum::kStrict;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("quorum: unknown value ", static_cast<int>(quorum)));
  }
}

absl::StatusOr<absl::Duration> TtlOf(const google::protobuf::Duration& ttl) {
  constexpr int kNanosPerSecond = 1000000000;
  const bool malformed = ttl.nanos() <= -kNanosPerSecond ||
                         ttl.nanos() >= kNanosPerSecond ||
                         (ttl.seconds() > 0 && ttl.nanos() < 0) ||
                         (ttl.seconds() < 0 && ttl.nanos() > 0);
  // Saturates for seconds that do not fit.
  const absl::Duration duration =
      absl::Seconds(ttl.seconds()) + absl::Nanoseconds(ttl.nanos());
  if (malformed || duration < kTtlMin || duration > kTtlMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ttl: ", ttl.seconds(), " s and ", ttl.nanos(),
        " ns; allowed are 1 ms to ", absl::ToInt64Seconds(kTtlMax), " s"));
  }
  return duration;
}

absl::StatusOr<RequestKey> RequestOf(v1::RequestId&& in) {
  if (in.id().size() > kRequestIdBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("request_id.id: ", in.id().size(),
                     " bytes, above the limit of ", kRequestIdBytesMax));
  }
  RequestKey request;
  request.id = std::move(*in.mutable_id());
  const int64_t age_ms_max = absl::ToInt64Milliseconds(kTtlMax);
  request.age = absl::Milliseconds(static_cast<int64_t>(
      std::min(in.age_ms(), static_cast<uint64_t>(age_ms_max))));
  request.coordinator_start_id = in.coordinator_start_id();
  return request;
}

template <class Answer>
absl::StatusOr<Answer*> Expect(ClientAnswer& answer) {
  if (Answer* found = std::get_if<Answer>(&answer.answer)) return found;
  return absl::InternalError("the answer is of another kind than the call");
}

void ToProto(std::vector<SiblingAnswer>&& siblings,
             google::protobuf::RepeatedPtrField<v1::Sibling>& out) {
  // What a protobuf timestamp can say: years 1 to 9999.
  constexpr int64_t kMillisMin = -62135596800000;
  constexpr int64_t kMillisMax = 253402300799999;
  out.Reserve(static_cast<int>(siblings.size()));
  for (SiblingAnswer& sibling : siblings) {
    v1::Sibling& to = *out.Add();
    to.set_value(std::move(sibling.value));
    to.set_hlc_timestamp(ToInt(sibling.hlc));
    if (sibling.expires_at_ms == 0) continue;
    const int64_t millis =
        std::clamp(sibling.expires_at_ms, kMillisMin, kMillisMax);
    int64_t seconds = millis / 1000;
    int64_t rest = millis % 1000;
    if (rest < 0) {
      rest += 1000;
      --seconds;
    }
    to.mutable_expires_at()->set_seconds(seconds);
    to.mutable_expires_at()->set_nanos(static_cast<int32_t>(rest * 1000000));
  }
}

template <class Response>
absl::Status PutAnswerToProto(ClientAnswer&& answer, Response& out) {
  ASSIGN_OR_RETURN(PutAnswer * put, Expect<PutAnswer>(answer));
  if (put->context.has_value()) out.set_context(*std::move(put->context));
  out.set_unresolved_siblings(put->unresolved_siblings);
  out.set_replica_acks(put->replica_acks);
  out.set_stand_in_acks(put->stand_in_acks);
  out.set_ring_epoch(answer.ring_epoch);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClientCall> CallFromProto(v1::GetRequest&& in) {
  RETURN_IF_ERROR(CheckKeyspace(in.keyspace()));
  RETURN_IF_ERROR(CheckKey(in.key()));
  if (in.max_answer_bytes() > kPeerMessageBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_answer_bytes: ", in.max_answer_bytes(),
                     ", above the limit of ", kPeerMessageBytesMax));
  }
  GetCall call;
  ASSIGN_OR_RETURN(call.quorum, QuorumOf(in.quorum()));
  call.keyspace = std::move(*in.mutable_keyspace());
  call.key = std::move(*in.mutable_key());
  call.r = in.r();
  call.max_answer_bytes = in.max_answer_bytes();
  return call;
}

absl::StatusOr<ClientCall> CallFromProto(v1::PutRequest&& in) {
  RETURN_IF_ERROR(CheckKeyspace(in.keyspace()));
  RETURN_IF_ERROR(CheckKey(in.key()));
  RETURN_IF_ERROR(CheckValue(in.value()));
  if (in.has_context() && in.blind()) {
    return absl::InvalidArgumentError(
        "context and blind: a put that names what it has read is not blind");
  }
  PutCall call;
  ASSIGN_OR_RETURN(call.quorum, QuorumOf(in.quorum()));
  if (in.has_ttl()) {
    ASSIGN_OR_RETURN(call.ttl, TtlOf(in.ttl()));
  }
  if (in.has_request_id()) {
    ASSIGN_OR_RETURN(call.request,
                     RequestOf(std::move(*in.mutable_request_id())));
  }
  call.keyspace = std::move(*in.mutable_keyspace());
  call.key = std::move(*in.mutable_key());
  call.value = std::move(*in.mutable_value());
  if (in.has_context()) call.context = std::move(*in.mutable_context());
  call.blind = in.blind();
  call.w = in.w();
  return call;
}

absl::StatusOr<ClientCall> CallFromProto(v1::DeleteRequest&& in) {
  RETURN_IF_ERROR(CheckKeyspace(in.keyspace()));
  RETURN_IF_ERROR(CheckKey(in.key()));
  PutCall call;
  call.is_delete = true;
  ASSIGN_OR_RETURN(call.quorum, QuorumOf(in.quorum()));
  if (in.has_request_id()) {
    ASSIGN_OR_RETURN(call.request,
                     RequestOf(std::move(*in.mutable_request_id())));
  }
  call.keyspace = std::move(*in.mutable_keyspace());
  call.key = std::move(*in.mutable_key());
  if (in.has_context()) call.context = std::move(*in.mutable_context());
  call.w = in.w();
  return call;
}

absl::StatusOr<ClientCall> CallFromProto(v1::Operation&& in) {
  switch (in.operation_case()) {
    case v1::Operation::kGet:
      return CallFromProto(std::move(*in.mutable_get()));
    case v1::Operation::kPut:
      return CallFromProto(std::move(*in.mutable_put()));
    case v1::Operation::kDelete:
      return CallFromProto(std::move(*in.mutable_delete_()));
    case v1::Operation::OPERATION_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "operation: missing or unknown; it is one of get, put, delete");
}

absl::StatusOr<ClientCall> CallFromProto(v1::LocateRequest&& in) {
  RETURN_IF_ERROR(CheckKeyspace(in.keyspace()));
  RETURN_IF_ERROR(CheckKey(in.key()));
  LocateCall call;
  call.keyspace = std::move(*in.mutable_keyspace());
  call.key = std::move(*in.mutable_key());
  return call;
}

absl::StatusOr<ScanCall> ScanFromProto(v1::ScanRequest&& in) {
  RETURN_IF_ERROR(CheckKeyspace(in.keyspace()));
  if (in.cursor().size() > kCursorBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("cursor: ", in.cursor().size(),
                     " bytes, above the limit of ", kCursorBytesMax));
  }
  ScanCall call;
  call.keyspace = std::move(*in.mutable_keyspace());
  call.cursor = std::move(*in.mutable_cursor());
  call.keys_only = in.keys_only();
  call.r = in.r();
  return call;
}

absl::Status CheckBatchCount(size_t operations) {
  if (operations >= 1 && operations <= kBatchOperationsMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("operations: ", operations,
                                                 " of them; allowed are 1 to ",
                                                 kBatchOperationsMax));
}

absl::Status CheckMessageBytes(size_t bytes) {
  if (bytes <= kPublicMessageBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("message: ", bytes, " bytes, above the limit of ",
                   kPublicMessageBytesMax, " bytes"));
}

absl::Status AnswerToProto(ClientAnswer&& answer, v1::GetResponse& out) {
  ASSIGN_OR_RETURN(GetAnswer * get, Expect<GetAnswer>(answer));
  ToProto(std::move(get->siblings), *out.mutable_siblings());
  if (get->context.has_value()) out.set_context(*std::move(get->context));
  out.set_ring_epoch(answer.ring_epoch);
  return absl::OkStatus();
}

absl::Status AnswerToProto(ClientAnswer&& answer, v1::PutResponse& out) {
  return PutAnswerToProto(std::move(answer), out);
}

absl::Status AnswerToProto(ClientAnswer&& answer, v1::DeleteResponse& out) {
  return PutAnswerToProto(std::move(answer), out);
}

absl::Status AnswerToProto(ClientAnswer&& answer, v1::ScanResponse& out) {
  ASSIGN_OR_RETURN(ScanAnswer * scan, Expect<ScanAnswer>(answer));
  out.mutable_entries()->Reserve(static_cast<int>(scan->entries.size()));
  for (ScanAnswer::Entry& entry : scan->entries) {
    v1::ScanEntry& to = *out.add_entries();
    to.set_key(std::move(entry.key));
    ToProto(std::move(entry.siblings), *to.mutable_siblings());
    to.set_context(std::move(entry.context));
  }
  out.set_cursor(std::move(scan->cursor));
  return absl::OkStatus();
}

absl::Status AnswerToProto(ClientAnswer&& answer, v1::LocateResponse& out) {
  ASSIGN_OR_RETURN(LocateAnswer * locate, Expect<LocateAnswer>(answer));
  out.set_token(locate->token);
  for (const LocateAnswer::Copy& copy : locate->copies) {
    v1::LocatedCopy& to = *out.add_copies();
    to.set_node_number(ToInt(copy.node));
    to.set_replica(copy.replica);
    to.set_pending(copy.pending);
    to.set_answered(copy.status.ok());
    if (!copy.status.ok()) {
      to.set_error(
          PrintableText(copy.status.message().empty()
                            ? absl::StatusCodeToString(copy.status.code())
                            : std::string(copy.status.message())));
    }
    to.set_found(copy.found);
    to.set_tombstone(copy.tombstone);
    to.set_siblings(copy.siblings);
    to.set_bytes(copy.bytes);
    to.set_digest(copy.digest);
    to.set_newest_hlc_timestamp(ToInt(copy.newest));
    for (const NodeNumber node : copy.hint_for) to.add_hint_for(ToInt(node));
  }
  return absl::OkStatus();
}

OperationKind KindOf(const v1::Operation& operation) {
  switch (operation.operation_case()) {
    case v1::Operation::kGet:
      return OperationKind::kGet;
    case v1::Operation::kPut:
      return OperationKind::kPut;
    case v1::Operation::kDelete:
      return OperationKind::kDelete;
    case v1::Operation::OPERATION_NOT_SET:
      break;
  }
  return OperationKind::kNone;
}

void ResultToProto(ClientAnswer&& answer, OperationKind kind,
                   v1::OperationResult& out) {
  absl::Status status = std::move(answer.status);
  if (status.ok()) {
    switch (kind) {
      case OperationKind::kGet:
        status = AnswerToProto(std::move(answer), *out.mutable_get());
        break;
      case OperationKind::kPut:
        status = AnswerToProto(std::move(answer), *out.mutable_put());
        break;
      case OperationKind::kDelete:
        status = AnswerToProto(std::move(answer), *out.mutable_delete_());
        break;
      case OperationKind::kNone:
        status = absl::InternalError("an operation of no kind was answered");
        break;
    }
  }
  if (status.ok()) return;
  // Codes of absl::Status are those of gRPC.
  out.clear_answer();
  out.set_code(static_cast<uint32_t>(status.code()));
  out.set_message(PrintableText(absl::string_view(status.message())));
}

std::string PrintableText(absl::string_view text) {
  std::string out(text.substr(0, kTextBytesMax));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e) c = c == '\n' || c == '\t' ? ' ' : '?';
  }
  return out;
}

}  // namespace ringkv
