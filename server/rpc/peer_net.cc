#include "server/rpc/peer_net.h"

#include <google/protobuf/arena.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ringkv/internal/v1/peer.grpc.pb.h"
#include "server/codec/control_codec.h"
#include "server/codec/data_codec.h"
#include "server/rpc/clock_system.h"
#include "server/rpc/grpc_status.h"

namespace ringkv {
namespace {

namespace pb = internal::v1;

// A frame is cut at about this; gRPC serializes one at a time, so larger ones
// only cost memory.
constexpr size_t kFrameBytes = 2 << 20;
constexpr int kKeepaliveTimeMs = 5000;
constexpr int kKeepaliveTimeoutMs = 5000;

// What differs between the two kinds of streams.
struct DataKind {
  static constexpr LinkKind kKind = LinkKind::kData;
  using Frame = pb::DataFrame;
  using Message = DataMessage;
  static size_t Bytes(const Message& message) { return DataBytes(message); }
  static void ToProto(Message&& message, pb::DataBatch& batch) {
    DataToProto(std::move(message), *batch.add_messages());
  }
  static absl::StatusOr<Message> FromProto(pb::DataMessage& in) {
    return DataFromProto(std::move(in));
  }
};

struct ControlKind {
  static constexpr LinkKind kKind = LinkKind::kControl;
  using Frame = pb::ControlFrame;
  using Message = ControlMessage;
  static size_t Bytes(const Message& message) {
    constexpr size_t kFixedParts = 256;
    if (const auto* decided = std::get_if<RingDecided>(&message)) {
      return kFixedParts + decided->ring.size();
    }
    if (const auto* promise = std::get_if<PaxosPromise>(&message)) {
      return kFixedParts + promise->value.ring.size();
    }
    if (const auto* accept = std::get_if<PaxosAccept>(&message)) {
      return kFixedParts + accept->value.ring.size();
    }
    return kFixedParts;
  }
  static void ToProto(Message&& message, pb::ControlBatch& batch) {
    ControlToProto(message, *batch.add_messages());
  }
  static absl::StatusOr<Message> FromProto(pb::ControlMessage& in) {
    return ControlFromProto(in);
  }
};

// A stream of either kind and direction, as the registry knows it.
class Link {
 public:
  explicit Link(LinkId id) : id_(id) {}
  virtual ~Link() = default;
  LinkId id() const { return id_; }
  // Ends the stream, from whatever state. `reported`: Control needs no
  // LinkClosed for it.
  virtual void Close(const absl::Status& reason, bool reported) = 0;
  // For accepted streams only.
  virtual void Accept(const HelloReply& reply) {}
  // It was opened before `instant` and no Hello came yet.
  virtual bool IsSilentSince(Instant instant) const { return false; }
  virtual size_t queued_bytes() const = 0;

 private:
  const LinkId id_;
};

template <class Kind>
class KindLink : public Link {
 public:
  using Link::Link;
  virtual void Send(std::vector<typename Kind::Message>&& messages) = 0;
};

}  // namespace

class PeerNet::Impl final : public pb::Peer::CallbackService {
 public:
  Impl(PeerNetOptions options, Hooks hooks,
       std::shared_ptr<grpc::ChannelCredentials> credentials)
      : options_(options),
        hooks_(std::move(hooks)),
        credentials_(std::move(credentials)) {}

  // --- Service ---

