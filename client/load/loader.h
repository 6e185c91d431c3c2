// Writes records into a cluster: many at a time, each until it is known to be
// written or has failed for good.

#ifndef RINGKV_CLIENT_LOAD_LOADER_H_
#define RINGKV_CLIENT_LOAD_LOADER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/time.h"
#include "client/client.h"
#include "client/load/records.h"

namespace ringkv {

struct LoaderOptions {
  std::string keyspace;  // empty: the client's
  uint32_t w = 0;
  CallQuorum quorum = CallQuorum::kDefault;
  // Puts under way at once, 1 to 65536.
  int in_flight = 256;
  // Of one put; then it counts as unknown and is resolved.
  absl::Duration put_deadline = absl::Seconds(5);
  // Of one record over all its puts; then it has failed, or stays unknown.
  absl::Duration record_deadline = absl::Minutes(2);
};

struct LoadCounts {
  uint64_t written = 0;   // records acknowledged
  uint64_t resolved = 0;  // of these, after an unknown outcome
  uint64_t failed = 0;    // records that were not written
  uint64_t unknown = 0;   // records that may or may not be written
  uint64_t expired = 0;   // records past their time to live, left out
  // Records whose key came before: the later one is there.
  uint64_t duplicates = 0;
  uint64_t bytes = 0;  // of keys and values written
};

// Add() and the rest are called from one thread.
class Loader {
 public:
  Loader(Client& client, const LoaderOptions& options, uint64_t seed);
  // Waits for what is under way.
  ~Loader();

  // Starts writing; waits while too many are under way, or while the same key
  // is, so that later records of a key replace earlier ones.
  void Add(Record record);

  // Waits, up to `until`, until less is under way or something has to be done
  // again; true if nothing is left.
  bool Drain(Instant until);

  LoadCounts counts() const;
  // What went wrong, with the key; the first so many.
  std::vector<std::string> errors() const;

 private:
  struct Job {
    Record record;
    size_t at = 0;  // the value being written
    bool was_unknown = false;
    bool now_unknown = false;
    int tries = 0;
    Instant deadline;
    Instant due;
  };

  void Start(std::shared_ptr<Job> job);
  void OnDone(const std::shared_ptr<Job>& job, const absl::Status& status);
  // Starts what has waited long enough for another try.
  void StartDue();
  // Waits for a change after `changes`, or for the next one due.
  void WaitABit(Instant until, uint64_t changes);

  Client& client_;
  const LoaderOptions options_;
  SeededRandom random_;
  absl::flat_hash_set<uint64_t> seen_;  // hashes of keys

  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_set<std::string> keys_under_way_ ABSL_GUARDED_BY(mutex_);
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Job>> again_ ABSL_GUARDED_BY(mutex_);
  LoadCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> errors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_LOAD_LOADER_H_
