#include "server/rpc/peer_net.h"

#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ringkv/internal/v1/peer.grpc.pb.h"
#include "server/rpc/clock_system.h"
#include "tests/rpc/watched.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;

// A PeerNet with its server; keeps what it reports.
class Peer {
 public:
  struct Seen {
    std::vector<ControlEvent> events;
    std::vector<std::pair<LinkId, DataMessage>> data;

    template <class Event>
    const Event* Find() const {
      for (const ControlEvent& event : events) {
        if (const Event* found = std::get_if<Event>(&event)) return found;
      }
      return nullptr;
    }
    template <class Event>
    size_t Count() const {
      size_t count = 0;
      for (const ControlEvent& event : events) {
        count += std::holds_alternative<Event>(event);
      }
      return count;
    }
  };

  explicit Peer(PeerNetOptions options = {})
      : net_(options,
             {[this](ControlEvent&& event) {
                seen_.Update([&](Seen& seen) {
                  seen.events.push_back(std::move(event));
                });
              },
              [this](LinkId link, std::vector<DataMessage>&& messages) {
                seen_.Update([&](Seen& seen) {
                  for (DataMessage& message : messages) {
                    seen.data.emplace_back(link, std::move(message));
                  }
                });
              }},
             grpc::InsecureChannelCredentials()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(net_.service());
    SetPeerServerArguments(builder);
    server_ = builder.BuildAndStart();
  }
  ~Peer() {
    net_.CloseAll();
    server_->Shutdown(std::chrono::system_clock::now());
    net_.Stop();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  PeerNet& net() { return net_; }

  template <class Event>
  Event WaitFor() {
    std::optional<Event> found;
    EXPECT_TRUE(seen_.WaitFor([&found](const Seen& seen) {
      const Event* event = seen.Find<Event>();
      if (event != nullptr) found = *event;
      return event != nullptr;
    }));
    if (!found.has_value()) std::abort();  // nothing below could go on
    return *std::move(found);
  }
  bool WaitForData(size_t count) {
    return seen_.WaitFor(
        [count](const Seen& seen) { return seen.data.size() >= count; });
  }
  Seen seen() const { return seen_.Get(); }

 private:
  Watched<Seen> seen_;
  PeerNet net_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

HelloRequest Hello(uint64_t id) {
  HelloRequest hello;
  hello.from.id = NodeId{id, id};
  hello.from.name = "node";
  hello.from.start_id = id;
  hello.from.incarnation = 1;
  hello.from.client_address = "127.0.0.1:1";
  hello.from.peer_address = "127.0.0.1:2";
  return hello;
}

HelloReply Reply(HelloOutcome outcome) {
  HelloReply reply;
  reply.outcome = outcome;
  reply.message = "because";
  reply.from = Hello(9).from;
  return reply;
}

DataMessage Message(uint64_t operation, size_t bytes = 10) {
  WriteRequest write;
  write.operation = operation;
  write.keyspace = KeyspaceId{1};
  write.key = "k";
  write.object = std::string(bytes, 'o');
  return {1, write};
}

std::vector<DataMessage> Messages(uint64_t operation, size_t bytes = 10) {
  std::vector<DataMessage> messages;
  messages.push_back(Message(operation, bytes));
  return messages;
}

constexpr LinkId kDialled = 1;

// Dials `b` from `a` and accepts; returns b's name of the link.
LinkId Connect(Peer& a, Peer& b, LinkKind kind) {
  a.net().Dial({kDialled, kind, b.address(), Hello(1)});
  const LinkOffered offered = b.WaitFor<LinkOffered>();
  EXPECT_EQ(offered.kind, kind);
  EXPECT_NE(offered.link & kInboundLinkBit, 0);
  EXPECT_EQ(offered.request.from.id, (NodeId{1, 1}));
  b.net().AnswerLink({offered.link, Reply(HelloOutcome::kAccepted)});
  const LinkAnswered answered = a.WaitFor<LinkAnswered>();
  EXPECT_EQ(answered.link, kDialled);
  EXPECT_EQ(answered.reply.outcome, HelloOutcome::kAccepted);
  return offered.link;
}

TEST(PeerNetTest, AHelloIsAnswered) {
  Peer a, b;
  a.net().SayHello({5, b.address(), Hello(1)});
  const HelloArrived arrived = b.WaitFor<HelloArrived>();
  EXPECT_EQ(arrived.request, Hello(1));
  b.net().AnswerHello({arrived.call, Reply(HelloOutcome::kClone)});
  const HelloAnswered answered = a.WaitFor<HelloAnswered>();
  EXPECT_EQ(answered.hello, 5);
  ASSERT_TRUE(answered.reply.ok()) << answered.reply.status();
  EXPECT_EQ(answered.reply->outcome, HelloOutcome::kClone);
  EXPECT_EQ(answered.reply->message, "because");
}

TEST(PeerNetTest, AHelloToNobodyFails) {
  Peer a;
  a.net().SayHello({5, "127.0.0.1:1", Hello(1)});
  EXPECT_FALSE(a.WaitFor<HelloAnswered>().reply.ok());
}

TEST(PeerNetTest, DataFlowsBothWaysOnceAccepted) {
  Peer a, b;
  const LinkId at_b = Connect(a, b, LinkKind::kData);
  for (uint64_t i = 0; i < 1000; ++i) {
    a.net().SendData(kDialled, Messages(i));
    b.net().SendData(at_b, Messages(i));
  }
  ASSERT_TRUE(a.WaitForData(1000));
  ASSERT_TRUE(b.WaitForData(1000));
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.seen().data[i].first, kDialled);
    EXPECT_EQ(b.seen().data[i].first, at_b);
    if (i % 100 == 0) {
      EXPECT_EQ(a.seen().data[i].second, Message(i));
    }
  }
  EXPECT_LE(a.net().Stats().data_frames_sent, 1000);
  EXPECT_EQ(a.net().Stats().data_sent, 1000);
}

