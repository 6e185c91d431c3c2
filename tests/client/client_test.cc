#include "client/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/channel.h"
#include "client/timer_queue.h"
#include "tests/client/fake_cluster.h"

namespace ringkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

absl::StatusOr<Client> ConnectTo(FakeCluster& cluster,
                                 ClientOptions options = {}) {
  options.endpoints = cluster.endpoints();
  return Client::Connect(std::move(options));
}

// For tests that count calls: a busy machine must not look like a slow node.
ClientOptions WithoutHedges() {
  ClientOptions options;
  options.hedge_delay_min = absl::Seconds(5);
  return options;
}

// Calls `condition` until it holds or 10 s are over.
bool Eventually(const std::function<bool()>& condition) {
  const Instant until = Now() + absl::Seconds(10);
  while (Now() < until) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return condition();
}

const grpc::Status kUnavailable(grpc::StatusCode::UNAVAILABLE,
                                "required 2, received 1");

TEST(ClientTest, PutGetDelete) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  absl::StatusOr<GetResult> got = client->Get("greeting");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FALSE(got->found());
  EXPECT_FALSE(got->context.has_value());
  ASSERT_TRUE(client->Put("greeting", "hello").ok());
  got = client->Get("greeting");
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->value(), "hello");
  ASSERT_TRUE(client->Delete("greeting", {.context = got->context}).ok());
  got = client->Get("greeting");
  ASSERT_TRUE(got.ok());
  EXPECT_FALSE(got->found());
  EXPECT_TRUE(got->context.has_value());
}

TEST(ClientTest, KeysAndValuesAreAnyBytes) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  const std::string key("\0\xff\n\"k", 5);
  const std::string value("\xc3\x28\0v", 4);
  ASSERT_TRUE(client->Put(key, value).ok());
  absl::StatusOr<GetResult> got = client->Get(key);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->value(), value);
}

TEST(ClientTest, WritesGoToTheFirstReplicaAndReadsToAllOfThem) {
  FakeCluster cluster(5);
  absl::StatusOr<Client> client = ConnectTo(cluster, WithoutHedges());
  ASSERT_TRUE(client.ok()) << client.status();
  const std::vector<int> replicas = cluster.Replicas("k");
  ASSERT_EQ(replicas.size(), 3u);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(client->Put("k", "v").ok());
  }
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(client->Get("k").ok());
  EXPECT_EQ(cluster.counts(replicas[0]).puts, 60);
  for (int number = 1; number <= 5; ++number) {
    const bool replica =
        std::find(replicas.begin(), replicas.end(), number) != replicas.end();
    if (replica) {
      EXPECT_GT(cluster.counts(number).gets, 0) << number;
    } else {
      EXPECT_EQ(cluster.counts(number).gets, 0) << number;
    }
  }
}

TEST(ClientTest, FailsOverFromADeadNodeWithoutUnknownOutcomes) {
  FakeCluster cluster(3);
  const std::vector<int> replicas = cluster.Replicas("k");
  cluster.Kill(replicas[0]);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 0; i < 20; ++i) {
    absl::StatusOr<WriteResult> put = client->Put("k", absl::StrCat(i));
    ASSERT_TRUE(put.ok()) << put.status();
    ASSERT_TRUE(client->Get("k").ok());
  }
  EXPECT_EQ(client->stats().unknown, 0u);
  EXPECT_EQ(cluster.counts(replicas[1]).puts, 20);
}

TEST(ClientTest, ReturnsToANodeThatCameBack) {
  FakeCluster cluster(3);
  const std::vector<int> replicas = cluster.Replicas("k");
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  cluster.Kill(replicas[0]);
  ASSERT_TRUE(client->Put("k", "1").ok());
  cluster.Restart(replicas[0]);
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(client->Put("k", "2").ok());
    return cluster.counts(replicas[0]).puts > 0;
  }));
}

