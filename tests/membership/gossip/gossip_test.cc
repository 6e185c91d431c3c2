#include "membership/gossip/gossip.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

NodeId Id(uint64_t n) { return NodeId{7, n}; }
const NodeId kSelf = Id(100);

NodeProfile Profile(uint64_t n, uint64_t serial = 1) {
  NodeProfile profile;
  profile.serial = serial;
  profile.name = absl::StrCat("n", n);
  profile.peer_address = absl::StrCat("n", n, ":7800");
  return profile;
}

GossipUpdate Alive(uint64_t n, uint64_t incarnation, uint64_t refutations,
                   uint64_t serial = 1) {
  return {Id(n),
          {incarnation, refutations},
          Liveness::kAlive,
          NodeId(),
          Profile(n, serial)};
}
GossipUpdate Claim(uint64_t n, Liveness state, uint64_t incarnation,
                   uint64_t refutations, uint64_t accuser) {
  return {Id(n), {incarnation, refutations}, state, Id(accuser), {}};
}

// One machine that has met nodes 1 to `peers`, each of incarnation 1, at t = 0.
class GossipTest : public ::testing::Test {
 protected:
  void Start(int peers) {
    gossip_.emplace(options_, kSelf, 5, random_);
    gossip_->SetSelf(Profile(100));
    for (int i = 1; i <= peers; ++i) {
      gossip_->Met(Id(i), 1, Profile(i), now_, effects_);
    }
    effects_ = {};
  }

  // Ticks whenever it wants to until `end`.
  void RunUntil(Instant end) {
    while (gossip_->NextTimer() <= end) {
      now_ = gossip_->NextTimer();
      gossip_->Tick(now_, effects_);
      gossip_->CheckInvariants();
      if (answers_) AnswerAll();
    }
    now_ = end;
  }
  void RunFor(absl::Duration span) { RunUntil(now_ + span); }
  // Every peer but those in `mute_` answers pings at once.
  void AnswerAll() {
    for (; answered_ < effects_.messages.size(); ++answered_) {
      const GossipOut out = effects_.messages[answered_];
      const auto* const ping = std::get_if<GossipPing>(&out.message);
      if (ping == nullptr || mute_.count(out.to) > 0) continue;
      gossip_->Receive(
          out.to, GossipAck{ping->sequence, out.to, {Alive(out.to.low, 1, 0)}},
          now_, effects_);
    }
  }
  void Receive(uint64_t from, GossipMessage message) {
    gossip_->Receive(Id(from), message, now_, effects_);
    gossip_->CheckInvariants();
  }
  void Tell(uint64_t from, GossipUpdate update) {
    Receive(from, GossipPing{999, {Alive(from, 1, 0), std::move(update)}});
  }

  template <class Message>
  std::vector<std::pair<NodeId, Message>> Sent() const {
    std::vector<std::pair<NodeId, Message>> sent;
    for (const GossipOut& out : effects_.messages) {
      if (const auto* message = std::get_if<Message>(&out.message)) {
        sent.push_back({out.to, *message});
      }
    }
    return sent;
  }
  template <class Event>
  std::vector<Event> Events() const {
    std::vector<Event> events;
    for (const GossipEvent& event : effects_.events) {
      if (const auto* body = std::get_if<Event>(&event)) {
        events.push_back(*body);
      }
    }
    return events;
  }
  Liveness StateOf(uint64_t n) const { return gossip_->Find(Id(n))->state; }

  GossipOptions options_;
  SeededRandom random_{1};
  std::optional<Gossip> gossip_;
  Instant now_{1};
  GossipEffects effects_;
  bool answers_ = false;
  size_t answered_ = 0;
  std::set<NodeId> mute_;
};

TEST_F(GossipTest, ProbesEveryMemberOncePerRound) {
  Start(4);
  answers_ = true;
  RunFor(options_.probe_interval * 41);
  std::map<NodeId, int> pings;
  for (const auto& [to, ping] : Sent<GossipPing>()) ++pings[to];
  ASSERT_THAT(pings, SizeIs(4));
  for (const auto& [to, count] : pings) EXPECT_NEAR(count, 10, 1);
  EXPECT_EQ(gossip_->health_score(), 0);
  EXPECT_THAT(Events<GossipStateChanged>(), IsEmpty());
}

