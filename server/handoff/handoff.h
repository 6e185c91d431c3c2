// Hinted handoff: brings the hints that this shard keeps to their targets, in
// order, a bounded number at a time and at a bounded rate, as soon as the
// target is alive. A hint goes only when its target has it durably; one that is
// past its age, or whose target is no replica of the key any more, goes to the
// present replicas, W of which must have it.
//
//   HandoffTarget (one for each target) --starts--> HintDelivery (one for each
//   hint)

#ifndef RINGKV_SERVER_HANDOFF_HANDOFF_H_
#define RINGKV_SERVER_HANDOFF_HANDOFF_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/shard/core.h"

namespace ringkv {

// Bytes that may be sent now; refills with time. Source: token bucket, RFC
// 2697.
class HandoffBudget {
 public:
  // True if something may be sent now.
  bool HasRoom(Instant now, uint64_t bytes_per_second);
  // The level may go below zero by what is in flight.
  void Take(uint64_t bytes) { level_ -= static_cast<double>(bytes); }

 private:
  double level_ = 0;
  Instant filled_at_;
  bool started_ = false;
};

class HandoffTarget final : public Operation {
 public:
  HandoffTarget(ShardCore& core, uint64_t id) : Operation(core, id) {}

  void Start(NodeNumber target, HandoffBudget* budget);
  // A delivery has ended. `kept` if the hint is still stored.
  void Delivered(bool kept);

  NodeNumber target() const { return target_; }

  void OnReply(NodeNumber, DataBody&, Release) override {}
  void OnTimer() override;
  void OnPeersChanged() override { OnTimer(); }
  bool IsBackground() const override { return true; }

 private:
  void Fetch();
  void Fetched(const absl::StatusOr<RangeResult>& range);
  void Pump();
  bool Deliverable() const;
  // Of this shard towards one target, in bytes a second.
  uint64_t Rate() const;

  NodeNumber target_{};
  HandoffBudget* budget_ = nullptr;
  std::deque<std::string> queue_;  // HintRecordKeys
  uint64_t next_sequence_ = 0;
  bool fetching_ = false;
  bool pumping_ = false;
  bool complete_ = false;  // nothing after queue_ when it was fetched
  uint32_t in_flight_ = 0;
  uint32_t kept_ = 0;  // since the last start from the front
  absl::Duration pause_ = absl::ZeroDuration();
};

class HintDelivery final : public Operation {
 public:
  HintDelivery(ShardCore& core, uint64_t id) : Operation(core, id) {}

  void Start(uint64_t parent, NodeNumber target, std::string record_key,
             HandoffBudget* budget);

  void OnReply(NodeNumber from, DataBody& reply, Release release) override;
  void OnTimer() override;
  void OnPeersChanged() override;
  bool IsBackground() const override { return true; }

 private:
  void Loaded(const ReadResult& found);
  void Remove();
  void Finish(bool kept);

  uint64_t parent_ = 0;
  NodeNumber target_{};
  HandoffBudget* budget_ = nullptr;
  std::string record_key_;
  KeyspaceId keyspace_{};
  Token token_ = 0;
  std::string key_;
  uint64_t digest_ = 0;
  uint32_t needed_ = 1;
  std::set<NodeNumber> waiting_;
  std::set<NodeNumber> acked_;
};

// Starts deliveries for all targets of the shard that can take some.
class Handoff {
 public:
  explicit Handoff(ShardCore& core) : core_(core) {}

  // Call now and then, and when peers or the ring change.
  void Tick();

 private:
  ShardCore& core_;
  HandoffBudget budget_;
  std::map<NodeNumber, uint64_t> running_;  // target -> operation
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_HANDOFF_HANDOFF_H_
