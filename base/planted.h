// Planted bugs: known mistakes, one at a time, that prove the simulator would
// find their kind. They exist only in a build with RINGKV_PLANTED_BUGS=ON;
// elsewhere `Planted` is a constant and the branch is gone.

#ifndef RINGKV_BASE_PLANTED_H_
#define RINGKV_BASE_PLANTED_H_

#include "absl/strings/string_view.h"

namespace ringkv {

#if RINGKV_PLANTED_BUGS
// True if `name` is the bug chosen with SetPlantedBug. Set before any thread
// starts.
bool Planted(absl::string_view name);
void SetPlantedBug(absl::string_view name);
#else
constexpr bool Planted(absl::string_view) { return false; }
#endif

}  // namespace ringkv

#endif  // RINGKV_BASE_PLANTED_H_
