#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "client/bench/target.h"
#include "client/bench/workload.h"
#include "ringkv/v1/kv.grpc.pb.h"
#include "tests/bench/baselines/echo.h"

namespace ringkv::bench {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);

Outcome ToOutcome(bool ok, const std::string& reason) {
  Outcome outcome;
  if (!ok) {
    outcome.verdict = Verdict::kFailed;
    outcome.status = absl::UnavailableError(reason);
  }
  return outcome;
}

void Fill(const Operation& operation, const Records& records,
          SeededRandom& random, v1::GetRequest& request) {
  request.set_key(Records::KeyOf(operation.record));
}
void Fill(const Operation& operation, const Records& records,
          SeededRandom& random, v1::PutRequest& request) {
  request.set_key(Records::KeyOf(operation.record));
  request.set_value(records.NewValue(operation.record, random));
}

// What a deadline costs is part of a call.
void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoSeconds(kCallTimeout));
}

class EchoTarget : public Target {
 public:
  explicit EchoTarget(const EchoSettings& settings)
      : stub_(v1::KeyValue::NewStub(grpc::CreateChannel(
            settings.address, grpc::InsecureChannelCredentials()))),
        records_(settings.value_size, 1) {}

 protected:
  const std::unique_ptr<v1::KeyValue::Stub> stub_;
  const Records records_;
  Mutex mutex_;
  SeededRandom random_{1};  // under mutex_
};

class CallbackTarget final : public EchoTarget {
 public:
  using EchoTarget::EchoTarget;

  void Start(const Operation& operation, Completion* completion) override {
    if (operation.kind == OperationKind::kRead) {
      Call<v1::GetRequest, v1::GetResponse>(
          operation, completion, [this](auto* context, auto&&... rest) {
            stub_->async()->Get(context, std::forward<decltype(rest)>(rest)...);
          });
    } else {
      Call<v1::PutRequest, v1::PutResponse>(
          operation, completion, [this](auto* context, auto&&... rest) {
            stub_->async()->Put(context, std::forward<decltype(rest)>(rest)...);
          });
    }
  }
  void Flush() override {}

 private:
  template <class Request, class Response, class Method>
  void Call(const Operation& operation, Completion* completion,
            const Method& method) {
    struct State {
      grpc::ClientContext context;
      Request request;
      Response response;
    };
    State* const state = new State;
    {
      const MutexLock lock(mutex_);
      Fill(operation, records_, random_, state->request);
    }
    SetDeadline(state->context);
    method(&state->context, &state->request, &state->response,
           [state, completion](const grpc::Status& status) {
             const Outcome outcome =
                 ToOutcome(status.ok(), status.error_message());
             delete state;
             completion->Done(outcome);
           });
  }
};

class QueueTarget final : public EchoTarget {
 public:
  explicit QueueTarget(const EchoSettings& settings)
      : EchoTarget(settings), poller_([this] { Poll(); }) {}
  ~QueueTarget() override {
    queue_.Shutdown();
    poller_.join();
  }

  void Start(const Operation& operation, Completion* completion) override {
    if (operation.kind == OperationKind::kRead) {
      Call<v1::GetRequest, v1::GetResponse>(operation, completion,
                                            &v1::KeyValue::Stub::AsyncGet);
    } else {
      Call<v1::PutRequest, v1::PutResponse>(operation, completion,
                                            &v1::KeyValue::Stub::AsyncPut);
    }
  }
  void Flush() override {}

 private:
  struct Pending {
    virtual ~Pending() = default;
    grpc::ClientContext context;
    grpc::Status status;
    Completion* completion = nullptr;
  };
  template <class Request, class Response>
  struct PendingCall final : Pending {
    Request request;
    Response response;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
  };

  template <class Request, class Response, class Method>
  void Call(const Operation& operation, Completion* completion,
            const Method& method) {
    auto* const call = new PendingCall<Request, Response>;
    call->completion = completion;
    {
      const MutexLock lock(mutex_);
      Fill(operation, records_, random_, call->request);
    }
    SetDeadline(call->context);
    call->reader =
        (stub_.get()->*method)(&call->context, call->request, &queue_);
    call->reader->Finish(&call->response, &call->status,
                         static_cast<Pending*>(call));
  }

