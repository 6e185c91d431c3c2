// Operators who change the ring while clients work and faults happen: they
// make, alter and drop keyspaces that nobody uses, now and then two at once at
// different nodes.

#ifndef RINGKV_TESTS_SIM_OPERATORS_H_
#define RINGKV_TESTS_SIM_OPERATORS_H_

#include <functional>
#include <string>
#include <vector>

#include "tests/sim/node.h"
#include "tests/sim/plan.h"

namespace ringkv::sim {

class Operators {
 public:
  explicit Operators(World& world);

  // Changes come at times of their own within `length` from now on.
  void Start(WorldTime length);

  // When all nodes serve again: every node must have the same ring, with every
  // keyspace whose making was acknowledged and that nobody may have dropped
  // since, and without those of which it is the other way round.
  void Check(const std::function<void(std::string)>& complain) const;

 private:
  enum class Kind : uint8_t { kCreate, kAlter, kDrop };
  enum class Outcome : uint8_t { kUnknown, kOk, kRefused };
  struct Change {
    Kind kind = Kind::kCreate;
    std::string name;
    WorldTime invoked = 0;
    WorldTime ended = kForever;  // kForever: may take effect at any time
    Outcome outcome = Outcome::kUnknown;
    KeyspaceId id{};  // of what was made
  };

  void Ask();
  AdminCall Draw(Change& change);
  void Ended(size_t index, const AdminAnswer& answer);
  // Whether a change of `kind` may have come after `change` was asked for.
  bool MayFollow(const Change& change, Kind kind) const;

  World& world_;
  SeededRandom random_;
  std::vector<Change> changes_;
};

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_OPERATORS_H_