TEST(ClientTest, ReadWithOneFrozenNodeKeepsItsDeadline) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(client->Put("k", "v").ok());
  cluster.Configure(cluster.Replicas("k")[1],
                    [](FakeBehaviour& b) { b.frozen = true; });
  for (int i = 0; i < 100; ++i) {
    const Instant start = Now();
    absl::StatusOr<GetResult> got =
        client->Get("k", {.deadline = absl::Milliseconds(400)});
    ASSERT_TRUE(got.ok()) << i << ": " << got.status();
    EXPECT_LT(Now() - start, absl::Milliseconds(600));
  }
  EXPECT_GT(client->stats().hedges, 0u);
  // It is suspected soon, and no longer asked first each time.
  EXPECT_LT(cluster.counts(cluster.Replicas("k")[1]).gets, 10);
}

TEST(ClientTest, WriteWithContextWithOneFrozenNodeKeepsItsDeadline) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  absl::StatusOr<WriteResult> put = client->Put("k", "v");
  ASSERT_TRUE(put.ok());
  cluster.Configure(cluster.Replicas("k")[0],
                    [](FakeBehaviour& b) { b.frozen = true; });
  put = client->Put(
      "k", "w", {.deadline = absl::Milliseconds(400), .context = put->context});
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(cluster.counts(cluster.Replicas("k")[1]).writes_done, 1);
}

TEST(ClientTest, PlainPutToAFrozenNodeIsUnknownAtItsDeadline) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(client->Put("k", "v").ok());
  const int home = cluster.Replicas("k")[0];
  cluster.Configure(home, [](FakeBehaviour& b) { b.frozen = true; });
  const Instant start = Now();
  absl::StatusOr<WriteResult> put =
      client->Put("k", "w", {.deadline = absl::Milliseconds(200)});
  EXPECT_TRUE(IsOutcomeUnknown(put.status())) << put.status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(put.status()));
  EXPECT_LT(Now() - start, absl::Milliseconds(400));
  // The next one avoids the node.
  put = client->Put("k", "w", {.deadline = absl::Milliseconds(200)});
  EXPECT_TRUE(put.ok()) << put.status();
  cluster.Configure(home, [](FakeBehaviour& b) { b.frozen = false; });
}

TEST(ClientTest, PlainPutIsRepeatedToTheSameRunWithItsIdAndAge) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster, WithoutHedges());
  ASSERT_TRUE(client.ok()) << client.status();
  const int home = cluster.Replicas("k")[0];
  cluster.Configure(home, [](FakeBehaviour& b) {
    b.fail_after_write = kUnavailable;
    b.times = 1;
  });
  absl::StatusOr<WriteResult> put = client->Put("k", "v");
  ASSERT_TRUE(put.ok()) << put.status();
  const FakeCounts counts = cluster.counts(home);
  EXPECT_EQ(counts.puts, 2);
  EXPECT_EQ(counts.writes_done, 1);
  EXPECT_EQ(counts.repeats_known, 1);
  ASSERT_EQ(counts.request_ids.size(), 2u);
  EXPECT_EQ(counts.request_ids[0], counts.request_ids[1]);
  EXPECT_EQ(counts.request_ids[0].size(), 16u);
  EXPECT_EQ(counts.repeat_ages_ms.size(), 1u);
  EXPECT_EQ(cluster.total(&FakeCounts::puts), 2);
}

TEST(ClientTest, PlainPutIsNotRepeatedToAnotherRun) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(client->Put("k", "v").ok());
  const int home = cluster.Replicas("k")[0];
  cluster.Configure(home, [](FakeBehaviour& b) { b.frozen = true; });
  std::promise<absl::Status> ended;
  client->PutAsync("k", "w", {}, [&ended](absl::StatusOr<WriteResult> put) {
    ended.set_value(put.status());
  });
  ASSERT_TRUE(Eventually([&] { return cluster.counts(home).puts == 2; }));
  cluster.Kill(home);
  cluster.Configure(home, [](FakeBehaviour& b) { b.frozen = false; });
  cluster.Restart(home);
  const absl::Status status = ended.get_future().get();
  EXPECT_TRUE(IsOutcomeUnknown(status)) << status;
  EXPECT_EQ(cluster.total(&FakeCounts::writes_done), 1);
}

