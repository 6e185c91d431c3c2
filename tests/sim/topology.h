// Operators who change the cluster while clients work and faults happen: nodes
// join, leave and change weight, machines burn down and are taken out or
// replaced, keyspaces get another N, R or W, and some of it is aborted. They
// see the whole world where real ones have pagers, and ask any node, now and
// then two at once.

#ifndef RINGKV_TESTS_SIM_TOPOLOGY_H_
#define RINGKV_TESTS_SIM_TOPOLOGY_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "tests/sim/node.h"
#include "tests/sim/plan.h"

namespace ringkv::sim {

class Topology {
 public:
  explicit Topology(World& world);

  // Operations come at their planned times; what breaks is mended until the end
  // of the run.
  void Start();
  // kAbort, kAbortAgain, kBurn and kAskAnother of plan.h.
  void Meddle(const Fault& fault);
  // A member that the operation brings in, chosen by `pick`; -1 if none does.
  int Gainer(uint64_t pick) const;
  // The faults are over: nothing new is begun.
  void Settle() { settling_ = true; }
  // They do nothing any more.
  void Retire() { retired_ = true; }
  // No operation runs, nobody is asked, and no member has burnt down.
  bool Settled() const;
  // Why it is not.
  std::string Trouble() const;

  // The ring that held all the time from `from` to `until`, adopted by all who
  // were up, with no operation; null if it did not stay so.
  std::shared_ptr<const Ring> RingDuring(WorldTime from, WorldTime until) const;

 private:
  struct Calm {
    std::shared_ptr<const Ring> ring;
    WorldTime from = 0;
    WorldTime until = 0;
  };

  void Tick();
  void NoteCalm();
  void Think();
  bool Mend();
  void MendRunning(const Ring& ring, NodeNumber lost);
  void Revive();
  bool CanSpare(NodeNumber node) const;
  // False if the ring cannot spare it.
  bool Burn(const Member& member);

  void Join();
  void Decommission();
  void Weigh();
  void AlterKeyspace();
  void Ask(AdminCall call, std::string what);
  void AskAbort();
  // The last change asked for, once more.
  void AskAgain();

  Node* NodeOf(const Member& member) const;
  // Members whose disk no longer is what it was.
  std::vector<NodeNumber> LostMembers() const;
  std::vector<Node*> Standbys() const;
  // The newest that a living member has; null if there is none.
  std::shared_ptr<const Ring> KnownRing() const;
  const Ring& ring() const { return *world_.newest_ring; }

  World& world_;
  SeededRandom random_;
  bool settling_ = false;
  bool retired_ = false;
  int asked_ = 0;  // calls without an answer
  std::optional<AdminCall> last_change_;
  Node* next_asked_ = nullptr;  // who is asked; null: any
  WorldTime mend_at_ = 0;
  std::vector<Calm> calm_;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_TOPOLOGY_H_