TEST_F(GossipTest, AsksOthersBeforeItSuspects) {
  Start(5);
  answers_ = true;
  mute_ = {Id(3)};
  const auto asked = [&] { return !Sent<GossipRequest>().empty(); };
  for (int i = 0; i < 100 && !asked(); ++i) RunFor(absl::Milliseconds(50));
  const auto requests = Sent<GossipRequest>();
  ASSERT_THAT(requests, SizeIs(3));
  std::set<NodeId> helpers;
  for (const auto& [to, request] : requests) {
    helpers.insert(to);
    EXPECT_EQ(request.target, Id(3));
  }
  EXPECT_THAT(helpers, SizeIs(3));
  EXPECT_EQ(StateOf(3), Liveness::kAlive);
  RunFor(options_.verdict_timeout);
  EXPECT_EQ(StateOf(3), Liveness::kSuspect);
}

TEST_F(GossipTest, AnIndirectAnswerSavesTheTarget) {
  Start(5);
  answers_ = true;
  mute_ = {Id(3)};
  size_t handled = 0;
  for (int i = 0; i < 400; ++i) {
    RunFor(absl::Milliseconds(50));
    const auto requests = Sent<GossipRequest>();
    for (; handled < requests.size(); ++handled) {
      const auto& [to, request] = requests[handled];
      Receive(to.low,
              GossipAck{request.sequence, Id(3), {Alive(to.low, 1, 0)}});
    }
  }
  EXPECT_EQ(StateOf(3), Liveness::kAlive);
  EXPECT_THAT(Events<GossipStateChanged>(), IsEmpty());
  // What others reach and this node does not is told.
  const auto doubts = Events<GossipLinkDoubted>();
  ASSERT_THAT(doubts, SizeIs(1));
  EXPECT_EQ(doubts[0].id, Id(3));
  EXPECT_TRUE(doubts[0].doubted);
  mute_.clear();
  RunFor(absl::Seconds(5));
  EXPECT_THAT(Events<GossipLinkDoubted>(), SizeIs(2));
  EXPECT_FALSE(gossip_->Find(Id(3))->link_doubted);
}

TEST_F(GossipTest, ASuspectDiesUnlessItRefutes) {
  Start(5);
  Tell(1, Claim(3, Liveness::kSuspect, 1, 0, 1));
  EXPECT_EQ(StateOf(3), Liveness::kSuspect);
  EXPECT_EQ(gossip_->Find(Id(3))->flaps, 1u);
  // Of the same version: no answer to the claim.
  Tell(2, Alive(3, 1, 0, 2));
  EXPECT_EQ(StateOf(3), Liveness::kSuspect);
  Tell(2, Alive(3, 1, 1, 3));
  EXPECT_EQ(StateOf(3), Liveness::kAlive);
  // The old claim is void now.
  Tell(4, Claim(3, Liveness::kSuspect, 1, 0, 4));
  EXPECT_EQ(StateOf(3), Liveness::kAlive);
  Tell(4, Claim(3, Liveness::kSuspect, 1, 1, 4));
  answers_ = true;
  mute_ = {Id(3)};
  RunFor(absl::Minutes(1));
  EXPECT_EQ(StateOf(3), Liveness::kDead);
  EXPECT_EQ(gossip_->living(), 5u);
  // From there only a higher version brings it back.
  Tell(4, Claim(3, Liveness::kSuspect, 1, 1, 4));
  EXPECT_EQ(StateOf(3), Liveness::kDead);
  Tell(4, Alive(3, 1, 1, 9));
  EXPECT_EQ(StateOf(3), Liveness::kDead);
  Tell(4, Alive(3, 2, 0));
  EXPECT_EQ(StateOf(3), Liveness::kAlive);
  EXPECT_EQ(gossip_->living(), 6u);
}

