#include "server/rpc/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/version.h"

namespace ringkv {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families {
 public:
  // One series without labels.
  void Counter(const char* name, const char* help, double value) {
    Begin(name, help, MetricType::Counter);
    Add({}, value);
  }
  void Gauge(const char* name, const char* help, double value) {
    Begin(name, help, MetricType::Gauge);
    Add({}, value);
  }

  // A family of several series: Begin, then Add each.
  void Begin(const char* name, const char* help, MetricType type) {
    MetricFamily& family = families_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
  }
  void Add(std::vector<ClientMetric::Label> labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    families_.back().metric.push_back(std::move(metric));
  }

  std::string Text() const {
    return prometheus::TextSerializer().Serialize(families_);
  }

 private:
  std::vector<MetricFamily> families_;
};

void AddCalls(const ShardStats& stats, Families& out) {
  out.Begin("ringkv_calls_total",
            "Client calls that this node was handed, by operation",
            MetricType::Counter);
  out.Add({{"operation", "get"}}, stats.gets);
  out.Add({{"operation", "put"}}, stats.puts);
  out.Add({{"operation", "delete"}}, stats.deletes);
  out.Add({{"operation", "scan"}}, stats.scans);
  out.Begin("ringkv_answers_total",
            "Client calls that this node has answered, by result",
            MetricType::Counter);
  out.Add({{"result", "ok"}}, stats.answered_ok);
  out.Add({{"result", "unavailable"}}, stats.answered_unavailable);
  out.Add({{"result", "deadline"}}, stats.answered_deadline);
  out.Add({{"result", "refused"}}, stats.answered_refused);
  out.Begin("ringkv_replica_operations_total",
            "Reads and writes done as a replica or stand-in",
            MetricType::Counter);
  out.Add({{"kind", "read"}}, stats.replica_reads);
  out.Add({{"kind", "write"}}, stats.replica_writes);
  out.Counter("ringkv_forwards_total", "Calls handed to a replica of their key",
              stats.forwards);
  out.Counter("ringkv_expired_dropped_total",
              "Work dropped because its deadline had passed",
              stats.expired_dropped);
  out.Counter("ringkv_read_repairs_total", "Stale replicas repaired by reads",
              stats.read_repairs);
  out.Counter("ringkv_hedged_reads_total",
              "Reads that asked one more replica because one was slow",
              stats.hedged_reads);
  out.Counter("ringkv_digest_mismatches_total",
              "Reads whose replicas did not agree", stats.digest_mismatches);
  out.Counter("ringkv_stale_ring_refused_total",
              "Messages refused because their sender's ring was too old",
              stats.stale_ring_refused);
  out.Counter("ringkv_repeats_answered_total",
              "Repeated requests answered from memory", stats.repeats_answered);
  out.Counter("ringkv_lww_dropped_total",
              "Concurrent values lost in lww keyspaces", stats.lww_dropped);
  out.Counter("ringkv_lww_ties_total",
              "Writes in lww keyspaces with equal stamps", stats.lww_ties);
  out.Counter("ringkv_unequal_dots_total",
              "ALARM: one dot with two values, which must not happen",
              stats.unequal_dots);
  out.Counter("ringkv_large_clocks_total",
              "Objects met with 256 clock entries or more", stats.large_clocks);
  out.Counter("ringkv_corrupt_reads_total",
              "Records that could not be read or decoded", stats.corrupt_reads);
  out.Counter("ringkv_copies_rebuilt_total",
              "Damaged copies of keys made anew from the other replicas",
              stats.copies_rebuilt);
  out.Counter("ringkv_unchecked_refused_total",
              "Reads refused because too few members had checked the disk yet",
              stats.unchecked_refused);
}

void AddHints(const NodeReport& report, Families& out) {
  const ShardStats& stats = report.shards;
  out.Counter("ringkv_hints_stored_total", "Hints stored for nodes away",
              stats.hints_stored);
  out.Counter("ringkv_hints_delivered_total", "Hints delivered",
              stats.hints_delivered);
  out.Counter("ringkv_hints_refused_total",
              "Hints not kept because a bound was reached",
              stats.hints_refused);
  // Targets are, or were, members: their number is bounded by the ring.
  out.Begin("ringkv_hints", "Hints waiting, by the node they are for",
            MetricType::Gauge);
  for (const auto& [node, backlog] : stats.hints) {
    out.Add({{"node", absl::StrCat(ToInt(node))}}, backlog.hints);
  }
  out.Begin("ringkv_hint_bytes",
            "Bytes of hints waiting, by the node they are for",
            MetricType::Gauge);
  for (const auto& [node, backlog] : stats.hints) {
    out.Add({{"node", absl::StrCat(ToInt(node))}}, backlog.bytes);
  }
}

void AddStreams(const ShardStats& stats, Families& out) {
  out.Begin("ringkv_stream_bytes_total",
            "Bytes of keys and objects moved while the ring changes, by "
            "direction",
            MetricType::Counter);
  out.Add({{"direction", "in"}}, stats.stream_bytes_in);
  out.Add({{"direction", "out"}}, stats.stream_bytes_out);
  out.Begin("ringkv_stream_keys_total",
            "Objects moved while the ring changes, by direction",
            MetricType::Counter);
  out.Add({{"direction", "in"}}, stats.stream_keys_in);
  out.Add({{"direction", "out"}}, stats.stream_keys_out);
  out.Begin("ringkv_stream_failures_total",
            "Pieces of ranges that did not come through and are asked for "
            "again: that this node would not give, was not given, or that "
            "arrived damaged",
            MetricType::Counter);
  out.Add({{"reason", "refused_here"}}, stats.stream_chunks_refused);
  out.Add({{"reason", "refused_there"}}, stats.stream_refusals);
  out.Add({{"reason", "damaged"}}, stats.stream_chunks_damaged);
  out.Gauge("ringkv_stream_ranges_left",
            "Ranges that this node has yet to receive",
            stats.stream_ranges_left);
  out.Counter("ringkv_ranges_wiped_total",
              "Ranges emptied before they were received", stats.ranges_wiped);
  out.Counter("ringkv_ranges_dropped_total",
              "Ranges deleted because this node holds them no more",
              stats.ranges_dropped);
}

void AddGossip(const LivenessStats& liveness, Families& out) {
  const GossipCounters& gossip = liveness.gossip;
  out.Counter("ringkv_heartbeats_sent_total", "Heartbeats sent to peers",
              liveness.heartbeats);
  out.Counter("ringkv_gossip_messages_sent_total", "Messages of gossip sent",
              gossip.messages);
  out.Begin("ringkv_gossip_probes_total",
            "Nodes asked whether they live; of these, those that needed the "
            "help of others, and those that got no answer at all",
            MetricType::Counter);
  out.Add({{"kind", "all"}}, gossip.probes);
  out.Add({{"kind", "indirect"}}, gossip.probes_indirect);
  out.Add({{"kind", "failed"}}, gossip.probes_failed);
  out.Counter("ringkv_gossip_suspicions_total",
              "Times that a node was suspected, by anybody", gossip.suspicions);
  out.Counter("ringkv_gossip_deaths_total",
              "Times that a node did not deny a suspicion in time",
              gossip.deaths);
  out.Counter("ringkv_gossip_refutations_total",
              "Times that this node had to deny that it is dead",
              gossip.refutations);
  out.Gauge("ringkv_gossip_health_score",
            "0: well; up to 8 the more answers this node misses",
            liveness.health_score);
}

void AddRing(const NodeReport& report, Families& out) {
  const ControlView& control = report.control;
  out.Gauge("ringkv_ring_epoch", "Newest ring epoch on disk; 0: none",
            control.ring == nullptr ? 0 : control.ring->epoch());
  out.Gauge("ringkv_ring_epoch_adopted",
            "Ring epoch that every loop has adopted", control.adopted_epoch);
  out.Gauge("ringkv_ring_recoveries",
            "Unsafe recoveries of the ring so far: its former lineages",
            control.ring == nullptr
                ? 0
                : control.ring->spec().former_lineages.size());
  out.Gauge("ringkv_ring_feature_level",
            "Feature level of the ring; 0: in no ring",
            control.ring == nullptr ? 0 : control.ring->spec().feature_level);
  out.Gauge("ringkv_ring_members", "Members of the ring",
            control.ring == nullptr ? 0 : control.ring->spec().members.size());
  out.Gauge("ringkv_node_number", "Number of this node; 0: in no ring",
            ToInt(control.number));
  out.Begin("ringkv_peer_up", "1 if the member can be routed to",
            MetricType::Gauge);
  if (control.peers != nullptr) {
    for (const auto& [node, health] : *control.peers) {
      out.Add({{"node", absl::StrCat(ToInt(node))}}, health.alive ? 1 : 0);
    }
  }
  out.Begin("ringkv_peer_flaps_total",
            "How often the member went from up to not up, drains not counted",
            MetricType::Counter);
  for (const auto& [node, flaps] : control.liveness.flaps) {
    out.Add({{"node", absl::StrCat(ToInt(node))}}, flaps);
  }
  AddGossip(control.liveness, out);
  out.Gauge("ringkv_clock_ok",
            "0 while the clock is too far ahead to coordinate writes",
            control.clock_ok ? 1 : 0);
  out.Gauge("ringkv_ready", "1 if /readyz says so", report.ready ? 1 : 0);
  out.Gauge("ringkv_draining", "1 while the node finishes its work to stop",
            report.draining ? 1 : 0);
  out.Gauge("ringkv_ring_watchers", "Streams of WatchRing",
            report.ring_watchers);
}

void AddNode(const NodeReport& report, Families& out) {
  out.Gauge("ringkv_in_flight", "Calls that run in this node",
            report.in_flight);
  out.Counter("ringkv_turns_total", "Turns of all shard loops", report.turns);
  out.Counter("ringkv_stalls_total",
              "Turns that could not be written because the engine stalled",
              report.stalls);
  out.Gauge("ringkv_mailbox_items", "What waits for shard loops",
            report.mailbox_items);
  out.Counter("ringkv_calls_refused_total",
              "Calls refused because a loop had too much to do",
              report.calls_refused);
  out.Counter("ringkv_messages_dropped_total",
              "Messages of and for peers dropped at a bound",
              report.messages_dropped + report.peers.dropped);
  out.Gauge("ringkv_disk_reads_waiting", "Reads waiting for a reader thread",
            report.reads_waiting);
  out.Counter("ringkv_fsyncs_total", "Syncs of the write-ahead log",
              report.syncs);
  out.Counter("ringkv_fsync_seconds_total", "Time spent in them",
              report.sync_seconds);
  out.Counter("ringkv_peer_messages_sent_total", "Data messages sent",
              report.peers.data_sent);
  out.Counter("ringkv_peer_messages_received_total", "Data messages received",
              report.peers.data_received);
  out.Counter("ringkv_peer_frames_sent_total",
              "Frames that carried the data messages sent",
              report.peers.data_frames_sent);
  out.Counter("ringkv_peer_malformed_total",
              "Messages of peers that were refused", report.peers.malformed);
  out.Gauge("ringkv_peer_links", "Streams to other nodes", report.peers.links);
  out.Gauge("ringkv_peer_queued_bytes", "What waits to be sent to peers",
            report.peers.queued_bytes);
  out.Gauge("ringkv_disk_bytes", "Files on disk, estimated",
            report.engine.disk_bytes);
  if (report.engine.disk_free_bytes != UINT64_MAX) {
    out.Gauge("ringkv_disk_free_bytes", "Free on the disk of the store",
              report.engine.disk_free_bytes);
  }
  out.Gauge("ringkv_read_only",
            "1 while puts are refused because the disk is nearly full",
            report.read_only ? 1 : 0);
  out.Gauge("ringkv_engine_memory_bytes",
            "Memtables, block cache and table readers",
            report.engine.memory_bytes);
  out.Gauge("ringkv_keys", "Objects stored, estimated",
            report.engine.data_keys);
  out.Gauge("ringkv_compaction_pending_bytes", "What waits to be compacted",
            report.engine.compactions_pending_bytes);
}

size_t CountEntries(const char* path) {
  std::error_code error;
  size_t count = 0;
  for (std::filesystem::directory_iterator it(path, error), end;
       !error && it != end; it.increment(error)) {
    ++count;
  }
  return count;
}

void AddProcess(Families& out) {
  uint64_t pages = 0;
  uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  out.Gauge("process_resident_memory_bytes", "Resident memory",
            static_cast<double>(resident) *
                static_cast<double>(sysconf(_SC_PAGESIZE)));
  out.Gauge("process_open_fds", "Open file descriptors",
            static_cast<double>(CountEntries("/proc/self/fd")));
  out.Gauge("process_threads", "Threads",
            static_cast<double>(CountEntries("/proc/self/task")));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  out.Gauge("process_max_fds", "Most file descriptors that may be open",
            static_cast<double>(limit.rlim_cur));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  out.Counter("process_cpu_seconds_total", "CPU time, user and system",
              seconds(usage.ru_utime) + seconds(usage.ru_stime));
}

}  // namespace

