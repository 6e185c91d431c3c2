// Who may connect and how: at present everybody, in the clear; the settings
// refuse addresses beyond loopback unless that is asked for.

#ifndef RINGKV_SERVER_RPC_CREDENTIALS_H_
#define RINGKV_SERVER_RPC_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/rpc/config.h"

namespace ringkv {

struct NodeCredentials {
  std::shared_ptr<grpc::ServerCredentials> clients;
  std::shared_ptr<grpc::ServerCredentials> peers;
  std::shared_ptr<grpc::ChannelCredentials> dialling;
};

inline NodeCredentials MakeCredentials(const NodeConfig& config) {
  return {grpc::InsecureServerCredentials(), grpc::InsecureServerCredentials(),
          grpc::InsecureChannelCredentials()};
}

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_CREDENTIALS_H_
