// The end of some runs: a majority of the members burns down at once, and an
// operator recovers the ring around those who are left. What only the others
// held is gone, so this comes when all else has been judged; the ring must come
// to rest and the survivors serve.

#ifndef RINGKV_TESTS_SIM_DISASTER_H_
#define RINGKV_TESTS_SIM_DISASTER_H_

#include <string>
#include <vector>

#include "base/random.h"
#include "tests/sim/node.h"

namespace ringkv::sim {

class Disaster {
 public:
  // Every member of `world`'s newest ring is up; there are at least two.
  Disaster(World& world, SeededRandom random)
      : world_(world), random_(random) {}

  // Now; and the operator begins to ask.
  void Strike();
  // The ring has the survivors, nobody else, and no operation.
  bool Recovered() const;
  // Why it does not.
  std::string Trouble() const;

 private:
  void Ask();

  World& world_;
  SeededRandom random_;
  std::vector<Member> survivors_;  // by number
  bool recovering_ = false;        // the operator was answered
  absl::Status last_answer_;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_DISASTER_H_
