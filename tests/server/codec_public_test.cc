#include <string>
#include <utility>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/codec/data_codec.h"
#include "server/codec/public_codec.h"

namespace ringkv {
namespace {

using ::testing::HasSubstr;

v1::PutRequest GoodPut() {
  v1::PutRequest put;
  put.set_key("k");
  put.set_value("v");
  return put;
}

template <class Request>
std::string Refusal(Request request) {
  const absl::StatusOr<ClientCall> call = CallFromProto(std::move(request));
  if (call.ok()) return "accepted";
  EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(call.status().message());
}

TEST(PublicCodecTest, PutKeepsEveryField) {
  v1::PutRequest put = GoodPut();
  put.set_keyspace("ks");
  put.set_context("ctx");
  put.set_w(2);
  put.set_quorum(v1::QUORUM_STRICT);
  put.mutable_ttl()->set_seconds(5);
  put.mutable_ttl()->set_nanos(1000000);
  put.mutable_request_id()->set_id("id");
  put.mutable_request_id()->set_age_ms(7);
  put.mutable_request_id()->set_coordinator_start_id(9);
  PutCall want;
  want.keyspace = "ks";
  want.key = "k";
  want.value = "v";
  want.context = "ctx";
  want.w = 2;
  want.quorum = Quorum::kStrict;
  want.ttl = absl::Milliseconds(5001);
  want.request = {"id", absl::Milliseconds(7), 9};
  const absl::StatusOr<ClientCall> call = CallFromProto(std::move(put));
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(std::get<PutCall>(*call), want);
}

TEST(PublicCodecTest, DeleteIsAPutThatDeletes) {
  v1::DeleteRequest request;
  request.set_key("k");
  request.set_context("");
  const absl::StatusOr<ClientCall> call = CallFromProto(std::move(request));
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_TRUE(std::get<PutCall>(*call).is_delete);
  EXPECT_EQ(std::get<PutCall>(*call).context, "");
}

TEST(PublicCodecTest, KeysHaveOneTo4096Bytes) {
  v1::PutRequest put = GoodPut();
  put.set_key("");
  EXPECT_THAT(Refusal(put), HasSubstr("key: empty"));
  put.set_key(std::string(4096, 'k'));
  EXPECT_EQ(Refusal(put), "accepted");
  put.set_key(std::string(4097, 'k'));
  EXPECT_THAT(Refusal(put), HasSubstr("4097 bytes, above the limit of 4096"));
  EXPECT_THAT(Refusal(v1::GetRequest()), HasSubstr("key: empty"));
  EXPECT_THAT(Refusal(v1::DeleteRequest()), HasSubstr("key: empty"));
  EXPECT_THAT(Refusal(v1::LocateRequest()), HasSubstr("key: empty"));
}

TEST(PublicCodecTest, ValuesAboveOneMebibyteAreRefusedWithLimitAndSize) {
  v1::PutRequest put = GoodPut();
  put.set_value(std::string(1 << 20, 'v'));
  EXPECT_EQ(Refusal(put), "accepted");
  put.set_value(std::string((1 << 20) + 1, 'v'));
  EXPECT_THAT(Refusal(put), HasSubstr("1048577"));
  EXPECT_THAT(Refusal(put), HasSubstr("1048576"));
}

TEST(PublicCodecTest, ABlindPutWithAContextIsRefused) {
  v1::PutRequest put = GoodPut();
  put.set_blind(true);
  EXPECT_EQ(Refusal(put), "accepted");
  put.set_context("");
  EXPECT_THAT(Refusal(put), HasSubstr("blind"));
}

TEST(PublicCodecTest, TimesToLiveOutsideTheirRangeAreRefused) {
  const auto ttl = [](int64_t seconds, int32_t nanos) {
    v1::PutRequest put = GoodPut();
    put.mutable_ttl()->set_seconds(seconds);
    put.mutable_ttl()->set_nanos(nanos);
    return Refusal(put);
  };
  EXPECT_EQ(ttl(0, 1000000), "accepted");
  EXPECT_EQ(ttl(3600, 0), "accepted");
  EXPECT_THAT(ttl(0, 0), HasSubstr("ttl"));
  EXPECT_THAT(ttl(0, 999999), HasSubstr("ttl"));
  EXPECT_THAT(ttl(-1, 0), HasSubstr("ttl"));
  EXPECT_THAT(ttl(-1, 5), HasSubstr("ttl"));
  EXPECT_THAT(ttl(1, -5), HasSubstr("ttl"));
  EXPECT_THAT(ttl(1, 1000000000), HasSubstr("ttl"));
  EXPECT_THAT(ttl(INT64_MAX, 999999999), HasSubstr("ttl"));
  EXPECT_THAT(ttl(INT64_MIN, 0), HasSubstr("ttl"));
}

TEST(PublicCodecTest, RequestIdsHaveAtMost64Bytes) {
  v1::PutRequest put = GoodPut();
  put.mutable_request_id()->set_id(std::string(64, 'i'));
  put.mutable_request_id()->set_age_ms(UINT64_MAX);
  EXPECT_EQ(Refusal(put), "accepted");
  put.mutable_request_id()->set_id(std::string(65, 'i'));
  EXPECT_THAT(Refusal(put), HasSubstr("65 bytes, above the limit of 64"));
}

TEST(PublicCodecTest, UnknownQuorumsAndMissingOperationsAreRefused) {
  v1::PutRequest put = GoodPut();
  put.set_quorum(static_cast<v1::Quorum>(17));
  EXPECT_THAT(Refusal(put), HasSubstr("quorum: unknown value 17"));
  EXPECT_THAT(Refusal(v1::Operation()), HasSubstr("operation: missing"));
}

TEST(PublicCodecTest, BatchesHaveOneTo10000Operations) {
  EXPECT_FALSE(CheckBatchCount(0).ok());
  EXPECT_TRUE(CheckBatchCount(1).ok());
  EXPECT_TRUE(CheckBatchCount(10000).ok());
  EXPECT_FALSE(CheckBatchCount(10001).ok());
}

TEST(PublicCodecTest, GetAnswersCarrySiblingsAndExpiry) {
  ClientAnswer answer;
  answer.answer = GetAnswer{
      {{"a", HlcTimestamp{5}, 0}, {"b", HlcTimestamp{6}, 1234567}}, "ctx"};
  answer.ring_epoch = 3;
  v1::GetResponse response;
  ASSERT_TRUE(AnswerToProto(std::move(answer), response).ok());
  ASSERT_EQ(response.siblings_size(), 2);
  EXPECT_EQ(response.siblings(0).value(), "a");
  EXPECT_FALSE(response.siblings(0).has_expires_at());
  EXPECT_EQ(response.siblings(1).expires_at().seconds(), 1234);
  EXPECT_EQ(response.siblings(1).expires_at().nanos(), 567000000);
  EXPECT_EQ(response.context(), "ctx");
  EXPECT_EQ(response.ring_epoch(), 3);
}

TEST(PublicCodecTest, AnswersOfTheWrongKindAreInternalErrors) {
  ClientAnswer answer;
  answer.answer = PutAnswer{};
  v1::GetResponse response;
  EXPECT_EQ(AnswerToProto(std::move(answer), response).code(),
            absl::StatusCode::kInternal);
  v1::OperationResult result;
  ResultToProto(ClientAnswer(), OperationKind::kPut, result);
  EXPECT_EQ(result.code(), 13);
  EXPECT_EQ(result.answer_case(), v1::OperationResult::ANSWER_NOT_SET);
}

TEST(PublicCodecTest, ErrorTextsBecomePrintable) {
  ClientAnswer answer;
  answer.status = absl::UnavailableError("key \xff\x01 went\naway");
  v1::OperationResult result;
  ResultToProto(std::move(answer), OperationKind::kGet, result);
  EXPECT_EQ(result.code(), 14);
  EXPECT_EQ(result.message(), "key ?? went away");
}

TEST(PublicCodecTest, RandomRequestsNeverCrashAndWhatPassesCanBeForwarded) {
  SeededRandom random(11);
  int passed = 0;
  for (int i = 0; i < 20000; ++i) {
    v1::Operation operation;
    v1::PutRequest& put = *operation.mutable_put();
    put.set_key(std::string(random.Uniform(20), 'k'));
    put.set_value(std::string(random.Uniform(50), 'v'));
    if (random.Chance(0.5)) put.set_context(std::string(3, '\xfe'));
    put.set_blind(random.Chance(0.3));
    if (random.Chance(0.3)) {
      put.mutable_ttl()->set_seconds(static_cast<int64_t>(random.Next()) >>
                                     random.Uniform(64));
      put.mutable_ttl()->set_nanos(static_cast<int32_t>(random.Next()) >>
                                   random.Uniform(32));
    }
    put.set_quorum(static_cast<v1::Quorum>(random.Uniform(4)));
    std::string bytes = operation.SerializeAsString();
    if (random.Chance(0.5)) {
      bytes[random.Uniform(bytes.size())] ^= 1 << random.Uniform(8);
    }
    v1::Operation parsed;
    if (!parsed.ParseFromString(bytes)) continue;
    absl::StatusOr<ClientCall> call = CallFromProto(std::move(parsed));
    if (!call.ok()) continue;
    ++passed;
    ForwardRequest forward;
    forward.call = *std::move(call);
    ASSERT_TRUE(DecodeData(EncodeData({1, std::move(forward)})).ok());
  }
  EXPECT_GT(passed, 1000);
}

}  // namespace
}  // namespace ringkv
