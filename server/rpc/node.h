// A whole node: the engine, the loops and their threads, the servers and the
// streams to other nodes, put together, started and stopped in order.
//
// Threads, beside those of RocksDB (`background_jobs`): one for each shard, one
// for control, one that commits, `reader_threads`, three that serve HTTP, and
// gRPC's own, which are bounded whatever the clients do: kGrpcThreadsMax.

#ifndef RINGKV_SERVER_RPC_NODE_H_
#define RINGKV_SERVER_RPC_NODE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/rpc/config.h"
#include "server/rpc/metrics.h"

namespace ringkv {

// Threads for server reflection, which alone uses gRPC's synchronous API;
// requests beyond are refused with RESOURCE_EXHAUSTED.
inline constexpr int kReflectionThreadsMax = 6;

class Node {
 public:
  // The node must end, with this code. On any thread, at most once.
  using OnExit = std::function<void(int exit_code)>;

  // Opens the data directory and serves. `config` has passed CheckConfig. Each
  // error is one clear sentence: the directory is in use, foreign, damaged or
  // of a newer format; an address is taken; the location has changed.
  static absl::StatusOr<std::unique_ptr<Node>> Start(const NodeConfig& config,
                                                     OnExit on_exit);
  // Stops at once, without waiting for calls; what was acknowledged is safe.
  virtual ~Node() = default;

  // Finishes work and stops, within `drain_timeout` or so: not ready, tells its
  // peers, takes no new calls, waits for those that run and for hints to nodes
  // that are up, then syncs.
  virtual void Drain() = 0;

  virtual NodeReport Report() const = 0;
  // Why the node is not ready; empty if it is.
  virtual std::string NotReady() const = 0;

 protected:
  Node() = default;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_NODE_H_
