#include "client/kvbench_pipeline.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/token.h"
#include "client/channel.h"
#include "membership/ring/ring_codec.h"

namespace ringkv::bench {
namespace {

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kReopenDelay = absl::Milliseconds(200);
constexpr absl::Duration kFailDelay = absl::Milliseconds(50);
constexpr absl::Duration kWatchInterval = absl::Milliseconds(500);
// How long past the deadline a stream may be silent with work on it.
constexpr absl::Duration kGrace = absl::Seconds(2);
// Bounds of one message: well inside the 4 MiB that a server takes.
constexpr int kItemsMax = 512;
constexpr size_t kMessageBytesMax = 1 << 20;

Outcome Failed(Verdict verdict, absl::Status status) {
  Outcome outcome;
  outcome.verdict = verdict;
  outcome.status = std::move(status);
  return outcome;
}

// Whether a put that ended with `code` may have taken effect.
bool MayHaveEffect(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return false;
    default:
      return true;
  }
}

v1::Quorum ToProto(CallQuorum quorum) {
  switch (quorum) {
    case CallQuorum::kDefault:
      return v1::QUORUM_DEFAULT;
    case CallQuorum::kSloppy:
      return v1::QUORUM_SLOPPY;
    case CallQuorum::kStrict:
      return v1::QUORUM_STRICT;
  }
  return v1::QUORUM_DEFAULT;
}

// The siblings of an answer, as much of them as JudgeRead() wants.
GetResult ToGetResult(v1::GetResponse& response) {
  GetResult result;
  for (v1::Sibling& sibling : *response.mutable_siblings()) {
    result.siblings.emplace_back();
    result.siblings.back().value = std::move(*sibling.mutable_value());
  }
  return result;
}

absl::StatusOr<std::shared_ptr<const Ring>> FetchRing(
    const std::string& endpoint) {
  const std::unique_ptr<v1::KeyValue::Stub> stub =
      v1::KeyValue::NewStub(MakeChannel(endpoint));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kConnectTimeout));
  context.set_wait_for_ready(true);
  v1::WatchRingRequest request;
  v1::WatchRingResponse response;
  const auto reader = stub->WatchRing(&context, request);
  const bool got = reader->Read(&response);
  context.TryCancel();
  v1::WatchRingResponse later;
  while (got && reader->Read(&later)) {
  }
  const absl::Status status = FromGrpc(reader->Finish());
  if (!got) return status;
  ASSIGN_OR_RETURN(RingSpec spec, RingFromProto(response.ring()));
  return Ring::Make(std::move(spec));
}

}  // namespace

