#include "storage/version/object.h"

#include <string>
#include <vector>

#include "base/coding.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;

constexpr KeyspaceId kKeyspace{7};

Actor ActorOf(uint32_t node, uint64_t birth) {
  return {NodeNumber{node}, birth};
}
Dot DotOf(uint32_t node, uint64_t counter) {
  return {ActorOf(node, 100 + node), counter};
}
Stamp StampOf(uint64_t hlc, uint32_t node = 1) {
  return {HlcTimestamp{hlc}, NodeNumber{node}};
}
Object Put(const Object* local, const Clock& context, Dot dot,
           std::string value, uint64_t hlc = 1) {
  return ApplyPut(local, context, {dot, StampOf(hlc), 0, std::move(value)});
}
std::vector<std::string> Values(const Object& object) {
  std::vector<std::string> values;
  for (const Sibling& sibling : object.siblings) {
    values.push_back(sibling.value);
  }
  return values;
}
Object Sample() {
  Object object = Put(nullptr, {}, DotOf(1, 1), "one", 5);
  object = Put(&object, {}, DotOf(300, 70000), std::string("t\0o", 3), 9);
  object.siblings[0].expires_at_ms = 1234567890123;
  return object;
}

TEST(ClockTest, CoversWhatWasAddedAndAllBefore) {
  Clock clock;
  clock.Add(DotOf(2, 3));
  clock.Add(DotOf(1, 1));
  clock.Add(DotOf(2, 2));
  EXPECT_EQ(clock.CounterOf(DotOf(2, 1).actor), 3u);
  EXPECT_TRUE(clock.Covers(DotOf(2, 1)));
  EXPECT_FALSE(clock.Covers(DotOf(2, 4)));
  EXPECT_FALSE(clock.Covers(DotOf(3, 1)));
  ASSERT_EQ(clock.entries().size(), 2u);
  EXPECT_EQ(clock.entries()[0].actor, DotOf(1, 1).actor);
}

TEST(ClockTest, ActorsOfOneNodeDifferByBirth) {
  Clock clock;
  clock.Add({ActorOf(1, 10), 5});
  EXPECT_FALSE(clock.Covers(Dot{ActorOf(1, 11), 1}));
}

TEST(ObjectTest, PutWithContextReplacesAndWithoutBecomesSibling) {
  const Object first = Put(nullptr, {}, DotOf(1, 1), "a");
  const Object replaced = Put(&first, first.clock, DotOf(1, 2), "b");
  EXPECT_THAT(Values(replaced), testing::ElementsAre("b"));
  const Object beside = Put(&first, {}, DotOf(1, 2), "b");
  EXPECT_THAT(Values(beside), testing::ElementsAre("a", "b"));
}

TEST(ObjectTest, ConcurrentPutsSurviveTheMergeUntilOneContextCoversBoth) {
  const Object base = Put(nullptr, {}, DotOf(1, 1), "base");
  const Object left = Put(&base, base.clock, DotOf(1, 2), "left");
  const Object right = Put(&base, base.clock, DotOf(2, 1), "right");
  const Object both = Merge(left, right);
  EXPECT_THAT(Values(both), testing::ElementsAre("left", "right"));
  const Object resolved = Put(&both, both.clock, DotOf(2, 2), "resolved");
  EXPECT_THAT(Values(Merge(resolved, left)), testing::ElementsAre("resolved"));
  EXPECT_THAT(Values(Merge(base, resolved)), testing::ElementsAre("resolved"));
}

TEST(ObjectTest, DeleteWinsOverWhatItSawAndKeepsWhatItDidNot) {
  const Object seen = Put(nullptr, {}, DotOf(1, 1), "seen");
  const Object unseen = Put(&seen, {}, DotOf(2, 1), "unseen");
  const Object deleted = ApplyDelete(&seen, seen.clock, StampOf(9));
  EXPECT_TRUE(deleted.IsTombstone());
  EXPECT_EQ(deleted.newest, StampOf(9));
  EXPECT_TRUE(Merge(deleted, seen).IsTombstone());
  EXPECT_THAT(Values(Merge(deleted, unseen)), testing::ElementsAre("unseen"));
}

