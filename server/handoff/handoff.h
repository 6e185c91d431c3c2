// Hinted handoff: brings the hints that this shard keeps to their targets, in
// order, a bounded number at a time and at a bounded rate, as soon as the
// target is alive. A hint goes only when its target has it durably; one that is
// past its age, or whose target holds the key no more or is about to lose it,
// goes to all present holders, W of which must have it (in each set that writes
// go to). A leaving node whose target was the last holder, and never comes
// back, hands the hint to another stand-in.
//
// Each new ring makes one pass over the hints of targets that are away, for
// those that have other holders now.
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

#include "server/coordinator/quorum.h"
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

  // `swept` is set to the ring's epoch once no hint is left that has other
  // holders than its target.
  void Start(NodeNumber target, HandoffBudget* budget, RingEpoch* swept);
  // A delivery has ended. `kept` if the hint is still stored.
  void Delivered(bool kept);

  NodeNumber target() const { return target_; }

  void OnReply(NodeNumber, DataBody&, Release) override {}
  void OnTimer() override;
  void OnPeersChanged() override { OnTimer(); }
  void OnRing() override { OnTimer(); }
  bool IsBackground() const override { return true; }

 private:
  bool Sweeping() const;
  // Something may be done for the hint now.
  bool IsDue(const std::string& record_key);
  bool IsOverdue() const;
  void Fetch();
  void Fetched(const absl::StatusOr<RangeResult>& range);
  void Pump();
  bool Deliverable() const;
  // Of this shard towards one target, in bytes a second.
  uint64_t Rate() const;

  NodeNumber target_{};
  HandoffBudget* budget_ = nullptr;
  RingEpoch* swept_ = nullptr;
  RingEpoch pass_epoch_ = 0;       // of the ring when the pass began
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
  void OnRing() override;
  bool IsBackground() const override { return true; }

 private:
  void Loaded(const ReadResult& found);
  // Has another stand-in keep the hint, if no new owner is left to take it.
  void HandToStandIn(const Keyspace& keyspace, const WriteSets& sets);
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
  // One of itself, if it goes to the target alone.
  struct Need {
    std::set<NodeNumber> nodes;
    uint32_t count = 1;
  };
  // How many of `nodes` each of the needs has.
  bool Met(const std::set<NodeNumber>& nodes) const;
  bool CanBeMet() const;

  RingEpoch epoch_ = 0;  // of the ring it goes by
  std::vector<Need> needs_;
  std::set<NodeNumber> waiting_;
  std::set<NodeNumber> acked_;
  bool removing_ = false;
  NodeNumber stand_in_ = kNoNode;  // HandToStandIn
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
  std::map<NodeNumber, RingEpoch> swept_;   // target -> HandoffTarget::Start
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_HANDOFF_HANDOFF_H_
