#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/clocks.h"
#include "tests/sim/network.h"
#include "tests/sim/plan.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/trace.h"

namespace ringkv::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void RunAll(Scheduler& scheduler, WorldTime until) {
  while (scheduler.RunNext(until)) {
  }
}

TEST(SchedulerTest, RunsByTimeAndThenInTheOrderOfAdding) {
  Scheduler scheduler;
  std::vector<int> order;
  scheduler.At(20, [&] { order.push_back(3); });
  scheduler.At(10, [&] {
    order.push_back(1);
    scheduler.At(5, [&] { order.push_back(2); });  // past: now
  });
  scheduler.At(20, [&] { order.push_back(4); });
  scheduler.At(31, [&] { order.push_back(5); });
  RunAll(scheduler, 30);
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(scheduler.now(), 30);
}

TEST(NodeClocksTest, WorldOfIsTheFirstTimeThatShowsTheInstant) {
  for (const int64_t rate : {-1000, 0, 1, 999, 100000}) {
    const NodeClocks clocks(5 * kSecond, rate, 0);
    for (const WorldTime world : {0l, 1l, 999l, 123456789l, 90000000000l}) {
      const Instant instant = clocks.At(world).now;
      const WorldTime found = clocks.WorldOf(instant);
      EXPECT_GE(clocks.At(found).now, instant);
      if (found > 0) {
        EXPECT_LT(clocks.At(found - 1).now, instant);
      }
    }
    EXPECT_EQ(clocks.WorldOf(Instant::Infinite()), kForever);
    EXPECT_EQ(clocks.WorldOf(Instant{0}), 0);
  }
}

TEST(NodeClocksTest, OnlyTheCalendarSteps) {
  NodeClocks clocks(0, 0, 1000);
  const Time before = clocks.At(kSecond);
  clocks.StepWall(-5000000);
  EXPECT_EQ(clocks.At(kSecond).now, before.now);
  EXPECT_EQ(clocks.At(kSecond).wall.micros, before.wall.micros - 5000000);
  EXPECT_EQ(clocks.WallErrorMicros(0), 1000 - 5000000);
}

class NetworkTest : public ::testing::Test {
 protected:
  void Make(NetworkPlan plan) {
    network_ = std::make_unique<Network>(scheduler_, trace_, plan, 3,
                                         RandomFor(7, Purpose::kNetwork));
    link_ = network_->Connect(
        {0, 1}, {1, 1}, [this] { closed_[0] = true; },
        [this] { closed_[1] = true; });
  }
  void Send(int count) {
    for (int i = 0; i < count; ++i) {
      network_->Send(link_, 0, true, 10, [this, i] { arrived_.push_back(i); });
    }
  }

  Scheduler scheduler_;
  Trace trace_{false, false};
  std::unique_ptr<Network> network_;
  Network::LinkNumber link_ = 0;
  std::vector<int> arrived_;
  bool closed_[2] = {false, false};
};

TEST_F(NetworkTest, StreamsKeepOrderAndWaitOutAPartition) {
  Make({.streams = true, .slow_share = 0.5});
  Send(20);
  network_->Block(0, 1);
  RunAll(scheduler_, 10 * kSecond);
  EXPECT_THAT(arrived_, IsEmpty());
  network_->Unblock(0, 1);
  RunAll(scheduler_, 20 * kSecond);
  std::vector<int> expected;
  for (int i = 0; i < 20; ++i) expected.push_back(i);
  EXPECT_EQ(arrived_, expected);
}

TEST_F(NetworkTest, LooseMessagesAreLostAndRepeated) {
  Make({.streams = false, .lost_share = 0.2, .duplicated_share = 0.3});
  Send(1000);
  RunAll(scheduler_, 10 * kSecond);
  std::vector<int> times(1000, 0);
  for (const int i : arrived_) ++times[static_cast<size_t>(i)];
  EXPECT_GT(std::count(times.begin(), times.end(), 0), 100);
  EXPECT_GT(std::count(times.begin(), times.end(), 2), 100);
  EXPECT_FALSE(std::is_sorted(arrived_.begin(), arrived_.end()));
}

TEST_F(NetworkTest, ADyingProcessResetsItsStreamsAndADyingMachineDoesNot) {
  Make({.streams = true});
  network_->Died({1, 1}, false);
  network_->SetPower(1, false);
  Send(1);
  RunAll(scheduler_, 10 * kSecond);
  EXPECT_FALSE(closed_[0]);
  EXPECT_THAT(arrived_, IsEmpty());
  network_->SetPower(1, true);
  Send(1);  // its new kernel knows no such connection
  RunAll(scheduler_, 20 * kSecond);
  EXPECT_TRUE(closed_[0]);

  Make({.streams = true});
  closed_[0] = false;
  network_->Died({1, 1}, true);
  RunAll(scheduler_, 30 * kSecond);
  EXPECT_TRUE(closed_[0]);
}

TEST_F(NetworkTest, NothingArrivesOnAClosedLink) {
  Make({.streams = false});
  Send(5);
  network_->Close(link_, 1);
  RunAll(scheduler_, 10 * kSecond);
  EXPECT_THAT(arrived_, IsEmpty());
  EXPECT_TRUE(closed_[0]);
  EXPECT_FALSE(closed_[1]);
}

TEST(PlanTest, SameSeedGivesTheSamePlanAndOthersDiffer) {
  EXPECT_EQ(PlanOf(5).ToString(), PlanOf(5).ToString());
  EXPECT_NE(PlanOf(5).ToString(), PlanOf(6).ToString());
}

TEST(PlanTest, PlansAreWithinBounds) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Plan plan = PlanOf(seed);
    const int nodes = static_cast<int>(plan.nodes.size());
    ASSERT_GE(nodes, 1);
    // Seven form the ring at most, and three stand by.
    ASSERT_LE(nodes - plan.topology.spares, 7);
    ASSERT_LE(plan.topology.spares, 3);
    EXPECT_TRUE(plan.topology.changes() || plan.topology.spares == 0);
    for (const WorldTime at : plan.topology.at) EXPECT_LT(at, plan.length);
    for (const Keyspace& keyspace : plan.keyspaces) {
      EXPECT_GE(keyspace.r, 1u);
      EXPECT_LE(keyspace.r, keyspace.n);
      EXPECT_GE(keyspace.w, 1u);
      EXPECT_LE(keyspace.w, keyspace.n);
    }
    for (const Fault& fault : plan.faults) {
      EXPECT_LT(fault.node, nodes);
      EXPECT_LT(fault.at, plan.length);
      EXPECT_EQ(fault.mask >> nodes, 0u);
    }
    EXPECT_GE(plan.workload.operations, 1000);
    EXPECT_GE(plan.length, 60 * kSecond);
  }
}

}  // namespace
}  // namespace ringkv::sim
