#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/bench/runner.h"
#include "client/kvbench_calls.h"
#include "client/kvbench_pipeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_cluster.h"

namespace ringkv::bench {
namespace {

using testing::HasSubstr;

constexpr uint64_t kRecords = 500;

enum class Kind { kCalls, kPipeline };

std::string KindName(const testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::kCalls ? "Calls" : "Pipeline";
}

Client ConnectTo(const FakeCluster& cluster) {
  ClientOptions options;
  options.endpoints = cluster.endpoints();
  options.on_warning = [](const std::string&) {};
  return *Client::Connect(options);
}

// A target of either kind on a fake cluster.
class Bench {
 public:
  explicit Bench(Kind kind, CallSettings settings = {}) : cluster_(3) {
    if (kind == Kind::kPipeline) {
      target_ =
          *PipelineTarget::Connect(cluster_.endpoints(), settings, records_, 1);
    } else {
      target_ =
          std::make_unique<CallTarget>(ConnectTo(cluster_), settings, records_,
                                       std::vector<std::string>{""}, 1);
    }
  }

  FakeCluster& cluster() { return cluster_; }
  Target& target() { return *target_; }

  PhaseResult Load() {
    std::atomic<uint64_t> next{0};
    return Run(*MakeLoadSource(next, kRecords), 0);
  }
  PhaseResult Run(const char* workload, uint64_t operations) {
    InsertCounter inserts(kRecords);
    return Run(*MakeRunSource(*NamedWorkload(workload), inserts, 3),
               operations);
  }
  PhaseResult Run(OperationSource& source, uint64_t operations) {
    RunOptions options;
    options.operations = operations;
    options.in_flight = 16;
    return RunPhase({target_.get()}, {&source}, options);
  }

 private:
  FakeCluster cluster_;
  const Records records_{100, 1};
  std::unique_ptr<Target> target_;
};

class TargetTest : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(, TargetTest,
                         testing::Values(Kind::kCalls, Kind::kPipeline),
                         KindName);

TEST_P(TargetTest, EveryWorkloadEndsWithoutAnError) {
  Bench bench(GetParam());
  const Counts loaded = bench.Load().Total().counts;
  EXPECT_EQ(loaded.done, kRecords);
  EXPECT_EQ(loaded.errors(), 0u);
  EXPECT_EQ(bench.cluster().objects().size(), kRecords);
  for (const char* workload : {"a", "b", "c", "d", "f", "get", "put"}) {
    const PhaseResult result = bench.Run(workload, 1000);
    EXPECT_EQ(result.Total().counts.done, 1000u) << workload;
    EXPECT_THAT(result.errors, testing::IsEmpty()) << workload;
  }
  EXPECT_GT(bench.cluster().objects().size(), kRecords);  // d inserts
}

TEST_P(TargetTest, ReadModifyWritesLeaveNoSiblings) {
  Bench bench(GetParam());
  bench.Load();
  bench.Run("f", 2000);
  const PhaseResult result = bench.Run("get", 2000);
  EXPECT_EQ(result.Total().counts.done, 2000u);
}

TEST_P(TargetTest, ReadsOfWhatIsNotThereAreMissing) {
  Bench bench(GetParam());
  const PhaseResult result = bench.Run("get", 100);
  EXPECT_EQ(result.Total().counts.missing, 100u);
  EXPECT_EQ(result.Total().counts.done, 0u);
  ASSERT_FALSE(result.errors.empty());
  EXPECT_THAT(result.errors[0], HasSubstr("nothing found"));
}

TEST_P(TargetTest, ValuesOfOthersAreWrong) {
  Bench bench(GetParam());
  for (uint64_t record = 0; record < kRecords; ++record) {
    bench.cluster().PutDirectly(Records::KeyOf(record), "somebody else's");
  }
  const PhaseResult result = bench.Run("f", 100);
  EXPECT_EQ(result.Total().counts.wrong, 100u);
}

TEST_P(TargetTest, RefusedOperationsHaveFailed) {
  Bench bench(GetParam());
  bench.Load();
  for (int node = 1; node <= 3; ++node) {
    bench.cluster().Configure(node, [](FakeBehaviour& behaviour) {
      behaviour.refuse = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no");
    });
  }
  const PhaseResult result = bench.Run("a", 200);
  EXPECT_EQ(result.Total().counts.failed, 200u);
  EXPECT_EQ(result.Total().counts.unknown, 0u);
  ASSERT_FALSE(result.errors.empty());
}

TEST(CallTargetTest, UnknownOutcomesAreResolved) {
  Bench bench(Kind::kCalls);
  bench.Load();
  for (int node = 1; node <= 3; ++node) {
    bench.cluster().Configure(node, [](FakeBehaviour& behaviour) {
      behaviour.fail_after_write =
          grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "lost");
      behaviour.times = 20;
    });
  }
  const PhaseResult result = bench.Run("put", 500);
  EXPECT_EQ(result.Total().counts.done, 500u);
  EXPECT_EQ(result.Total().counts.unknown, 0u);
  EXPECT_EQ(bench.Run("get", 500).Total().counts.done, 500u);
}

// Calls on a fake cluster, judged by a history.
class HistoryTargetTest : public testing::Test {
 protected:
  PhaseResult Run(OperationSource& source, uint64_t operations) {
    const auto one_by_one = MakeHistorySource(source, kRecords, history_);
    RunOptions options;
    options.operations = operations;
    options.in_flight = 16;
    return RunPhase({&target_}, {one_by_one.get()}, options);
  }
  void Load() {
    std::atomic<uint64_t> next{0};
    EXPECT_EQ(Run(*MakeLoadSource(next, kRecords), 0).Total().counts.done,
              kRecords);
  }
  Counts RunWorkload(const char* workload, uint64_t operations) {
    InsertCounter inserts(kRecords);
    return Run(*MakeRunSource(*NamedWorkload(workload), inserts, 3), operations)
        .Total()
        .counts;
  }