  void Poll() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      const std::unique_ptr<Pending> call(static_cast<Pending*>(tag));
      call->completion->Done(
          ToOutcome(call->status.ok(), call->status.error_message()));
    }
  }

  grpc::CompletionQueue queue_;
  std::thread poller_;
};

// Messages of a fixed number of operations on one stream. Whatever a message
// answers is asked again in one message.
class StreamTarget final : public EchoTarget {
 public:
  explicit StreamTarget(const EchoSettings& settings)
      : EchoTarget(settings), items_(settings.items) {
    stream_ = stub_->AsyncPipeline(&context_, &queue_, &opened_);
    void* tag = nullptr;
    bool ok = false;
    RINGKV_CHECK(queue_.Next(&tag, &ok));
    open_ = ok;
    if (open_) stream_->Read(&response_, &read_);
    poller_ = std::thread([this] { Poll(); });
  }
  ~StreamTarget() override {
    context_.TryCancel();
    queue_.Shutdown();
    poller_.join();
  }

  void Start(const Operation& operation, Completion* completion) override {
    bool open = false;
    {
      const MutexLock lock(mutex_);
      open = open_;
      if (open) Queue(operation, completion);
    }
    if (!open) completion->Done(ToOutcome(false, "no stream"));
  }
  void Flush() override {
    const MutexLock lock(mutex_);
    Write(/*all=*/true);
  }

 private:
  void Queue(const Operation& operation, Completion* completion) {
    if (waiting_.empty() || waiting_.back()->items_size() >= items_) {
      waiting_.push_back(std::make_unique<v1::PipelineRequest>());
    }
    v1::PipelineRequest::Item& item = *waiting_.back()->add_items();
    item.set_id(reinterpret_cast<uintptr_t>(completion));
    if (operation.kind == OperationKind::kRead) {
      Fill(operation, records_, random_,
           *item.mutable_operation()->mutable_get());
    } else {
      Fill(operation, records_, random_,
           *item.mutable_operation()->mutable_put());
    }
  }

  void Write(bool all) {
    if (writing_ != nullptr || waiting_.empty()) return;
    if (!all && waiting_.front()->items_size() < items_) return;
    writing_ = std::move(waiting_.front());
    waiting_.pop_front();
    stream_->Write(*writing_, &wrote_);
  }

  void Poll() {
    void* tag = nullptr;
    bool ok = false;
    std::vector<Completion*> ended;
    while (queue_.Next(&tag, &ok)) {
      ended.clear();
      {
        const MutexLock lock(mutex_);
        if (tag == &wrote_) {
          writing_.reset();
          if (ok) Write(/*all=*/true);
          continue;
        }
        if (!ok) {
          open_ = false;
          continue;
        }
        for (const v1::PipelineResponse::Item& item : response_.items()) {
          ended.push_back(reinterpret_cast<Completion*>(item.id()));
        }
        stream_->Read(&response_, &read_);
      }
      for (Completion* each : ended) each->Done({});
      Flush();
    }
  }

  const int items_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriter<v1::PipelineRequest, v1::PipelineResponse>>
      stream_;
  char opened_ = 0, read_ = 0, wrote_ = 0;  // tags
  bool open_ = false;
  v1::PipelineResponse response_;
  std::deque<std::unique_ptr<v1::PipelineRequest>> waiting_;
  std::unique_ptr<v1::PipelineRequest> writing_;
  std::thread poller_;
};

std::unique_ptr<Target> MakeTarget(const EchoSettings& settings) {
  switch (settings.api) {
    case EchoApi::kCallback:
      return std::make_unique<CallbackTarget>(settings);
    case EchoApi::kQueue:
      return std::make_unique<QueueTarget>(settings);
    case EchoApi::kStream:
      return std::make_unique<StreamTarget>(settings);
  }
  RINGKV_CHECK(false);
}

}  // namespace

PhaseResult RunEcho(const EchoSettings& settings) {
  const std::unique_ptr<Target> target = MakeTarget(settings);
  InsertCounter inserts(1'000'000);
  const std::unique_ptr<OperationSource> source =
      MakeRunSource(*NamedWorkload(settings.put ? "put" : "get"), inserts, 1);
  RunOptions options;
  options.in_flight = static_cast<uint64_t>(settings.in_flight);
  options.duration = settings.duration;
  options.warmup = settings.warmup;
  return RunPhase({target.get()}, {source.get()}, options);
}

}  // namespace ringkv::bench
