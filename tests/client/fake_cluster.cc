#include "tests/client/fake_cluster.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/token.h"
#include "membership/ring/placement.h"
#include "membership/ring/ring_codec.h"

namespace ringkv {
namespace {

// Longest time between looks at whether a call was cancelled.
constexpr auto kTick = std::chrono::milliseconds(2);

constexpr size_t kEntriesAPage = 7;

std::string EncodeContext(const std::string& key,
                          const std::vector<uint64_t>& dots) {
  return absl::StrCat(absl::Hex(TokenOf(key)), "/", absl::StrJoin(dots, ","));
}

absl::StatusOr<std::set<uint64_t>> DecodeContext(const std::string& key,
                                                 const std::string& context) {
  const std::vector<std::string> parts = absl::StrSplit(context, '/');
  if (parts.size() != 2 || parts[0] != absl::StrCat(absl::Hex(TokenOf(key)))) {
    return absl::InvalidArgumentError("the context is of another key");
  }
  std::set<uint64_t> dots;
  for (absl::string_view part :
       absl::StrSplit(parts[1], ',', absl::SkipEmpty())) {
    uint64_t dot = 0;
    if (!absl::SimpleAtoi(part, &dot)) {
      return absl::InvalidArgumentError("the context is damaged");
    }
    dots.insert(dot);
  }
  return dots;
}

template <class Out>
void AddSiblings(const FakeCluster::Object& object, bool keys_only, Out* out) {
  std::set<std::string> shown;
  for (const FakeCluster::Value& value : object.siblings) {
    if (!shown.insert(value.value).second) continue;
    v1::Sibling* sibling = out->add_siblings();
    if (!keys_only) sibling->set_value(value.value);
    sibling->set_hlc_timestamp(value.hlc);
    if (value.expires_at_ms != 0) {
      sibling->mutable_expires_at()->set_seconds(value.expires_at_ms / 1000);
    }
  }
}

RingSpec FirstRing(const std::vector<std::unique_ptr<FakeNode>>& nodes) {
  RingSpec spec;
  spec.cluster_id = {1, 2};
  spec.lineage = 7;
  spec.epoch = 1;
  spec.vnodes = 256;
  for (const std::unique_ptr<FakeNode>& node : nodes) {
    Member member;
    member.number = node->number();
    member.id = {0, ToInt(node->number())};
    member.name = absl::StrCat("n", ToInt(node->number()));
    member.client_address = node->address();
    member.peer_address = absl::StrCat("127.0.0.1:", ToInt(node->number()));
    member.location.rack =
        absl::StrCat("r", (ToInt(node->number()) - 1) % 3 + 1);
    member.location.host = absl::StrCat("h", ToInt(node->number()));
    spec.members.push_back(std::move(member));
  }
  Keyspace keyspace;
  keyspace.id = KeyspaceId{1};
  keyspace.name = "default";
  spec.keyspaces.push_back(keyspace);
  keyspace.id = KeyspaceId{2};
  keyspace.name = "last";
  keyspace.mode = VersionMode::kLww;
  spec.keyspaces.push_back(keyspace);
  spec.next_keyspace_id = KeyspaceId{3};
  spec.next_node_number = NodeNumber{static_cast<uint32_t>(nodes.size() + 1)};
  absl::StatusOr<Assignment> assignment =
      Place({.strategy = spec.placement, .vnodes = spec.vnodes, .n = 3},
            spec.members, {});
  RINGKV_CHECK(assignment.ok());
  spec.tokens = assignment->tokens;
  spec.owners = assignment->owners;
  return spec;
}

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message()));
}

}  // namespace

FakeNode::FakeNode(FakeCluster& cluster, NodeNumber number)
    : cluster_(cluster), number_(number) {}

void FakeNode::Start() {
  grpc::ServerBuilder builder;
  int port = port_;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_),
                           grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(static_cast<v1::KeyValue::Service*>(this));
  builder.RegisterService(static_cast<v1::Admin::Service*>(this));
  builder.SetMaxReceiveMessageSize(8 << 20);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  server_ = builder.BuildAndStart();
  RINGKV_CHECK(server_ != nullptr);
  port_ = port;
}

void FakeNode::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
}

std::string FakeNode::address() const {
  return absl::StrCat("127.0.0.1:", port_);
}

