#include "tests/sim/plan.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/disk_faults.h"

namespace ringkv::sim {
namespace {

template <class T, size_t kSize>
T Pick(Random& random, const T (&values)[kSize]) {
  return values[random.Uniform(kSize)];
}

double Between(Random& random, double low, double high) {
  return low + random.NextDouble() * (high - low);
}

WorldTime TimeBetween(Random& random, WorldTime low, WorldTime high) {
  return low + static_cast<WorldTime>(
                   random.Uniform(static_cast<uint64_t>(high - low) + 1));
}

std::vector<NodePlan> PlanNodes(Random& random) {
  // Five nodes are the common case; one and two have rules of their own.
  const int count = Pick(random, {1, 2, 3, 3, 4, 5, 5, 5, 5, 6, 7});
  const int racks = 1 + static_cast<int>(random.Uniform(3));
  const bool equal_weights = random.Chance(0.7);
  const bool skewed = random.Chance(0.5);
  std::vector<NodePlan> nodes;
  for (int i = 0; i < count; ++i) {
    NodePlan node;
    node.rack = absl::StrCat("r", i % racks);
    node.host = absl::StrCat("h", i);
    node.weight = equal_weights ? 1 : Pick(random, {0.5, 1.0, 2.0});
    node.shards = Pick(random, {1, 1, 2, 3});
    node.clock_origin = static_cast<int64_t>(random.Uniform(1000)) * kSecond;
    if (skewed) {
      node.clock_rate_ppm = static_cast<int64_t>(random.Uniform(2001)) - 1000;
      node.wall_offset_micros =
          static_cast<int64_t>(random.Uniform(1000 * 1000)) - 500 * 1000;
    }
    nodes.push_back(node);
  }
  return nodes;
}

std::vector<Keyspace> PlanKeyspaces(Random& random, int nodes) {
  std::vector<Keyspace> keyspaces;
  Keyspace first;
  first.name = "default";
  keyspaces.push_back(first);
  const int more = 1 + static_cast<int>(random.Uniform(2));
  for (int i = 0; i < more; ++i) {
    Keyspace keyspace;
    keyspace.name = absl::StrCat("space", i);
    keyspace.n = 1 + static_cast<uint32_t>(random.Uniform(
                         static_cast<uint64_t>(std::min(nodes, 4))));
    keyspace.r = 1 + static_cast<uint32_t>(random.Uniform(keyspace.n));
    keyspace.w = 1 + static_cast<uint32_t>(random.Uniform(keyspace.n));
    keyspace.mode =
        random.Chance(0.4) ? VersionMode::kLww : VersionMode::kSiblings;
    keyspace.durability =
        random.Chance(0.6) ? Durability::kSync : Durability::kInterval;
    if (keyspace.r + keyspace.w > keyspace.n && random.Chance(0.3)) {
      keyspace.quorum = QuorumMode::kStrict;
    }
    keyspaces.push_back(keyspace);
  }
  return keyspaces;
}

NetworkPlan PlanNetwork(Random& random) {
  NetworkPlan network;
  network.streams = random.Chance(0.4);
  network.delay_min = TimeBetween(random, 10, 500) * kMicrosecond;
  network.delay_mean = TimeBetween(random, 20, 2000) * kMicrosecond;
  if (random.Chance(0.5)) {
    network.slow_share = Between(random, 0.001, 0.05);
    network.slow_mean = TimeBetween(random, 5, 400) * kMillisecond;
  }
  if (!network.streams) {
    if (random.Chance(0.6)) network.lost_share = Between(random, 0.001, 0.05);
    if (random.Chance(0.6)) {
      network.duplicated_share = Between(random, 0.001, 0.05);
    }
    if (random.Chance(0.3)) {
      network.held_share = Between(random, 0.0005, 0.01);
      network.held_max = TimeBetween(random, 2, 120) * kSecond;
    }
  }
  return network;
}

DiskPlan PlanDisk(Random& random) {
  DiskPlan disk;
  disk.sync_min = TimeBetween(random, 20, 1000) * kMicrosecond;
  disk.sync_mean = TimeBetween(random, 100, 20000) * kMicrosecond;
  if (random.Chance(0.5)) disk.not_cached_share = Between(random, 0.01, 0.6);
  disk.read_mean = TimeBetween(random, 50, 10000) * kMicrosecond;
  if (random.Chance(0.5)) disk.late_commit_share = Between(random, 0.05, 1);
  disk.commit_mean = TimeBetween(random, 20, 5000) * kMicrosecond;
  return disk;
}

WorkloadPlan PlanWorkload(Random& random) {
  WorkloadPlan work;
  work.clients = 2 + static_cast<int>(random.Uniform(9));
  work.operations = 1000 + static_cast<int>(random.Uniform(300));
  work.keys = 2 + static_cast<int>(random.Uniform(60));
  work.hot_share = Between(random, 0, 0.8);
  work.hot_keys = 1 + static_cast<int>(random.Uniform(3));
  work.value_bytes_max = Pick(random, {20, 100, 400, 4000});
  work.timeout = TimeBetween(random, 500, 5000) * kMillisecond;
  for (double* weight : {&work.get, &work.put_plain, &work.put_blind,
                         &work.put_context, &work.remove, &work.update}) {
    *weight *= random.Chance(0.15) ? 0 : Between(random, 0.3, 2);
  }
  // A workload without any write shows nothing.
  work.put_context += 0.2;
  work.burst *= random.Chance(0.3) ? 5 : 1;
  work.scan = random.Chance(0.5) ? Between(random, 0.02, 0.3) : 0;
  work.strict_share = Pick(random, {0.0, 0.1, 0.3, 0.7, 1.0});
  work.other_quorum_share = random.Chance(0.5) ? Between(random, 0, 0.4) : 0;
  work.request_id_share = random.Chance(0.5) ? Between(random, 0, 0.6) : 0;
  work.expires_share = random.Chance(0.2) ? 0.1 : 0;
  return work;
}

// Those before the faults of whole disks, which disk_faults.cc plans.
constexpr int kCommonKinds = static_cast<int>(FaultKind::kDiskFull);

Fault PlanFault(Random& random, FaultKind kind, int nodes) {
  Fault fault;
  fault.kind = kind;
  fault.node = static_cast<int>(random.Uniform(static_cast<uint64_t>(nodes)));
  const uint64_t all = (1ull << nodes) - 1;
  switch (kind) {
    case FaultKind::kKill:
    case FaultKind::kPowerLoss:
      fault.duration = random.Chance(0.7)
                           ? TimeBetween(random, 10, 4000) * kMillisecond
                           : TimeBetween(random, 4, 30) * kSecond;
      fault.point = static_cast<CrashPoint>(random.Uniform(kCrashPoints));
      break;
    case FaultKind::kFreeze:
      fault.duration = random.Chance(0.7)
                           ? TimeBetween(random, 10, 5000) * kMillisecond
                           : TimeBetween(random, 5, 120) * kSecond;
      break;
    case FaultKind::kPartition:
    case FaultKind::kOneWay:
      fault.mask = 1 + random.Uniform(std::max<uint64_t>(1, all - 1));
      fault.duration = TimeBetween(random, 100, 30000) * kMillisecond;
      break;
    case FaultKind::kPartial:
      fault.mask = random.Uniform(all) & ~(1ull << fault.node);
      fault.duration = TimeBetween(random, 100, 30000) * kMillisecond;
      break;
    case FaultKind::kCutStreams:
      break;
    case FaultKind::kClockStep:
      fault.amount = random.Chance(0.7)
                         ? TimeBetween(random, -2000000, 2000000)
                         : TimeBetween(random, -3600ll * 1000000, 4000000);
      break;
    case FaultKind::kDiskStall:
      fault.duration = TimeBetween(random, 10, 3000) * kMillisecond;
      break;
    case FaultKind::kSlowDisk:
      fault.amount = TimeBetween(random, 5, 200);
      fault.duration = TimeBetween(random, 1, 20) * kSecond;
      break;
    case FaultKind::kSlowNode:
      fault.amount = TimeBetween(random, 1, 500) * kMillisecond;
      fault.duration = TimeBetween(random, 1, 20) * kSecond;
      break;
    case FaultKind::kDiskFull:
    case FaultKind::kBitRot:
    case FaultKind::kLostDisk:
    case FaultKind::kOldDisk:
    case FaultKind::kBadMemory:
    case FaultKind::kAbort:
    case FaultKind::kAbortAgain:
    case FaultKind::kBurn:
    case FaultKind::kAskAnother:
      break;
  }
  return fault;
}

std::vector<Fault> PlanFaults(Random& random, int nodes, WorldTime length) {
  std::vector<Fault> faults;
  // Some seeds have no fault at all: what fails there is simplest to read.
  if (random.Chance(0.05)) return faults;
  // One kind alone now and then, else a handful.
  const bool single = random.Chance(0.25);
  const int only = static_cast<int>(random.Uniform(kCommonKinds));
  for (int k = 0; k < kCommonKinds; ++k) {
    const bool has = single ? k == only : random.Chance(0.4);
    const double mean = Between(random, 0.5, 8);
    if (!has) continue;
    const FaultKind kind = static_cast<FaultKind>(k);
    const int count = 1 + static_cast<int>(mean * random.NextDouble() * 2);
    for (int i = 0; i < count; ++i) {
      Fault fault = PlanFault(random, kind, nodes);
      fault.at = TimeBetween(random, 0, length * 9 / 10);
      faults.push_back(fault);
    }
  }
  SortByTime(faults);
  return faults;
}

// Faults that come while the ring is being changed: its phases are short.
void PlanTroubles(SeededRandom& random, Plan& plan) {
  const double share = Pick(random, {0.0, 0.4, 0.8});
  constexpr FaultKind kKinds[] = {
      FaultKind::kKill,      FaultKind::kPowerLoss, FaultKind::kFreeze,
      FaultKind::kPartition, FaultKind::kPartition, FaultKind::kOneWay,
      FaultKind::kPartial,   FaultKind::kSlowDisk,  FaultKind::kCutStreams};
  for (const WorldTime at : plan.topology.at) {
    while (random.Chance(share)) {
      Fault fault = PlanFault(random, Pick(random, kKinds),
                              static_cast<int>(plan.nodes.size()));
      fault.at = at + TimeBetween(random, 0, 1500) * kMillisecond;
      if (fault.duration > 0) {
        fault.duration = TimeBetween(random, 200, 15000) * kMillisecond;
      }
      plan.faults.push_back(fault);
    }
  }
  SortByTime(plan.faults);
}

// Every third seed changes its ring. Its disks are lost by those who change it,
// one at a time.
void PlanTopology(Plan& plan) {
  SeededRandom random = RandomFor(plan.seed, Purpose::kTopology);
  if (!random.Chance(0.33)) return;
  TopologyPlan& topology = plan.topology;
  const uint64_t operations = 1 + random.Uniform(8);
  for (uint64_t i = 0; i < operations; ++i) {
    // Now and then two operators think of something at once.
    if (!topology.at.empty() && random.Chance(0.2)) {
      topology.at.push_back(topology.at.back());
    } else {
      topology.at.push_back(TimeBetween(random, 0, plan.length * 8 / 10));
    }
  }
  topology.spares = static_cast<int>(random.Uniform(4));
  if (random.Chance(0.3)) {
    topology.stream_rate =
        static_cast<uint64_t>(plan.workload.value_bytes_max) *
        (20 + random.Uniform(400));
  }
  // Each ring of the balanced placement is large: once in a while is enough.
  if (plan.placement == PlacementStrategy::kBalanced && !random.Chance(0.15)) {
    plan.placement = PlacementStrategy::kHashed;
    plan.vnodes = 8;
  }
  const NodePlan model = plan.nodes.front();
  for (int i = 0; i < topology.spares; ++i) {
    NodePlan node = model;
    node.rack = plan.nodes[random.Uniform(plan.nodes.size())].rack;
    node.host = absl::StrCat("h", plan.nodes.size());
    node.shards = Pick(random, {1, 1, 2, 3});
    node.clock_origin = static_cast<int64_t>(random.Uniform(1000)) * kSecond;
    plan.nodes.push_back(node);
  }
  std::erase_if(plan.faults, [](const Fault& fault) {
    return fault.kind == FaultKind::kLostDisk ||
           fault.kind == FaultKind::kOldDisk ||
           fault.kind == FaultKind::kBitRot;
  });
  const size_t nodes = plan.nodes.size();
  PlanTroubles(random, plan);
  for (Fault& fault : plan.faults) {
    if (topology.spares == 0 || !random.Chance(0.4)) continue;
    fault.node = static_cast<int>(random.Uniform(nodes));
    if (fault.mask != 0) {
      fault.mask = 1 + random.Uniform((1ull << nodes) - 2);
      if (fault.kind == FaultKind::kPartial) {
        fault.mask &= ~(1ull << fault.node);
      }
    }
  }
}

// Faults that wait for the moment when they hurt most.
void PlanAmbushes(Plan& plan) {
  if (!plan.topology.changes()) return;
  SeededRandom random = RandomFor(plan.seed, Purpose::kAmbush);
  if (!random.Chance(0.7)) return;
  const int nodes = static_cast<int>(plan.nodes.size());
  const auto add = [&](FaultKind kind, Moment moment, int occurrence, Role role,
                       WorldTime at, WorldTime duration = 0) -> Fault& {
    Fault fault = PlanFault(random, kind, nodes);
    fault.moment = moment;
    fault.occurrence = occurrence;
    fault.role = role;
    fault.at = at;
    fault.duration = duration;
    plan.faults.push_back(fault);
    return plan.faults.back();
  };
  // Hints that take their time are still there when nodes leave.
  if (random.Chance(0.3)) {
    plan.hint_rate = static_cast<uint64_t>(plan.workload.value_bytes_max) *
                     (60 + random.Uniform(400));
  }
  const int operations = static_cast<int>(plan.topology.at.size());
  for (int occurrence = 0; occurrence < operations; ++occurrence) {
    const Moment moment =
        Pick(random, {Moment::kStart, Moment::kStart, Moment::kStart,
                      Moment::kSwitch, Moment::kSwitch, Moment::kEnd});
    const WorldTime soon = Pick(
        random, {WorldTime{0}, TimeBetween(random, 0, 20000) * kMicrosecond,
                 TimeBetween(random, 0, 2000) * kMillisecond});
    const WorldTime lasting = TimeBetween(random, 500, 15000) * kMillisecond;
    // Somebody is away over the whole of it, and hints are kept for him.
    if (random.Chance(0.4)) {
      const WorldTime before = TimeBetween(random, 0, 8000) * kMillisecond;
      const WorldTime at =
          plan.topology.at[static_cast<size_t>(occurrence)] - before;
      add(random.Chance(0.5) ? FaultKind::kKill : FaultKind::kFreeze,
          Moment::kNone, 0, Role::kAsDrawn, std::max<WorldTime>(at, 0),
          TimeBetween(random, 8000, 40000) * kMillisecond);
    }
    switch (random.Uniform(9)) {
      case 0:  // The cut that the phases are made for.
      case 1:
        add(FaultKind::kPartition, moment, occurrence, Role::kUnaware, soon,
            lasting);
        break;
      case 2:  // Whoever decided is alone, and who voted forgets what it may.
        add(FaultKind::kPartition, Moment::kStart, occurrence, Role::kFirst, 0,
            lasting);
        add(random.Chance(0.5) ? FaultKind::kPowerLoss : FaultKind::kKill,
            Moment::kStart, occurrence, Role::kOthers, 0,
            TimeBetween(random, 10, 300) * kMillisecond);
        add(FaultKind::kAskAnother, Moment::kStart, occurrence, Role::kAsDrawn,
            TimeBetween(random, 300, 4000) * kMillisecond);
        break;
      case 3:  // A joining node keeps what then is taken back.
        add(FaultKind::kPartition, Moment::kStart, occurrence, Role::kGainer,
            TimeBetween(random, 0, 1000) * kMillisecond, lasting);
        add(FaultKind::kAbort, Moment::kStart, occurrence, Role::kAsDrawn,
            TimeBetween(random, 1000, 6000) * kMillisecond);
        break;
      case 4:
        add(FaultKind::kAbortAgain, Moment::kStart, occurrence, Role::kAsDrawn,
            TimeBetween(random, 20, 3000) * kMillisecond);
        break;
      case 5:
        add(FaultKind::kBurn, moment, occurrence,
            random.Chance(0.5) ? Role::kGainer : Role::kAsDrawn, soon);
        break;
      case 6:  // Loops of one node that know of the phase at different times.
        add(FaultKind::kSlowNode, moment, occurrence, Role::kOthers, 0,
            TimeBetween(random, 1, 10) * kSecond)
            .amount = TimeBetween(random, 20, 500) * kMillisecond;
        break;
      case 7:
        add(FaultKind::kFreeze, moment, occurrence, Role::kUnaware, soon,
            TimeBetween(random, 1, 60) * kSecond);
        break;
      case 8:
        add(FaultKind::kBadMemory, Moment::kStart, occurrence, Role::kAsDrawn,
            0, lasting);
        break;
    }
  }
}

void NumberFaults(Plan& plan) {
  int number = 0;
  for (Fault& fault : plan.faults) fault.number = number++;
}

}  // namespace

SeededRandom RandomFor(uint64_t seed, Purpose purpose, uint64_t index) {
  // The first outputs of close seeds must not resemble each other; the
  // generator's own seeding mixes them.
  return SeededRandom(seed * 0x9e3779b97f4a7c15 +
                      static_cast<uint64_t>(purpose) * 0xd1342543de82ef95 +
                      index * 0x2545f4914f6cdd1d);
}

void SortByTime(std::vector<Fault>& faults) {
  std::stable_sort(faults.begin(), faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at < b.at; });
}

