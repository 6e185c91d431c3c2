#include "server/rpc/node.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "membership/ring/ring_codec.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/commit_thread.h"
#include "server/rpc/control_thread.h"
#include "server/rpc/credentials.h"
#include "server/rpc/http_server.h"
#include "server/rpc/kv_service.h"
#include "server/rpc/peer_net.h"
#include "server/rpc/reader_pool.h"
#include "server/rpc/router.h"
#include "server/rpc/run_file.h"
#include "server/rpc/version.h"
#include "server/streaming/report.h"
#include "spdlog/spdlog.h"
#include "storage/rocksdb/rocksdb_engine.h"

namespace ringkv {
namespace {

// Public messages above the limit are still read, so that they can be refused
// with the limit and the size.
constexpr int kPublicReceiveBytesMax = 16 << 20;
constexpr size_t kDiskReadsMax = 100000;
// Descriptors that the store and the streams need; below it a start is refused.
constexpr rlim_t kDescriptorsMin = 256;
constexpr rlim_t kDescriptorsWanted = 4096;
// A loop asks for a higher clock bound when it comes this near.
constexpr int64_t kClockMarginMs = 1000;
// Once a majority of members is up, how long a node waits for the others before
// it calls itself ready.
// Loops turn every second at least; only something broken takes this long.
constexpr absl::Duration kStuckAfter = absl::Seconds(10);
constexpr absl::Duration kReadyGrace = absl::Seconds(3);
constexpr auto kShutdownGrace = std::chrono::milliseconds(500);
constexpr auto kPoll = std::chrono::milliseconds(5);

absl::Status RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  if (limit.rlim_cur < kDescriptorsMin) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this process may open ", limit.rlim_cur,
        " files, too few to serve: raise the limit (ulimit -n) to ",
        kDescriptorsWanted, " or more"));
  }
  if (limit.rlim_cur < kDescriptorsWanted) {
    spdlog::warn(
        "this process may open {} files: below {} connections may be refused "
        "(ulimit -n)",
        limit.rlim_cur, kDescriptorsWanted);
  }
  return absl::OkStatus();
}

