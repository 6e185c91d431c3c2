#include "server/shard/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/server/shard/shard_cluster.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

NodeNumber N(uint32_t i) { return NodeNumber{i}; }

PutCall Put(const std::string& key, const std::string& value) {
  PutCall put;
  put.key = key;
  put.value = value;
  return put;
}

PutCall PutWith(const std::string& key, const std::string& value,
                const std::optional<std::string>& context) {
  PutCall put = Put(key, value);
  put.context = context;
  return put;
}

PutCall Blind(const std::string& key, const std::string& value) {
  PutCall put = Put(key, value);
  put.blind = true;
  return put;
}

PutCall Delete(const std::string& key) {
  PutCall put;
  put.key = key;
  put.is_delete = true;
  return put;
}

GetCall Get(const std::string& key, uint32_t r = 0,
            Quorum quorum = Quorum::kDefault) {
  GetCall get;
  get.key = key;
  get.r = r;
  get.quorum = quorum;
  return get;
}

const GetAnswer& AsGet(const ClientAnswer& answer) {
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  return std::get<GetAnswer>(answer.answer);
}

const PutAnswer& AsPut(const ClientAnswer& answer) {
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  return std::get<PutAnswer>(answer.answer);
}

std::vector<std::string> Values(const ClientAnswer& answer) {
  std::vector<std::string> values;
  for (const SiblingAnswer& sibling : AsGet(answer).siblings) {
    values.push_back(sibling.value);
  }
  return values;
}

Keyspace MakeKeyspace(const std::string& name, VersionMode mode,
                      Durability durability = Durability::kInterval) {
  Keyspace keyspace;
  keyspace.name = name;
  keyspace.mode = mode;
  keyspace.durability = durability;
  return keyspace;
}

TEST(ShardTest, ReadsBackWhatWasPutThroughAnyNode) {
  ShardCluster cluster(5);
  for (uint32_t i = 1; i <= 5; ++i) {
    const std::string key = "k" + std::to_string(i);
    AsPut(cluster.Ask(N(i), Put(key, "v" + key)));
    for (uint32_t j = 1; j <= 5; ++j) {
      EXPECT_THAT(Values(cluster.Ask(N(j), Get(key))),
                  UnorderedElementsAre("v" + key));
    }
  }
}

TEST(ShardTest, WritesAllReplicasAlike) {
  ShardCluster cluster(5);
  AsPut(cluster.Ask(N(1), Put("k", "v")));
  std::set<std::string> copies;
  for (NodeNumber node : cluster.Replicas("k")) {
    ASSERT_TRUE(cluster.Stored(node, "k").has_value());
    copies.insert(*cluster.Stored(node, "k"));
  }
  EXPECT_EQ(copies.size(), 1u);
}

TEST(ShardTest, MissingKeyIsOkWithoutContext) {
  ShardCluster cluster(3);
  const ClientAnswer answer = cluster.Ask(N(1), Get("none"));
  EXPECT_TRUE(AsGet(answer).siblings.empty());
  EXPECT_FALSE(AsGet(answer).context.has_value());
}

TEST(ShardTest, DeletedKeyHasAContextThatALaterPutFollows) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", "old")));
  AsPut(cluster.Ask(N(2), Delete("k")));
  const ClientAnswer gone = cluster.Ask(N(3), Get("k"));
  EXPECT_TRUE(AsGet(gone).siblings.empty());
  ASSERT_TRUE(AsGet(gone).context.has_value());
  AsPut(cluster.Ask(N(1), PutWith("k", "new", AsGet(gone).context)));
  EXPECT_THAT(Values(cluster.Ask(N(2), Get("k", 3))),
              UnorderedElementsAre("new"));
}

TEST(ShardTest, PlainPutReplacesWhatIsThere) {
  ShardCluster cluster(3);
  for (int i = 0; i < 20; ++i) {
    const ClientAnswer put =
        cluster.Ask(N(1 + i % 3), Put("k", std::to_string(i)));
    EXPECT_TRUE(AsPut(put).context.has_value());
    EXPECT_THAT(Values(cluster.Ask(N(1 + (i + 1) % 3), Get("k"))),
                UnorderedElementsAre(std::to_string(i)));
  }
}

