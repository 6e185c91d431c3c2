#include "tests/sim/overrides.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace ringkv::sim {
namespace {

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " is ", value, "; this seed's plan allows 1 to ", max));
}

absl::Status KeepFaults(const std::vector<int>& numbers, Plan& plan) {
  const int count = static_cast<int>(plan.faults.size());
  for (const int number : numbers) {
    if (number < 0 || number >= count) {
      return absl::InvalidArgumentError(absl::StrCat("there is no fault ",
                                                     number, "; this seed has ",
                                                     count, " (see --plan)"));
    }
  }
  std::erase_if(plan.faults, [&numbers](const Fault& fault) {
    return std::find(numbers.begin(), numbers.end(), fault.number) ==
           numbers.end();
  });
  return absl::OkStatus();
}

absl::Status KeepNodes(int nodes, Plan& plan) {
  RETURN_IF_ERROR(
      CheckRange("--nodes", nodes, static_cast<int>(plan.nodes.size())));
  for (size_t k = 1; k < plan.keyspaces.size(); ++k) {
    if (plan.keyspaces[k].n > static_cast<uint32_t>(nodes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--nodes is ", nodes, "; keyspace ",
                       plan.keyspaces[k].name, " has N=", plan.keyspaces[k].n));
    }
  }
  // Those that stand by come last.
  const int taken = static_cast<int>(plan.nodes.size()) - nodes;
  plan.topology.spares = std::max(0, plan.topology.spares - taken);
  plan.nodes.resize(static_cast<size_t>(nodes));
  const uint64_t all = (1ull << nodes) - 1;
  std::erase_if(plan.faults,
                [nodes](const Fault& fault) { return fault.node >= nodes; });
  for (Fault& fault : plan.faults) fault.mask &= all;
  return absl::OkStatus();
}

}  // namespace

std::string PlanOverrides::ToFlags() const {
  std::string flags;
  if (only_faults.has_value()) {
    absl::StrAppend(
        &flags, " --only-faults ",
        only_faults->empty() ? "none" : absl::StrJoin(*only_faults, ","));
  }
  if (nodes.has_value()) absl::StrAppend(&flags, " --nodes ", *nodes);
  if (clients.has_value()) absl::StrAppend(&flags, " --clients ", *clients);
  if (operations.has_value()) {
    absl::StrAppend(&flags, " --operations ", *operations);
  }
  if (length.has_value()) {
    absl::StrAppendFormat(&flags, " --length %d.%03d", *length / kSecond,
                          *length % kSecond / kMillisecond);
  }
  return flags;
}

absl::StatusOr<std::vector<int>> ParseFaultNumbers(absl::string_view text) {
  std::vector<int> numbers;
  if (text == "none") return numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a list of fault numbers (3,7 or none): ", text));
    }
    numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

absl::Status ApplyOverrides(const PlanOverrides& overrides, Plan& plan) {
  if (overrides.only_faults.has_value()) {
    RETURN_IF_ERROR(KeepFaults(*overrides.only_faults, plan));
  }
  if (overrides.nodes.has_value()) {
    RETURN_IF_ERROR(KeepNodes(*overrides.nodes, plan));
  }
  if (overrides.clients.has_value()) {
    RETURN_IF_ERROR(
        CheckRange("--clients", *overrides.clients, plan.workload.clients));
    plan.workload.clients = *overrides.clients;
  }
  if (overrides.operations.has_value()) {
    RETURN_IF_ERROR(CheckRange("--operations", *overrides.operations,
                               plan.workload.operations));
    plan.workload.operations = *overrides.operations;
  }
  if (overrides.length.has_value()) {
    RETURN_IF_ERROR(CheckRange("--length in ms",
                               *overrides.length / kMillisecond,
                               plan.length / kMillisecond));
    plan.length = *overrides.length;
    std::erase_if(plan.topology.at,
                  [&plan](WorldTime at) { return at > plan.length; });
    std::erase_if(plan.faults, [&plan](const Fault& fault) {
      return fault.at > plan.length;
    });
  }
  return absl::OkStatus();
}

}  // namespace ringkv::sim
