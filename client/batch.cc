// Batch: operations grouped by the node that each would go to alone, one
// message a group. What a node did not answer goes to the next nodes as a group
// again, if it may; what only its coordinator may repeat goes on as a single
// call.

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/token.h"
#include "client/client_impl.h"

namespace ringkv {
namespace {

// Of one message; well below what a server takes.
constexpr size_t kChunkOperations = 1000;
constexpr size_t kChunkBytes = 2 << 20;

struct BatchOp {
  v1::Operation request;
  std::string keyspace;
  Token token = 0;
  Repeatable repeatable = Repeatable::kRead;
  bool settled = false;
  int chunks_out = 0;  // messages under way that hold it
  int rounds = 0;
  std::vector<Node*> tried;
};

class BatchRun : public std::enable_shared_from_this<BatchRun> {
 public:
  BatchRun(ClientImpl& client, Instant deadline, Client::BatchCallback done)
      : client_(client), deadline_(deadline), done_(std::move(done)) {}

  void Start(std::vector<BatchOp> ops, std::vector<BatchResult> results);
  void OnChunkOver(class Chunk& chunk);
  void OnChunkSlow(const std::vector<size_t>& indices);

  ClientImpl& client() { return client_; }
  Instant deadline() const { return deadline_; }

 private:
  // Sends the operations, each to its best node that was not tried yet.
  void Dispatch(const std::vector<size_t>& indices);
  void Single(size_t index, const EarlierTry& earlier);
  void Settle(size_t index, BatchResult result);

  ClientImpl& client_;
  const Instant deadline_;
  Client::BatchCallback done_;
  Mutex mutex_;
  std::vector<BatchOp> ops_ ABSL_GUARDED_BY(mutex_);
  std::vector<BatchResult> results_ ABSL_GUARDED_BY(mutex_);
  size_t unsettled_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One message to one node.
class Chunk final : public CompletionTag,
                    public Activity,
                    public std::enable_shared_from_this<Chunk> {
 public:
  Chunk(std::shared_ptr<BatchRun> run, std::shared_ptr<Node> node)
      : run(std::move(run)), node(std::move(node)) {}

  void Start() {
    self_ = shared_from_this();
    if (!run->client().io().Begin(self_)) {
      status =
          grpc::Status(grpc::StatusCode::CANCELLED, "the client is closed");
      run->OnChunkOver(*this);
      self_.reset();
      return;
    }
    const Instant now = Now();
    connect_by_ =
        std::min(run->deadline(),
                 now + std::min(absl::Seconds(1), (run->deadline() - now) / 3));
    Advance();
  }

  void Complete(bool ok) override {
    if (sent) {
      Over();
    } else {
      Advance();
    }
  }

  void Cancel() override {
    cancelled_ = true;
    context.TryCancel();
  }

  std::shared_ptr<BatchRun> run;
  std::shared_ptr<Node> node;
  std::vector<size_t> indices;
  v1::BatchRequest request;
  v1::BatchResponse response;
  grpc::ClientContext context;
  grpc::Status status;
  bool sent = false;
  uint64_t start_id = 0;
  Instant sent_at;

 private:
  void Advance() {
    IoLoop& io = run->client().io();
    const Instant now = Now();
    const Node::Connection& connection = node->NextConnection();
    const grpc_connectivity_state state = connection.channel->GetState(true);
    if (cancelled_) {
      status =
          grpc::Status(grpc::StatusCode::CANCELLED, "the client is closing");
      Over();
      return;
    }
    if (state == GRPC_CHANNEL_READY) {
      sent = true;
      sent_at = now;
      start_id = node->start_id();
      node->OnSent(now);
      CallRuntime& runtime = run->client().runtime();
      ++runtime.tries;
      context.set_deadline(GrpcDeadline(run->deadline() - now));
      absl::Duration p99;
      {
        MutexLock lock(runtime.mutex);
        p99 =
            std::max(runtime.read_p99.Estimate(), runtime.write_p99.Estimate());
      }
      // A message of many takes longer than a single call.
      const absl::Duration delay = HedgeDelay(
          4 * p99,
          std::max(absl::Milliseconds(50), runtime.options.hedge_delay_min),
          run->deadline() - now);
      io.timers().At(now + delay,
                     [weak = std::weak_ptr<BatchRun>(run), which = indices] {
                       if (std::shared_ptr<BatchRun> run = weak.lock()) {
                         run->OnChunkSlow(which);
                       }
                     });
      reader_ =
          connection.stub->PrepareAsyncBatch(&context, request, io.queue());
      request.Clear();
      reader_->StartCall();
      reader_->Finish(&response, &status, this);
      return;
    }
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE ||
        state == GRPC_CHANNEL_SHUTDOWN || now >= connect_by_) {
      status = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                            "cannot connect to " + node->address());
      run->client().view().Suspect(node);
      Over();
      return;
    }
    connection.channel->NotifyOnStateChange(
        state,
        GrpcDeadline(std::min(absl::Milliseconds(200), connect_by_ - now)),
        io.queue(), this);
  }

