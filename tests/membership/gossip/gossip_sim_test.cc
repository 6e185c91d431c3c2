// The gossip machine at its design point: 100 nodes, failures known to all
// within 10 s at default settings, and no living node taken for dead, also when
// one message of twenty is lost.
//
// RINGKV_GOSSIP_SIM_HOURS=24 runs the test of false deaths for that many
// simulated hours (an hour takes about 20 s).

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/membership/gossip/gossip_network.h"

namespace ringkv {
namespace {

constexpr absl::Duration kDetectionMax = absl::Seconds(10);

GossipNetwork::Options Sized(int nodes, double loss = 0) {
  GossipNetwork::Options options;
  options.nodes = nodes;
  options.loss = loss;
  return options;
}

absl::Duration LongRun() {
  const char* const hours = std::getenv("RINGKV_GOSSIP_SIM_HOURS");
  return hours == nullptr ? absl::Minutes(10)
                          : absl::Hours(std::strtod(hours, nullptr));
}

TEST(GossipSimTest, NobodyIsFalselyTakenForDeadWhenOneMessageOfTwentyIsLost) {
  GossipNetwork network(1, Sized(100, 0.05));
  const absl::Duration span = LongRun();
  for (absl::Duration done; done < span; done += absl::Minutes(1)) {
    network.RunFor(absl::Minutes(1));
    ASSERT_EQ(network.false_deaths(), 0u)
        << "within " << absl::FormatDuration(done + absl::Minutes(1));
  }
  network.CheckInvariants();
  // The loss did reach the protocol.
  EXPECT_GT(network.suspicions(), 0u);
  std::cout << absl::FormatDuration(span)
            << " simulated: " << network.suspicions()
            << " suspicions held by single nodes, " << network.false_deaths()
            << " false deaths, " << network.events() << " events" << std::endl;
}

// Kills nodes one after another and returns how long each took to be dead for
// all others.
std::vector<absl::Duration> Detections(GossipNetwork& network, int nodes,
                                       int trials) {
  std::vector<absl::Duration> times;
  for (int trial = 0; trial < trials; ++trial) {
    const int victim = (trial * 37) % nodes;
    network.RunFor(absl::Milliseconds(2000 + 130 * (trial % 7)));
    network.Crash(victim);
    const auto time = network.TimeUntil(
        [&] { return network.AllSee(victim, Liveness::kDead); },
        absl::Minutes(1));
    times.push_back(time.value_or(absl::InfiniteDuration()));
    network.Restart(victim);
    EXPECT_TRUE(
        network.TimeUntil([&] { return network.AllAlive(); }, absl::Seconds(10))
            .has_value())
        << "trial " << trial;
  }
  std::sort(times.begin(), times.end());
  return times;
}

TEST(GossipSimTest, AFailureIsKnownToAllWithinTenSeconds) {
  for (const int nodes : {3, 10, 100}) {
    GossipNetwork network(2, Sized(nodes));
    const auto times = Detections(network, nodes, 40);
    EXPECT_LE(times.back(), kDetectionMax) << nodes << " nodes";
    EXPECT_EQ(network.false_deaths(), 0u);
    std::cout << nodes << " nodes: half of the failures known to all within "
              << absl::FormatDuration(times[times.size() / 2])
              << ", all within " << absl::FormatDuration(times.back())
              << std::endl;
  }
}

TEST(GossipSimTest, AFailureIsKnownWithinTenSecondsUnderLossToo) {
  GossipNetwork network(3, Sized(100, 0.05));
  const auto times = Detections(network, 100, 30);
  EXPECT_LE(times.back(), kDetectionMax);
  EXPECT_EQ(network.false_deaths(), 0u);
  std::cout << "5 % loss: half within "
            << absl::FormatDuration(times[times.size() / 2]) << ", all within "
            << absl::FormatDuration(times.back()) << std::endl;
}

TEST(GossipSimTest, TenNodesThatFailTogetherAreKnownToo) {
  GossipNetwork network(4, Sized(100, 0.02));
  network.RunFor(absl::Seconds(5));
  for (int i = 0; i < 10; ++i) network.Crash(i * 7);
  const auto time = network.TimeUntil(
      [&] {
        for (int i = 0; i < 10; ++i) {
          if (!network.AllSee(i * 7, Liveness::kDead)) return false;
        }
        return true;
      },
      absl::Minutes(1));
  ASSERT_TRUE(time.has_value());
  EXPECT_LE(*time, absl::Seconds(15));
  EXPECT_EQ(network.false_deaths(), 0u);
}

TEST(GossipSimTest, TrafficOfANodeDoesNotGrowWithTheCluster) {
  for (const int nodes : {10, 50, 100, 200}) {
    GossipNetwork network(5, Sized(nodes, 0.05));
    network.RunFor(absl::Seconds(30));  // everybody has met everybody
    std::vector<GossipNetwork::Traffic> before;
    for (int i = 0; i < nodes; ++i) before.push_back(network.traffic(i));
    const double seconds = 60;
    network.RunFor(absl::Seconds(seconds));
    double messages = 0;
    double updates = 0;
    for (int i = 0; i < nodes; ++i) {
      const GossipNetwork::Traffic& now = network.traffic(i);
      messages += static_cast<double>(now.messages - before[i].messages);
      updates += static_cast<double>(now.updates - before[i].updates);
      EXPECT_LE(now.updates_in_one, kGossipUpdatesMax);
      // Once in 15 to 30 s, and one answer for each of another's.
      EXPECT_LE(now.exchanges - before[i].exchanges, 20u);
    }
    messages /= nodes * seconds;
    updates /= nodes * seconds;
    std::cout << nodes << " nodes: " << messages << " messages and " << updates
              << " updates a second and node" << std::endl;
    // Two pings, two answers; and what the lost ones cost.
    EXPECT_LE(messages, 8) << nodes << " nodes";
    EXPECT_LE(updates, 8 * kGossipUpdatesMax) << nodes << " nodes";
  }
}

TEST(GossipSimTest, AOneWayCutBetweenTwoNodesKillsNobodyAndIsFound) {
  GossipNetwork network(6, Sized(20));
  network.RunFor(absl::Seconds(5));
  network.Cut(3, 8);
  ASSERT_TRUE(network
                  .TimeUntil([&] { return network.Member(3, 8).link_doubted; },
                             absl::Seconds(30))
                  .has_value());
  ASSERT_TRUE(network
                  .TimeUntil([&] { return network.Member(8, 3).link_doubted; },
                             absl::Seconds(30))
                  .has_value());
  network.RunFor(absl::Minutes(5));
  EXPECT_EQ(network.false_deaths(), 0u);
  EXPECT_TRUE(network.AllAlive());
  network.HealAll();
  EXPECT_TRUE(network
                  .TimeUntil(
                      [&] {
                        return !network.Member(3, 8).link_doubted &&
                               !network.Member(8, 3).link_doubted;
                      },
                      absl::Seconds(30))
                  .has_value());
}

TEST(GossipSimTest, ANodeThatHearsNothingIsDeadUntilItHearsAgain) {
  GossipNetwork network(7, Sized(100));
  network.RunFor(absl::Seconds(5));
  for (int i = 0; i < 100; ++i) {
    if (i != 42) network.Cut(i, 42);
  }
  ASSERT_TRUE(
      network
          .TimeUntil([&] { return network.AllSee(42, Liveness::kDead); },
                     kDetectionMax)
          .has_value());
  // It hears nobody, accuses everybody, and is told to be wrong: nobody else
  // is dead for the rest.
  network.RunFor(absl::Seconds(40));
  for (int i = 0; i < 100; ++i) {
    if (i == 42) continue;
    for (int j = 0; j < 100; ++j) {
      if (j == 42 || j == i) continue;
      ASSERT_NE(network.Seen(i, j), Liveness::kDead) << i << " of " << j;
    }
  }
  network.HealAll();
  network.Reconnect(42);
  EXPECT_TRUE(
      network.TimeUntil([&] { return network.AllAlive(); }, absl::Seconds(20))
          .has_value());
}

TEST(GossipSimTest, AFrozenNodeAccusesNobodyWhenItWakes) {
  GossipNetwork network(8, Sized(100, 0.02));
  network.RunFor(absl::Seconds(5));
  network.Freeze(13);
  ASSERT_TRUE(
      network
          .TimeUntil([&] { return network.AllSee(13, Liveness::kDead); },
                     kDetectionMax)
          .has_value());
  network.RunFor(absl::Seconds(30));
  const uint64_t deaths = network.false_deaths();
  network.Thaw(13);
  EXPECT_TRUE(
      network.TimeUntil([&] { return network.AllAlive(); }, absl::Seconds(20))
          .has_value());
  EXPECT_EQ(network.false_deaths(), deaths);
  EXPECT_EQ(network.gossip(13).counters().deaths, 0u);
}

TEST(GossipSimTest, TwoHalvesMeetAgain) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    GossipNetwork network(100 + seed, Sized(30));
    network.RunFor(absl::Seconds(5));
    for (int i = 0; i < 10; ++i) {
      for (int j = 10; j < 30; ++j) {
        network.Cut(i, j);
        network.Cut(j, i);
      }
    }
    network.RunFor(absl::Minutes(2));
    EXPECT_EQ(network.Seen(0, 20), Liveness::kDead);
    EXPECT_EQ(network.Seen(20, 0), Liveness::kDead);
    EXPECT_EQ(network.Seen(0, 1), Liveness::kAlive);
    network.HealAll();
    for (int i = 0; i < 10; ++i) network.Reconnect(i, absl::Seconds(2));
    EXPECT_TRUE(
        network.TimeUntil([&] { return network.AllAlive(); }, absl::Seconds(20))
            .has_value())
        << "seed " << seed;
    // What the smaller side thought of the others has not spread.
    for (int i = 10; i < 30; ++i) {
      for (int j = 10; j < 30; ++j) {
        if (i == j) continue;
        EXPECT_EQ(network.Member(i, j).flaps, 0u) << i << " of " << j;
      }
    }
    network.CheckInvariants();
  }
}

TEST(GossipSimTest, TheSameSeedGivesTheSameRun) {
  const auto run = [](uint64_t seed) {
    GossipNetwork network(seed, Sized(30, 0.1));
    network.RunFor(absl::Seconds(20));
    network.Crash(3);
    network.RunFor(absl::Seconds(20));
    network.Restart(3);
    network.RunFor(absl::Seconds(20));
    return network.hash();
  };
  EXPECT_EQ(run(9), run(9));
  EXPECT_NE(run(9), run(10));
}

}  // namespace
}  // namespace ringkv
