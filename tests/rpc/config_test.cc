#include "server/rpc/config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ringkv {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/config_test." +
              std::to_string(::getpid()) + "." +
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments) {
    std::vector<const char*> argv = {"kvnode"};
    for (const std::string& argument : arguments) {
      argv.push_back(argument.c_str());
    }
    return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
  }
  std::string Refusal(std::vector<std::string> arguments) {
    const absl::StatusOr<CommandLine> parsed = Parse(std::move(arguments));
    if (parsed.ok()) return "accepted";
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(parsed.status().message());
  }
  // The refusal of a file with this text, and its path.
  std::string FileRefusal(const std::string& text) {
    return Refusal({"--config", Write(text)});
  }
  std::string Write(const std::string& text) {
    const std::string path = folder_ + "/node.yaml";
    std::ofstream(path) << text;
    return path;
  }
  std::string DataDir() const { return folder_ + "/data"; }

  std::string folder_;
};

TEST_F(ConfigTest, NoArgumentsMakeAClusterOfThisNodeAlone) {
  const absl::StatusOr<CommandLine> parsed = Parse({});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->config.init);
  EXPECT_EQ(parsed->config.data_dir, "./ringkv-data");
  EXPECT_EQ(parsed->config.listen, "127.0.0.1:7700");
  EXPECT_EQ(parsed->config.peer_listen, "127.0.0.1:7800");
  EXPECT_EQ(parsed->config.http_listen, "127.0.0.1:7900");
  EXPECT_GE(parsed->config.shards, 1);
  EXPECT_FALSE(parsed->config.name.empty());
  EXPECT_THAT(parsed->warnings, IsEmpty());
}