TEST(ClientTest, QuorumFailureOfAPutIsUnknownNotFailed) {
  FakeCluster cluster(3);
  ClientOptions options;
  options.tries_max = 2;
  absl::StatusOr<Client> client = ConnectTo(cluster, options);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(i, [](FakeBehaviour& b) { b.refuse = kUnavailable; });
  }
  absl::StatusOr<WriteResult> put = client->Put("k", "v");
  EXPECT_TRUE(absl::IsUnavailable(put.status()));
  EXPECT_TRUE(IsOutcomeUnknown(put.status()));
  EXPECT_THAT(put.status().ToString(), HasSubstr("required 2, received 1"));
  absl::StatusOr<GetResult> got = client->Get("k");
  EXPECT_TRUE(absl::IsUnavailable(got.status()));
  EXPECT_FALSE(IsOutcomeUnknown(got.status()));
}

TEST(ClientTest, RefusalBeforeAnythingWasDoneMovesAPlainPutToTheNextNode) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  cluster.Configure(cluster.Replicas("k")[0], [](FakeBehaviour& b) {
    b.refuse = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                            "this node is shutting down; nothing was done");
  });
  absl::StatusOr<WriteResult> put = client->Put("k", "v");
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(cluster.counts(cluster.Replicas("k")[1]).writes_done, 1);
}

TEST(ClientTest, ADrainingNodeIsLeftAloneThoughItAnswers) {
  FakeCluster cluster(3);
  // The client may watch the ring at the very node that drains.
  cluster.SetAlive(2, false);
  absl::StatusOr<Client> client = Client::Connect(cluster.node(2).address());
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(client->Put(absl::StrCat("k", i), "v").ok());
    ASSERT_TRUE(client->Get(absl::StrCat("k", i)).ok());
  }
  EXPECT_EQ(cluster.counts(2).puts + cluster.counts(2).gets, 0);
}

TEST(ClientTest, ANodeThatRefusesCostsOneTryNotOneForEachCall) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster, WithoutHedges());
  ASSERT_TRUE(client.ok()) << client.status();
  cluster.SetAlive(1, false);
  cluster.Configure(1, [](FakeBehaviour& b) {
    b.refuse = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                            "this node is shutting down; nothing was done");
  });
  for (int i = 0; i < 300; ++i) {
    absl::StatusOr<WriteResult> put = client->Put(absl::StrCat("k", i), "v");
    ASSERT_TRUE(put.ok()) << i << ": " << put.status();
  }
  EXPECT_LE(cluster.counts(1).puts, 3);
}

TEST(ClientTest, DefiniteErrorsAreNotRepeated) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster, WithoutHedges());
  ASSERT_TRUE(client.ok()) << client.status();
  absl::StatusOr<WriteResult> put = client->Put("", "v");
  EXPECT_TRUE(absl::IsInvalidArgument(put.status()));
  EXPECT_FALSE(IsOutcomeUnknown(put.status()));
  EXPECT_EQ(cluster.total(&FakeCounts::puts), 1);
  absl::StatusOr<GetResult> got = client->Get("k", {.keyspace = "nowhere"});
  EXPECT_TRUE(absl::IsNotFound(got.status()));
  EXPECT_EQ(cluster.total(&FakeCounts::gets), 1);
}

TEST(ClientTest, OverloadIsWaitedOutAndASizeOverTheLimitIsFinal) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster, WithoutHedges());
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(i, [](FakeBehaviour& b) {
      b.refuse = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                              "busy; nothing was done");
      b.retry_after_ms = 5;
      b.times = 1;
    });
  }
  EXPECT_TRUE(client->Put("k", "v").ok());
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(i, [](FakeBehaviour& b) {
      b.refuse = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "large");
      b.times = -1;
    });
  }
  const int before = cluster.total(&FakeCounts::gets);
  EXPECT_TRUE(absl::IsResourceExhausted(client->Get("k").status()));
  EXPECT_EQ(cluster.total(&FakeCounts::gets), before + 1);
}