// One stream, from its opening until it breaks. All under the target's mutex.
class PipelineTarget::Stream final
    : public Activity,
      public std::enable_shared_from_this<PipelineTarget::Stream> {
 public:
  explicit Stream(PipelineTarget& target) : target_(target) {}

  bool usable() const { return !broken_; }
  v1::PipelineRequest::Item& Add(uint64_t id, size_t bytes) {
    ++under_way_;
    if (silent_since_ == Instant()) silent_since_ = Now();
    if (batches_.empty() || batches_.back()->items_size() >= kItemsMax ||
        bytes_ + bytes > kMessageBytesMax) {
      batches_.push_back(TakeSpare());
      bytes_ = 0;
    }
    bytes_ += bytes;
    v1::PipelineRequest::Item& item = *batches_.back()->add_items();
    item.set_id(id);
    item.set_timeout_ms(static_cast<uint32_t>(
        absl::ToInt64Milliseconds(target_.settings_.deadline)));
    return item;
  }

  void Open(v1::KeyValue::Stub& stub) {
    if (!target_.io_.Begin(shared_from_this())) {
      broken_ = true;
      return;
    }
    self_ = shared_from_this();
    ++tags_;
    call_ = stub.AsyncPipeline(&context_, target_.io_.queue(), &opened_);
  }

  void Write() {
    if (!open_ || broken_ || writing_ || batches_.empty()) return;
    written_ = std::move(batches_.front());
    batches_.erase(batches_.begin());
    writing_ = true;
    ++tags_;
    call_->Write(*written_, &wrote_);
  }

  // One answer came.
  void Answered() {
    --under_way_;
    silent_since_ = under_way_ > 0 ? Now() : Instant();
  }
  bool Stuck(Instant now) const {
    return under_way_ > 0 &&
           now - silent_since_ > target_.settings_.deadline + kGrace;
  }

  // Activity. Ends the stream soon; its operations then fail.
  void Cancel() override { context_.TryCancel(); }

 private:
  struct Tag final : CompletionTag {
    Tag(Stream* stream, void (Stream::*react)(bool, std::vector<Ended>&))
        : stream(stream), react(react) {}
    void Complete(bool ok) override {
      // The stream may end here, and its target with it.
      const std::shared_ptr<Stream> keep = stream->shared_from_this();
      std::vector<Ended> ended;
      PipelineTarget& target = stream->target_;
      bool over = false;
      {
        const MutexLock lock(target.mutex_);
        (stream->*react)(ok, ended);
        over = stream->over_;
      }
      target.Deliver(ended);
      if (over) target.io_.End(stream);
    }
    Stream* const stream;
    void (Stream::*const react)(bool, std::vector<Ended>&);
  };

  void OnOpened(bool ok, std::vector<Ended>& ended) {
    --tags_;
    if (!ok) return Break(ended);
    open_ = true;
    Read();
    Write();
  }

  void OnRead(bool ok, std::vector<Ended>& ended) {
    --tags_;
    if (!ok || broken_) return Break(ended);
    target_.OnMessage(response_, ended);
    Read();
  }

  void OnWrote(bool ok, std::vector<Ended>& ended) {
    --tags_;
    writing_ = false;
    written_->Clear();
    spare_ = std::move(written_);
    if (!ok || broken_) return Break(ended);
    Write();
  }

  void OnFinished(bool /*ok*/, std::vector<Ended>& /*ended*/) {
    --tags_;
    over_ = true;
    self_.reset();
  }

  void Read() {
    ++tags_;
    call_->Read(&response_, &read_);
  }

  void Break(std::vector<Ended>& ended) {
    if (!broken_) {
      broken_ = true;
      context_.TryCancel();
      target_.OnBroken(this, ended);
    }
    if (tags_ > 0) return;
    ++tags_;
    call_->Finish(&status_, &finished_);
  }

  std::unique_ptr<v1::PipelineRequest> TakeSpare() {
    return spare_ != nullptr ? std::move(spare_)
                             : std::make_unique<v1::PipelineRequest>();
  }

  PipelineTarget& target_;
  // Until nothing comes back from the queue any more.
  std::shared_ptr<Stream> self_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientAsyncReaderWriter<v1::PipelineRequest, v1::PipelineResponse>>
      call_;
  Tag opened_{this, &Stream::OnOpened};
  Tag read_{this, &Stream::OnRead};
  Tag wrote_{this, &Stream::OnWrote};
  Tag finished_{this, &Stream::OnFinished};
  int tags_ = 0;
  bool open_ = false;
  bool writing_ = false;
  bool broken_ = false;
  bool over_ = false;
  grpc::Status status_;
  // Cleared messages keep their memory.
  v1::PipelineResponse response_;
  std::unique_ptr<v1::PipelineRequest> written_;
  std::unique_ptr<v1::PipelineRequest> spare_;
  std::vector<std::unique_ptr<v1::PipelineRequest>> batches_;
  size_t bytes_ = 0;  // of the last batch
  uint64_t under_way_ = 0;
  Instant silent_since_;
};

