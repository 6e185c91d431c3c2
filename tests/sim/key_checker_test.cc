#include "tests/sim/key_checker.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::sim {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;

// Writes a history by hand. Operations last from one moment to the next unless
// told otherwise; ids count from 0.
class Story {
 public:
  explicit Story(bool lww = false) {
    history_.keyspace = "space";
    history_.key = "key";
    history_.lww = lww;
  }

  struct Write {
    bool strict = false;
    bool blind = false;
    int context = -1;  // operation whose answer it was taken from
    bool is_delete = false;
    bool unknown = false;
    bool repeated = false;
    bool expires = false;
    WorldTime lasts = 1;
  };
  OperationId Put(Write write) {
    Operation operation = Begin();
    operation.kind =
        write.is_delete ? OperationKind::kDelete : OperationKind::kPut;
    operation.strict = write.strict;
    operation.blind = write.blind;
    operation.repeated = write.repeated;
    operation.expires = write.expires;
    operation.replica_acks = operation.acks_needed = 2;
    operation.answered_context = true;
    if (write.context >= 0) {
      operation.context_from = static_cast<OperationId>(write.context);
    }
    if (write.unknown) {
      operation.outcome = Outcome::kUnknown;
      operation.ended = kForever;
    } else {
      operation.ended = operation.invoked + write.lasts;
    }
    return Add(operation);
  }

  struct Read {
    bool strict = false;
    bool context = true;
    std::vector<uint64_t> stamps;  // parallel to the values
  };
  OperationId Get(std::vector<OperationId> values, Read read) {
    return Add(MakeGet(std::move(values), read));
  }

  void Final(std::vector<OperationId> values, Read read) {
    final_ = MakeGet(std::move(values), read);
    final_.id = 1000;
    has_final_ = true;
  }
  void LosePower(WorldTime from, WorldTime at) {
    losses_.losses.push_back({from, at});
  }
  void Pass(WorldTime time) { now_ += time; }
  WorldTime now() const { return now_; }

  std::vector<std::string> Checks() {
    std::vector<Violation> violations;
    CheckKey(history_, losses_, has_final_ ? &final_ : nullptr, violations);
    std::vector<std::string> names;
    for (const Violation& violation : violations) {
      names.push_back(violation.check);
    }
    return names;
  }

 private:
  Operation Begin() {
    Operation operation;
    operation.id = static_cast<OperationId>(history_.operations.size());
    operation.invoked = now_;
    operation.outcome = Outcome::kOk;
    now_ += 10;
    return operation;
  }
  Operation MakeGet(std::vector<OperationId> values, const Read& read) {
    Operation operation = Begin();
    operation.kind = OperationKind::kGet;
    operation.strict = read.strict;
    operation.ended = operation.invoked + 1;
    operation.answered_context = read.context;
    for (size_t i = 0; i < values.size(); ++i) {
      operation.shown.push_back(
          {values[i], i < read.stamps.size() ? read.stamps[i] : 0, ""});
    }
    return operation;
  }
  OperationId Add(Operation operation) {
    history_.operations.push_back(operation);
    return operation.id;
  }

  KeyHistory history_;
  Losses losses_;
  Operation final_;
  bool has_final_ = false;
  WorldTime now_ = 100;
};

TEST(KeyCheckerTest, AcceptsAChainOfReadsAndPutsWithTheirContexts) {
  Story story;
  const OperationId a = story.Put({.blind = true});
  const OperationId read = story.Get({a}, {});
  const OperationId b = story.Put({.context = static_cast<int>(read)});
  story.Final({b}, {});
  EXPECT_THAT(story.Checks(), IsEmpty());
}

TEST(KeyCheckerTest, FindsAnAcknowledgedBlindPutThatIsGone) {
  Story story;
  story.Put({.blind = true});
  const OperationId b = story.Put({.blind = true});
  story.Final({b}, {});
  EXPECT_THAT(story.Checks(), Contains("P1"));
}

TEST(KeyCheckerTest, FindsAConcurrentValueThatAContextDidNotCover) {
  Story story;
  const OperationId a = story.Put({.blind = true});
  const OperationId read = story.Get({a}, {});
  const OperationId concurrent = story.Put({.blind = true});
  const OperationId b = story.Put({.context = static_cast<int>(read)});
  story.Final({b}, {});
  EXPECT_THAT(story.Checks(), Contains("P1"));

  Story kept;
  kept.Put({.blind = true});
  kept.Get({a}, {});
  kept.Put({.blind = true});
  kept.Put({.context = static_cast<int>(read)});
  kept.Final({concurrent, b}, {});
  EXPECT_THAT(kept.Checks(), IsEmpty());
}

