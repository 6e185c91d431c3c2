#include "server/rpc/loop_thread.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/ring/placement.h"
#include "server/rpc/clock_system.h"
#include "storage/memory_engine.h"
#include "tests/rpc/watched.h"

namespace ringkv {
namespace {

// Refuses writes while `stalled`. Only the loop's thread uses the engine below.
class StallingEngine final : public Engine {
 public:
  std::atomic<bool> stalled{false};
  std::atomic<bool> broken{false};

  absl::StatusOr<uint64_t> Write(const WriteBatch& batch) override {
    if (broken) return absl::InternalError("the disk is gone");
    if (stalled) return absl::ResourceExhaustedError("stalls");
    return engine_.Write(batch);
  }
  absl::StatusOr<uint64_t> Sync() override { return engine_.Sync(); }
  uint64_t LastSequence() const override { return engine_.LastSequence(); }
  ReadResult Get(Family family, absl::string_view key,
                 ReadTier tier) const override {
    return engine_.Get(family, key, tier);
  }
  absl::StatusOr<RangeResult> Range(Family family, absl::string_view begin,
                                    absl::string_view end,
                                    const RangeLimits& limits) const override {
    return engine_.Range(family, begin, end, limits);
  }
  absl::Status Visit(
      Family family, absl::string_view begin, absl::string_view end,
      const std::function<bool(absl::string_view, absl::string_view)>& visit)
      const override {
    return engine_.Visit(family, begin, end, visit);
  }
  EngineStats Stats() const override { return engine_.Stats(); }

 private:
  MemoryEngine engine_;
};

class Sink final : public CallSink {
 public:
  bool OnAnswer(uint64_t, uint8_t, ClientAnswer&& answer) override {
    answers_.Update([&](std::vector<ClientAnswer>& answers) {
      answers.push_back(std::move(answer));
    });
    return false;
  }
  // The status of the `count`-th answer, from 1.
  absl::Status Wait(size_t count) {
    EXPECT_TRUE(answers_.WaitFor(
        [count](const auto& answers) { return answers.size() >= count; }));
    return answers_.Get().at(count - 1).status;
  }
  size_t count() const { return answers_.Get().size(); }

 private:
  Watched<std::vector<ClientAnswer>> answers_;
};

std::shared_ptr<const Ring> RingOfOne() {
  RingSpec spec;
  spec.cluster_id = ClusterId{1, 1};
  spec.lineage = 1;
  spec.epoch = 1;
  spec.vnodes = 16;
  Member member;
  member.number = NodeNumber{1};
  member.id = NodeId{1, 1};
  member.name = "n1";
  member.client_address = "127.0.0.1:1";
  member.peer_address = "127.0.0.1:2";
  spec.members = {member};
  Keyspace keyspace;
  keyspace.id = KeyspaceId{1};
  keyspace.name = "default";
  spec.keyspaces = {keyspace};
  PlacementOptions options;
  options.vnodes = spec.vnodes;
  const absl::StatusOr<Assignment> placed =
      Place(options, spec.members, Assignment());
  EXPECT_TRUE(placed.ok()) << placed.status();
  spec.tokens = placed->tokens;
  spec.owners = placed->owners;
  spec.next_node_number = NodeNumber{2};
  spec.next_keyspace_id = KeyspaceId{2};
  absl::StatusOr<std::shared_ptr<const Ring>> ring = Ring::Make(spec);
  EXPECT_TRUE(ring.ok()) << ring.status();
  return *ring;
}

class LoopThreadTest : public ::testing::Test {
 protected:
  LoopThreadTest() : hlc_(kNeverHlc), random_(1) {
    hlc_.RaiseBound(HlcFromMillis(SystemTime().wall.millis() + 3600000));
    LoopThread::Hooks hooks;
    hooks.send = [](LinkId, std::vector<DataMessage>&&) {};
    hooks.send_self = [](NodeNumber, std::vector<DataMessage>&&) {};
    hooks.read = [](ReadJob&&) { ADD_FAILURE() << "nothing is on a disk"; };
    hooks.wants_sync = [] {};
    hooks.wants_ring = [](NodeNumber) {};
    hooks.check_clock = [this] {
      held_.WaitFor([](bool held) { return !held; });
    };
    hooks.failed = [this](absl::Status status) { failed_.Set(status); };
    ShardOptions options;
    auto shard = std::make_unique<Shard>(options, engine_, hlc_, random_);
    EXPECT_TRUE(shard->Recover().ok());
    loop_ = std::make_unique<LoopThread>(std::move(shard), engine_,
                                         LoopThread::Limits(), hooks);
    loop_->Start();
    Watched<bool> adopted;
    loop_->Adopt({RingOfOne(), NodeNumber{1}}, [&] { adopted.Set(true); });
    EXPECT_TRUE(adopted.WaitFor([](bool done) { return done; }));
    loop_->PeersChange({.peers = std::make_shared<PeerView>()});
  }