TEST(ObjectTest, DeleteWhereNothingIsHeldStillCoversItsContext) {
  const Object elsewhere = Put(nullptr, {}, DotOf(1, 1), "elsewhere");
  const Object tombstone = ApplyDelete(nullptr, elsewhere.clock, StampOf(3));
  EXPECT_TRUE(Merge(elsewhere, tombstone).IsTombstone());
}

TEST(ObjectTest, NewestIsTheGreatestStampEverMergedIn) {
  const Object early = Put(nullptr, {}, DotOf(1, 1), "early", 10);
  const Object late = Put(nullptr, {}, DotOf(2, 1), "late", 20);
  EXPECT_EQ(Merge(early, late).newest, StampOf(20));
  EXPECT_EQ(Merge(late, early).newest, StampOf(20));
  const Object replaced = Put(&late, late.clock, DotOf(2, 2), "old clock", 15);
  EXPECT_EQ(replaced.newest, StampOf(20));
}

TEST(ObjectTest, EqualDotsWithUnequalValuesTakeTheGreaterBytesAndAreCounted) {
  const Object a = Put(nullptr, {}, DotOf(1, 1), "a");
  const Object b = Put(nullptr, {}, DotOf(1, 1), "b");
  MergeReport report;
  EXPECT_EQ(Merge(a, b, &report), b);
  EXPECT_EQ(Merge(b, a, &report), b);
  EXPECT_EQ(report.equal_dots_with_unequal_values, 2);
  EXPECT_EQ(Merge(a, a, &report), a);
  EXPECT_EQ(report.equal_dots_with_unequal_values, 2);
}

TEST(ObjectTest, LwwTakesTheGreaterStampThenTheGreaterNode) {
  const Object older = MakeLww(StampOf(1, 9), 0, "z");
  const Object newer = MakeLww(StampOf(2, 1), 0, "a");
  const Object same_time = MakeLww(StampOf(2, 2), 0, "0");
  MergeReport report;
  EXPECT_EQ(Merge(older, newer, &report), newer);
  EXPECT_EQ(report.lww_dropped, 1);
  EXPECT_EQ(Merge(newer, same_time, &report), same_time);
  EXPECT_EQ(Merge(same_time, newer, &report), same_time);
  EXPECT_EQ(report.lww_ties, 0);
}

TEST(ObjectTest, LwwTieIsDecidedByBytesInEitherOrder) {
  const Object a = MakeLww(StampOf(2), 0, "a");
  const Object b = MakeLww(StampOf(2), 0, "b");
  const Object tombstone = MakeLwwTombstone(StampOf(2));
  MergeReport report;
  EXPECT_EQ(Merge(a, b, &report), b);
  EXPECT_EQ(Merge(b, a, &report), b);
  EXPECT_EQ(Merge(tombstone, a, &report), Merge(a, tombstone, &report));
  EXPECT_EQ(report.lww_ties, 4);
  EXPECT_EQ(Merge(a, a, &report), a);
  EXPECT_EQ(report.lww_ties, 4);
}

TEST(ObjectCodecTest, GivesBackWhatItWasGiven) {
  const std::vector<Object> objects = {
      Object{},
      Sample(),
      MakeLww(StampOf(5), 99, "v"),
      MakeLww(StampOf(5), -1, ""),
      MakeLwwTombstone(StampOf(UINT64_MAX)),
      ApplyDelete(nullptr, Sample().clock, StampOf(77))};
  for (const Object& object : objects) {
    const auto decoded = DecodeObject(EncodeObject(object));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, object);
  }
}

TEST(ObjectCodecTest, EqualObjectsHaveEqualBytesWhateverTheirHistory) {
  const Object a = Put(nullptr, {}, DotOf(1, 1), "a");
  const Object b = Put(nullptr, {}, DotOf(2, 1), "b");
  EXPECT_EQ(EncodeObject(Merge(a, b)), EncodeObject(Merge(b, a)));
}

TEST(ObjectCodecTest, NewerFormatNamesBothVersions) {
  std::string bytes = EncodeObject(Sample());
  bytes[0] = 9;
  const absl::Status status = DecodeObject(bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 9"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 1"));
}

TEST(ObjectCodecTest, RefusesTruncatedAndTrailingBytes) {
  const std::string bytes = EncodeObject(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(DecodeObject(bytes.substr(0, size)).status().code(),
              absl::StatusCode::kDataLoss)
        << size;
  }
  EXPECT_EQ(DecodeObject(bytes + "x").status().code(),
            absl::StatusCode::kDataLoss);
}

