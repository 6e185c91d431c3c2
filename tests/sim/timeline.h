// One run as a page: nodes and clients as lanes over time, with what was done
// to them and what they did about one key.

#ifndef RINGKV_TESTS_SIM_TIMELINE_H_
#define RINGKV_TESTS_SIM_TIMELINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tests/sim/plan.h"
#include "tests/sim/simulation.h"

namespace ringkv::sim {

// The key that says most about `result`: that of its first violation, be it
// named or that of an operation it names (#12), else the one used most. Empty
// if there was no operation.
std::string KeyToShow(const Plan& plan, const RunResult& result);

// A self-contained HTML page. `result` was made with keep_trace; `key` is
// keyspace/key; `command` runs the same again.
std::string TimelinePage(const Plan& plan, const RunResult& result,
                         absl::string_view key, absl::string_view command);

// A literal of JSON that is safe inside a script of a page.
std::string JsonString(absl::string_view text);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_TIMELINE_H_
