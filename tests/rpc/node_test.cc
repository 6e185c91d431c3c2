// Whole nodes in this process, over loopback, RocksDB and gRPC.

#include "server/rpc/node.h"

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ringkv/v1/admin.grpc.pb.h"
#include "ringkv/v1/kv.grpc.pb.h"
#include "server/messages.h"
#include "server/rpc/clock_system.h"

namespace ringkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An address that no other process listens at: tests run beside each other, and
// a port that was free a moment ago may be gone (the kernel hands out the same
// ones for outgoing connections). The process id makes the host its own, and
// ports below those for outgoing connections are counted up.
std::string Loopback() {
  static std::atomic<int> next_port{20000};
  const int pid = getpid();
  return absl::StrCat("127.", 1 + (pid >> 16) % 254, ".", (pid >> 8) & 0xff,
                      ".", pid & 0xff, ":", next_port++);
}

// What a GET of `path` answers: the whole response.
std::string HttpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.find(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = inet_addr(address.substr(0, colon).c_str());
  to.sin_port =
      htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  std::string response;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(write(fd, request.data(), request.size()),
              static_cast<ssize_t>(request.size()));
    char buffer[4096];
    ssize_t got;
    while ((got = read(fd, buffer, sizeof(buffer))) > 0) {
      response.append(buffer, static_cast<size_t>(got));
    }
  }
  close(fd);
  return response;
}

