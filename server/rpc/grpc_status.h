// Where absl::Status and grpc::Status meet; nowhere else.

#ifndef RINGKV_SERVER_RPC_GRPC_STATUS_H_
#define RINGKV_SERVER_RPC_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace ringkv {

// The same code; the message with '?' for bytes that are not printable.
grpc::Status ToGrpcStatus(const absl::Status& status);
// UNKNOWN for a code that is none.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_GRPC_STATUS_H_