// Tells whether an address can be had, with a reason that gRPC would keep to
// itself.
absl::Status CheckAddress(const char* what, const std::string& text) {
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(text));
  const auto refuse = [&](const char* why) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", text, " for ", what, ": ", why));
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (code != 0) return refuse(gai_strerror(code));
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return refuse(std::strerror(errno));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0) {
    return refuse(std::strerror(errno));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> HasData(const Engine& engine) {
  for (const Family family : {Family::kData, Family::kHints, Family::kMeta}) {
    ASSIGN_OR_RETURN(const RangeResult range,
                     engine.Range(family, "", "", RangeLimits{1, 1}));
    if (!range.entries.empty()) return true;
  }
  return false;
}

class NodeImpl final : public Node {
 public:
  NodeImpl(const NodeConfig& config, OnExit on_exit)
      : config_(config),
        on_exit_(std::move(on_exit)),
        random_(RandomFromSystem()) {}

  ~NodeImpl() override { StopAll(); }

  absl::Status Begin();
  void Drain() override;
  NodeReport Report() const override;
  std::string NotReady() const override;
  // Which loop has not turned for too long; empty: all turn.
  std::string Stuck() const;

 private:
  using LinkMap = absl::flat_hash_map<LinkId, NodeNumber>;

  absl::Status OpenEngine();
  absl::Status MakeLoops(const StartedNode& started);
  void MakeControl(StartedNode started);
  absl::Status StartServers();
  absl::Status StartHttp();
  void StopAll();

  LoopThread::Hooks LoopHooks(int shard);
  void CheckClock();
  void Adopt(RingAdopted ring, std::function<void()> adopted);
  // Tells control how far all shards are together.
  void OnTransfers(int shard, const TransferReport& report);
  void OnPeers(PeersChanged peers);
  void OnData(LinkId link, std::vector<DataMessage>&& messages);
  LoadReported Load();
  void SetReadOnly(uint64_t free_bytes);
  void PublishRing();
  void UpdateReady();
  void Exit(int code);
  // The state on disk can no longer be trusted to follow what we say.
  [[noreturn]] void Fatal(const absl::Status& status);
  ShardStats SumStats() const;

  const NodeConfig config_;
  const OnExit on_exit_;
  SeededRandom random_;
  std::atomic<bool> exiting_{false};
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> read_only_{false};

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Hlc> hlc_;
  std::vector<std::unique_ptr<SeededRandom>> randoms_;
  std::vector<std::unique_ptr<LoopThread>> loops_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<PeerNet> net_;
  std::unique_ptr<ControlThread> control_;
  std::unique_ptr<ReaderPool> readers_;
  std::unique_ptr<CommitThread> commit_;
  RingBoard board_;
  std::unique_ptr<KvService> kv_service_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<grpc::Server> peer_server_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<HttpServer> http_;

  std::atomic<int64_t> clock_asked_{0};

  std::mutex transfers_mutex_;
  std::vector<TransferReport> transfers_;  // by shard; under transfers_mutex_
  mutable std::mutex links_mutex_;
  std::shared_ptr<const LinkMap> links_;  // under links_mutex_

  // Of the control loop's thread.
  RingEpoch published_epoch_ = 0;
  std::shared_ptr<const PeerView> published_peers_;
  std::shared_ptr<const AddressView> published_addresses_;
  bool published_draining_ = false;
  bool published_standby_ = false;

  mutable std::mutex ready_mutex_;
  bool was_ready_ = false;    // under ready_mutex_
  Instant majority_since_{};  // under ready_mutex_; 0: none yet
  bool told_ready_ = false;   // under ready_mutex_
  // Null while there is no server; under ready_mutex_.
  grpc::HealthCheckServiceInterface* health_ = nullptr;
};

absl::Status NodeImpl::Begin() {
  RETURN_IF_ERROR(RaiseDescriptorLimit());
  RETURN_IF_ERROR(CheckAddress("clients", config_.listen));
  RETURN_IF_ERROR(CheckAddress("peers", config_.peer_listen));
  RETURN_IF_ERROR(CheckAddress("HTTP", config_.http_listen));
  RETURN_IF_ERROR(OpenEngine());

  StartOptions start;
  start.name = config_.name;
  start.location = config_.location;
  ASSIGN_OR_RETURN(start.has_data, HasData(*engine_));
  ASSIGN_OR_RETURN(StartedNode started, StartNode(ReadMeta(*engine_), start,
                                                  SystemTime().wall, random_));
  RETURN_IF_ERROR(engine_->Write(ToBatch(started.writes)).status());
  RETURN_IF_ERROR(engine_->Sync().status());
  RETURN_IF_ERROR(WriteRunFile(config_.data_dir, /*clean=*/false));
  hlc_ = std::make_unique<Hlc>(started.hlc_floor);

  RETURN_IF_ERROR(MakeLoops(started));
  const RingEpoch epoch = started.ring == nullptr ? 0 : started.ring->epoch();
  MakeControl(std::move(started));
  readers_ = std::make_unique<ReaderPool>(*engine_, config_.reader_threads,
                                          kDiskReadsMax);
  commit_ = std::make_unique<CommitThread>(
      *engine_, config_.fsync_interval,
      CommitThread::Hooks{[this](uint64_t sequence) {
                            for (const auto& loop : loops_) {
                              loop->Synced(sequence);
                            }
                            control_->Synced(sequence);
                          },
                          [this](absl::Status status) { Fatal(status); }});
  for (const auto& loop : loops_) loop->Start();
  // Servers first: as long as they live, gRPC keeps the completion queue that
  // callbacks share. With clients alone it comes and goes with each Hello, and
  // gRPC 1.51 now and then aborts when it goes.
  RETURN_IF_ERROR(StartServers());
  control_->Start();
  RETURN_IF_ERROR(StartHttp());
  spdlog::info(
      "kvnode {} started: name {}, id {}, data {}, clients {}, peers {}, http "
      "{}, shards {}, ring epoch {}",
      kVersion, config_.name, control_->id().ToString(), config_.data_dir,
      config_.listen, config_.peer_listen, config_.http_listen, config_.shards,
      epoch);
  return absl::OkStatus();
}

absl::Status NodeImpl::OpenEngine() {
  RocksDbOptions options;
  options.path = config_.data_dir;
  options.memory_bytes = config_.memory;
  options.background_jobs = config_.background_jobs;
  // The store's own floor lies below ours, so that puts are refused before it
  // stalls.
  options.disk_floor_bytes =
      std::min(options.disk_floor_bytes, config_.disk_reserve / 2);
  options.may_have_lost_power = MayHaveLostPower(config_.data_dir);
  if (options.may_have_lost_power) {
    spdlog::warn(
        "the last run ended with the machine: what was not fsynced may be "
        "gone");
  }
  ASSIGN_OR_RETURN(engine_, RocksDbEngine::Open(options));
  return absl::OkStatus();
}

absl::Status NodeImpl::MakeLoops(const StartedNode& started) {
  std::vector<LoopThread*> loops;
  for (int shard = 0; shard < config_.shards; ++shard) {
    ShardOptions options;
    options.shard = shard;
    options.shards = config_.shards;
    options.start_id = started.start_id;
    options.max_clock_drift = config_.max_clock_drift;
    options.hint_bytes_max = config_.hint_bytes_max / config_.shards;
    options.hint_age_max = config_.hint_age_max;
    options.handoff_bytes_per_second =
        std::max<uint64_t>(1, config_.handoff_rate / config_.shards);
    options.stream_rate = config_.stream_rate;
    options.drop_grace = config_.drop_grace;
    options.hedged_reads = config_.hedged_reads;
    randoms_.push_back(std::make_unique<SeededRandom>(RandomFromSystem()));
    auto machine =
        std::make_unique<Shard>(options, *engine_, *hlc_, *randoms_.back());
    RETURN_IF_ERROR(machine->Recover());
    LoopThread::Limits limits;
    limits.mailbox_bytes_max = config_.mailbox_bytes;
    loops_.push_back(std::make_unique<LoopThread>(std::move(machine), *engine_,
                                                  limits, LoopHooks(shard)));
    loops.push_back(loops_.back().get());
  }
  router_ = std::make_unique<Router>(std::move(loops));
  return absl::OkStatus();
}

LoopThread::Hooks NodeImpl::LoopHooks(int shard) {
  LoopThread::Hooks hooks;
  hooks.send = [this](LinkId link, std::vector<DataMessage>&& messages) {
    net_->SendData(link, std::move(messages));
  };
  hooks.send_self = [this](NodeNumber self,
                           std::vector<DataMessage>&& messages) {
    router_->Deliver(self, std::move(messages));
  };
  hooks.read = [this, shard](ReadJob&& job) {
    readers_->Post(std::move(job), [this, shard](ReadDone done) {
      loops_[shard]->ReadEnds(std::move(done));
    });
  };
  hooks.wants_sync = [this] { commit_->Request(); };
  hooks.wants_ring = [this](NodeNumber from) {
    control_->Post(RingWanted{from});
  };
  hooks.check_clock = [this] { CheckClock(); };
  hooks.transfers = [this, shard](const TransferReport& report) {
    OnTransfers(shard, report);
  };
  hooks.failed = [this](absl::Status status) { Fatal(status); };
  return hooks;
}

void NodeImpl::MakeControl(StartedNode started) {
  PeerNetOptions net;
  net.data_queue_bytes_max = config_.peer_queue_bytes;
  net_ = std::make_unique<PeerNet>(
      net,
      PeerNet::Hooks{
          [this](ControlEvent&& event) { control_->Post(std::move(event)); },
          [this](LinkId link, std::vector<DataMessage>&& messages) {
            OnData(link, std::move(messages));
          }},
      MakeCredentials(config_).dialling);

  ControlOptions options;
  options.name = config_.name;
  options.client_address =
      config_.advertise.empty() ? config_.listen : config_.advertise;
  options.peer_address = config_.peer_advertise.empty()
                             ? config_.peer_listen
                             : config_.peer_advertise;
  options.location = config_.location;
  options.weight = config_.weight;
  options.seeds = config_.seeds;
  options.version = kVersion;
  options.init_single = config_.init;
  options.heartbeat_interval = config_.heartbeat_interval;
  options.down_after = config_.down_after;
  options.close_after = config_.down_after;
  options.max_clock_drift = config_.max_clock_drift;
  // A peer that comes back is used again within seconds.
  options.retry_max = absl::Seconds(2);
  auto control = std::make_unique<Control>(std::move(options),
                                           std::move(started), *hlc_, random_);
  ControlThread::Hooks hooks;
  hooks.adopt = [this](RingAdopted ring, std::function<void()> adopted) {
    Adopt(std::move(ring), std::move(adopted));
  };
  hooks.peers = [this](PeersChanged peers) { OnPeers(std::move(peers)); };
  hooks.begin_transfers = [this](BeginTransfers begin) {
    for (const auto& loop : loops_) loop->Begin(begin);
  };
  hooks.changed = [this] {
    PublishRing();
    UpdateReady();
  };
  hooks.load = [this] { return Load(); };
  hooks.wants_sync = [this] { commit_->Request(); };
  hooks.stop = [this](StopRequest stop) {
    spdlog::error("{}", stop.message);
    Exit(stop.exit_code);
  };
  control_ = std::make_unique<ControlThread>(std::move(control), *engine_,
                                             *net_, std::move(hooks));
}

absl::Status NodeImpl::StartServers() {
  const NodeCredentials credentials = MakeCredentials(config_);
  {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(config_.peer_listen, credentials.peers);
    builder.RegisterService(net_->service());
    SetPeerServerArguments(builder);
    peer_server_ = builder.BuildAndStart();
  }
  if (peer_server_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", config_.peer_listen, " for peers"));
  }

  kv_service_ = std::make_unique<KvService>(*router_, board_);
  admin_service_ = std::make_unique<AdminService>(*router_, *control_);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(config_.listen, credentials.clients);
  builder.RegisterService(kv_service_.get());
  builder.RegisterService(admin_service_.get());
  builder.SetMaxReceiveMessageSize(kPublicReceiveBytesMax);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Finds clients that vanished; lets clients find us.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  // Reflection is the one synchronous service.
  grpc::ResourceQuota quota("ringkv-public");
  quota.SetMaxThreads(kReflectionThreadsMax);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", config_.listen, " for clients"));
  }
  {
    const std::lock_guard lock(ready_mutex_);
    told_ready_ = true;  // what gRPC says until told otherwise
    health_ = server_->GetHealthCheckService();
  }
  UpdateReady();
  return absl::OkStatus();
}