// Format, mode and newest, up to where the clock begins.
std::string ObjectHead() {
  std::string out;
  AppendByte(out, 1);
  AppendByte(out, 0);
  AppendFixed64(out, 50);
  AppendVarint(out, 1);
  return out;
}
void AppendEntry(std::string& out, uint32_t node, uint64_t counter) {
  AppendVarint(out, node);
  AppendFixed64(out, 0);
  AppendVarint(out, counter);
}
void AppendSibling(std::string& out, uint64_t place, uint64_t counter) {
  AppendVarint(out, place);
  AppendVarint(out, counter);
  AppendFixed64(out, 50);
  AppendVarint(out, 1);
  AppendVarint(out, 0);
  AppendBytes(out, "value");
}

struct Malformed {
  const char* what;
  std::string bytes;
};
std::vector<Malformed> MalformedObjects() {
  std::vector<Malformed> all;
  const auto add = [&all](const char* what, auto&& fill) {
    std::string bytes = ObjectHead();
    fill(bytes);
    all.push_back({what, std::move(bytes)});
  };
  add("unsorted clock", [](std::string& out) {
    AppendVarint(out, 2);
    AppendEntry(out, 2, 1);
    AppendEntry(out, 1, 1);
    AppendVarint(out, 0);
  });
  add("an actor twice", [](std::string& out) {
    AppendVarint(out, 2);
    AppendEntry(out, 1, 1);
    AppendEntry(out, 1, 2);
    AppendVarint(out, 0);
  });
  add("zero counter in the clock", [](std::string& out) {
    AppendVarint(out, 1);
    AppendEntry(out, 1, 0);
    AppendVarint(out, 0);
  });
  add("a dot twice", [](std::string& out) {
    AppendVarint(out, 1);
    AppendEntry(out, 1, 5);
    AppendVarint(out, 2);
    AppendSibling(out, 0, 5);
    AppendSibling(out, 0, 5);
  });
  add("unsorted siblings", [](std::string& out) {
    AppendVarint(out, 1);
    AppendEntry(out, 1, 5);
    AppendVarint(out, 2);
    AppendSibling(out, 0, 5);
    AppendSibling(out, 0, 4);
  });
  add("a dot with counter zero", [](std::string& out) {
    AppendVarint(out, 1);
    AppendEntry(out, 1, 5);
    AppendVarint(out, 1);
    AppendSibling(out, 0, 0);
  });
  add("a dot above the clock", [](std::string& out) {
    AppendVarint(out, 1);
    AppendEntry(out, 1, 5);
    AppendVarint(out, 1);
    AppendSibling(out, 0, 6);
  });
  add("a dot of an actor that the clock lacks", [](std::string& out) {
    AppendVarint(out, 1);
    AppendEntry(out, 1, 5);
    AppendVarint(out, 1);
    AppendSibling(out, 1, 1);
  });
  add("more clock entries than bytes", [](std::string& out) {
    AppendVarint(out, UINT64_MAX);
    AppendEntry(out, 1, 5);
  });
  add("more siblings than bytes", [](std::string& out) {
    AppendVarint(out, 1);
    AppendEntry(out, 1, 5);
    AppendVarint(out, uint64_t{1} << 40);
    AppendSibling(out, 0, 1);
  });
  add("an overlong varint", [](std::string& out) {
    out += std::string("\x80\x00", 2);
    AppendVarint(out, 0);
  });
  add("a node number above 32 bits", [](std::string& out) {
    AppendVarint(out, 1);
    AppendVarint(out, uint64_t{1} << 32);
    AppendFixed64(out, 0);
    AppendVarint(out, 1);
    AppendVarint(out, 0);
  });
  all.push_back({"unknown mode", std::string("\x01\x02", 2) +
                                     EncodeObject(Object{}).substr(2)});
  std::string two_values = EncodeObject(MakeLww(StampOf(1), 0, "v"));
  two_values[2 + 8 + 1] = 2;
  all.push_back({"two values in lww", two_values + std::string("\0\1v", 3)});
  all.push_back({"format zero", std::string(20, '\0')});
  return all;
}

TEST(ObjectCodecTest, RefusesWhatEncodeNeverMakes) {
  for (const Malformed& malformed : MalformedObjects()) {
    EXPECT_EQ(DecodeObject(malformed.bytes).status().code(),
              absl::StatusCode::kDataLoss)
        << malformed.what;
  }
}

