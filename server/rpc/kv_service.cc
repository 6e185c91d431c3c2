#include "server/rpc/kv_service.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/codec/data_codec.h"
#include "server/rpc/unary_call.h"

namespace ringkv {
namespace {

// Results go out in messages of about this.
constexpr size_t kPipelineMessageBytes = 1 << 20;
// What one Batch may answer: stock clients take 4 MiB.
constexpr size_t kBatchAnswerBytesMax = kPublicMessageBytesMax - (64 << 10);

struct Nothing {
  template <class Response>
  void operator()(Response&) const {}
};

template <class Request, class Response>
grpc::ServerUnaryReactor* Unary(Router& router,
                                grpc::CallbackServerContext* context,
                                const Request* request, Response* response) {
  return new UnaryCall<Request, Response, Nothing>(
      router, context, request, response, Nothing(), kCallTimeoutDefault,
      kCallTimeoutMax);
}

ClientAnswer Refused(absl::Status status) {
  ClientAnswer answer;
  answer.status = std::move(status);
  return answer;
}

// --- Batch ---

class BatchCall final : public grpc::ServerUnaryReactor, public CallSink {
 public:
  BatchCall(Router& router, grpc::CallbackServerContext* context,
            const v1::BatchRequest* request, v1::BatchResponse* response)
      : router_(router), context_(context), response_(response) {
    v1::BatchRequest&& batch = TakeRequest(request);
    const size_t count = static_cast<size_t>(batch.operations_size());
    absl::Status status = CheckBatchCount(count);
    if (status.ok()) status = CheckMessageBytes(batch.ByteSizeLong());
    if (!status.ok()) {
      Finish(FinalStatus(context_, status));
      return;
    }
    const Instant deadline =
        DeadlineOf(context->deadline(), kCallTimeoutDefault, kCallTimeoutMax);
    answers_.resize(count);
    kinds_.resize(count);
    // One more, so that the batch is not finished while it is being posted.
    open_ = count + 1;
    first_ = router_.NewIds(count);
    for (size_t i = 0; i < count; ++i) {
      v1::Operation& operation = *batch.mutable_operations(static_cast<int>(i));
      kinds_[i] = KindOf(operation);
      absl::StatusOr<ClientCall> call = CallFromProto(std::move(operation));
      absl::Status status = call.status();
      if (status.ok()) {
        const int shard = router_.ShardOf(*call);
        status = router_.Post(
            shard, {first_ + i, {this, i, 0}, *std::move(call), deadline});
      }
      if (!status.ok()) OnAnswer(i, 0, Refused(std::move(status)));
    }
    posted_ = true;
    Count();
  }

  bool OnAnswer(uint64_t tag, uint8_t, ClientAnswer&& answer) override {
    answers_[tag] = std::move(answer);
    Count();
    return false;
  }

  void OnCancel() override {
    if (posted_) router_.CancelRange(first_, answers_.size());
  }
  void OnDone() override { delete this; }

 private:
  void Count() {
    if (open_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    size_t bytes = 0;
    response_->mutable_results()->Reserve(static_cast<int>(answers_.size()));
    for (size_t i = 0; i < answers_.size(); ++i) {
      ClientAnswer& answer = answers_[i];
      const size_t answer_bytes = 32 + AnswerBytes(answer);
      if (answer.status.ok() && kinds_[i] == OperationKind::kGet &&
          bytes + answer_bytes > kBatchAnswerBytesMax) {
        answer = Refused(absl::ResourceExhaustedError(absl::StrCat(
            "this answer of ", answer_bytes,
            " bytes would bring the batch above ", kBatchAnswerBytesMax,
            " bytes; ask for it in another call")));
      } else {
        bytes += answer_bytes;
      }
      ResultToProto(std::move(answer), kinds_[i], *response_->add_results());
    }
    Finish(grpc::Status::OK);
  }

  Router& router_;
  grpc::CallbackServerContext* const context_;
  v1::BatchResponse* const response_;
  std::vector<ClientAnswer> answers_;  // each written by one loop
  std::vector<OperationKind> kinds_;
  std::atomic<size_t> open_{0};
  std::atomic<bool> posted_{false};
  CallId first_ = 0;
};

// Holds a stream's mutex, and keeps it: once Finish was called, OnDone may
// delete the stream before the one who called it has let go of the mutex.
class StreamLock {
 public:
  explicit StreamLock(std::shared_ptr<std::mutex> mutex)
      : mutex_(std::move(mutex)), lock_(*mutex_) {}

