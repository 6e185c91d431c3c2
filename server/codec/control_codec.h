// Handshake and control messages between structs and protobuf. What arrives is
// hostile: ids, enums, counts and sizes are checked before a struct exists.
// What the structs say beyond that is judged where it is used.
//
// Pure functions, without gRPC; the simulated network encodes and decodes with
// them too.

#ifndef RINGKV_SERVER_CODEC_CONTROL_CODEC_H_
#define RINGKV_SERVER_CODEC_CONTROL_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "membership/control/messages.h"
#include "ringkv/internal/v1/control.pb.h"

namespace ringkv {

// Fill `out`, which must be empty. Texts and lists above their limits are cut,
// so that what a node says never gets its whole message refused.
void HelloRequestToProto(const HelloRequest& hello,
                         internal::v1::HelloRequest& out);
void HelloReplyToProto(const HelloReply& reply, internal::v1::HelloReply& out);
void ControlToProto(const ControlMessage& message,
                    internal::v1::ControlMessage& out);

// INVALID_ARGUMENT names the field, its limit and what was found.
absl::StatusOr<HelloRequest> HelloRequestFromProto(
    const internal::v1::HelloRequest& in);
absl::StatusOr<HelloReply> HelloReplyFromProto(
    const internal::v1::HelloReply& in);
absl::StatusOr<ControlMessage> ControlFromProto(
    const internal::v1::ControlMessage& in);

// The same as bytes. INVALID_ARGUMENT also for bytes that are no such message.
std::string EncodeHelloRequest(const HelloRequest& hello);
absl::StatusOr<HelloRequest> DecodeHelloRequest(absl::string_view bytes);
std::string EncodeHelloReply(const HelloReply& reply);
absl::StatusOr<HelloReply> DecodeHelloReply(absl::string_view bytes);
std::string EncodeControl(const ControlMessage& message);
absl::StatusOr<ControlMessage> DecodeControl(absl::string_view bytes);

}  // namespace ringkv

#endif  // RINGKV_SERVER_CODEC_CONTROL_CODEC_H_