TEST(ShardTest, ConcurrentWritesAreSiblingsUntilAPutWithTheirContext) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Blind("k", "a")));
  const ClientAnswer second = cluster.Ask(N(2), Blind("k", "b"));
  EXPECT_FALSE(AsPut(second).context.has_value());
  EXPECT_EQ(AsPut(second).unresolved_siblings, 1u);
  const ClientAnswer both = cluster.Ask(N(3), Get("k"));
  EXPECT_THAT(Values(both), UnorderedElementsAre("a", "b"));
  AsPut(cluster.Ask(N(1), PutWith("k", "c", AsGet(both).context)));
  EXPECT_THAT(Values(cluster.Ask(N(2), Get("k"))), UnorderedElementsAre("c"));
}

TEST(ShardTest, PutAtTheSameTimeAsADeleteStays) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", "a")));
  const auto context = AsGet(cluster.Ask(N(1), Get("k"))).context;
  AsPut(cluster.Ask(N(2), Blind("k", "b")));
  PutCall remove = Delete("k");
  remove.context = context;
  const ClientAnswer removed = cluster.Ask(N(3), remove);
  EXPECT_EQ(AsPut(removed).unresolved_siblings, 1u);
  EXPECT_THAT(Values(cluster.Ask(N(1), Get("k"))), UnorderedElementsAre("b"));
}

TEST(ShardTest, SiblingsStayBoundedByTheNumberOfConcurrentWriters) {
  // Each client goes on from the context of its own put where it got one, and
  // reads every second time or where it got none.
  ShardCluster cluster(3);
  std::optional<std::string> context[2];
  for (int round = 0; round < 200; ++round) {
    for (int client = 0; client < 2; ++client) {
      if (round % 2 == 0 || !context[client].has_value()) {
        context[client] = AsGet(cluster.Ask(N(1 + client), Get("k"))).context;
      }
    }
    for (int client = 0; client < 2; ++client) {
      PutCall put = PutWith("k", std::to_string(round), context[client]);
      if (!context[client].has_value()) put.blind = true;
      context[client] =
          AsPut(cluster.Ask(N(1 + (round + client) % 3), put)).context;
    }
    EXPECT_LE(Values(cluster.Ask(N(3), Get("k"))).size(), 2u) << round;
  }
}

