// The public messages (ringkv.v1) between protobuf and structs. Here, at the
// border, a request's format is judged: key and value sizes, the time to live,
// enums, what excludes what. Whether the keyspace exists, R and W fit it and a
// context is genuine is judged by the shard.
//
// Pure functions, without gRPC.

#ifndef RINGKV_SERVER_CODEC_PUBLIC_CODEC_H_
#define RINGKV_SERVER_CODEC_PUBLIC_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ringkv/v1/admin.pb.h"
#include "ringkv/v1/kv.pb.h"
#include "server/messages.h"

namespace ringkv {

// Operations in one Batch or one message of a Pipeline.
inline constexpr size_t kBatchOperationsMax = 10000;
// A cursor holds a token and a key.
inline constexpr size_t kCursorBytesMax = kKeyBytesMax + 256;
// The shortest time to live.
inline constexpr absl::Duration kTtlMin = absl::Milliseconds(1);

// Each returns INVALID_ARGUMENT that names the field, the limit and what was
// sent. They take the strings out of `in`, also on error.
absl::StatusOr<ClientCall> CallFromProto(v1::GetRequest&& in);
absl::StatusOr<ClientCall> CallFromProto(v1::PutRequest&& in);
absl::StatusOr<ClientCall> CallFromProto(v1::DeleteRequest&& in);
// Also for an operation that is none of the three.
absl::StatusOr<ClientCall> CallFromProto(v1::Operation&& in);
absl::StatusOr<ClientCall> CallFromProto(v1::LocateRequest&& in);
// `limit` of the result is 0: pages are the adapter's concern.
absl::StatusOr<ScanCall> ScanFromProto(v1::ScanRequest&& in);
// INVALID_ARGUMENT unless 1 to kBatchOperationsMax.
absl::Status CheckBatchCount(size_t operations);
// INVALID_ARGUMENT above kPublicMessageBytesMax.
absl::Status CheckMessageBytes(size_t bytes);

// Fill an empty `out` from an answer whose status is OK; they take the strings
// out of `answer`. INTERNAL if the answer belongs to another kind of call (a
// peer may have sent it).
absl::Status AnswerToProto(ClientAnswer&& answer, v1::GetResponse& out);
absl::Status AnswerToProto(ClientAnswer&& answer, v1::PutResponse& out);
absl::Status AnswerToProto(ClientAnswer&& answer, v1::DeleteResponse& out);
absl::Status AnswerToProto(ClientAnswer&& answer, v1::ScanResponse& out);
// Names of nodes are left empty.
absl::Status AnswerToProto(ClientAnswer&& answer, v1::LocateResponse& out);

enum class OperationKind : uint8_t { kNone, kGet, kPut, kDelete };
OperationKind KindOf(const v1::Operation& operation);
// Any status; an answer of the wrong kind becomes INTERNAL.
void ResultToProto(ClientAnswer&& answer, OperationKind kind,
                   v1::OperationResult& out);

// `text` as protobuf and gRPC carry it: at most 4 KiB, and '?' for every byte
// that is not printable ASCII.
std::string PrintableText(absl::string_view text);

}  // namespace ringkv

#endif  // RINGKV_SERVER_CODEC_PUBLIC_CODEC_H_
