#include "client/cluster_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership/ring/ring_codec.h"

namespace ringkv {
namespace {

// With calls waiting and no answer for this long, a node is passed over.
constexpr absl::Duration kSilentMax = absl::Milliseconds(500);

constexpr absl::Duration kProbeTimeout = absl::Seconds(1);
constexpr absl::Duration kProbeDelayMax = absl::Seconds(5);

// One watch stream that ends after its first message.
class RingQuestion final : public CompletionTag,
                           public Activity,
                           public std::enable_shared_from_this<RingQuestion> {
 public:
  using Done = std::function<void(absl::StatusOr<v1::WatchRingResponse>)>;

  RingQuestion(IoLoop& io, std::shared_ptr<Node> node, Done done)
      : io_(io), node_(std::move(node)), done_(std::move(done)) {}

  void Start(absl::Duration timeout) {
    if (!io_.Begin(shared_from_this())) return;
    self_ = shared_from_this();
    context_.set_deadline(GrpcDeadline(timeout));
    reader_ = node_->NextConnection().stub->PrepareAsyncWatchRing(
        &context_, v1::WatchRingRequest(), io_.queue());
    reader_->StartCall(this);
  }

  void Complete(bool ok) override {
    switch (stage_) {
      case Stage::kStarting:
        if (ok) {
          stage_ = Stage::kReading;
          reader_->Read(&response_, this);
          return;
        }
        break;
      case Stage::kReading:
        answered_ = ok;
        if (ok) context_.TryCancel();
        break;
      case Stage::kFinishing:
        io_.End(this);
        if (answered_) {
          done_(std::move(response_));
        } else {
          done_(FromGrpc(status_.ok()
                             ? grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                            "the watch ended without a ring")
                             : status_));
        }
        self_.reset();
        return;
    }
    stage_ = Stage::kFinishing;
    reader_->Finish(&status_, this);
  }

  void Cancel() override { context_.TryCancel(); }

 private:
  enum class Stage { kStarting, kReading, kFinishing };

  IoLoop& io_;
  std::shared_ptr<Node> node_;
  Done done_;
  std::shared_ptr<RingQuestion> self_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::WatchRingResponse>> reader_;
  v1::WatchRingResponse response_;
  grpc::Status status_;
  Stage stage_ = Stage::kStarting;
  bool answered_ = false;
};

}  // namespace

void AskForRing(
    IoLoop& io, std::shared_ptr<Node> node, absl::Duration timeout,
    std::function<void(absl::StatusOr<v1::WatchRingResponse>)> done) {
  std::make_shared<RingQuestion>(io, std::move(node), std::move(done))
      ->Start(timeout);
}

Node::Node(NodeNumber number, std::string address, int connections)
    : number_(number), address_(std::move(address)) {
  for (int i = 0; i < connections; ++i) {
    Connection connection;
    connection.channel = MakeChannel(address_);
    connection.stub = v1::KeyValue::NewStub(connection.channel);
    connections_.push_back(std::move(connection));
  }
}

const Node::Connection& Node::NextConnection() {
  if (connections_.size() == 1) return connections_.front();
  return connections_[next_.fetch_add(1, std::memory_order_relaxed) %
                      connections_.size()];
}

void Node::SetRun(uint64_t start_id, bool alive) {
  if (start_id != 0) start_id_ = start_id;
  alive_ = alive;
}

bool Node::Live(Instant now) const {
  if (suspected_.load(std::memory_order_relaxed) ||
      !alive_.load(std::memory_order_relaxed)) {
    return false;
  }
  return waiting_.load(std::memory_order_relaxed) <= 0 ||
         Silence(now) < kSilentMax;
}

double Node::Load() const {
  return (waiting_.load(std::memory_order_relaxed) + 1) *
         latency_.load(std::memory_order_relaxed);
}

void Node::OnSent(Instant now) {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  int64_t none = 0;
  unanswered_since_.compare_exchange_strong(none, now.nanos,
                                            std::memory_order_relaxed);
}

void Node::OnAnswer(Instant now, absl::Duration latency) {
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  // With others still waiting, the silence is counted from here.
  unanswered_since_.store(
      waiting_.load(std::memory_order_relaxed) > 0 ? now.nanos : 0,
      std::memory_order_relaxed);
  // Lost updates between threads do no harm to an average.
  const double average = latency_.load(std::memory_order_relaxed);
  latency_.store(average + 0.1 * (absl::ToDoubleSeconds(latency) - average),
                 std::memory_order_relaxed);
  if (suspected_.load(std::memory_order_relaxed)) suspected_ = false;
}