TEST(ClientTest, RetryBudgetBoundsTheTriesOfAFailingCluster) {
  FakeCluster cluster(3);
  ClientOptions options = WithoutHedges();
  options.retry_budget_ratio = 0.1;
  options.retry_budget_burst = 10;
  options.backoff_base = absl::Microseconds(10);
  absl::StatusOr<Client> client = ConnectTo(cluster, options);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(i, [](FakeBehaviour& b) { b.refuse = kUnavailable; });
  }
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(client->Get("k").ok());
  // 200 calls, a burst of 10, and a tenth of the calls.
  EXPECT_LE(cluster.total(&FakeCounts::gets), 200 + 10 + 20);
  EXPECT_GE(cluster.total(&FakeCounts::gets), 200 + 10);
  EXPECT_GT(client->stats().budget_refusals, 0u);
}

TEST(ClientTest, PutWithContextIsRepeatedAtAnotherNode) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  absl::StatusOr<WriteResult> put = client->Put("k", "v");
  ASSERT_TRUE(put.ok());
  cluster.Configure(cluster.Replicas("k")[0], [](FakeBehaviour& b) {
    b.fail_after_write = kUnavailable;
  });
  put = client->Put("k", "w", {.context = put->context});
  ASSERT_TRUE(put.ok()) << put.status();
  absl::StatusOr<GetResult> got = client->Get("k");
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got->siblings.size(), 1u);  // an equal sibling shows once
  EXPECT_EQ(got->value(), "w");
}

TEST(ClientTest, PutWithContextInLwwKeyspaceStaysWithItsCoordinator) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster, WithoutHedges());
  ASSERT_TRUE(client.ok()) << client.status();
  absl::StatusOr<WriteResult> put = client->Put("k", "v", {.keyspace = "last"});
  ASSERT_TRUE(put.ok()) << put.status();
  int home = 0;
  for (int i = 1; i <= 3; ++i) {
    if (cluster.counts(i).puts > 0) home = i;
  }
  cluster.Configure(home, [](FakeBehaviour& b) {
    b.fail_after_write = kUnavailable;
    b.times = 1;
  });
  put = client->Put("k", "w", {.keyspace = "last", .context = put->context});
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(cluster.total(&FakeCounts::writes_done), 2);
  EXPECT_EQ(cluster.counts(home).repeats_known, 1);
}

// --- the ring ---

TEST(ClientTest, FollowsTheRingThroughTheWatch) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  cluster.ChangeRing([](RingSpec& spec) {});
  EXPECT_TRUE(Eventually([&] { return client->stats().ring_epoch == 2; }));
}

TEST(ClientTest, MovesTheWatchWhenItsNodeDies) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  int watched = 0;
  for (int i = 1; i <= 3; ++i) {
    if (cluster.counts(i).watches > 0) watched = i;
  }
  cluster.Kill(watched);
  cluster.ChangeRing([](RingSpec& spec) {});
  EXPECT_TRUE(Eventually([&] { return client->stats().ring_epoch == 2; }));
}

TEST(ClientTest, AnswerWithANewerEpochRefreshesTheRingAtOnce) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  // Watch streams bring only what cannot be used, until an answer asks.
  cluster.MangleRings(
      [](v1::RingSnapshot& ring) { ring.mutable_owners()->Clear(); });
  cluster.ChangeRing([](RingSpec& spec) {});
  ASSERT_TRUE(Eventually([&] { return client->stats().ring_rejects > 0; }));
  EXPECT_EQ(client->stats().ring_epoch, 1u);
  EXPECT_TRUE(client->Put("k", "v").ok());  // the old ring serves on
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(i, [](FakeBehaviour& b) { b.refuse_watch = true; });
  }
  cluster.MangleRings(nullptr);
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(i, [](FakeBehaviour& b) { b.refuse_watch = false; });
  }
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(client->Get("k").ok());
    return client->stats().ring_epoch == 2;
  }));
}

