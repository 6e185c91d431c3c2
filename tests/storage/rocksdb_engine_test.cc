// What only the engine on a real disk can show: damaged files, torn and broken
// logs, wrong directories, cold caches.

#include "storage/rocksdb/rocksdb_engine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "tests/storage/engine_testing.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;
using Outcome = ReadResult::Outcome;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}
void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
}

class RocksDbEngineTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Engine>> Open(
      const std::string& path, bool may_have_lost_power = false) {
    RocksDbOptions options;
    options.path = path;
    options.memory_bytes = 8 << 20;
    options.may_have_lost_power = may_have_lost_power;
    return RocksDbEngine::Open(options);
  }
  std::unique_ptr<Engine> MustOpen(const std::string& path,
                                   bool may_have_lost_power = false) {
    auto engine = Open(path, may_have_lost_power);
    EXPECT_TRUE(engine.ok()) << engine.status();
    RINGKV_CHECK(engine.ok());
    return *std::move(engine);
  }
  // Fails unless Open refuses with `code` and a message that names the path.
  void ExpectRefused(const std::string& path, absl::StatusCode code,
                     const std::string& part,
                     bool may_have_lost_power = false) {
    const absl::Status status = Open(path, may_have_lost_power).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  static void Put(Engine& engine, std::string key, std::string value,
                  Family family = Family::kData) {
    WriteBatch batch;
    batch.Put(family, std::move(key), std::move(value));
    const auto written = engine.Write(batch);
    ASSERT_TRUE(written.ok()) << written.status();
  }
  // The directory as it is at this instant: what a process that dies now
  // leaves.
  std::string CopyOfLiveDirectory(const std::string& path) {
    const std::string copy = absl::StrCat(scratch_.path(), "/copy", copies_++);
    std::filesystem::copy(path, copy, std::filesystem::copy_options::recursive);
    return copy;
  }
  // Path of the newest file with this extension that is not empty.
  static std::string NewestFile(const std::string& path,
                                const std::string& extension) {
    std::string newest;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == extension && entry.file_size() > 0) {
        newest = std::max(newest, entry.path().string());
      }
    }
    EXPECT_NE(newest, "");
    return newest;
  }
  static int KeysIn(const Engine& engine) {
    int keys = 0;
    EXPECT_TRUE(engine
                    .Visit(Family::kData, "", "",
                           [&keys](absl::string_view, absl::string_view) {
                             ++keys;
                             return true;
                           })
                    .ok());
    return keys;
  }
  // A directory whose log holds `count` puts. With its headers and key each
  // takes 1 KiB, so that every block of the log (32 KiB) begins with a record.
  std::string DirectoryWithLog(int count) {
    const auto engine = MustOpen(directory_.path());
    for (int i = 0; i < count; ++i) {
      Put(*engine, absl::StrCat("key", 1000 + i), std::string(993, 'v'));
    }
    return CopyOfLiveDirectory(directory_.path());
  }

  TemporaryDirectory directory_;
  TemporaryDirectory scratch_;
  int copies_ = 0;
};

TEST_F(RocksDbEngineTest, KilledProcessLosesNothingThatWasWritten) {
  EXPECT_EQ(KeysIn(*MustOpen(DirectoryWithLog(50))), 50);
}

TEST_F(RocksDbEngineTest, TornLastRecordIsAcceptedAndOnlyThatIsLost) {
  const std::string path = DirectoryWithLog(50);
  const std::string log = NewestFile(path, ".log");
  std::filesystem::resize_file(log, std::filesystem::file_size(log) - 300);
  EXPECT_EQ(KeysIn(*MustOpen(path)), 49);
}

TEST_F(RocksDbEngineTest, DamageInsideTheLogIsRefused) {
  const std::string path = DirectoryWithLog(100);
  const std::string log = NewestFile(path, ".log");
  std::string content = ReadFile(log);
  content[40 * 1024] = static_cast<char>(content[40 * 1024] ^ 1);
  WriteFile(log, content);
  ExpectRefused(path, absl::StatusCode::kDataLoss, "replace this node");
}

// Zeros where a record would begin are skipped by RocksDB, so these holes are
// seen by the numbers of the changes only.
TEST_F(RocksDbEngineTest, PageOfZerosInsideTheLogIsRefused) {
  constexpr size_t kBlock = 32 * 1024;
  const std::string intact = DirectoryWithLog(100);
  for (const size_t begin : {kBlock, kBlock + 4096, kBlock + 100}) {
    for (const size_t size : {size_t{4096}, kBlock, 3 * kBlock / 2}) {
      const std::string path = CopyOfLiveDirectory(intact);
      const std::string log = NewestFile(path, ".log");
      std::string content = ReadFile(log);
      ASSERT_GE(content.size(), 100 * 1024u);
      std::fill_n(content.begin() + begin, size, '\0');
      WriteFile(log, content);
      SCOPED_TRACE(absl::StrCat(begin, " ", size));
      ExpectRefused(path, absl::StatusCode::kDataLoss, "replace this node");
    }
  }
}

