#include "client/load/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lz4frame.h>
#include <lzma.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "client/load/text.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;

std::string Gzip(const std::string& plain) {
  z_stream stream = {};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Xz(const std::string& plain) {
  std::string out(lzma_stream_buffer_bound(plain.size()), '\0');
  size_t at = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(
                6, LZMA_CHECK_CRC64, nullptr,
                reinterpret_cast<const uint8_t*>(plain.data()), plain.size(),
                reinterpret_cast<uint8_t*>(out.data()), &at, out.size()),
            LZMA_OK);
  out.resize(at);
  return out;
}

std::string Lz4(const std::string& plain) {
  LZ4F_preferences_t preferences = {};
  preferences.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  std::string out(LZ4F_compressFrameBound(plain.size(), &preferences), '\0');
  out.resize(LZ4F_compressFrame(out.data(), out.size(), plain.data(),
                                plain.size(), &preferences));
  return out;
}

// All records of `input`, or the first error.
absl::StatusOr<std::vector<Record>> ReadAll(const std::string& input,
                                            RecordOptions options = {}) {
  std::istringstream stream(input);
  absl::StatusOr<std::unique_ptr<RecordReader>> reader =
      OpenRecords("-", stream, options);
  if (!reader.ok()) return reader.status();
  std::vector<Record> records;
  while (true) {
    absl::StatusOr<std::optional<Record>> record = (*reader)->Next();
    if (!record.ok()) return record.status();
    if (!record->has_value()) return records;
    records.push_back(**std::move(record));
  }
}

std::string Index(int stanzas) {
  std::string text;
  for (int i = 0; i < stanzas; ++i) {
    absl::StrAppend(&text, "Package: p", i, "\nVersion: 1.", i,
                    "\nDescription: a package\n with more\n .\n lines\n\n");
  }
  return text;
}

// --- JSON lines ---

TEST(RecordsTest, JsonLinesGiveKeysAndValuesOfAnyBytes) {
  absl::StatusOr<std::vector<Record>> records = ReadAll(
      "{\"key\": \"a\", \"value\": \"1\"}\r\n"
      "\n"
      "{\"key_base64\": \"/wA=\", \"value_base64\": \"AAH+\"}\n"
      "{\"key\": \"o\", \"value\": {\"b\": [1, 2]}, \"other\": 1}\n"
      "{\"key\": \"s\", \"siblings\": [{\"value\": \"x\"}, "
      "{\"value_base64\": \"/w==\", \"expires_at_ms\": 99}]}");
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 4u);
  EXPECT_EQ((*records)[0].key, "a");
  EXPECT_EQ((*records)[0].values[0].bytes, "1");
  EXPECT_EQ((*records)[1].key, std::string("\xff\0", 2));
  EXPECT_EQ((*records)[1].values[0].bytes, std::string("\0\x01\xfe", 3));
  EXPECT_EQ((*records)[2].values[0].bytes, "{\"b\":[1,2]}");
  EXPECT_EQ((*records)[2].line, 4u);
  ASSERT_EQ((*records)[3].values.size(), 2u);
  EXPECT_EQ((*records)[3].values[1].bytes, "\xff");
  EXPECT_EQ((*records)[3].values[1].expires_at_ms, 99);
}

TEST(RecordsTest, BadJsonLinesNameTheLineAndWhatIsWrong) {
  const struct {
    const char* line;
    const char* words;
  } cases[] = {
      {"{\"key\": \"a\", \"value\": ", "not JSON"},
      {"{\"key\": \"\xff\", \"value\": \"\"}", "not JSON"},
      {"[1]", "no JSON object"},
      {"{\"value\": \"x\"}", "has no \"key\""},
      {"{\"key\": \"x\"}", "has no \"value\""},
      {"{\"key\": 7, \"value\": \"x\"}", "\"key\" is no string"},
      {"{\"key\": \"x\", \"value\": null}", "\"value\" is null"},
      {"{\"key\": \"x\", \"key_base64\": \"eA==\", \"value\": \"\"}", "both"},
      {"{\"key_base64\": \"!\", \"value\": \"\"}", "not base64"},
      {"{\"key\": \"x\", \"siblings\": []}", "siblings"},
      {"{\"key\": \"x\", \"siblings\": [1]}", "siblings"},
      {"{\"key\": \"x\", \"value\": \"\", \"expires_at_ms\": \"soon\"}",
       "expires_at_ms"},
  };
  RecordOptions options;
  options.format = RecordFormat::kJsonLines;
  for (const auto& c : cases) {
    absl::StatusOr<std::vector<Record>> records = ReadAll(
        absl::StrCat("{\"key\": \"ok\", \"value\": \"\"}\n", c.line, "\n"),
        options);
    EXPECT_TRUE(absl::IsInvalidArgument(records.status()))
        << c.line << ": " << records.status();
    EXPECT_THAT(records.status().ToString(), HasSubstr("line 2"));
    EXPECT_THAT(records.status().ToString(), HasSubstr(c.words)) << c.line;
  }
}