TEST(ClientTest, UnusableRingIsReportedNotSwallowed) {
  FakeCluster cluster(3);
  Mutex mutex;
  std::vector<std::string> warnings;
  ClientOptions options;
  options.on_warning = [&](const std::string& line) {
    MutexLock lock(mutex);
    warnings.push_back(line);
  };
  absl::StatusOr<Client> client = ConnectTo(cluster, options);
  ASSERT_TRUE(client.ok()) << client.status();
  cluster.MangleRings([](v1::RingSnapshot& ring) {
    *ring.add_members() = ring.members(0);  // one member twice
  });
  cluster.ChangeRing([](RingSpec& spec) {});
  ASSERT_TRUE(Eventually([&] { return client->stats().ring_rejects > 0; }));
  MutexLock lock(mutex);
  ASSERT_FALSE(warnings.empty());
  EXPECT_THAT(warnings[0], HasSubstr("epoch 2"));
}

TEST(ClientTest, NewMemberGetsCallsAndRemovedOneDoesNot) {
  FakeCluster cluster(4);
  // Node 4 owns nothing yet.
  cluster.ChangeRing([](RingSpec& spec) {
    for (size_t i = 0; i < spec.owners.size(); ++i) {
      spec.owners[i] = NodeNumber{static_cast<uint32_t>(i % 3 + 1)};
    }
    spec.members.pop_back();
  });
  absl::StatusOr<Client> client = ConnectTo(cluster, WithoutHedges());
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->stats().nodes, 3);
  const std::string address = cluster.node(4).address();
  cluster.ChangeRing([&address](RingSpec& spec) {
    spec.members.erase(spec.members.begin());
    Member member = spec.members.front();
    member.number = NodeNumber{4};
    member.id = {9, 9};
    member.name = "n4";
    member.client_address = address;
    member.location.host = "h9";
    spec.members.push_back(member);
    for (NodeNumber& owner : spec.owners) {
      if (owner == NodeNumber{1}) owner = NodeNumber{4};
    }
    spec.departed.push_back(NodeNumber{1});
  });
  ASSERT_TRUE(Eventually([&] { return client->stats().ring_epoch == 3; }));
  const int before = cluster.counts(1).puts;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(client->Put(absl::StrCat("k", i), "v").ok());
  }
  EXPECT_GT(cluster.counts(4).puts, 0);
  EXPECT_EQ(cluster.counts(1).puts, before);
}

// --- connecting ---

TEST(ClientTest, ConnectsThroughAnyEndpointThatAnswers) {
  FakeCluster cluster(3);
  cluster.Kill(1);
  cluster.Configure(2, [](FakeBehaviour& b) { b.frozen = true; });
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->stats().nodes, 3);
}

TEST(ClientTest, ConnectsInTimeThoughMostEndpointsAreFrozen) {
  FakeCluster cluster(4);
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(i, [](FakeBehaviour& b) { b.frozen = true; });
  }
  for (int round = 0; round < 5; ++round) {
    ClientOptions options;
    options.connect_timeout = absl::Milliseconds(600);
    absl::StatusOr<Client> client = ConnectTo(cluster, options);
    ASSERT_TRUE(client.ok()) << client.status();
  }
}

TEST(ClientTest, ConnectNamesEachEndpointThatDidNotAnswer) {
  FakeCluster cluster(2);
  cluster.Kill(1);
  cluster.Kill(2);
  ClientOptions options;
  options.connect_timeout = absl::Milliseconds(300);
  absl::StatusOr<Client> client = ConnectTo(cluster, options);
  ASSERT_TRUE(absl::IsUnavailable(client.status())) << client.status();
  EXPECT_THAT(client.status().ToString(), HasSubstr(cluster.node(1).address()));
  EXPECT_THAT(client.status().ToString(), HasSubstr(cluster.node(2).address()));
}