const char* NameOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill:
      return "kill";
    case FaultKind::kPowerLoss:
      return "power-loss";
    case FaultKind::kFreeze:
      return "freeze";
    case FaultKind::kPartition:
      return "partition";
    case FaultKind::kOneWay:
      return "one-way-partition";
    case FaultKind::kPartial:
      return "partial-partition";
    case FaultKind::kCutStreams:
      return "cut-streams";
    case FaultKind::kClockStep:
      return "clock-step";
    case FaultKind::kDiskStall:
      return "disk-stall";
    case FaultKind::kSlowDisk:
      return "slow-disk";
    case FaultKind::kSlowNode:
      return "slow-node";
    case FaultKind::kDiskFull:
      return "disk-full";
    case FaultKind::kBitRot:
      return "bit-rot";
    case FaultKind::kLostDisk:
      return "lost-disk";
    case FaultKind::kOldDisk:
      return "old-disk";
    case FaultKind::kBadMemory:
      return "bad-memory";
    case FaultKind::kAbort:
      return "abort";
    case FaultKind::kAbortAgain:
      return "abort-and-again";
    case FaultKind::kBurn:
      return "burn";
    case FaultKind::kAskAnother:
      return "ask-another";
  }
  return "?";
}

std::string Fault::ToString() const {
  std::string out = absl::StrFormat(
      "%3d: %8.3f s %-17s n%d mask=%x for %.3f s amount=%d point=%d", number,
      at / 1e9, NameOf(kind), node, mask, duration / 1e9, amount,
      static_cast<int>(point));
  if (moment != Moment::kNone) {
    constexpr const char* kMoments[] = {"", "start", "switch", "end"};
    constexpr const char* kRoles[] = {"as drawn", "the unaware", "the first",
                                      "the others", "who gains"};
    absl::StrAppendFormat(&out, " since %s %d of an operation, hits %s",
                          kMoments[static_cast<int>(moment)], occurrence,
                          kRoles[static_cast<int>(role)]);
  }
  if (hammer > 0) {
    absl::StrAppendFormat(&out, " after %.3f s of writes to one key",
                          hammer / 1e9);
  }
  return out;
}