TEST(KeyCheckerTest, LetsAPlainPutReplaceWhatItMayHaveSeen) {
  Story story;
  story.Put({.blind = true});
  const OperationId b = story.Put({});
  story.Final({b}, {});
  EXPECT_THAT(story.Checks(), IsEmpty());
}

TEST(KeyCheckerTest, APlainPutCannotHaveSeenWhatBeganAfterIt) {
  Story story;
  const OperationId b = story.Put({});
  story.Put({.blind = true});
  story.Final({b}, {});
  EXPECT_THAT(story.Checks(), Contains("P1"));
}

TEST(KeyCheckerTest, AnUnknownPutMayHaveReplacedButMustThenBeThere) {
  Story story;
  const OperationId a = story.Put({.blind = true});
  const OperationId read = story.Get({a}, {});
  const OperationId b =
      story.Put({.context = static_cast<int>(read), .unknown = true});
  story.Final({b}, {});
  EXPECT_THAT(story.Checks(), IsEmpty());

  Story gone;
  gone.Put({.blind = true});
  gone.Get({a}, {});
  gone.Put({.context = static_cast<int>(read), .unknown = true});
  gone.Final({}, {});
  EXPECT_THAT(gone.Checks(), Contains("P1"));
}

TEST(KeyCheckerTest, FindsAReplacedValueThatIsBack) {
  Story story;
  const OperationId a = story.Put({.blind = true});
  const OperationId read = story.Get({a}, {});
  const OperationId b = story.Put({.context = static_cast<int>(read)});
  story.Final({a, b}, {});
  EXPECT_THAT(story.Checks(), Contains("P2"));
}

TEST(KeyCheckerTest, FindsADeletedValueThatIsBack) {
  Story story;
  const OperationId a = story.Put({.blind = true});
  const OperationId read = story.Get({a}, {});
  story.Put({.context = static_cast<int>(read), .is_delete = true});
  story.Final({a}, {});
  EXPECT_THAT(story.Checks(), Contains("P2"));
}

TEST(KeyCheckerTest, ARepeatedPutMayComeBackUnderItsOtherDot) {
  Story story;
  const OperationId a = story.Put({.blind = true, .repeated = true});
  const OperationId read = story.Get({a}, {});
  const OperationId b = story.Put({.context = static_cast<int>(read)});
  story.Final({a, b}, {});
  EXPECT_THAT(story.Checks(), IsEmpty());
}

TEST(KeyCheckerTest, APutsContextCoversItsOwnValueOnly) {
  Story story;
  story.Put({.blind = true});
  const OperationId b = story.Put({.blind = true});
  const OperationId c = story.Put({.context = static_cast<int>(b)});
  story.Final({c}, {});
  EXPECT_THAT(story.Checks(), Contains("P1"));
}

TEST(KeyCheckerTest, FindsNothingAtTheEndAfterADeleteOnlyWithAContext) {
  Story story;
  const OperationId a = story.Put({.blind = true});
  const OperationId read = story.Get({a}, {});
  story.Put({.context = static_cast<int>(read), .is_delete = true});
  story.Final({}, {.context = false});
  EXPECT_THAT(story.Checks(), Contains("P1"));
}

TEST(KeyCheckerTest, FindsAStrictReadThatMissesAStrictWrite) {
  Story story;
  story.Put({.strict = true, .blind = true});
  story.Get({}, {.strict = true, .context = false});
  EXPECT_THAT(story.Checks(), Contains("P5"));
}

TEST(KeyCheckerTest, ASloppyReadMayMissAnything) {
  Story story;
  story.Put({.strict = true, .blind = true});
  story.Get({}, {.context = false});
  EXPECT_THAT(story.Checks(), IsEmpty());
}

TEST(KeyCheckerTest, FindsStrictReadsThatGoBack) {
  Story story;
  const OperationId a =
      story.Put({.strict = true, .blind = true, .unknown = true});
  story.Get({a}, {.strict = true});
  story.Get({}, {.strict = true});
  EXPECT_THAT(story.Checks(), Contains("P5"));
}

TEST(KeyCheckerTest, FindsAValueThatAStrictReadShowsAgain) {
  Story story;
  const OperationId a = story.Put({.strict = true, .blind = true});
  const OperationId b = story.Put({.unknown = true});
  story.Get({b}, {.strict = true});
  story.Get({a, b}, {.strict = true});
  EXPECT_THAT(story.Checks(), Contains("P5"));
}