void Node::OnGivenUp() { waiting_.fetch_sub(1, std::memory_order_relaxed); }

absl::Duration Node::Silence(Instant now) const {
  const int64_t since = unanswered_since_.load(std::memory_order_relaxed);
  return since == 0 ? absl::ZeroDuration() : now - Instant{since};
}

ClusterView::ClusterView(IoLoop& io, int connections_per_node,
                         std::vector<std::string> endpoints,
                         std::function<void(const std::string&)> warn,
                         const std::array<uint64_t, 4>& seed)
    : io_(io),
      connections_per_node_(connections_per_node),
      warn_(std::move(warn)),
      random_(seed) {
  for (std::string& endpoint : endpoints) {
    endpoints_.push_back(
        std::make_shared<Node>(kNoNode, std::move(endpoint), 1));
  }
}

std::shared_ptr<const ClusterSnapshot> ClusterView::snapshot() const {
  MutexLock lock(mutex_);
  return snapshot_;
}

absl::Status ClusterView::Adopt(const v1::WatchRingResponse& response,
                                Node& from) {
  std::shared_ptr<const ClusterSnapshot> current = snapshot();
  const bool newer =
      current == nullptr || response.ring().epoch() > current->ring->epoch();
  if (newer && response.has_ring()) {
    const auto reject = [&](const absl::Status& why) {
      absl::Status status(
          why.code(),
          absl::StrCat("ring of epoch ", response.ring().epoch(), " from ",
                       from.address(), " cannot be used: ", why.message()));
      if (warn_ && current != nullptr) warn_(std::string(status.message()));
      ++rejects_;
      return status;
    };
    absl::StatusOr<RingSpec> spec = RingFromProto(response.ring());
    if (!spec.ok()) return reject(spec.status());
    absl::StatusOr<std::shared_ptr<const Ring>> ring =
        Ring::Make(*std::move(spec));
    if (!ring.ok()) return reject(ring.status());
    if (current != nullptr &&
        (*ring)->spec().cluster_id != current->ring->spec().cluster_id) {
      return reject(absl::FailedPreconditionError(absl::StrCat(
          "it is of cluster ", (*ring)->spec().cluster_id.ToString(),
          ", this client talks to ",
          current->ring->spec().cluster_id.ToString())));
    }
    MutexLock lock(mutex_);
    if (snapshot_ == nullptr || (*ring)->epoch() > snapshot_->ring->epoch()) {
      auto next = std::make_shared<ClusterSnapshot>();
      next->ring = *ring;
      for (const Member& member : (*ring)->spec().members) {
        std::shared_ptr<Node> node;
        if (snapshot_ != nullptr) {
          const auto old = snapshot_->nodes.find(member.number);
          if (old != snapshot_->nodes.end() &&
              old->second->address() == member.client_address) {
            node = old->second;
          }
        }
        if (node == nullptr) {
          node = std::make_shared<Node>(member.number, member.client_address,
                                        connections_per_node_);
        }
        next->nodes.emplace(member.number, std::move(node));
      }
      snapshot_ = std::move(next);
      epoch_ = (*ring)->epoch();
    }
  } else if (current == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(from.address(), " is in no cluster yet"));
  }

  // A node that drains still answers, and says of itself that it is not alive.
  current = snapshot();
  for (const v1::NodeStart& start : response.starts()) {
    const auto found = current->nodes.find(NodeNumber{start.node_number()});
    if (found != current->nodes.end()) {
      found->second->SetRun(start.start_id(), start.alive());
    }
  }
  return absl::OkStatus();
}

std::vector<std::shared_ptr<Node>> ClusterView::WatchCandidates() {
  std::vector<std::shared_ptr<Node>> live;
  std::vector<std::shared_ptr<Node>> rest;
  const Instant now = Now();
  const std::shared_ptr<const ClusterSnapshot> current = snapshot();
  if (current != nullptr) {
    for (const auto& [number, node] : current->nodes) {
      (node->Live(now) ? live : rest).push_back(node);
    }
  }
  MutexLock lock(mutex_);
  const auto shuffle = [this](std::vector<std::shared_ptr<Node>>& nodes) {
    for (size_t i = nodes.size(); i > 1; --i) {
      std::swap(nodes[i - 1], nodes[random_.Uniform(i)]);
    }
  };
  shuffle(live);
  std::vector<std::shared_ptr<Node>> endpoints = endpoints_;
  shuffle(endpoints);
  live.insert(live.end(), endpoints.begin(), endpoints.end());
  shuffle(rest);
  live.insert(live.end(), rest.begin(), rest.end());
  return live;
}

