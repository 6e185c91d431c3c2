// The public Admin service over gRPC's callback API. The control loop answers,
// but for Locate, which is a call of a shard loop.

#ifndef RINGKV_SERVER_RPC_ADMIN_SERVICE_H_
#define RINGKV_SERVER_RPC_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "ringkv/v1/admin.grpc.pb.h"
#include "server/rpc/control_thread.h"
#include "server/rpc/router.h"

namespace ringkv {

// What an admin call may take if the client sets no deadline.
inline constexpr absl::Duration kAdminTimeoutDefault = absl::Seconds(30);

class AdminService final : public v1::Admin::CallbackService {
 public:
  // Both outlive the service.
  AdminService(Router& router, ControlThread& control)
      : router_(router), control_(control) {}

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const v1::StatusRequest* request,
                                   v1::StatusResponse* response) override;
  grpc::ServerUnaryReactor* Init(grpc::CallbackServerContext* context,
                                 const v1::InitRequest* request,
                                 v1::InitResponse* response) override;
  grpc::ServerUnaryReactor* Locate(grpc::CallbackServerContext* context,
                                   const v1::LocateRequest* request,
                                   v1::LocateResponse* response) override;
  grpc::ServerUnaryReactor* Hints(grpc::CallbackServerContext* context,
                                  const v1::HintsRequest* request,
                                  v1::HintsResponse* response) override;
  grpc::ServerUnaryReactor* CreateKeyspace(
      grpc::CallbackServerContext* context,
      const v1::CreateKeyspaceRequest* request,
      v1::KeyspaceResponse* response) override;
  grpc::ServerUnaryReactor* AlterKeyspace(
      grpc::CallbackServerContext* context,
      const v1::AlterKeyspaceRequest* request,
      v1::KeyspaceResponse* response) override;
  grpc::ServerUnaryReactor* DropKeyspace(
      grpc::CallbackServerContext* context,
      const v1::DropKeyspaceRequest* request,
      v1::DropKeyspaceResponse* response) override;
  grpc::ServerUnaryReactor* StartOperation(
      grpc::CallbackServerContext* context,
      const v1::StartOperationRequest* request,
      v1::StartOperationResponse* response) override;
  grpc::ServerUnaryReactor* Operations(
      grpc::CallbackServerContext* context,
      const v1::OperationsRequest* request,
      v1::OperationsResponse* response) override;
  grpc::ServerUnaryReactor* AbortOperation(
      grpc::CallbackServerContext* context,
      const v1::AbortOperationRequest* request,
      v1::AbortOperationResponse* response) override;
  grpc::ServerUnaryReactor* Recover(grpc::CallbackServerContext* context,
                                    const v1::RecoverRequest* request,
                                    v1::RecoverResponse* response) override;
  grpc::ServerUnaryReactor* FinishUpgrade(
      grpc::CallbackServerContext* context,
      const v1::FinishUpgradeRequest* request,
      v1::FinishUpgradeResponse* response) override;

 private:
  template <class Request, class Response>
  grpc::ServerUnaryReactor* Ask(grpc::CallbackServerContext* context,
                                const Request* request, Response* response);

  Router& router_;
  ControlThread& control_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_ADMIN_SERVICE_H_