TEST(RecordsTest, ReaderGoesOnBehindAMalformedRecord) {
  std::istringstream stream(
      "{\"key\": \"a\", \"value\": \"1\"}\n{oops\n"
      "{\"key\": \"b\", \"value\": \"2\"}\n");
  auto reader = OpenRecords("-", stream, {});
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE((*reader)->Next().ok());
  EXPECT_FALSE((*reader)->Next().ok());
  auto third = (*reader)->Next();
  ASSERT_TRUE(third.ok());
  EXPECT_EQ((*third)->key, "b");
}

// --- Debian indexes ---

TEST(RecordsTest, StanzasAreKeptByteForByte) {
  const std::string first = "Package: a\nVersion: 1\nTag: x,\n y\n";
  const std::string second = "Package: b\nVersion: 2:1~rc\nDepends: a (>= 1)\n";
  absl::StatusOr<std::vector<Record>> records =
      ReadAll("\n" + first + "\n\n" + second);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 2u);
  EXPECT_EQ((*records)[0].key, "a");
  EXPECT_EQ((*records)[0].values[0].bytes, first);
  EXPECT_EQ((*records)[0].line, 2u);
  EXPECT_EQ((*records)[1].values[0].bytes, second);
}

TEST(RecordsTest, SeveralFieldsMakeOneKey) {
  RecordOptions options;
  options.key_fields = {"package", "Version"};  // field names know no case
  absl::StatusOr<std::vector<Record>> records =
      ReadAll("Package: a\nVersion: 1\n\nPackage: a\nVersion: 2\n", options);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ((*records)[0].key, "a=1");
  EXPECT_EQ((*records)[1].key, "a=2");
}

TEST(RecordsTest, BadStanzasNameTheirFirstLine) {
  absl::StatusOr<std::vector<Record>> records =
      ReadAll("Package: a\n\nVersion: 2\nX: y\n");
  EXPECT_TRUE(absl::IsInvalidArgument(records.status()));
  EXPECT_THAT(records.status().ToString(), HasSubstr("line 3"));
  EXPECT_THAT(records.status().ToString(), HasSubstr("no field \"Package\""));
  RecordOptions options;
  options.format = RecordFormat::kDebian;
  records = ReadAll("Package: a\nthis is prose\n", options);
  EXPECT_THAT(records.status().ToString(), HasSubstr("this is prose"));
}

TEST(RecordsTest, AnEndlessRecordIsRefusedNotBuffered) {
  RecordOptions options;
  options.record_bytes_max = 100'000;
  options.format = RecordFormat::kJsonLines;
  EXPECT_TRUE(absl::IsResourceExhausted(
      ReadAll(std::string(1 << 20, 'x'), options).status()));
  options.format = RecordFormat::kDebian;
  std::string stanza = "Package: a\n";
  for (int i = 0; i < 20'000; ++i) absl::StrAppend(&stanza, " more\n");
  EXPECT_TRUE(absl::IsResourceExhausted(ReadAll(stanza, options).status()));
  options.format = RecordFormat::kCsv;
  options.key_fields = {"k"};
  EXPECT_TRUE(absl::IsResourceExhausted(
      ReadAll("k\n\"" + std::string(1 << 20, 'x'), options).status()));
}

// --- CSV ---

TEST(RecordsTest, RowsBecomeJsonObjectsInColumnOrder) {
  RecordOptions options;
  options.format = RecordFormat::kCsv;
  options.key_fields = {"id"};
  absl::StatusOr<std::vector<Record>> records = ReadAll(
      "\xef\xbb\xbfname,id,note\r\n"
      "Ann,1,\"says \"\"hi\"\", twice\"\r\n"
      "\"Be\nta\",2, spaced \n"
      "Cy,3,\n",
      options);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 3u);
  EXPECT_EQ((*records)[0].key, "1");
  EXPECT_EQ((*records)[0].values[0].bytes,
            R"({"name":"Ann","id":"1","note":"says \"hi\", twice"})");
  EXPECT_EQ((*records)[1].values[0].bytes,
            R"({"name":"Be\nta","id":"2","note":" spaced "})");
  EXPECT_EQ((*records)[1].line, 3u);
  EXPECT_EQ((*records)[2].line, 5u);
}

