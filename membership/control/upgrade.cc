// Feature levels: what newer versions write and say stays off until every
// member knows it and an operator raises the ring's level, since there is no
// way back from then on.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "membership/control/control_impl.h"

namespace ringkv {

uint32_t Control::Impl::NewestLevelKnown() const {
  uint32_t newest = options_.feature_level_max;
  for (const auto& [id, peer] : peers_) {
    if (IsMember(id) && peer.facts.has_value()) {
      newest = std::max(newest, peer.facts->feature_level_max);
    }
  }
  return newest;
}

absl::Status Control::Impl::CheckLevel(uint32_t level) const {
  std::vector<std::string> older;
  std::vector<std::string> away;
  for (const Member& member : ring_->spec().members) {
    uint32_t known = options_.feature_level_max;
    if (member.id != id_) {
      const auto found = peers_.find(member.id);
      // One that is down may come back with an older program.
      if (found == peers_.end() || !IsHeard(found->second)) {
        away.push_back(NamesOf({member.number}));
        continue;
      }
      known = found->second.facts->feature_level_max;
    }
    if (known < level) {
      older.push_back(
          absl::StrCat(NamesOf({member.number}), " knows up to ", known));
    }
  }
  if (!older.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("not every member knows feature level ", level, ": ",
                     absl::StrJoin(older, ", "), "; upgrade them first"));
  }
  if (!away.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "whether every member knows feature level ", level,
        " is not sure: ", absl::StrJoin(away, ", "),
        " cannot be heard; start them, or take them out of the ring"));
  }
  return absl::OkStatus();
}

absl::Status Control::Impl::CheckJoiners(const TopologyRequest& request) const {
  for (const Member& joiner : request.joiners) {
    const auto found = peers_.find(joiner.id);
    if (found == peers_.end() || !found->second.facts.has_value()) continue;
    const NodeFacts& facts = *found->second.facts;
    if (facts.feature_level_max >= ring_->spec().feature_level) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        Called(facts), " knows feature levels up to ", facts.feature_level_max,
        ", and the ring has ", ring_->spec().feature_level, ": upgrade it"));
  }
  return absl::OkStatus();
}

void Control::Impl::StartFinishUpgrade(uint64_t call, Instant deadline,
                                       const FinishUpgradeCall& request) {
  if (ring_ == nullptr) {
    return Refuse(call, absl::FailedPreconditionError(
                            "this node is in no ring yet: form a cluster with "
                            "kvctl init first"));
  }
  RaiseLevel raise;
  raise.level = request.level == 0 ? NewestLevelKnown() : request.level;
  raise.before = ring_->spec().feature_level;
  StartChange(call, deadline, raise);
}

}  // namespace ringkv
