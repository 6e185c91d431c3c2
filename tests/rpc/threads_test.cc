#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/commit_thread.h"
#include "server/rpc/mailbox.h"
#include "server/rpc/reader_pool.h"
#include "storage/memory_engine.h"
#include "tests/rpc/watched.h"

namespace ringkv {
namespace {

using ::testing::ElementsAre;

TEST(MailboxTest, TakesEverythingAtOnceInOrder) {
  Mailbox<int> mailbox(10, 1000);
  mailbox.Push(1);
  EXPECT_TRUE(mailbox.Offer(2, 1));
  mailbox.Push(3);
  std::vector<int> taken;
  mailbox.Take(taken, Instant::Infinite());
  EXPECT_THAT(taken, ElementsAre(1, 2, 3));
  EXPECT_EQ(mailbox.size(), 0);
}

TEST(MailboxTest, RefusesOffersAtItsBoundsButNeverAPush) {
  Mailbox<int> mailbox(2, 100);
  EXPECT_TRUE(mailbox.Offer(1, 90));
  EXPECT_FALSE(mailbox.Offer(2, 11));
  EXPECT_TRUE(mailbox.Offer(2, 10));
  EXPECT_FALSE(mailbox.Offer(3, 0));
  mailbox.Push(3);
  std::vector<int> taken;
  mailbox.Take(taken, Instant::Infinite());
  EXPECT_EQ(taken.size(), 3);
  EXPECT_TRUE(mailbox.Offer(4, 90));
}

TEST(MailboxTest, ReturnsAtItsDeadlineAndWhenWoken) {
  Mailbox<int> mailbox(2, 100);
  std::vector<int> taken;
  const Instant begin = SystemInstant();
  mailbox.Take(taken, begin + absl::Milliseconds(20));
  EXPECT_TRUE(taken.empty());
  EXPECT_GE(SystemInstant() - begin, absl::Milliseconds(20));
  mailbox.Wake();
  mailbox.Take(taken, Instant::Infinite());
  EXPECT_TRUE(taken.empty());
}

TEST(MailboxTest, LosesNothingBetweenManyWritersAndOneReader) {
  Mailbox<int> mailbox(1000000, 1000000);
  constexpr int kWriters = 4;
  constexpr int kEach = 20000;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&mailbox] {
      for (int i = 0; i < kEach; ++i) mailbox.Push(i);
    });
  }
  std::vector<int> taken;
  size_t count = 0;
  while (count < kWriters * kEach) {
    mailbox.Take(taken, Instant::Infinite());
    count += taken.size();
    taken.clear();
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(count, kWriters * kEach);
}

WriteBatch OnePut() {
  WriteBatch batch;
  batch.Put(Family::kData, "k", "v");
  return batch;
}

TEST(CommitThreadTest, TellsOfASyncThatCoversWhatWasWrittenBeforeTheRequest) {
  MemoryEngine engine;
  Watched<uint64_t> synced;
  CommitThread commit(engine, absl::Hours(1),
                      {[&](uint64_t sequence) { synced.Set(sequence); },
                       [](absl::Status) { FAIL(); }});
  const uint64_t sequence = *engine.Write(OnePut());
  commit.Request();
  EXPECT_TRUE(synced.WaitFor([=](uint64_t got) { return got >= sequence; }));
  EXPECT_GE(commit.syncs(), 1);
}

TEST(CommitThreadTest, SyncsByItselfAfterTheIntervalIfSomethingWasWritten) {
  MemoryEngine engine;
  Watched<uint64_t> synced;
  CommitThread commit(engine, absl::Milliseconds(5),
                      {[&](uint64_t sequence) { synced.Set(sequence); },
                       [](absl::Status) { FAIL(); }});
  const uint64_t sequence = *engine.Write(OnePut());
  EXPECT_TRUE(synced.WaitFor([=](uint64_t got) { return got >= sequence; }));
  commit.Stop();
  EXPECT_EQ(commit.syncs(), 1);
}