grpc::Status FakeNode::Before(grpc::ServerContext* context) {
  std::unique_lock<Mutex> lock(cluster_.mutex_);
  FakeCluster::NodeState& state =
      cluster_.states_[static_cast<int>(ToInt(number_))];
  while (state.behaviour.frozen && !context->IsCancelled() &&
         !cluster_.stopping_) {
    cluster_.changed_.wait_for(lock, kTick);
  }
  if (context->IsCancelled()) {
    return grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
  }
  if (state.behaviour.refuse.has_value() && state.behaviour.times != 0) {
    if (state.behaviour.times > 0) --state.behaviour.times;
    if (state.behaviour.retry_after_ms > 0) {
      context->AddTrailingMetadata(
          "grpc-retry-pushback-ms",
          absl::StrCat(state.behaviour.retry_after_ms));
    }
    return *state.behaviour.refuse;
  }
  return grpc::Status::OK;
}

grpc::Status FakeNode::AfterWrite() {
  MutexLock lock(cluster_.mutex_);
  FakeCluster::NodeState& state =
      cluster_.states_[static_cast<int>(ToInt(number_))];
  if (state.behaviour.fail_after_write.has_value() &&
      state.behaviour.times != 0) {
    if (state.behaviour.times > 0) --state.behaviour.times;
    return *state.behaviour.fail_after_write;
  }
  return grpc::Status::OK;
}

grpc::Status FakeNode::Get(grpc::ServerContext* context,
                           const v1::GetRequest* request,
                           v1::GetResponse* response) {
  {
    MutexLock lock(cluster_.mutex_);
    ++cluster_.states_[static_cast<int>(ToInt(number_))].counts.gets;
  }
  if (grpc::Status status = Before(context); !status.ok()) return status;
  if (request->key().empty() || request->key().size() > 4096) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        absl::StrCat("the key has ", request->key().size(),
                                     " bytes; keys have 1 to 4096"));
  }
  MutexLock lock(cluster_.mutex_);
  const auto store = cluster_.stores_.find(
      request->keyspace().empty() ? "default" : request->keyspace());
  if (store == cluster_.stores_.end()) {
    return grpc::Status(
        grpc::StatusCode::NOT_FOUND,
        absl::StrCat("no keyspace \"", request->keyspace(), "\""));
  }
  response->set_ring_epoch(cluster_.ring_->epoch());
  const auto found = store->second.find(request->key());
  if (found == store->second.end()) return grpc::Status::OK;
  AddSiblings(found->second, /*keys_only=*/false, response);
  response->set_context(EncodeContext(request->key(), found->second.seen));
  return grpc::Status::OK;
}

template <class Request, class Response>
grpc::Status FakeNode::Write(grpc::ServerContext* context,
                             const Request& request, Response* response) {
  constexpr bool kPut = std::is_same_v<Request, v1::PutRequest>;
  if (grpc::Status status = Before(context); !status.ok()) return status;
  {
    MutexLock lock(cluster_.mutex_);
    FakeCluster::NodeState& state =
        cluster_.states_[static_cast<int>(ToInt(number_))];
    const v1::RequestId& id = request.request_id();
    state.counts.request_ids.push_back(id.id());
    if (id.age_ms() != 0) state.counts.repeat_ages_ms.push_back(id.age_ms());
    if (id.coordinator_start_id() != 0 &&
        id.coordinator_start_id() != state.start_id) {
      ++state.counts.repeats_refused;
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          "the request names another run of this node");
    }
    const auto remembered = state.remembered.find(id.id());
    if (remembered != state.remembered.end()) {
      ++state.counts.repeats_known;
      response->ParseFromString(remembered->second.put.SerializeAsString());
      return grpc::Status::OK;
    }
    const auto store = cluster_.stores_.find(
        request.keyspace().empty() ? "default" : request.keyspace());
    if (store == cluster_.stores_.end()) {
      return grpc::Status(
          grpc::StatusCode::NOT_FOUND,
          absl::StrCat("no keyspace \"", request.keyspace(), "\""));
    }
    if (request.key().empty() || request.key().size() > 4096) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          absl::StrCat("the key has ", request.key().size(),
                                       " bytes; keys have 1 to 4096"));
    }
    FakeCluster::Object& object = store->second[request.key()];
    std::set<uint64_t> covered;
    if (request.has_context()) {
      absl::StatusOr<std::set<uint64_t>> decoded =
          DecodeContext(request.key(), request.context());
      if (!decoded.ok()) return ToGrpc(decoded.status());
      covered = *std::move(decoded);
    } else {
      bool blind = false;
      if constexpr (kPut) blind = request.blind();
      if (!blind) covered.insert(object.seen.begin(), object.seen.end());
    }
    std::erase_if(object.siblings, [&covered](const FakeCluster::Value& v) {
      return covered.count(v.dot) > 0;
    });
    size_t others = object.siblings.size();
    const uint64_t dot = cluster_.next_dot_++;
    if constexpr (kPut) {
      FakeCluster::Value value;
      value.dot = dot;
      value.value = request.value();
      value.hlc = (1'700'000'000'000 + dot) << 16;
      if (request.has_ttl()) {
        value.expires_at_ms =
            1'700'000'000'000 + request.ttl().seconds() * 1000;
      }
      object.siblings.push_back(std::move(value));
    }
    object.seen.push_back(dot);
    ++state.counts.writes_done;
    if (others == 0) {
      response->set_context(EncodeContext(request.key(), object.seen));
    }
    response->set_unresolved_siblings(static_cast<uint32_t>(others));
    response->set_replica_acks(3);
    response->set_ring_epoch(cluster_.ring_->epoch());
    if (!id.id().empty()) {
      state.remembered[id.id()].put.ParseFromString(
          response->SerializeAsString());
    }
  }
  return AfterWrite();
}