TEST(ShardTest, RefusesBadCallsWithTheLimitAndTheValue) {
  ShardCluster cluster(3);
  const auto expect = [&](ClientCall call, absl::StatusCode code,
                          const std::string& text) {
    const ClientAnswer answer = cluster.Ask(N(1), std::move(call));
    EXPECT_EQ(answer.status.code(), code) << answer.status;
    EXPECT_THAT(std::string(answer.status.message()), HasSubstr(text));
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  expect(Get(""), invalid, "4096");
  expect(Get(std::string(4097, 'x')), invalid, "4097");
  expect(Get("k", 4), invalid, "R=4");
  PutCall put = Put("k", "v");
  put.w = 4;
  expect(put, invalid, "W=4");
  expect(Put("k", std::string((1 << 20) + 1, 'x')), invalid, "1048577");
  put = Put("k", "v");
  put.keyspace = "nope";
  expect(put, absl::StatusCode::kNotFound, "nope");
  PutCall remove = Delete("k");
  remove.blind = true;
  expect(remove, invalid, "blind");
  expect(Get("k", 1, Quorum::kStrict), invalid, "strict");
  expect(PutWith("k", "v", "rubbish"), invalid, "context");
  AsPut(cluster.Ask(N(1), Put("other", "v")));
  expect(PutWith("k", "v", AsGet(cluster.Ask(N(1), Get("other"))).context),
         invalid, "context");
  EXPECT_FALSE(cluster.Stored(N(1), "k").has_value());
}

TEST(ShardTest, AcceptsLimitsExactly) {
  ShardCluster cluster(3);
  const std::string key(4096, '\xff');
  const std::string value(1 << 20, '\0');
  AsPut(cluster.Ask(N(1), Put(key, value)));
  EXPECT_THAT(Values(cluster.Ask(N(2), Get(key))), UnorderedElementsAre(value));
}

TEST(ShardTest, StandInTakesAHintForAReplicaThatIsDown) {
  ShardCluster cluster(5);
  const std::string key = "k";
  const auto replicas = cluster.Replicas(key);
  cluster.SetUp(replicas[2], false);
  const ClientAnswer put = cluster.Ask(replicas[0], Put(key, "v"));
  EXPECT_GE(AsPut(put).replica_acks + AsPut(put).stand_in_acks, 2u);
  NodeNumber holder = kNoNode;
  for (const Member& member : cluster.ring().spec().members) {
    if (auto hint = cluster.Hint(member.number, key)) {
      holder = member.number;
      ASSERT_EQ(hint->targets.size(), 1u);
      EXPECT_EQ(hint->targets[0].node, replicas[2]);
    }
  }
  ASSERT_NE(holder, kNoNode);
  EXPECT_FALSE(cluster.Stored(replicas[2], key).has_value());
  cluster.SetUp(replicas[2], true);
  cluster.Advance(absl::Seconds(5));
  EXPECT_EQ(cluster.Stored(replicas[2], key), cluster.Stored(replicas[0], key));
  EXPECT_FALSE(cluster.Hint(holder, key).has_value());
}

TEST(ShardTest, HintSurvivesTheRestartOfItsHolder) {
  ShardCluster cluster(5);
  const auto replicas = cluster.Replicas("k");
  cluster.SetUp(replicas[1], false);
  AsPut(cluster.Ask(replicas[0], Put("k", "v")));
  cluster.Advance(absl::Seconds(1));
  for (const Member& member : cluster.ring().spec().members) {
    if (member.number != replicas[1]) cluster.Restart(member.number);
  }
  cluster.SetUp(replicas[1], true);
  cluster.Advance(absl::Seconds(5));
  EXPECT_TRUE(cluster.Stored(replicas[1], "k").has_value());
}

TEST(ShardTest, CoordinatorKeepsTheHintWhenNoOtherNodeIsLeft) {
  ShardCluster cluster(3);
  cluster.SetUp(N(3), false);
  AsPut(cluster.Ask(N(1), Put("k", "v")));
  cluster.Advance(absl::Seconds(1));
  ASSERT_TRUE(cluster.Hint(N(1), "k").has_value());
  cluster.SetUp(N(3), true);
  cluster.Advance(absl::Seconds(5));
  EXPECT_TRUE(cluster.Stored(N(3), "k").has_value());
  EXPECT_FALSE(cluster.Hint(N(1), "k").has_value());
}

TEST(ShardTest, SilentReplicaGetsAStandInAfterAWhile) {
  ShardCluster cluster(5);
  const auto replicas = cluster.Replicas("k");
  cluster.Cut(replicas[1], true);
  cluster.Cut(replicas[2], true);
  const ClientAnswer put =
      cluster.Ask(replicas[0], Blind("k", "v"), absl::Seconds(5));
  EXPECT_EQ(AsPut(put).replica_acks, 1u);
  EXPECT_GE(AsPut(put).stand_in_acks, 1u);
}

TEST(ShardTest, MinorityGoesOnAtSloppyAndRefusesAtStrict) {
  ShardCluster cluster(5);
  const auto replicas = cluster.Replicas("k");
  cluster.SetUp(replicas[1], false);
  cluster.SetUp(replicas[2], false);
  AsPut(cluster.Ask(replicas[0], Put("k", "v")));
  PutCall strict = Blind("k", "w");
  strict.quorum = Quorum::kStrict;
  const ClientAnswer refused = cluster.Ask(replicas[0], strict);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.status.message()),
              HasSubstr("required 2 of 3, received 1"));
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("is down"));
  const ClientAnswer read =
      cluster.Ask(replicas[0], Get("k", 0, Quorum::kStrict));
  EXPECT_EQ(read.status.code(), absl::StatusCode::kUnavailable);
}

TEST(ShardTest, WritesWithAllReplicasAwayAndReadsThemFromStandIns) {
  ShardCluster cluster(6);
  const auto replicas = cluster.Replicas("k");
  for (NodeNumber node : replicas) cluster.SetUp(node, false);
  NodeNumber coordinator = kNoNode;
  for (const Member& member : cluster.ring().spec().members) {
    if (std::find(replicas.begin(), replicas.end(), member.number) ==
        replicas.end()) {
      coordinator = member.number;
    }
  }
  const ClientAnswer put = cluster.Ask(coordinator, Put("k", "v"));
  EXPECT_EQ(AsPut(put).replica_acks, 0u);
  EXPECT_GE(AsPut(put).stand_in_acks, 2u);
  EXPECT_THAT(Values(cluster.Ask(coordinator, Get("k"))),
              UnorderedElementsAre("v"));
  // A plain put through the same stand-in replaces the value.
  AsPut(cluster.Ask(coordinator, Put("k", "w")));
  EXPECT_THAT(Values(cluster.Ask(coordinator, Get("k"))),
              UnorderedElementsAre("w"));
  for (NodeNumber node : replicas) cluster.SetUp(node, true);
  cluster.Advance(absl::Seconds(10));
  EXPECT_THAT(Values(cluster.Ask(replicas[0], Get("k", 3))),
              UnorderedElementsAre("w"));
  for (NodeNumber node : replicas) {
    EXPECT_EQ(cluster.Stored(node, "k"), cluster.Stored(replicas[0], "k"));
  }
}

