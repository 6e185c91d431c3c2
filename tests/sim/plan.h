// Everything that one seed decides, as plain data: the cluster, its clocks,
// network and disks, the workload, and each fault with its time. The simulation
// carries a plan out; cutting faults or operations out of a plan leaves all
// else as it was, which is what shrinking needs.
//
// Swarm testing: each seed draws which kinds of faults it has at all, and how
// often. Source: Groce et al., "Swarm Testing", ISSTA 2012.

#ifndef RINGKV_TESTS_SIM_PLAN_H_
#define RINGKV_TESTS_SIM_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "membership/ring/ring.h"
#include "tests/sim/scheduler.h"

namespace ringkv::sim {

// A stream of chance of its own for each purpose, so that drawing more for one
// changes no other.
enum class Purpose : uint64_t {
  kPlan = 1,
  kNode = 2,
  kNetwork = 3,
  kDisk = 4,
  kClient = 5,
  kFault = 6,
  kFinal = 7,
  kTurn = 8,
  kHammer = 9,
  kDiskFault = 10,
  kOperators = 20,
  kTopology = 21,
  kForming = 22,
  kAmbush = 23,
  kDisaster = 24,
};
SeededRandom RandomFor(uint64_t seed, Purpose purpose, uint64_t index = 0);

struct NodePlan {
  std::string rack;
  std::string host;
  double weight = 1;
  int shards = 1;
  int64_t clock_origin = 0;
  int64_t clock_rate_ppm = 0;
  int64_t wall_offset_micros = 0;
};

struct NetworkPlan {
  // Streams as gRPC gives them: in order, and nothing is lost but with the
  // stream. Otherwise each message fares by itself.
  bool streams = true;
  WorldTime delay_min = 50 * kMicrosecond;
  WorldTime delay_mean = 300 * kMicrosecond;  // above the minimum
  double slow_share = 0;  // of messages that take `slow_mean` instead
  WorldTime slow_mean = 20 * kMillisecond;
  // Without `streams`:
  double lost_share = 0;
  double duplicated_share = 0;
  // Messages kept back for long and then delivered.
  double held_share = 0;
  WorldTime held_max = 60 * kSecond;
};

// How the ring changes while clients work.
struct TopologyPlan {
  // When operators think of an operation, since the work began; none: the ring
  // stays as it is.
  std::vector<WorldTime> at;
  int spares = 0;            // of `nodes`, the last ones: stand by at first
  uint64_t stream_rate = 0;  // bytes a second; 0: no bound
  bool changes() const { return !at.empty(); }
};

struct DiskPlan {
  WorldTime sync_min = 100 * kMicrosecond;
  WorldTime sync_mean = 1 * kMillisecond;
  WorldTime read_mean = 200 * kMicrosecond;
  double not_cached_share = 0;  // of reads that memory cannot answer
  double late_commit_share =
      0;  // of turns whose batch is written a while later
  WorldTime commit_mean = 200 * kMicrosecond;
  WorldTime interval = 100 * kMillisecond;  // between fsyncs nobody waits for
};

struct WorkloadPlan {
  int clients = 4;
  int operations = 1000;  // by clients, without the final reads
  WorldTime think_mean = 200 * kMillisecond;
  int keys = 20;           // in each keyspace
  double hot_share = 0.3;  // of operations that go to the first few keys
  int hot_keys = 2;
  int value_bytes_max = 200;
  WorldTime timeout = 2 * kSecond;
  // Weights of what a client does next.
  double get = 3;
  double put_plain = 2;
  double put_blind = 1;
  double put_context = 3;  // with the last context held, however old
  double remove = 1;
  double update = 1;  // get, then put with its context, until it holds
  double scan = 0.1;
  int scan_pages = 20;
  double burst = 0.3;  // several operations at once to one node
  // Shares within these.
  double strict_share = 0.2;
  double other_quorum_share = 0.15;  // R or W other than the keyspace's
  double request_id_share = 0.2;
  double reused_request_id_share = 0.1;  // ... that was used for another key
  double expires_share = 0.02;
  double sticky_share = 0.3;  // clients that stay with one node while it works
  double direct_share = 0.6;  // operations sent to a replica of the key
};

enum class FaultKind : uint8_t {
  kKill,        // the process dies; what was written stays
  kPowerLoss,   // the machine dies: a suffix of un-synced writes is lost
  kFreeze,      // the process stops and goes on where it was
  kPartition,   // the nodes of `mask` from the others, both ways
  kOneWay,      // from the nodes of `mask` to the others only
  kPartial,     // between `node` and the nodes of `mask`
  kCutStreams,  // all streams of `node` break
  kClockStep,   // the calendar of `node` jumps by `amount` microseconds
  kDiskStall,   // writes of `node` are refused for a while
  kSlowDisk,    // fsync and reads of `node` take `amount` times as long
  kSlowNode,    // turns of `node` take about `amount` nanoseconds
  kDiskFull,    // puts find no room at `node`; `amount` 1: nor does its store
  kBitRot,      // a record at `node` is damaged; `amount` decides which
  kLostDisk,    // `node` comes back with an empty disk, as somebody else
  kOldDisk,     // `node` comes back with its disk of `amount` nanoseconds ago
  kBadMemory,   // chunks of ranges that `node` streams are damaged
  // What operators do at the worst moment:
  kAbort,       // abort the operation that runs
  kAbortAgain,  // and ask for the same once more at once
  kBurn,        // `node` burns down
  kAskAnother,  // ask `node` for another operation
};
inline constexpr int kFaultKinds = 20;
const char* NameOf(FaultKind kind);

// Where in a turn a process dies.
enum class CrashPoint : uint8_t {
  kBetweenTurns = 0,
  kBeforeRun = 1,
  kBeforeWrite = 2,    // requests may have left, nothing is written
  kBeforeRelease = 3,  // written, nothing of it has left
  kAmidRelease = 4,    // some of it has left
  kAfterSync = 5,      // fsynced, nobody was told
};
inline constexpr int kCrashPoints = 6;

// When a topology operation enters a phase, at the first node to know.
enum class Moment : uint8_t { kNone, kStart, kSwitch, kEnd };

// Whom a fault hits, where that is known only when it comes.
enum class Role : uint8_t {
  kAsDrawn,  // `node` and `mask`
  // `mask` without the node that knows first: it loses what it does not know.
  kUnaware,
  kFirst,   // the node that knows first
  kOthers,  // each of the others
  kGainer,  // a node that joins; without one, as drawn
};

struct Fault {
  WorldTime at = 0;  // since the workload began, or since `moment`
  Moment moment = Moment::kNone;
  int occurrence = 0;  // of the moment, from 0
  Role role = Role::kAsDrawn;
  FaultKind kind = FaultKind::kKill;
  int node = 0;
  uint64_t mask = 0;
  WorldTime duration = 0;  // until it is undone or the node starts again
  int64_t amount = 0;
  CrashPoint point = CrashPoint::kBetweenTurns;
  // A kill or power loss comes this long after a client has begun to write one
  // key at the node without a pause, and the client goes on after the restart.
  // Writes that a crash cuts apart are rare otherwise. 0: no such client.
  WorldTime hammer = 0;
  uint64_t hammered = 0;  // decides the key
  int number = 0;         // in the whole plan of the seed, from 0
  std::string ToString() const;
};

struct Plan {
  uint64_t seed = 0;
  PlacementStrategy placement = PlacementStrategy::kHashed;
  uint32_t vnodes = 16;
  std::vector<NodePlan> nodes;
  std::vector<Keyspace>
      keyspaces;  // `default` first; ids are given by the ring
  NetworkPlan network;
  DiskPlan disk;
  WorldTime turn_mean = 20 * kMicrosecond;
  uint64_t hint_bytes_max = 1ull << 30;  // of a node, for one target
  WorldTime hint_age_max = 7 * 24 * 3600 * kSecond;
  uint64_t hint_rate = 16ull << 20;  // bytes a second to one target
  // Nodes die while the first ring is made, and two of them may try at once.
  bool forming_troubled = false;
  // Whatever is written finds room in hints.
  bool RoomForHints() const {
    return hint_bytes_max >= 1ull << 30 && hint_age_max > length * 10;
  }
  WorkloadPlan workload;
  std::vector<Fault> faults;        // by time
  WorldTime length = 60 * kSecond;  // of the workload, at least
  // Keyspaces that clients do not use come and go meanwhile.
  bool operators = false;
  TopologyPlan topology;
  // When all is judged, a majority is lost for good and the rest recovered.
  bool disaster = false;

  std::string ToString() const;
};

// Those at the same time stay in their order.
void SortByTime(std::vector<Fault>& faults);

Plan PlanOf(uint64_t seed);
// Five nodes with a bit of everything and the default workload, stretched to
// `operations`, for measuring speed: a key is used as often as in a run of the
// default 1,000 operations.
Plan BenchPlan(uint64_t seed, int operations);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_PLAN_H_