TEST(ClientTest, ConnectSaysWhenNoClusterWasFormed) {
  FakeCluster cluster(2, /*formed=*/false);
  ClientOptions options;
  options.connect_timeout = absl::Milliseconds(300);
  absl::StatusOr<Client> client = ConnectTo(cluster, options);
  EXPECT_TRUE(absl::IsFailedPrecondition(client.status())) << client.status();
  EXPECT_THAT(client.status().ToString(), HasSubstr("kvctl init"));
}

TEST(ClientTest, ConnectRefusesMalformedOptions) {
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Client::Connect("host:99999").status()));
  ClientOptions options;
  options.retry_budget_ratio = 1.5;
  EXPECT_THAT(Client::Connect(options).status().ToString(),
              HasSubstr("retry_budget_ratio is 1.5"));
}

TEST(ClientTest, WholeClusterDownForAMomentIsWaitedOut) {
  FakeCluster cluster(2);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(client->Put("k", "v").ok());
  cluster.Kill(1);
  cluster.Kill(2);
  std::promise<absl::Status> ended;
  client->GetAsync("k", {}, [&ended](absl::StatusOr<GetResult> got) {
    ended.set_value(got.status());
  });
  cluster.Restart(1);
  cluster.Restart(2);
  const absl::Status status = ended.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ClientTest, DestructionEndsCallsInFlight) {
  FakeCluster cluster(3);
  std::promise<absl::Status> ended;
  {
    absl::StatusOr<Client> client = ConnectTo(cluster);
    ASSERT_TRUE(client.ok()) << client.status();
    for (int i = 1; i <= 3; ++i) {
      cluster.Configure(i, [](FakeBehaviour& b) { b.frozen = true; });
    }
    client->PutAsync("k", "v", {}, [&ended](absl::StatusOr<WriteResult> put) {
      ended.set_value(put.status());
    });
    ASSERT_TRUE(
        Eventually([&] { return cluster.total(&FakeCounts::puts) == 1; }));
  }
  const absl::Status status = ended.get_future().get();
  EXPECT_TRUE(absl::IsCancelled(status));
  EXPECT_TRUE(IsOutcomeUnknown(status));
}

TEST(ClientTest, BlockingCallFromACallbackIsRefusedNotDeadlocked) {
  FakeCluster cluster(1);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  std::promise<absl::Status> ended;
  client->GetAsync("k", {}, [&](absl::StatusOr<GetResult>) {
    ended.set_value(client->Get("k").status());
  });
  EXPECT_TRUE(absl::IsFailedPrecondition(ended.get_future().get()));
}

// --- batches and scans ---

TEST(ClientTest, BatchAnswersInOrderWithOneResultForEach) {
  FakeCluster cluster(5);
  absl::StatusOr<Client> client = ConnectTo(cluster, WithoutHedges());
  ASSERT_TRUE(client.ok()) << client.status();
  std::vector<BatchOperation> puts;
  for (int i = 0; i < 500; ++i) {
    puts.push_back(BatchPut{absl::StrCat("k", i), absl::StrCat("v", i), {}});
  }
  puts.push_back(BatchPut{"", "no key", {}});
  absl::StatusOr<std::vector<BatchResult>> results = client->Batch(puts);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 501u);
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE((*results)[static_cast<size_t>(i)].status.ok());
  }
  EXPECT_TRUE(absl::IsInvalidArgument(results->back().status));
  std::vector<BatchOperation> gets;
  for (int i = 499; i >= 0; --i)
    gets.push_back(BatchGet{absl::StrCat("k", i), {}});
  results = client->Batch(gets);
  ASSERT_TRUE(results.ok());
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ((*results)[static_cast<size_t>(i)].got.value(),
              absl::StrCat("v", 499 - i));
  }
  EXPECT_LE(cluster.total(&FakeCounts::batches), 30);
}

TEST(ClientTest, BatchOfReadsSurvivesAFrozenAndADeadNode) {
  FakeCluster cluster(5);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  std::vector<BatchOperation> gets;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client->Put(absl::StrCat("k", i), "v").ok());
    gets.push_back(BatchGet{absl::StrCat("k", i), {}});
  }
  cluster.Configure(1, [](FakeBehaviour& b) { b.frozen = true; });
  cluster.Kill(2);
  absl::StatusOr<std::vector<BatchResult>> results =
      client->Batch(gets, {.deadline = absl::Seconds(2)});
  ASSERT_TRUE(results.ok()) << results.status();
  for (const BatchResult& result : *results) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.got.value(), "v");
  }
}