TEST(PeerNetTest, ControlMessagesKeepTheirOrder) {
  Peer a, b;
  Connect(a, b, LinkKind::kControl);
  for (uint64_t i = 1; i <= 100; ++i) {
    a.net().SendControl(kDialled, RingFetch{i});
  }
  uint64_t last = 0;
  a.net().SendControl(kDialled, RingFetch{1000});
  const auto count = [&b] { return b.seen().Count<ControlArrived>(); };
  while (count() < 101) b.WaitFor<ControlArrived>();
  for (const ControlEvent& event : b.seen().events) {
    if (const auto* arrived = std::get_if<ControlArrived>(&event)) {
      const uint64_t epoch = std::get<RingFetch>(arrived->message).have_epoch;
      EXPECT_GT(epoch, last);
      last = epoch;
    }
  }
  EXPECT_EQ(last, 1000);
}

TEST(PeerNetTest, ARefusedStreamTellsWhyAndEnds) {
  Peer a, b;
  a.net().Dial({kDialled, LinkKind::kControl, b.address(), Hello(1)});
  const LinkOffered offered = b.WaitFor<LinkOffered>();
  b.net().AnswerLink({offered.link, Reply(HelloOutcome::kForeignCluster)});
  EXPECT_EQ(a.WaitFor<LinkAnswered>().reply.outcome,
            HelloOutcome::kForeignCluster);
  EXPECT_EQ(a.WaitFor<LinkClosed>().link, kDialled);
  EXPECT_EQ(b.seen().Count<LinkClosed>(), 0);
}

TEST(PeerNetTest, ADialToNobodyIsReportedClosed) {
  Peer a;
  a.net().Dial({kDialled, LinkKind::kData, "127.0.0.1:1", Hello(1)});
  const LinkClosed closed = a.WaitFor<LinkClosed>();
  EXPECT_EQ(closed.link, kDialled);
  EXPECT_FALSE(closed.reason.ok());
}

TEST(PeerNetTest, ClosingEndsTheStreamForTheOtherSideToo) {
  Peer a, b;
  const LinkId at_b = Connect(a, b, LinkKind::kData);
  a.net().Close(kDialled);
  EXPECT_EQ(b.WaitFor<LinkClosed>().link, at_b);
  // The side that closed needs no telling.
  EXPECT_EQ(a.seen().Count<LinkClosed>(), 0);
  a.net().SendData(kDialled, Messages(1));
}