  void Over() {
    const std::shared_ptr<Chunk> keep = std::move(self_);
    const Instant now = Now();
    if (sent) {
      if (status.ok()) {
        node->OnAnswer(now,
                       (now - sent_at) / static_cast<double>(indices.size()));
      } else {
        node->OnGivenUp();
        run->client().view().Suspect(node);
      }
    }
    run->OnChunkOver(*this);
    run->client().io().End(this);
  }

  std::shared_ptr<Chunk> self_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::BatchResponse>> reader_;
  Instant connect_by_;
  std::atomic<bool> cancelled_{false};
};

void BatchRun::Start(std::vector<BatchOp> ops,
                     std::vector<BatchResult> results) {
  std::vector<size_t> indices;
  {
    MutexLock lock(mutex_);
    ops_ = std::move(ops);
    results_ = std::move(results);
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (!ops_[i].settled) indices.push_back(i);
    }
    unsettled_ = indices.size();
  }
  if (indices.empty()) {
    MutexLock lock(mutex_);
    done_(std::move(results_));
    return;
  }
  CallRuntime& runtime = client_.runtime();
  runtime.calls += indices.size();
  {
    MutexLock lock(runtime.mutex);
    for (size_t i = 0; i < indices.size(); ++i) runtime.budget.OnCall();
  }
  Dispatch(indices);
}

void BatchRun::Dispatch(const std::vector<size_t>& indices) {
  const std::shared_ptr<const ClusterSnapshot> snapshot =
      client_.view().snapshot();
  std::map<Node*, std::vector<std::shared_ptr<Chunk>>> chunks;
  std::map<Node*, size_t> bytes;
  {
    MutexLock lock(mutex_);
    for (const size_t i : indices) {
      BatchOp& op = ops_[i];
      const Keyspace* keyspace = snapshot->ring->FindKeyspace(op.keyspace);
      const auto untried = [&op](const std::shared_ptr<Node>& node) {
        return std::find(op.tried.begin(), op.tried.end(), node.get()) ==
               op.tried.end();
      };
      std::vector<std::shared_ptr<Node>> route = client_.view().Route(
          *snapshot, keyspace, op.token, op.repeatable == Repeatable::kRead);
      auto best = std::find_if(route.begin(), route.end(), untried);
      if (best == route.end()) {
        route = client_.view().RouteToAll(*snapshot, keyspace, op.token);
        best = std::find_if(route.begin(), route.end(), untried);
        if (best == route.end()) best = route.begin();
      }
      const std::shared_ptr<Node> node = *best;
      op.tried.push_back(node.get());
      ++op.rounds;
      ++op.chunks_out;
      std::vector<std::shared_ptr<Chunk>>& list = chunks[node.get()];
      size_t& size = bytes[node.get()];
      const size_t op_bytes = op.request.ByteSizeLong() + 8;
      if (list.empty() || list.back()->indices.size() >= kChunkOperations ||
          size + op_bytes > kChunkBytes) {
        list.push_back(std::make_shared<Chunk>(shared_from_this(), node));
        size = 0;
      }
      size += op_bytes;
      list.back()->indices.push_back(i);
      *list.back()->request.add_operations() = op.request;
    }
  }
  for (const auto& [node, list] : chunks) {
    for (const std::shared_ptr<Chunk>& chunk : list) chunk->Start();
  }
}

