#include "client/bench/options.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv::bench {
namespace {

using testing::HasSubstr;

ParsedOptions Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "kvbench");
  return ParseOptions(static_cast<int>(arguments.size()), arguments.data());
}

Options Good(const std::vector<const char*>& arguments) {
  const ParsedOptions parsed = Parse(arguments);
  EXPECT_TRUE(parsed.options.has_value()) << parsed.text;
  return parsed.options.value_or(Options());
}

TEST(OptionsTest, WithoutFlagsLoadsAndRunsWorkloadA) {
  const Options options = Good({});
  EXPECT_EQ(options.workload.name, "a");
  EXPECT_TRUE(options.load);
  EXPECT_TRUE(options.run);
  EXPECT_EQ(options.in_flight, kInFlightClosed);
  EXPECT_FALSE(options.rate.has_value());
  EXPECT_EQ(options.duration, absl::Seconds(10));
  EXPECT_EQ(options.api, Api::kUnary);
}

TEST(OptionsTest, FlagsReplaceWhatTheWorkloadSays) {
  const Options options =
      Good({"--workload", "b", "--distribution", "latest", "--mix",
            "read=1,insert=1", "--scan-length", "7"});
  EXPECT_EQ(options.workload.distribution, Distribution::kLatest);
  EXPECT_EQ(options.workload.share(OperationKind::kInsert), 0.5);
  EXPECT_EQ(options.workload.scan_length_max, 7u);
}

TEST(OptionsTest, AnOpenLoopHasManyInFlight) {
  const Options options = Good({"--rate", "2500", "--arrivals", "constant"});
  EXPECT_EQ(options.rate, 2500);
  EXPECT_EQ(options.arrivals, ArrivalKind::kConstant);
  EXPECT_EQ(options.in_flight, kInFlightOpen);
}

TEST(OptionsTest, OperationsAloneLiftTheBoundOfTime) {
  EXPECT_EQ(Good({"--operations", "100"}).duration, absl::InfiniteDuration());
  EXPECT_EQ(Good({"--operations", "100", "--seconds", "0.5"}).duration,
            absl::Milliseconds(500));
}

TEST(OptionsTest, TimesHaveUnits) {
  const Options options =
      Good({"--deadline", "1500ms", "--expected-interval", "250us"});
  EXPECT_EQ(options.deadline, absl::Milliseconds(1500));
  EXPECT_EQ(options.expected_interval, absl::Microseconds(250));
}

TEST(OptionsTest, AHistoryVerifiesWhatWasWritten) {
  EXPECT_EQ(Good({}).verify, Verify::kNone);
  const Options options = Good({"--history", "file", "--quorum", "strict"});
  EXPECT_EQ(options.history, "file");
  EXPECT_EQ(options.verify, Verify::kWritten);
  EXPECT_EQ(Good({"--history", "file", "--quorum", "strict", "--verify", "all"})
                .verify,
            Verify::kAll);
}

TEST(OptionsTest, BadFlagsExitWithTwoAndSayWhy) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> bad = {
      {{"--kees", "5"}, "--kees"},
      {{"surplus"}, "surplus"},
      {{"--workload", "g"}, "'g'"},
      {{"--mix", "read=x"}, "share of read"},
      {{"--distribution", "zipf"}, "'zipf'"},
      {{"--keys", "0"}, "--keys"},
      {{"--keys", "-1"}, "--keys"},
      {{"--keys", "x"}, "--keys"},
      {{"--keys", "1", "--keys", "2"}, "--keys"},
      {{"--value-size", "1048577"}, "--value-size"},
      {{"--api", "grpc"}, "--api"},
      {{"--api", "pipeline", "--workload", "e"}, "scans"},
      {{"--rate", "0"}, "--rate"},
      {{"--rate", "-5"}, "--rate"},
      {{"--rate", "nan"}, "--rate"},
      {{"--arrivals", "constant"}, "--rate"},
      {{"--clients", "0"}, "--clients"},
      {{"--clients", "65"}, "--in-flight"},
      {{"--in-flight", "0"}, "--in-flight"},
      {{"--seconds", "0"}, "--seconds"},
      {{"--operations", "0"}, "--operations"},
      {{"--deadline", "10"}, "--deadline"},
      {{"--deadline", "-1s"}, "--deadline"},
      {{"--deadline", "48h"}, "--deadline"},
      {{"--rate", "5", "--expected-interval", "1ms"}, "--expected-interval"},
      {{"--load-only", "--skip-load"}, "--load-only"},
      {{"--quorum", "loose"}, "--quorum"},
      {{"-r", "17"}, "--read-quorum"},
      {{"-o", "yaml"}, "--output"},
      {{"--seconds"}, "--seconds"},
      {{"--verify", "all"}, "--history"},
      {{"--history", "f"}, "--quorum strict"},
      {{"--history", "f", "--quorum", "strict", "--api", "pipeline"}, "unary"},
      {{"--history", "f", "--quorum", "strict", "--value-size", "15"}, "16"},
      {{"--history", "f", "--quorum", "strict", "--keys", "64"},
       "--in-flight 64"},
      {{"--history", "f", "--quorum", "strict", "--verify", "some"},
       "--verify"},
  };
  for (const auto& [arguments, reason] : bad) {
    const ParsedOptions parsed = Parse(arguments);
    EXPECT_FALSE(parsed.options.has_value()) << arguments[0];
    EXPECT_EQ(parsed.exit_code, 2) << arguments[0];
    EXPECT_THAT(parsed.text, HasSubstr(reason));
    EXPECT_THAT(parsed.text, HasSubstr("kvbench: "));
  }
}

TEST(OptionsTest, HelpAndVersionExitWithZero) {
  for (const char* flag : {"--help", "-h", "--version"}) {
    const ParsedOptions parsed = Parse({flag});
    EXPECT_FALSE(parsed.options.has_value());
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_THAT(parsed.text, HasSubstr("kvbench"));
  }
  EXPECT_THAT(Parse({"--help"}).text, HasSubstr("--expected-interval"));
}

}  // namespace
}  // namespace ringkv::bench
