// The RingKV client library.
//
//   auto client = ringkv::Client::Connect("127.0.0.1:7700");
//   if (!client.ok() || !client->Put("greeting", "hello").ok()) return 1;
//   std::cout << client->Get("greeting")->value() << "\n";
//
// A client watches the ring and sends each call straight to a live replica of
// its key. A call has one deadline, over all its tries: reads that a slow node
// keeps waiting are asked of the next one too, tries that failed move on, and a
// retry budget keeps a fleet of clients from drowning a cluster that is already
// in trouble.
//
// Failed and unknown differ. A write whose answer was lost may have taken
// effect or still take effect: IsOutcomeUnknown() tells such a status from one
// that says "nothing was done". A write without a context is repeated only to
// the same run of the same coordinator, which recognises the repeat; Update()
// resolves unknown outcomes by itself.
//
// Keys are any 1 to 4096 bytes, values any bytes up to 1 MiB. All calls are
// thread-safe. Callbacks of the asynchronous calls run on the client's own
// threads: they must neither block, nor make blocking calls, nor destroy the
// last copy of the client.

#ifndef RINGKV_CLIENT_CLIENT_H_
#define RINGKV_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ringkv {

// True for the status of a write that may have taken effect or may still do so:
// its answer was lost, or too few replicas acknowledged it. Read the key (and
// put with the context of that read) to find out.
bool IsOutcomeUnknown(const absl::Status& status);

// How the answers to one call are counted.
enum class CallQuorum {
  kDefault,  // what the keyspace is set to
  kSloppy,   // stand-ins may take the place of replicas that are away
  kStrict,   // replicas only; needs R + W > N
};

struct ClientOptions {
  // host:port, several separated by commas. They are tried in random order; one
  // that answers is enough, the others are learned from the ring.
  std::string endpoints = "127.0.0.1:7700";

  // For calls that do not name a keyspace.
  std::string keyspace = "default";

  // Of one call over all its tries, for calls that do not name one. Above 0;
  // too short, and a fail-over has no time to happen; too long, and a caller
  // waits for a cluster that is gone.
  absl::Duration deadline = absl::Seconds(10);

  // How long Connect() waits for a first ring.
  absl::Duration connect_timeout = absl::Seconds(5);

  // Most tries that one call sends, the first included; at least 1.
  int tries_max = 5;

  // Retries and hedges allowed for each call made, 0 to 1, and how many may be
  // saved up for a burst. A large share lets clients multiply an overload; 0
  // turns retries off once the burst is used up.
  double retry_budget_ratio = 0.1;
  double retry_budget_burst = 20;

  // Delay before the n-th retry: uniform between 0 and backoff_base * 2^n, at
  // most backoff_max.
  absl::Duration backoff_base = absl::Milliseconds(20);
  absl::Duration backoff_max = absl::Seconds(1);

  // Least delay before a second node is asked as well (calls that may be asked
  // anywhere). The delay used is the greater of this and 2 times the recent
  // 99th percentile, but never more than a third of what remains of the
  // deadline.
  absl::Duration hedge_delay_min = absl::Milliseconds(10);

  // Threads that send and receive, and connections to each node; 1 to 64.
  int io_threads = 2;
  int connections_per_node = 1;

  // Told, in one line, of what needs an operator's eye (a ring that could not
  // be used, a node of another cluster). Called from any thread; may not block.
  // Unset: to stderr.
  std::function<void(const std::string&)> on_warning;
};

struct GetOptions {
  std::string keyspace;  // empty: the client's
  uint32_t r = 0;        // replicas that must answer; 0: the keyspace's R
  CallQuorum quorum = CallQuorum::kDefault;
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  // RESOURCE_EXHAUSTED, naming the size, if the answer is larger; 0: 3 MiB.
  uint32_t max_answer_bytes = 0;
};

struct PutOptions {
  std::string keyspace;  // empty: the client's
  uint32_t w = 0;        // replicas that must acknowledge; 0: the keyspace's W
  CallQuorum quorum = CallQuorum::kDefault;
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  // Of the read that this write follows: what it covers is replaced. Absent:
  // the coordinator reads first, so that the put replaces what is there.
  std::optional<std::string> context;
  // Without reading first: concurrent with everything. Excludes `context`.
  bool blind = false;
  // Time to live, at least 1 ms; zero: for ever.
  absl::Duration ttl = absl::ZeroDuration();
};