TEST(RecordsTest, BadCsvNamesTheLine) {
  RecordOptions options;
  options.format = RecordFormat::kCsv;
  options.key_fields = {"id"};
  const struct {
    const char* input;
    const char* words;
  } cases[] = {
      {"", "empty"},
      {"name,other\n", "no column \"id\""},
      {"id,id\n", "two columns"},
      {"id,x\n1\n", "line 2: the row has 1 fields, the header 2"},
      {"id,x\n1,2\n1,2,3\n", "line 3"},
      {"id,x\n1,\"open\n\n", "ends inside a quoted field"},
      {"id,x\n1,a\"b\n", "line 2"},
      {"id,x\n1,\xff\n", "column \"x\" is not UTF-8"},
  };
  for (const auto& c : cases) {
    absl::StatusOr<std::vector<Record>> records = ReadAll(c.input, options);
    EXPECT_FALSE(records.ok()) << c.input;
    EXPECT_THAT(records.status().ToString(), HasSubstr(c.words)) << c.input;
  }
  options.key_fields.clear();
  EXPECT_THAT(ReadAll("id\n1\n", options).status().ToString(),
              HasSubstr("--key COLUMN"));
}

// --- compression and detection ---

TEST(RecordsTest, EveryCompressionIsFoundOutAndReadInPieces) {
  const std::string plain = Index(5000);
  const auto expected = ReadAll(plain);
  ASSERT_TRUE(expected.ok());
  ASSERT_EQ(expected->size(), 5000u);
  for (const std::string& packed :
       {Gzip(plain), Xz(plain), Lz4(plain),
        // Parts one behind the other, as pigz and cat make them.
        Gzip(plain.substr(0, 1000)) + Gzip(plain.substr(1000)),
        Xz(plain.substr(0, 1000)) + Xz(plain.substr(1000)),
        Lz4(plain.substr(0, 1000)) + Lz4(plain.substr(1000))}) {
    absl::StatusOr<std::vector<Record>> records = ReadAll(packed);
    ASSERT_TRUE(records.ok()) << records.status();
    ASSERT_EQ(records->size(), 5000u);
    EXPECT_EQ(records->back().values[0].bytes,
              expected->back().values[0].bytes);
  }
}

TEST(RecordsTest, CutOffInputIsAnErrorWithItsPlace) {
  const std::string plain = Index(2000);
  for (const std::string& packed : {Gzip(plain), Xz(plain), Lz4(plain)}) {
    for (const size_t size :
         {packed.size() - 1, packed.size() / 2, size_t{20}}) {
      absl::StatusOr<std::vector<Record>> records =
          ReadAll(packed.substr(0, size));
      EXPECT_TRUE(absl::IsDataLoss(records.status()))
          << size << " of " << packed.size() << ": " << records.status();
      EXPECT_THAT(records.status().ToString(), HasSubstr("byte "));
    }
  }
}

