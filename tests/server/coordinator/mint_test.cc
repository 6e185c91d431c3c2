#include "server/coordinator/mint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringkv {
namespace {

using ::testing::HasSubstr;

constexpr NodeNumber kSelf{7};
constexpr uint64_t kStart = 42;

class MintTest : public ::testing::Test {
 protected:
  MintTest() : hlc_(kNeverHlc), random_(1) {
    hlc_.RaiseBound(HlcTimestamp{~uint64_t{0} >> 1});
    keyspace_.id = KeyspaceId{1};
    put_.key = "k";
    put_.value = "v";
  }

  absl::StatusOr<Minted> Mint(const ReadResult& found = {}) {
    const MintInput input{keyspace_, put_,  context_,        kSelf,
                          kStart,    wall_, absl::Seconds(5)};
    return MintWrite(input, found, hlc_, random_);
  }

  static ReadResult Found(const Minted& minted) {
    ReadResult found;
    found.outcome = ReadResult::Outcome::kFound;
    found.value = EncodeStored(minted.own, minted.object);
    return found;
  }

  Keyspace keyspace_;
  PutCall put_;
  Context context_;
  WallTime wall_{1700000000000000};
  Hlc hlc_;
  SeededRandom random_;
};

TEST_F(MintTest, ContinuesItsActorWithinOneRunOnly) {
  put_.blind = true;
  const auto first = Mint();
  ASSERT_TRUE(first.ok());
  const auto second = Mint(Found(*first));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->own->birth, first->own->birth);
  EXPECT_EQ(second->own->counter, 2u);

  Minted earlier = *first;
  earlier.own->start_id = kStart + 1;
  const auto after_restart = Mint(Found(earlier));
  ASSERT_TRUE(after_restart.ok());
  EXPECT_NE(after_restart->own->birth, first->own->birth);
  EXPECT_EQ(after_restart->own->counter, 1u);
}

TEST_F(MintTest, NeverContinuesAnActorSeenOnlyInTheClock) {
  put_.blind = true;
  Minted first = *Mint();
  first.own = std::nullopt;  // as after a repair from a peer
  const auto second = Mint(Found(first));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->own->counter, 1u);
  EXPECT_EQ(DecodeObject(second->object)->siblings.size(), 2u);
}

TEST_F(MintTest, DeleteKeepsTheOwnRecord) {
  const auto first = Mint();
  context_ = ContextOf(*DecodeObject(first->object), keyspace_.id, "k");
  put_.is_delete = true;
  const auto gone = Mint(Found(*first));
  ASSERT_TRUE(gone.ok());
  EXPECT_EQ(gone->own, first->own);
  EXPECT_TRUE(DecodeObject(gone->object)->IsTombstone());
}

TEST_F(MintTest, AnswersNoContextOverUnseenSiblings) {
  put_.blind = true;
  const auto first = Mint();
  EXPECT_TRUE(first->write.answer.context.has_value());
  const auto second = Mint(Found(*first));
  EXPECT_FALSE(second->write.answer.context.has_value());
  EXPECT_EQ(second->write.answer.unresolved_siblings, 1u);
}

TEST_F(MintTest, StampsAboveAContextFromTheFutureWithoutFollowingItsClock) {
  keyspace_.mode = VersionMode::kLww;
  context_.newest = HlcFromMillis(wall_.millis() + 3600 * 1000);
  const auto ahead = Mint();
  ASSERT_TRUE(ahead.ok()) << ahead.status();
  EXPECT_GT(DecodeObject(ahead->object)->newest.hlc, context_.newest);
  context_ = Context{};
  const auto plain = Mint();
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_LT(HlcMillis(DecodeObject(plain->object)->newest.hlc),
            wall_.millis() + 1000);
}

TEST_F(MintTest, RefusesWhileTheClockLagsBehindWhatItHasSeen) {
  hlc_.Observe(HlcFromMillis(wall_.millis() + 60 * 1000));
  const auto minted = Mint();
  EXPECT_EQ(minted.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(minted.status().message()), HasSubstr("60000 ms"));
}

TEST_F(MintTest, RefusesToGrowAnObjectBeyondItsLimitAndLetsItShrink) {
  put_.value = std::string(kValueBytesMax, 'x');
  put_.blind = true;
  Minted held = *Mint();
  held = *Mint(Found(held));
  const auto refused = Mint(Found(held));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("3145728"));
  context_ = ContextOf(*DecodeObject(held.object), keyspace_.id, "k");
  EXPECT_TRUE(Mint(Found(held)).ok());
}

TEST_F(MintTest, DamagedRecordIsDataLossAndNothingElse) {
  ReadResult found;
  found.outcome = ReadResult::Outcome::kFound;
  found.value = "rubbish";
  EXPECT_EQ(Mint(found).status().code(), absl::StatusCode::kDataLoss);
  found.outcome = ReadResult::Outcome::kFailed;
  found.status = absl::DataLossError("block checksum");
  EXPECT_EQ(Mint(found).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ringkv
