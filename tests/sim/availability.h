// What the simulated world knows better than any client: who could reach whom
// while an operation ran. From that, in situations without doubt, whether the
// operation had to succeed (P4), or could not rightly have.

#ifndef RINGKV_TESTS_SIM_AVAILABILITY_H_
#define RINGKV_TESTS_SIM_AVAILABILITY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "membership/ring/ring.h"
#include "tests/sim/network.h"
#include "tests/sim/node.h"
#include "tests/sim/workload.h"

namespace ringkv::sim {

// The history of who was up and which directions were open.
class Connectivity {
 public:
  explicit Connectivity(int nodes) : nodes_(nodes) {}

  // Something may have changed. `surely`: even if it cannot be seen here, as
  // when streams break that are made anew at once.
  void Note(WorldTime now, const Network& network, const World& world,
            bool surely = false);

  // Whether a process died in [from, until].
  bool CrashWithin(WorldTime from, WorldTime until) const;

  struct Snapshot {
    WorldTime since = 0;
    uint64_t up = 0;            // nodes that run
    std::vector<uint64_t> out;  // [from]: open directions
    // No node is slow, stalled or near its death.
    bool calm = true;
    bool operator==(const Snapshot& other) const {
      return up == other.up && out == other.out && calm == other.calm;
    }
  };
  // The one snapshot that held from `from - before` to `until`; null if
  // something changed meanwhile.
  const Snapshot* During(WorldTime from, WorldTime until,
                         WorldTime before) const;

  // The nodes that can be reached from `node` over any number of half-open
  // ways: nobody else can have helped.
  uint64_t AtMost(const Snapshot& snapshot, int node) const;
  // The same nodes if each reaches each other both ways, else 0.
  uint64_t Exactly(const Snapshot& snapshot, int node) const;

 private:
  int nodes_;
  std::vector<Snapshot> snapshots_;
  std::vector<WorldTime> crashes_;
  uint64_t crashes_seen_ = 0;
};

using ComplainCallback =
    std::function<void(const char* check, std::string text)>;

// The ring that was in force everywhere all that time; null if none was.
using RingDuringCallback =
    std::function<std::shared_ptr<const Ring>(WorldTime from, WorldTime until)>;

// `rotten` tells whether some copy of the operation's key may have been
// unreadable.
void CheckAvailability(const Connectivity& connectivity,
                       const RingDuringCallback& ring_during, World& world,
                       const std::vector<Recorded>& recorded,
                       const std::function<bool(const Recorded&)>& rotten,
                       const ComplainCallback& complain);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_AVAILABILITY_H_