std::string Plan::ToString() const {
  std::string out = absl::StrFormat(
      "seed %u: %d nodes, %s placement, %d clients, %d operations, %d keys, "
      "%s, %d faults%s\n",
      seed, nodes.size(),
      placement == PlacementStrategy::kBalanced ? "balanced" : "hashed",
      workload.clients, workload.operations, workload.keys,
      network.streams ? "streams" : "loose messages", faults.size(),
      absl::StrCat(operators ? ", operators" : "",
                   disaster ? ", a majority is lost at the end" : ""));
  if (topology.changes()) {
    absl::StrAppendFormat(
        &out, "  %d topology operations, %d of the nodes stand by at first",
        topology.at.size(), topology.spares);
    if (topology.stream_rate > 0) {
      absl::StrAppendFormat(&out, ", at most %u bytes a second",
                            topology.stream_rate);
    }
    out += "\n";
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    absl::StrAppendFormat(
        &out, "  n%d: rack %s, weight %g, %d shards, %d ppm, %g s\n", i,
        nodes[i].rack, nodes[i].weight, nodes[i].shards,
        nodes[i].clock_rate_ppm, nodes[i].wall_offset_micros / 1e6);
  }
  for (const Keyspace& keyspace : keyspaces) {
    absl::StrAppendFormat(
        &out, "  keyspace %s: N=%u R=%u W=%u %s %s %s\n", keyspace.name,
        keyspace.n, keyspace.r, keyspace.w,
        keyspace.mode == VersionMode::kLww ? "lww" : "siblings",
        keyspace.durability == Durability::kSync ? "sync" : "interval",
        keyspace.quorum == QuorumMode::kStrict ? "strict" : "sloppy");
  }
  for (const Fault& fault : faults) {
    absl::StrAppend(&out, "  fault ", fault.ToString(), "\n");
  }
  return out;
}

