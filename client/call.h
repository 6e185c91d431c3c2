// One operation on its way through the cluster: which node it is sent to, when
// a second one is asked as well, what is repeated after a failure, and when it
// ends.
//
//   Start ──> try ──> answer: done
//              │ ├──> refused: done
//              │ ├──> not done ──> (pause) ──> try at the next node
//              │ ├──> ambiguous ─> (pause) ──> try at the same run, or the next
//              │ │                             node if it may be repeated
//              anywhere │ └──> slow, repeatable anywhere: a second try beside
//              it (hedge) └── waits for the connection; without one nothing was
//              sent
//
// A call has one deadline. It ends exactly once; what comes after is dropped.

#ifndef RINGKV_CLIENT_CALL_H_
#define RINGKV_CLIENT_CALL_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/time.h"
#include "client/client.h"
#include "client/cluster_view.h"
#include "client/io_loop.h"
#include "client/retry_policy.h"
#include "ringkv/v1/kv.grpc.pb.h"

namespace ringkv {

// What all calls of one client share.
struct CallRuntime {
  CallRuntime(const ClientOptions& options, IoLoop& io, ClusterView& view)
      : options(options),
        io(io),
        view(view),
        budget(options.retry_budget_ratio, options.retry_budget_burst) {}

  const ClientOptions& options;
  IoLoop& io;
  ClusterView& view;

  Mutex mutex;
  RetryBudget budget ABSL_GUARDED_BY(mutex);
  LatencyQuantile read_p99 ABSL_GUARDED_BY(mutex){0.99};
  LatencyQuantile write_p99 ABSL_GUARDED_BY(mutex){0.99};

  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> tries{0};
  std::atomic<uint64_t> retries{0};
  std::atomic<uint64_t> hedges{0};
  std::atomic<uint64_t> budget_refusals{0};
  std::atomic<uint64_t> unknown{0};

  bool TakeRetry() {
    MutexLock lock(mutex);
    if (budget.TakeRetry()) return true;
    ++budget_refusals;
    return false;
  }
};

// Marks a repeat of a write; see RequestId in kv.proto.
struct RepeatMark {
  uint64_t age_ms = 0;
  uint64_t coordinator_start_id = 0;
};

// One try: a request under way to one node. Derived classes add the exchange.
class Try : public CompletionTag {
 public:
  // Sends the request over `connection`; further completions go to Step().
  virtual void Send(const Node::Connection& connection,
                    grpc::CompletionQueue* queue) = 0;
  // A completion of the exchange. True when it is over and `status` is set.
  virtual bool Step(bool ok) { return true; }

  void Complete(bool ok) override;

  std::shared_ptr<class Call> call;
  std::shared_ptr<Node> node;
  grpc::ClientContext context;
  grpc::Status status;
  bool sent = false;
  bool hedge = false;
  bool pinned = false;
  Instant connect_by;
  Instant sent_at;
  uint64_t start_id = 0;  // believed run of the node when sent
  int index = 0;
};

// The outcome of a try that was made outside the call (in a batch).
struct EarlierTry {
  std::shared_ptr<Node> node;
  uint64_t start_id = 0;
  Instant sent_at;
  bool sent = true;
  absl::Status status;
  bool said_not_done = false;
};

// Thread-safe.
class Call : public Activity, public std::enable_shared_from_this<Call> {
 public:
  struct Target {
    Repeatable repeatable = Repeatable::kRead;
    std::string keyspace;
    std::optional<Token> token;  // absent: any node will do
    Instant deadline;
    std::string what;  // "get", "put" ...: for messages
  };

  Call(CallRuntime& runtime, Target target)
      : runtime_(runtime), target_(std::move(target)) {}

  // Sends the first try. Called once.
  void Start();
  // Goes on after a try made elsewhere. Called once, instead of Start().
  void StartAfter(const EarlierTry& earlier);
  // Ends the call with CANCELLED.
  void Cancel() override;

 protected:
  friend class Try;

  virtual std::unique_ptr<Try> NewTry(const RepeatMark& mark) = 0;
  // The call's end: OK with the try that succeeded (null if it was served from
  // elsewhere), or an error. Called once, without locks held.
  virtual void Deliver(const absl::Status& status, Try* winner) = 0;
  // Ring epoch that the answer of `attempt` names.
  virtual RingEpoch AnswerEpoch(const Try& attempt) const { return 0; }

  const Target& target() const { return target_; }

 private:
  // What is to be done once the lock is released.
  struct After {
    bool end = false;
    absl::Status status;
    std::unique_ptr<Try> winner;
    std::vector<std::unique_ptr<Try>> over;
  };

  bool Begin(bool first);
  void OnCompletion(Try* attempt, bool ok);
  void OnHedgeTimer(int index);
  void OnRetryTimer();
  void Settle(After& after);

  std::shared_ptr<Node> NextCandidate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Launch(bool hedge, After& after) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True once it is on its way or ended; false if it could not connect.
  bool Advance(Try* attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnOver(std::unique_ptr<Try> attempt, After& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Decide(const TryReport& report, const absl::Status& status,
              const std::shared_ptr<Node>& node, uint64_t start_id,
              Instant sent_at, After& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status, After& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Detail() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::unique_ptr<Try> Remove(Try* attempt)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CallRuntime& runtime_;
  const Target target_;
  Instant started_at_;

  Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  bool retry_pending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Try>> running_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Node>> candidates_ ABSL_GUARDED_BY(mutex_);
  size_t next_candidate_ ABSL_GUARDED_BY(mutex_) = 0;
  int rounds_ ABSL_GUARDED_BY(mutex_) = 0;
  int launched_ ABSL_GUARDED_BY(mutex_) = 0;
  int sent_ ABSL_GUARDED_BY(mutex_) = 0;
  int unsent_in_a_row_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ambiguous_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> tried_ ABSL_GUARDED_BY(mutex_);
  // The first ambiguous try of a write that only its coordinator may repeat.
  std::shared_ptr<Node> home_ ABSL_GUARDED_BY(mutex_);
  uint64_t home_start_id_ ABSL_GUARDED_BY(mutex_) = 0;
  Instant home_sent_at_ ABSL_GUARDED_BY(mutex_);
};

// Unary calls.
template <class Request, class Response>
class UnaryTry final : public Try {
 public:
  using Reader = grpc::ClientAsyncResponseReader<Response>;
  using Method = std::unique_ptr<Reader> (v1::KeyValue::Stub::*)(
      grpc::ClientContext*, const Request&, grpc::CompletionQueue*);

  UnaryTry(Method method, const Request& request)
      : method_(method), request_(request) {}

  void Send(const Node::Connection& connection,
            grpc::CompletionQueue* queue) override {
    reader_ = (connection.stub.get()->*method_)(&context, request_, queue);
    reader_->StartCall();
    reader_->Finish(&response, &status, this);
  }

  Response response;

 private:
  Method method_;
  // Outlives the try: it belongs to the call, which changes it only before the
  // try is made. Serialized by Send().
  const Request& request_;
  std::unique_ptr<Reader> reader_;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_CALL_H_
