// Benchmark operations over Pipeline streams.
//
// One stream to each node; every operation goes to a replica of its key. What
// gathers while a message is being sent travels in the next one, so messages
// grow with the load. Nothing is retried: an operation that was under way when
// its stream broke has failed (reads) or is unknown (writes).

#ifndef RINGKV_CLIENT_KVBENCH_PIPELINE_H_
#define RINGKV_CLIENT_KVBENCH_PIPELINE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "client/bench/target.h"
#include "client/io_loop.h"
#include "client/kvbench_calls.h"
#include "membership/ring/ring.h"
#include "ringkv/v1/kv.grpc.pb.h"

namespace ringkv::bench {

// Thread-safe. The ring is that of the start: while nodes join or leave, some
// operations take the way round by another node.
class PipelineTarget final : public Target {
 public:
  // `records` outlives the target. INVALID_ARGUMENT for malformed endpoints,
  // NOT_FOUND for a keyspace that does not exist, UNAVAILABLE if no endpoint
  // gives a ring in 5 s.
  static absl::StatusOr<std::unique_ptr<PipelineTarget>> Connect(
      const std::string& endpoints, CallSettings settings,
      const Records& records, uint64_t seed);
  ~PipelineTarget() override;

  // Scans are not part of a pipeline: they fail with UNIMPLEMENTED.
  void Start(const Operation& operation, Completion* completion) override;
  void Flush() override;

 private:
  class Stream;

  // One operation under way; its place in slots_ is its id on the wire.
  struct Slot {
    Operation operation;
    Completion* completion = nullptr;
    Stream* stream = nullptr;
    // The put of a read-modify-write follows.
    bool reading = false;
  };
  struct Link {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::KeyValue::Stub> stub;
    std::shared_ptr<Stream> stream;
    Instant reopen_at;
  };
  struct Ended {
    Completion* completion;
    Outcome outcome;
  };

  PipelineTarget(std::shared_ptr<const Ring> ring, CallSettings settings,
                 const Records& records, uint64_t seed);

  uint64_t TakeSlot(const Operation& operation, Completion* completion)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Ended EndSlot(uint64_t id, Outcome outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if no stream to a replica is open or may be opened now.
  Stream* Choose(Token token, bool read) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendRead(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendPut(uint64_t id, std::string* context)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets an operation that nobody can take fail, after a pause that keeps a
  // closed loop from spinning.
  void FailLater(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnMessage(v1::PipelineResponse& message, std::vector<Ended>& ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnBroken(Stream* stream, std::vector<Ended>& ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(std::vector<Ended>& ended);
  // Breaks streams that have not answered for long beyond the deadline.
  void Watch();

  const std::shared_ptr<const Ring> ring_;
  const Keyspace* const keyspace_;
  const CallSettings settings_;
  const Records& records_;
  Mutex mutex_;
  SeededRandom random_ ABSL_GUARDED_BY(mutex_);
  std::map<NodeNumber, Link> links_ ABSL_GUARDED_BY(mutex_);
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> free_ ABSL_GUARDED_BY(mutex_);
  uint64_t turn_ ABSL_GUARDED_BY(mutex_) = 0;
  IoLoop io_;  // last: its threads use the rest
};

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_KVBENCH_PIPELINE_H_
