// What a run may leave out of its seed's plan. All that stays is as the seed
// decides it, so that a run with fewer operations and a shorter length is the
// beginning of the whole one.

#ifndef RINGKV_TESTS_SIM_OVERRIDES_H_
#define RINGKV_TESTS_SIM_OVERRIDES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/sim/plan.h"

namespace ringkv::sim {

struct PlanOverrides {
  // The faults that happen, by number, sorted; none if empty.
  std::optional<std::vector<int>> only_faults;
  std::optional<int> nodes;  // the first so many
  std::optional<int> clients;
  std::optional<int> operations;
  std::optional<WorldTime> length;  // of the workload, whole milliseconds

  // The flags of kvsim that mean this, each with a space before it; empty if
  // nothing is left out.
  std::string ToFlags() const;
  bool operator==(const PlanOverrides&) const = default;
};

// "3,7" or "none". INVALID_ARGUMENT for anything else.
absl::StatusOr<std::vector<int>> ParseFaultNumbers(absl::string_view text);

// INVALID_ARGUMENT, with the bound, for what the plan has not, and for fewer
// nodes than a keyspace has replicas (`default` takes what there is).
absl::Status ApplyOverrides(const PlanOverrides& overrides, Plan& plan);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_OVERRIDES_H_