  grpc::ServerUnaryReactor* Hello(grpc::CallbackServerContext* context,
                                  const pb::HelloRequest* request,
                                  pb::HelloReply* reply) override;
  grpc::ServerBidiReactor<pb::ControlFrame, pb::ControlFrame>* ControlStream(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<pb::DataFrame, pb::DataFrame>* DataStream(
      grpc::CallbackServerContext* context) override;

  // --- Effects ---

  void SayHello(HelloCall call);
  void AnswerHello(HelloAnswer answer);
  void Dial(LinkDial dial);
  void AnswerLink(LinkAnswer answer);
  void SendControl(LinkId id, ControlMessage message);
  void SendData(LinkId id, std::vector<DataMessage>&& messages);
  void Close(LinkId id);
  void Sweep();
  void CloseAll();
  void Stop();
  PeerNetStats Stats() const;

  // --- For the links ---

  const PeerNetOptions& options() const { return options_; }
  void Post(ControlEvent&& event) { hooks_.control(std::move(event)); }
  void Deliver(LinkId id, std::vector<DataMessage>&& messages) {
    received_.fetch_add(messages.size(), std::memory_order_relaxed);
    hooks_.data(id, std::move(messages));
  }
  void Deliver(LinkId id, std::vector<ControlMessage>&& messages) {
    for (ControlMessage& message : messages) {
      Post(ControlArrived{id, std::move(message)});
    }
  }
  void CountDropped(size_t messages) {
    dropped_.fetch_add(messages, std::memory_order_relaxed);
  }
  void CountMalformed() { malformed_.fetch_add(1, std::memory_order_relaxed); }
  void CountFrame(LinkKind kind, size_t messages) {
    if (kind != LinkKind::kData) return;
    frames_.fetch_add(1, std::memory_order_relaxed);
    sent_.fetch_add(messages, std::memory_order_relaxed);
  }
  // The stream is over; forgets it.
  void Gone(LinkId id);

 private:
  struct OpenHello {
    grpc::ServerUnaryReactor* reactor;
    pb::HelloReply* reply;
  };
  // A Hello of ours.
  struct SentHello {
    grpc::ClientContext context;
    std::unique_ptr<pb::Peer::Stub> stub;
    pb::HelloRequest request;
    pb::HelloReply reply;
  };

  std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) const;
  std::shared_ptr<Link> Find(LinkId id) const {
    const std::lock_guard lock(mutex_);
    const auto found = links_.find(id);
    return found == links_.end() ? nullptr : found->second;
  }
  template <class Kind, class Reactor>
  Reactor* Offer(grpc::CallbackServerContext* context);
  template <class Kind>
  void DialKind(LinkDial&& dial);

  const PeerNetOptions options_;
  const Hooks hooks_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> received_{0};
  std::atomic<uint64_t> frames_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> malformed_{0};

  mutable std::mutex mutex_;
  std::condition_variable gone_;
  // All below under mutex_.
  bool stopping_ = false;
  absl::flat_hash_map<LinkId, std::shared_ptr<Link>> links_;
  absl::flat_hash_map<uint64_t, OpenHello> open_hellos_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<SentHello>> sent_hellos_;
  size_t inbound_ = 0;
  uint64_t next_inbound_ = 1;
};

namespace {

// What both directions share: the queue, the frame that is written, the reading
// of frames. `mutex` guards all of it; gRPC is called under it, which is safe
// because gRPC runs reactions on its own threads and never inside a call.
//
// States: hello (the first frames are exchanged), up, ending.
template <class Kind>
class StreamState {
 public:
  using Frame = typename Kind::Frame;
  using Message = typename Kind::Message;

  StreamState(PeerNet::Impl& net, LinkId id)
      : net_(net),
        id_(id),
        queue_bytes_max_(Kind::kKind == LinkKind::kData
                             ? net.options().data_queue_bytes_max
                             : net.options().control_queue_bytes_max) {}

  // Adds to the queue; true if the caller must now write `frame()`.
  bool Enqueue(std::vector<Message>&& messages) {
    if (ending) {
      net_.CountDropped(messages.size());
      return false;
    }
    for (Message& message : messages) {
      const size_t bytes = Kind::Bytes(message);
      if (queued_bytes_ + bytes > queue_bytes_max_) {
        net_.CountDropped(1);
        continue;
      }
      queued_bytes_ += bytes;
      queue_.push_back({std::move(message), bytes});
    }
    return NextFrame();
  }

