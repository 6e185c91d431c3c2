#include "membership/epochs/voters.h"

#include <algorithm>

#include "base/planted.h"

namespace ringkv {

std::vector<NodeNumber> VotersOf(const RingSpec& spec) {
  std::vector<NodeNumber> voters;
  const auto joining = [&spec](NodeNumber node) {
    if (Planted("joiner-votes")) return false;
    if (!spec.operation.has_value() ||
        (spec.operation->kind != TopologyKind::kJoin &&
         spec.operation->kind != TopologyKind::kReplace)) {
      return false;
    }
    const std::vector<NodeNumber>& nodes = spec.operation->nodes;
    return std::binary_search(nodes.begin(), nodes.end(), node);
  };
  for (const Member& member : spec.members) {
    if (!joining(member.number)) voters.push_back(member.number);
  }
  if (voters.size() % 2 == 0 && !voters.empty()) voters.pop_back();
  return voters;
}

}  // namespace ringkv