std::vector<std::shared_ptr<Node>> ClusterView::Route(
    const ClusterSnapshot& snapshot, const Keyspace* keyspace, Token token,
    bool read) {
  const Instant now = Now();
  std::vector<std::shared_ptr<Node>> route;
  if (keyspace == nullptr) {
    for (const auto& [number, node] : snapshot.nodes) {
      if (node->Live(now)) route.push_back(node);
    }
    MutexLock lock(mutex_);
    for (size_t i = route.size(); i > 1; --i) {
      std::swap(route[i - 1], route[random_.Uniform(i)]);
    }
    return route;
  }
  for (NodeNumber number : snapshot.ring->PreferenceList(*keyspace, token)) {
    const auto found = snapshot.nodes.find(number);
    if (found != snapshot.nodes.end() && found->second->Live(now)) {
      route.push_back(found->second);
    }
  }
  if (read && route.size() > 1) {
    // The first of two random ones, unless the other is clearly better: load
    // spreads without herding to whoever was quickest a moment ago.
    size_t a = 0;
    size_t b = 0;
    bool explore = false;
    {
      MutexLock lock(mutex_);
      a = random_.Uniform(route.size());
      b = random_.Uniform(route.size() - 1);
      explore = random_.Chance(0.1);
    }
    if (b >= a) ++b;
    // A tenth of the reads ignores the load, so that a node which was slow once
    // is measured again.
    if (!explore && 3 * route[b]->Load() < route[a]->Load()) a = b;
    std::swap(route[0], route[a]);
  }
  return route;
}

std::vector<std::shared_ptr<Node>> ClusterView::RouteToAll(
    const ClusterSnapshot& snapshot, const Keyspace* keyspace, Token token) {
  const Instant now = Now();
  std::vector<std::shared_ptr<Node>> order;
  const auto add = [&](NodeNumber number) {
    const auto found = snapshot.nodes.find(number);
    if (found != snapshot.nodes.end()) order.push_back(found->second);
  };
  if (keyspace != nullptr) {
    for (NodeNumber number : snapshot.ring->PreferenceList(*keyspace, token)) {
      add(number);
    }
    for (NodeNumber number : snapshot.ring->Fallbacks(*keyspace, token)) {
      add(number);
    }
  } else {
    for (const auto& [number, node] : snapshot.nodes) order.push_back(node);
  }
  std::stable_partition(
      order.begin(), order.end(),
      [now](const std::shared_ptr<Node>& node) { return node->Live(now); });
  return order;
}

void ClusterView::NoteEpoch(RingEpoch epoch,
                            const std::shared_ptr<Node>& node) {
  if (epoch <= this->epoch() || refreshing_.exchange(true)) return;
  AskForRing(io_, node, absl::Seconds(2),
             [this, node](absl::StatusOr<v1::WatchRingResponse> answer) {
               if (answer.ok()) Adopt(*answer, *node).IgnoreError();
               refreshing_ = false;
             });
}

void ClusterView::Suspect(const std::shared_ptr<Node>& node) {
  if (node->Suspect()) Probe(node, absl::Milliseconds(100));
}

void ClusterView::Probe(std::shared_ptr<Node> node, absl::Duration next_delay) {
  AskForRing(
      io_, node, kProbeTimeout,
      [this, node, next_delay](absl::StatusOr<v1::WatchRingResponse> answer) {
        if (answer.ok()) {
          Adopt(*answer, *node).IgnoreError();
          node->Trust();
          return;
        }
        if (!node->suspected() || !Knows(*node)) return;
        const absl::Duration delay = next_delay * (0.5 + RandomDouble() / 2);
        io_.timers().At(Now() + delay, [this, node, next_delay] {
          Probe(node, std::min(next_delay * 2, kProbeDelayMax));
        });
      });
}

bool ClusterView::Knows(const Node& node) const {
  const std::shared_ptr<const ClusterSnapshot> current = snapshot();
  if (current == nullptr) return false;
  const auto found = current->nodes.find(node.number());
  return found != current->nodes.end() && found->second.get() == &node;
}

double ClusterView::RandomDouble() {
  MutexLock lock(mutex_);
  return random_.NextDouble();
}

std::string ClusterView::RandomBytes(size_t bytes) {
  std::string out;
  MutexLock lock(mutex_);
  while (out.size() < bytes) {
    const uint64_t word = random_.Next();
    out.append(reinterpret_cast<const char*>(&word),
               std::min(sizeof word, bytes - out.size()));
  }
  return out;
}

}  // namespace ringkv