struct DeleteOptions {
  std::string keyspace;  // empty: the client's
  uint32_t w = 0;
  CallQuorum quorum = CallQuorum::kDefault;
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  // What is deleted. Absent: the coordinator reads one first.
  std::optional<std::string> context;
};

// One live value of a key.
struct SiblingValue {
  std::string value;
  // Hybrid logical clock: milliseconds since 1970 in the upper 48 bits.
  uint64_t hlc_timestamp = 0;
  std::optional<absl::Time> expires_at;

  absl::Time written_at() const {
    return absl::FromUnixMillis(static_cast<int64_t>(hlc_timestamp >> 16));
  }
};

struct GetResult {
  // None: the key does not exist or was deleted. More than one: concurrent
  // writes, newest first.
  std::vector<SiblingValue> siblings;
  // Name it in the write that follows from this read. Absent if nothing was
  // ever known of the key.
  std::optional<std::string> context;

  bool found() const { return !siblings.empty(); }
  // The only value, or the newest of several; empty if there is none.
  const std::string& value() const {
    static const std::string none;
    return siblings.empty() ? none : siblings.front().value;
  }
};

// Of a put or delete.
struct WriteResult {
  // Covers this write and what it replaced. Absent while the key has other
  // siblings, which the writer has not seen: read first.
  std::optional<std::string> context;
  uint32_t unresolved_siblings = 0;
  uint32_t replica_acks = 0;
  uint32_t stand_in_acks = 0;
};

struct BatchGet {
  std::string key;
  GetOptions options;  // the deadline is the batch's
};
struct BatchPut {
  std::string key;
  std::string value;
  PutOptions options;  // the deadline is the batch's
};
struct BatchDelete {
  std::string key;
  DeleteOptions options;  // the deadline is the batch's
};
using BatchOperation = std::variant<BatchGet, BatchPut, BatchDelete>;

// Outcome of one operation of a batch: with an OK status, `got` of a get and
// `written` of a put or delete.
struct BatchResult {
  absl::Status status;
  GetResult got;
  WriteResult written;
};

struct BatchOptions {
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
};

struct ScannedEntry {
  std::string key;
  std::vector<SiblingValue> siblings;  // values are empty with keys_only
  std::optional<std::string> context;
};

struct ScanOptions {
  std::string keyspace;  // empty: the client's
  std::string cursor;    // from an earlier scan; empty: from the start
  uint64_t limit = 0;    // entries in all; 0: all
  bool keys_only = false;
  uint32_t r = 0;  // replicas that must answer; 0: the keyspace's R
  // Time in which the next page must come, over all tries; zero: the client's
  // deadline. A whole scan may take as long as it likes.
  absl::Duration page_deadline = absl::ZeroDuration();
};

struct ScanEnd {
  uint64_t entries = 0;
  // Where to go on. Empty: the end of the keyspace was reached.
  std::string cursor;
};

struct UpdateOptions {
  std::string keyspace;  // empty: the client's
  uint32_t r = 0;
  uint32_t w = 0;
  CallQuorum quorum = CallQuorum::kDefault;
  absl::Duration deadline = absl::ZeroDuration();  // zero: the client's
  absl::Duration ttl = absl::ZeroDuration();       // zero: for ever
};

struct UpdateResult {
  // What was written last; absent if the key was deleted or never existed.
  std::optional<std::string> value;
  std::optional<std::string> context;
  // Rounds of reading and writing.
  int rounds = 0;
  // Above 0 if the deadline came while others kept writing: the update is
  // stored, as a sibling beside these.
  uint32_t unresolved_siblings = 0;
};

// Makes one value out of all siblings of a key (none, one or more), or nullopt
// to delete it. Called again whenever the write met another one or its outcome
// was lost, then with its own earlier result among the siblings: applying it
// twice must do no more than applying it once (union of sets, maximum, "add
// this entry" do; "add one" does not).
using MergeFunction = std::function<std::optional<std::string>(
    const std::vector<std::string>& siblings)>;