grpc::Status FakeNode::Put(grpc::ServerContext* context,
                           const v1::PutRequest* request,
                           v1::PutResponse* response) {
  {
    MutexLock lock(cluster_.mutex_);
    ++cluster_.states_[static_cast<int>(ToInt(number_))].counts.puts;
  }
  return Write(context, *request, response);
}

grpc::Status FakeNode::Delete(grpc::ServerContext* context,
                              const v1::DeleteRequest* request,
                              v1::DeleteResponse* response) {
  {
    MutexLock lock(cluster_.mutex_);
    ++cluster_.states_[static_cast<int>(ToInt(number_))].counts.deletes;
  }
  return Write(context, *request, response);
}

grpc::Status FakeNode::Batch(grpc::ServerContext* context,
                             const v1::BatchRequest* request,
                             v1::BatchResponse* response) {
  {
    MutexLock lock(cluster_.mutex_);
    ++cluster_.states_[static_cast<int>(ToInt(number_))].counts.batches;
  }
  for (const v1::Operation& operation : request->operations()) {
    Do(context, operation, response->add_results());
  }
  return grpc::Status::OK;
}

void FakeNode::Do(grpc::ServerContext* context, const v1::Operation& operation,
                  v1::OperationResult* result) {
  grpc::Status status;
  if (operation.has_get()) {
    status = Get(context, &operation.get(), result->mutable_get());
  } else if (operation.has_put()) {
    status = Put(context, &operation.put(), result->mutable_put());
  } else {
    status = Delete(context, &operation.delete_(), result->mutable_delete_());
  }
  if (!status.ok()) {
    result->Clear();
    result->set_code(static_cast<uint32_t>(status.error_code()));
    result->set_message(status.error_message());
  }
}

grpc::Status FakeNode::Pipeline(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::PipelineResponse, v1::PipelineRequest>*
        stream) {
  v1::PipelineRequest request;
  while (stream->Read(&request)) {
    v1::PipelineResponse response;
    // Last first: results come in any order.
    for (int i = request.items_size() - 1; i >= 0; --i) {
      v1::PipelineResponse::Item* item = response.add_items();
      item->set_id(request.items(i).id());
      Do(context, request.items(i).operation(), item->mutable_result());
    }
    if (!stream->Write(response)) break;
  }
  return grpc::Status::OK;
}