Plan PlanOf(uint64_t seed) {
  SeededRandom random = RandomFor(seed, Purpose::kPlan);
  Plan plan;
  plan.seed = seed;
  plan.nodes = PlanNodes(random);
  const int nodes = static_cast<int>(plan.nodes.size());
  // The balanced placement's 16384 tokens cost time in every ring.
  if (random.Chance(0.05)) {
    plan.placement = PlacementStrategy::kBalanced;
    plan.vnodes = 0;
  } else {
    plan.vnodes = Pick(random, {2u, 4u, 8u, 16u});
  }
  plan.keyspaces = PlanKeyspaces(random, nodes);
  plan.network = PlanNetwork(random);
  plan.disk = PlanDisk(random);
  plan.turn_mean = TimeBetween(random, 2, 2000) * kMicrosecond;
  plan.workload = PlanWorkload(random);
  plan.length = TimeBetween(random, 60, 90) * kSecond;
  // All operations fit into the length.
  plan.workload.think_mean =
      plan.length * plan.workload.clients / plan.workload.operations;
  SeededRandom faults = RandomFor(seed, Purpose::kFault);
  plan.faults = PlanFaults(faults, nodes, plan.length);
  SeededRandom hammers = RandomFor(seed, Purpose::kHammer);
  const double hammered_share = Pick(hammers, {0.0, 0.3, 0.8});
  for (Fault& fault : plan.faults) {
    if (fault.kind != FaultKind::kKill && fault.kind != FaultKind::kPowerLoss) {
      continue;
    }
    if (!hammers.Chance(hammered_share)) continue;
    fault.hammer = TimeBetween(hammers, 5, 500) * kMillisecond;
    fault.hammered = hammers.Next();
    fault.duration = TimeBetween(hammers, 5, 500) * kMillisecond;
  }
  PlanDiskFaults(plan);
  SeededRandom forming = RandomFor(seed, Purpose::kForming);
  plan.forming_troubled = forming.Chance(0.1);
  if (forming.Chance(0.05)) {
    plan.hint_age_max = TimeBetween(forming, 1, 20) * kSecond;
  }
  plan.operators = seed % 6 == 0;
  PlanTopology(plan);
  PlanAmbushes(plan);
  plan.disaster = RandomFor(seed, Purpose::kDisaster).Chance(0.1);
  NumberFaults(plan);
  return plan;
}

