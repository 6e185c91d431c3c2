#include "membership/control/peers.h"

namespace ringkv {

RingSpec WithAddresses(RingSpec spec, const AddressView& view) {
  for (Member& member : spec.members) {
    const auto found = view.find(member.number);
    if (found == view.end()) continue;
    member.client_address = found->second.client_address;
    member.peer_address = found->second.peer_address;
  }
  return spec;
}

}  // namespace ringkv