grpc::Status FakeNode::Scan(grpc::ServerContext* context,
                            const v1::ScanRequest* request,
                            grpc::ServerWriter<v1::ScanResponse>* writer) {
  {
    MutexLock lock(cluster_.mutex_);
    ++cluster_.states_[static_cast<int>(ToInt(number_))].counts.scans;
  }
  std::string cursor = request->cursor();
  uint64_t left = request->limit() == 0 ? UINT64_MAX : request->limit();
  while (true) {
    if (grpc::Status status = Before(context); !status.ok()) return status;
    v1::ScanResponse page;
    {
      MutexLock lock(cluster_.mutex_);
      const auto store = cluster_.stores_.find(
          request->keyspace().empty() ? "default" : request->keyspace());
      if (store == cluster_.stores_.end()) {
        return grpc::Status(
            grpc::StatusCode::NOT_FOUND,
            absl::StrCat("no keyspace \"", request->keyspace(), "\""));
      }
      std::map<std::string, const std::string*> order;
      for (const auto& [key, object] : store->second) {
        if (object.siblings.empty()) continue;
        order.emplace(
            absl::StrCat(absl::Hex(TokenOf(key), absl::kZeroPad16), key), &key);
      }
      auto at = order.upper_bound(cursor);
      for (size_t n = 0; at != order.end() && n < kEntriesAPage && left > 0;
           ++at, ++n, --left) {
        const FakeCluster::Object& object = store->second[*at->second];
        v1::ScanEntry* entry = page.add_entries();
        entry->set_key(*at->second);
        AddSiblings(object, request->keys_only(), entry);
        entry->set_context(EncodeContext(*at->second, object.seen));
        cursor = at->first;
      }
      if (at != order.end()) page.set_cursor(cursor);
    }
    if (!writer->Write(page)) {
      return grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
    }
    if (page.cursor().empty() || left == 0) return grpc::Status::OK;
  }
}

grpc::Status FakeNode::WatchRing(
    grpc::ServerContext* context, const v1::WatchRingRequest* request,
    grpc::ServerWriter<v1::WatchRingResponse>* writer) {
  const int self = static_cast<int>(ToInt(number_));
  std::unique_lock<Mutex> lock(cluster_.mutex_);
  ++cluster_.states_[self].counts.watches;
  RingEpoch sent = request->known_epoch();
  while (!cluster_.stopping_ && !context->IsCancelled()) {
    FakeCluster::NodeState& state = cluster_.states_[self];
    if (state.behaviour.refuse_watch) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "no watching here");
    }
    if (state.behaviour.standby) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          "this node is in no ring");
    }
    if (state.behaviour.frozen || cluster_.ring_->epoch() <= sent) {
      cluster_.changed_.wait_for(lock, kTick);
      continue;
    }
    v1::WatchRingResponse response;
    RingToProto(cluster_.ring_->spec(), response.mutable_ring());
    if (cluster_.mangle_) cluster_.mangle_(*response.mutable_ring());
    response.set_node_number(ToInt(number_));
    response.set_start_id(state.start_id);
    for (const auto& [number, other] : cluster_.states_) {
      v1::NodeStart* start = response.add_starts();
      start->set_node_number(static_cast<uint32_t>(number));
      start->set_start_id(other.start_id);
      start->set_alive(other.alive);
    }
    sent = cluster_.ring_->epoch();
    lock.unlock();
    const bool written = writer->Write(response);
    lock.lock();
    if (!written) break;
  }
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the watch ends");
}

grpc::Status FakeNode::Status(grpc::ServerContext* context,
                              const v1::StatusRequest* request,
                              v1::StatusResponse* response) {
  MutexLock lock(cluster_.mutex_);
  const FakeCluster::NodeState& self =
      cluster_.states_[static_cast<int>(ToInt(number_))];
  response->set_name(absl::StrCat("n", ToInt(number_)));
  response->set_node_id(NodeId{0, ToInt(number_)}.ToString());
  if (!self.behaviour.standby) {
    response->set_node_number(ToInt(number_));
    response->set_cluster_id(cluster_.ring_->spec().cluster_id.ToString());
    response->set_ring_epoch(cluster_.ring_->epoch());
    response->set_feature_level(1);
  }
  for (const Member& member : cluster_.ring_->spec().members) {
    const FakeCluster::NodeState& state =
        cluster_.states_[static_cast<int>(ToInt(member.number))];
    v1::NodeStatus* node = response->add_nodes();
    if (!self.behaviour.standby) node->set_node_number(ToInt(member.number));
    node->set_node_id(member.id.ToString());
    node->set_name(member.name);
    node->set_state(self.behaviour.standby ? v1::NODE_STATE_STANDBY
                    : state.alive          ? v1::NODE_STATE_ALIVE
                                           : v1::NODE_STATE_DOWN);
    node->set_client_address(member.client_address);
    node->set_peer_address(member.peer_address);
    LocationToProto(member.location, node->mutable_location());
    node->set_weight(member.weight);
    node->set_ring_epoch(cluster_.ring_->epoch());
    node->set_ownership(1.0 / cluster_.size());
    node->set_keys(10 * ToInt(member.number));
    node->set_feature_level_max(ToInt(member.number) == 1 ? 3 : 2);
    node->set_version("test");
    if (!state.alive) {
      node->set_age_ms(65'000);
      response->add_warnings(
          absl::StrCat(member.name, " has been down for 65 s"));
    }
  }
  return grpc::Status::OK;
}

grpc::Status FakeNode::Init(grpc::ServerContext* context,
                            const v1::InitRequest* request,
                            v1::InitResponse* response) {
  v1::StatusResponse status;
  Status(context, nullptr, &status);
  *response->mutable_nodes() = status.nodes();
  MutexLock lock(cluster_.mutex_);
  if (!cluster_.states_[static_cast<int>(ToInt(number_))].behaviour.standby) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        "the cluster is formed already, at ring epoch 1");
  }
  if (request->expected_nodes() != 0 &&
      request->expected_nodes() != cluster_.states_.size()) {
    return grpc::Status(
        grpc::StatusCode::FAILED_PRECONDITION,
        absl::StrCat("found ", cluster_.states_.size(), " nodes, expected ",
                     request->expected_nodes()));
  }
  if (request->dry_run()) return grpc::Status::OK;
  for (auto& [number, state] : cluster_.states_) {
    state.behaviour.standby = false;
  }
  response->set_cluster_id(cluster_.ring_->spec().cluster_id.ToString());
  response->set_ring_epoch(1);
  return grpc::Status::OK;
}