TEST(ClientTest, BatchOfPlainPutsCutOffByACrashIsUnknown) {
  FakeCluster cluster(1);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  cluster.Configure(1, [](FakeBehaviour& b) { b.frozen = true; });
  std::promise<absl::StatusOr<std::vector<BatchResult>>> ended;
  client->BatchAsync({BatchPut{"a", "1", {}}, BatchGet{"a", {}}},
                     {.deadline = absl::Seconds(5)},
                     [&](absl::StatusOr<std::vector<BatchResult>> results) {
                       ended.set_value(std::move(results));
                     });
  ASSERT_TRUE(Eventually([&] { return cluster.counts(1).batches == 1; }));
  cluster.Kill(1);
  cluster.Configure(1, [](FakeBehaviour& b) { b.frozen = false; });
  cluster.Restart(1);
  absl::StatusOr<std::vector<BatchResult>> results = ended.get_future().get();
  ASSERT_TRUE(results.ok());
  EXPECT_TRUE(IsOutcomeUnknown((*results)[0].status)) << (*results)[0].status;
  EXPECT_TRUE((*results)[1].status.ok()) << (*results)[1].status;
}

TEST(ClientTest, ScanVisitsEveryEntryOnceAndResumes) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 0; i < 100; ++i) {
    cluster.PutDirectly(absl::StrCat("k", i), absl::StrCat("v", i));
  }
  std::set<std::string> seen;
  const auto visit = [&seen](const ScannedEntry& entry) {
    EXPECT_TRUE(seen.insert(entry.key).second);
    return true;
  };
  absl::StatusOr<ScanEnd> end = client->Scan({}, visit);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->entries, 100u);
  EXPECT_EQ(end->cursor, "");
  seen.clear();
  end = client->Scan({.limit = 30}, visit);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->entries, 30u);
  ASSERT_NE(end->cursor, "");
  end = client->Scan({.cursor = end->cursor}, visit);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(seen.size(), 100u);
}

TEST(ClientTest, ScanGoesOnAtAnotherNode) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 0; i < 50; ++i) cluster.PutDirectly(absl::StrCat("k", i), "v");
  cluster.Configure(1, [](FakeBehaviour& b) { b.refuse = kUnavailable; });
  cluster.Configure(2, [](FakeBehaviour& b) { b.frozen = true; });
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<ScanEnd> end =
        client->Scan({}, [](const ScannedEntry&) { return true; });
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->entries, 50u);
  }
}

// --- update ---

std::optional<std::string> Union(const std::vector<std::string>& siblings,
                                 const std::string& added) {
  std::set<char> all(added.begin(), added.end());
  for (const std::string& sibling : siblings) {
    all.insert(sibling.begin(), sibling.end());
  }
  return std::string(all.begin(), all.end());
}

TEST(ClientTest, UpdateMergesSiblingsAndWritesWithTheirContext) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  cluster.PutDirectly("k", "a");
  cluster.PutDirectly("k", "b");
  absl::StatusOr<UpdateResult> updated =
      client->Update("k", [](const std::vector<std::string>& siblings) {
        EXPECT_EQ(siblings.size(), 2u);
        return Union(siblings, "c");
      });
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->value, "abc");
  EXPECT_EQ(updated->rounds, 1);
  absl::StatusOr<GetResult> got = client->Get("k");
  ASSERT_EQ(got->siblings.size(), 1u);
  EXPECT_EQ(got->value(), "abc");
}

