#include "membership/epochs/voters.h"

namespace ringkv {

std::vector<NodeNumber> VotersOf(const RingSpec& spec) {
  std::vector<NodeNumber> voters;
  for (const Member& member : spec.members) voters.push_back(member.number);
  if (voters.size() % 2 == 0 && !voters.empty()) voters.pop_back();
  return voters;
}

}  // namespace ringkv
