// Messages of the data stream between structs and protobuf. What arrives is
// hostile: enums, counts and sizes are checked before a struct exists. What the
// structs say beyond that is judged where it is used.
//
// Pure functions, without gRPC; the simulated network encodes and decodes with
// them too.

#ifndef RINGKV_SERVER_CODEC_DATA_CODEC_H_
#define RINGKV_SERVER_CODEC_DATA_CODEC_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ringkv/internal/v1/data.pb.h"
#include "server/messages.h"

namespace ringkv {

// No deadline lasts longer; what is left of one travels in microseconds and is
// cut to [0, this].
inline constexpr absl::Duration kDeadlineMax = absl::Hours(1);
// Longer error texts are cut, on both sides.
inline constexpr size_t kErrorTextBytesMax = 16 << 10;
inline constexpr size_t kRequestIdBytesMax = 64;
inline constexpr size_t kKeyspaceNameBytesMax = 64;
// A time to live above this is refused: the expiry must fit a timestamp.
inline constexpr absl::Duration kTtlMax = absl::Hours(24 * 365 * 100);

// Fills `out`, which must be empty; takes the strings out of `message`.
// Durations are rounded up to microseconds.
void DataToProto(DataMessage&& message, internal::v1::DataMessage& out);
// INVALID_ARGUMENT names the field, its limit and what was found. Takes the
// strings out of `in`, also on error.
absl::StatusOr<DataMessage> DataFromProto(internal::v1::DataMessage&& in);

// One message as bytes, and back. INVALID_ARGUMENT as above, and for bytes that
// are no message or more than kPeerMessageBytesMax.
std::string EncodeData(DataMessage message);
absl::StatusOr<DataMessage> DecodeData(absl::string_view bytes);

// What a message takes in a queue and about what it takes on the wire.
size_t DataBytes(const DataMessage& message);
// The same of an answer.
size_t AnswerBytes(const ClientAnswer& answer);

}  // namespace ringkv

#endif  // RINGKV_SERVER_CODEC_DATA_CODEC_H_