TEST(RecordsTest, DamagedInputIsAnErrorNeverACrash) {
  const std::string plain = Index(500);
  SeededRandom random(1);
  for (const std::string& packed : {Gzip(plain), Xz(plain), Lz4(plain)}) {
    for (int round = 0; round < 300; ++round) {
      std::string damaged = packed;
      // Behind the magic bytes, which would make it another format.
      const size_t at = 8 + random.Uniform(damaged.size() - 8);
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random.Uniform(8)));
      absl::StatusOr<std::vector<Record>> records = ReadAll(damaged);
      // A flip in a header field that nobody checks may go unnoticed; then the
      // contents must be what they were.
      if (records.ok()) {
        ASSERT_EQ(records->size(), 500u);
        EXPECT_EQ((*records)[499].key, "p499");
      }
    }
  }
}

TEST(RecordsTest, RandomBytesAreNeverACrash) {
  SeededRandom random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const char* const starts[] = {"",
                                  "{\"key\":",
                                  "Package: ",
                                  "\x1f\x8b\x08",
                                  "\x04\x22\x4d\x18",
                                  "\xfd"
                                  "7zXZ"};
    bytes = starts[random.Uniform(std::size(starts))];
    const size_t size = random.Uniform(200);
    for (size_t i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(random.Next()));
    }
    RecordOptions options;
    const RecordFormat formats[] = {RecordFormat::kDetect,
                                    RecordFormat::kJsonLines,
                                    RecordFormat::kDebian, RecordFormat::kCsv};
    options.format = formats[random.Uniform(4)];
    if (options.format == RecordFormat::kCsv) options.key_fields = {"k"};
    ReadAll(bytes, options).status().IgnoreError();
  }
}

TEST(RecordsTest, WhatCannotBeToldAsksForAFlag) {
  EXPECT_THAT(ReadAll("a,b\n1,2\n").status().ToString(), HasSubstr("--format"));
  EXPECT_THAT(ReadAll("\x28\xb5\x2f\xfd....").status().ToString(),
              HasSubstr("zstd"));
  RecordOptions options;
  options.compression = Compression::kXz;
  EXPECT_THAT(ReadAll(Index(9), options).status().ToString(),
              HasSubstr("not xz"));
  options = {};
  options.format = RecordFormat::kJsonLines;
  options.key_fields = {"k"};
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAll("{}", options).status()));
}

TEST(RecordsTest, FilesThatCannotBeReadAreNamed) {
  std::istringstream unused;
  absl::Status status = OpenRecords("/no/such/file", unused, {}).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.ToString(), HasSubstr("/no/such/file"));
  status = OpenRecords("/", unused, {}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("folder"));
}

TEST(RecordsTest, ExtensionTellsTheFormat) {
  const std::string path =
      (std::filesystem::temp_directory_path() /
       absl::StrCat("ringkv_records_test_", ::getpid(), ".csv.gz"))
          .string();
  const std::string packed = Gzip("id,x\n1,2\n");
  std::ofstream(path, std::ios::binary) << packed;
  std::istringstream unused;
  RecordOptions options;
  options.key_fields = {"id"};
  auto reader = OpenRecords(path, unused, options);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->format(), RecordFormat::kCsv);
  EXPECT_EQ((*reader)->total(), packed.size());
  ASSERT_TRUE((*reader)->Next().ok());
  EXPECT_EQ((*reader)->consumed(), packed.size());
  std::filesystem::remove(path);
}

// --- text ---

TEST(TextTest, BytesSurviveJsonWhateverTheyAre) {
  SeededRandom random(3);
  for (int round = 0; round < 1000; ++round) {
    std::string bytes;
    const size_t size = random.Uniform(20);
    for (size_t i = 0; i < size; ++i) {
      // Mostly text, so that both forms occur.
      bytes.push_back(
          static_cast<char>(random.Chance(0.1) ? random.Next() : 'a' + i));
    }
    Json json = Json::object();
    AddBytes("value", bytes, json);
    const absl::StatusOr<std::string> back =
        TakeBytes("value", Json::parse(json.dump()), false);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, bytes);
  }
}

TEST(TextTest, HexAndBase64AreChecked) {
  EXPECT_EQ(*FromHex("00fF"), std::string("\0\xff", 2));
  EXPECT_FALSE(FromHex("0").ok());
  EXPECT_FALSE(FromHex("0g").ok());
  EXPECT_EQ(*FromBase64("/w=="), "\xff");
  EXPECT_FALSE(FromBase64("*").ok());
}

}  // namespace
}  // namespace ringkv