 private:
  const std::shared_ptr<std::mutex> mutex_;
  const std::lock_guard<std::mutex> lock_;
};

// --- Pipeline ---

// Reads requests as long as not too many are in flight, and writes whatever
// results have gathered while the last message was written.
class PipelineStream final
    : public grpc::ServerBidiReactor<v1::PipelineRequest, v1::PipelineResponse>,
      public CallSink {
 public:
  PipelineStream(Router& router, grpc::CallbackServerContext* context)
      : router_(router), context_(context) {
    const StreamLock lock(mutex_);
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      const StreamLock lock(mutex_);
      read_all_ = true;
      FinishIfOver();
      return;
    }
    const size_t count = static_cast<size_t>(request_.items_size());
    if (count > kBatchOperationsMax) {
      const StreamLock lock(mutex_);
      read_all_ = true;
      status_ = absl::InvalidArgumentError(
          absl::StrCat("a message of ", count, " operations, above the limit ",
                       "of ", kBatchOperationsMax));
      FinishIfOver();
      return;
    }
    {
      const StreamLock lock(mutex_);
      in_flight_ += count;
    }
    const CallId first = router_.NewIds(count);
    const Instant now = SystemInstant();
    for (size_t i = 0; i < count; ++i) {
      v1::PipelineRequest::Item& item =
          *request_.mutable_items(static_cast<int>(i));
      const uint8_t kind = static_cast<uint8_t>(KindOf(item.operation()));
      absl::StatusOr<ClientCall> call =
          CallFromProto(std::move(*item.mutable_operation()));
      absl::Status status = call.status();
      if (status.ok()) {
        const absl::Duration timeout =
            item.timeout_ms() == 0
                ? kCallTimeoutDefault
                : std::min(absl::Milliseconds(item.timeout_ms()),
                           kCallTimeoutMax);
        const int shard = router_.ShardOf(*call);
        status = router_.Post(shard, {first + i,
                                      {this, item.id(), kind},
                                      *std::move(call),
                                      now + timeout});
      }
      if (!status.ok() && OnAnswer(item.id(), kind, Refused(status))) Flush();
    }
    const StreamLock lock(mutex_);
    if (cancelled_) {
      // What was posted after the cancellation.
      router_.CancelAll(serial());
    }
    if (in_flight_ < kPipelineInFlightMax) {
      StartRead(&request_);
    } else {
      paused_ = true;
    }
  }

  bool OnAnswer(uint64_t tag, uint8_t kind, ClientAnswer&& answer) override {
    const size_t bytes = 32 + AnswerBytes(answer);
    const StreamLock lock(mutex_);
    --in_flight_;
    if (!cancelled_) {
      if (chunks_.empty() ||
          chunks_.back()->bytes + bytes > kPipelineMessageBytes) {
        chunks_.push_back(std::make_unique<Chunk>());
      }
      Chunk& chunk = *chunks_.back();
      chunk.bytes += bytes;
      v1::PipelineResponse::Item& item = *chunk.response->add_items();
      item.set_id(tag);
      ResultToProto(std::move(answer), static_cast<OperationKind>(kind),
                    *item.mutable_result());
    }
    if (paused_ && in_flight_ < kPipelineInFlightMax / 2) {
      paused_ = false;
      StartRead(&request_);
    }
    // Whoever writes will see it; else the loop flushes once at the end of its
    // turn.
    if (writing_ || flush_owed_) return false;
    flush_owed_ = true;
    return true;
  }