grpc::Status FakeNode::Locate(grpc::ServerContext* context,
                              const v1::LocateRequest* request,
                              v1::LocateResponse* response) {
  MutexLock lock(cluster_.mutex_);
  const std::string name =
      request->keyspace().empty() ? "default" : request->keyspace();
  const Keyspace* keyspace = cluster_.ring_->FindKeyspace(name);
  if (keyspace == nullptr) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND,
                        absl::StrCat("no keyspace \"", name, "\""));
  }
  const Token token = TokenOf(request->key());
  response->set_token(token);
  const auto found = cluster_.stores_[name].find(request->key());
  const bool diverged =
      std::find(cluster_.diverged_.begin(), cluster_.diverged_.end(),
                request->key()) != cluster_.diverged_.end();
  for (const NodeNumber number :
       cluster_.ring_->PreferenceList(*keyspace, token)) {
    v1::LocatedCopy* copy = response->add_copies();
    copy->set_node_number(ToInt(number));
    copy->set_name(cluster_.ring_->FindMember(number)->name);
    copy->set_replica(true);
    copy->set_answered(cluster_.states_[static_cast<int>(ToInt(number))].alive);
    if (!copy->answered()) {
      copy->set_error("did not answer in time");
      continue;
    }
    if (found == cluster_.stores_[name].end()) continue;
    copy->set_found(true);
    copy->set_siblings(static_cast<uint32_t>(found->second.siblings.size()));
    copy->set_tombstone(found->second.siblings.empty());
    copy->set_bytes(100);
    copy->set_digest(found->second.seen.back());
    copy->set_newest_hlc_timestamp(
        (1'700'000'000'000 + found->second.seen.back()) << 16);
  }
  if (diverged) {
    // Unlike any dot.
    v1::LocatedCopy& last = *response->mutable_copies()->rbegin();
    last.set_digest(~last.digest());
  }
  return grpc::Status::OK;
}

grpc::Status FakeNode::Hints(grpc::ServerContext* context,
                             const v1::HintsRequest* request,
                             v1::HintsResponse* response) {
  v1::HintBacklog* backlog = response->add_backlogs();
  backlog->set_holder(1);
  backlog->set_target(2);
  backlog->set_hints(42);
  backlog->set_bytes(4096);
  backlog->set_oldest_ms(1500);
  backlog->set_rate(3.5);
  response->add_unheard(2);
  return grpc::Status::OK;
}