TEST(DigestTest, TellsEveryFieldAndIsZeroOnlyForNothing) {
  EXPECT_EQ(DigestOf(""), 0u);
  const Object sample = Sample();
  std::vector<Object> variants(7, sample);
  variants[1].siblings[0].expires_at_ms += 1;
  variants[2].siblings[0].stamp = StampOf(6);
  variants[3].siblings[0].value += "x";
  variants[4].newest = StampOf(99);
  variants[5].clock.Add(DotOf(5, 1));
  variants[6].siblings.pop_back();
  for (size_t i = 0; i < variants.size(); ++i) {
    EXPECT_NE(DigestOf(EncodeObject(variants[i])), 0u);
    for (size_t j = 0; j < i; ++j) {
      EXPECT_NE(DigestOf(EncodeObject(variants[i])),
                DigestOf(EncodeObject(variants[j])))
          << i << " " << j;
    }
  }
}

TEST(ContextTest, GivesBackWhatItWasGiven) {
  const Context context = ContextOf(Sample(), kKeyspace, "key");
  const auto decoded = DecodeContext(EncodeContext(context), kKeyspace, "key");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, context);
  EXPECT_EQ(decoded->newest, Sample().newest.hlc);
}

TEST(ContextTest, RefusesTruncatedFlippedOrForeignOnesAndNamesTheRemedy) {
  const std::string bytes =
      EncodeContext(ContextOf(Sample(), kKeyspace, "key"));
  std::vector<absl::Status> refusals = {
      DecodeContext("", kKeyspace, "key").status(),
      DecodeContext(bytes + "x", kKeyspace, "key").status(),
      DecodeContext(bytes, kKeyspace, "kez").status(),
      DecodeContext(bytes, KeyspaceId{8}, "key").status()};
  for (size_t size = 0; size < bytes.size(); ++size) {
    refusals.push_back(
        DecodeContext(bytes.substr(0, size), kKeyspace, "key").status());
  }
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    refusals.push_back(DecodeContext(flipped, kKeyspace, "key").status());
  }
  for (const absl::Status& status : refusals) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("read the key again and use that context"));
  }
}

TEST(StoredTest, GivesBackOwnAndObject) {
  const std::string object = EncodeObject(Sample());
  const OwnRecord own{1, UINT64_MAX, 300};
  const auto with_own = DecodeStored(EncodeStored(own, object));
  ASSERT_TRUE(with_own.ok());
  EXPECT_EQ(with_own->own, own);
  EXPECT_EQ(with_own->object, object);
  const auto without = DecodeStored(EncodeStored(std::nullopt, object));
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->own, std::nullopt);
  EXPECT_EQ(without->object, object);
}

TEST(StoredTest, RefusesMalformedRecords) {
  const std::string bytes = EncodeStored(OwnRecord{1, 2, 3}, "o");
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(DecodeStored(bytes.substr(0, size)).status().code(),
              absl::StatusCode::kDataLoss);
  }
  std::string newer = bytes;
  newer[0] = 2;
  EXPECT_EQ(DecodeStored(newer).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::string flag = bytes;
  flag[1] = 2;
  EXPECT_EQ(DecodeStored(flag).status().code(), absl::StatusCode::kDataLoss);
}

TEST(DataKeyTest, OrdersByKeyspaceThenTokenThenKey) {
  const std::vector<std::string> keys = {
      DataKey(KeyspaceId{1}, UINT64_MAX, "z"),
      DataKey(KeyspaceId{2}, 0, ""),
      DataKey(KeyspaceId{2}, 0, std::string(1, '\0')),
      DataKey(KeyspaceId{2}, 255, "b"),
      DataKey(KeyspaceId{2}, 256, "a"),
      DataKey(KeyspaceId{256}, 0, "a")};
  for (size_t i = 1; i < keys.size(); ++i) EXPECT_LT(keys[i - 1], keys[i]);
  const auto parts = ParseDataKey(keys[4]);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->keyspace, KeyspaceId{2});
  EXPECT_EQ(parts->token, 256u);
  EXPECT_EQ(parts->key, "a");
  EXPECT_EQ(ParseDataKey(std::string(11, 'x')).status().code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ringkv