TEST_F(RocksDbEngineTest, AfterALossOfPowerTheUnbrokenPrefixIsKept) {
  constexpr size_t kBlock = 32 * 1024;
  const std::string intact = DirectoryWithLog(100);
  for (const size_t begin : {kBlock, kBlock + 4096, kBlock + 100}) {
    SCOPED_TRACE(begin);
    const std::string path = CopyOfLiveDirectory(intact);
    const std::string log = NewestFile(path, ".log");
    std::string content = ReadFile(log);
    std::fill_n(content.begin() + begin, 4096, '\0');
    WriteFile(log, content);
    auto engine = MustOpen(path, /*may_have_lost_power=*/true);
    const int kept = static_cast<int>(begin / 1024);
    EXPECT_EQ(KeysIn(*engine), kept);
    EXPECT_EQ(engine
                  ->Get(Family::kData, absl::StrCat("key", 1000 + kept - 1),
                        ReadTier::kAll)
                  .outcome,
              Outcome::kFound);
    Put(*engine, "new", "v");
    engine.reset();
    EXPECT_EQ(KeysIn(*MustOpen(path)), kept + 1);
  }
}

TEST_F(RocksDbEngineTest, DamagedTableIsDataLossThatNamesTheFile) {
  {
    const auto engine = MustOpen(directory_.path());
    for (int i = 0; i < 2000; ++i) {
      Put(*engine, absl::StrCat("key", 10000 + i),
          absl::StrCat(i, std::string(100, 'v')));
    }
  }
  MustOpen(directory_.path()).reset();  // recovery turns the log into a table
  const std::string table = NewestFile(directory_.path(), ".sst");
  std::string content = ReadFile(table);
  std::fill_n(content.begin() + 100, 64, '\x5a');
  WriteFile(table, content);
  const auto engine = MustOpen(directory_.path());
  const ReadResult result =
      engine->Get(Family::kData, "key10000", ReadTier::kAll);
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr(table));
  EXPECT_EQ(engine->Range(Family::kData, "", "", {}).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(engine->Get(Family::kData, "key11999", ReadTier::kAll).outcome,
            Outcome::kFound);
}

TEST_F(RocksDbEngineTest, ColdKeyIsNotCachedUntilItWasReadFromDisk) {
  {
    const auto engine = MustOpen(directory_.path());
    Put(*engine, "cold", "v");
  }
  MustOpen(directory_.path()).reset();
  const auto engine = MustOpen(directory_.path());
  EXPECT_EQ(engine->Get(Family::kData, "cold", ReadTier::kCached).outcome,
            Outcome::kNotCached);
  EXPECT_EQ(engine->Get(Family::kData, "cold", ReadTier::kAll).value, "v");
  EXPECT_EQ(engine->Get(Family::kData, "cold", ReadTier::kCached).value, "v");
}

TEST_F(RocksDbEngineTest, WritersAndSyncsRunAtOnce) {
  const auto engine = MustOpen(directory_.path());
  constexpr int kWriters = 3;
  constexpr int kWrites = 200;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&engine, writer] {
      uint64_t last = 0;
      for (int i = 0; i < kWrites; ++i) {
        WriteBatch batch;
        batch.Put(Family::kData, absl::StrCat(writer, ".", i), "v");
        const auto sequence = engine->Write(batch);
        ASSERT_TRUE(sequence.ok());
        ASSERT_GT(*sequence, last);
        last = *sequence;
        if (i % 20 != 0) continue;
        const auto synced = engine->Sync();
        ASSERT_TRUE(synced.ok());
        ASSERT_GE(*synced, last);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(KeysIn(*engine), kWriters * kWrites);
}

TEST_F(RocksDbEngineTest, FullDiskTakesDeletesAndControlRecordsOnly) {
  {
    const auto engine = MustOpen(directory_.path());
    Put(*engine, "k", "v");
    EXPECT_LT(engine->Stats().disk_free_bytes, UINT64_MAX);
  }
  RocksDbOptions options;
  options.path = directory_.path();
  options.disk_floor_bytes = UINT64_MAX;
  const auto engine = RocksDbEngine::Open(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (int i = 0; i < 2; ++i) {
    WriteBatch batch;
    batch.Put(Family::kHints, "k", "v");
    const absl::Status refused = (*engine)->Write(batch).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("disk full"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr(options.path));
  }
  Put(**engine, "epoch", "2", Family::kMeta);
  WriteBatch removal;
  removal.Delete(Family::kData, "k");
  EXPECT_TRUE((*engine)->Write(removal).ok());
  EXPECT_EQ((*engine)->Get(Family::kData, "k", ReadTier::kAll).outcome,
            Outcome::kMissing);
}

TEST_F(RocksDbEngineTest, CreatesMissingParents) {
  const std::string path = absl::StrCat(directory_.path(), "/a/b/c");
  EXPECT_NE(MustOpen(path), nullptr);
}

TEST_F(RocksDbEngineTest, SecondOpenerIsRefusedWhileTheFirstHoldsIt) {
  auto engine = MustOpen(directory_.path());
  ExpectRefused(directory_.path(), absl::StatusCode::kUnavailable,
                "in use by another process");
  engine.reset();
  EXPECT_NE(MustOpen(directory_.path()), nullptr);
}

TEST_F(RocksDbEngineTest, ForeignDirectoryIsRefusedAndLeftAlone) {
  const std::string file = absl::StrCat(directory_.path(), "/thesis.txt");
  WriteFile(file, "years of work");
  ExpectRefused(directory_.path(), absl::StatusCode::kFailedPrecondition,
                "'thesis.txt'");
  EXPECT_EQ(ReadFile(file), "years of work");
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(directory_.path()), {}),
      1);
}

