#include <deque>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "membership/epochs/acceptor.h"
#include "membership/epochs/proposer.h"
#include "membership/epochs/ring_change.h"
#include "membership/epochs/voters.h"

namespace ringkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Ballot BallotOf(uint64_t round, uint32_t node = 1) {
  return {round, NodeNumber{node}, node * 100};
}
PaxosValue ValueOf(uint64_t id) { return {{id, 1}, absl::StrCat("ring ", id)}; }

std::vector<NodeNumber> Numbers(uint32_t count) {
  std::vector<NodeNumber> numbers;
  for (uint32_t i = 1; i <= count; ++i) numbers.push_back(NodeNumber{i});
  return numbers;
}

RingSpec SpecOf(uint32_t members) {
  std::vector<Member> all;
  for (uint32_t i = 1; i <= members; ++i) {
    Member member;
    member.number = NodeNumber{i};
    member.id = {i, i};
    member.name = absl::StrCat("n", i);
    member.client_address = absl::StrCat("n", i, ":7700");
    member.peer_address = absl::StrCat("n", i, ":7800");
    all.push_back(member);
  }
  return *FirstRing({1, 1}, PlacementStrategy::kHashed, 4, all);
}

// --- Voters ---

TEST(VotersTest, TheHighestNumberOfAnEvenClusterHasNoVote) {
  EXPECT_THAT(VotersOf(SpecOf(1)), ElementsAre(NodeNumber{1}));
  EXPECT_THAT(VotersOf(SpecOf(2)), ElementsAre(NodeNumber{1}));
  EXPECT_THAT(VotersOf(SpecOf(3)), SizeIs(3));
  EXPECT_THAT(VotersOf(SpecOf(6)), SizeIs(5));
}

// --- Acceptor ---

TEST(AcceptorTest, PromisesOnlyUpwards) {
  Acceptor acceptor{AcceptorState()};
  EXPECT_TRUE(acceptor.OnPrepare({2, BallotOf(5)}).granted);
  EXPECT_TRUE(acceptor.OnPrepare({2, BallotOf(5)}).granted);  // a repeat
  const PaxosPromise refused = acceptor.OnPrepare({2, BallotOf(4)});
  EXPECT_FALSE(refused.granted);
  EXPECT_EQ(refused.promised, BallotOf(5));
  EXPECT_TRUE(acceptor.OnPrepare({2, BallotOf(5, 2)}).granted);
}

TEST(AcceptorTest, AcceptsNothingBelowItsPromise) {
  Acceptor acceptor{AcceptorState()};
  acceptor.OnPrepare({2, BallotOf(5)});
  EXPECT_FALSE(acceptor.OnAccept({2, BallotOf(4), ValueOf(1)}).granted);
  EXPECT_TRUE(acceptor.OnAccept({2, BallotOf(5), ValueOf(2)}).granted);
  EXPECT_TRUE(acceptor.OnAccept({2, BallotOf(6), ValueOf(3)}).granted);
  const PaxosPromise promise = acceptor.OnPrepare({2, BallotOf(7)});
  EXPECT_EQ(promise.accepted, BallotOf(6));
  EXPECT_EQ(promise.value, ValueOf(3));
}

TEST(AcceptorTest, ANewEpochBeginsAnew) {
  Acceptor acceptor{AcceptorState()};
  acceptor.OnAccept({2, BallotOf(6), ValueOf(3)});
  const PaxosPromise promise = acceptor.OnPrepare({3, BallotOf(1)});
  EXPECT_TRUE(promise.granted);
  EXPECT_TRUE(promise.accepted.IsNone());
  EXPECT_EQ(acceptor.state().epoch, 3u);
}

// --- Proposer, against acceptors over a bad network ---

struct Paxos {
  explicit Paxos(uint64_t seed, uint32_t voters, uint32_t proposers)
      : random(seed), acceptors(voters, Acceptor{AcceptorState()}) {
    for (uint32_t i = 0; i < proposers; ++i) {
      ProposerOptions options;
      options.epoch = 2;
      options.voters = Numbers(voters);
      options.self = NodeNumber{i + 1};
      options.start_id = i + 1;
      all.emplace_back(options, ValueOf(i + 1), 0, random);
      std::vector<Proposer::Out> out;
      all.back().Start(now, out);
      Queue(i, out);
    }
  }

  void Queue(size_t proposer, std::vector<Proposer::Out>& out) {
    for (Proposer::Out& message : out) {
      const size_t acceptor = ToInt(message.to) - 1;
      if (random.Chance(0.2)) continue;  // lost
      const int copies = random.Chance(0.1) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        flying.push_back({proposer, acceptor, false, message.message});
      }
    }
    out.clear();
  }

  // Takes one message out of order, or lets time pass.
  void Step() {
    std::vector<Proposer::Out> out;
    if (flying.empty() || random.Chance(0.1)) {
      now = now + absl::Milliseconds(50);
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].NextTimer() <= now) {
          all[i].OnTimer(now, out);
          Queue(i, out);
        }
      }
      return;
    }
    const size_t pick = random.Uniform(flying.size());
    const Flying message = flying[pick];
    flying.erase(flying.begin() + static_cast<int64_t>(pick));
    Proposer& proposer = all[message.proposer];
    const NodeNumber from{static_cast<uint32_t>(message.acceptor) + 1};
    if (message.answer) {
      if (const auto* promise = std::get_if<PaxosPromise>(&message.message)) {
        proposer.OnPromise(from, *promise, now, out);
      } else {
        proposer.OnAccepted(from, std::get<PaxosAccepted>(message.message), now,
                            out);
      }
      Queue(message.proposer, out);
      return;
    }
    ControlMessage answer;
    Acceptor& acceptor = acceptors[message.acceptor];
    if (const auto* prepare = std::get_if<PaxosPrepare>(&message.message)) {
      answer = acceptor.OnPrepare(*prepare);
    } else {
      answer = acceptor.OnAccept(std::get<PaxosAccept>(message.message));
    }
    if (random.Chance(0.2)) return;  // lost
    flying.push_back({message.proposer, message.acceptor, true, answer});
  }

  struct Flying {
    size_t proposer;
    size_t acceptor;
    bool answer;
    ControlMessage message;
  };
  SeededRandom random;
  Instant now{1};
  std::vector<Acceptor> acceptors;
  std::deque<Proposer> all;
  std::deque<Flying> flying;
};