grpc::Status FakeNode::CreateKeyspace(grpc::ServerContext* context,
                                      const v1::CreateKeyspaceRequest* request,
                                      v1::KeyspaceResponse* response) {
  MutexLock lock(cluster_.mutex_);
  RingSpec spec = cluster_.ring_->spec();
  if (cluster_.ring_->FindKeyspace(request->keyspace().name()) != nullptr) {
    return grpc::Status(grpc::StatusCode::ALREADY_EXISTS,
                        "there is a keyspace of this name");
  }
  v1::KeyspaceConfig config = request->keyspace();
  config.set_id(ToInt(spec.next_keyspace_id));
  absl::StatusOr<Keyspace> keyspace = KeyspaceFromProto(config);
  if (!keyspace.ok()) return ToGrpc(keyspace.status());
  ++spec.epoch;
  keyspace->changed_at = spec.epoch;
  spec.next_keyspace_id = KeyspaceId{ToInt(spec.next_keyspace_id) + 1};
  spec.keyspaces.push_back(*keyspace);
  absl::StatusOr<std::shared_ptr<const Ring>> ring = Ring::Make(spec);
  if (!ring.ok()) return ToGrpc(ring.status());
  cluster_.ring_ = *ring;
  cluster_.stores_[keyspace->name];
  KeyspaceToProto(*keyspace, response->mutable_keyspace());
  response->set_ring_epoch(spec.epoch);
  cluster_.changed_.notify_all();
  return grpc::Status::OK;
}

grpc::Status FakeNode::AlterKeyspace(grpc::ServerContext* context,
                                     const v1::AlterKeyspaceRequest* request,
                                     v1::KeyspaceResponse* response) {
  MutexLock lock(cluster_.mutex_);
  RingSpec spec = cluster_.ring_->spec();
  if (request->has_n() || request->has_r() || request->has_w()) {
    v1::OperationStatus& running = *cluster_.operations_.mutable_running();
    running.set_id(spec.epoch + 1);
    running.set_kind(v1::TOPOLOGY_KIND_KEYSPACE);
    running.set_state(v1::OPERATION_STATE_STREAMING);
    running.set_keyspace(request->name());
    cluster_.polls_left_ = cluster_.operation_polls_;
    response->set_operation(running.id());
    return grpc::Status::OK;
  }
  for (Keyspace& keyspace : spec.keyspaces) {
    if (keyspace.name != request->name()) continue;
    if (request->has_durability()) {
      keyspace.durability = request->durability() == v1::DURABILITY_SYNC
                                ? Durability::kSync
                                : Durability::kInterval;
    }
    if (request->has_quorum()) {
      keyspace.quorum = request->quorum() == v1::QUORUM_STRICT
                            ? QuorumMode::kStrict
                            : QuorumMode::kSloppy;
    }
    KeyspaceToProto(keyspace, response->mutable_keyspace());
    ++spec.epoch;
    cluster_.ring_ = *Ring::Make(spec);
    response->set_ring_epoch(spec.epoch);
    cluster_.changed_.notify_all();
    return grpc::Status::OK;
  }
  return grpc::Status(grpc::StatusCode::NOT_FOUND,
                      absl::StrCat("no keyspace \"", request->name(), "\""));
}

grpc::Status FakeNode::DropKeyspace(grpc::ServerContext* context,
                                    const v1::DropKeyspaceRequest* request,
                                    v1::DropKeyspaceResponse* response) {
  MutexLock lock(cluster_.mutex_);
  RingSpec spec = cluster_.ring_->spec();
  if (std::erase_if(spec.keyspaces, [request](const Keyspace& keyspace) {
        return keyspace.name == request->name();
      }) == 0) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND,
                        absl::StrCat("no keyspace \"", request->name(), "\""));
  }
  ++spec.epoch;
  cluster_.ring_ = *Ring::Make(spec);
  cluster_.stores_.erase(request->name());
  response->set_ring_epoch(spec.epoch);
  cluster_.changed_.notify_all();
  return grpc::Status::OK;
}

