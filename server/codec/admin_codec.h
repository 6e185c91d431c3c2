// Admin calls and answers between ringkv.v1 and structs. Requests are judged
// for what the message alone tells; what they mean for the ring is judged by
// the control loop.
//
// Pure functions, without gRPC.

#ifndef RINGKV_SERVER_CODEC_ADMIN_CODEC_H_
#define RINGKV_SERVER_CODEC_ADMIN_CODEC_H_

#include "absl/status/statusor.h"
#include "membership/control/admin.h"
#include "ringkv/v1/admin.pb.h"

namespace ringkv {

// INVALID_ARGUMENT names the field and what was sent.
absl::StatusOr<AdminCall> AdminFromProto(const v1::StatusRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::InitRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::HintsRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::CreateKeyspaceRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::AlterKeyspaceRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::DropKeyspaceRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::StartOperationRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::OperationsRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::AbortOperationRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::RecoverRequest& in);
absl::StatusOr<AdminCall> AdminFromProto(const v1::FinishUpgradeRequest& in);

// Fill an empty `out` from an answer whose status is OK. INTERNAL if it belongs
// to another call.
absl::Status AdminToProto(const AdminAnswer& answer, v1::StatusResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer, v1::InitResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer, v1::HintsResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer, v1::KeyspaceResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::DropKeyspaceResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::StartOperationResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::OperationsResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::AbortOperationResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer, v1::RecoverResponse& out);
absl::Status AdminToProto(const AdminAnswer& answer,
                          v1::FinishUpgradeResponse& out);

}  // namespace ringkv

#endif  // RINGKV_SERVER_CODEC_ADMIN_CODEC_H_
