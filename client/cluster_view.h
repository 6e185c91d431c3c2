// What a client knows of the cluster: the newest ring, a connection to each
// node, which run of it answers, and how it is doing.
//
// A node that does not answer is suspected: it goes to the end of every route,
// and is probed until it answers, so that calls are not spent on finding out.

#ifndef RINGKV_CLIENT_CLUSTER_VIEW_H_
#define RINGKV_CLIENT_CLUSTER_VIEW_H_

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/time.h"
#include "client/channel.h"
#include "client/io_loop.h"
#include "membership/ring/ring.h"
#include "ringkv/v1/kv.grpc.pb.h"

namespace ringkv {

// One node, as a client sees it. Thread-safe.
class Node {
 public:
  struct Connection {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::KeyValue::Stub> stub;
  };

  // `number` is kNoNode for an endpoint that no ring has named yet.
  Node(NodeNumber number, std::string address, int connections);

  NodeNumber number() const { return number_; }
  const std::string& address() const { return address_; }
  const Connection& NextConnection();

  // The run that is believed to answer; 0: not known.
  uint64_t start_id() const {
    return start_id_.load(std::memory_order_relaxed);
  }
  void SetRun(uint64_t start_id, bool alive);

  // Neither suspected, nor told to be down, nor silent for long with calls
  // waiting.
  bool Live(Instant now) const;
  // Smaller is better: calls waiting times their recent latency.
  double Load() const;

  void OnSent(Instant now);
  void OnAnswer(Instant now, absl::Duration latency);
  // A call ended without an answer of the node.
  void OnGivenUp();
  // How long requests have gone unanswered, all of them; zero if the last thing
  // that happened was an answer.
  absl::Duration Silence(Instant now) const;
  // True for the one caller that made it suspected.
  bool Suspect() { return !suspected_.exchange(true); }
  void Trust() { suspected_ = false; }
  bool suspected() const { return suspected_; }

 private:
  const NodeNumber number_;
  const std::string address_;
  std::vector<Connection> connections_;
  std::atomic<uint32_t> next_{0};
  std::atomic<uint64_t> start_id_{0};
  std::atomic<bool> alive_{true};
  std::atomic<bool> suspected_{false};
  std::atomic<int> waiting_{0};
  std::atomic<int64_t> unanswered_since_{0};  // Instant; 0: nothing is
  std::atomic<double> latency_{0.001};        // seconds, moving average
};

// One consistent set of ring and nodes.
struct ClusterSnapshot {
  std::shared_ptr<const Ring> ring;
  std::map<NodeNumber, std::shared_ptr<Node>> nodes;
};

// Thread-safe.
class ClusterView {
 public:
  ClusterView(IoLoop& io, int connections_per_node,
              std::vector<std::string> endpoints,
              std::function<void(const std::string&)> warn,
              const std::array<uint64_t, 4>& seed);

  // Null before the first ring.
  std::shared_ptr<const ClusterSnapshot> snapshot() const;
  RingEpoch epoch() const { return epoch_.load(std::memory_order_relaxed); }

  // Takes over what `from` told, if it is newer. An error says why the ring can
  // not be used; the one before stays.
  absl::Status Adopt(const v1::WatchRingResponse& response, Node& from);

  // Someone to watch the ring at: live members and endpoints, in random order.
  std::vector<std::shared_ptr<Node>> WatchCandidates();

  // Live replicas of a token, best first: in preference order for writes (one
  // coordinator for a key keeps its clock small), the less loaded of two first
  // for reads. Without `keyspace`, any live members.
  std::vector<std::shared_ptr<Node>> Route(const ClusterSnapshot& snapshot,
                                           const Keyspace* keyspace,
                                           Token token, bool read);
  // Everyone, for when those did not do: live replicas, live others in the
  // order of the walk, then the rest.
  std::vector<std::shared_ptr<Node>> RouteToAll(const ClusterSnapshot& snapshot,
                                                const Keyspace* keyspace,
                                                Token token);

  // `node` knows of a later ring: asks it at once.
  void NoteEpoch(RingEpoch epoch, const std::shared_ptr<Node>& node);

  // Puts `node` last until it answers a probe.
  void Suspect(const std::shared_ptr<Node>& node);

  uint64_t rejects() const { return rejects_; }
  double RandomDouble();
  std::string RandomBytes(size_t bytes);

 private:
  void Probe(std::shared_ptr<Node> node, absl::Duration next_delay);
  // True while `node` is one of the present ring.
  bool Knows(const Node& node) const;

  IoLoop& io_;
  const int connections_per_node_;
  const std::function<void(const std::string&)> warn_;
  std::vector<std::shared_ptr<Node>> endpoints_;

  mutable Mutex mutex_;
  std::shared_ptr<const ClusterSnapshot> snapshot_ ABSL_GUARDED_BY(mutex_);
  SeededRandom random_ ABSL_GUARDED_BY(mutex_);
  std::atomic<RingEpoch> epoch_{0};
  std::atomic<bool> refreshing_{false};
  std::atomic<uint64_t> rejects_{0};
};

// Asks `node` once for its ring and itself. `done` gets the answer, or the
// status of asking. Nothing happens once the loop stops.
void AskForRing(
    IoLoop& io, std::shared_ptr<Node> node, absl::Duration timeout,
    std::function<void(absl::StatusOr<v1::WatchRingResponse>)> done);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_CLUSTER_VIEW_H_