// True once `condition` is; asks again until twenty seconds have passed.
template <class Condition>
bool Eventually(const Condition& condition) {
  const Instant deadline = SystemInstant() + absl::Seconds(20);
  while (!condition()) {
    if (SystemInstant() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

class NodeTest : public ::testing::Test {
 protected:
  struct Running {
    NodeConfig config;
    std::unique_ptr<Node> node;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::KeyValue::Stub> kv;
    std::unique_ptr<v1::Admin::Stub> admin;
  };

  void SetUp() override {
    folder_ = absl::StrCat(
        ::testing::TempDir(), "/node_test.", ::getpid(), ".",
        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    nodes_.clear();
    std::filesystem::remove_all(folder_);
  }

  NodeConfig Config(const std::string& name) {
    NodeConfig config;
    config.name = name;
    config.data_dir = absl::StrCat(folder_, "/", name);
    config.listen = Loopback();
    config.peer_listen = Loopback();
    config.http_listen = Loopback();
    config.shards = 2;
    config.memory = 16 << 20;
    config.heartbeat_interval = absl::Milliseconds(50);
    config.down_after = absl::Milliseconds(500);
    config.drain_timeout = absl::Seconds(5);
    return config;
  }

  Running& Start(const NodeConfig& config) {
    auto running = std::make_unique<Running>();
    running->config = config;
    absl::StatusOr<std::unique_ptr<Node>> node =
        Node::Start(config, [](int) { ADD_FAILURE() << "a node ended"; });
    EXPECT_TRUE(node.ok()) << node.status();
    if (!node.ok()) std::abort();  // nothing below could go on
    running->node = *std::move(node);
    running->channel =
        grpc::CreateChannel(config.listen, grpc::InsecureChannelCredentials());
    running->kv = v1::KeyValue::NewStub(running->channel);
    running->admin = v1::Admin::NewStub(running->channel);
    nodes_.push_back(std::move(running));
    return *nodes_.back();
  }

  Running& StartSingle() {
    NodeConfig config = Config("single");
    config.init = true;
    Running& running = Start(config);
    EXPECT_TRUE(Eventually([&] { return running.node->NotReady().empty(); }));
    return running;
  }

  // Three nodes that found each other and formed a cluster.
  void StartThree() {
    std::vector<NodeConfig> configs = {Config("n1"), Config("n2"),
                                       Config("n3")};
    for (NodeConfig& config : configs) {
      for (const NodeConfig& other : configs) {
        config.seeds.push_back(other.peer_listen);
      }
    }
    for (const NodeConfig& config : configs) Start(config);
    ASSERT_TRUE(Eventually([&] {
      grpc::ClientContext context;
      v1::InitRequest request;
      request.set_expected_nodes(3);
      v1::InitResponse response;
      return nodes_[0]->admin->Init(&context, request, &response).ok();
    }));
    for (const auto& running : nodes_) {
      ASSERT_TRUE(Eventually([&] { return running->node->NotReady().empty(); }))
          << running->node->NotReady();
    }
  }

  static grpc::Status Put(Running& node, const std::string& key,
                          const std::string& value,
                          v1::PutResponse* response = nullptr) {
    grpc::ClientContext context;
    v1::PutRequest request;
    request.set_key(key);
    request.set_value(value);
    v1::PutResponse ignored;
    return node.kv->Put(&context, request,
                        response == nullptr ? &ignored : response);
  }

  // The only value, or what is there instead.
  static std::string Get(Running& node, const std::string& key) {
    grpc::ClientContext context;
    v1::GetRequest request;
    request.set_key(key);
    v1::GetResponse response;
    const grpc::Status status = node.kv->Get(&context, request, &response);
    if (!status.ok()) return absl::StrCat("error ", status.error_message());
    if (response.siblings_size() != 1) {
      return absl::StrCat(response.siblings_size(), " siblings");
    }
    return response.siblings(0).value();
  }

  std::string folder_;
  std::vector<std::unique_ptr<Running>> nodes_;
};

TEST_F(NodeTest, ServesPutGetAndDelete) {
  Running& node = StartSingle();
  v1::PutResponse put;
  ASSERT_TRUE(Put(node, "k", "v", &put).ok());
  EXPECT_EQ(put.replica_acks(), 1);
  EXPECT_TRUE(put.has_context());
  EXPECT_EQ(put.ring_epoch(), 1);
  EXPECT_EQ(Get(node, "k"), "v");
  grpc::ClientContext context;
  v1::DeleteRequest request;
  request.set_key("k");
  v1::DeleteResponse response;
  ASSERT_TRUE(node.kv->Delete(&context, request, &response).ok());
  EXPECT_EQ(Get(node, "k"), "0 siblings");
}

TEST_F(NodeTest, LimitsAreInvalidArgumentWithLimitAndSize) {
  Running& node = StartSingle();
  grpc::Status status = Put(node, std::string(4097, 'k'), "v");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("4097"), HasSubstr("4096")));
  EXPECT_EQ(Put(node, "", "v").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  status = Put(node, "k", std::string(5 << 20, 'v'));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("1048576"));
  EXPECT_TRUE(
      Put(node, std::string(4096, 'k'), std::string(1 << 20, 'v')).ok());
  {
    grpc::ClientContext context;
    v1::GetRequest request;
    request.set_key("k");
    request.set_keyspace("nowhere");
    v1::GetResponse response;
    EXPECT_EQ(node.kv->Get(&context, request, &response).error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
  {
    grpc::ClientContext context;
    v1::PutRequest request;
    request.set_key("k");
    request.set_context("garbage");
    v1::PutResponse response;
    EXPECT_EQ(node.kv->Put(&context, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(NodeTest, ABatchAnswersEachOperationInOrder) {
  Running& node = StartSingle();
  v1::BatchRequest request;
  for (int i = 0; i < 100; ++i) {
    v1::PutRequest& put = *request.add_operations()->mutable_put();
    put.set_key(absl::StrCat("k", i));
    put.set_value(absl::StrCat("v", i));
  }
  request.add_operations();  // none of get, put, delete
  v1::BatchResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(node.kv->Batch(&context, request, &response).ok());
  }
  ASSERT_EQ(response.results_size(), 101);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(response.results(i).code(), 0) << response.results(i).message();
    EXPECT_TRUE(response.results(i).has_put());
  }
  EXPECT_EQ(response.results(100).code(), 3);

  request.Clear();
  for (int i = 99; i >= 0; --i) {
    request.add_operations()->mutable_get()->set_key(absl::StrCat("k", i));
  }
  {
    grpc::ClientContext context;
    ASSERT_TRUE(node.kv->Batch(&context, request, &response).ok());
  }
  ASSERT_EQ(response.results_size(), 100);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(response.results(i).get().siblings_size(), 1);
    EXPECT_EQ(response.results(i).get().siblings(0).value(),
              absl::StrCat("v", 99 - i));
  }
  {
    grpc::ClientContext context;
    EXPECT_EQ(
        node.kv->Batch(&context, v1::BatchRequest(), &response).error_code(),
        grpc::StatusCode::INVALID_ARGUMENT);
  }
  request.Clear();
  for (int i = 0; i < 5; ++i) {
    v1::PutRequest& put = *request.add_operations()->mutable_put();
    put.set_key("k");
    put.set_value(std::string(1 << 20, 'v'));
  }
  grpc::ClientContext context;
  const grpc::Status status = node.kv->Batch(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("4194304"));
}

TEST_F(NodeTest, ABatchWhoseAnswerWouldBeTooLargeSaysWhichGetsToRepeat) {
  Running& node = StartSingle();
  v1::BatchRequest request;
  for (int i = 0; i < 6; ++i) {
    const std::string key = absl::StrCat("large", i);
    ASSERT_TRUE(Put(node, key, std::string(1 << 20, 'v')).ok());
    request.add_operations()->mutable_get()->set_key(key);
  }
  grpc::ClientContext context;
  v1::BatchResponse response;
  ASSERT_TRUE(node.kv->Batch(&context, request, &response).ok());
  ASSERT_EQ(response.results_size(), 6);
  EXPECT_EQ(response.results(0).code(), 0);
  EXPECT_EQ(response.results(5).code(), 8);
}

TEST_F(NodeTest, APipelineAnswersEachOperationOnce) {
  Running& node = StartSingle();
  grpc::ClientContext context;
  auto stream = node.kv->Pipeline(&context);
  constexpr int kMessages = 50;
  constexpr int kEach = 40;
  std::thread writer([&] {
    uint64_t id = 0;
    for (int m = 0; m < kMessages; ++m) {
      v1::PipelineRequest request;
      for (int i = 0; i < kEach; ++i) {
        auto& item = *request.add_items();
        item.set_id(++id);
        if (i == 0) continue;  // an operation of no kind
        v1::PutRequest& put = *item.mutable_operation()->mutable_put();
        put.set_key(absl::StrCat("p", id));
        put.set_value("v");
        put.set_blind(true);
      }
      EXPECT_TRUE(stream->Write(request));
    }
    stream->WritesDone();
  });
  std::set<uint64_t> answered;
  int refused = 0;
  v1::PipelineResponse response;
  while (stream->Read(&response)) {
    for (const auto& item : response.items()) {
      EXPECT_TRUE(answered.insert(item.id()).second);
      if (item.result().code() == 3) {
        ++refused;
      } else {
        EXPECT_EQ(item.result().code(), 0) << item.result().message();
        EXPECT_TRUE(item.result().has_put());
      }
    }
  }
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(answered.size(), kMessages * kEach);
  EXPECT_EQ(refused, kMessages);
}

TEST_F(NodeTest, ACancelledPipelineLeavesNothingBehind) {
  Running& node = StartSingle();
  for (int round = 0; round < 20; ++round) {
    grpc::ClientContext context;
    auto stream = node.kv->Pipeline(&context);
    v1::PipelineRequest request;
    for (int i = 0; i < 500; ++i) {
      auto& item = *request.add_items();
      item.set_id(i);
      item.mutable_operation()->mutable_put()->set_key(absl::StrCat("c", i));
    }
    stream->Write(request);
    context.TryCancel();
    (void)stream->Finish();
  }
  EXPECT_TRUE(Eventually([&] { return node.node->Report().in_flight == 0; }));
  EXPECT_TRUE(Put(node, "k", "v").ok());
}

TEST_F(NodeTest, AScanGivesEveryKeyOnceAndGoesOnFromACursor) {
  Running& node = StartSingle();
  v1::BatchRequest batch;
  std::map<std::string, std::string> want;
  for (int i = 0; i < 2500; ++i) {
    v1::PutRequest& put = *batch.add_operations()->mutable_put();
    put.set_key(absl::StrCat("s", i));
    put.set_value(absl::StrCat(i));
    want[put.key()] = put.value();
  }
  {
    grpc::ClientContext context;
    v1::BatchResponse response;
    ASSERT_TRUE(node.kv->Batch(&context, batch, &response).ok());
  }
  std::map<std::string, std::string> got;
  std::string cursor;
  do {
    grpc::ClientContext context;
    v1::ScanRequest request;
    request.set_cursor(cursor);
    request.set_limit(1700);
    auto stream = node.kv->Scan(&context, request);
    v1::ScanResponse response;
    int entries = 0;
    while (stream->Read(&response)) {
      for (const v1::ScanEntry& entry : response.entries()) {
        ++entries;
        ASSERT_EQ(entry.siblings_size(), 1);
        EXPECT_TRUE(got.emplace(entry.key(), entry.siblings(0).value()).second);
      }
      cursor = response.cursor();
    }
    EXPECT_LE(entries, 1700);
    const grpc::Status status = stream->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
  } while (!cursor.empty());
  EXPECT_EQ(got, want);

  grpc::ClientContext context;
  v1::ScanRequest request;
  request.set_cursor("garbage");
  v1::ScanResponse response;
  auto stream = node.kv->Scan(&context, request);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(NodeTest, AWatcherGetsTheRingNowAndAfterEachChange) {
  Running& node = StartSingle();
  grpc::ClientContext context;
  auto stream = node.kv->WatchRing(&context, v1::WatchRingRequest());
  v1::WatchRingResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.ring().epoch(), 1);
  EXPECT_EQ(response.ring().members_size(), 1);
  EXPECT_EQ(response.ring().members(0).client_address(), node.config.listen);
  EXPECT_EQ(response.node_number(), 1);
  EXPECT_NE(response.start_id(), 0);
  {
    grpc::ClientContext create;
    v1::CreateKeyspaceRequest request;
    request.mutable_keyspace()->set_name("more");
    request.mutable_keyspace()->set_n(1);
    request.mutable_keyspace()->set_r(1);
    request.mutable_keyspace()->set_w(1);
    v1::KeyspaceResponse created;
    const grpc::Status status =
        node.admin->CreateKeyspace(&create, request, &created);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(created.ring_epoch(), 2);
  }
  while (response.ring().epoch() < 2) ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.ring().keyspaces_size(), 2);
  context.TryCancel();
  (void)stream->Finish();
  EXPECT_TRUE(
      Eventually([&] { return node.node->Report().ring_watchers == 0; }));
}

TEST_F(NodeTest, ReflectionAndHealthAreThere) {
  Running& node = StartSingle();
  // Raw calls: the services have no header of ours.
  const auto call = [&](const char* method, const std::string& request,
                        bool stream) {
    grpc::GenericStub stub(node.channel);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    auto rw = stub.PrepareCall(&context, method, &queue);
    void* tag;
    bool ok;
    rw->StartCall(nullptr);
    queue.Next(&tag, &ok);
    const grpc::Slice slice(request);
    rw->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    queue.Next(&tag, &ok);
    rw->WritesDone(nullptr);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer answer;
    rw->Read(&answer, nullptr);
    queue.Next(&tag, &ok);
    std::string text;
    if (ok) {
      std::vector<grpc::Slice> slices;
      EXPECT_TRUE(answer.Dump(&slices).ok());
      for (const grpc::Slice& part : slices) {
        text.append(reinterpret_cast<const char*>(part.begin()), part.size());
      }
    }
    grpc::Status status;
    rw->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    return text;
  };
  // list_services: field 7, empty.
  const std::string services =
      call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
           std::string("\x3a\x00", 2), true);
  EXPECT_THAT(services, AllOf(HasSubstr("ringkv.v1.KeyValue"),
                              HasSubstr("ringkv.v1.Admin"),
                              HasSubstr("grpc.health.v1.Health")));
  // An empty service name; the answer is status SERVING.
  EXPECT_EQ(call("/grpc.health.v1.Health/Check", "", false),
            std::string("\x08\x01", 2));
}

TEST_F(NodeTest, HttpShowsMetricsHealthAndReadiness) {
  Running& node = StartSingle();
  ASSERT_TRUE(Put(node, "k", "v").ok());
  EXPECT_THAT(HttpGet(node.config.http_listen, "/healthz"), HasSubstr(" 200 "));
  EXPECT_THAT(HttpGet(node.config.http_listen, "/readyz"), HasSubstr(" 200 "));
  EXPECT_THAT(HttpGet(node.config.http_listen, "/etc/passwd"),
              HasSubstr(" 404 "));
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(HttpGet(node.config.http_listen, "/metrics"),
                             "ringkv_calls_total{operation=\"put\"} 1");
  }));
  const std::string metrics = HttpGet(node.config.http_listen, "/metrics");
  EXPECT_THAT(metrics, AllOf(HasSubstr("ringkv_ring_epoch 1"),
                             HasSubstr("ringkv_ready 1"),
                             HasSubstr("process_open_fds")));
}

