#include "client/kvctl/kvctl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/load/text.h"
#include "client/progress.h"
#include "tests/client/fake_cluster.h"

namespace ringkv {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Result {
  int code = 0;
  std::string out;
  std::string err;
  Json json() const { return Json::parse(out); }
};

class KvctlTest : public ::testing::Test {
 protected:
  KvctlTest()
      : folder_(fs::temp_directory_path() /
                absl::StrCat("ringkv_kvctl_test_", ::getpid())) {
    fs::create_directories(folder_);
  }
  ~KvctlTest() override { fs::remove_all(folder_); }

  // With --endpoint of the cluster, if there is one.
  Result Run(std::vector<std::string> arguments, const std::string& input = "",
             bool terminal = false) {
    if (cluster_ != nullptr) {
      arguments.insert(arguments.begin(),
                       {"--endpoint", cluster_->endpoints()});
    }
    std::istringstream in(input);
    std::ostringstream out;
    std::ostringstream err;
    Streams streams{in, out, err};
    streams.in_is_terminal = terminal;
    Result result;
    result.code = RunKvctl(arguments, streams);
    result.out = out.str();
    result.err = err.str();
    return result;
  }

  void StartCluster(int nodes = 3, bool formed = true) {
    cluster_ = std::make_unique<FakeCluster>(nodes, formed);
  }

  std::string File(const std::string& name, const std::string& contents) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }

  const fs::path folder_;
  std::unique_ptr<FakeCluster> cluster_;
};

TEST_F(KvctlTest, WrongUseIsExitCodeTwoWithAReason) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"no-such-command"},
      {"get"},
      {"get", "k", "extra"},
      {"get", "k", "--no-such-flag"},
      {"get", "k", "--r", "many"},
      {"get", "k", "--r", "-1"},
      {"get", "k", "--r", "1", "--r", "2"},
      {"get", "k", "-o", "xml"},
      {"get", "k", "--endpoint", "not an address"},
      {"get", "k", "--timeout", "soon"},
      {"get", "k", "--timeout", "0s"},
      {"get", "k", "--quorum", "most"},
      {"get", "k", "--hex", "--base64"},
      {"get", "k", "--raw", "--raw"},
      {"get", "xyz", "--hex"},
      {"put", "k"},
      {"put", "k", "v", "--file", "f"},
      {"put", "k", "v", "--context", "!"},
      {"put", "k", "v", "--ttl", "-5s"},
      {"scan", "--limit", "0"},
      {"scan", "--limit", "5", "--all"},
      {"init", "--placement", "random"},
      {"init", "--vnodes", "5"},
      {"init", "--nodes", "0"},
      {"keyspace"},
      {"keyspace", "create"},
      {"keyspace", "create", "a", "--mode", "best"},
      {"keyspace", "alter", "a"},
      {"load"},
      {"load", "-", "--format", "xml"},
      {"load", "-", "--delimiter", ",,"},
      {"load", "-", "-j", "0"},
      {"ring", "look"},
      {"join"},
      {"replace", "n1"},
      {"weight", "n1", "0"},
      {"weight", "n1", "much"},
      {"plan"},
      {"plan", "join"},
      {"plan", "join", "n4", "--yes"},
      {"operations", "now"},
      {"playground", "--nodes", "0"},
  };
  for (const std::vector<std::string>& arguments : cases) {
    const Result result = Run(arguments);
    EXPECT_EQ(result.code, kExitUsage) << ::testing::PrintToString(arguments);
    EXPECT_NE(result.err, "") << ::testing::PrintToString(arguments);
  }
}

TEST_F(KvctlTest, HelpAndVersionAreDone) {
  EXPECT_EQ(Run({"--help"}).code, kExitDone);
  EXPECT_THAT(Run({"load", "--help"}).out, HasSubstr("--key"));
  EXPECT_THAT(Run({"--version"}).out, HasSubstr("kvctl 0."));
}