TEST(KeyCheckerTest, AStrictPlainPutReplacesWhatWasSettled) {
  Story story;
  const OperationId a = story.Put({.strict = true, .blind = true});
  const OperationId b = story.Put({.strict = true});
  story.Get({a, b}, {.strict = true});
  EXPECT_THAT(story.Checks(), Contains("P2"));
}

TEST(KeyCheckerTest, APowerLossExcusesOnlyWhatItCanHaveTaken) {
  Story story;
  story.Put({.blind = true});
  story.Put({.blind = true});
  story.Final({}, {.context = false});
  story.LosePower(0, 10000);
  EXPECT_THAT(story.Checks(), Contains("P1"));  // one of two copies
  story.LosePower(0, 10000);
  EXPECT_THAT(story.Checks(), IsEmpty());

  Story later;
  later.Put({.blind = true});
  later.Final({}, {.context = false});
  later.LosePower(150, 10000);
  later.LosePower(150, 10000);
  EXPECT_THAT(later.Checks(), Contains("P1"));  // fsynced by then
}

TEST(KeyCheckerTest, FindsValuesThatNobodyWroteAndThatAreShownTwice) {
  Story story;
  const OperationId a = story.Put({.blind = true});
  story.Get({77}, {});
  EXPECT_THAT(story.Checks(), Contains("P3"));
  Story twice;
  twice.Put({.blind = true});
  twice.Get({a, a}, {});
  EXPECT_THAT(twice.Checks(), Contains("P3"));
}

TEST(KeyCheckerTest, ExpiringValuesMayGo) {
  Story story;
  story.Put({.blind = true, .expires = true});
  story.Final({}, {});
  EXPECT_THAT(story.Checks(), IsEmpty());
}

TEST(KeyCheckerTest, LwwKeepsEitherOfTwoConcurrentWrites) {
  for (const OperationId winner : {0u, 1u}) {
    Story story(true);
    story.Put({});
    story.Put({});
    story.Final({winner}, {});
    EXPECT_THAT(story.Checks(), IsEmpty());
  }
}

TEST(KeyCheckerTest, LwwFindsAWriteThatLostToWhatItHadSeen) {
  Story story(true);
  const OperationId a = story.Put({});
  const OperationId read = story.Get({a}, {.stamps = {500}});
  story.Put({.context = static_cast<int>(read)});
  story.Final({a}, {.stamps = {500}});
  EXPECT_THAT(story.Checks(), Contains("P1"));
}

TEST(KeyCheckerTest, LwwFindsAnOlderStampAtTheEnd) {
  Story story(true);
  const OperationId a = story.Put({});
  const OperationId b = story.Put({});
  story.Get({b}, {.stamps = {900}});
  story.Final({a}, {.stamps = {500}});
  EXPECT_THAT(story.Checks(), Contains("P1"));
}

TEST(KeyCheckerTest, LwwFindsAStampThatChanges) {
  Story story(true);
  const OperationId a = story.Put({});
  story.Get({a}, {.stamps = {500}});
  story.Final({a}, {.stamps = {501}});
  EXPECT_THAT(story.Checks(), Contains("P3"));
}

TEST(KeyCheckerTest, LwwFindsAStrictReadThatIsOlderThanASettledWrite) {
  Story story(true);
  const OperationId a = story.Put({.strict = true});
  story.Put({.strict = true});
  story.Get({a}, {.strict = true, .stamps = {500}});
  EXPECT_THAT(story.Checks(), Contains("P5"));
}

TEST(KeyCheckerTest, LwwFindsNothingWithoutADelete) {
  Story story(true);
  story.Put({});
  story.Final({}, {});
  EXPECT_THAT(story.Checks(), Contains("P1"));
  Story deleted(true);
  deleted.Put({});
  deleted.Put({.is_delete = true});
  deleted.Final({}, {});
  EXPECT_THAT(deleted.Checks(), IsEmpty());
}

TEST(HistoryTest, ValuesNameTheirWriterAndNothingElseDoes) {
  for (const size_t bytes : {0u, 5u, 40u, 4000u}) {
    EXPECT_EQ(WriterOf(ValueOf(123, bytes)), 123u);
  }
  std::string damaged = ValueOf(123, 40);
  damaged[30] ^= 1;
  EXPECT_EQ(WriterOf(damaged), kNoOperation);
  EXPECT_EQ(WriterOf(""), kNoOperation);
  EXPECT_EQ(WriterOf("w12"), kNoOperation);
}

}  // namespace
}  // namespace ringkv::sim