std::string NodeImpl::Stuck() const {
  const Instant now = SystemInstant();
  const auto check = [now](absl::string_view loop, const Pulse& pulse) {
    const absl::Duration silence = pulse.Silence(now);
    return silence < kStuckAfter
               ? std::string()
               : absl::StrCat(loop, " has not turned for ",
                              absl::FormatDuration(
                                  absl::Trunc(silence, absl::Seconds(1))));
  };
  std::string reason = check("the control loop", control_->pulse());
  for (size_t i = 0; reason.empty() && i < loops_.size(); ++i) {
    reason = check(absl::StrCat("shard loop ", i), loops_[i]->pulse());
  }
  return reason;
}

absl::Status NodeImpl::StartHttp() {
  HttpServer::Pages pages;
  pages.metrics = [this] {
    return HttpServer::Page{200, MetricsText(Report())};
  };
  pages.healthz = [this] {
    const std::string reason = Stuck();
    return reason.empty() ? HttpServer::Page{200, "ok\n"}
                          : HttpServer::Page{503, absl::StrCat(reason, "\n")};
  };
  pages.readyz = [this] {
    const std::string reason = NotReady();
    return reason.empty() ? HttpServer::Page{200, "ready\n"}
                          : HttpServer::Page{503, absl::StrCat(reason, "\n")};
  };
  ASSIGN_OR_RETURN(http_,
                   HttpServer::Start(config_.http_listen, std::move(pages)));
  return absl::OkStatus();
}

