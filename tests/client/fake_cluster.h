// A cluster for tests of the client: real gRPC servers in this process over one
// shared store, which can be told to refuse, to be slow, to freeze and to die.

#ifndef RINGKV_TESTS_CLIENT_FAKE_CLUSTER_H_
#define RINGKV_TESTS_CLIENT_FAKE_CLUSTER_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/mutex.h"
#include "membership/ring/ring.h"
#include "ringkv/v1/admin.grpc.pb.h"
#include "ringkv/v1/kv.grpc.pb.h"

namespace ringkv {

class FakeCluster;

// How one node behaves. Changed through FakeCluster::Configure().
struct FakeBehaviour {
  // Calls wait until this is false again or they are cancelled.
  bool frozen = false;
  // Every call of KeyValue (but WatchRing) fails with this before it is done.
  std::optional<grpc::Status> refuse;
  // Milliseconds to put into the pushback of refusals; 0: none.
  int retry_after_ms = 0;
  // Writes take effect, and then answer with this.
  std::optional<grpc::Status> fail_after_write;
  // The next so many refusals or failures only; below 0: all.
  int times = -1;
  // Ends the watch streams and refuses new ones.
  bool refuse_watch = false;
  // Before init: Status and Init work, WatchRing is FAILED_PRECONDITION.
  bool standby = false;
};

struct FakeCounts {
  int gets = 0;
  int puts = 0;
  int deletes = 0;
  int batches = 0;
  int watches = 0;
  int scans = 0;
  int writes_done = 0;
  int repeats_known = 0;    // answered from the remembered outcome
  int repeats_refused = 0;  // named another run
  std::vector<uint64_t> repeat_ages_ms;
  std::vector<std::string> request_ids;
};

class FakeNode final : public v1::KeyValue::Service, public v1::Admin::Service {
 public:
  FakeNode(FakeCluster& cluster, NodeNumber number);
  ~FakeNode() override { Stop(); }

  void Start();
  void Stop();
  bool running() const { return server_ != nullptr; }
  std::string address() const;
  NodeNumber number() const { return number_; }

  grpc::Status Get(grpc::ServerContext* context, const v1::GetRequest* request,
                   v1::GetResponse* response) override;
  grpc::Status Put(grpc::ServerContext* context, const v1::PutRequest* request,
                   v1::PutResponse* response) override;
  grpc::Status Delete(grpc::ServerContext* context,
                      const v1::DeleteRequest* request,
                      v1::DeleteResponse* response) override;
  grpc::Status Batch(grpc::ServerContext* context,
                     const v1::BatchRequest* request,
                     v1::BatchResponse* response) override;
  grpc::Status Pipeline(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::PipelineResponse, v1::PipelineRequest>*
          stream) override;
  grpc::Status Scan(grpc::ServerContext* context,
                    const v1::ScanRequest* request,
                    grpc::ServerWriter<v1::ScanResponse>* writer) override;
  grpc::Status WatchRing(
      grpc::ServerContext* context, const v1::WatchRingRequest* request,
      grpc::ServerWriter<v1::WatchRingResponse>* writer) override;

  grpc::Status Status(grpc::ServerContext* context,
                      const v1::StatusRequest* request,
                      v1::StatusResponse* response) override;
  grpc::Status Init(grpc::ServerContext* context,
                    const v1::InitRequest* request,
                    v1::InitResponse* response) override;
  grpc::Status Locate(grpc::ServerContext* context,
                      const v1::LocateRequest* request,
                      v1::LocateResponse* response) override;
  grpc::Status Hints(grpc::ServerContext* context,
                     const v1::HintsRequest* request,
                     v1::HintsResponse* response) override;
  grpc::Status CreateKeyspace(grpc::ServerContext* context,
                              const v1::CreateKeyspaceRequest* request,
                              v1::KeyspaceResponse* response) override;
  grpc::Status AlterKeyspace(grpc::ServerContext* context,
                             const v1::AlterKeyspaceRequest* request,
                             v1::KeyspaceResponse* response) override;
  grpc::Status DropKeyspace(grpc::ServerContext* context,
                            const v1::DropKeyspaceRequest* request,
                            v1::DropKeyspaceResponse* response) override;
  grpc::Status StartOperation(grpc::ServerContext* context,
                              const v1::StartOperationRequest* request,
                              v1::StartOperationResponse* response) override;
  grpc::Status Operations(grpc::ServerContext* context,
                          const v1::OperationsRequest* request,
                          v1::OperationsResponse* response) override;
  grpc::Status AbortOperation(grpc::ServerContext* context,
                              const v1::AbortOperationRequest* request,
                              v1::AbortOperationResponse* response) override;
  grpc::Status Recover(grpc::ServerContext* context,
                       const v1::RecoverRequest* request,
                       v1::RecoverResponse* response) override;
  grpc::Status FinishUpgrade(grpc::ServerContext* context,
                             const v1::FinishUpgradeRequest* request,
                             v1::FinishUpgradeResponse* response) override;