TEST_F(GossipTest, EveryAccuserShortensTheSuspicionOnce) {
  Start(9);
  Tell(1, Claim(3, Liveness::kSuspect, 1, 0, 1));
  const Instant alone = gossip_->Find(Id(3))->deadline;
  Tell(1, Claim(3, Liveness::kSuspect, 1, 0, 1));
  EXPECT_EQ(gossip_->Find(Id(3))->deadline, alone);
  Instant before = alone;
  for (uint64_t accuser : {2, 4}) {
    Tell(accuser, Claim(3, Liveness::kSuspect, 1, 0, accuser));
    EXPECT_LT(gossip_->Find(Id(3))->deadline, before);
    before = gossip_->Find(Id(3))->deadline;
  }
  // Two confirmations are as good as any number.
  Tell(6, Claim(3, Liveness::kSuspect, 1, 0, 6));
  EXPECT_EQ(gossip_->Find(Id(3))->deadline, before);
}

TEST_F(GossipTest, AnAccusedNodeRefutesInItsNextMessage) {
  Start(3);
  Receive(1, GossipPing{7,
                        {Alive(1, 1, 0),
                         {kSelf, {5, 0}, Liveness::kSuspect, Id(2), {}}}});
  const auto acks = Sent<GossipAck>();
  ASSERT_THAT(acks, SizeIs(1));
  const GossipUpdate& own = acks[0].second.updates.front();
  EXPECT_EQ(own.id, kSelf);
  EXPECT_EQ(own.state, Liveness::kAlive);
  EXPECT_EQ(own.version, (NodeVersion{5, 1}));
  EXPECT_EQ(gossip_->health_score(), 1);
  ASSERT_THAT(Events<GossipRefuted>(), SizeIs(1));
  // Claims about an earlier run, or one that was denied, are nothing new.
  Receive(1, GossipPing{8, {{kSelf, {5, 0}, Liveness::kDead, Id(2), {}}}});
  Receive(1, GossipPing{9, {{kSelf, {4, 9}, Liveness::kDead, Id(2), {}}}});
  EXPECT_EQ(gossip_->version(), (NodeVersion{5, 1}));
  // Also one that comes with the highest number that a peer may send.
  Receive(1,
          GossipPing{
              9, {{kSelf, {5, kRefutationsMax}, Liveness::kDead, Id(2), {}}}});
  EXPECT_LE(gossip_->version().refutations, kRefutationsMax);
}

TEST_F(GossipTest, WhoIsAccusedIsToldFirst) {
  Start(9);
  answers_ = true;
  mute_ = {Id(3)};
  Tell(1, Claim(3, Liveness::kSuspect, 1, 0, 1));
  effects_ = {};
  RunFor(options_.probe_interval * 18);
  bool pinged = false;
  for (const auto& [to, ping] : Sent<GossipPing>()) {
    if (to != Id(3)) continue;
    pinged = true;
    ASSERT_GE(ping.updates.size(), 2u);
    EXPECT_EQ(ping.updates[1].id, Id(3));
    EXPECT_NE(ping.updates[1].state, Liveness::kAlive);
  }
  EXPECT_TRUE(pinged);
}

TEST_F(GossipTest, WhoRepeatsAnOldAccusationIsCorrected) {
  Start(9);
  Tell(1, Alive(3, 1, 1, 2));
  effects_ = {};
  Tell(2, Claim(3, Liveness::kSuspect, 1, 0, 2));
  const auto acks = Sent<GossipAck>();
  ASSERT_THAT(acks, SizeIs(1));
  EXPECT_EQ(acks[0].second.updates[1].id, Id(3));
  EXPECT_EQ(acks[0].second.updates[1].version, (NodeVersion{1, 1}));
}

TEST_F(GossipTest, ASuspicionThatFewShareIsCheckedAgain) {
  Start(9);
  answers_ = true;
  Tell(1, Claim(3, Liveness::kSuspect, 1, 0, 1));
  const Instant recheck = gossip_->Find(Id(3))->recheck;
  ASSERT_LT(recheck, gossip_->Find(Id(3))->deadline);
  RunUntil(recheck - absl::Milliseconds(1));
  const auto pings_to_it = [&] {
    const auto pings = Sent<GossipPing>();
    return std::count_if(pings.begin(), pings.end(),
                         [](const auto& ping) { return ping.first == Id(3); });
  };
  const auto before = pings_to_it();
  RunUntil(recheck);
  EXPECT_GE(pings_to_it(), before + 1);
  EXPECT_EQ(gossip_->Find(Id(3))->recheck, Instant::Infinite());
}