// --- Between the loops ---

void NodeImpl::CheckClock() {
  const HlcTimestamp last = hlc_->Last();
  if (HlcMillis(last) + kClockMarginMs < HlcMillis(hlc_->bound())) return;
  constexpr int64_t kOnceInNanos = 50'000'000;
  const int64_t now = SystemInstant().nanos;
  int64_t asked = clock_asked_.load(std::memory_order_relaxed);
  if (now - asked < kOnceInNanos) return;
  if (clock_asked_.compare_exchange_strong(asked, now)) {
    control_->Post(ClockBoundLow{});
  }
}

void NodeImpl::Adopt(RingAdopted ring, std::function<void()> adopted) {
  struct Countdown {
    std::atomic<size_t> left;
    std::function<void()> adopted;
  };
  auto countdown = std::make_shared<Countdown>();
  countdown->left = loops_.size();
  countdown->adopted = std::move(adopted);
  for (const auto& loop : loops_) {
    loop->Adopt(ring, [countdown] {
      if (countdown->left.fetch_sub(1) == 1) countdown->adopted();
    });
  }
}

void NodeImpl::OnTransfers(int shard, const TransferReport& report) {
  // Summed and posted under one lock, so that control's last is the newest.
  const std::lock_guard lock(transfers_mutex_);
  transfers_.resize(loops_.size());
  transfers_[static_cast<size_t>(shard)] = report;
  control_->Post(TransfersReported{SumOf(transfers_)});
}