  void Flush() override {
    const StreamLock lock(mutex_);
    flush_owed_ = false;
    WriteNext();
    FinishIfOver();
  }

  void OnWriteDone(bool ok) override {
    const StreamLock lock(mutex_);
    writing_ = false;
    written_.reset();
    if (!ok) {
      cancelled_ = true;
      chunks_.clear();
    }
    WriteNext();
    FinishIfOver();
  }

  void OnCancel() override {
    const StreamLock lock(mutex_);
    cancelled_ = true;
    chunks_.clear();
    router_.CancelAll(serial());
  }

  void OnDone() override { delete this; }

 private:
  struct Chunk {
    google::protobuf::Arena arena;
    v1::PipelineResponse* response =
        google::protobuf::Arena::CreateMessage<v1::PipelineResponse>(&arena);
    size_t bytes = 0;
  };

  void WriteNext() {
    if (writing_ || chunks_.empty()) return;
    writing_ = true;
    written_ = std::move(chunks_.front());
    chunks_.pop_front();
    StartWrite(written_->response);
  }

  void FinishIfOver() {
    if (!read_all_ || in_flight_ > 0 || writing_ || flush_owed_ ||
        !chunks_.empty() || finished_) {
      return;
    }
    finished_ = true;
    Finish(FinalStatus(context_, status_));
  }

  Router& router_;
  grpc::CallbackServerContext* const context_;
  v1::PipelineRequest request_;  // of the reading reaction
  const std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
  // All below under mutex_. gRPC never reacts inside a call to it.
  size_t in_flight_ = 0;
  bool paused_ = false;
  bool read_all_ = false;
  bool cancelled_ = false;
  bool writing_ = false;
  bool flush_owed_ = false;
  bool finished_ = false;
  absl::Status status_;
  std::deque<std::unique_ptr<Chunk>> chunks_;
  std::unique_ptr<Chunk> written_;
};

// --- Scan ---

// Asks for a page, writes it, asks for the next.
class ScanStream final : public grpc::ServerWriteReactor<v1::ScanResponse>,
                         public CallSink {
 public:
  ScanStream(Router& router, grpc::CallbackServerContext* context,
             const v1::ScanRequest* request)
      : router_(router),
        context_(context),
        deadline_(DeadlineOf(context->deadline(), absl::InfiniteDuration(),
                             absl::InfiniteDuration())),
        left_(request->limit() == 0 ? std::numeric_limits<uint64_t>::max()
                                    : request->limit()) {
    absl::StatusOr<ScanCall> call = ScanFromProto(TakeRequest(request));
    if (!call.ok()) {
      Finish(FinalStatus(context_, call.status()));
      return;
    }
    call_ = *std::move(call);
    const StreamLock lock(mutex_);
    AskPage();
  }

  bool OnAnswer(uint64_t, uint8_t, ClientAnswer&& answer) override {
    const StreamLock lock(mutex_);
    id_ = 0;
    absl::Status status = std::move(answer.status);
    if (status.ok()) {
      response_.Clear();
      status = AnswerToProto(std::move(answer), response_);
    }
    if (!status.ok()) {
      Finish(FinalStatus(context_, status));
      return false;
    }
    const uint64_t entries = static_cast<uint64_t>(response_.entries_size());
    left_ -= std::min(left_, entries);
    call_.cursor = response_.cursor();
    StartWrite(&response_);
    return false;
  }

  void OnWriteDone(bool ok) override {
    const StreamLock lock(mutex_);
    if (!ok || cancelled_) {
      Finish(grpc::Status::CANCELLED);
    } else if (call_.cursor.empty() || left_ == 0) {
      Finish(grpc::Status::OK);
    } else {
      AskPage();
    }
  }

  void OnCancel() override {
    const StreamLock lock(mutex_);
    cancelled_ = true;
    if (id_ != 0) router_.Cancel(shard_, id_);
  }
  void OnDone() override { delete this; }

 private:
  void AskPage() {
    ScanCall call = call_;
    call.limit =
        static_cast<uint32_t>(std::min<uint64_t>(left_, kScanPageEntries));
    const ClientCall posted = std::move(call);
    shard_ = router_.ShardOf(posted);
    id_ = router_.NewIds(1);
    const Instant deadline =
        std::min(deadline_, SystemInstant() + kCallTimeoutDefault);
    if (absl::Status status =
            router_.Post(shard_, {id_, {this, 0, 0}, posted, deadline});
        !status.ok()) {
      id_ = 0;
      Finish(FinalStatus(context_, status));
    }
  }

  Router& router_;
  grpc::CallbackServerContext* const context_;
  const Instant deadline_;
  const std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
  // All below under mutex_.
  uint64_t left_;
  ScanCall call_;
  v1::ScanResponse response_;
  int shard_ = 0;
  CallId id_ = 0;
  bool cancelled_ = false;
};

// --- WatchRing ---

class WatchStream final
    : public grpc::ServerWriteReactor<v1::WatchRingResponse>,
      public RingWatcher {
 public:
  WatchStream(RingBoard& board, uint64_t known_epoch) : board_(board) {
    if (!board_.Add(this, known_epoch)) OnClose();
  }

  void OnRing(const RingNotice& notice) override {
    const StreamLock lock(mutex_);
    if (!notice->has_ring()) {
      End(grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                       "this node is in no ring; form a cluster with kvctl "
                       "init, or join it to one"));
      return;
    }
    next_ = notice;
    WriteNext();
  }