grpc::Status FakeNode::StartOperation(grpc::ServerContext* context,
                                      const v1::StartOperationRequest* request,
                                      v1::StartOperationResponse* response) {
  MutexLock lock(cluster_.mutex_);
  const RingEpoch epoch = cluster_.ring_->epoch();
  cluster_.operation_requests_.push_back(*request);
  if (cluster_.operations_.has_running()) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        "a join runs (since epoch 2)");
  }
  if (request->planned_for() != 0 && request->planned_for() != epoch) {
    return grpc::Status(grpc::StatusCode::ABORTED, "planned for another epoch");
  }
  v1::OperationPlan& plan = *response->mutable_plan();
  plan.set_kind(request->kind());
  plan.set_epoch(epoch);
  for (const std::string& name : request->nodes()) {
    if (name == "nobody") {
      return grpc::Status(grpc::StatusCode::NOT_FOUND,
                          "no standby node is called \"nobody\"");
    }
    v1::NodeRef& node = *plan.add_nodes();
    node.set_node_number(4);
    node.set_name(name);
  }
  v1::PlannedTransfer& transfer = *plan.add_transfers();
  transfer.mutable_from()->set_node_number(1);
  transfer.mutable_from()->set_name("n1");
  *transfer.mutable_to() = plan.nodes(0);
  transfer.set_ranges(4096);
  transfer.set_bytes(3 << 20);
  v1::PlannedShare& share = *plan.add_shares();
  *share.mutable_node() = plan.nodes(0);
  share.set_after(0.25);
  plan.set_largest_over_fair_before(1);
  plan.set_largest_over_fair_after(1.0002);
  plan.add_warnings("racks are uneven");
  if (request->dry_run()) return grpc::Status::OK;
  v1::OperationStatus& running = *cluster_.operations_.mutable_running();
  const uint64_t id =
      epoch + 1 + static_cast<uint64_t>(cluster_.operations_.finished_size());
  running.set_id(id);
  running.set_kind(request->kind());
  running.set_state(v1::OPERATION_STATE_STREAMING);
  *running.mutable_nodes() = plan.nodes();
  running.set_started_ms(1000);
  v1::OperationProgress& progress = *running.add_progress();
  *progress.mutable_node() = plan.nodes(0);
  progress.set_alive(true);
  progress.set_ranges(100);
  progress.set_ranges_done(30);
  progress.set_keys(1234);
  progress.set_bytes(1 << 20);
  v1::OperationWait& wait = *running.add_waits();
  *wait.mutable_node() = plan.nodes(0);
  wait.set_why("receives");
  cluster_.polls_left_ = cluster_.operation_polls_;
  response->set_operation(id);
  return grpc::Status::OK;
}

grpc::Status FakeNode::Operations(grpc::ServerContext* context,
                                  const v1::OperationsRequest* request,
                                  v1::OperationsResponse* response) {
  MutexLock lock(cluster_.mutex_);
  if (cluster_.operations_.has_running() && cluster_.polls_left_-- == 0) {
    v1::OperationStatus ended = cluster_.operations_.running();
    ended.set_state(cluster_.operation_end_);
    ended.set_ended_ms(64'000);
    ended.clear_waits();
    cluster_.operations_.clear_running();
    *cluster_.operations_.add_finished() = std::move(ended);
  }
  *response = cluster_.operations_;
  response->set_ring_epoch(cluster_.ring_->epoch());
  return grpc::Status::OK;
}

grpc::Status FakeNode::AbortOperation(grpc::ServerContext* context,
                                      const v1::AbortOperationRequest* request,
                                      v1::AbortOperationResponse* response) {
  MutexLock lock(cluster_.mutex_);
  if (!cluster_.operations_.has_running() ||
      cluster_.operations_.running().id() != request->operation()) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        "no operation runs");
  }
  response->set_operation(request->operation());
  response->set_ring_epoch(cluster_.ring_->epoch());
  cluster_.operations_.clear_running();
  return grpc::Status::OK;
}

grpc::Status FakeNode::Recover(grpc::ServerContext* context,
                               const v1::RecoverRequest* request,
                               v1::RecoverResponse* response) {
  MutexLock lock(cluster_.mutex_);
  const RingEpoch epoch = cluster_.ring_->epoch();
  const bool named = request->survivors_size() > 0;
  if (!named && !request->dry_run()) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "name survivors");
  }
  if (request->planned_for() != 0 && request->planned_for() != epoch) {
    return grpc::Status(grpc::StatusCode::ABORTED, "planned for another epoch");
  }
  v1::NodeRef& survivor = *response->add_survivors();
  survivor.set_node_number(ToInt(number_));
  survivor.set_name(absl::StrCat("n", ToInt(number_)));
  v1::NodeRef& lost = *response->add_lost();
  lost.set_node_number(9);
  lost.set_name("n9");
  response->mutable_plan()->add_warnings("writes that only n9 had are lost");
  response->set_ring_epoch(request->dry_run() ? epoch : epoch + 1000);
  if (!request->dry_run()) response->set_lineage(0xabc);
  return grpc::Status::OK;
}