void AddStats(const ShardStats& stats, ShardStats& sum) {
  sum.gets += stats.gets;
  sum.puts += stats.puts;
  sum.deletes += stats.deletes;
  sum.scans += stats.scans;
  sum.forwards += stats.forwards;
  sum.answered_ok += stats.answered_ok;
  sum.answered_unavailable += stats.answered_unavailable;
  sum.answered_deadline += stats.answered_deadline;
  sum.answered_refused += stats.answered_refused;
  sum.replica_reads += stats.replica_reads;
  sum.replica_writes += stats.replica_writes;
  sum.expired_dropped += stats.expired_dropped;
  sum.read_repairs += stats.read_repairs;
  sum.hedged_reads += stats.hedged_reads;
  sum.digest_mismatches += stats.digest_mismatches;
  sum.hints_stored += stats.hints_stored;
  sum.hints_delivered += stats.hints_delivered;
  sum.hints_refused += stats.hints_refused;
  sum.stale_ring_refused += stats.stale_ring_refused;
  sum.lww_dropped += stats.lww_dropped;
  sum.lww_ties += stats.lww_ties;
  sum.unequal_dots += stats.unequal_dots;
  sum.large_clocks += stats.large_clocks;
  sum.repeats_answered += stats.repeats_answered;
  sum.corrupt_reads += stats.corrupt_reads;
  sum.copies_rebuilt += stats.copies_rebuilt;
  sum.unchecked_refused += stats.unchecked_refused;
  sum.stream_keys_in += stats.stream_keys_in;
  sum.stream_bytes_in += stats.stream_bytes_in;
  sum.stream_keys_out += stats.stream_keys_out;
  sum.stream_bytes_out += stats.stream_bytes_out;
  sum.stream_chunks_refused += stats.stream_chunks_refused;
  sum.stream_refusals += stats.stream_refusals;
  sum.stream_chunks_damaged += stats.stream_chunks_damaged;
  sum.ranges_wiped += stats.ranges_wiped;
  sum.ranges_dropped += stats.ranges_dropped;
  sum.stream_ranges_left += stats.stream_ranges_left;
  sum.coordinations += stats.coordinations;
  for (const auto& [node, backlog] : stats.hints) {
    ShardStats::HintBacklog& to = sum.hints[node];
    to.hints += backlog.hints;
    to.bytes += backlog.bytes;
    to.refused += backlog.refused;
    to.delivered += backlog.delivered;
    if (backlog.oldest_ms != 0) {
      to.oldest_ms = to.oldest_ms == 0
                         ? backlog.oldest_ms
                         : std::min(to.oldest_ms, backlog.oldest_ms);
    }
  }
}

std::string MetricsText(const NodeReport& report) {
  Families out;
  out.Begin("ringkv_build_info", "Always 1", MetricType::Gauge);
  out.Add({{"version", kVersion}}, 1);
  AddCalls(report.shards, out);
  AddHints(report, out);
  AddStreams(report.shards, out);
  AddRing(report, out);
  AddNode(report, out);
  AddProcess(out);
  return out.Text();
}

}  // namespace ringkv
