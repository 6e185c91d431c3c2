#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <deque>
#include <iostream>
#include <memory>
#include <thread>
#include <utility>

#include "ringkv/v1/kv.grpc.pb.h"
#include "tests/bench/baselines/echo.h"

namespace ringkv::bench {
namespace {

void Answer(const EchoSettings& settings, v1::GetResponse* response) {
  v1::Sibling* sibling = response->add_siblings();
  sibling->set_value(std::string(settings.value_size, 'v'));
  sibling->set_hlc_timestamp(1);
  response->set_context(std::string(kContextBytes, 'c'));
  response->set_ring_epoch(1);
}

void Answer(const EchoSettings& /*settings*/, v1::PutResponse* response) {
  response->set_context(std::string(kContextBytes, 'c'));
  response->set_replica_acks(2);
  response->set_ring_epoch(1);
}

void WaitForEndOfInput() {
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

// --- callback API ---

class CallbackEcho final : public v1::KeyValue::CallbackService {
 public:
  explicit CallbackEcho(const EchoSettings& settings) : settings_(settings) {}

  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context,
                                const v1::GetRequest*,
                                v1::GetResponse* response) override {
    return Respond(context, response);
  }
  grpc::ServerUnaryReactor* Put(grpc::CallbackServerContext* context,
                                const v1::PutRequest*,
                                v1::PutResponse* response) override {
    return Respond(context, response);
  }

 private:
  template <class Response>
  grpc::ServerUnaryReactor* Respond(grpc::CallbackServerContext* context,
                                    Response* response) {
    Answer(settings_, response);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  const EchoSettings& settings_;
};

// --- completion queues ---

class Tag {
 public:
  virtual ~Tag() = default;
  virtual void Complete(bool ok) = 0;
};

using QueueService = v1::KeyValue::AsyncService;

template <class Request, class Response>
class UnaryHandler final : public Tag {
 public:
  using Method = void (QueueService::*)(
      grpc::ServerContext*, Request*,
      grpc::ServerAsyncResponseWriter<Response>*, grpc::CompletionQueue*,
      grpc::ServerCompletionQueue*, void*);

  UnaryHandler(QueueService& service, grpc::ServerCompletionQueue& queue,
               Method method, const EchoSettings& settings)
      : service_(service), queue_(queue), method_(method), settings_(settings) {
    Wait();
  }

  void Complete(bool ok) override {
    if (!ok && !answering_) {  // the server shuts down
      delete this;
      return;
    }
    if (answering_) {
      Wait();
      return;
    }
    answering_ = true;
    response_.Clear();
    Answer(settings_, &response_);
    writer_->Finish(response_, grpc::Status::OK, this);
  }

 private:
  void Wait() {
    answering_ = false;
    context_ = std::make_unique<grpc::ServerContext>();
    writer_ = std::make_unique<grpc::ServerAsyncResponseWriter<Response>>(
        context_.get());
    request_.Clear();
    (service_.*method_)(context_.get(), &request_, writer_.get(), &queue_,
                        &queue_, this);
  }

  QueueService& service_;
  grpc::ServerCompletionQueue& queue_;
  const Method method_;
  const EchoSettings& settings_;
  bool answering_ = false;
  std::unique_ptr<grpc::ServerContext> context_;
  std::unique_ptr<grpc::ServerAsyncResponseWriter<Response>> writer_;
  Request request_;
  Response response_;
};

// One stream: reads go on while answers are written, one message for each.
class StreamHandler {
 public:
  StreamHandler(QueueService& service, grpc::ServerCompletionQueue& queue,
                const EchoSettings& settings)
      : settings_(settings), stream_(&context_) {
    service.RequestPipeline(&context_, &stream_, &queue, &queue, &opened_);
  }

 private:
  struct StreamTag final : Tag {
    StreamTag(StreamHandler* handler, void (StreamHandler::*react)(bool))
        : handler(handler), react(react) {}
    void Complete(bool ok) override { (handler->*react)(ok); }
    StreamHandler* const handler;
    void (StreamHandler::*const react)(bool);
  };

  void OnOpened(bool ok) {
    if (ok) stream_.Read(&request_, &read_);
  }

  void OnRead(bool ok) {
    if (!ok) return;  // the client is gone; the process ends with it
    auto response = std::make_unique<v1::PipelineResponse>();
    for (const v1::PipelineRequest::Item& item : request_.items()) {
      v1::PipelineResponse::Item& out = *response->add_items();
      out.set_id(item.id());
      if (item.operation().has_put()) {
        Answer(settings_, out.mutable_result()->mutable_put());
      } else {
        Answer(settings_, out.mutable_result()->mutable_get());
      }
    }
    waiting_.push_back(std::move(response));
    Write();
    stream_.Read(&request_, &read_);
  }

  void OnWrote(bool ok) {
    written_.reset();
    if (ok) Write();
  }

  void Write() {
    if (written_ != nullptr || waiting_.empty()) return;
    written_ = std::move(waiting_.front());
    waiting_.pop_front();
    stream_.Write(*written_, &wrote_);
  }

  const EchoSettings& settings_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<v1::PipelineResponse, v1::PipelineRequest>
      stream_;
  StreamTag opened_{this, &StreamHandler::OnOpened};
  StreamTag read_{this, &StreamHandler::OnRead};
  StreamTag wrote_{this, &StreamHandler::OnWrote};
  v1::PipelineRequest request_;
  std::deque<std::unique_ptr<v1::PipelineResponse>> waiting_;
  std::unique_ptr<v1::PipelineResponse> written_;
};

int Started(const grpc::Server* server, const EchoSettings& settings) {
  if (server == nullptr) {
    std::cerr << "grpc_echo: " << settings.address
              << " cannot be listened on\n";
    return 1;
  }
  std::cout << "ready" << std::endl;
  return 0;
}

int ServeCallback(const EchoSettings& settings) {
  CallbackEcho service(settings);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(settings.address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (const int code = Started(server.get(), settings); code != 0) return code;
  WaitForEndOfInput();
  server->Shutdown();
  return 0;
}

int ServeQueue(const EchoSettings& settings) {
  QueueService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(settings.address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::ServerCompletionQueue> queue =
      builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (const int code = Started(server.get(), settings); code != 0) return code;
  std::unique_ptr<StreamHandler> stream;
  if (settings.api == EchoApi::kStream) {
    stream = std::make_unique<StreamHandler>(service, *queue, settings);
  } else {
    constexpr int kHandlers = 128;  // of each method: requests taken at once
    for (int i = 0; i < kHandlers; ++i) {
      new UnaryHandler<v1::GetRequest, v1::GetResponse>(
          service, *queue, &QueueService::RequestGet, settings);
      new UnaryHandler<v1::PutRequest, v1::PutResponse>(
          service, *queue, &QueueService::RequestPut, settings);
    }
  }
  std::thread poller([&queue] {
    void* tag = nullptr;
    bool ok = false;
    while (queue->Next(&tag, &ok)) static_cast<Tag*>(tag)->Complete(ok);
  });
  WaitForEndOfInput();
  server->Shutdown(std::chrono::system_clock::now());
  queue->Shutdown();
  poller.join();
  return 0;
}

}  // namespace

int ServeEcho(const EchoSettings& settings) {
  return settings.api == EchoApi::kCallback ? ServeCallback(settings)
                                            : ServeQueue(settings);
}

}  // namespace ringkv::bench
