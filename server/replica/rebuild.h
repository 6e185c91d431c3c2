// Makes damaged copies anew. A record whose checksum fails is as good as lost,
// and `own` with it; until it is rebuilt, this node neither answers reads of
// its key nor takes writes of it (their hints wait), for what it does not know
// of the key would count as known.
//
// Invariant: a copy is replaced only by what max(R, N-W+1) other replicas hold
// together (all others, if there are fewer): by then it has every write that W
// replicas acknowledged, and whatever a strict read has shown.
//
//   asking -> (enough answers) -> written, or healed by somebody else: ends
//     |  ^
//     v  |  too few answers in time
//   pausing

#ifndef RINGKV_SERVER_REPLICA_REBUILD_H_
#define RINGKV_SERVER_REPLICA_REBUILD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/time.h"
#include "server/shard/core.h"
#include "storage/version/object.h"

namespace ringkv {

class CopyRebuild final : public Operation {
 public:
  using Operation::Operation;
  void Start(KeyspaceId keyspace, std::string key);

  void OnReply(NodeNumber from, DataBody& reply, Release release) override;
  void OnTimer() override;
  void OnRing() override { Ask(); }
  bool IsBackground() const override { return true; }
  RingEpoch replies_since() const override { return since_; }

 private:
  void Ask();
  void Pause();
  void Finish();
  void Replace(const ReadResult& found);

  KeyspaceId keyspace_{};
  std::string key_;
  Token token_ = 0;
  RingEpoch since_ = 0;  // replies of older rings do not count
  uint32_t needed_ = 0;
  // Replicas that were asked, and whether they have answered.
  std::map<NodeNumber, bool> asked_;
  uint32_t answered_ = 0;
  std::optional<Object> merged_;
  absl::Duration pause_ = absl::ZeroDuration();
  bool pausing_ = false;
  bool replacing_ = false;
};

// Starts a rebuild for each copy that the shard has found damaged. So many run
// at once; the rest is found again when its key is next used.
class Rebuilds {
 public:
  explicit Rebuilds(ShardCore& core) : core_(core) {}
  void Start();

 private:
  ShardCore& core_;
  std::map<std::pair<KeyspaceId, std::string>, uint64_t> running_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_REPLICA_REBUILD_H_