void BatchRun::OnChunkSlow(const std::vector<size_t>& indices) {
  std::vector<size_t> again;
  {
    MutexLock lock(mutex_);
    for (const size_t i : indices) {
      const BatchOp& op = ops_[i];
      if (!op.settled && op.chunks_out == 1 &&
          op.repeatable != Repeatable::kSameCoordinator &&
          op.rounds < client_.options().tries_max) {
        again.push_back(i);
      }
    }
  }
  if (again.empty() || !client_.runtime().TakeRetry()) return;
  ++client_.runtime().hedges;
  Dispatch(again);
}

void BatchRun::OnChunkOver(Chunk& chunk) {
  absl::Status whole = FromGrpc(chunk.status);
  if (whole.ok() && static_cast<size_t>(chunk.response.results_size()) !=
                        chunk.indices.size()) {
    whole = absl::InternalError(absl::StrCat(
        chunk.node->address(), " answered ", chunk.response.results_size(),
        " results to ", chunk.indices.size(), " operations"));
  }
  if (whole.ok()) {
    RingEpoch epoch = 0;
    for (const v1::OperationResult& result : chunk.response.results()) {
      epoch =
          std::max({epoch, result.get().ring_epoch(), result.put().ring_epoch(),
                    result.delete_().ring_epoch()});
    }
    client_.view().NoteEpoch(epoch, chunk.node);
  }
  EarlierTry earlier;
  earlier.node = chunk.node;
  earlier.start_id = chunk.start_id;
  earlier.sent_at = chunk.sent_at;
  earlier.sent = chunk.sent;

  std::vector<std::pair<size_t, BatchResult>> settled;
  std::vector<std::pair<size_t, absl::Status>> singles;
  std::vector<size_t> again;
  const bool time_left = Now() < deadline_;
  {
    MutexLock lock(mutex_);
    for (size_t n = 0; n < chunk.indices.size(); ++n) {
      const size_t i = chunk.indices[n];
      BatchOp& op = ops_[i];
      --op.chunks_out;
      if (op.settled) continue;
      absl::Status status = whole;
      if (whole.ok()) {
        v1::OperationResult& result =
            *chunk.response.mutable_results(static_cast<int>(n));
        if (result.code() == 0) {
          BatchResult good;
          if (result.has_get()) {
            good.got = FromResponse(*result.mutable_get());
          } else if (result.has_put()) {
            good.written = FromResponse(*result.mutable_put());
          } else {
            good.written = FromResponse(*result.mutable_delete_());
          }
          settled.emplace_back(i, std::move(good));
          continue;
        }
        status = absl::Status(static_cast<absl::StatusCode>(result.code()),
                              result.message());
      }
      TryReport report;
      report.code = status.code();
      report.sent = chunk.sent;
      report.said_not_done = SaysNothingWasDone(status.message());
      const TryVerdict verdict = Judge(op.repeatable, report);
      const bool group = !whole.ok() && time_left &&
                         verdict != TryVerdict::kRefused &&
                         op.rounds < client_.options().tries_max &&
                         (op.repeatable != Repeatable::kSameCoordinator ||
                          verdict == TryVerdict::kNotDone);
      if (group) {
        again.push_back(i);
      } else if (op.chunks_out == 0) {  // else the other message may yet do
        singles.emplace_back(i, std::move(status));
      }
    }
  }
  for (auto& [i, result] : settled) Settle(i, std::move(result));
  if (!again.empty()) {
    if (!chunk.sent || client_.runtime().TakeRetry()) {
      if (chunk.sent) ++client_.runtime().retries;
      Dispatch(again);
    } else {
      MutexLock lock(mutex_);
      for (const size_t i : again) {
        if (ops_[i].chunks_out == 0) singles.emplace_back(i, whole);
      }
    }
  }
  for (auto& [i, status] : singles) {
    earlier.said_not_done = SaysNothingWasDone(status.message());
    earlier.status = std::move(status);
    Single(i, earlier);
  }
}

