// What RocksDB costs by itself: puts and gets of kvbench's records, with the
// options that a node's data family has.
//
//   rocksdb_baseline --data-dir DIR --op put --batch 32

#include <CLI/CLI.hpp>
#include <atomic>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "client/bench/report.h"
#include "client/bench/runner.h"
#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/filter_policy.h"
#include "rocksdb/options.h"
#include "rocksdb/table.h"
#include "rocksdb/write_batch.h"
#include "rocksdb/write_buffer_manager.h"

namespace ringkv::bench {
namespace {

constexpr uint64_t kMiB = 1 << 20;
// As long as a data key is besides the key of the client: keyspace and token.
constexpr size_t kPrefixBytes = 12;

struct Settings {
  std::string path;
  bool put = true;
  bool sync = false;
  int batch = 1;
  int threads = 1;
  uint64_t keys = 1'000'000;
  size_t value_size = 100;
  uint64_t memory_mib = 256;
  bool load = false;
  absl::Duration duration = absl::Seconds(5);
  absl::Duration warmup = absl::Seconds(1);
};

rocksdb::Options OptionsOf(const Settings& settings) {
  const uint64_t memory = settings.memory_mib * kMiB;
  const std::shared_ptr<rocksdb::Cache> cache = rocksdb::NewLRUCache(memory);
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_manager =
      std::make_shared<rocksdb::WriteBufferManager>(memory / 3, cache);
  options.atomic_flush = true;
  options.max_background_jobs = 2;
  options.bytes_per_sync = kMiB;
  options.write_buffer_size = memory / 8;
  options.compression = rocksdb::kLZ4Compression;
  options.level_compaction_dynamic_level_bytes = true;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.cache_index_and_filter_blocks = true;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  table.format_version = 5;
  table.checksum = rocksdb::kXXH3;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

std::string KeyOf(uint64_t record) {
  const std::string key = Records::KeyOf(record);
  // In the order of a hash, as tokens are.
  return key.substr(4, kPrefixBytes) + key;
}

// One thread's share of the work.
class Worker {
 public:
  Worker(rocksdb::DB& db, const Settings& settings, uint64_t seed)
      : db_(db),
        settings_(settings),
        random_(seed),
        records_(settings.value_size, 1) {}

  // False on an error.
  bool Write(uint64_t first, int count, bool random_records) {
    batch_.Clear();
    for (int i = 0; i < count; ++i) {
      const uint64_t record = random_records ? random_.Uniform(settings_.keys)
                                             : first + static_cast<uint64_t>(i);
      batch_.Put(KeyOf(record), records_.NewValue(record, random_));
    }
    rocksdb::WriteOptions options;
    options.sync = settings_.sync && random_records;
    return db_.Write(options, &batch_).ok();
  }

  bool Read() {
    const uint64_t record = random_.Uniform(settings_.keys);
    rocksdb::PinnableSlice value;
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    return db_.Get(options, db_.DefaultColumnFamily(), KeyOf(record), &value)
               .ok() &&
           Records::Matches(record, {value.data(), value.size()});
  }

  // Until the end of the phase; counts what began after its warm-up.
  void Run(Instant measure_from, Instant end) {
    Instant now = SteadyNow();
    while (now < end) {
      const bool ok = settings_.put ? Write(0, settings_.batch, true) : Read();
      const Instant after = SteadyNow();
      if (after >= measure_from) {
        Outcome outcome;
        if (!ok) outcome.verdict = Verdict::kFailed;
        const int count = settings_.put ? settings_.batch : 1;
        for (int i = 0; i < count; ++i) measured_.counts.Add(outcome);
        measured_.latency.RecordMany(after.nanos - now.nanos,
                                     static_cast<uint64_t>(count));
      }
      now = after;
    }
  }

  const Measured& measured() const { return measured_; }

 private:
  rocksdb::DB& db_;
  const Settings& settings_;
  SeededRandom random_;
  const Records records_;
  rocksdb::WriteBatch batch_;
  Measured measured_;
};

PhaseResult Run(rocksdb::DB& db, const Settings& settings) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < settings.threads; ++i) {
    workers.push_back(std::make_unique<Worker>(db, settings, 100 + i));
  }
  const Instant measure_from = SteadyNow() + settings.warmup;
  const Instant end = measure_from + settings.duration;
  const absl::Duration cpu_before = CpuOfThisProcess();
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    threads.emplace_back(
        [&worker, measure_from, end] { worker->Run(measure_from, end); });
  }
  for (std::thread& thread : threads) thread.join();
  PhaseResult result;
  // The warm-up does the same work, so its share of the CPU is known.
  result.cpu = (CpuOfThisProcess() - cpu_before) *
               absl::FDivDuration(settings.duration,
                                  settings.duration + settings.warmup);
  result.elapsed = settings.duration;
  Measured& kind = result.kinds[static_cast<size_t>(
      settings.put ? OperationKind::kUpdate : OperationKind::kRead)];
  for (auto& worker : workers) {
    kind.counts.Add(worker->measured().counts);
    kind.latency.Merge(worker->measured().latency);
  }
  return result;
}

int Main(const Settings& settings) {
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status status =
      rocksdb::DB::Open(OptionsOf(settings), settings.path, &opened);
  if (!status.ok()) {
    std::cerr << "rocksdb_baseline: " << status.ToString() << "\n";
    return 1;
  }
  const std::unique_ptr<rocksdb::DB> db(opened);
  if (settings.load) {
    Worker loader(*db, settings, 1);
    constexpr uint64_t kLoadBatch = 100;
    for (uint64_t i = 0; i < settings.keys; i += kLoadBatch) {
      const int count =
          static_cast<int>(std::min(kLoadBatch, settings.keys - i));
      if (!loader.Write(i, count, false)) return 1;
    }
  }
  const PhaseResult result = Run(*db, settings);
  nlohmann::ordered_json json;
  json["op"] = settings.put ? "put" : "get";
  json["sync"] = settings.sync;
  json["batch"] = settings.batch;
  json["threads"] = settings.threads;
  json["keys"] = settings.keys;
  json["value_size"] = settings.value_size;
  json["run"] = PhaseJson(result, /*open_loop=*/false);
  std::cout << json.dump(2) << std::endl;
  return result.Total().counts.errors() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ringkv::bench

int main(int argc, char** argv) {
  ringkv::bench::Settings settings;
  std::string op = "put";
  double seconds = 5;
  double warmup = 1;
  CLI::App app("Bare RocksDB with the records of kvbench.", "rocksdb_baseline");
  app.add_option("--data-dir", settings.path)->required();
  app.add_option("--op", op, "get or put")
      ->check(CLI::IsMember({"get", "put"}))
      ->capture_default_str();
  app.add_flag("--load", settings.load, "Write all keys first");
  app.add_flag("--sync", settings.sync, "Each write waits for the disk");
  app.add_option("--batch", settings.batch, "Puts in one write")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  app.add_option("--threads", settings.threads)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--keys", settings.keys)
      ->check(CLI::Range(uint64_t{1}, uint64_t{10'000'000'000}))
      ->capture_default_str();
  app.add_option("--value-size", settings.value_size)
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--memory", settings.memory_mib, "MiB of cache and memtables")
      ->check(CLI::Range(8, 1 << 20))
      ->capture_default_str();
  app.add_option("--seconds", seconds)
      ->check(CLI::Range(0.01, 1e6))
      ->capture_default_str();
  app.add_option("--warmup", warmup)
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  settings.put = op == "put";
  settings.duration = absl::Seconds(seconds);
  settings.warmup = absl::Seconds(warmup);
  return ringkv::bench::Main(settings);
}