TEST(CommitThreadTest, SyncsALastTimeWhenStopped) {
  MemoryEngine engine;
  std::atomic<uint64_t> synced{0};
  CommitThread commit(engine, absl::Hours(1),
                      {[&](uint64_t sequence) { synced = sequence; },
                       [](absl::Status) { FAIL(); }});
  const uint64_t sequence = *engine.Write(OnePut());
  commit.Stop();
  EXPECT_GE(synced, sequence);
}

// Fails every sync.
class BrokenEngine : public Engine {
 public:
  absl::StatusOr<uint64_t> Write(const WriteBatch& batch) override { return 1; }
  absl::StatusOr<uint64_t> Sync() override {
    return absl::DataLossError("the disk is gone");
  }
  uint64_t LastSequence() const override { return 1; }
  ReadResult Get(Family, absl::string_view, ReadTier) const override {
    return {};
  }
  absl::StatusOr<RangeResult> Range(Family, absl::string_view,
                                    absl::string_view,
                                    const RangeLimits&) const override {
    return RangeResult{};
  }
  absl::Status Visit(
      Family, absl::string_view, absl::string_view,
      const std::function<bool(absl::string_view, absl::string_view)>&)
      const override {
    return absl::OkStatus();
  }
  EngineStats Stats() const override { return {}; }
};

TEST(CommitThreadTest, AFailedSyncIsReportedOnceAndNothingCountsAsSynced) {
  BrokenEngine engine;
  Watched<int> failures;
  CommitThread commit(engine, absl::Milliseconds(1),
                      {[](uint64_t) { FAIL(); },
                       [&](absl::Status status) {
                         EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
                         failures.Update([](int& count) { ++count; });
                       }});
  EXPECT_TRUE(failures.WaitFor([](int count) { return count == 1; }));
  commit.Request();
  commit.Stop();
  EXPECT_TRUE(failures.WaitFor([](int count) { return count == 1; }));
}

// Has no room for a while.
class FullEngine final : public BrokenEngine {
 public:
  absl::StatusOr<uint64_t> Sync() override {
    if (++syncs_ < 4) return absl::ResourceExhaustedError("the disk is full");
    return 1;
  }

 private:
  int syncs_ = 0;
};

TEST(CommitThreadTest, AFullDiskIsWaitedFor) {
  FullEngine engine;
  Watched<uint64_t> synced;
  CommitThread commit(engine, absl::Hours(1),
                      {[&](uint64_t sequence) { synced.Set(sequence); },
                       [](absl::Status) { FAIL(); }});
  commit.Request();
  EXPECT_TRUE(synced.WaitFor([](uint64_t got) { return got == 1; }));
}

TEST(ReaderPoolTest, ReadsPointsAndRanges) {
  MemoryEngine engine;
  ASSERT_TRUE(engine.Write(OnePut()).ok());
  ReaderPool pool(engine, 2, 10);
  Watched<int> done;
  ReadJob point;
  point.job = 7;
  point.begin = "k";
  pool.Post(point, [&](ReadDone read) {
    EXPECT_EQ(read.job, 7);
    EXPECT_EQ(read.result.value, "v");
    done.Update([](int& count) { ++count; });
  });
  ReadJob range;
  range.is_range = true;
  pool.Post(range, [&](ReadDone read) {
    EXPECT_TRUE(read.range.ok());
    EXPECT_EQ(read.range->entries.size(), 1);
    done.Update([](int& count) { ++count; });
  });
  EXPECT_TRUE(done.WaitFor([](int count) { return count == 2; }));
}

TEST(ReaderPoolTest, RefusesWhatItCannotQueue) {
  MemoryEngine engine;
  ReaderPool pool(engine, 1, 0);
  bool refused = false;
  pool.Post(ReadJob{}, [&](ReadDone read) {
    refused = read.result.status.code() == absl::StatusCode::kResourceExhausted;
  });
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace ringkv