Plan BenchPlan(uint64_t seed, int operations) {
  SeededRandom random = RandomFor(seed, Purpose::kPlan);
  Plan plan;
  plan.seed = seed;
  for (int i = 0; i < 5; ++i) {
    NodePlan node;
    node.rack = absl::StrCat("r", i % 3);
    node.host = absl::StrCat("h", i);
    node.shards = 2;
    node.clock_origin = static_cast<int64_t>(random.Uniform(1000)) * kSecond;
    plan.nodes.push_back(node);
  }
  Keyspace keyspace;
  keyspace.name = "default";
  plan.keyspaces.push_back(keyspace);
  plan.workload.clients = 32;
  // As many operations a key as the default workload has; a scan that shows as
  // many keys as a whole one does there.
  const int stretch = std::max(1, operations / plan.workload.operations);
  plan.workload.keys *= stretch;
  plan.workload.hot_keys *= stretch;
  plan.workload.scan_pages = 2;
  plan.workload.operations = operations;
  plan.length = static_cast<WorldTime>(operations) * kSecond / 200;
  plan.workload.think_mean = plan.length * plan.workload.clients / operations;
  for (const FaultKind kind :
       {FaultKind::kKill, FaultKind::kPowerLoss, FaultKind::kPartition,
        FaultKind::kFreeze, FaultKind::kCutStreams}) {
    const int count = 1 + operations / 4000;
    for (int i = 0; i < count; ++i) {
      Fault fault = PlanFault(random, kind, 5);
      fault.at = TimeBetween(random, 0, plan.length * 9 / 10);
      plan.faults.push_back(fault);
    }
  }
  SortByTime(plan.faults);
  NumberFaults(plan);
  return plan;
}

}  // namespace ringkv::sim