TEST_F(GossipTest, ADeadNodeThatIsHeardIsToldSoButNotMoreOftenThanItIsProbed) {
  Start(3);
  Tell(1, Claim(3, Liveness::kDead, 1, 0, 1));
  ASSERT_EQ(StateOf(3), Liveness::kDead);
  effects_ = {};
  for (int i = 0; i < 5; ++i) gossip_->Heard(Id(3), now_, effects_);
  const auto pings = Sent<GossipPing>();
  ASSERT_THAT(pings, SizeIs(1));
  EXPECT_EQ(pings[0].first, Id(3));
  EXPECT_EQ(pings[0].second.updates[1].state, Liveness::kDead);
  Receive(3, GossipAck{pings[0].second.sequence, Id(3), {Alive(3, 1, 1, 2)}});
  EXPECT_EQ(StateOf(3), Liveness::kAlive);
}

TEST_F(GossipTest, UpdatesArePassedOnABoundedNumberOfTimes) {
  Start(9);
  answers_ = true;
  RunFor(absl::Minutes(1));
  effects_ = {};
  answered_ = 0;
  Tell(1, Claim(3, Liveness::kSuspect, 1, 0, 1));
  Tell(1, Alive(3, 1, 1, 2));
  effects_ = {};
  answered_ = 0;
  RunFor(absl::Minutes(1));
  int passed = 0;
  for (const auto& [to, ping] : Sent<GossipPing>()) {
    for (size_t i = 1; i < ping.updates.size(); ++i) {
      if (ping.updates[i].id == Id(3)) ++passed;
    }
  }
  // Some went with the answers to what was told.
  EXPECT_GT(passed, 0);
  EXPECT_LE(passed, Retransmits(10));
}

TEST_F(GossipTest, RequestsAreRelayedBothWays) {
  Start(3);
  Receive(1, GossipRequest{77, Id(2), {Alive(1, 1, 0)}});
  const auto pings = Sent<GossipPing>();
  ASSERT_THAT(pings, SizeIs(1));
  EXPECT_EQ(pings[0].first, Id(2));
  Receive(2, GossipAck{pings[0].second.sequence, Id(2), {Alive(2, 1, 4)}});
  const auto acks = Sent<GossipAck>();
  ASSERT_THAT(acks, SizeIs(1));
  EXPECT_EQ(acks[0].first, Id(1));
  EXPECT_EQ(acks[0].second.sequence, 77u);
  EXPECT_EQ(acks[0].second.target, Id(2));
  // What the target says of itself comes along: it may refute something.
  EXPECT_TRUE(
      std::any_of(acks[0].second.updates.begin(), acks[0].second.updates.end(),
                  [](const GossipUpdate& u) {
                    return u.id == Id(2) && u.version == NodeVersion{1, 4};
                  }));
}

TEST_F(GossipTest, ARelayThatGetsNoAnswerSaysSoInTime) {
  Start(3);
  Receive(1, GossipRequest{77, Id(2), {Alive(1, 1, 0)}});
  EXPECT_THAT(Sent<GossipNack>(), IsEmpty());
  RunFor(options_.verdict_timeout - options_.ack_timeout);
  const auto nacks = Sent<GossipNack>();
  ASSERT_THAT(nacks, SizeIs(1));
  EXPECT_EQ(nacks[0].first, Id(1));
  EXPECT_EQ(nacks[0].second.sequence, 77u);
  // Of a node that it does not know, at once.
  Receive(1, GossipRequest{78, Id(50), {}});
  EXPECT_THAT(Sent<GossipNack>(), SizeIs(2));
}

TEST_F(GossipTest, ANodeThatIsCutOffDoubtsItself) {
  Start(9);
  RunFor(absl::Seconds(6));
  // So it accuses slowly: a healthy one had accused all nine by now.
  EXPECT_LE(gossip_->counters().probes_failed, 5u);
  RunFor(absl::Seconds(14));
  EXPECT_EQ(gossip_->health_score(), LocalHealth::kWorst);
}