absl::StatusOr<std::unique_ptr<PipelineTarget>> PipelineTarget::Connect(
    const std::string& endpoints, CallSettings settings, const Records& records,
    uint64_t seed) {
  ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                   ParseEndpoints(endpoints));
  absl::Status status;
  for (const std::string& address : addresses) {
    absl::StatusOr<std::shared_ptr<const Ring>> ring = FetchRing(address);
    if (!ring.ok()) {
      status = absl::Status(ring.status().code(),
                            absl::StrCat("no ring from ", address, ": ",
                                         ring.status().message()));
      continue;
    }
    if ((*ring)->FindKeyspace(settings.keyspace) == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("there is no keyspace '", settings.keyspace, "'"));
    }
    auto target = absl::WrapUnique(new PipelineTarget(
        *std::move(ring), std::move(settings), records, seed));
    target->Watch();
    return target;
  }
  return status;
}

PipelineTarget::PipelineTarget(std::shared_ptr<const Ring> ring,
                               CallSettings settings, const Records& records,
                               uint64_t seed)
    : ring_(std::move(ring)),
      keyspace_(ring_->FindKeyspace(settings.keyspace)),
      settings_(std::move(settings)),
      records_(records),
      random_(seed),
      io_(1) {
  for (const Member& member : ring_->spec().members) {
    Link& link = links_[member.number];
    link.channel = MakeChannel(member.client_address);
    link.stub = v1::KeyValue::NewStub(link.channel);
  }
}

PipelineTarget::~PipelineTarget() {
  io_.Stop();
  const MutexLock lock(mutex_);
  links_.clear();  // streams end before the queue that they used
}

uint64_t PipelineTarget::TakeSlot(const Operation& operation,
                                  Completion* completion) {
  if (free_.empty()) {
    free_.push_back(slots_.size());
    slots_.emplace_back();
  }
  const uint64_t id = free_.back();
  free_.pop_back();
  slots_[id] = {operation, completion, nullptr, false};
  return id;
}

PipelineTarget::Ended PipelineTarget::EndSlot(uint64_t id, Outcome outcome) {
  Slot& slot = slots_[id];
  const Ended ended{slot.completion, std::move(outcome)};
  slot = Slot();
  free_.push_back(id);
  return ended;
}

PipelineTarget::Stream* PipelineTarget::Choose(Token token, bool read) {
  const absl::Span<const NodeNumber> list =
      ring_->PreferenceList(*keyspace_, token);
  // Puts of one key go to one coordinator, which keeps its clock small.
  const size_t first = read ? turn_++ % list.size() : 0;
  for (size_t i = 0; i < list.size(); ++i) {
    Link& link = links_.at(list[(first + i) % list.size()]);
    if (link.stream != nullptr && link.stream->usable()) {
      return link.stream.get();
    }
    if (Now() < link.reopen_at) continue;
    link.reopen_at = Now() + kReopenDelay;
    link.stream = std::make_shared<Stream>(*this);
    link.stream->Open(*link.stub);
    if (link.stream->usable()) return link.stream.get();
  }
  return nullptr;
}

void PipelineTarget::SendRead(uint64_t id) {
  Slot& slot = slots_[id];
  std::string key = Records::KeyOf(slot.operation.record);
  slot.stream = Choose(TokenOf(key), /*read=*/true);
  if (slot.stream == nullptr) return FailLater(id);
  v1::GetRequest& get =
      *slot.stream->Add(id, key.size()).mutable_operation()->mutable_get();
  get.set_keyspace(settings_.keyspace);
  get.set_key(std::move(key));
  get.set_r(settings_.r);
  get.set_quorum(ToProto(settings_.quorum));
}

void PipelineTarget::SendPut(uint64_t id, std::string* context) {
  Slot& slot = slots_[id];
  std::string key = Records::KeyOf(slot.operation.record);
  slot.stream = Choose(TokenOf(key), /*read=*/false);
  if (slot.stream == nullptr) return FailLater(id);
  const size_t bytes = key.size() + records_.value_size() +
                       (context == nullptr ? 0 : context->size());
  v1::PutRequest& put =
      *slot.stream->Add(id, bytes).mutable_operation()->mutable_put();
  put.set_keyspace(settings_.keyspace);
  put.set_key(std::move(key));
  put.set_value(records_.NewValue(slot.operation.record, random_));
  if (context != nullptr) put.set_context(std::move(*context));
  put.set_w(settings_.w);
  put.set_quorum(ToProto(settings_.quorum));
}