TEST(ProposerTest, RivalsAgreeOnOneValueThatSomebodyProposed) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const uint32_t proposers = 2 + seed % 3;
    Paxos paxos(seed, 3 + 2 * (seed % 2), proposers);
    int steps = 0;
    const auto all_decided = [&] {
      for (const Proposer& proposer : paxos.all) {
        if (!proposer.decided()) return false;
      }
      return true;
    };
    while (!all_decided() && steps < 100000) {
      paxos.Step();
      ++steps;
    }
    ASSERT_TRUE(all_decided()) << "seed " << seed;
    const PaxosValue value = paxos.all[0].value();
    EXPECT_GE(value.id.start_id, 1u);
    EXPECT_LE(value.id.start_id, proposers);
    for (const Proposer& proposer : paxos.all) {
      EXPECT_EQ(proposer.value(), value) << "seed " << seed;
      if (proposer.own().id == value.id) {
        EXPECT_TRUE(proposer.own_value_sent());
      }
    }
  }
}

TEST(ProposerTest, ARepeatedAnswerCountsOnce) {
  SeededRandom random(1);
  ProposerOptions options;
  options.epoch = 2;
  options.voters = Numbers(3);
  options.self = NodeNumber{1};
  options.start_id = 1;
  Proposer proposer(options, ValueOf(1), 0, random);
  std::vector<Proposer::Out> out;
  proposer.Start(Instant{1}, out);
  ASSERT_THAT(out, SizeIs(3));
  const Ballot ballot = std::get<PaxosPrepare>(out[0].message).ballot;
  out.clear();
  PaxosPromise promise;
  promise.epoch = 2;
  promise.ballot = ballot;
  promise.granted = true;
  proposer.OnPromise(NodeNumber{2}, promise, Instant{1}, out);
  proposer.OnPromise(NodeNumber{2}, promise, Instant{1}, out);
  proposer.OnPromise(NodeNumber{9}, promise, Instant{1}, out);  // no voter
  EXPECT_TRUE(out.empty());
  EXPECT_THAT(proposer.Unanswered(), ElementsAre(NodeNumber{1}, NodeNumber{3}));
  promise.ballot.round = 99;  // of another attempt
  proposer.OnPromise(NodeNumber{3}, promise, Instant{1}, out);
  EXPECT_TRUE(out.empty());
  EXPECT_FALSE(proposer.own_value_sent());
}

// --- Changes ---

TEST(RingChangeTest, CreateGivesIdsThatAreNeverUsedAgain) {
  RingSpec spec = SpecOf(3);
  CreateKeyspaceCall create;
  create.keyspace.name = "a";
  create.keyspace.id = KeyspaceId{77};  // not the caller's to choose
  spec = *ApplyChange(create, spec);
  EXPECT_EQ(spec.epoch, 2u);
  EXPECT_EQ(spec.keyspaces.back().id, KeyspaceId{2});
  EXPECT_EQ(spec.keyspaces.back().changed_at, 2u);
  spec = *ApplyChange(DropKeyspaceCall{"a"}, spec);
  EXPECT_THAT(spec.keyspaces, SizeIs(1));
  spec = *ApplyChange(create, spec);
  EXPECT_EQ(spec.keyspaces.back().id, KeyspaceId{3});
  EXPECT_TRUE(Ring::Make(spec).ok());
}

TEST(RingChangeTest, TooManyKeyspacesAreRefusedWithTheLimit) {
  RingSpec spec = SpecOf(1);
  while (spec.keyspaces.size() < kKeyspacesMax) {
    CreateKeyspaceCall create;
    create.keyspace.name = absl::StrCat("k", spec.keyspaces.size());
    spec = *ApplyChange(create, spec);
  }
  CreateKeyspaceCall create;
  create.keyspace.name = "one-more";
  const absl::Status status = ApplyChange(create, spec).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat(kKeyspacesMax)));
}

TEST(RingChangeTest, AlterKeepsChangedAt) {
  const RingSpec spec = SpecOf(3);
  AlterKeyspaceCall alter;
  alter.name = "default";
  alter.quorum = QuorumMode::kStrict;
  alter.n = 3;  // as it is
  const RingSpec next = *ApplyChange(alter, spec);
  EXPECT_EQ(next.epoch, 2u);
  EXPECT_EQ(next.keyspaces[0].quorum, QuorumMode::kStrict);
  EXPECT_EQ(next.keyspaces[0].changed_at, 1u);
}

TEST(RingChangeTest, NothingElseIsTouched) {
  const RingSpec spec = SpecOf(4);
  CreateKeyspaceCall create;
  create.keyspace.name = "a";
  RingSpec next = *ApplyChange(create, spec);
  next.keyspaces.pop_back();
  next.epoch = spec.epoch;
  next.next_keyspace_id = spec.next_keyspace_id;
  EXPECT_EQ(next, spec);
}

}  // namespace
}  // namespace ringkv