TEST(ShardTest, NothingFromStandInsAloneIsNoAnswer) {
  ShardCluster cluster(6);
  const auto replicas = cluster.Replicas("k");
  AsPut(cluster.Ask(replicas[0], Put("k", "v")));
  cluster.Advance(absl::Seconds(1));
  for (NodeNumber node : replicas) cluster.SetUp(node, false);
  for (const Member& member : cluster.ring().spec().members) {
    if (std::find(replicas.begin(), replicas.end(), member.number) !=
        replicas.end()) {
      continue;
    }
    const ClientAnswer read = cluster.Ask(member.number, Get("k"));
    EXPECT_EQ(read.status.code(), absl::StatusCode::kUnavailable);
  }
}

TEST(ShardTest, ReadRepairsAStaleReplica) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", "old")));
  cluster.drop = [](NodeNumber from, const OutgoingMessage& message) {
    return message.to == N(3) || from == N(3);
  };
  AsPut(cluster.Ask(N(1), Put("k", "new"), absl::Seconds(1)));
  EXPECT_NE(cluster.Stored(N(3), "k"), cluster.Stored(N(1), "k"));
  cluster.drop = nullptr;
  EXPECT_THAT(Values(cluster.Ask(N(3), Get("k", 3))),
              UnorderedElementsAre("new"));
  EXPECT_EQ(cluster.Stored(N(3), "k"), cluster.Stored(N(1), "k"));
}

TEST(ShardTest, StrictReadWaitsUntilEnoughReplicasHoldWhatItReturns) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", "old")));
  // "new" reaches node 1 alone, and its put fails.
  cluster.drop = [](NodeNumber from, const OutgoingMessage& message) {
    return std::holds_alternative<WriteRequest>(message.message.body);
  };
  PutCall put = Put("k", "new");
  put.quorum = Quorum::kStrict;
  EXPECT_EQ(cluster.Ask(N(1), put, absl::Seconds(1)).status.code(),
            absl::StatusCode::kUnavailable);
  // While the write-back is lost, "new" must not be shown.
  const ClientAnswer blocked =
      cluster.Ask(N(1), Get("k", 0, Quorum::kStrict), absl::Seconds(1));
  EXPECT_FALSE(blocked.status.ok());
  cluster.drop = nullptr;
  EXPECT_THAT(Values(cluster.Ask(N(1), Get("k", 0, Quorum::kStrict))),
              UnorderedElementsAre("new"));
  EXPECT_THAT(Values(cluster.Ask(N(2), Get("k", 0, Quorum::kStrict))),
              UnorderedElementsAre("new"));
}

TEST(ShardTest, SyncKeyspaceAnswersOnlyAfterFsync) {
  ShardCluster cluster(
      3, {MakeKeyspace("default", VersionMode::kSiblings, Durability::kSync)});
  cluster.hold_syncs = true;
  const CallId call = cluster.Call(N(1), Put("k", "v"));
  cluster.Settle();
  EXPECT_EQ(cluster.AnswerOf(call), nullptr);
}

TEST(ShardTest, NewActorAfterARestart) {
  ShardCluster cluster(
      3, {MakeKeyspace("default", VersionMode::kSiblings, Durability::kSync)});
  AsPut(cluster.Ask(N(1), Put("k", "a")));
  AsPut(cluster.Ask(N(1), Put("k", "b")));
  cluster.Restart(N(1));
  AsPut(cluster.Ask(N(1), Put("k", "c")));
  const auto object = DecodeObject(*cluster.Stored(N(1), "k"));
  ASSERT_TRUE(object.ok());
  ASSERT_EQ(object->clock.entries().size(), 2u);
  std::multiset<uint64_t> counters;
  for (const ClockEntry& entry : object->clock.entries()) {
    EXPECT_EQ(entry.actor.node, N(1));
    counters.insert(entry.counter);
  }
  EXPECT_EQ(counters, (std::multiset<uint64_t>{1, 2}));
}

