// Keeps a client's ring fresh: holds one watch stream to any node, and moves to
// another one, after a jittered wait, when it ends.

#ifndef RINGKV_CLIENT_RING_WATCHER_H_
#define RINGKV_CLIENT_RING_WATCHER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/cluster_view.h"

namespace ringkv {

// Thread-safe; has a thread of its own.
class RingWatcher {
 public:
  RingWatcher(ClusterView& view, IoLoop& io);
  ~RingWatcher() { Stop(); }

  // Waits until there is a ring; asks one more node whenever those asked so far
  // take long. UNAVAILABLE with the last reason of each node
  // that was asked, or FAILED_PRECONDITION if those that answer have no ring.
  absl::Status WaitForRing(absl::Duration timeout);

  uint64_t watches() const { return watches_; }

  // Ends the stream and waits for the thread.
  void Stop();

 private:
  void Run();
  // One stream; true if it brought a ring.
  bool Watch(const std::shared_ptr<Node>& node);
  // Waits, unless Stop() comes first.
  void Pause(absl::Duration delay);

  ClusterView& view_;
  IoLoop& io_;
  std::atomic<uint64_t> watches_{0};

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // Of the stream that runs.
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Status> last_errors_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_RING_WATCHER_H_