  FakeCluster cluster_{3};
  const Records records_{100, 1};
  History history_;
  CallTarget target_{ConnectTo(cluster_), {}, records_, {""}, 1, &history_};
};

TEST_F(HistoryTargetTest, NothingIsStaleWhereNothingGoesWrong) {
  Load();
  for (const char* workload : {"a", "f", "d"}) {
    EXPECT_EQ(RunWorkload(workload, 1000).done, 1000u) << workload;
  }
}

TEST_F(HistoryTargetTest, ResolvedWritesAreNotStale) {
  Load();
  for (int node = 1; node <= 3; ++node) {
    cluster_.Configure(node, [](FakeBehaviour& behaviour) {
      behaviour.fail_after_write =
          grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "lost");
      behaviour.times = 20;
    });
  }
  const Counts counts = RunWorkload("put", 500);
  EXPECT_EQ(counts.done, 500u);
  EXPECT_GT(counts.resolved, 0u);
  EXPECT_EQ(RunWorkload("get", 500).done, 500u);
}

TEST_F(HistoryTargetTest, AnOlderValueIsStaleAndOneFromElsewhereIsWrong) {
  Load();
  RunWorkload("put", 500);
  SeededRandom random(5);
  std::vector<uint64_t> all;
  for (uint64_t record = 0; record < kRecords; ++record) {
    // What the load wrote; of those that were not put since, still the last.
    cluster_.PutDirectly(Records::KeyOf(record),
                         records_.NewValue(record, 1, random));
    all.push_back(record);
  }
  std::atomic<uint64_t> next{0};
  const Counts stale = Run(*MakeReadSource(next, all), 0).Total().counts;
  EXPECT_GT(stale.stale, kRecords / 3);
  EXPECT_EQ(stale.stale + stale.done, kRecords);

  for (const uint64_t record : all) {
    cluster_.PutDirectly(Records::KeyOf(record),
                         records_.NewValue(record, 1000, random));
  }
  next = 0;
  EXPECT_EQ(Run(*MakeReadSource(next, all), 0).Total().counts.wrong, kRecords);
}