  // Prepares the next frame; false if none waits or one is being written.
  bool NextFrame() {
    if (!up || ending || writing || queue_.empty()) return false;
    arena_.Reset();
    frame_ = google::protobuf::Arena::CreateMessage<Frame>(&arena_);
    auto& batch = *frame_->mutable_batch();
    size_t bytes = 0;
    size_t count = 0;
    while (!queue_.empty() &&
           (count == 0 || bytes + queue_.front().bytes <= kFrameBytes)) {
      bytes += queue_.front().bytes;
      ++count;
      Kind::ToProto(std::move(queue_.front().message), batch);
      queue_.pop_front();
    }
    queued_bytes_ -= bytes;
    net_.CountFrame(Kind::kKind, count);
    writing = true;
    return true;
  }

  // Turns a frame after the handshake into messages. Outside `mutex`.
  absl::Status Take(Frame& frame) {
    if (!frame.has_batch()) {
      net_.CountMalformed();
      return absl::InvalidArgumentError("a frame without a batch of messages");
    }
    std::vector<Message> messages;
    messages.reserve(frame.batch().messages_size());
    for (auto& in : *frame.mutable_batch()->mutable_messages()) {
      absl::StatusOr<Message> message = Kind::FromProto(in);
      if (!message.ok()) {
        net_.CountMalformed();
        return message.status();
      }
      messages.push_back(*std::move(message));
    }
    net_.Deliver(id_, std::move(messages));
    return absl::OkStatus();
  }

  Frame* hello_frame() {
    frame_ = google::protobuf::Arena::CreateMessage<Frame>(&arena_);
    return frame_;
  }
  const Frame* frame() const { return frame_; }
  size_t queued_bytes() const { return queued_bytes_; }

  mutable std::mutex mutex;
  bool up = false;
  bool ending = false;
  bool writing = false;
  // Control has closed it, or knows of its end.
  bool reported = false;
  absl::Status reason;
  // Read by one reaction at a time.
  Frame incoming;

