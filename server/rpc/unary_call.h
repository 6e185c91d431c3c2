// A unary gRPC call that is one call of a shard loop.

#ifndef RINGKV_SERVER_RPC_UNARY_CALL_H_
#define RINGKV_SERVER_RPC_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>

#include <utility>

#include "server/codec/public_codec.h"
#include "server/rpc/call_sink.h"
#include "server/rpc/clock_system.h"
#include "server/rpc/grpc_status.h"
#include "server/rpc/router.h"

namespace ringkv {

// gRPC owns the request for the length of the call and made it non-const;
// taking its strings saves a copy of every value.
template <class Request>
Request&& TakeRequest(const Request* request) {
  return std::move(const_cast<Request&>(*request));
}

// The status as gRPC wants it. With RESOURCE_EXHAUSTED goes the standard hint
// of when to try again, which gRPC's own retries obey.
inline grpc::Status FinalStatus(grpc::CallbackServerContext* context,
                                const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "100");
  }
  return ToGrpcStatus(status);
}

// Deletes itself when gRPC is done with it. `complete` may add to the response
// after an answer with status OK.
template <class Request, class Response, class Complete>
class UnaryCall final : public grpc::ServerUnaryReactor, public CallSink {
 public:
  UnaryCall(Router& router, grpc::CallbackServerContext* context,
            const Request* request, Response* response, Complete complete,
            absl::Duration timeout, absl::Duration timeout_max)
      : router_(router),
        context_(context),
        response_(response),
        complete_(std::move(complete)) {
    absl::StatusOr<ClientCall> call = CallFromProto(TakeRequest(request));
    if (!call.ok()) {
      FinishWith(call.status());
      return;
    }
    shard_ = router_.ShardOf(*call);
    id_ = router_.NewIds(1);
    const Instant deadline =
        DeadlineOf(context->deadline(), timeout, timeout_max);
    // The answer may come before this returns.
    if (absl::Status status = router_.Post(
            shard_, {id_, {this, 0, 0}, *std::move(call), deadline});
        !status.ok()) {
      FinishWith(status);
    }
  }

  bool OnAnswer(uint64_t, uint8_t, ClientAnswer&& answer) override {
    absl::Status status = std::move(answer.status);
    if (status.ok()) status = AnswerToProto(std::move(answer), *response_);
    if (status.ok()) complete_(*response_);
    FinishWith(status);
    return false;
  }

  void OnCancel() override {
    if (id_ != 0) router_.Cancel(shard_, id_);
  }
  void OnDone() override { delete this; }

 private:
  void FinishWith(const absl::Status& status) {
    this->Finish(FinalStatus(context_, status));
  }

  Router& router_;
  grpc::CallbackServerContext* const context_;
  Response* const response_;
  const Complete complete_;
  int shard_ = 0;
  CallId id_ = 0;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_UNARY_CALL_H_