TEST_F(KvctlTest, NobodyAnswers) {
  StartCluster(1);
  cluster_->Kill(1);
  Result result = Run({"get", "k", "--timeout", "300ms"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr(cluster_->node(1).address()));
  result = Run({"status", "--timeout", "300ms"});
  EXPECT_EQ(result.code, kExitUnknown);
  EXPECT_THAT(result.err, HasSubstr(cluster_->node(1).address()));
}

TEST_F(KvctlTest, PutGetDelete) {
  StartCluster();
  EXPECT_EQ(Run({"put", "greeting", "hello"}).code, kExitDone);
  Result result = Run({"get", "greeting"});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_EQ(result.out, "hello\n");
  EXPECT_EQ(Run({"get", "greeting", "--raw"}).out, "hello");
  EXPECT_EQ(Run({"delete", "greeting"}).code, kExitDone);
  result = Run({"get", "greeting"});
  EXPECT_EQ(result.code, kExitNoValue);
  EXPECT_EQ(result.out, "");
  result = Run({"get", "greeting", "-o", "json"});
  EXPECT_EQ(result.code, kExitNoValue);
  EXPECT_FALSE(result.json()["found"]);
}

TEST_F(KvctlTest, EndpointComesFromTheEnvironmentToo) {
  FakeCluster cluster(1);
  cluster.PutDirectly("k", "v");
  ASSERT_EQ(setenv("RINGKV_ENDPOINT", cluster.endpoints().c_str(), 1), 0);
  const Result result = Run({"get", "k"});
  unsetenv("RINGKV_ENDPOINT");
  EXPECT_EQ(result.out, "v\n") << result.err;
}

TEST_F(KvctlTest, ValuesComeFromStandardInputAndFiles) {
  StartCluster();
  const std::string bytes("a\0b\n\xff", 5);
  EXPECT_EQ(Run({"put", "k", "-"}, bytes).code, kExitDone);
  EXPECT_EQ(Run({"get", "k", "--raw"}).out, bytes);
  EXPECT_EQ(Run({"put", "f", "--file", File("v", bytes)}).code, kExitDone);
  EXPECT_EQ(Run({"get", "f", "--raw"}).out, bytes);
  EXPECT_EQ(Run({"put", "h", "ff00", "--value-hex"}).code, kExitDone);
  EXPECT_EQ(Run({"get", "h", "--raw"}).out, std::string("\xff\0", 2));
  EXPECT_EQ(Run({"put", "e", ""}).code, kExitDone);
  EXPECT_EQ(Run({"get", "e"}).out, "\n");
  EXPECT_EQ(Run({"put", "x", "--file", "/no/such"}).code, kExitFailed);
}

TEST_F(KvctlTest, KeysAreAnyBytes) {
  StartCluster();
  EXPECT_EQ(Run({"put", "00ff", "v", "--hex"}).code, kExitDone);
  EXPECT_EQ(Run({"get", "AP8=", "--base64"}).out, "v\n");
  const Result result = Run({"get", "00ff", "--hex", "-o", "json"});
  EXPECT_EQ(result.json()["key_base64"], "AP8=");
  EXPECT_EQ(result.json()["siblings"][0]["value"], "v");
  EXPECT_EQ(Run({"put", "--", "-k", "-v"}).code, kExitDone);
  EXPECT_EQ(Run({"get", "--", "-k"}).out, "-v\n");
}

TEST_F(KvctlTest, SiblingsAreShownAndResolvedWithTheirContext) {
  StartCluster();
  cluster_->PutDirectly("k", "one");
  cluster_->PutDirectly("k", "two");
  Result result = Run({"get", "k"});
  EXPECT_EQ(result.out, "two\none\n");
  EXPECT_THAT(result.err, HasSubstr("2 siblings"));
  EXPECT_EQ(Run({"get", "k", "--raw"}).code, kExitFailed);
  const std::string context = Run({"get", "k", "-o", "json"}).json()["context"];
  result = Run({"put", "k", "both", "--context", context, "-o", "json"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.json()["unresolved_siblings"], 0);
  EXPECT_EQ(Run({"get", "k"}).out, "both\n");
  result = Run({"put", "k", "beside", "--blind"});
  EXPECT_THAT(result.err, HasSubstr("other sibling"));
}

TEST_F(KvctlTest, RefusalsAreExitCodeOneInBothForms) {
  StartCluster();
  Result result = Run({"get", "k", "--keyspace", "nowhere", "-o", "json"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_EQ(result.json()["error"]["code"], "NOT_FOUND");
  EXPECT_THAT(result.err, HasSubstr("nowhere"));
  result = Run({"put", std::string(5000, 'k'), "v"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("4096"));
}

TEST_F(KvctlTest, ScanPagesWithItsCursor) {
  StartCluster();
  for (int i = 0; i < 25; ++i) cluster_->PutDirectly(absl::StrCat("k", i), "v");
  Result result = Run({"scan", "--limit", "10", "-o", "json"});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.json()["entries"].size(), 10u);
  const std::string cursor = result.json()["cursor"];
  ASSERT_NE(cursor, "");
  result = Run({"scan", "--all", "--cursor", cursor, "-o", "json"});
  EXPECT_EQ(result.json()["entries"].size(), 15u);
  EXPECT_EQ(result.json()["cursor"], "");
  result = Run({"scan", "--keys-only", "--all"});
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 25);
}

TEST_F(KvctlTest, LocateShowsEveryReplica) {
  StartCluster(5);
  cluster_->PutDirectly("k", "v");
  Result result = Run({"locate", "k", "-o", "json"});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  ASSERT_EQ(result.json()["copies"].size(), 3u);
  EXPECT_EQ(result.json()["copies"][0]["node_number"],
            cluster_->Replicas("k")[0]);
  EXPECT_TRUE(result.json()["copies"][0]["found"]);
  EXPECT_THAT(Run({"locate", "k"}).out, HasSubstr("replica"));
}

// --- cluster ---

TEST_F(KvctlTest, InitShowsTheNodesAndAsksForTheirNumber) {
  StartCluster(3, /*formed=*/false);
  Result result = Run({"init"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.out, AllOf(HasSubstr("found 3 nodes"), HasSubstr("n3")));
  EXPECT_THAT(result.err, HasSubstr("--nodes 3"));
  result = Run({"init", "--nodes", "4", "--wait", "10ms"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("found 3 nodes, --nodes says 4"));
  EXPECT_EQ(Run({"status"}).code, kExitUnknown);
  result = Run({"init", "--nodes", "3", "-o", "json"});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.json()["ring_epoch"], 1);
  EXPECT_EQ(result.json()["nodes"].size(), 3u);
  EXPECT_EQ(Run({"status"}).code, kExitDone);
  result = Run({"init", "--yes"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("formed already"));
}

TEST_F(KvctlTest, StatusIsHealthyThenDegraded) {
  StartCluster();
  Result result = Run({"status"});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_THAT(result.out, AllOf(HasSubstr("healthy"), HasSubstr("itself")));
  result = Run({"status", "-o", "json"});
  EXPECT_EQ(result.json()["health"], "healthy");
  EXPECT_EQ(result.json()["nodes"][1]["state"], "alive");
  EXPECT_EQ(result.json()["nodes"][1]["location"]["rack"], "r2");
  EXPECT_EQ(result.json()["nodes"][1]["keys"], 20);
  cluster_->SetAlive(2, false);
  result = Run({"status"});
  EXPECT_EQ(result.code, kExitDegraded);
  EXPECT_THAT(result.out, AllOf(HasSubstr("n2 is down"), HasSubstr("1m05s ago"),
                                HasSubstr("warning")));
  EXPECT_EQ(Run({"status", "-o", "json"}).json()["health"], "degraded");
}

TEST_F(KvctlTest, StatusAsksTheNextEndpoint) {
  StartCluster();
  cluster_->Kill(1);
  const Result result = Run({"status", "-o", "json"});
  EXPECT_EQ(result.json()["answered_by"]["name"], "n2") << result.err;
}

TEST_F(KvctlTest, RingShowsSharesAndCheckComparesTheViews) {
  StartCluster(5);
  Result result = Run({"ring", "-o", "json"});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.json()["nodes"].size(), 5u);
  EXPECT_EQ(result.json()["host_violations"], 0);
  double sum = 0;
  const Json ring = result.json();
  for (const Json& node : ring["nodes"]) {
    sum += node["replicated_share"].get<double>();
  }
  EXPECT_NEAR(sum, 3.0, 1e-6);
  EXPECT_THAT(Run({"ring"}).out, HasSubstr("largest/mean"));
  result = Run({"ring", "check"});
  EXPECT_EQ(result.code, kExitDone) << result.out;
  cluster_->Kill(4);
  result = Run({"ring", "check", "-o", "json"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.json()["findings"][0].get<std::string>(), HasSubstr("n4"));
}

TEST_F(KvctlTest, HintsNameHolderAndTarget) {
  StartCluster();
  Result result = Run({"hints", "-o", "json"});
  EXPECT_EQ(result.json()["backlogs"][0]["hints"], 42);
  EXPECT_EQ(result.json()["unheard"][0], 2);
  EXPECT_THAT(
      Run({"hints"}).out,
      AllOf(HasSubstr("n1 #1"), HasSubstr("42 hints wait"), HasSubstr("12s")));
}

TEST_F(KvctlTest, KeyspacesAreMadeChangedListedAndDropped) {
  StartCluster();
  Result result = Run({"keyspace", "create", "logs", "--mode", "lww", "--n",
                       "3", "--r", "1", "--w", "1"});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(Run({"keyspace", "create", "logs"}).code, kExitFailed);
  result = Run({"keyspace", "alter", "logs", "--durability", "sync"});
  EXPECT_THAT(result.out, HasSubstr("sync")) << result.err;
  result = Run({"keyspace", "list", "-o", "json"});
  ASSERT_EQ(result.json()["keyspaces"].size(), 3u);
  EXPECT_EQ(result.json()["keyspaces"][2]["mode"], "lww");
  EXPECT_EQ(result.json()["keyspaces"][2]["durability"], "sync");
  result = Run({"keyspace", "drop", "logs"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("--yes"));
  EXPECT_EQ(Run({"keyspace", "drop", "logs", "--yes"}).code, kExitDone);
  EXPECT_EQ(Run({"keyspace", "drop", "logs", "--yes"}).code, kExitFailed);
}

// --- load, verify, dump ---

TEST_F(KvctlTest, LoadWritesAllAndVerifyAgrees) {
  StartCluster(5);
  std::string index;
  for (int i = 0; i < 1000; ++i) {
    absl::StrAppend(&index, "Package: p", i, "\nVersion: ", i, "\n\n");
  }
  const std::string file = File("Packages", index);
  Result result = Run({"load", file, "--key", "Package,Version", "-o", "json"});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.json()["written"], 1000);
  EXPECT_EQ(result.json()["failed"], 0);
  EXPECT_EQ(result.json()["unknown"], 0);
  EXPECT_EQ(Run({"get", "p7=7"}).out, "Package: p7\nVersion: 7\n\n");
  result = Run({"verify", file, "--key", "Package,Version", "-o", "json"});
  EXPECT_EQ(result.code, kExitDone) << result.out;
  EXPECT_EQ(result.json()["equal"], 1000);
  cluster_->DivergeReplica("p8=8");
  cluster_->PutDirectly("p9=9", "sibling");
  Run({"delete", "p10=10"});
  result = Run({"verify", file, "--key", "Package,Version", "-o", "json"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_EQ(result.json()["replicas_unequal"], 1);
  EXPECT_EQ(result.json()["different"], 1);
  EXPECT_EQ(result.json()["missing"], 1);
  EXPECT_EQ(result.json()["equal"], 997);
}

TEST_F(KvctlTest, LaterRecordOfAKeyReplacesTheEarlierOne) {
  StartCluster();
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    absl::StrAppend(&lines, "{\"key\": \"k\", \"value\": \"", i, "\"}\n");
  }
  Result result = Run({"load", "-", "-o", "json"}, lines);
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.json()["duplicates"], 199);
  EXPECT_EQ(Run({"get", "k"}).out, "199\n");
}

TEST_F(KvctlTest, LoadResolvesUnknownOutcomes) {
  StartCluster();
  for (int i = 1; i <= 3; ++i) {
    cluster_->Configure(i, [](FakeBehaviour& b) {
      b.refuse = grpc::Status(grpc::StatusCode::UNAVAILABLE, "quorum");
      b.times = 60;
    });
  }
  std::string lines;
  for (int i = 0; i < 100; ++i) {
    absl::StrAppend(&lines, "{\"key\": \"k", i, "\", \"value\": \"v\"}\n");
  }
  const Result result = Run({"load", "-", "-o", "json"}, lines);
  ASSERT_EQ(result.code, kExitDone) << result.out << result.err;
  EXPECT_EQ(result.json()["written"], 100);
  EXPECT_GT(result.json()["resolved"], 0);
  EXPECT_EQ(cluster_->objects().size(), 100u);
  for (const auto& [key, object] : cluster_->objects()) {
    EXPECT_EQ(object.siblings.size(), 1u) << key;
  }
}

TEST_F(KvctlTest, LoadStopsAtABadRecordUnlessToldToGoOn) {
  StartCluster();
  const std::string lines =
      "{\"key\": \"a\", \"value\": \"1\"}\noops\n"
      "{\"key\": \"b\", \"value\": \"2\"}\n{\"key\": \"\", \"value\": \"2\"}\n"
      "{\"key\": \"c\", \"value\": \"3\"}\n";
  Result result = Run({"load", "-", "--format", "jsonl", "-o", "json"}, lines);
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_FALSE(result.json()["complete"]);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("line 2"), HasSubstr("NOT complete")));
  EXPECT_EQ(cluster_->objects().size(), 1u);
  result = Run(
      {"load", "-", "--format", "jsonl", "-o", "json", "--continue-on-error"},
      lines);
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_EQ(result.json()["written"], 3);
  EXPECT_EQ(result.json()["failed"], 2);
  EXPECT_EQ(result.json()["malformed"], 1);
  EXPECT_EQ(cluster_->objects().size(), 3u);
}

TEST_F(KvctlTest, LoadOfACutOffFileSaysSo) {
  StartCluster();
  const Result result = Run(
      {"load", File("x.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10))});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, AllOf(HasSubstr("x.gz"), HasSubstr("cut off")));
}

TEST_F(KvctlTest, DumpIsWhatLoadReadsWithAllBytesAndSiblings) {
  StartCluster();
  std::map<std::string, std::set<std::string>> expected;
  for (int i = 0; i < 256; ++i) {
    const std::string key =
        absl::StrCat("k", std::string(1, static_cast<char>(i)));
    const std::string value(3, static_cast<char>(255 - i));
    cluster_->PutDirectly(key, value);
    expected[key].insert(value);
    if (i % 10 == 0) {
      cluster_->PutDirectly(key, "sibling");
      cluster_->PutDirectly(key, std::string("third\0\xff", 7));
      expected[key].insert("sibling");
      expected[key].insert(std::string("third\0\xff", 7));
    }
  }
  const std::string file = (folder_ / "dump.jsonl").string();
  Result result = Run({"dump", file, "-o", "json"});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.json()["records"], 256);
  EXPECT_EQ(result.json()["with_siblings"], 26);
  EXPECT_EQ(Run({"dump"}).out.size(), fs::file_size(file));

  StartCluster(5);
  result = Run({"load", file});
  ASSERT_EQ(result.code, kExitDone) << result.err;
  std::map<std::string, std::set<std::string>> loaded;
  for (const auto& [key, object] : cluster_->objects()) {
    for (const FakeCluster::Value& value : object.siblings) {
      loaded[key].insert(value.value);
    }
  }
  EXPECT_EQ(loaded, expected);
  EXPECT_EQ(Run({"verify", file}).code, kExitDone);
  // Loading again neither loses nor doubles anything.
  ASSERT_EQ(Run({"load", file}).code, kExitDone);
  EXPECT_EQ(Run({"verify", file}).code, kExitDone);
}

TEST_F(KvctlTest, DumpFollowsLinksAndSparesWhatIsNoPlainFile) {
  StartCluster();
  cluster_->PutDirectly("k", "v");
  const Result to_folder = Run({"dump", folder_.string()});
  EXPECT_EQ(to_folder.code, kExitUsage);
  EXPECT_THAT(to_folder.err, HasSubstr("is a directory"));
  EXPECT_FALSE(fs::exists(folder_.string() + ".partial"));

  const fs::path target = File("target", "old");
  fs::create_symlink(target, folder_ / "link");
  ASSERT_EQ(Run({"dump", (folder_ / "link").string()}).code, kExitDone);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_GT(fs::file_size(target), 3u);

  // Into a pipe, as it is: the reader gets all of it.
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] {
    std::ifstream in(pipe);
    std::getline(in, read);
  });
  EXPECT_EQ(Run({"dump", pipe}).code, kExitDone);
  reader.join();
  EXPECT_THAT(read, HasSubstr("\"key\""));
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(KvctlTest, ValuesAreReadFromFilesUpToTheirLimit) {
  StartCluster();
  EXPECT_EQ(Run({"put", "k", "--file", File("v", "value")}).code, kExitDone);
  EXPECT_EQ(Run({"get", "k"}).out, "value\n");
  const Result folder = Run({"put", "k", "--file", folder_.string()});
  EXPECT_EQ(folder.code, kExitUsage);
  EXPECT_THAT(folder.err, HasSubstr("folder"));
  const Result endless = Run({"put", "k", "--file", "/dev/zero"});
  EXPECT_EQ(endless.code, kExitUsage);
  EXPECT_THAT(endless.err, HasSubstr("1 MiB at most"));
}

TEST_F(KvctlTest, AnEmptyContextIsNoContext) {
  StartCluster();
  cluster_->PutDirectly("k", "kept");
  for (const char* command : {"put", "delete"}) {
    std::vector<std::string> arguments = {command, "k", "--context", ""};
    if (std::string(command) == "put")
      arguments.insert(arguments.begin() + 2, "v");
    const Result result = Run(arguments);
    EXPECT_EQ(result.code, kExitUsage);
    EXPECT_THAT(result.err, HasSubstr("--context is empty"));
  }
  EXPECT_EQ(Run({"get", "k"}).out, "kept\n");
}

TEST_F(KvctlTest, AWordThatIsNoCommandIsNamed) {
  EXPECT_THAT(Run({"frob"}).err, HasSubstr("\"frob\" is no command"));
  EXPECT_THAT(Run({"keyspace", "frob"}).err, HasSubstr("\"frob\""));
  EXPECT_EQ(Run({"frob"}).code, kExitUsage);
}

TEST_F(KvctlTest, ANodeInNoClusterSaysSoAtOnce) {
  StartCluster(1, /*formed=*/false);
  const Result put = Run({"put", "k", "v", "--timeout", "20s"});
  EXPECT_EQ(put.code, kExitFailed);
  EXPECT_THAT(put.err, HasSubstr("kvctl init"));
  EXPECT_THAT(Run({"ring"}).err, HasSubstr("in no ring"));
}

TEST_F(KvctlTest, ExpiredValuesAreLeftOut) {
  StartCluster();
  const Result result =
      Run({"load", "-", "-o", "json"},
          "{\"key\": \"old\", \"value\": \"\", \"expires_at_ms\": 1000}\n"
          "{\"key\": \"new\", \"value\": \"\", \"expires_at_ms\": "
          "9999999999999}\n");
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.json()["written"], 1);
  EXPECT_EQ(result.json()["expired"], 1);
}

// --- operations ---

TEST_F(KvctlTest, PlanShowsWhatWouldMoveAndChangesNothing) {
  StartCluster();
  Result result = Run({"plan", "join", "n4"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("join of n4, in ring epoch 1"),
                                HasSubstr("4,096 ranges, about 3.0 MiB"),
                                HasSubstr("25.00 %"), HasSubstr("1.0002 after"),
                                HasSubstr("warning: racks are uneven")));
  result = Run({"plan", "weight", "n4", "2.5", "-o", "json"});
  EXPECT_EQ(result.json()["kind"], "weight");
  EXPECT_EQ(result.json()["transfers"][0]["estimated_bytes"], 3 << 20);
  for (const v1::StartOperationRequest& request :
       cluster_->operation_requests()) {
    EXPECT_TRUE(request.dry_run());
  }
  EXPECT_EQ(cluster_->operation_requests().back().weight(), 2.5);
  EXPECT_THAT(Run({"operations"}).out, HasSubstr("no operation runs"));
}

TEST_F(KvctlTest, AnOperationWantsConsent) {
  StartCluster();
  Result result = Run({"join", "n4"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("--yes"));
  EXPECT_THAT(result.out, HasSubstr("4,096 ranges"));
  result = Run({"join", "n4"}, "n\n", /*terminal=*/true);
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("nothing was done"));
  EXPECT_EQ(cluster_->operation_requests().size(), 2u);
  result = Run({"join", "n4", "--no-wait"}, "y\n", /*terminal=*/true);
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("started: operation 2"),
                                HasSubstr("kvctl operations --watch")));
  const v1::StartOperationRequest last = cluster_->operation_requests().back();
  EXPECT_FALSE(last.dry_run());
  EXPECT_EQ(last.planned_for(), 1u);
  // One at a time; and status tells of it.
  result = Run({"decommission", "n2", "--yes"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("a join runs"));
  EXPECT_THAT(Run({"status"}).out,
              HasSubstr("running: join of n4: streaming, 30 of 100 ranges; "
                        "waits: n4 receives"));
}

TEST_F(KvctlTest, AnOperationIsWatchedToItsEnd) {
  StartCluster();
  Result result = Run({"replace", "n3", "new", "--yes", "--no-progress"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("is done after 1m03s"));
  EXPECT_EQ(cluster_->operation_requests().back().replacements(0), "new");
  cluster_->EndOperations(1, v1::OPERATION_STATE_ABORTED);
  result = Run({"remove-dead", "n3", "--yes", "-o", "json"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_EQ(result.json()["state"], "aborted");
  EXPECT_EQ(result.json()["kind"], "remove-dead");
  result = Run({"operations"});
  EXPECT_EQ(result.code, kExitDone);
  EXPECT_THAT(result.out, AllOf(HasSubstr("replace of n3"),
                                HasSubstr("1970-01-01T00:01:04Z")));
}

TEST_F(KvctlTest, OperationsWatchesWhatRuns) {
  StartCluster();
  ASSERT_EQ(Run({"weight", "n1", "2", "--yes", "--no-wait"}).code, kExitDone);
  Result result = Run({"operations", "-o", "json"});
  EXPECT_EQ(result.json()["running"]["progress"][0]["ranges_done"], 30);
  result = Run({"operations", "--watch"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("weight of n1 is done"));
}

TEST_F(KvctlTest, AbortAsksAndTakesBack) {
  StartCluster();
  EXPECT_THAT(Run({"abort", "--yes"}).err, HasSubstr("no operation runs"));
  cluster_->EndOperations(1000, v1::OPERATION_STATE_DONE);
  ASSERT_EQ(Run({"join", "n4", "--yes", "--no-wait"}).code, kExitDone);
  Result result = Run({"abort"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("to abort the join of n4"));
  result = Run({"abort", "--yes"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("join of n4 is aborted"));
}

TEST_F(KvctlTest, WhatIsRefusedIsExitCodeOne) {
  StartCluster();
  const Result result = Run({"join", "nobody", "--yes", "-o", "json"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_EQ(result.json()["error"]["code"], "NOT_FOUND");
}

TEST_F(KvctlTest, AlterOfNWaitsForItsOperation) {
  StartCluster();
  const Result result = Run({"keyspace", "alter", "default", "--n", "5"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("change of keyspace default is done"));
}

TEST_F(KvctlTest, DataLossIsAcceptedForDeadNodesOnly) {
  StartCluster();
  ASSERT_EQ(Run({"plan", "remove-dead", "n2", "n3", "--accept-data-loss"}).code,
            kExitDone);
  EXPECT_TRUE(cluster_->operation_requests().back().accept_data_loss());
  ASSERT_EQ(Run({"plan", "replace", "n2", "n4"}).code, kExitDone);
  EXPECT_FALSE(cluster_->operation_requests().back().accept_data_loss());
  EXPECT_EQ(Run({"join", "n4", "--accept-data-loss"}).code, kExitUsage);
}

// --- recover, upgrade ---

TEST_F(KvctlTest, ARecoveryIsCalledUnsafeAndAgreedTo) {
  StartCluster();
  Result result = Run({"recover"});
  EXPECT_EQ(result.code, kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("--unsafe"));
  result = Run({"recover", "--unsafe"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("rebuilt with n1"), HasSubstr("without n9"),
                    HasSubstr("only n9 had are lost")));
  EXPECT_THAT(result.err, HasSubstr("add --yes"));
  result = Run({"recover", "--unsafe", "n1"}, "no\n", /*terminal=*/true);
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.out, HasSubstr("disks of n9 lost for good"));
  result = Run({"recover", "--unsafe", "--yes"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(
      result.out,
      HasSubstr("recovered: ring epoch 1001, lineage 0000000000000abc"));
  result = Run({"recover", "--unsafe", "--yes", "-o", "json"});
  EXPECT_EQ(result.json()["lineage"], "0000000000000abc");
  EXPECT_EQ(result.json()["lost"][0]["name"], "n9");
}

TEST_F(KvctlTest, UpgradeShowsWhatIsKnownAndRaisesTheLevel) {
  StartCluster();
  Result result = Run({"upgrade", "status"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("the ring has feature level 1"),
                                HasSubstr("every member knows 2"),
                                HasSubstr("kvctl upgrade finish")));
  cluster_->SetAlive(2, false);
  EXPECT_THAT(Run({"upgrade", "status"}).out,
              HasSubstr("what n2 will know is not sure"));
  EXPECT_EQ(Run({"upgrade", "status", "-o", "json"}).json()["known_to_any"], 3);
  EXPECT_EQ(Run({"upgrade"}).code, kExitUsage);
  result = Run({"upgrade", "finish"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("--yes"));
  result = Run({"upgrade", "finish", "--yes"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("feature level 2, was 1"));
  result = Run({"upgrade", "finish", "--yes", "--level", "1"});
  EXPECT_THAT(result.out, HasSubstr("has feature level 1 already"));
  result = Run({"upgrade", "finish", "--yes", "--level", "3"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("knows up to 2"));
}

// --- progress ---

TEST(ProgressTest, LineSaysHowFarHowFastAndHowLong) {
  std::ostringstream out;
  Progress progress(out, Progress::Style::kLines, "load", Instant{0});
  const Instant later = Instant{0} + absl::Seconds(10);
  EXPECT_EQ(progress.Line(later, 5 << 20, 20 << 20, 26'000),
            "load   25 %  5.0 MiB of 20.0 MiB, 26,000 records, 2,600/s, "
            "30s left");
  EXPECT_EQ(progress.Line(later, 5 << 20, 0, 10),
            "load  5.0 MiB, 10 records, 1/s");
  Progress keys(out, Progress::Style::kLines, "verify", Instant{0},
                Progress::Unit::kRecords);
  EXPECT_EQ(keys.Line(later, 1000, 4000, 1000),
            "verify   25 %  1,000 of 4,000 records, 100/s, 30s left");
  progress.Update(Instant{0} + absl::Seconds(1), 1, 2, 3);
  EXPECT_EQ(out.str(), "");
  progress.Update(later, 1, 2, 3);
  EXPECT_THAT(out.str(), HasSubstr("3 records"));
}

TEST(ProgressTest, NumbersAreReadable) {
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "16.0 EiB");
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatSpan(absl::Seconds(59)), "59s");
  EXPECT_EQ(FormatSpan(absl::Seconds(185)), "3m05s");
  EXPECT_EQ(FormatSpan(absl::Hours(26)), "26h00m");
}

}  // namespace
}  // namespace ringkv
