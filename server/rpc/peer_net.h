// The streams to other nodes. Control (the machine) decides whom to dial, what
// to accept and when to close; this carries it out and reports what happened.
//
// Each stream has a queue bounded in bytes: beyond the bound messages are
// dropped and counted, which the protocols tolerate. What waits while one
// frame is written leaves together in the next. A silently dead peer is noticed
// by HTTP/2 pings and TCP user timeouts within 10 s, beside the silence that
// Control watches.
//
// Thread-safe.

#ifndef RINGKV_SERVER_RPC_PEER_NET_H_
#define RINGKV_SERVER_RPC_PEER_NET_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "membership/control/control.h"
#include "server/messages.h"

namespace ringkv {

struct PeerNetOptions {
  // Of our own calls of Hello.
  absl::Duration hello_timeout = absl::Seconds(3);
  // An accepted stream that has not said Hello by then is closed.
  absl::Duration offer_timeout = absl::Seconds(5);
  // What may wait for one peer.
  size_t data_queue_bytes_max = 64 << 20;
  size_t control_queue_bytes_max = 256 << 20;
  // Streams that peers may have open here, and calls of Hello under way.
  size_t inbound_max = 2048;
};

struct PeerNetStats {
  uint64_t links = 0;
  uint64_t queued_bytes = 0;
  // Counters.
  uint64_t data_sent = 0;
  uint64_t data_received = 0;
  uint64_t data_frames_sent = 0;
  uint64_t dropped = 0;
  uint64_t malformed = 0;
};

class PeerNet {
 public:
  // On gRPC threads.
  struct Hooks {
    std::function<void(ControlEvent&&)> control;
    std::function<void(LinkId link, std::vector<DataMessage>&&)> data;
  };

  PeerNet(PeerNetOptions options, Hooks hooks,
          std::shared_ptr<grpc::ChannelCredentials> credentials);
  ~PeerNet();
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  // To be registered with the server of the peer port, and to outlive it.
  grpc::Service* service();

  // Effects of Control.
  void SayHello(HelloCall call);
  void AnswerHello(HelloAnswer answer);
  void Dial(LinkDial dial);
  void AnswerLink(LinkAnswer answer);
  void SendControl(LinkId link, ControlMessage message);
  void Close(LinkId link);

  void SendData(LinkId link, std::vector<DataMessage>&& messages);

  // Closes accepted streams that have not said Hello in time; call it every
  // second or so.
  void Sweep();

  // Closes every stream and refuses new ones.
  void CloseAll();
  // CloseAll, then waits until all is gone. Call it after the peer server was
  // shut down.
  void Stop();

  PeerNetStats Stats() const;

  class Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// Settings of both ends of a peer connection.
void SetPeerServerArguments(grpc::ServerBuilder& builder);

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_PEER_NET_H_