 private:
  struct Queued {
    Message message;
    size_t bytes;
  };
  PeerNet::Impl& net_;
  const LinkId id_;
  const size_t queue_bytes_max_;
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;
  google::protobuf::Arena arena_;
  Frame* frame_ = nullptr;
};

// A stream that this node dialled.
template <class Kind>
class OutboundLink final
    : public KindLink<Kind>,
      public grpc::ClientBidiReactor<typename Kind::Frame,
                                     typename Kind::Frame> {
 public:
  OutboundLink(PeerNet::Impl& net, LinkId id,
               std::shared_ptr<grpc::Channel> channel)
      : KindLink<Kind>(id),
        net_(net),
        stub_(pb::Peer::NewStub(std::move(channel))),
        state_(net, id) {}

  // `self` keeps it alive until the stream is done.
  void Begin(const HelloRequest& hello, std::shared_ptr<Link> self) {
    self_ = std::move(self);
    const std::lock_guard lock(state_.mutex);
    if constexpr (Kind::kKind == LinkKind::kData) {
      stub_->async()->DataStream(&context_, this);
    } else {
      stub_->async()->ControlStream(&context_, this);
    }
    HelloRequestToProto(hello, *state_.hello_frame()->mutable_hello());
    state_.writing = true;
    // Writes come from other threads at any time until the hold is gone.
    this->AddHold();
    this->StartWrite(state_.frame());
    this->StartRead(&state_.incoming);
    this->StartCall();
  }

  void Send(std::vector<typename Kind::Message>&& messages) override {
    const std::lock_guard lock(state_.mutex);
    if (state_.Enqueue(std::move(messages))) this->StartWrite(state_.frame());
  }

  void Close(const absl::Status& reason, bool reported) override {
    const std::lock_guard lock(state_.mutex);
    state_.reported = state_.reported || reported;
    End(reason);
  }

  size_t queued_bytes() const override {
    const std::lock_guard lock(state_.mutex);
    return state_.queued_bytes();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(state_.mutex);
    state_.writing = false;
    if (!ok) {
      End(absl::UnavailableError("the stream broke while writing"));
    } else if (state_.NextFrame()) {
      this->StartWrite(state_.frame());
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      const std::lock_guard lock(state_.mutex);
      End(absl::OkStatus());
      return;
    }
    const absl::Status taken =
        got_reply_ ? state_.Take(state_.incoming) : TakeReply();
    const std::lock_guard lock(state_.mutex);
    if (!taken.ok()) {
      End(taken);
      return;
    }
    if (state_.ending) return;
    if (state_.NextFrame()) this->StartWrite(state_.frame());
    this->StartRead(&state_.incoming);
  }

  void OnDone(const grpc::Status& status) override {
    absl::Status reason;
    bool reported;
    {
      const std::lock_guard lock(state_.mutex);
      reported = state_.reported;
      reason = state_.reason;
    }
    if (!reported) {
      if (reason.ok()) reason = FromGrpcStatus(status);
      if (reason.ok()) reason = absl::UnavailableError("the peer closed it");
      net_.Post(LinkClosed{this->id(), std::move(reason)});
    }
    net_.Gone(this->id());
    self_.reset();  // may be the last
  }

 private:
  absl::Status TakeReply() {
    got_reply_ = true;
    if (!state_.incoming.has_hello_reply()) {
      return absl::InvalidArgumentError(
          "the first message was no answer to Hello");
    }
    absl::StatusOr<HelloReply> reply =
        HelloReplyFromProto(state_.incoming.hello_reply());
    if (!reply.ok()) return reply.status();
    const bool accepted = reply->outcome == HelloOutcome::kAccepted;
    net_.Post(LinkAnswered{this->id(), *std::move(reply)});
    if (accepted) {
      const std::lock_guard lock(state_.mutex);
      state_.up = true;
    }
    return absl::OkStatus();
  }

  void End(const absl::Status& reason) {
    if (state_.ending) return;
    state_.ending = true;
    state_.reason = reason;
    if (!reason.ok() || state_.reported) context_.TryCancel();
    this->RemoveHold();
  }

  PeerNet::Impl& net_;
  grpc::ClientContext context_;
  std::unique_ptr<pb::Peer::Stub> stub_;
  StreamState<Kind> state_;
  bool got_reply_ = false;  // by the reading reaction only
  std::shared_ptr<Link> self_;
};

// A stream that a peer dialled.
template <class Kind>
class InboundLink final : public KindLink<Kind>,
                          public grpc::ServerBidiReactor<typename Kind::Frame,
                                                         typename Kind::Frame> {
 public:
  InboundLink(PeerNet::Impl& net, LinkId id)
      : KindLink<Kind>(id),
        net_(net),
        state_(net, id),
        opened_(SystemInstant()) {}

  void Begin(std::shared_ptr<Link> self) {
    self_ = std::move(self);
    const std::lock_guard lock(state_.mutex);
    this->StartRead(&state_.incoming);
  }

  void Send(std::vector<typename Kind::Message>&& messages) override {
    const std::lock_guard lock(state_.mutex);
    if (state_.Enqueue(std::move(messages))) this->StartWrite(state_.frame());
  }

  void Accept(const HelloReply& reply) override {
    const std::lock_guard lock(state_.mutex);
    if (state_.ending || !said_hello_ || state_.writing || state_.up) return;
    HelloReplyToProto(reply, *state_.hello_frame()->mutable_hello_reply());
    if (reply.outcome != HelloOutcome::kAccepted) {
      state_.ending = true;
      state_.reported = true;
      this->StartWriteAndFinish(state_.frame(), grpc::WriteOptions(),
                                grpc::Status::OK);
      return;
    }
    state_.up = true;
    state_.writing = true;
    this->StartWrite(state_.frame());
    this->StartRead(&state_.incoming);
  }

  void Close(const absl::Status& reason, bool reported) override {
    const std::lock_guard lock(state_.mutex);
    state_.reported = state_.reported || reported;
    End(reason);
  }

  bool IsSilentSince(Instant instant) const override {
    const std::lock_guard lock(state_.mutex);
    return !said_hello_ && opened_ < instant;
  }

  size_t queued_bytes() const override {
    const std::lock_guard lock(state_.mutex);
    return state_.queued_bytes();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(state_.mutex);
    state_.writing = false;
    if (!ok) {
      End(absl::UnavailableError("the stream broke while writing"));
    } else if (state_.NextFrame()) {
      this->StartWrite(state_.frame());
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      const std::lock_guard lock(state_.mutex);
      End(absl::UnavailableError("the peer closed it"));
      return;
    }
    if (!said_hello_) {
      const absl::Status taken = TakeHello();
      if (!taken.ok()) {
        const std::lock_guard lock(state_.mutex);
        state_.reported = true;  // Control never heard of it
        End(taken);
      }
      return;  // reads on once Control has accepted
    }
    const absl::Status taken = state_.Take(state_.incoming);
    const std::lock_guard lock(state_.mutex);
    if (!taken.ok()) {
      End(taken);
    } else if (!state_.ending) {
      this->StartRead(&state_.incoming);
    }
  }

  void OnCancel() override {
    const std::lock_guard lock(state_.mutex);
    End(absl::UnavailableError("the connection is gone"));
  }

  void OnDone() override {
    absl::Status reason;
    bool reported;
    {
      const std::lock_guard lock(state_.mutex);
      reported = state_.reported || !said_hello_;
      reason = state_.reason;
    }
    if (!reported) {
      if (reason.ok()) reason = absl::UnavailableError("the stream ended");
      net_.Post(LinkClosed{this->id(), std::move(reason)});
    }
    net_.Gone(this->id());
    self_.reset();  // may be the last
  }

 private:
  absl::Status TakeHello() {
    if (!state_.incoming.has_hello()) {
      return absl::InvalidArgumentError("the first message was no Hello");
    }
    absl::StatusOr<HelloRequest> hello =
        HelloRequestFromProto(state_.incoming.hello());
    if (!hello.ok()) return hello.status();
    {
      const std::lock_guard lock(state_.mutex);
      said_hello_ = true;
    }
    net_.Post(LinkOffered{this->id(), Kind::kKind, *std::move(hello)});
    return absl::OkStatus();
  }

  void End(const absl::Status& reason) {
    if (state_.ending) return;
    state_.ending = true;
    state_.reason = reason;
    this->Finish(ToGrpcStatus(reason));
  }

  PeerNet::Impl& net_;
  StreamState<Kind> state_;
  const Instant opened_;
  bool said_hello_ = false;  // written under mutex, by the reading reaction
  std::shared_ptr<Link> self_;
};

// Refuses a stream at once.
template <class Frame>
class RefusedStream final : public grpc::ServerBidiReactor<Frame, Frame> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

// --- Service ---

grpc::ServerUnaryReactor* PeerNet::Impl::Hello(
    grpc::CallbackServerContext* context, const pb::HelloRequest* request,
    pb::HelloReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<HelloRequest> hello = HelloRequestFromProto(*request);
  if (!hello.ok()) {
    CountMalformed();
    reactor->Finish(ToGrpcStatus(hello.status()));
    return reactor;
  }
  uint64_t call;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || open_hellos_.size() >= options_.inbound_max) {
      reactor->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                   "this node stops, or too many say Hello"));
      return reactor;
    }
    call = next_inbound_++;
    open_hellos_.emplace(call, OpenHello{reactor, reply});
  }
  Post(HelloArrived{call, *std::move(hello)});
  return reactor;
}