grpc::Status FakeNode::FinishUpgrade(grpc::ServerContext* context,
                                     const v1::FinishUpgradeRequest* request,
                                     v1::FinishUpgradeResponse* response) {
  MutexLock lock(cluster_.mutex_);
  if (request->level() > 2) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                        "n1 (1) knows up to 2");
  }
  response->set_before(1);
  response->set_level(request->level() == 0 ? 2 : request->level());
  response->set_ring_epoch(7);
  return grpc::Status::OK;
}

FakeCluster::FakeCluster(int nodes, bool formed) {
  for (int i = 1; i <= nodes; ++i) {
    NodeState& state = states_[i];
    state.start_id = next_start_id_++;
    state.behaviour.standby = !formed;
    nodes_.push_back(std::make_unique<FakeNode>(
        *this, NodeNumber{static_cast<uint32_t>(i)}));
  }
  stores_["default"];
  stores_["last"];
  for (const std::unique_ptr<FakeNode>& node : nodes_) node->Start();
  absl::StatusOr<std::shared_ptr<const Ring>> ring =
      Ring::Make(FirstRing(nodes_));
  RINGKV_CHECK(ring.ok());
  MutexLock lock(mutex_);
  ring_ = *ring;
}

FakeCluster::~FakeCluster() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (const std::unique_ptr<FakeNode>& node : nodes_) node->Stop();
}

std::string FakeCluster::endpoints() const {
  return absl::StrJoin(nodes_, ",", [](std::string* out, const auto& node) {
    absl::StrAppend(out, node->address());
  });
}

void FakeCluster::Configure(int number,
                            const std::function<void(FakeBehaviour&)>& change) {
  {
    MutexLock lock(mutex_);
    change(states_[number].behaviour);
  }
  changed_.notify_all();
}

FakeCounts FakeCluster::counts(int number) {
  MutexLock lock(mutex_);
  return states_[number].counts;
}

int FakeCluster::total(int FakeCounts::*field) {
  MutexLock lock(mutex_);
  int sum = 0;
  for (const auto& [number, state] : states_) sum += state.counts.*field;
  return sum;
}

void FakeCluster::Kill(int number) {
  node(number).Stop();
  MutexLock lock(mutex_);
  states_[number].remembered.clear();
}

void FakeCluster::Restart(int number) {
  if (node(number).running()) Kill(number);
  {
    MutexLock lock(mutex_);
    states_[number].start_id = next_start_id_++;
  }
  node(number).Start();
}

void FakeCluster::SetAlive(int number, bool alive) {
  MutexLock lock(mutex_);
  states_[number].alive = alive;
}

std::vector<int> FakeCluster::Replicas(const std::string& key) {
  MutexLock lock(mutex_);
  std::vector<int> replicas;
  for (const NodeNumber number :
       ring_->PreferenceList(*ring_->FindKeyspace("default"), TokenOf(key))) {
    replicas.push_back(static_cast<int>(ToInt(number)));
  }
  return replicas;
}

void FakeCluster::ChangeRing(const std::function<void(RingSpec&)>& change) {
  {
    MutexLock lock(mutex_);
    RingSpec spec = ring_->spec();
    ++spec.epoch;
    change(spec);
    absl::StatusOr<std::shared_ptr<const Ring>> ring =
        Ring::Make(std::move(spec));
    RINGKV_CHECK(ring.ok());
    ring_ = *ring;
  }
  changed_.notify_all();
}

void FakeCluster::MangleRings(std::function<void(v1::RingSnapshot&)> mangle) {
  MutexLock lock(mutex_);
  mangle_ = std::move(mangle);
}

RingEpoch FakeCluster::epoch() {
  MutexLock lock(mutex_);
  return ring_->epoch();
}

std::map<std::string, FakeCluster::Object> FakeCluster::objects(
    const std::string& keyspace) {
  MutexLock lock(mutex_);
  return stores_[keyspace];
}

void FakeCluster::PutDirectly(const std::string& key,
                              const std::string& value) {
  MutexLock lock(mutex_);
  Object& object = stores_["default"][key];
  const uint64_t dot = next_dot_++;
  object.siblings.push_back({dot, value, (1'700'000'000'000 + dot) << 16, 0});
  object.seen.push_back(dot);
}

void FakeCluster::DivergeReplica(const std::string& key) {
  MutexLock lock(mutex_);
  diverged_.push_back(key);
}

}  // namespace ringkv
