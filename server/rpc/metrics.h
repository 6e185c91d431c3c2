// What /metrics shows. Names begin with ringkv_ (and process_ for what the
// operating system knows). The only labels are kinds that this file lists and
// numbers of ring members; never a key, an address, a keyspace or a vnode.

#ifndef RINGKV_SERVER_RPC_METRICS_H_
#define RINGKV_SERVER_RPC_METRICS_H_

#include <cstdint>
#include <map>
#include <string>

#include "server/rpc/control_thread.h"
#include "server/rpc/peer_net.h"
#include "server/shard/shard.h"
#include "storage/engine.h"

namespace ringkv {

// Everything there is to show, as of about now.
struct NodeReport {
  ShardStats shards;  // summed
  uint64_t in_flight = 0;
  uint64_t turns = 0;
  uint64_t stalls = 0;
  uint64_t mailbox_items = 0;
  uint64_t calls_refused = 0;
  uint64_t messages_dropped = 0;
  uint64_t reads_waiting = 0;
  uint64_t syncs = 0;
  double sync_seconds = 0;
  EngineStats engine;
  PeerNetStats peers;
  ControlView control;
  size_t ring_watchers = 0;
  bool ready = false;
  bool draining = false;
  bool read_only = false;
};

// Adds the counters and gauges of one shard.
void AddStats(const ShardStats& stats, ShardStats& sum);

// In Prometheus' text format.
std::string MetricsText(const NodeReport& report);

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_METRICS_H_