TEST_F(GossipTest, WhoSpeaksAmidAProbeIsPingedAgain) {
  Start(1);
  const auto pings = [&] { return Sent<GossipPing>(); };
  while (pings().empty()) RunFor(absl::Milliseconds(10));
  // Not for an answer that may just be on its way.
  gossip_->Heard(Id(1), now_, effects_);
  EXPECT_THAT(pings(), SizeIs(1));
  now_ = now_ + options_.ack_timeout;
  gossip_->Heard(Id(1), now_, effects_);
  gossip_->Heard(Id(1), now_, effects_);
  ASSERT_THAT(pings(), SizeIs(2));
  const uint64_t sequence = pings()[0].second.sequence;
  EXPECT_EQ(pings()[1].second.sequence, sequence);
  Receive(1, GossipAck{sequence, Id(1), {Alive(1, 1, 0)}});
  RunFor(options_.verdict_timeout);
  EXPECT_EQ(gossip_->counters().probes_failed, 0u);
}

TEST_F(GossipTest, HelpersThatSayNoAnswerKeepTheHealth) {
  Start(5);
  answers_ = true;
  mute_ = {Id(3)};
  size_t handled = 0;
  for (int i = 0; i < 200; ++i) {
    RunFor(absl::Milliseconds(50));
    const auto requests = Sent<GossipRequest>();
    for (; handled < requests.size(); ++handled) {
      const auto& [to, request] = requests[handled];
      Receive(to.low, GossipNack{request.sequence});
    }
  }
  EXPECT_NE(StateOf(3), Liveness::kAlive);
  EXPECT_EQ(gossip_->health_score(), 0);
}

TEST_F(GossipTest, APauseOfThisNodeAccusesNobody) {
  Start(5);
  answers_ = true;
  RunFor(absl::Seconds(5));
  Tell(1, Claim(3, Liveness::kSuspect, 1, 0, 1));
  const absl::Duration left = gossip_->Find(Id(3))->deadline - now_;
  const Instant due = gossip_->NextTimer();
  now_ = now_ + absl::Minutes(10);
  gossip_->Tick(now_, effects_);
  EXPECT_EQ(StateOf(3), Liveness::kSuspect);
  EXPECT_EQ(gossip_->Find(Id(3))->deadline - now_,
            left - (due - (now_ - absl::Minutes(10))));
  for (uint64_t n : {1, 2, 4, 5}) EXPECT_EQ(StateOf(n), Liveness::kAlive);
  EXPECT_EQ(gossip_->health_score(), 1);
}

TEST_F(GossipTest, HearsayOfStrangersIsReportedAndNotBelieved) {
  Start(2);
  Tell(1, Alive(9, 1, 0));
  EXPECT_EQ(gossip_->Find(Id(9)), nullptr);
  const auto hearsay = Events<GossipHearsay>();
  ASSERT_THAT(hearsay, SizeIs(1));
  EXPECT_EQ(hearsay[0].id, Id(9));
  EXPECT_EQ(hearsay[0].teller, Id(1));
  EXPECT_EQ(hearsay[0].profile.peer_address, "n9:7800");
  Tell(1, Claim(8, Liveness::kDead, 1, 0, 1));
  EXPECT_THAT(Events<GossipHearsay>(), SizeIs(1));
  // Nor is what a stranger says.
  effects_ = {};
  Receive(9, GossipPing{1, {Claim(2, Liveness::kDead, 1, 0, 9)}});
  EXPECT_THAT(effects_.messages, IsEmpty());
  EXPECT_EQ(StateOf(2), Liveness::kAlive);
}

TEST_F(GossipTest, AnAccusationInAFullExchangeIsLookedInto) {
  Start(4);
  for (const Liveness state : {Liveness::kSuspect, Liveness::kDead}) {
    Receive(1,
            GossipExchange{false, {Alive(1, 1, 0), Claim(2, state, 1, 0, 3)}});
    EXPECT_EQ(StateOf(2), Liveness::kAlive);
  }
  // Once: it runs when the second one comes.
  const auto pings = Sent<GossipPing>();
  ASSERT_THAT(pings, SizeIs(1));
  EXPECT_EQ(pings[0].first, Id(2));
}