 private:
  void Do(grpc::ServerContext* context, const v1::Operation& operation,
          v1::OperationResult* result);
  // What the configured behaviour says before a call is done.
  grpc::Status Before(grpc::ServerContext* context);
  grpc::Status AfterWrite();
  template <class Request, class Response>
  grpc::Status Write(grpc::ServerContext* context, const Request& request,
                     Response* response);

  FakeCluster& cluster_;
  const NodeNumber number_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class FakeCluster {
 public:
  struct Value {
    uint64_t dot = 0;
    std::string value;
    uint64_t hlc = 0;
    int64_t expires_at_ms = 0;
  };
  struct Object {
    std::vector<Value> siblings;
    std::vector<uint64_t> seen;  // every dot that was ever there
  };

  // `nodes` servers on free ports, in racks r1, r2, r3 by turns, one ring over
  // them with keyspaces "default" (siblings, N=3 R=2 W=2) and "last" (lww).
  explicit FakeCluster(int nodes, bool formed = true);
  ~FakeCluster();

  // host:port of every node, separated by commas.
  std::string endpoints() const;
  FakeNode& node(int number) {
    return *nodes_[static_cast<size_t>(number - 1)];
  }
  int size() const { return static_cast<int>(nodes_.size()); }

  void Configure(int number, const std::function<void(FakeBehaviour&)>& change);
  FakeCounts counts(int number);
  int total(int FakeCounts::*field);

  // Ends the process of a node, so to speak, and starts it again as a new run.
  void Kill(int number);
  void Restart(int number);

  // What the others say of a node.
  void SetAlive(int number, bool alive);

  // Natural replicas of a key in "default", in preference order.
  std::vector<int> Replicas(const std::string& key);

  // Replaces the ring by the next epoch after `change`.
  void ChangeRing(const std::function<void(RingSpec&)>& change);
  // Makes every watch stream send `mangle`d snapshots.
  void MangleRings(std::function<void(v1::RingSnapshot&)> mangle);
  RingEpoch epoch();

  // Operations change no ring here: one starts under the next id, and is over
  // after it was asked for so many times, as the state says.
  void EndOperations(int polls, v1::OperationState state) {
    MutexLock lock(mutex_);
    operation_polls_ = polls;
    operation_end_ = state;
  }
  std::vector<v1::StartOperationRequest> operation_requests() {
    MutexLock lock(mutex_);
    return operation_requests_;
  }

  std::map<std::string, Object> objects(
      const std::string& keyspace = "default");
  void PutDirectly(const std::string& key, const std::string& value);
  // Locate reports another digest for the last replica of this key.
  void DivergeReplica(const std::string& key);

 private:
  friend class FakeNode;

  struct Outcome {
    v1::PutResponse put;
  };
  struct NodeState {
    FakeBehaviour behaviour;
    FakeCounts counts;
    uint64_t start_id = 0;
    bool alive = true;
    std::map<std::string, Outcome> remembered;
  };

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ = false;
  std::shared_ptr<const Ring> ring_;
  std::function<void(v1::RingSnapshot&)> mangle_;
  std::map<int, NodeState> states_;
  std::map<std::string, std::map<std::string, Object>> stores_;
  std::vector<std::string> diverged_;
  int operation_polls_ = 2;
  v1::OperationState operation_end_ = v1::OPERATION_STATE_DONE;
  v1::OperationsResponse operations_;
  int polls_left_ = 0;
  std::vector<v1::StartOperationRequest> operation_requests_;
  uint64_t next_dot_ = 1;
  uint64_t next_start_id_ = 1000;
  std::vector<std::unique_ptr<FakeNode>> nodes_;
};

}  // namespace ringkv

#endif  // RINGKV_TESTS_CLIENT_FAKE_CLUSTER_H_