template <class Kind, class Reactor>
Reactor* PeerNet::Impl::Offer(grpc::CallbackServerContext* context) {
  std::shared_ptr<InboundLink<Kind>> link;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || inbound_ >= options_.inbound_max) {
      return new RefusedStream<typename Kind::Frame>(
          grpc::Status(grpc::StatusCode::UNAVAILABLE,
                       "this node stops, or has too many streams"));
    }
    link = std::make_shared<InboundLink<Kind>>(
        *this, kInboundLinkBit | next_inbound_++);
    links_.emplace(link->id(), link);
    ++inbound_;
  }
  InboundLink<Kind>* reactor = link.get();
  reactor->Begin(std::move(link));
  return reactor;
}

grpc::ServerBidiReactor<pb::ControlFrame, pb::ControlFrame>*
PeerNet::Impl::ControlStream(grpc::CallbackServerContext* context) {
  return Offer<ControlKind,
               grpc::ServerBidiReactor<pb::ControlFrame, pb::ControlFrame>>(
      context);
}

grpc::ServerBidiReactor<pb::DataFrame, pb::DataFrame>*
PeerNet::Impl::DataStream(grpc::CallbackServerContext* context) {
  return Offer<DataKind, grpc::ServerBidiReactor<pb::DataFrame, pb::DataFrame>>(
      context);
}