void NodeImpl::OnPeers(PeersChanged peers) {
  auto links = std::make_shared<LinkMap>();
  for (const auto& [node, health] : *peers.peers) {
    if (health.data_link != kNoLink) links->emplace(health.data_link, node);
  }
  {
    const std::lock_guard lock(links_mutex_);
    links_ = std::move(links);
  }
  for (const auto& loop : loops_) loop->PeersChange(peers);
}

void NodeImpl::OnData(LinkId link, std::vector<DataMessage>&& messages) {
  std::shared_ptr<const LinkMap> links;
  {
    const std::lock_guard lock(links_mutex_);
    links = links_;
  }
  if (links == nullptr) return;
  const auto node = links->find(link);
  // A stream whose other end this ring does not know: what it says is lost, as
  // messages may be.
  if (node == links->end()) return;
  router_->Deliver(node->second, std::move(messages));
}

ShardStats NodeImpl::SumStats() const {
  ShardStats sum;
  for (const auto& loop : loops_) AddStats(loop->Stats(), sum);
  return sum;
}

void NodeImpl::SetReadOnly(uint64_t free_bytes) {
  // A little more must be free again before puts are: no flapping.
  const bool read_only = free_bytes < (read_only_ ? config_.disk_reserve / 4 * 5
                                                  : config_.disk_reserve);
  if (read_only == read_only_) return;
  read_only_ = read_only;
  if (read_only) {
    spdlog::error(
        "{} bytes are free on the disk of {}, below disk_reserve: puts are "
        "refused until there is more",
        free_bytes, config_.data_dir);
  } else {
    spdlog::info("the disk has room again: puts are taken");
  }
  for (const auto& loop : loops_) loop->SetReadOnly(read_only);
}

LoadReported NodeImpl::Load() {
  UpdateReady();
  // A node that is in no ring has nothing else to say so at.
  PublishRing();
  LoadReported load;
  for (const auto& loop : loops_) load.in_flight += loop->in_flight();
  const EngineStats engine = engine_->Stats();
  SetReadOnly(engine.disk_free_bytes);
  load.disk_bytes = engine.disk_bytes;
  load.keys = engine.data_keys;
  load.read_only = read_only_;
  const ShardStats stats = SumStats();
  for (const auto& [target, backlog] : stats.hints) {
    load.hints.push_back({target, backlog.hints, backlog.bytes,
                          backlog.oldest_ms, backlog.refused,
                          backlog.delivered});
  }
  return load;
}