TEST(CallTargetTest, ScansStartAtPagesOfAWalkAndCountTheirEntries) {
  FakeCluster cluster(3);
  const Records records(100, 1);
  for (uint64_t record = 0; record < 5000; ++record) {
    cluster.PutDirectly(Records::KeyOf(record), "value");
  }
  const Client client = ConnectTo(cluster);
  auto starts = FindScanStarts(client, "default", 100);
  ASSERT_TRUE(starts.ok());
  EXPECT_EQ(starts->size(), 5u);
  EXPECT_EQ(starts->front(), "");
  auto fewer = FindScanStarts(client, "default", 2);
  ASSERT_TRUE(fewer.ok());
  EXPECT_EQ(fewer->size(), 2u);
  EXPECT_EQ(fewer->back(), (*starts)[2]);

  CallTarget target(client, {}, records, *starts, 1);
  InsertCounter inserts(kRecords);
  const auto source = MakeRunSource(*NamedWorkload("e"), inserts, 3);
  RunOptions options;
  options.operations = 300;
  options.in_flight = 8;
  const PhaseResult result = RunPhase({&target}, {source.get()}, options);
  EXPECT_EQ(result.Total().counts.done, 300u);
  const Counts& scans =
      result.kinds[static_cast<size_t>(OperationKind::kScan)].counts;
  // 1 to 100 entries, evenly.
  EXPECT_NEAR(static_cast<double>(scans.scanned_entries),
              50.5 * static_cast<double>(scans.done),
              10.0 * static_cast<double>(scans.done));

  EXPECT_EQ(FindScanStarts(client, "nowhere", 5).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(PipelineTargetTest, ConnectRefusesWhatItCannotUse) {
  FakeCluster cluster(3);
  const Records records(100, 1);
  CallSettings settings;
  settings.keyspace = "nowhere";
  EXPECT_EQ(PipelineTarget::Connect(cluster.endpoints(), settings, records, 1)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(PipelineTarget::Connect("host:0", {}, records, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PipelineTargetTest, ScansAreUnimplemented) {
  Bench bench(Kind::kPipeline);
  const PhaseResult result = bench.Run("e", 100);
  EXPECT_GT(result.Total().counts.failed, 0u);
  EXPECT_EQ(result.Total().counts.ended(), 100u);
}

TEST(PipelineTargetTest, ReadsFailAndWritesAreUnknownWhenANodeSaysUnavailable) {
  Bench bench(Kind::kPipeline);
  bench.Load();
  for (int node = 1; node <= 3; ++node) {
    bench.cluster().Configure(node, [](FakeBehaviour& behaviour) {
      behaviour.refuse = grpc::Status(grpc::StatusCode::UNAVAILABLE, "away");
    });
  }
  EXPECT_EQ(bench.Run("get", 100).Total().counts.failed, 100u);
  EXPECT_EQ(bench.Run("put", 100).Total().counts.unknown, 100u);
}

// Acts in the middle of a run, after `after` operations ended.
class Meddler final : public OperationSource {
 public:
  Meddler(const char* workload, int after, std::function<void()> act)
      : inserts_(kRecords),
        source_(MakeRunSource(*NamedWorkload(workload), inserts_, 3)),
        after_(after),
        act_(std::move(act)) {}
  bool Next(Operation& operation) override { return source_->Next(operation); }
  void Finished(const Operation& operation, bool done) override {
    source_->Finished(operation, done);
    if (++ended_ == after_) act_();
  }

 private:
  InsertCounter inserts_;
  const std::unique_ptr<OperationSource> source_;
  const int after_;
  const std::function<void()> act_;
  int ended_ = 0;
};

TEST(PipelineTargetTest, ABrokenStreamEndsItsOperationsAndOthersGoOn) {
  Bench bench(Kind::kPipeline);
  bench.Load();
  std::thread killer;
  Meddler source("a", 500, [&] {
    killer = std::thread([&] { bench.cluster().Kill(2); });
  });
  const PhaseResult result = bench.Run(source, 5000);
  killer.join();
  const Counts counts = result.Total().counts;
  EXPECT_EQ(counts.ended(), 5000u);
  // At most what was in flight when it broke, and when it was tried again.
  EXPECT_GT(counts.done, 4500u);
  EXPECT_EQ(counts.missing + counts.wrong, 0u);
  bench.cluster().Restart(2);
  EXPECT_EQ(bench.Run("c", 500).Total().counts.missing, 0u);
}

TEST(PipelineTargetTest, OperationsThatNobodyTakesFail) {
  Bench bench(Kind::kPipeline);
  bench.Load();
  for (int node = 1; node <= 3; ++node) bench.cluster().Kill(node);
  const PhaseResult result = bench.Run("get", 40);
  EXPECT_EQ(result.Total().counts.failed, 40u);
}

TEST(PipelineTargetTest, AFrozenNodeHoldsUpNothingForEver) {
  CallSettings settings;
  settings.deadline = absl::Milliseconds(100);
  Bench bench(Kind::kPipeline, settings);
  bench.Load();
  bench.cluster().Configure(
      1, [](FakeBehaviour& behaviour) { behaviour.frozen = true; });
  const PhaseResult result = bench.Run("get", 64);
  EXPECT_EQ(result.Total().counts.ended(), 64u);
  EXPECT_GT(result.Total().counts.done, 0u);
}

}  // namespace
}  // namespace ringkv::bench