TEST_F(NodeTest, PutsAreRefusedWhileTheDiskIsNearlyFullAndReadsAndDeletesGoOn) {
  NodeConfig config = Config("full");
  config.init = true;
  Running& before = Start(config);
  ASSERT_TRUE(Eventually([&] { return before.node->NotReady().empty(); }));
  ASSERT_TRUE(Put(before, "k", "v").ok());
  nodes_.clear();
  config.disk_reserve = uint64_t{1} << 50;  // more than there is
  Running& node = Start(config);
  ASSERT_TRUE(Eventually([&] { return node.node->NotReady().empty(); }));
  ASSERT_TRUE(Eventually([&] { return node.node->Report().read_only; }));
  const grpc::Status status = Put(node, "k", "w");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("nearly full"));
  EXPECT_EQ(Get(node, "k"), "v");
  grpc::ClientContext context;
  v1::DeleteRequest request;
  request.set_key("k");
  v1::DeleteResponse response;
  EXPECT_TRUE(node.kv->Delete(&context, request, &response).ok());
}

TEST_F(NodeTest, ANodeInNoRingIsNotReadyAndRefusesCalls) {
  Running& node = Start(Config("standby"));
  EXPECT_THAT(node.node->NotReady(), HasSubstr("no ring"));
  EXPECT_THAT(HttpGet(node.config.http_listen, "/readyz"), HasSubstr(" 503 "));
  EXPECT_EQ(Put(node, "k", "v").error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(NodeTest, DataSurvivesARestart) {
  const NodeConfig config = StartSingle().config;
  ASSERT_TRUE(Put(*nodes_[0], "k", "v").ok());
  nodes_[0]->node->Drain();
  nodes_.clear();
  Running& again = Start(config);
  ASSERT_TRUE(Eventually([&] { return again.node->NotReady().empty(); }));
  EXPECT_EQ(Get(again, "k"), "v");
}

TEST_F(NodeTest, AnOccupiedPortIsOneClearError) {
  Running& node = StartSingle();
  NodeConfig config = Config("other");
  config.listen = node.config.listen;
  const absl::Status status = Node::Start(config, [](int) {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(config.listen), HasSubstr("in use")));
}

TEST_F(NodeTest, ALockedOrForeignDirectoryIsOneClearError) {
  Running& node = StartSingle();
  NodeConfig config = Config("other");
  config.data_dir = node.config.data_dir;
  EXPECT_THAT(std::string(Node::Start(config, [](int) {}).status().message()),
              HasSubstr("in use by another process"));
  config.data_dir = folder_ + "/foreign";
  std::filesystem::create_directory(config.data_dir);
  std::ofstream(config.data_dir + "/thesis.txt") << "mine";
  EXPECT_THAT(std::string(Node::Start(config, [](int) {}).status().message()),
              HasSubstr("thesis.txt"));
}

TEST_F(NodeTest, AnotherRackThanBeforeIsRefused) {
  NodeConfig config = Config("racked");
  config.init = true;
  config.location.rack = "r1";
  Start(config);
  ASSERT_TRUE(Eventually([&] { return nodes_[0]->node->NotReady().empty(); }));
  nodes_.clear();
  config.location.rack = "r2";
  const absl::Status status = Node::Start(config, [](int) {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("r1"), HasSubstr("r2")));
}

TEST_F(NodeTest, ThreeNodesServeEveryKeyThroughEachOfThem) {
  StartThree();
  for (int i = 0; i < 60; ++i) {
    v1::PutResponse put;
    const grpc::Status status =
        Put(*nodes_[i % 3], absl::StrCat("k", i), absl::StrCat(i), &put);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_GE(put.replica_acks() + put.stand_in_acks(), 2);
  }
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(Get(*nodes_[(i + 1) % 3], absl::StrCat("k", i)), absl::StrCat(i));
  }
  grpc::ClientContext context;
  v1::LocateRequest request;
  request.set_key("k1");
  v1::LocateResponse response;
  ASSERT_TRUE(nodes_[0]->admin->Locate(&context, request, &response).ok());
  ASSERT_EQ(response.copies_size(), 3);
  EXPECT_THAT(response.copies(0).name(), HasSubstr("n"));
  grpc::ClientContext status_context;
  v1::StatusResponse status;
  ASSERT_TRUE(nodes_[2]
                  ->admin->Status(&status_context, v1::StatusRequest(), &status)
                  .ok());
  EXPECT_EQ(status.nodes_size(), 3);
  EXPECT_EQ(status.ring_epoch(), 1);
}

TEST_F(NodeTest, ANodeThatIsGoneIsStoodInForAndGetsItsHints) {
  StartThree();
  const NodeConfig config = nodes_[2]->config;
  nodes_[2]->node->Drain();
  nodes_.pop_back();
  for (int i = 0; i < 50; ++i) {
    const grpc::Status status =
        Put(*nodes_[i % 2], absl::StrCat("k", i), absl::StrCat(i));
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_TRUE(Eventually([&] {
    uint64_t hints = 0;
    for (const auto& running : nodes_) {
      for (const auto& [node, backlog] : running->node->Report().shards.hints) {
        hints += backlog.hints;
      }
    }
    return hints >= 50;
  }));
  Start(config);
  ASSERT_TRUE(Eventually([&] { return nodes_[2]->node->NotReady().empty(); }));
  EXPECT_TRUE(Eventually([&] {
    for (const auto& running : nodes_) {
      for (const auto& [node, backlog] : running->node->Report().shards.hints) {
        if (backlog.hints > 0) return false;
      }
    }
    return true;
  }));
  for (int i = 0; i < 50; ++i) {
    grpc::ClientContext context;
    v1::LocateRequest request;
    request.set_key(absl::StrCat("k", i));
    v1::LocateResponse response;
    ASSERT_TRUE(nodes_[0]->admin->Locate(&context, request, &response).ok());
    ASSERT_EQ(response.copies_size(), 3);
    for (const v1::LocatedCopy& copy : response.copies()) {
      EXPECT_TRUE(copy.found()) << copy.error();
      EXPECT_EQ(copy.digest(), response.copies(0).digest());
    }
  }
}

TEST_F(NodeTest, CallsDuringADrainAreAnsweredOrRefusedNeverLeft) {
  StartThree();
  std::atomic<bool> stop{false};
  std::atomic<int> ok{0};
  std::atomic<int> other{0};
  std::thread client([&] {
    for (int i = 0; !stop; ++i) {
      const grpc::Status status =
          Put(*nodes_[0], absl::StrCat("d", i % 50), "v");
      if (status.ok()) {
        ++ok;
      } else if (status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                 status.error_code() != grpc::StatusCode::CANCELLED) {
        // gRPC itself cancels what arrives while its server closes.
        ADD_FAILURE() << status.error_code() << " " << status.error_message();
        ++other;
      }
    }
  });
  ASSERT_TRUE(Eventually([&] { return ok > 100; }));
  nodes_[0]->node->Drain();
  stop = true;
  client.join();
  EXPECT_EQ(other, 0);
  EXPECT_THAT(nodes_[0]->node->NotReady(), HasSubstr("drains"));
}

TEST_F(NodeTest, ThreadsStayBoundedWhateverClientsDo) {
  Running& node = StartSingle();
  const auto threads = [] {
    size_t count = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/self/task")) {
      (void)entry;
      ++count;
    }
    return count;
  };
  const size_t before = threads();
  // Streams and connections of their own, all open at once.
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<
      grpc::ClientReaderWriter<v1::PipelineRequest, v1::PipelineResponse>>>
      streams;
  for (int i = 0; i < 100; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto stub = v1::KeyValue::NewStub(grpc::CreateCustomChannel(
        node.config.listen, grpc::InsecureChannelCredentials(), arguments));
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    streams.push_back(stub->Pipeline(contexts.back().get()));
    v1::PipelineRequest request;
    auto& item = *request.add_items();
    item.mutable_operation()->mutable_get()->set_key("k");
    ASSERT_TRUE(streams.back()->Write(request));
    v1::PipelineResponse response;
    ASSERT_TRUE(streams.back()->Read(&response));
  }
  // The client side of gRPC, in this process too, has its few threads.
  EXPECT_LE(threads(), before + 16);
  for (auto& stream : streams) {
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }
}

}  // namespace
}  // namespace ringkv