void NodeImpl::PublishRing() {
  const ControlView view = control_->View();
  if (view.ring == nullptr && !published_standby_) {
    published_standby_ = true;
    board_.Publish(std::make_shared<v1::WatchRingResponse>());
  }
  if (view.ring == nullptr || view.adopted_epoch < view.ring->epoch()) return;
  if (published_epoch_ == view.ring->epoch() &&
      published_peers_ == view.peers &&
      published_addresses_ == view.addresses &&
      published_draining_ == draining_) {
    return;
  }
  published_epoch_ = view.ring->epoch();
  published_peers_ = view.peers;
  published_addresses_ = view.addresses;
  published_draining_ = draining_;
  auto notice = std::make_shared<v1::WatchRingResponse>();
  if (view.addresses == nullptr) {
    RingToProto(view.ring->spec(), notice->mutable_ring());
  } else {
    RingToProto(WithAddresses(view.ring->spec(), *view.addresses),
                notice->mutable_ring());
  }
  notice->set_node_number(ToInt(view.number));
  notice->set_start_id(control_->start_id());
  v1::NodeStart& self = *notice->add_starts();
  self.set_node_number(ToInt(view.number));
  self.set_start_id(control_->start_id());
  self.set_alive(!draining_);
  if (view.peers != nullptr) {
    for (const auto& [node, health] : *view.peers) {
      v1::NodeStart& start = *notice->add_starts();
      start.set_node_number(ToInt(node));
      start.set_start_id(health.start_id);
      start.set_alive(health.alive);
    }
  }
  board_.Publish(std::move(notice));
}

// --- Readiness ---

std::string NodeImpl::NotReady() const {
  const std::lock_guard lock(ready_mutex_);
  if (draining_) return "drains";
  if (was_ready_) return "";
  const ControlView view = control_->View();
  if (view.ring == nullptr) return "in no ring yet";
  if (view.adopted_epoch < view.ring->epoch()) return "adopts the ring";
  return "waits until the other members are up and hear this node";
}

void NodeImpl::UpdateReady() {
  const ControlView view = control_->View();
  const std::lock_guard lock(ready_mutex_);
  if (!was_ready_ && view.ring != nullptr && view.number != kNoNode &&
      view.adopted_epoch >= view.ring->epoch()) {
    // Alive means that heartbeats go both ways: that member hears us too. A
    // node that was ready stays so when others go: it serves what it can.
    const size_t members = view.ring->spec().members.size();
    size_t up = 1;
    if (view.peers != nullptr) {
      for (const auto& [node, health] : *view.peers) up += health.alive;
    }
    const Instant now = SystemInstant();
    if (up * 2 <= members) {
      majority_since_ = {};
    } else if (majority_since_ == Instant{}) {
      majority_since_ = now;
    }
    was_ready_ = up >= members || (majority_since_ != Instant{} &&
                                   now - majority_since_ >= kReadyGrace);
    if (was_ready_) spdlog::info("ready: {} of {} members are up", up, members);
  }
  const bool ready = was_ready_ && !draining_;
  if (health_ == nullptr || told_ready_ == ready) return;
  told_ready_ = ready;
  health_->SetServingStatus("", ready);
  health_->SetServingStatus("ringkv.v1.KeyValue", ready);
  health_->SetServingStatus("ringkv.v1.Admin", ready);
}

// --- The end ---

void NodeImpl::Exit(int code) {
  if (!exiting_.exchange(true)) on_exit_(code);
}

void NodeImpl::Fatal(const absl::Status& status) {
  spdlog::critical("the store failed, this node stops at once: {}",
                   status.ToString());
  spdlog::default_logger()->flush();
  // No destructor may run: nothing that was not written may be acknowledged.
  std::_Exit(1);
}

