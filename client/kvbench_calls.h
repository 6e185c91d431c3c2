// Benchmark operations as calls of the client library.

#ifndef RINGKV_CLIENT_KVBENCH_CALLS_H_
#define RINGKV_CLIENT_KVBENCH_CALLS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "client/bench/history.h"
#include "client/bench/target.h"
#include "client/bench/workload.h"
#include "client/client.h"

namespace ringkv::bench {

// How every operation of a run is asked.
struct CallSettings {
  std::string keyspace = "default";
  uint32_t r = 0;  // 0: the keyspace's
  uint32_t w = 0;
  CallQuorum quorum = CallQuorum::kDefault;
  absl::Duration deadline = absl::Seconds(10);
};

// What a read says of a record that was stored.
Outcome JudgeRead(uint64_t record, const GetResult& got);

// Cursors from which scans start: where the pages of a walk over the whole
// keyspace begin, at most `starts_max`. Cursors are the servers' to make, so a
// scan starts at the last one before its key. Errors are those of a scan.
absl::StatusOr<std::vector<std::string>> FindScanStarts(
    Client client, const std::string& keyspace, size_t starts_max);

// One unary call for each operation. Thread-safe.
class CallTarget final : public Target {
 public:
  // `records` outlives the target. `scan_starts` as FindScanStarts() makes
  // them; may be empty if there are no scans. With a `history`, which outlives
  // the target, reads are judged by it; the source of writes is one of
  // MakeHistorySource().
  CallTarget(Client client, CallSettings settings, const Records& records,
             std::vector<std::string> scan_starts, uint64_t seed,
             History* history = nullptr);

  void Start(const Operation& operation, Completion* completion) override;
  void Flush() override {}

 private:
  // A value to write.
  struct Fresh {
    std::string value;
    uint64_t version = 0;  // with a history
  };

  Outcome Judge(uint64_t record, uint64_t floor, const GetResult& got);
  void Put(uint64_t record, std::optional<std::string> context,
           Completion* completion);
  void Scan(const Operation& operation, Completion* completion);
  void Resolve(uint64_t record, Completion* completion);
  // `late`: however the write ends, its value may appear at a later time.
  Fresh NewValue(uint64_t record, bool late);
  void Acknowledged(uint64_t record, const Fresh& fresh);
  GetOptions ToGet() const;
  PutOptions ToPut() const;

  Client client_;
  const CallSettings settings_;
  const Records& records_;
  const std::vector<std::string> scan_starts_;
  History* const history_;
  Mutex mutex_;
  SeededRandom random_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_KVBENCH_CALLS_H_