TEST_F(ConfigTest, FlagsOverrideTheFileAndTheFileTheDefaults) {
  const std::string path = Write(
      "name: from-file\n"
      "data_dir: " +
      DataDir() +
      "\n"
      "seeds:\n  - 127.0.0.1:7801\n  - 127.0.0.1:7802\n"
      "location: {zone: a, rack: r1}\n"
      "memory: 64MiB\n"
      "fsync_interval: 250ms\n"
      "weight: 2.5\n"
      "hedged_reads: false\n");
  const absl::StatusOr<CommandLine> parsed =
      Parse({"--config", path, "--name", "from-flag", "--memory=1GiB"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const NodeConfig& config = parsed->config;
  EXPECT_EQ(config.name, "from-flag");
  EXPECT_EQ(config.memory, uint64_t{1} << 30);
  EXPECT_THAT(config.seeds, ElementsAre("127.0.0.1:7801", "127.0.0.1:7802"));
  EXPECT_EQ(config.location.zone, "a");
  EXPECT_EQ(config.location.rack, "r1");
  EXPECT_EQ(config.fsync_interval, absl::Milliseconds(250));
  EXPECT_EQ(config.weight, 2.5);
  EXPECT_FALSE(config.hedged_reads);
  EXPECT_FALSE(config.init);
}

TEST_F(ConfigTest, UnknownKeysAreNamedWithTheNearestKnownOne) {
  EXPECT_THAT(FileRefusal("listn: 127.0.0.1:1\n"),
              AllOf(HasSubstr("node.yaml:1: listn"), HasSubstr("'listen'")));
  EXPECT_THAT(FileRefusal("name: a\nheartbeat-interval: 1s\n"),
              AllOf(HasSubstr("node.yaml:2"),
                    HasSubstr("did you mean 'heartbeat_interval'")));
  EXPECT_THAT(FileRefusal("qqqqqqqqqq: 1\n"),
              AllOf(HasSubstr("unknown key"), Not(HasSubstr("did you mean"))));
}

TEST_F(ConfigTest, UnknownAndRepeatedFlagsAreNamed) {
  EXPECT_THAT(Refusal({"--data-dirr", "x"}),
              AllOf(HasSubstr("--data-dirr"), HasSubstr("'--data-dir'")));
  EXPECT_THAT(Refusal({"--name", "a", "--name", "b"}), HasSubstr("--name"));
  EXPECT_THAT(Refusal({"--init", "--init"}), HasSubstr("--init"));
  EXPECT_THAT(Refusal({"serve"}), HasSubstr("serve"));
  EXPECT_THAT(Refusal({"--name"}), HasSubstr("--name"));
}

TEST_F(ConfigTest, BadValuesAreNamedWithFileKeyValueAndRange) {
  EXPECT_THAT(FileRefusal("memory: 64\n"),
              AllOf(HasSubstr("node.yaml:1: memory"), HasSubstr("'64'"),
                    HasSubstr("8MiB to 1TiB")));
  EXPECT_THAT(FileRefusal("memory: 1MiB\n"), HasSubstr("8MiB to 1TiB"));
  EXPECT_THAT(FileRefusal("memory: -1MiB\n"), HasSubstr("'-1MiB'"));
  EXPECT_THAT(FileRefusal("memory: 99999999999999999TiB\n"),
              HasSubstr("8MiB to 1TiB"));
  EXPECT_THAT(FileRefusal("fsync_interval: 100\n"),
              AllOf(HasSubstr("fsync_interval"), HasSubstr("unit")));
  EXPECT_THAT(FileRefusal("fsync_interval: 100 parsecs\n"), HasSubstr("unit"));
  EXPECT_THAT(FileRefusal("shards: 300\n"), HasSubstr("0 to 256"));
  EXPECT_THAT(FileRefusal("shards: two\n"), HasSubstr("'two'"));
  EXPECT_THAT(FileRefusal("weight: 0\n"), HasSubstr("0.001 to 64"));
  EXPECT_THAT(FileRefusal("weight: nan\n"), HasSubstr("0.001 to 64"));
  EXPECT_THAT(FileRefusal("listen: localhost\n"), HasSubstr("HOST:PORT"));
  EXPECT_THAT(FileRefusal("listen: 127.0.0.1:0\n"), HasSubstr("1 to 65535"));
  EXPECT_THAT(FileRefusal("listen: 127.0.0.1:70000\n"),
              HasSubstr("1 to 65535"));
  EXPECT_THAT(FileRefusal("listen: 127.0.0.256:7700\n"),
              HasSubstr("HOST:PORT"));
  EXPECT_THAT(FileRefusal("location: rack=\n"), HasSubstr("location"));
  EXPECT_THAT(FileRefusal("location: shelf=1\n"), HasSubstr("shelf"));
  EXPECT_THAT(FileRefusal("log_level: loud\n"), HasSubstr("debug"));
  EXPECT_THAT(FileRefusal("insecure: maybe\n"), HasSubstr("true or false"));
  EXPECT_THAT(FileRefusal("seeds: [127.0.0.1]\n"), HasSubstr("127.0.0.1"));
  EXPECT_THAT(FileRefusal("name: \"a b\"\n"), HasSubstr("letters"));
  EXPECT_THAT(Refusal({"--weight", "65"}),
              AllOf(HasSubstr("--weight"), HasSubstr("'65'")));
}

TEST_F(ConfigTest, FilesThatAreNoSettingsAreRefused) {
  EXPECT_THAT(FileRefusal("- a\n- b\n"), HasSubstr("node.yaml"));
  EXPECT_THAT(FileRefusal("name: [\n"), HasSubstr("not YAML"));
  EXPECT_THAT(FileRefusal("name: a\nname: b\n"), HasSubstr("twice"));
  EXPECT_THAT(FileRefusal("name:\n"), HasSubstr("no usable value"));
  EXPECT_THAT(FileRefusal("seeds: [[a]]\n"), HasSubstr("no usable value"));
  EXPECT_THAT(Refusal({"--config", folder_ + "/missing.yaml"}),
              HasSubstr("missing.yaml"));
  EXPECT_THAT(Refusal({"--config", folder_}), HasSubstr("not a file"));
}

TEST_F(ConfigTest, AnEmptyFileIsNoMistake) {
  EXPECT_EQ(FileRefusal(""), "accepted");
  EXPECT_EQ(FileRefusal("# nothing\n"), "accepted");
}

TEST_F(ConfigTest, PortsMustDiffer) {
  EXPECT_THAT(Refusal({"--listen", "127.0.0.1:7800"}),
              AllOf(HasSubstr("listen"), HasSubstr("peer_listen"),
                    HasSubstr("same port")));
  EXPECT_THAT(Refusal({"--insecure", "--listen", "0.0.0.0:7900", "--advertise",
                       "10.0.0.1:7900"}),
              HasSubstr("http_listen"));
  EXPECT_EQ(Refusal({"--listen", "127.0.0.2:7800"}), "accepted");
}

TEST_F(ConfigTest, ListeningBeyondLoopbackWantsInsecure) {
  EXPECT_THAT(Refusal({"--listen", "192.168.1.1:7700"}),
              AllOf(HasSubstr("listen"), HasSubstr("--insecure")));
  EXPECT_THAT(Refusal({"--http-listen", "example.org:7900"}),
              HasSubstr("--insecure"));
  EXPECT_EQ(Refusal({"--listen", "127.9.9.9:7700", "--peer-listen",
                     "[::1]:7800", "--http-listen", "localhost:7900"}),
            "accepted");
  const absl::StatusOr<CommandLine> parsed =
      Parse({"--listen", "192.168.1.1:7700", "--insecure"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr("not encrypted")));
}

TEST_F(ConfigTest, AWildcardWantsAnAddressToTell) {
  EXPECT_THAT(Refusal({"--insecure", "--listen", "0.0.0.0:7700"}),
              HasSubstr("advertise"));
  EXPECT_THAT(Refusal({"--insecure", "--peer-listen", "[::]:7800"}),
              HasSubstr("peer_advertise"));
  EXPECT_THAT(Refusal({"--insecure", "--listen", "0.0.0.0:7700", "--advertise",
                       "0.0.0.0:7700"}),
              HasSubstr("advertise"));
}

TEST_F(ConfigTest, DataDirectoriesThatCannotServeAreRefused) {
  const std::string file = Write("x");
  EXPECT_THAT(Refusal({"--data-dir", file}), HasSubstr("not a directory"));
  EXPECT_THAT(Refusal({"--data-dir", file + "/below"}),
              HasSubstr("cannot be made"));
  if (geteuid() != 0) {
    const std::string locked = folder_ + "/locked";
    std::filesystem::create_directory(locked);
    chmod(locked.c_str(), 0500);
    EXPECT_THAT(Refusal({"--data-dir", locked}), HasSubstr("may not"));
    EXPECT_THAT(Refusal({"--data-dir", locked + "/new"}),
                HasSubstr("cannot be made"));
    chmod(locked.c_str(), 0700);
  }
  EXPECT_EQ(Refusal({"--data-dir", folder_ + "/a/b/c"}), "accepted");
}

TEST_F(ConfigTest, SettingsThatDoNotFitTogetherAreRefusedOrWarnedOf) {
  EXPECT_THAT(
      Refusal({"--down-after", "500ms", "--heartbeat-interval", "500ms"}),
      HasSubstr("down_after"));
  EXPECT_THAT(Refusal({"--init", "--seeds", "127.0.0.1:7801"}),
              HasSubstr("init and seeds"));
  const absl::StatusOr<CommandLine> parsed =
      Parse({"--down-after", "1200ms", "--heartbeat-interval", "500ms"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->warnings, ElementsAre(HasSubstr("down_after")));
}

TEST_F(ConfigTest, HelpNamesEverySettingWithDefaultAndRange) {
  const absl::StatusOr<CommandLine> help = Parse({"--help"});
  ASSERT_TRUE(help.ok()) << help.status();
  EXPECT_EQ(help->action, CommandLine::Action::kPrint);
  for (const char* word : {"--data-dir", "--check-config", "--fsync-interval",
                           "100ms", "8MiB to 1TiB", "--insecure"}) {
    EXPECT_THAT(help->text, HasSubstr(word));
  }
  const absl::StatusOr<CommandLine> version = Parse({"--version"});
  ASSERT_TRUE(version.ok());
  EXPECT_THAT(version->text, HasSubstr("kvnode 0."));
}

TEST_F(ConfigTest, CheckConfigOnlyChecks) {
  const absl::StatusOr<CommandLine> parsed =
      Parse({"--check-config", "--data-dir", DataDir()});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->action, CommandLine::Action::kCheckConfig);
  EXPECT_FALSE(std::filesystem::exists(DataDir()));
  EXPECT_FALSE(Parse({"--check-config", "--weight", "-1"}).ok());
}

}  // namespace
}  // namespace ringkv