TEST_F(GossipTest, WhoTakesMostForDeadKeepsItToItself) {
  Start(4);
  for (uint64_t n : {2, 3, 4}) {
    Tell(1, Claim(n, Liveness::kDead, 1, 0, n % 3 + 2));
  }
  effects_ = {};
  Receive(1, GossipPing{7, {Alive(1, 1, 0)}});
  ASSERT_THAT(Sent<GossipAck>(), SizeIs(1));
  EXPECT_THAT(Sent<GossipAck>()[0].second.updates, SizeIs(1));
  // Also when it has found out that some live.
  for (uint64_t n : {3, 4}) Tell(1, Alive(n, 1, 1, 2));
  effects_ = {};
  Receive(1, GossipPing{8, {Alive(1, 1, 0)}});
  for (const GossipUpdate& update : Sent<GossipAck>()[0].second.updates) {
    EXPECT_EQ(update.state, Liveness::kAlive);
  }
}

TEST_F(GossipTest, ADeathInAFullExchangeMayStillBeRefuted) {
  Start(4);
  Receive(1, GossipExchange{true,
                            {Alive(1, 1, 0), Claim(2, Liveness::kDead, 1, 1, 3),
                             Alive(3, 2, 0)}});
  EXPECT_EQ(StateOf(2), Liveness::kSuspect);
  const auto answers = Sent<GossipExchange>();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_FALSE(answers[0].second.wants_answer);
  EXPECT_THAT(answers[0].second.states, SizeIs(5));
  // A run that is new to this node is told, for it may have moved.
  EXPECT_THAT(Events<GossipHearsay>(), SizeIs(1));
  EXPECT_EQ(gossip_->Find(Id(3))->version, (NodeVersion{2, 0}));
}

TEST_F(GossipTest, StatesAreExchangedNowAndThen) {
  Start(4);
  answers_ = true;
  RunFor(options_.exchange_interval * 10);
  const auto exchanges = Sent<GossipExchange>();
  EXPECT_GE(exchanges.size(), 10u);
  EXPECT_LE(exchanges.size(), 20u);
}

TEST_F(GossipTest, TheNewestProfileStays) {
  Start(3);
  GossipUpdate update = Alive(2, 1, 0, 5);
  update.profile->ring_epoch = 7;
  update.profile->in_flight = 11;
  Tell(1, update);
  EXPECT_EQ(gossip_->Find(Id(2))->profile.in_flight, 11u);
  const auto rings = Events<GossipRingSeen>();
  ASSERT_THAT(rings, SizeIs(1));
  EXPECT_EQ(rings[0].epoch, 7u);
  EXPECT_EQ(rings[0].teller, Id(1));
  Tell(3, Alive(2, 1, 0, 4));
  EXPECT_EQ(gossip_->Find(Id(2))->profile.in_flight, 11u);
  // Serials begin anew with each run.
  Tell(3, Alive(2, 2, 0, 1));
  EXPECT_EQ(gossip_->Find(Id(2))->profile.in_flight, 0u);
}

TEST_F(GossipTest, AForgottenMemberIsGoneEverywhere) {
  Start(3);
  RunFor(absl::Milliseconds(600));
  Receive(1, GossipRequest{77, Id(2), {}});
  Tell(1, Claim(2, Liveness::kSuspect, 1, 0, 1));
  for (uint64_t n : {2, 1, 3}) {
    gossip_->Forget(Id(n));
    gossip_->CheckInvariants();
  }
  EXPECT_EQ(gossip_->NextTimer(), Instant::Infinite());
  EXPECT_EQ(gossip_->living(), 1u);
}

TEST_F(GossipTest, WhatCannotBeReachedIsAskedForAtOnce) {
  Start(4);
  answers_ = true;
  gossip_->SetReachable(Id(2), false);
  RunFor(options_.probe_interval * 4);
  for (const auto& [to, ping] : Sent<GossipPing>()) EXPECT_NE(to, Id(2));
  EXPECT_THAT(Sent<GossipRequest>(), SizeIs(3));
}