TEST(ShardTest, RestoredDiskDoesNotReuseDots) {
  // Scenario: 100 puts, the disk goes back to before them, one more put.
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", "first")));
  ASSERT_TRUE(cluster.engine(N(1)).Sync().ok());
  for (int i = 0; i < 100; ++i) {
    AsPut(cluster.Ask(N(1), Put("k", std::to_string(i))));
  }
  cluster.Restart(N(1));  // what was not synced is gone
  AsPut(cluster.Ask(N(1), Blind("k", "z")));
  const auto values = Values(cluster.Ask(N(2), Get("k", 3)));
  EXPECT_THAT(values, ::testing::Contains("z"));
  EXPECT_THAT(values, ::testing::Contains("99"));
}

TEST(ShardTest, LwwPutThatSawAnotherWinsWhateverTheClocks) {
  ShardCluster cluster(3, {MakeKeyspace("default", VersionMode::kLww)});
  cluster.StepWall(absl::Seconds(3));
  AsPut(cluster.Ask(N(1), Put("k", "from the future")));
  cluster.StepWall(absl::Seconds(-3));
  const auto context = AsGet(cluster.Ask(N(2), Get("k"))).context;
  AsPut(cluster.Ask(N(2), PutWith("k", "later", context)));
  EXPECT_THAT(Values(cluster.Ask(N(3), Get("k", 3))),
              UnorderedElementsAre("later"));
  AsPut(cluster.Ask(N(3), Put("k", "plain")));
  EXPECT_THAT(Values(cluster.Ask(N(1), Get("k", 3))),
              UnorderedElementsAre("plain"));
}

TEST(ShardTest, ExpiredValueIsNotShownAndStaysStored) {
  ShardCluster cluster(3);
  PutCall put = Put("k", "v");
  put.ttl = absl::Seconds(30);
  AsPut(cluster.Ask(N(1), put));
  EXPECT_EQ(Values(cluster.Ask(N(2), Get("k"))).size(), 1u);
  cluster.Advance(absl::Seconds(31));
  EXPECT_EQ(Values(cluster.Ask(N(2), Get("k"))).size(), 0u);
  EXPECT_TRUE(cluster.Stored(N(2), "k").has_value());
}

