// Admin calls that the control loop answers, as plain structs.

#ifndef RINGKV_MEMBERSHIP_CONTROL_ADMIN_H_
#define RINGKV_MEMBERSHIP_CONTROL_ADMIN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "membership/control/messages.h"
#include "membership/ring/ring.h"

namespace ringkv {

struct StatusCall {};

struct InitCall {
  bool dry_run = false;
  uint32_t expected_nodes = 0;  // 0: any number
  PlacementStrategy placement = PlacementStrategy::kBalanced;
  uint32_t vnodes = 0;  // kHashed only; 0: 256
};

struct HintsCall {};

// `keyspace.id` and `changed_at` are ignored.
struct CreateKeyspaceCall {
  Keyspace keyspace;
};

struct AlterKeyspaceCall {
  std::string name;
  std::optional<Durability> durability;
  std::optional<QuorumMode> quorum;
  std::optional<uint32_t> n;
  std::optional<uint32_t> r;
  std::optional<uint32_t> w;
};

struct DropKeyspaceCall {
  std::string name;
};

// Starts an operation that changes who holds what. Members are named by number,
// name, id or address; nodes that join by name, id or address.
struct StartOperationCall {
  TopologyKind kind = TopologyKind::kJoin;  // not kKeyspace
  // Who joins, leaves, is dead, or gets another weight.
  std::vector<std::string> nodes;
  // kReplace: the new node for each of `nodes`.
  std::vector<std::string> replacements;
  double weight = 1;          // kWeight
  RingEpoch planned_for = 0;  // refuse in any other ring epoch; 0: any
  bool allow_fewer_replicas = false;
  // kRemoveDead, kReplace: go on without what only the dead nodes had.
  bool accept_data_loss = false;
  // Answer the plan and change nothing.
  bool dry_run = false;
};

struct OperationsCall {};

struct AbortOperationCall {
  RingEpoch operation = 0;  // 0: whichever runs
};

// Rebuilds the ring around the members that are left when a majority is lost
// for good. Acknowledged writes may be lost.
struct RecoverCall {
  // Who is left, the answering node included, named as members are; none: it
  // and all whom it hears. A call that changes something must name them.
  std::vector<std::string> survivors;
  RingEpoch planned_for = 0;  // refuse in any other ring epoch; 0: any
  // Answer the plan and change nothing.
  bool dry_run = false;
};

// Raises the ring's feature level to what every member knows.
struct FinishUpgradeCall {
  uint32_t level = 0;  // 0: the newest that any member knows
};

using AdminCall =
    std::variant<StatusCall, InitCall, HintsCall, CreateKeyspaceCall,
                 AlterKeyspaceCall, DropKeyspaceCall, StartOperationCall,
                 OperationsCall, AbortOperationCall, RecoverCall,
                 FinishUpgradeCall>;

// Values are those of ringkv.v1.NodeState.
enum class NodeState : uint8_t {
  kStandby = 1,  // runs, but is in no ring yet
  kAlive = 2,
  kDown = 3,     // missed heartbeats, or cannot be reached
  kUnknown = 4,  // a member that this node has never heard from
  kDraining = 5,
};

struct NodeStatus {
  NodeNumber number{};  // kNoNode for a standby node
  NodeId id;
  std::string name;
  NodeState state = NodeState::kUnknown;
  std::string client_address;
  std::string peer_address;
  Location location;
  double weight = 1.0;
  uint64_t incarnation = 0;
  RingEpoch ring_epoch = 0;
  uint64_t age_ms = 0;   // since it was last heard; 0 for the answering node
  double ownership = 0;  // actual share of replicated ownership, 0 to 1
  uint64_t disk_bytes = 0;
  bool read_only = false;
  uint64_t keys = 0;
  uint64_t hints = 0;
  uint64_t hint_bytes = 0;
  uint64_t in_flight = 0;
  std::string version;
  uint32_t feature_level_max = 0;  // newest that it knows; 0: not told
  int64_t clock_offset_ms = 0;  // ahead of the answering node; negative: behind
  // How often the answering node went from routing to it to not, drains not
  // counted.
  uint64_t flaps = 0;
};

struct StatusAnswer {
  NodeNumber number{};
  NodeId id;
  std::string name;
  ClusterId cluster_id;  // none before init
  RingEpoch ring_epoch = 0;
  uint32_t feature_level = 0;
  std::vector<NodeStatus> nodes;  // members by number, then standby by name
  std::vector<std::string> warnings;
};

struct InitAnswer {
  std::vector<NodeStatus> nodes;  // found, the answering one included
  ClusterId cluster_id;           // none after a dry run
  RingEpoch ring_epoch = 0;
};

struct HintBacklogStatus {
  NodeNumber holder{};
  NodeNumber target{};
  uint64_t hints = 0;
  uint64_t bytes = 0;
  uint64_t oldest_ms = 0;  // age
  uint64_t refused = 0;
  double rate = 0;  // delivered a second, over the last seconds
};

struct HintsAnswer {
  std::vector<HintBacklogStatus> backlogs;  // by holder, then target
  std::vector<NodeNumber> unheard;          // report missing or older than 10 s
};

// Of create and alter: the keyspace as it is now.
struct KeyspaceAnswer {
  Keyspace keyspace;
  RingEpoch ring_epoch = 0;
  // The operation that brings other N, R or W; 0: none was needed.
  RingEpoch operation = 0;
};

struct DropKeyspaceAnswer {
  RingEpoch ring_epoch = 0;
};

struct NodeRef {
  NodeNumber number{};
  std::string name;
  bool operator==(const NodeRef&) const = default;
};

// What one node will send another.
struct PlannedTransfer {
  NodeRef from;
  NodeRef to;
  uint64_t ranges = 0;
  uint64_t bytes = 0;  // estimated from what the sender stores
};

// A node's part of the replicas, 0 to 1.
struct PlannedShare {
  NodeRef node;
  double before = 0;
  double after = 0;
};

struct OperationPlan {
  TopologyKind kind = TopologyKind::kJoin;
  RingEpoch epoch = 0;                     // the ring that it was made for
  std::vector<NodeRef> nodes;              // whom it is about
  std::vector<PlannedTransfer> transfers;  // by receiver, then sender
  std::vector<PlannedShare> shares;        // by node number
  // The largest part of any node over its fair part; 1 is perfect.
  double largest_over_fair_before = 0;
  double largest_over_fair_after = 0;
  std::vector<std::string> warnings;
};

struct StartOperationAnswer {
  OperationPlan plan;
  RingEpoch operation = 0;  // its id, the epoch of its start; 0: a dry run
};

// Somebody that a running operation waits for.
struct OperationWait {
  NodeRef node;  // none: all of them
  std::string why;
  bool operator==(const OperationWait&) const = default;
};

struct OperationProgress {
  NodeRef node;
  bool alive = false;  // told while the operation runs
  TransferReport report;
  bool operator==(const OperationProgress&) const = default;
};

// Operations that a node remembers, the newest of those that it saw end.
inline constexpr size_t kFinishedMax = 16;

enum class OperationState : uint8_t {
  kStarting = 1,   // not every quorum knows of it
  kStreaming = 2,  // the new owners receive what they will hold
  kSwitching = 3,  // reads go to the new owners
  kDone = 4,
  kAborted = 5,
};

struct OperationStatus {
  RingEpoch id = 0;
  TopologyKind kind = TopologyKind::kJoin;
  OperationState state = OperationState::kStarting;
  std::vector<NodeRef> nodes;
  std::vector<NodeRef> replaced;  // kReplace: for each of `nodes`
  std::string keyspace;           // kKeyspace
  // Calendar times at which the answering node learned of it; 0: before it
  // started, or not yet.
  int64_t started_ms = 0;
  int64_t ended_ms = 0;
  // Of those that receive something; after the switch as it was then.
  std::vector<OperationProgress> progress;
  std::vector<OperationWait> waits;
  bool operator==(const OperationStatus&) const = default;
};

struct OperationsAnswer {
  std::optional<OperationStatus> running;
  // Newest first; those that the answering node saw end, in this run or before.
  std::vector<OperationStatus> finished;
  RingEpoch ring_epoch = 0;
};

struct AbortOperationAnswer {
  RingEpoch operation = 0;
  RingEpoch ring_epoch = 0;
};

struct RecoverAnswer {
  OperationPlan plan;  // what the survivors send each other, and what is lost
  std::vector<NodeRef> survivors;
  std::vector<NodeRef> lost;
  RingEpoch ring_epoch = 0;  // of the ring that is rebuilt; afterwards the new
  uint64_t lineage = 0;      // the new one; 0: a dry run
  RingEpoch operation = 0;   // that removes the lost; 0: a dry run, or none
};

struct FinishUpgradeAnswer {
  uint32_t level = 0;   // of the ring now
  uint32_t before = 0;  // equal: it had this level already
  RingEpoch ring_epoch = 0;
};

struct AdminAnswer {
  absl::Status status;
  // What belongs to the call, if status is OK.
  std::variant<std::monostate, StatusAnswer, InitAnswer, HintsAnswer,
               KeyspaceAnswer, DropKeyspaceAnswer, StartOperationAnswer,
               OperationsAnswer, AbortOperationAnswer, RecoverAnswer,
               FinishUpgradeAnswer>
      answer;
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_ADMIN_H_
