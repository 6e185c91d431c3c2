// Who decides the next ring epoch.

#ifndef RINGKV_MEMBERSHIP_EPOCHS_VOTERS_H_
#define RINGKV_MEMBERSHIP_EPOCHS_VOTERS_H_

#include <cstddef>
#include <vector>

#include "base/ids.h"
#include "membership/ring/ring.h"

namespace ringkv {

// The voters of the epoch after `spec`, by number: all members but those that
// still join and those that the running operation takes for dead; with an even
// number of them the highest-numbered one has no vote, since it would raise the
// majority without making it safer.
std::vector<NodeNumber> VotersOf(const RingSpec& spec);

constexpr size_t MajorityOf(size_t count) { return count / 2 + 1; }

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_EPOCHS_VOTERS_H_