void BatchRun::Single(size_t index, const EarlierTry& earlier) {
  v1::Operation request;
  {
    MutexLock lock(mutex_);
    request = ops_[index].request;
  }
  const auto written = [self = shared_from_this(),
                        index](absl::StatusOr<WriteResult> result) {
    BatchResult out;
    out.status = result.status();
    if (result.ok()) out.written = *std::move(result);
    self->Settle(index, std::move(out));
  };
  switch (request.operation_case()) {
    case v1::Operation::kGet:
      client_
          .MakeGet(std::move(*request.mutable_get()), deadline_,
                   [self = shared_from_this(),
                    index](absl::StatusOr<GetResult> result) {
                     BatchResult out;
                     out.status = result.status();
                     if (result.ok()) out.got = *std::move(result);
                     self->Settle(index, std::move(out));
                   })
          ->StartAfter(earlier);
      return;
    case v1::Operation::kPut:
      client_.MakePut(std::move(*request.mutable_put()), deadline_, written)
          ->StartAfter(earlier);
      return;
    case v1::Operation::kDelete:
    default:
      client_
          .MakeDelete(std::move(*request.mutable_delete_()), deadline_, written)
          ->StartAfter(earlier);
      return;
  }
}

void BatchRun::Settle(size_t index, BatchResult result) {
  bool last = false;
  {
    MutexLock lock(mutex_);
    if (ops_[index].settled) return;
    ops_[index].settled = true;
    results_[index] = std::move(result);
    last = --unsettled_ == 0;
  }
  if (last) {
    Client::BatchCallback done = std::move(done_);
    done(std::move(results_));
  }
}

}  // namespace

void ClientImpl::Batch(std::vector<BatchOperation> operations, Instant deadline,
                       Client::BatchCallback done) {
  if (operations.empty()) {
    done(absl::InvalidArgumentError("the batch has no operations"));
    return;
  }
  std::vector<BatchOp> ops(operations.size());
  std::vector<BatchResult> results(operations.size());
  for (size_t i = 0; i < operations.size(); ++i) {
    BatchOp& op = ops[i];
    absl::Status status;
    if (auto* get = std::get_if<BatchGet>(&operations[i])) {
      status = CheckGet(get->options);
      op.keyspace = KeyspaceOf(get->options.keyspace);
      op.token = TokenOf(get->key);
      *op.request.mutable_get() =
          ToRequest(get->key, op.keyspace, get->options);
    } else if (auto* put = std::get_if<BatchPut>(&operations[i])) {
      status = CheckPut(put->key, put->value, put->options);
      op.keyspace = KeyspaceOf(put->options.keyspace);
      op.token = TokenOf(put->key);
      op.repeatable =
          RepeatableOf(op.keyspace, put->options.context.has_value());
      *op.request.mutable_put() =
          ToRequest(put->key, put->value, op.keyspace, put->options);
      op.request.mutable_put()->mutable_request_id()->set_id(NewRequestId());
    } else if (auto* remove = std::get_if<BatchDelete>(&operations[i])) {
      op.keyspace = KeyspaceOf(remove->options.keyspace);
      op.token = TokenOf(remove->key);
      op.repeatable =
          RepeatableOf(op.keyspace, remove->options.context.has_value());
      *op.request.mutable_delete_() =
          ToRequest(remove->key, op.keyspace, remove->options);
      op.request.mutable_delete_()->mutable_request_id()->set_id(
          NewRequestId());
    }
    if (!status.ok()) {
      op.settled = true;
      results[i].status = status;
    }
  }
  std::make_shared<BatchRun>(*this, deadline, std::move(done))
      ->Start(std::move(ops), std::move(results));
}

}  // namespace ringkv
