// What is behind Client.

#ifndef RINGKV_CLIENT_CLIENT_IMPL_H_
#define RINGKV_CLIENT_CLIENT_IMPL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/call.h"
#include "client/client.h"
#include "client/cluster_view.h"
#include "client/io_loop.h"
#include "client/operations.h"
#include "client/ring_watcher.h"

namespace ringkv {

// Thread-safe.
class ClientImpl : public std::enable_shared_from_this<ClientImpl> {
 public:
  ClientImpl(ClientOptions options, std::vector<std::string> endpoints);
  ~ClientImpl();

  absl::Status WaitForRing() {
    return watcher_.WaitForRing(options_.connect_timeout);
  }

  const ClientOptions& options() const { return options_; }
  CallRuntime& runtime() { return runtime_; }
  ClusterView& view() { return view_; }
  IoLoop& io() { return io_; }

  // Zero means the client's default.
  Instant DeadlineOf(absl::Duration deadline) const;
  const std::string& KeyspaceOf(const std::string& keyspace) const {
    return keyspace.empty() ? options_.keyspace : keyspace;
  }
  Repeatable RepeatableOf(const std::string& keyspace, bool has_context);
  std::string NewRequestId() { return view_.RandomBytes(16); }

  void Get(absl::string_view key, const GetOptions& options, Instant deadline,
           Client::GetCallback done);
  void Put(absl::string_view key, absl::string_view value,
           const PutOptions& options, Instant deadline,
           Client::WriteCallback done);
  void Delete(absl::string_view key, const DeleteOptions& options,
              Instant deadline, Client::WriteCallback done);
  void Scan(const ScanOptions& options, Instant deadline,
            Client::ScanCallback done);
  void Batch(std::vector<BatchOperation> operations, Instant deadline,
             Client::BatchCallback done);
  void Update(absl::string_view key, MergeFunction merge,
              const UpdateOptions& options, Client::UpdateCallback done);

  // Prepared calls, to be started by Start() or StartAfter().
  std::shared_ptr<GetCallRun> MakeGet(v1::GetRequest request, Instant deadline,
                                      Client::GetCallback done);
  std::shared_ptr<PutCallRun> MakePut(v1::PutRequest request, Instant deadline,
                                      Client::WriteCallback done);
  std::shared_ptr<DeleteCallRun> MakeDelete(v1::DeleteRequest request,
                                            Instant deadline,
                                            Client::WriteCallback done);

  ClientStats stats() const;

 private:
  const ClientOptions options_;
  IoLoop io_;
  ClusterView view_;
  RingWatcher watcher_;
  CallRuntime runtime_;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_CLIENT_IMPL_H_
