// Which coverage marks a set of runs should have reached.

#ifndef RINGKV_TESTS_SIM_MARKS_H_
#define RINGKV_TESTS_SIM_MARKS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringkv::sim {

// The names in `text`: lines of "name  # why no run reaches it".
// INVALID_ARGUMENT with the line for a name without a reason, and for one that
// is no mark.
absl::StatusOr<std::set<std::string>> ParseUnreached(
    absl::string_view text, const std::vector<std::string>& all);

struct MarkReport {
  std::vector<std::string> missed;    // not reached, nobody knows why
  std::vector<std::string> excused;   // not reached, as is known
  std::vector<std::string> outdated;  // reached, though said not to be
};

MarkReport CompareMarks(const std::vector<std::string>& all,
                        const std::set<std::string>& reached,
                        const std::set<std::string>& unreached);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_MARKS_H_
