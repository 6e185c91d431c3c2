// One turn of the control loop: step the machine over what came in, write what
// it wrote as one batch, and tell it once that is fsynced. No thread, no clock:
// the real loop and the simulator both drive this class.

#ifndef RINGKV_SERVER_LOOP_CONTROL_TURN_LOOP_H_
#define RINGKV_SERVER_LOOP_CONTROL_TURN_LOOP_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "membership/control/control.h"
#include "storage/engine.h"

namespace ringkv {

// A reader of the engine's kMeta family, for StartNode. Reads the disk;
// `engine` must outlive it.
MetaReader ReadMeta(const Engine& engine);

// The writes as a batch of kMeta.
WriteBatch ToBatch(const std::vector<MetaWrite>& writes);

class ControlTurnLoop {
 public:
  // Both outlive the loop.
  ControlTurnLoop(Control& control, Engine& engine);

  // Steps the machine over `events` (left empty) and writes what it wrote;
  // appends what the shell must do to `effects` (its `writes` and `ticket` are
  // spent). While the engine stalls, the batch is kept and tried again by the
  // next Turn; the machine goes on, since it holds back what depends on it.
  // Returns an error if the engine can no longer be trusted; the node must
  // stop.
  absl::Status Turn(std::vector<ControlEvent>& events, Time time,
                    ControlEffects& effects);

  // Something written is not known to be fsynced: call Engine::Sync() on the
  // commit thread, then Synced() with its result.
  bool wants_sync() const { return !waiting_.empty(); }
  // A kept batch waits for the engine: call Turn again soon.
  bool stalled() const { return !batch_.empty(); }

  // Everything up to `sequence` is fsynced: steps the machine over that.
  void Synced(uint64_t sequence, Time time, ControlEffects& effects);

  // The two halves of Turn, for a simulator that crashes between them.
  void Run(std::vector<ControlEvent>& events, Time time,
           ControlEffects& effects);
  absl::Status Commit();

 private:
  struct Waiting {
    uint64_t sequence;
    uint64_t ticket;
  };
  void TakeWrites(ControlEffects& effects);

  Control& control_;
  Engine& engine_;
  WriteBatch batch_;
  uint64_t ticket_ = 0;  // of `batch_`
  std::deque<Waiting> waiting_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_LOOP_CONTROL_TURN_LOOP_H_
