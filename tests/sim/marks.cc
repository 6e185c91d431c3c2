#include "tests/sim/marks.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ringkv::sim {

absl::StatusOr<std::set<std::string>> ParseUnreached(
    absl::string_view text, const std::vector<std::string>& all) {
  std::set<std::string> names;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('#', 1));
    const std::string name(absl::StripAsciiWhitespace(parts[0]));
    if (name.empty()) continue;
    if (parts.size() < 2 || absl::StripAsciiWhitespace(parts[1]).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": why does nothing reach ", name, "? (after #)"));
    }
    if (std::find(all.begin(), all.end(), name) == all.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": no mark is called ", name));
    }
    names.insert(name);
  }
  return names;
}

MarkReport CompareMarks(const std::vector<std::string>& all,
                        const std::set<std::string>& reached,
                        const std::set<std::string>& unreached) {
  MarkReport report;
  for (const std::string& name : all) {
    const bool excused = unreached.contains(name);
    if (reached.contains(name)) {
      if (excused) report.outdated.push_back(name);
    } else {
      (excused ? report.excused : report.missed).push_back(name);
    }
  }
  return report;
}

}  // namespace ringkv::sim
