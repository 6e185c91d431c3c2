// The public KeyValue service over gRPC's callback API: each method turns its
// request into calls of the shard loops, and their answers into a response.
// Nothing waits on a gRPC thread.

#ifndef RINGKV_SERVER_RPC_KV_SERVICE_H_
#define RINGKV_SERVER_RPC_KV_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "ringkv/v1/kv.grpc.pb.h"
#include "server/rpc/ring_board.h"
#include "server/rpc/router.h"

namespace ringkv {

// What a call may take if the client sets no deadline, and at most.
inline constexpr absl::Duration kCallTimeoutDefault = absl::Seconds(10);
inline constexpr absl::Duration kCallTimeoutMax = absl::Minutes(10);
// Operations of one Pipeline that run at once; beyond, the stream is not read.
inline constexpr size_t kPipelineInFlightMax = 8192;
// Entries in one message of a Scan.
inline constexpr uint32_t kScanPageEntries = 1000;

class KvService final : public v1::KeyValue::CallbackService {
 public:
  // Both outlive the service.
  KvService(Router& router, RingBoard& board)
      : router_(router), board_(board) {}

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const v1::GetRequest* request,
                                v1::GetResponse* response) override;
  grpc::ServerUnaryReactor* Put(grpc::CallbackServerContext* context,
                                const v1::PutRequest* request,
                                v1::PutResponse* response) override;
  grpc::ServerUnaryReactor* Delete(grpc::CallbackServerContext* context,
                                   const v1::DeleteRequest* request,
                                   v1::DeleteResponse* response) override;
  grpc::ServerUnaryReactor* Batch(grpc::CallbackServerContext* context,
                                  const v1::BatchRequest* request,
                                  v1::BatchResponse* response) override;
  grpc::ServerBidiReactor<v1::PipelineRequest, v1::PipelineResponse>* Pipeline(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::ScanResponse>* Scan(
      grpc::CallbackServerContext* context,
      const v1::ScanRequest* request) override;
  grpc::ServerWriteReactor<v1::WatchRingResponse>* WatchRing(
      grpc::CallbackServerContext* context,
      const v1::WatchRingRequest* request) override;

 private:
  Router& router_;
  RingBoard& board_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_KV_SERVICE_H_