  void Post(ClientCall call, absl::Duration timeout = absl::Seconds(10)) {
    ASSERT_TRUE(loop_->Offer(PostedCall{next_id_++,
                                        {&sink_, 0, 0},
                                        std::move(call),
                                        SystemInstant() + timeout}));
  }
  static PutCall Put() {
    PutCall put;
    put.key = "k";
    put.value = "v";
    return put;
  }
  static GetCall Get() {
    GetCall get;
    get.key = "k";
    return get;
  }

  StallingEngine engine_;
  Hlc hlc_;
  SeededRandom random_;
  Watched<absl::Status> failed_;
  Watched<bool> held_;  // the loop stands still
  Sink sink_;
  CallId next_id_ = 1;
  std::unique_ptr<LoopThread> loop_;
};

TEST_F(LoopThreadTest, ItsPulseTellsWhetherItTurns) {
  Post(Put());
  EXPECT_TRUE(sink_.Wait(1).ok());
  EXPECT_LT(loop_->pulse().Silence(SystemInstant()), absl::Seconds(5));
  // It stands still at the end of this turn or the next.
  held_.Set(true);
  Post(Get());
  const Instant end = SystemInstant() + absl::Seconds(10);
  while (loop_->pulse().Silence(SystemInstant()) < absl::Milliseconds(50) &&
         SystemInstant() < end) {
    std::this_thread::yield();
  }
  EXPECT_LT(SystemInstant(), end);
  held_.Set(false);
  EXPECT_TRUE(sink_.Wait(2).ok());
  loop_->Stop();
  const Instant later = SystemInstant() + absl::Hours(1);
  EXPECT_EQ(loop_->pulse().Silence(later), absl::ZeroDuration());
}

TEST_F(LoopThreadTest, AnswersCalls) {
  Post(Put());
  EXPECT_TRUE(sink_.Wait(1).ok()) << sink_.Wait(1);
  Post(Get());
  EXPECT_TRUE(sink_.Wait(2).ok()) << sink_.Wait(2);
}

TEST_F(LoopThreadTest, DropsWhatIsPastItsDeadlineBeforeItIsBegun) {
  Post(Put(), -absl::Seconds(1));
  EXPECT_EQ(sink_.Wait(1).code(), absl::StatusCode::kDeadlineExceeded);
  Post(Get());
  EXPECT_TRUE(sink_.Wait(2).ok());
  EXPECT_EQ(loop_->in_flight(), 0);
}

TEST_F(LoopThreadTest, RefusesCallsWhileTheEngineStallsAndServesAfterwards) {
  engine_.stalled = true;
  Post(Put());  // its batch is kept
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (loop_->stalls() == 0) ASSERT_LT(absl::Now(), deadline);
  Post(Get());
  EXPECT_TRUE(absl::IsResourceExhausted(sink_.Wait(1))) << sink_.Wait(1);
  EXPECT_GE(loop_->refused(), 1);
  engine_.stalled = false;
  EXPECT_TRUE(sink_.Wait(2).ok()) << sink_.Wait(2);  // the put
  Post(Get());
  EXPECT_TRUE(sink_.Wait(3).ok()) << sink_.Wait(3);
}

TEST_F(LoopThreadTest, RefusesPutsWhileReadOnly) {
  loop_->SetReadOnly(true);
  Post(Put());
  EXPECT_EQ(sink_.Wait(1).code(), absl::StatusCode::kResourceExhausted);
  Post(Get());
  EXPECT_TRUE(sink_.Wait(2).ok());
  loop_->SetReadOnly(false);
  Post(Put());
  EXPECT_TRUE(sink_.Wait(3).ok());
}

TEST_F(LoopThreadTest, ABrokenEngineEndsTheLoopAndAcknowledgesNothing) {
  engine_.broken = true;
  Post(Put());
  EXPECT_TRUE(failed_.WaitFor([](const absl::Status& s) { return !s.ok(); }));
  EXPECT_EQ(sink_.Wait(1).code(), absl::StatusCode::kUnavailable);
}

TEST_F(LoopThreadTest, ACancelledCallIsAnsweredOnceAndForgotten) {
  engine_.stalled = true;
  Post(Put());
  loop_->Cancel(1, 1);
  engine_.stalled = false;
  const absl::StatusCode code = sink_.Wait(1).code();
  EXPECT_TRUE(code == absl::StatusCode::kCancelled ||
              code == absl::StatusCode::kOk);
  Post(Get());
  EXPECT_TRUE(sink_.Wait(2).ok());
  EXPECT_EQ(sink_.count(), 2);
}

TEST_F(LoopThreadTest, RefusesCallsOnceItIsDrained) {
  Post(Put());
  EXPECT_TRUE(sink_.Wait(1).ok()) << sink_.Wait(1);
  loop_->Drain();
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (!loop_->drained()) {
    ASSERT_LT(absl::Now(), deadline);
  }
  Post(Put());
  EXPECT_EQ(sink_.Wait(2).code(), absl::StatusCode::kUnavailable);
}

TEST_F(LoopThreadTest, StoppingAnswersWhatStillRuns) {
  engine_.stalled = true;
  Post(Put());
  loop_->Stop();
  EXPECT_EQ(sink_.Wait(1).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ringkv