TEST(ShardTest, RepeatIsAnsweredFromTheRememberedOutcome) {
  ShardCluster cluster(3);
  PutCall put = Blind("k", "v");
  put.request.id = "one";
  AsPut(cluster.Ask(N(1), put));
  put.request.age = absl::Seconds(1);
  put.request.coordinator_start_id = cluster.start_id(N(1));
  AsPut(cluster.Ask(N(1), put));
  EXPECT_THAT(Values(cluster.Ask(N(2), Get("k"))), UnorderedElementsAre("v"));
  // Another operation under the id.
  put.value = "w";
  EXPECT_EQ(cluster.Ask(N(1), put).status.code(),
            absl::StatusCode::kInvalidArgument);
  // Another run.
  cluster.Restart(N(1));
  put.value = "v";
  EXPECT_EQ(cluster.Ask(N(1), put).status.code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ShardTest, RepeatOfAFailedPutContinuesItsDot) {
  ShardCluster cluster(3);
  cluster.drop = [](NodeNumber, const OutgoingMessage& message) {
    return std::holds_alternative<WriteRequest>(message.message.body);
  };
  PutCall put = Blind("k", "v");
  put.request.id = "one";
  EXPECT_EQ(cluster.Ask(N(1), put, absl::Seconds(1)).status.code(),
            absl::StatusCode::kUnavailable);
  cluster.drop = nullptr;
  put.request.age = absl::Seconds(2);
  put.request.coordinator_start_id = cluster.start_id(N(1));
  AsPut(cluster.Ask(N(1), put));
  EXPECT_THAT(Values(cluster.Ask(N(2), Get("k", 3))),
              UnorderedElementsAre("v"));
}

TEST(ShardTest, RepeatOlderThanWhatIsRememberedIsRefused) {
  ShardCluster cluster(3);
  PutCall put = Blind("k", "v");
  put.request.id = "old";
  put.request.age = absl::Hours(1);
  put.request.coordinator_start_id = cluster.start_id(N(1));
  EXPECT_EQ(cluster.Ask(N(1), put).status.code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ShardTest, ForwardedPutIsNotTriedElsewhereWhenItsFateIsUnknown) {
  ShardCluster cluster(5);
  const std::string key = cluster.KeyOn(N(1), /*replica=*/false);
  cluster.drop = [](NodeNumber, const OutgoingMessage& message) {
    return std::holds_alternative<ForwardReply>(message.message.body);
  };
  const ClientAnswer answer =
      cluster.Ask(N(1), Blind(key, "v"), absl::Seconds(1));
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(answer.status.message()),
              HasSubstr("may still take effect"));
  cluster.drop = nullptr;
  EXPECT_THAT(Values(cluster.Ask(N(2), Get(key))), UnorderedElementsAre("v"));
}

TEST(ShardTest, ScanListsEveryLiveKeyOnceInTokenOrder) {
  for (const bool one_down : {false, true}) {
    ShardCluster cluster(5);
    std::set<std::string> keys;
    for (int i = 0; i < 300; ++i) {
      const std::string key = "key" + std::to_string(i);
      AsPut(cluster.Ask(N(1 + i % 5), Put(key, "v")));
      if (i % 10 == 0) {
        AsPut(cluster.Ask(N(1), Delete(key)));
      } else {
        keys.insert(key);
      }
    }
    cluster.Advance(absl::Seconds(1));
    if (one_down) cluster.SetUp(N(4), false);
    std::set<std::string> seen;
    Token last = 0;
    ScanCall scan;
    scan.limit = 17;
    do {
      const ClientAnswer answer = cluster.Ask(N(2), scan);
      ASSERT_TRUE(answer.status.ok()) << answer.status;
      const ScanAnswer& page = std::get<ScanAnswer>(answer.answer);
      EXPECT_LE(page.entries.size(), 17u);
      for (const auto& entry : page.entries) {
        EXPECT_TRUE(seen.insert(entry.key).second) << entry.key;
        EXPECT_GE(TokenOf(entry.key), last);
        last = TokenOf(entry.key);
      }
      scan.cursor = page.cursor;
    } while (!scan.cursor.empty());
    EXPECT_EQ(seen, keys);
  }
}

TEST(ShardTest, ScanRefusesWhenASegmentLacksReplicas) {
  ShardCluster cluster(5);
  AsPut(cluster.Ask(N(1), Put("k", "v")));
  cluster.SetUp(N(4), false);
  cluster.SetUp(N(5), false);
  const ClientAnswer answer = cluster.Ask(N(1), ScanCall{});
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kUnavailable);
  ScanCall scan;
  scan.cursor = "rubbish";
  EXPECT_EQ(cluster.Ask(N(1), scan).status.code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ShardTest, LocateShowsEveryReplicaAndStandIn) {
  ShardCluster cluster(5);
  const auto replicas = cluster.Replicas("k");
  cluster.SetUp(replicas[2], false);
  AsPut(cluster.Ask(replicas[0], Put("k", "v")));
  cluster.Advance(absl::Seconds(1));
  LocateCall locate;
  locate.key = "k";
  const ClientAnswer answer = cluster.Ask(replicas[0], locate);
  ASSERT_TRUE(answer.status.ok());
  const auto& found = std::get<LocateAnswer>(answer.answer);
  ASSERT_EQ(found.copies.size(), 4u);
  EXPECT_EQ(found.copies[0].digest, found.copies[1].digest);
  EXPECT_FALSE(found.copies[2].status.ok());
  EXPECT_FALSE(found.copies[3].replica);
  EXPECT_EQ(found.copies[3].hint_for, std::vector<NodeNumber>{replicas[2]});
}

TEST(ShardTest, TooManySiblingsAreRefusedAndCanBeResolved) {
  ShardCluster cluster(3);
  for (size_t i = 0; i < kSiblingsMax; ++i) {
    AsPut(cluster.Ask(N(1), Blind("k", std::to_string(i))));
  }
  const ClientAnswer refused = cluster.Ask(N(1), Blind("k", "one more"));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kInvalidArgument);
  const ClientAnswer all = cluster.Ask(N(1), Get("k"));
  EXPECT_EQ(Values(all).size(), kSiblingsMax);
  AsPut(cluster.Ask(N(1), PutWith("k", "merged", AsGet(all).context)));
  EXPECT_THAT(Values(cluster.Ask(N(2), Get("k"))),
              UnorderedElementsAre("merged"));
}

