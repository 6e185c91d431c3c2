#include "membership/epochs/voters.h"

#include "base/planted.h"

namespace ringkv {

std::vector<NodeNumber> VotersOf(const RingSpec& spec) {
  std::vector<NodeNumber> voters;
  for (const Member& member : spec.members) {
    const bool joins = spec.operation.has_value() &&
                       spec.operation->Joins(member.number) &&
                       !Planted("joiner-votes");
    const bool is_dead = spec.operation.has_value() &&
                         spec.operation->TakesForDead(member.number);
    if (!joins && !is_dead) voters.push_back(member.number);
  }
  if (voters.size() % 2 == 0 && !voters.empty()) voters.pop_back();
  return voters;
}

}  // namespace ringkv