  void OnClose() override {
    const StreamLock lock(mutex_);
    End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "this node stops"));
  }

  void OnWriteDone(bool ok) override {
    const StreamLock lock(mutex_);
    written_.reset();
    if (!ok) {
      End(grpc::Status::CANCELLED);
    } else {
      WriteNext();
    }
  }

  void OnCancel() override {
    const StreamLock lock(mutex_);
    End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    board_.Remove(this);
    delete this;
  }

 private:
  void WriteNext() {
    if (ended_ || written_ != nullptr || next_ == nullptr) return;
    written_ = std::move(next_);
    next_ = nullptr;
    StartWrite(written_.get());
  }

  void End(const grpc::Status& status) {
    if (ended_) return;
    ended_ = true;
    Finish(status);
  }

  RingBoard& board_;
  const std::shared_ptr<std::mutex> mutex_ = std::make_shared<std::mutex>();
  // All below under mutex_.
  RingNotice next_;
  RingNotice written_;
  bool ended_ = false;
};

}  // namespace

grpc::ServerUnaryReactor* KvService::Get(grpc::CallbackServerContext* context,
                                         const v1::GetRequest* request,
                                         v1::GetResponse* response) {
  return Unary(router_, context, request, response);
}

grpc::ServerUnaryReactor* KvService::Put(grpc::CallbackServerContext* context,
                                         const v1::PutRequest* request,
                                         v1::PutResponse* response) {
  return Unary(router_, context, request, response);
}

grpc::ServerUnaryReactor* KvService::Delete(
    grpc::CallbackServerContext* context, const v1::DeleteRequest* request,
    v1::DeleteResponse* response) {
  return Unary(router_, context, request, response);
}

grpc::ServerUnaryReactor* KvService::Batch(grpc::CallbackServerContext* context,
                                           const v1::BatchRequest* request,
                                           v1::BatchResponse* response) {
  return new BatchCall(router_, context, request, response);
}

grpc::ServerBidiReactor<v1::PipelineRequest, v1::PipelineResponse>*
KvService::Pipeline(grpc::CallbackServerContext* context) {
  return new PipelineStream(router_, context);
}

grpc::ServerWriteReactor<v1::ScanResponse>* KvService::Scan(
    grpc::CallbackServerContext* context, const v1::ScanRequest* request) {
  return new ScanStream(router_, context, request);
}

grpc::ServerWriteReactor<v1::WatchRingResponse>* KvService::WatchRing(
    grpc::CallbackServerContext* context, const v1::WatchRingRequest* request) {
  return new WatchStream(board_, request->known_epoch());
}

}  // namespace ringkv
