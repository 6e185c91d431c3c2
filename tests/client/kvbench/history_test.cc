#include "client/bench/history.h"

#include <fstream>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

uint64_t Write(History& history, uint64_t record) {
  EXPECT_TRUE(history.TryBeginWrite(record));
  const uint64_t version = history.NextVersion(record);
  history.Acknowledge(record, version);
  history.EndWrite(record);
  return version;
}

uint64_t WriteUnknown(History& history, uint64_t record) {
  EXPECT_TRUE(history.TryBeginWrite(record));
  const uint64_t version = history.NextVersion(record);
  history.MayComeLate(record, version);
  history.EndWrite(record);
  return version;
}

TEST(HistoryTest, AReadMustShowWhatWasAcknowledgedBeforeItBegan) {
  History history;
  Write(history, 5);
  const uint64_t floor = history.Floor(5);
  EXPECT_EQ(floor, 1u);
  Write(history, 5);
  // It ran beside the second write: either will do.
  EXPECT_TRUE(history.Judge(5, floor, {1}).ok());
  EXPECT_TRUE(history.Judge(5, floor, {2}).ok());
  const absl::Status stale = history.Judge(5, history.Floor(5), {1});
  EXPECT_EQ(stale.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(stale.message(), HasSubstr(Records::KeyOf(5)));
}

TEST(HistoryTest, WhatOneReadShowedALaterOneMustShow) {
  History history;
  Write(history, 0);
  ASSERT_TRUE(history.TryBeginWrite(0));
  const uint64_t version = history.NextVersion(0);
  EXPECT_TRUE(history.Judge(0, history.Floor(0), {version}).ok());
  EXPECT_EQ(history.Judge(0, history.Floor(0), {1}).code(),
            absl::StatusCode::kDataLoss);
}

TEST(HistoryTest, AReplacedVersionMustNotComeBackBesideAnother) {
  History history;
  Write(history, 0);
  Write(history, 0);
  EXPECT_EQ(history.Judge(0, history.Floor(0), {2, 1}).code(),
            absl::StatusCode::kDataLoss);
}

TEST(HistoryTest, AWriteThatWasUnknownMayComeLateButNotAlone) {
  History history;
  Write(history, 0);
  const uint64_t unknown = WriteUnknown(history, 0);
  EXPECT_TRUE(history.Judge(0, history.Floor(0), {1}).ok());
  const uint64_t after = Write(history, 0);
  EXPECT_TRUE(history.Judge(0, history.Floor(0), {after, unknown}).ok());
  EXPECT_EQ(history.Judge(0, history.Floor(0), {unknown}).code(),
            absl::StatusCode::kDataLoss);
}

TEST(HistoryTest, AVersionThatNobodyWroteIsTold) {
  History history;
  Write(history, 0);
  EXPECT_EQ(history.Judge(0, 1, {2}).code(), absl::StatusCode::kOutOfRange);
}

TEST(HistoryTest, FilesKeepWhatIsKnown) {
  const std::string path = testing::TempDir() + "/history_test";
  History history;
  Write(history, 0);
  Write(history, 2);
  const uint64_t unknown = WriteUnknown(history, 2);
  ASSERT_TRUE(history.Save(path).ok());
  EXPECT_THAT(history.Written(), ElementsAre(0, 2));

  const auto loaded = History::Load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((*loaded)->records(), 3u);
  EXPECT_THAT((*loaded)->Written(), ElementsAre());
  EXPECT_EQ((*loaded)->Floor(2), 1u);
  EXPECT_EQ(Write(**loaded, 2), 3u);
  EXPECT_TRUE((*loaded)->Judge(2, 3, {3, unknown}).ok());
  EXPECT_FALSE((*loaded)->Judge(2, 3, {3, 1}).ok());
}

TEST(HistoryTest, FilesThatAreNotWholeAreRefused) {
  EXPECT_EQ(History::Load("/nowhere/history").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(History().Save("/nowhere/history").code(),
            absl::StatusCode::kUnavailable);
  const std::string path = testing::TempDir() + "/broken_history_test";
  for (const char* text :
       {"", "something\nend\n", "kvbench history 1\n1 1\n",
        "kvbench history 1\n1\nend\n", "kvbench history 1\n1 2\nend\n",
        "kvbench history 1\n3 1 2 1\nend\n", "kvbench history 1\n1 x\nend\n"}) {
    std::ofstream(path) << text;
    const absl::Status status = History::Load(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
}

TEST(HistorySourceTest, WritesOneRecordByOneWriteAtATime) {
  constexpr uint64_t kRecords = 100;
  History history;
  InsertCounter inserts(kRecords);
  const auto drawn = MakeRunSource(*NamedWorkload("f"), inserts, 7);
  const auto source = MakeHistorySource(*drawn, kRecords, history);
  std::set<uint64_t> writing;
  std::vector<Operation> under_way;
  for (int i = 0; i < 1000; ++i) {
    Operation operation;
    ASSERT_TRUE(source->Next(operation));
    if (operation.kind == OperationKind::kReadModifyWrite) {
      EXPECT_TRUE(writing.insert(operation.record).second);
      under_way.push_back(operation);
    }
    // All but one are being written.
    if (under_way.size() == kRecords - 1) {
      writing.erase(under_way.front().record);
      source->Finished(under_way.front(), true);
      under_way.erase(under_way.begin());
    }
  }
  EXPECT_EQ(writing.size(), kRecords - 2);
}

}  // namespace
}  // namespace ringkv::bench