TEST(ShardTest, AnswerAboveTheLimitNamesTheSizeToAskWith) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", std::string(5000, 'x'))));
  GetCall get = Get("k");
  get.max_answer_bytes = 1000;
  const ClientAnswer refused = cluster.Ask(N(1), get);
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("1000"));
}

TEST(ShardTest, UncachedReadsGoThroughTheReaderAndKeepTheirOrder) {
  ShardCluster cluster(3);
  cluster.engine(N(1)).set_not_cached(
      [](Family, absl::string_view) { return true; });
  for (int i = 0; i < 10; ++i)
    cluster.Call(N(1), Blind("k", std::to_string(i)));
  cluster.Settle();
  cluster.Advance(absl::Seconds(1));
  EXPECT_EQ(Values(cluster.Ask(N(2), Get("k", 3))).size(), 10u);
}

TEST(ShardTest, DrainedShardRefusesNewCallsAndFinishesOld) {
  ShardCluster cluster(3);
  const CallId running = cluster.Call(N(1), Put("k", "v"));
  cluster.Settle();
  cluster.shard(N(1)).Drain();
  EXPECT_TRUE(cluster.AnswerOf(running)->status.ok());
  EXPECT_EQ(cluster.Ask(N(1), Get("k")).status.code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(cluster.shard(N(1)).in_flight(), 0u);
}

// A copy that is damaged at its coordinator.
TEST(ShardTest, PutGoesOnWithoutTheCoordinatorsDamagedCopyWhichIsRebuilt) {
  ShardCluster cluster(4);
  const std::string key = cluster.KeyOn(N(1));
  AsPut(cluster.Ask(N(1), Put(key, "old")));
  const auto whole = cluster.Stored(N(1), key);
  cluster.Damage(N(1), key);
  const PutAnswer put = AsPut(cluster.Ask(N(1), Blind(key, "new")));
  EXPECT_EQ(put.replica_acks + put.stand_in_acks, 2u);
  cluster.Advance(absl::Seconds(10));
  EXPECT_EQ(cluster.shard(N(1)).Stats().copies_rebuilt, 1u);
  for (NodeNumber node : cluster.Replicas(key)) {
    EXPECT_EQ(cluster.Stored(node, key), cluster.Stored(N(1), key));
  }
  EXPECT_NE(cluster.Stored(N(1), key), whole);
  EXPECT_THAT(Values(cluster.Ask(N(1), Get(key, 3))),
              UnorderedElementsAre("new", "old"));
}

TEST(ShardTest, ADamagedCopyIsReadFromOthersAndNeverContinued) {
  ShardCluster cluster(3);
  for (int i = 0; i < 3; ++i) AsPut(cluster.Ask(N(1), Put("k", "v")));
  cluster.Damage(N(1), "k");
  EXPECT_THAT(Values(cluster.Ask(N(1), Get("k"))), UnorderedElementsAre("v"));
  cluster.Settle();
  EXPECT_EQ(cluster.Stored(N(1), "k"), cluster.Stored(N(2), "k"));
  // `own` went with the record: the next dot is of a new actor.
  AsPut(cluster.Ask(N(1), Put("k", "w")));
  const auto object = DecodeObject(*cluster.Stored(N(2), "k"));
  ASSERT_TRUE(object.ok());
  EXPECT_EQ(object->clock.entries().size(), 2u);
}

TEST(ShardTest, ADamagedCopyIsNotRebuiltFromTooFew) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", "v")));
  cluster.SetUp(N(3), false);
  cluster.Damage(N(1), "k");
  // What node 3 alone acknowledged with node 1 would be forgotten.
  EXPECT_FALSE(cluster.Ask(N(2), Get("k"), absl::Seconds(1)).status.ok());
  cluster.Advance(absl::Seconds(10));
  EXPECT_EQ(cluster.shard(N(1)).Stats().copies_rebuilt, 0u);
  cluster.SetUp(N(3), true);
  cluster.Advance(absl::Seconds(10));
  EXPECT_EQ(cluster.shard(N(1)).Stats().copies_rebuilt, 1u);
  EXPECT_EQ(cluster.Stored(N(1), "k"), cluster.Stored(N(2), "k"));
}