void NodeImpl::Drain() {
  const Instant deadline = SystemInstant() + config_.drain_timeout;
  const auto in_time = [deadline] { return SystemInstant() < deadline; };
  spdlog::info("draining: finishes what runs, at most {}",
               absl::FormatDuration(config_.drain_timeout));
  draining_ = true;
  UpdateReady();
  control_->Post(DrainRequested{});
  const ControlView view = control_->View();
  const bool alone =
      view.ring == nullptr || view.ring->spec().members.size() <= 1;
  // Until peers and clients have heard of it, calls are still served.
  const Instant heard =
      SystemInstant() +
      std::min(config_.heartbeat_interval * 2, config_.drain_timeout / 4);
  while (!alone && SystemInstant() < heard) std::this_thread::sleep_for(kPoll);
  for (const auto& loop : loops_) loop->Drain();
  const auto drained = [this] {
    return std::all_of(loops_.begin(), loops_.end(),
                       [](const auto& loop) { return loop->drained(); });
  };
  while (!drained() && in_time()) std::this_thread::sleep_for(kPoll);
  if (!drained()) {
    spdlog::warn("drain_timeout passed with calls still running");
    for (const auto& loop : loops_) loop->GiveUp();
  }
  // Hints for nodes that are up reach them now; the others stay on disk.
  const auto hints_left = [this] {
    const ControlView view = control_->View();
    if (view.peers == nullptr) return false;
    for (const auto& [target, backlog] : SumStats().hints) {
      const auto peer = view.peers->find(target);
      if (backlog.hints > 0 && peer != view.peers->end() &&
          peer->second.alive) {
        return true;
      }
    }
    return false;
  };
  while (hints_left() && in_time()) std::this_thread::sleep_for(kPoll * 10);
  StopAll();
  spdlog::info("stopped");
}

void NodeImpl::StopAll() {
  if (stopped_.exchange(true)) return;
  draining_ = true;
  http_.reset();
  board_.Close();
  if (control_ != nullptr) control_->CloseCalls();
  const auto deadline = std::chrono::system_clock::now() + kShutdownGrace;
  {
    const std::lock_guard lock(ready_mutex_);
    health_ = nullptr;
  }
  if (server_ != nullptr) server_->Shutdown(deadline);
  if (net_ != nullptr) net_->CloseAll();
  if (peer_server_ != nullptr) {
    peer_server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  }
  if (net_ != nullptr) net_->Stop();
  if (control_ != nullptr) control_->Stop();
  for (const auto& loop : loops_) loop->Stop();
  if (readers_ != nullptr) readers_->Stop();
  if (commit_ == nullptr) return;
  commit_->Stop();
  if (const absl::Status status = WriteRunFile(config_.data_dir, true);
      !status.ok()) {
    spdlog::warn("{}", status.ToString());
  }
}

NodeReport NodeImpl::Report() const {
  NodeReport report;
  report.shards = SumStats();
  for (const auto& loop : loops_) {
    report.in_flight += loop->in_flight();
    report.turns += loop->turns();
    report.stalls += loop->stalls();
    report.mailbox_items += loop->waiting();
    report.calls_refused += loop->refused();
    report.messages_dropped += loop->dropped();
  }
  report.reads_waiting = readers_->waiting();
  report.syncs = commit_->syncs();
  report.sync_seconds = absl::ToDoubleSeconds(commit_->sync_time());
  report.engine = engine_->Stats();
  report.peers = net_->Stats();
  report.control = control_->View();
  report.ring_watchers = board_.watchers();
  report.draining = draining_;
  report.read_only = read_only_;
  report.ready = NotReady().empty();
  return report;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Node>> Node::Start(const NodeConfig& config,
                                                  OnExit on_exit) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  auto node = std::make_unique<NodeImpl>(config, std::move(on_exit));
  RETURN_IF_ERROR(node->Begin());
  return node;
}

}  // namespace ringkv