TEST_F(RocksDbEngineTest, FreshFileSystemCountsAsEmpty) {
  std::filesystem::create_directory(
      absl::StrCat(directory_.path(), "/lost+found"));
  EXPECT_NE(MustOpen(directory_.path()), nullptr);
}

TEST_F(RocksDbEngineTest, UnwritablePathIsRefused) {
  const std::string file = absl::StrCat(directory_.path(), "/file");
  WriteFile(file, "x");
  ExpectRefused(file, absl::StatusCode::kPermissionDenied,
                "choose another directory");
  ExpectRefused(file + "/below", absl::StatusCode::kPermissionDenied,
                "choose another directory");
  if (geteuid() == 0) return;  // root may write anywhere
  const std::string locked = absl::StrCat(directory_.path(), "/locked");
  std::filesystem::create_directory(locked);
  ASSERT_EQ(chmod(locked.c_str(), 0500), 0);
  ExpectRefused(locked, absl::StatusCode::kPermissionDenied,
                "write permission");
}

TEST_F(RocksDbEngineTest, NewerOrUnknownFormatIsRefused) {
  MustOpen(directory_.path()).reset();
  const std::string format = absl::StrCat(directory_.path(), "/FORMAT");
  const std::string ours = ReadFile(format);
  WriteFile(format, "ringkv storage format 2\n");
  ExpectRefused(directory_.path(), absl::StatusCode::kFailedPrecondition,
                "has format 2");
  for (const char* damaged :
       {"", "ringkv storage format 1", "1\n", "ringkv storage format -1\n",
        "ringkv storage format 99999999999999999999\n"}) {
    WriteFile(format, damaged);
    ExpectRefused(directory_.path(), absl::StatusCode::kDataLoss, "FORMAT");
  }
  WriteFile(format, ours);
  EXPECT_NE(MustOpen(directory_.path()), nullptr);
}

TEST_F(RocksDbEngineTest, FamilyOfANewerReleaseIsRefused) {
  MustOpen(directory_.path()).reset();
  {
    rocksdb::DB* opened = nullptr;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    std::vector<rocksdb::ColumnFamilyDescriptor> families;
    for (const char* name : {"default", "data", "hints", "meta"}) {
      families.emplace_back(name, rocksdb::ColumnFamilyOptions());
    }
    ASSERT_TRUE(rocksdb::DB::Open(rocksdb::DBOptions(), directory_.path(),
                                  families, &handles, &opened)
                    .ok());
    const std::unique_ptr<rocksdb::DB> db(opened);
    handles.emplace_back();
    ASSERT_TRUE(db->CreateColumnFamily({}, "archive", &handles.back()).ok());
    for (rocksdb::ColumnFamilyHandle* handle : handles) {
      ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
    }
  }
  ExpectRefused(directory_.path(), absl::StatusCode::kFailedPrecondition,
                "'archive'");
}

TEST_F(RocksDbEngineTest, LostHeadIsRefusedInsteadOfStartingEmpty) {
  const std::string path = DirectoryWithLog(5);
  std::filesystem::remove(path + "/CURRENT");
  ExpectRefused(path, absl::StatusCode::kDataLoss, "CURRENT is missing");
}

TEST_F(RocksDbEngineTest, InterruptedFirstStartCanBeRepeated) {
  WriteFile(absl::StrCat(directory_.path(), "/FORMAT.tmp"), "ringkv sto");
  EXPECT_NE(MustOpen(directory_.path()), nullptr);
}

TEST_F(RocksDbEngineTest, MissingTableIsRefused) {
  {
    const auto engine = MustOpen(directory_.path());
    Put(*engine, "k", "v");
  }
  MustOpen(directory_.path()).reset();
  std::filesystem::remove(NewestFile(directory_.path(), ".sst"));
  ExpectRefused(directory_.path(), absl::StatusCode::kDataLoss,
                "replace this node");
}

}  // namespace
}  // namespace ringkv