// --- Effects ---

std::shared_ptr<grpc::Channel> PeerNet::Impl::NewChannel(
    const std::string& address) const {
  grpc::ChannelArguments arguments;
  // A connection of its own for each stream. Control redials, with its own
  // waits, so a channel makes one attempt and is thrown away.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 3000);
  // Both also set the TCP user timeout.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kPeerMessageBytesMax) +
                                     (1 << 20));
  arguments.SetMaxSendMessageSize(-1);
  return grpc::CreateCustomChannel(address, credentials_, arguments);
}

void PeerNet::Impl::SayHello(HelloCall call) {
  auto sent = std::make_shared<SentHello>();
  sent->stub = pb::Peer::NewStub(NewChannel(call.address));
  HelloRequestToProto(call.request, sent->request);
  sent->context.set_deadline(
      std::chrono::system_clock::now() +
      absl::ToChronoMilliseconds(options_.hello_timeout));
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    sent_hellos_.emplace(call.hello, sent);
  }
  sent->stub->async()->Hello(
      &sent->context, &sent->request, &sent->reply,
      [this, sent, hello = call.hello](grpc::Status status) {
        Post(HelloAnswered{hello, status.ok() ? HelloReplyFromProto(sent->reply)
                                              : FromGrpcStatus(status)});
        const std::lock_guard lock(mutex_);
        sent_hellos_.erase(hello);
        gone_.notify_all();
      });
}

void PeerNet::Impl::AnswerHello(HelloAnswer answer) {
  OpenHello open;
  {
    const std::lock_guard lock(mutex_);
    const auto found = open_hellos_.find(answer.call);
    if (found == open_hellos_.end()) return;
    open = found->second;
    open_hellos_.erase(found);
  }
  HelloReplyToProto(answer.reply, *open.reply);
  open.reactor->Finish(grpc::Status::OK);
}

template <class Kind>
void PeerNet::Impl::DialKind(LinkDial&& dial) {
  auto link = std::make_shared<OutboundLink<Kind>>(*this, dial.link,
                                                   NewChannel(dial.address));
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    links_.emplace(dial.link, link);
  }
  link->Begin(dial.request, link);
}

void PeerNet::Impl::Dial(LinkDial dial) {
  if (dial.kind == LinkKind::kData) {
    DialKind<DataKind>(std::move(dial));
  } else {
    DialKind<ControlKind>(std::move(dial));
  }
}

void PeerNet::Impl::AnswerLink(LinkAnswer answer) {
  if (const std::shared_ptr<Link> link = Find(answer.link)) {
    link->Accept(answer.reply);
  }
}

void PeerNet::Impl::SendControl(LinkId id, ControlMessage message) {
  const std::shared_ptr<Link> link = Find(id);
  auto* control = dynamic_cast<KindLink<ControlKind>*>(link.get());
  if (control == nullptr) return;
  std::vector<ControlMessage> messages;
  messages.push_back(std::move(message));
  control->Send(std::move(messages));
}

void PeerNet::Impl::SendData(LinkId id, std::vector<DataMessage>&& messages) {
  const std::shared_ptr<Link> link = Find(id);
  auto* data = dynamic_cast<KindLink<DataKind>*>(link.get());
  if (data == nullptr) {
    CountDropped(messages.size());
    return;
  }
  data->Send(std::move(messages));
}

void PeerNet::Impl::Close(LinkId id) {
  if (const std::shared_ptr<Link> link = Find(id)) {
    link->Close(absl::UnavailableError("this node closed the stream"),
                /*reported=*/true);
  }
}