TEST(ShardTest, TheOnlyCopyStaysDamagedAndSaysSo) {
  Keyspace keyspace = MakeKeyspace("default", VersionMode::kSiblings);
  keyspace.n = keyspace.r = keyspace.w = 1;
  ShardCluster cluster(1, {keyspace});
  AsPut(cluster.Ask(N(1), Put("k", "v")));
  cluster.Damage(N(1), "k");
  EXPECT_EQ(cluster.Ask(N(1), Get("k"), absl::Seconds(1)).status.code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(cluster.shard(N(1)).Stats().copies_rebuilt, 0u);
}

TEST(ShardTest, ReadsOfANodeWhoseDiskIsNotCheckedDoNotCount) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(2), Put("k", "v")));
  auto peers = std::make_shared<PeerView>();
  for (const Member& member : cluster.ring().spec().members) {
    (*peers)[member.number].alive = true;
  }
  cluster.Tell(N(1), PeersChanged{peers, true, /*checked=*/false});
  EXPECT_FALSE(cluster.Ask(N(2), Get("k", 3), absl::Seconds(1)).status.ok());
  EXPECT_THAT(Values(cluster.Ask(N(1), Get("k"))), UnorderedElementsAre("v"));
  EXPECT_GE(cluster.shard(N(1)).Stats().unchecked_refused, 1u);
  // Its writes are as good as any.
  PutCall put = Put("k", "w");
  put.w = 3;
  EXPECT_EQ(AsPut(cluster.Ask(N(2), put)).replica_acks, 3u);
  cluster.Tell(N(1), PeersChanged{peers, true, /*checked=*/true});
  EXPECT_THAT(Values(cluster.Ask(N(2), Get("k", 3))),
              UnorderedElementsAre("w"));
}

TEST(ShardTest, DeletesGoOnWhenEveryDiskIsFull) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", "v")));
  for (int i = 1; i <= 3; ++i) {
    cluster.Tell(N(i), ReadOnlyChanged{/*read_only=*/true});
  }
  EXPECT_EQ(cluster.Ask(N(1), Put("k", "w")).status.code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Values(cluster.Ask(N(1), Get("k", 3))),
              UnorderedElementsAre("v"));
  PutCall remove = Delete("k");
  remove.w = 3;
  EXPECT_EQ(AsPut(cluster.Ask(N(1), remove)).replica_acks, 3u);
  for (int i = 1; i <= 3; ++i) {
    cluster.Tell(N(i), ReadOnlyChanged{/*read_only=*/false});
  }
  AsPut(cluster.Ask(N(1), Put("k", "w")));
}

TEST(ShardTest, AFullReplicaGetsAHintElsewhereAndPutsAreHandedToOthers) {
  ShardCluster cluster(4);
  const std::string key = cluster.KeyOn(N(1));
  cluster.Tell(N(1), ReadOnlyChanged{/*read_only=*/true});
  for (int i = 2; i <= 4; ++i) AsPut(cluster.Ask(N(i), Put(key, "v")));
  EXPECT_EQ(cluster.Stored(N(1), key), std::nullopt);
  cluster.Tell(N(1), ReadOnlyChanged{/*read_only=*/false});
  cluster.Advance(absl::Seconds(20));
  EXPECT_NE(cluster.Stored(N(1), key), std::nullopt);
}

// A strict read of all replicas promises to later ones what they can miss,
// which read fewer.
TEST(ShardTest, AStrictReadOfAllSpreadsAsFarAsOneOfRNeeds) {
  ShardCluster cluster(3);
  AsPut(cluster.Ask(N(1), Put("k", "old")));
  cluster.drop = [](NodeNumber from, const OutgoingMessage& message) {
    return std::holds_alternative<WriteRequest>(message.message.body);
  };
  PutCall put = Put("k", "new");
  put.quorum = Quorum::kStrict;
  EXPECT_FALSE(cluster.Ask(N(1), put, absl::Seconds(1)).status.ok());
  EXPECT_FALSE(cluster.Ask(N(1), Get("k", 3, Quorum::kStrict), absl::Seconds(1))
                   .status.ok());
}

}  // namespace
}  // namespace ringkv
