#include "server/rpc/admin_service.h"

#include <utility>

#include "server/codec/admin_codec.h"
#include "server/rpc/unary_call.h"

namespace ringkv {
namespace {

// Names the nodes of a located key by the ring.
struct NameCopies {
  std::shared_ptr<const Ring> ring;
  void operator()(v1::LocateResponse& response) const {
    if (ring == nullptr) return;
    for (v1::LocatedCopy& copy : *response.mutable_copies()) {
      const Member* member = ring->FindMember(NodeNumber{copy.node_number()});
      if (member != nullptr) copy.set_name(PrintableText(member->name));
    }
  }
};

}  // namespace

template <class Request, class Response>
grpc::ServerUnaryReactor* AdminService::Ask(
    grpc::CallbackServerContext* context, const Request* request,
    Response* response) {
  // Lives until Finish, whether or not the client does.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<AdminCall> call = AdminFromProto(*request);
  if (!call.ok()) {
    reactor->Finish(FinalStatus(context, call.status()));
    return reactor;
  }
  const Instant deadline =
      DeadlineOf(context->deadline(), kAdminTimeoutDefault, absl::Minutes(10));
  control_.Call(*std::move(call), deadline,
                [context, reactor, response](AdminAnswer answer) {
                  absl::Status status = std::move(answer.status);
                  if (status.ok()) status = AdminToProto(answer, *response);
                  reactor->Finish(FinalStatus(context, status));
                });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Status(
    grpc::CallbackServerContext* context, const v1::StatusRequest* request,
    v1::StatusResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::Init(
    grpc::CallbackServerContext* context, const v1::InitRequest* request,
    v1::InitResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::Locate(
    grpc::CallbackServerContext* context, const v1::LocateRequest* request,
    v1::LocateResponse* response) {
  return new UnaryCall<v1::LocateRequest, v1::LocateResponse, NameCopies>(
      router_, context, request, response, NameCopies{control_.View().ring},
      absl::Seconds(10), absl::Minutes(10));
}

grpc::ServerUnaryReactor* AdminService::Hints(
    grpc::CallbackServerContext* context, const v1::HintsRequest* request,
    v1::HintsResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::CreateKeyspace(
    grpc::CallbackServerContext* context,
    const v1::CreateKeyspaceRequest* request, v1::KeyspaceResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::AlterKeyspace(
    grpc::CallbackServerContext* context,
    const v1::AlterKeyspaceRequest* request, v1::KeyspaceResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::DropKeyspace(
    grpc::CallbackServerContext* context,
    const v1::DropKeyspaceRequest* request,
    v1::DropKeyspaceResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::StartOperation(
    grpc::CallbackServerContext* context,
    const v1::StartOperationRequest* request,
    v1::StartOperationResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::Operations(
    grpc::CallbackServerContext* context, const v1::OperationsRequest* request,
    v1::OperationsResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::AbortOperation(
    grpc::CallbackServerContext* context,
    const v1::AbortOperationRequest* request,
    v1::AbortOperationResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::Recover(
    grpc::CallbackServerContext* context, const v1::RecoverRequest* request,
    v1::RecoverResponse* response) {
  return Ask(context, request, response);
}

grpc::ServerUnaryReactor* AdminService::FinishUpgrade(
    grpc::CallbackServerContext* context,
    const v1::FinishUpgradeRequest* request,
    v1::FinishUpgradeResponse* response) {
  return Ask(context, request, response);
}

}  // namespace ringkv