void PipelineTarget::FailLater(uint64_t id) {
  io_.timers().At(Now() + kFailDelay, [this, id] {
    std::vector<Ended> ended;
    {
      const MutexLock lock(mutex_);
      ended.push_back(EndSlot(
          id, Failed(Verdict::kFailed,
                     absl::UnavailableError(
                         "no stream to any replica of the key is open"))));
    }
    Deliver(ended);
  });
}

void PipelineTarget::Start(const Operation& operation, Completion* completion) {
  if (operation.kind == OperationKind::kScan) {
    completion->Done(
        Failed(Verdict::kFailed,
               absl::UnimplementedError("a pipeline carries no scans")));
    return;
  }
  const MutexLock lock(mutex_);
  const uint64_t id = TakeSlot(operation, completion);
  slots_[id].reading = operation.kind == OperationKind::kReadModifyWrite;
  if (operation.kind == OperationKind::kRead || slots_[id].reading) {
    SendRead(id);
  } else {
    SendPut(id, nullptr);
  }
}

void PipelineTarget::Flush() {
  const MutexLock lock(mutex_);
  FlushLocked();
}

void PipelineTarget::FlushLocked() {
  for (auto& [number, link] : links_) {
    if (link.stream != nullptr) link.stream->Write();
  }
}

void PipelineTarget::OnMessage(v1::PipelineResponse& message,
                               std::vector<Ended>& ended) {
  for (v1::PipelineResponse::Item& item : *message.mutable_items()) {
    const uint64_t id = item.id();
    // Never trust what comes over a wire, not even from a server under test.
    if (id >= slots_.size() || slots_[id].stream == nullptr) continue;
    Slot& slot = slots_[id];
    slot.stream->Answered();
    v1::OperationResult& result = *item.mutable_result();
    const bool read =
        slot.reading || slot.operation.kind == OperationKind::kRead;
    if (result.code() != 0) {
      const absl::StatusCode code =
          static_cast<absl::StatusCode>(result.code());
      const Verdict verdict =
          !read && MayHaveEffect(code) ? Verdict::kUnknown : Verdict::kFailed;
      ended.push_back(
          EndSlot(id, Failed(verdict, absl::Status(code, result.message()))));
      continue;
    }
    if (!read) {
      ended.push_back(EndSlot(id, {}));
      continue;
    }
    const Outcome outcome =
        JudgeRead(slot.operation.record, ToGetResult(*result.mutable_get()));
    if (!slot.reading || outcome.verdict != Verdict::kDone) {
      ended.push_back(EndSlot(id, outcome));
      continue;
    }
    slot.reading = false;
    SendPut(id, result.get().has_context()
                    ? result.mutable_get()->mutable_context()
                    : nullptr);
  }
}

void PipelineTarget::OnBroken(Stream* stream, std::vector<Ended>& ended) {
  for (uint64_t id = 0; id < slots_.size(); ++id) {
    const Slot& slot = slots_[id];
    if (slot.stream != stream) continue;
    const bool read =
        slot.reading || slot.operation.kind == OperationKind::kRead;
    ended.push_back(EndSlot(
        id, Failed(read ? Verdict::kFailed : Verdict::kUnknown,
                   absl::UnavailableError("the stream to the node broke"))));
  }
  for (auto& [number, link] : links_) {
    if (link.stream.get() == stream) link.reopen_at = Now() + kReopenDelay;
  }
}

void PipelineTarget::Deliver(std::vector<Ended>& ended) {
  for (Ended& each : ended) each.completion->Done(each.outcome);
  // What the completions started, and the second halves of what was read.
  Flush();
}

void PipelineTarget::Watch() {
  io_.timers().At(Now() + kWatchInterval, [this] {
    {
      const MutexLock lock(mutex_);
      for (auto& [number, link] : links_) {
        if (link.stream != nullptr && link.stream->Stuck(Now())) {
          link.stream->Cancel();
        }
      }
    }
    Watch();
  });
}

}  // namespace ringkv::bench