// --- Arithmetic ---

TEST(LifeguardTest, HealthStaysBetweenItsBounds) {
  LocalHealth health;
  health.Well();
  EXPECT_EQ(health.multiplier(), 1);
  health.Unwell(100);
  EXPECT_EQ(health.score(), LocalHealth::kWorst);
  health.Well();
  EXPECT_EQ(health.score(), LocalHealth::kWorst - 1);
}

TEST(LifeguardTest, SuspicionsAreShorterTheMoreConfirmTheyAre) {
  SuspicionOptions options;
  options.probe_interval = absl::Seconds(1);
  options.min_factor = 3;
  options.max_factor = 6;
  EXPECT_EQ(ShortestSuspicion(options, 100), absl::Seconds(6));
  EXPECT_EQ(SuspicionTimeout(options, 100, 0), absl::Seconds(36));
  EXPECT_NEAR(absl::ToDoubleSeconds(SuspicionTimeout(options, 100, 1)), 17.07,
              0.01);
  EXPECT_EQ(SuspicionTimeout(options, 100, 2), absl::Seconds(6));
  EXPECT_EQ(SuspicionTimeout(options, 100, 9), absl::Seconds(6));
  // Nobody is there to confirm.
  EXPECT_EQ(SuspicionTimeout(options, 2, 0), absl::Seconds(3));
}

TEST(LifeguardTest, RetransmitsGrowWithTheLogarithm) {
  EXPECT_EQ(Retransmits(2), 2);
  EXPECT_EQ(Retransmits(9), 4);
  EXPECT_EQ(Retransmits(99), 8);
  EXPECT_EQ(Retransmits(999), 12);
}

TEST(UpdateQueueTest, TakesWhatWasPassedOnLeastFirst) {
  UpdateQueue queue;
  queue.Put(Alive(1, 1, 0));
  std::vector<GossipUpdate> out;
  queue.Take(1, 3, NodeId(), out);
  queue.Put(Alive(2, 1, 0));
  queue.Put(Alive(3, 1, 0));
  out.clear();
  queue.Take(2, 3, NodeId(), out);
  ASSERT_THAT(out, SizeIs(2));
  EXPECT_EQ(out[0].id, Id(3));
  EXPECT_EQ(out[1].id, Id(2));
}

TEST(UpdateQueueTest, AccusationsAndRefutationsGoFirst) {
  UpdateQueue queue;
  for (uint64_t n = 1; n <= 9; ++n) queue.Put(Alive(n, 1, 0));
  queue.Put(Claim(10, Liveness::kSuspect, 1, 0, 1));
  queue.Put(Alive(11, 1, 1));
  for (uint64_t n = 12; n <= 20; ++n) queue.Put(Alive(n, 1, 0));
  for (int i = 0; i < 3; ++i) {
    std::vector<GossipUpdate> out;
    queue.Take(2, 3, NodeId(), out);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_EQ(std::min(out[0].id, out[1].id), Id(10));
    EXPECT_EQ(std::max(out[0].id, out[1].id), Id(11));
  }
}

TEST(UpdateQueueTest, AnUpdateTakesThePlaceOfTheOlderOneAndCountsAnew) {
  UpdateQueue queue;
  std::vector<GossipUpdate> out;
  queue.Put(Alive(1, 1, 0));
  queue.Take(5, 2, NodeId(), out);
  queue.Put(Alive(1, 1, 1));
  for (int i = 0; i < 5; ++i) queue.Take(5, 2, NodeId(), out);
  ASSERT_THAT(out, SizeIs(3));
  EXPECT_EQ(out[2].version.refutations, 1u);
  EXPECT_EQ(queue.size(), 0u);
}

TEST(UpdateQueueTest, NobodyIsToldAboutItself) {
  UpdateQueue queue;
  std::vector<GossipUpdate> out;
  queue.Put(Alive(1, 1, 0));
  queue.Take(5, 2, Id(1), out);
  EXPECT_THAT(out, IsEmpty());
  EXPECT_EQ(queue.size(), 1u);
}

}  // namespace
}  // namespace ringkv