TEST(PeerNetTest, TheAcceptingSideMayCloseToo) {
  Peer a, b;
  const LinkId at_b = Connect(a, b, LinkKind::kControl);
  b.net().Close(at_b);
  EXPECT_EQ(a.WaitFor<LinkClosed>().link, kDialled);
}

TEST(PeerNetTest, WhatDoesNotFitTheQueueIsDroppedAndCounted) {
  PeerNetOptions options;
  options.data_queue_bytes_max = 1 << 20;
  Peer a(options), b;
  // Nobody has accepted yet, so everything waits.
  a.net().Dial({kDialled, LinkKind::kData, b.address(), Hello(1)});
  for (uint64_t i = 0; i < 100; ++i) {
    a.net().SendData(kDialled, Messages(i, 100000));
  }
  EXPECT_EQ(a.net().Stats().dropped, 90);
  EXPECT_LE(a.net().Stats().queued_bytes, 1 << 20);
  const LinkOffered offered = b.WaitFor<LinkOffered>();
  b.net().AnswerLink({offered.link, Reply(HelloOutcome::kAccepted)});
  EXPECT_TRUE(b.WaitForData(10));
}

TEST(PeerNetTest, LargeMessagesPass) {
  Peer a, b;
  Connect(a, b, LinkKind::kData);
  a.net().SendData(kDialled, Messages(1, 48 << 20));
  ASSERT_TRUE(b.WaitForData(1));
  EXPECT_EQ(b.seen().data[0].second, Message(1, 48 << 20));
}

TEST(PeerNetTest, StreamsWithoutHelloAreSweptAway) {
  PeerNetOptions options;
  options.offer_timeout = absl::ZeroDuration();
  Peer b(options);
  auto stub = internal::v1::Peer::NewStub(
      grpc::CreateChannel(b.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->DataStream(&context);
  // A sweep may be too quick to see it come.
  while (b.net().Stats().links == 0) std::this_thread::yield();
  while (b.net().Stats().links > 0) b.net().Sweep();
  internal::v1::DataFrame frame;
  EXPECT_FALSE(stream->Read(&frame));
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_EQ(b.seen().events.size(), 0);
}

TEST(PeerNetTest, GarbageEndsAStreamWithAReason) {
  Peer b;
  auto stub = internal::v1::Peer::NewStub(
      grpc::CreateChannel(b.address(), grpc::InsecureChannelCredentials()));
  internal::v1::DataFrame batch;
  batch.mutable_batch()->add_messages();
  {
    // Data before Hello.
    grpc::ClientContext context;
    auto stream = stub->DataStream(&context);
    stream->Write(batch);
    EXPECT_EQ(stream->Finish().error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  {
    // A message without a body after it.
    grpc::ClientContext context;
    auto stream = stub->DataStream(&context);
    internal::v1::DataFrame hello;
    internal::v1::NodeFacts& facts = *hello.mutable_hello()->mutable_from();
    facts.set_node_id(std::string(16, 'x'));
    facts.set_start_id(1);
    facts.set_incarnation(1);
    facts.set_protocol_min(1);
    facts.set_protocol_max(1);
    facts.set_weight(1);
    stream->Write(hello);
    const LinkOffered offered = b.WaitFor<LinkOffered>();
    b.net().AnswerLink({offered.link, Reply(HelloOutcome::kAccepted)});
    internal::v1::DataFrame frame;
    EXPECT_TRUE(stream->Read(&frame));
    EXPECT_TRUE(frame.has_hello_reply());
    stream->Write(batch);
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("body"));
  }
  EXPECT_EQ(b.net().Stats().malformed, 1);
}

TEST(PeerNetTest, StoppingEndsEverythingThatRuns) {
  Peer b;
  auto a = std::make_unique<Peer>();
  Connect(*a, b, LinkKind::kData);
  a->net().SayHello({5, b.address(), Hello(1)});
  b.WaitFor<HelloArrived>();
  a.reset();  // returns
  b.WaitFor<LinkClosed>();
}

}  // namespace
}  // namespace ringkv
