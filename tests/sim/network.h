// The network between simulated nodes: connectivity, delay, loss, order, and
// the streams that nodes dial. Carries bytes; what they mean is the nodes'
// concern.
//
// Two moods, one for each seed. With `streams`, a link behaves as a gRPC
// stream: in order, nothing lost but with the stream; a blocked direction keeps
// its messages until it opens or the stream ends. Without, each message fares
// by itself: lost, duplicated, overtaken, or kept back for minutes.

#ifndef RINGKV_TESTS_SIM_NETWORK_H_
#define RINGKV_TESTS_SIM_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "tests/sim/plan.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/trace.h"

namespace ringkv::sim {

// One end of a link: a node in one of its runs.
struct Endpoint {
  int node = 0;
  uint64_t run = 0;
};

class Network {
 public:
  // `nodes` at most 64.
  Network(Scheduler& scheduler, Trace& trace, const NetworkPlan& plan,
          int nodes, SeededRandom random);

  // Blocks or opens one direction; blocks are counted.
  void Block(int from, int to);
  void Unblock(int from, int to);
  bool Open(int from, int to) const {
    return blocked_[static_cast<size_t>(from * nodes_ + to)] == 0;
  }
  // Faults are over: nothing is lost, duplicated, late or kept back any more.
  void Heal();
  // Whether messages may arrive that were sent long ago.
  bool MayHold() const { return plan_.held_share > 0; }

  // When the last message that is kept back will have arrived.
  WorldTime last_held_arrival() const { return last_held_arrival_; }

  // A packet outside any link (a unary call or its answer): arrives or is lost.
  void SendLoose(int from, int to, std::function<void()> arrive);

  // --- Links ---
  // A link, once both sides call it up. `closed` tells one end that the link
  // has ended.
  using LinkNumber = uint64_t;
  using ClosedCallback = std::function<void()>;
  LinkNumber Connect(Endpoint dialled_by, Endpoint accepted_by,
                     ClosedCallback dialler_closed,
                     ClosedCallback acceptor_closed);
  // Sends from one end; `arrive` runs if the message gets there, maybe more
  // than once, if `may_repeat`. `bytes` is the message's size.
  void Send(LinkNumber link, int from, bool may_repeat, size_t bytes,
            std::function<void()> arrive);
  // One end closes; the other is told, if it can be reached. The end itself is
  // not.
  void Close(LinkNumber link, int by);
  // A process died. If its machine lives (`reset`), peers learn of it at once,
  // else they hear nothing more.
  void Died(Endpoint endpoint, bool reset);
  // The machine of `node` is without power, or has it again: without, nothing
  // answers, not even with a reset.
  void SetPower(int node, bool on) { powered_[static_cast<size_t>(node)] = on; }
  // Every link of `node` breaks; both ends are told.
  void CutLinks(int node);

  uint64_t messages() const { return messages_; }
  size_t links() const { return links_.size(); }

 private:
  struct Link {
    Endpoint ends[2];
    ClosedCallback closed[2];
    // Direction i is from ends[i] to the other.
    WorldTime last_arrival[2] = {0, 0};
    std::deque<std::function<void()>> waiting[2];  // while blocked
    bool dead[2] = {false, false};                 // that end knows it is over
  };

  WorldTime Delay();
  int DirectionFrom(const Link& link, int node) const {
    return link.ends[0].node == node ? 0 : 1;
  }
  void Schedule(LinkNumber number, int direction, std::function<void()> arrive);
  void Flush(int from, int to);
  void TellClosed(LinkNumber number, int end, WorldTime delay,
                  bool surely = false);
  void DropIfOver(LinkNumber number);

  Scheduler& scheduler_;
  Trace& trace_;
  NetworkPlan plan_;
  int nodes_;
  SeededRandom random_;
  std::vector<int> blocked_;
  std::vector<bool> powered_;
  std::map<LinkNumber, Link> links_;
  LinkNumber next_link_ = 1;
  uint64_t messages_ = 0;
  WorldTime last_held_arrival_ = 0;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_NETWORK_H_