// Counters since Connect(), and what the client knows.
struct ClientStats {
  uint64_t calls = 0;
  uint64_t tries = 0;
  uint64_t retries = 0;
  uint64_t hedges = 0;
  uint64_t budget_refusals = 0;  // retries and hedges that the budget forbade
  uint64_t unknown = 0;          // writes that ended with an unknown outcome
  uint64_t ring_epoch = 0;
  uint64_t ring_watches = 0;  // watch streams opened
  uint64_t ring_rejects = 0;  // snapshots that could not be used
  int nodes = 0;
  int nodes_live = 0;
};

class ClientImpl;

// A connection to one cluster. Copies share it; the last one to go waits for
// the calls in flight, which end with CANCELLED.
class Client {
 public:
  // Learns the ring from one of the endpoints. INVALID_ARGUMENT for a malformed
  // endpoint or option; UNAVAILABLE, with a reason for each endpoint, if none
  // gave a ring in time; FAILED_PRECONDITION if nodes answer but no cluster was
  // formed yet.
  static absl::StatusOr<Client> Connect(ClientOptions options);
  static absl::StatusOr<Client> Connect(std::string_view endpoints) {
    ClientOptions options;
    options.endpoints = std::string(endpoints);
    return Connect(std::move(options));
  }

  // Reads all siblings of a key. A missing or deleted key is OK with none.
  absl::StatusOr<GetResult> Get(std::string_view key, GetOptions options = {});

  // Writes one value.
  absl::StatusOr<WriteResult> Put(std::string_view key, std::string_view value,
                                  PutOptions options = {});

  // Deletes what the context covers, or what the coordinator reads.
  absl::StatusOr<WriteResult> Delete(std::string_view key,
                                     DeleteOptions options = {});

  // Many operations, grouped by node; not atomic. One result for each, in
  // order. INVALID_ARGUMENT for an empty batch.
  absl::StatusOr<std::vector<BatchResult>> Batch(
      std::vector<BatchOperation> operations, BatchOptions options = {});

  // Calls `visit` for each entry in token order, until it returns false. On an
  // error the cursor of the last whole page is in `*resume`, if given. Resumes
  // by itself at another node when one fails.
  absl::StatusOr<ScanEnd> Scan(
      ScanOptions options,
      absl::FunctionRef<bool(const ScannedEntry& entry)> visit,
      std::string* resume = nullptr);

  // Reads, merges, writes with the context of the read, and again until no
  // other writer came between and the outcome is known, inside the deadline.
  absl::StatusOr<UpdateResult> Update(std::string_view key,
                                      const MergeFunction& merge,
                                      UpdateOptions options = {});

  // The same without waiting: `done` is called exactly once.
  using GetCallback = absl::AnyInvocable<void(absl::StatusOr<GetResult>)>;
  using WriteCallback = absl::AnyInvocable<void(absl::StatusOr<WriteResult>)>;
  using BatchCallback =
      absl::AnyInvocable<void(absl::StatusOr<std::vector<BatchResult>>)>;
  using UpdateCallback = absl::AnyInvocable<void(absl::StatusOr<UpdateResult>)>;
  // One page of a scan and the cursor to go on from (empty at the end).
  struct ScanPage {
    std::vector<ScannedEntry> entries;
    std::string cursor;
  };
  using ScanCallback = absl::AnyInvocable<void(absl::StatusOr<ScanPage>)>;

  void GetAsync(std::string_view key, GetOptions options, GetCallback done);
  void PutAsync(std::string_view key, std::string_view value,
                PutOptions options, WriteCallback done);
  void DeleteAsync(std::string_view key, DeleteOptions options,
                   WriteCallback done);
  void BatchAsync(std::vector<BatchOperation> operations, BatchOptions options,
                  BatchCallback done);
  // Reads one page; `limit` 0 means 1000 entries here.
  void ScanAsync(ScanOptions options, ScanCallback done);
  // `merge` runs on the client's threads.
  void UpdateAsync(std::string_view key, MergeFunction merge,
                   UpdateOptions options, UpdateCallback done);

  // Writes again a value whose put ended with an unknown outcome, in a way that
  // does no harm whether that took effect or not: reads at R and puts with the
  // context of that read, until the outcome is known or the deadline comes.
  void ResolveAsync(std::string_view key, std::string_view value,
                    PutOptions options, WriteCallback done);

  ClientStats stats() const;

 private:
  explicit Client(std::shared_ptr<ClientImpl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<ClientImpl> impl_;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_CLIENT_H_
