// The public calls as requests of ringkv.v1, and the answers back; and the
// calls that carry them.

#ifndef RINGKV_CLIENT_OPERATIONS_H_
#define RINGKV_CLIENT_OPERATIONS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/call.h"
#include "client/client.h"
#include "ringkv/v1/kv.pb.h"

namespace ringkv {

// INVALID_ARGUMENT for what no request can say: a negative time to live, a
// message over the limit.
absl::Status CheckGet(const GetOptions& options);
absl::Status CheckPut(absl::string_view key, absl::string_view value,
                      const PutOptions& options);

v1::GetRequest ToRequest(absl::string_view key, const std::string& keyspace,
                         const GetOptions& options);
// Without a request id.
v1::PutRequest ToRequest(absl::string_view key, absl::string_view value,
                         const std::string& keyspace,
                         const PutOptions& options);
v1::DeleteRequest ToRequest(absl::string_view key, const std::string& keyspace,
                            const DeleteOptions& options);

GetResult FromResponse(v1::GetResponse& response);
WriteResult FromResponse(v1::PutResponse& response);
WriteResult FromResponse(v1::DeleteResponse& response);
ScannedEntry FromScanEntry(v1::ScanEntry& entry);

void SetMark(const RepeatMark& mark, v1::RequestId* id);

// One unary operation. `Response` is a message of kv.proto, `Result` what
// FromResponse makes of it.
template <class Request, class Response, class Result>
class UnaryCall final : public Call {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<Result>)>;
  using Method = typename UnaryTry<Request, Response>::Method;

  UnaryCall(CallRuntime& runtime, Target target, Method method, Request request,
            Done done)
      : Call(runtime, std::move(target)),
        method_(method),
        request_(std::move(request)),
        done_(std::move(done)) {}

 protected:
  std::unique_ptr<Try> NewTry(const RepeatMark& mark) override {
    if constexpr (requires { request_.mutable_request_id(); }) {
      SetMark(mark, request_.mutable_request_id());
    }
    return std::make_unique<UnaryTry<Request, Response>>(method_, request_);
  }

  void Deliver(const absl::Status& status, Try* winner) override {
    Done done = std::move(done_);
    if (!status.ok()) {
      done(status);
      return;
    }
    done(FromResponse(
        static_cast<UnaryTry<Request, Response>*>(winner)->response));
  }

  RingEpoch AnswerEpoch(const Try& attempt) const override {
    return static_cast<const UnaryTry<Request, Response>&>(attempt)
        .response.ring_epoch();
  }

 private:
  const Method method_;
  Request request_;
  Done done_;
};

using GetCallRun = UnaryCall<v1::GetRequest, v1::GetResponse, GetResult>;
using PutCallRun = UnaryCall<v1::PutRequest, v1::PutResponse, WriteResult>;
using DeleteCallRun =
    UnaryCall<v1::DeleteRequest, v1::DeleteResponse, WriteResult>;

// One page of a scan: a stream that is read until its end or until the page is
// large enough.
class ScanCallRun final : public Call {
 public:
  ScanCallRun(CallRuntime& runtime, Target target, v1::ScanRequest request,
              Client::ScanCallback done)
      : Call(runtime, std::move(target)),
        request_(std::move(request)),
        done_(std::move(done)) {}

 protected:
  std::unique_ptr<Try> NewTry(const RepeatMark& mark) override;
  void Deliver(const absl::Status& status, Try* winner) override;

 private:
  const v1::ScanRequest request_;
  Client::ScanCallback done_;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_OPERATIONS_H_
