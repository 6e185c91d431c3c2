// The thread of the control loop: feeds Control with what streams, admins and
// shard loops bring, and carries out what it answers.
//
// Thread-safe but for the constructor and Start/Stop, which one thread calls.

#ifndef RINGKV_SERVER_RPC_CONTROL_THREAD_H_
#define RINGKV_SERVER_RPC_CONTROL_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "membership/control/control.h"
#include "server/loop/control_turn_loop.h"
#include "server/rpc/mailbox.h"
#include "server/rpc/peer_net.h"
#include "server/rpc/pulse.h"
#include "server/shard/events.h"
#include "storage/engine.h"

namespace ringkv {

// What other threads may know of the control loop, as of its last turn.
struct ControlView {
  NodeNumber number = kNoNode;
  std::shared_ptr<const Ring> ring;  // null: standby
  RingEpoch adopted_epoch = 0;
  size_t peers_alive = 0;
  std::shared_ptr<const PeerView> peers;
  std::shared_ptr<const AddressView> addresses;
  bool clock_ok = true;
  LivenessStats liveness;
};

class ControlThread {
 public:
  // Called on the control loop's thread.
  struct Hooks {
    // Gives a ring to every shard loop; `adopted` is called, on any thread,
    // when each has taken it.
    std::function<void(RingAdopted ring, std::function<void()> adopted)> adopt;
    std::function<void(PeersChanged peers)> peers;
    // Tells every shard loop.
    std::function<void(BeginTransfers begin)> begin_transfers;
    // The view has changed in a way that others may care about.
    std::function<void()> changed;
    std::function<LoadReported()> load;
    std::function<void()> wants_sync;
    // The node must end.
    std::function<void(StopRequest)> stop;
  };
  using AdminDone = std::function<void(AdminAnswer)>;

  // `engine` and `net` outlive this.
  ControlThread(std::unique_ptr<Control> control, Engine& engine, PeerNet& net,
                Hooks hooks);
  ~ControlThread();
  ControlThread(const ControlThread&) = delete;
  ControlThread& operator=(const ControlThread&) = delete;

  void Start();
  // Ends the thread and waits for it; admin calls that still run are answered
  // UNAVAILABLE.
  void Stop();

  void Post(ControlEvent&& event) {
    mailbox_.Push({std::move(event), {}, false});
  }
  // Answers exactly once, on the control loop's thread.
  void Call(AdminCall call, Instant deadline, AdminDone done);
  // Answers the calls that run, and all later ones, UNAVAILABLE.
  void CloseCalls() { mailbox_.Push({ControlTimer{}, {}, true}); }
  // Everything up to `sequence` is durable.
  void Synced(uint64_t sequence);

  ControlView View() const;
  // It turns at least once a second, unless something holds it up.
  const Pulse& pulse() const { return pulse_; }
  const NodeId& id() const { return id_; }
  uint64_t start_id() const { return start_id_; }

 private:
  struct Item {
    ControlEvent event;
    AdminDone done;  // of AdminArrived
    bool close_calls = false;
  };

  void Run();
  void HandOut(ControlEffects& effects);
  void Publish(const ControlEffects& effects);
  void FailCalls();

  const std::unique_ptr<Control> control_;
  ControlTurnLoop turn_;
  PeerNet& net_;
  const Hooks hooks_;
  const NodeId id_;
  const uint64_t start_id_;
  Mailbox<Item> mailbox_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> synced_{0};
  Pulse pulse_;

  mutable std::mutex view_mutex_;
  ControlView view_;  // under view_mutex_

  // Of the control loop's thread.
  absl::flat_hash_map<uint64_t, AdminDone> calls_;
  uint64_t next_call_ = 1;
  bool calls_closed_ = false;
  uint64_t synced_told_ = 0;
  Instant load_due_;

  std::thread thread_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_RPC_CONTROL_THREAD_H_