void PeerNet::Impl::Sweep() {
  const Instant before = SystemInstant() - options_.offer_timeout;
  std::vector<std::shared_ptr<Link>> silent;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, link] : links_) {
      if (link->IsSilentSince(before)) silent.push_back(link);
    }
  }
  for (const std::shared_ptr<Link>& link : silent) {
    link->Close(absl::DeadlineExceededError("no Hello came in time"),
                /*reported=*/true);
  }
}

void PeerNet::Impl::CloseAll() {
  std::vector<std::shared_ptr<Link>> links;
  std::vector<std::shared_ptr<SentHello>> sent;
  std::vector<OpenHello> open;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, link] : links_) links.push_back(link);
    for (const auto& [id, hello] : sent_hellos_) sent.push_back(hello);
    for (const auto& [id, hello] : open_hellos_) open.push_back(hello);
    open_hellos_.clear();
  }
  for (const std::shared_ptr<Link>& link : links) {
    link->Close(absl::UnavailableError("this node stops"), /*reported=*/true);
  }
  for (const std::shared_ptr<SentHello>& hello : sent) {
    hello->context.TryCancel();
  }
  for (const OpenHello& hello : open) {
    hello.reactor->Finish(
        grpc::Status(grpc::StatusCode::UNAVAILABLE, "this node stops"));
  }
}

void PeerNet::Impl::Stop() {
  CloseAll();
  std::unique_lock lock(mutex_);
  gone_.wait(lock, [this] { return links_.empty() && sent_hellos_.empty(); });
}

void PeerNet::Impl::Gone(LinkId id) {
  std::shared_ptr<Link> link;  // dies outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  link = std::move(found->second);
  links_.erase(found);
  if ((id & kInboundLinkBit) != 0) --inbound_;
  gone_.notify_all();
}

PeerNetStats PeerNet::Impl::Stats() const {
  PeerNetStats stats;
  stats.data_sent = sent_.load(std::memory_order_relaxed);
  stats.data_received = received_.load(std::memory_order_relaxed);
  stats.data_frames_sent = frames_.load(std::memory_order_relaxed);
  stats.dropped = dropped_.load(std::memory_order_relaxed);
  stats.malformed = malformed_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  stats.links = links_.size();
  for (const auto& [id, link] : links_) {
    stats.queued_bytes += link->queued_bytes();
  }
  return stats;
}

// --- PeerNet ---

PeerNet::PeerNet(PeerNetOptions options, Hooks hooks,
                 std::shared_ptr<grpc::ChannelCredentials> credentials)
    : impl_(std::make_unique<Impl>(options, std::move(hooks),
                                   std::move(credentials))) {}
PeerNet::~PeerNet() { Stop(); }
grpc::Service* PeerNet::service() { return impl_.get(); }
void PeerNet::SayHello(HelloCall call) { impl_->SayHello(std::move(call)); }
void PeerNet::AnswerHello(HelloAnswer answer) {
  impl_->AnswerHello(std::move(answer));
}
void PeerNet::Dial(LinkDial dial) { impl_->Dial(std::move(dial)); }
void PeerNet::AnswerLink(LinkAnswer answer) {
  impl_->AnswerLink(std::move(answer));
}
void PeerNet::SendControl(LinkId link, ControlMessage message) {
  impl_->SendControl(link, std::move(message));
}
void PeerNet::Close(LinkId link) { impl_->Close(link); }
void PeerNet::SendData(LinkId link, std::vector<DataMessage>&& messages) {
  impl_->SendData(link, std::move(messages));
}
void PeerNet::Sweep() { impl_->Sweep(); }
void PeerNet::CloseAll() { impl_->CloseAll(); }
void PeerNet::Stop() { impl_->Stop(); }
PeerNetStats PeerNet::Stats() const { return impl_->Stats(); }

void SetPeerServerArguments(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kPeerMessageBytesMax) +
                                   (1 << 20));
  builder.SetMaxSendMessageSize(-1);
}

}  // namespace ringkv