TEST(ClientTest, UpdateOfAMissingKeyKeepsAConcurrentWriter) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  bool first = true;
  absl::StatusOr<UpdateResult> updated =
      client->Update("k", [&](const std::vector<std::string>& siblings) {
        // Between the read and the write somebody else writes.
        if (std::exchange(first, false)) cluster.PutDirectly("k", "x");
        return Union(siblings, "c");
      });
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ(updated->value, "cx");
  EXPECT_EQ(updated->rounds, 2);
  EXPECT_EQ(client->Get("k")->value(), "cx");
}

TEST(ClientTest, UpdateDeletesOnNullopt) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  const auto remove = [](const std::vector<std::string>&) {
    return std::optional<std::string>();
  };
  ASSERT_TRUE(client->Update("k", remove).ok());
  EXPECT_EQ(cluster.total(&FakeCounts::deletes), 0);
  cluster.PutDirectly("k", "a");
  absl::StatusOr<UpdateResult> updated = client->Update("k", remove);
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_FALSE(updated->value.has_value());
  EXPECT_FALSE(client->Get("k")->found());
}

TEST(ClientTest, UpdateResolvesAnUnknownOutcome) {
  FakeCluster cluster(3);
  ClientOptions options;
  options.tries_max = 1;  // every failure reaches Update
  absl::StatusOr<Client> client = ConnectTo(cluster, options);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(i, [](FakeBehaviour& b) {
      b.fail_after_write = kUnavailable;
      b.times = 1;
    });
  }
  absl::StatusOr<UpdateResult> updated =
      client->Update("k", [](const std::vector<std::string>& siblings) {
        return Union(siblings, "c");
      });
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_GT(updated->rounds, 1);
  absl::StatusOr<GetResult> got = client->Get("k");
  ASSERT_EQ(got->siblings.size(), 1u);
  EXPECT_EQ(got->value(), "c");
}

TEST(ClientTest, UpdateThatNeverEndsIsUnknownAtItsDeadline) {
  FakeCluster cluster(3);
  ClientOptions options;
  options.tries_max = 1;
  absl::StatusOr<Client> client = ConnectTo(cluster, options);
  ASSERT_TRUE(client.ok()) << client.status();
  for (int i = 1; i <= 3; ++i) {
    cluster.Configure(
        i, [](FakeBehaviour& b) { b.fail_after_write = kUnavailable; });
  }
  absl::StatusOr<UpdateResult> updated =
      client->Update("k",
                     [](const std::vector<std::string>& siblings) {
                       return Union(siblings, "c");
                     },
                     {.deadline = absl::Milliseconds(300)});
  EXPECT_TRUE(IsOutcomeUnknown(updated.status())) << updated.status();
}

TEST(ClientTest, ResolveWritesTheValueAgainWithAContext) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  cluster.PutDirectly("k", "old");
  std::promise<absl::Status> ended;
  client->ResolveAsync("k", "new", {}, [&](absl::StatusOr<WriteResult> put) {
    ended.set_value(put.status());
  });
  EXPECT_TRUE(ended.get_future().get().ok());
  absl::StatusOr<GetResult> got = client->Get("k");
  ASSERT_EQ(got->siblings.size(), 1u);
  EXPECT_EQ(got->value(), "new");
}

TEST(ClientTest, ConcurrentUpdatesLoseNothing) {
  FakeCluster cluster(3);
  absl::StatusOr<Client> client = ConnectTo(cluster);
  ASSERT_TRUE(client.ok()) << client.status();
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'i'; ++c) {
    writers.emplace_back([&client, c] {
      absl::StatusOr<UpdateResult> updated =
          client->Update("k",
                         [c](const std::vector<std::string>& siblings) {
                           return Union(siblings, std::string(1, c));
                         },
                         {.deadline = absl::Seconds(30)});
      EXPECT_TRUE(updated.ok()) << updated.status();
    });
  }
  for (std::thread& writer : writers) writer.join();
  absl::StatusOr<GetResult> got = client->Get("k");
  ASSERT_TRUE(got.ok());
  std::vector<std::string> values;
  for (const SiblingValue& sibling : got->siblings) {
    values.push_back(sibling.value);
  }
  EXPECT_EQ(Union(values, ""), "abcdefgh");
}

}  // namespace
}  // namespace ringkv
