// The client processes of a simulated world: what they ask, of whom, what they
// retry and what they make of the answers. Each operation is recorded for the
// checkers.
//
// Clients behave as the client library does where correctness depends on it: a
// put without a context is repeated only at the same run of the same node; one
// with a context may be repeated anywhere in a `siblings` keyspace; whatever
// may have taken effect counts as unknown, never as failed.

#ifndef RINGKV_TESTS_SIM_WORKLOAD_H_
#define RINGKV_TESTS_SIM_WORKLOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/random.h"
#include "membership/ring/ring.h"
#include "server/messages.h"
#include "tests/sim/history.h"
#include "tests/sim/node.h"
#include "tests/sim/plan.h"

namespace ringkv::sim {

// An operation with what the world knows of it.
struct Recorded {
  int space = 0;  // index in Plan::keyspaces
  int key = 0;
  Operation operation;
  int node = 0;          // first one asked
  int attempts = 0;      // messages to nodes
  uint32_t r = 0;        // effective
  bool overlaps = true;  // its R or W overlaps the keyspace's other one
  absl::StatusCode code = absl::StatusCode::kUnknown;  // of the last answer
  std::string message;
};

class Workload {
 public:
  explicit Workload(World& world);
  ~Workload();

  // Sets the clients going; they stop after the planned number of operations.
  void Start();
  // A client of its own that writes one key of which `node` is a replica there,
  // one write after the other, for `length`. `pick` decides the key.
  void Hammer(int node, uint64_t pick, WorldTime length);
  // No new operations from now on.
  void Stop() { stopping_ = true; }
  bool Finished() const { return running_clients_ == 0 && in_flight_ == 0; }

  const std::vector<Recorded>& recorded() const { return recorded_; }
  const std::vector<std::string>& complaints() const { return complaints_; }
  // What clients asked for: each get, put and delete, and each scan with all
  // its pages, is one.
  uint64_t operations() const { return operations_; }
  uint64_t answered_ok() const { return answered_ok_; }
  uint64_t unknown() const { return unknown_; }

  std::string KeyName(int key) const;
  // The other way round; -1 for a name that KeyName never made.
  int KeyOfName(absl::string_view name) const;

  // One call by hand, with no retries, for the end of a run. Not recorded.
  void Ask(int node, ClientCall call, WorldTime timeout,
           std::function<void(CallResult)> done);
  // What an answer showed, as an operation of the checkers.
  static void Fill(Operation& operation,
                   const std::vector<SiblingAnswer>& siblings,
                   bool has_context);

 private:
  struct HeldContext {
    std::string bytes;
    OperationId source = kNoOperation;
  };
  struct Client {
    int index = 0;
    SeededRandom random;
    int sticky_node = 0;
    bool sticky = false;
    std::vector<HeldContext> contexts;  // by space and key
    std::string last_request_id;
    std::set<size_t> last_request_slots;       // that it was used for
    std::set<std::string> shared_request_ids;  // used for several keys
    int request_ids = 0;
  };
  // What is asked, before it is known of whom.
  struct Request {
    OperationKind kind = OperationKind::kGet;
    int space = 0;
    int key = 0;
    bool strict = false;
    uint32_t r = 0;  // 0: the keyspace's
    uint32_t w = 0;
    bool blind = false;
    bool expires = false;
    std::optional<HeldContext> context;
    std::string request_id;
    int node = -1;  // -1: drawn
  };
  // What comes of it.
  struct Reply {
    OperationId id = kNoOperation;
    Outcome outcome = Outcome::kUnknown;
    std::optional<std::string> context;
    std::vector<OperationId> values;
  };
  using ReplyDone = std::function<void(const Reply&)>;
  struct Attempt;

  const Keyspace& Space(int space) const {
    return world_.plan.keyspaces[static_cast<size_t>(space)];
  }
  size_t Slot(int space, int key) const {
    return static_cast<size_t>(space * world_.plan.workload.keys + key);
  }
  // A node that is in the ring now.
  int AnyMember(SeededRandom& random) const;
  // The least that R or W (`setting`) may mean to any node now, if `asked` (0:
  // the keyspace's own) is asked for.
  uint32_t Least(int space, uint32_t asked, uint32_t Keyspace::*setting) const;
  // The keyspace's N, R and W may change in this run.
  bool SettingsChange() const { return world_.plan.topology.changes(); }

  void NextOf(Client& client);
  void After(Client& client, WorldTime delay, std::function<void()> action);
  Request Draw(Client& client, OperationKind kind);
  int DrawNode(Client& client, int space, int key);
  void DrawQuorum(Client& client, Request& request);
  void Issue(Client& client, Request request, ReplyDone done);
  void Send(std::shared_ptr<Attempt> attempt);
  void OnResult(std::shared_ptr<Attempt> attempt, CallResult result);
  void Finish(std::shared_ptr<Attempt> attempt, Outcome outcome,
              const ClientAnswer* answer);
  void Update(Client& client, Request request, int rounds,
              std::function<void()> done);
  void Burst(Client& client, std::function<void()> done);
  void HammerOn(Client& client, const Request& target, int left,
                WorldTime until);
  void Scan(Client& client, int space, std::string cursor, int pages, int node,
            std::function<void()> done);
  // `shared_id`: the request id was used for several keys, which a node may
  // refuse.
  void Judge(const Recorded& recorded, const absl::Status& status,
             bool shared_id);
  WorldTime ClientDelay(Client& client);
  void Say(const Client& client, std::string text);

  World& world_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::vector<HeldContext>> shared_contexts_;  // by slot
  std::vector<size_t> writes_;                             // begun, by slot
  std::vector<Recorded> recorded_;
  std::vector<std::string> complaints_;
  SeededRandom ask_random_;
  bool stopping_ = false;
  int issued_ = 0;  // each page of a scan by itself
  uint64_t operations_ = 0;
  int hammered_ = 0;  // of these
  int running_clients_ = 0;
  int in_flight_ = 0;
  uint64_t answered_ok_ = 0;
  uint64_t unknown_ = 0;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_WORKLOAD_H_
