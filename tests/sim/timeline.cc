#include "tests/sim/timeline.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/timeline_page.h"

namespace ringkv::sim {
namespace {

std::string KeyOf(const Plan& plan, const Recorded& recorded) {
  return absl::StrCat(plan.keyspaces[static_cast<size_t>(recorded.space)].name,
                      "/key-", recorded.key);
}

// The operations that a violation names, in its list or as #12 in its text.
std::set<OperationId> OperationsOf(const Violation& violation) {
  std::set<OperationId> ids(violation.operations.begin(),
                            violation.operations.end());
  const absl::string_view text = violation.text;
  for (size_t at = text.find('#'); at != absl::string_view::npos;
       at = text.find('#', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
    OperationId id = 0;
    if (absl::SimpleAtoi(text.substr(at + 1, end - at - 1), &id)) {
      ids.insert(id);
    }
  }
  return ids;
}

const char* NameOf(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kGet:
      return "get";
    case OperationKind::kPut:
      return operation.blind ? "blind put" : "put";
    case OperationKind::kDelete:
      return "delete";
    case OperationKind::kScan:
      return "scan";
  }
  return "?";
}

const char* NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kUnknown:
      return "unknown";
    case Outcome::kOk:
      return "ok";
    case Outcome::kRefused:
      return "refused";
  }
  return "?";
}

std::string AnswerText(const Recorded& recorded) {
  const Operation& operation = recorded.operation;
  if (operation.outcome != Outcome::kOk) {
    return recorded.message.empty() ? "no answer" : recorded.message;
  }
  if (operation.IsWrite()) {
    return absl::StrCat("acks: replicas ", operation.replica_acks,
                        ", stand-ins ", operation.stand_in_acks,
                        operation.answered_context ? "; context" : "");
  }
  std::string text = "shows";
  for (const Shown& shown : operation.shown) {
    absl::StrAppend(&text, " ",
                    shown.writer == kNoOperation
                        ? "a value nobody wrote"
                        : absl::StrCat("#", shown.writer));
  }
  if (operation.shown.empty()) absl::StrAppend(&text, " nothing");
  if (operation.answered_context) absl::StrAppend(&text, "; context");
  return text;
}

// Joins `add(i)` for i up to `count`, those that are not empty.
template <class F>
std::string List(size_t count, F add) {
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) {
    const std::string item = add(i);
    if (item.empty()) continue;
    absl::StrAppend(&list, list.size() == 1 ? "" : ",\n", item);
  }
  return absl::StrCat(list, "]");
}

std::string Seconds(WorldTime time) {
  return absl::StrFormat("%.6f", static_cast<double>(time) / kSecond);
}

class Story {
 public:
  Story(const Plan& plan, const RunResult& result, absl::string_view key)
      : plan_(plan), result_(result), key_(key) {}

  std::string Json(absl::string_view command) const {
    const RunStory& story = result_.story;
    return absl::StrCat(
        "const D = {seed: ", plan_.seed, ", key: ", JsonString(key_),
        ", command: ", JsonString(command), ", nodes: ", plan_.nodes.size(),
        ", clients: ", Clients(), ",\nbegan: ", Seconds(story.work_began),
        ", healed: ", Seconds(story.healed),
        ", end: ", Seconds(result_.simulated), ",\nviolations: ", Violations(),
        ",\nops: ", Operations(story.operations),
        ",\nreads: ", Operations(story.final_reads),
        ",\nmessages: ", Messages(), ",\nfaults: ", Faults(),
        ",\nstates: ", States(), ",\nnotes: ", Notes(), "};\n");
  }

 private:
  int Clients() const {
    int clients = plan_.workload.clients;
    for (const Recorded& recorded : result_.story.operations) {
      clients = std::max(clients, recorded.operation.client + 1);
    }
    return clients;
  }

  std::string Violations() const {
    return List(result_.violations.size(), [this](size_t i) {
      const Violation& violation = result_.violations[i];
      std::string ids;
      for (const OperationId id : OperationsOf(violation)) {
        absl::StrAppend(&ids, ids.empty() ? "" : ",", id);
      }
      return absl::StrCat("{at: ", Seconds(violation.at),
                          ", check: ", JsonString(violation.check),
                          ", key: ", JsonString(violation.key),
                          ", text: ", JsonString(violation.text), ", ops: [",
                          ids, "]}");
    });
  }

  std::string Operations(const std::vector<Recorded>& all) const {
    return List(all.size(), [&](size_t i) {
      const Recorded& recorded = all[i];
      const Operation& operation = recorded.operation;
      const bool mine = KeyOf(plan_, recorded) == key_;
      const WorldTime until =
          operation.ended == kForever
              ? std::min(result_.simulated,
                         operation.invoked + plan_.workload.timeout)
              : operation.ended;
      std::string item = absl::StrCat(
          "{id: ", operation.id, ", client: ", operation.client,
          ", from: ", Seconds(operation.invoked), ", to: ", Seconds(until),
          ", kind: ", JsonString(NameOf(operation)),
          ", outcome: ", JsonString(NameOf(operation.outcome)));
      // What other keys did is only background.
      if (mine) {
        absl::StrAppend(&item, ", mine: 1, node: ", recorded.node,
                        ", strict: ", operation.strict ? 1 : 0,
                        ", answer: ", JsonString(AnswerText(recorded)));
        if (operation.context_from.has_value()) {
          absl::StrAppend(&item, ", context: ", *operation.context_from);
        }
      }
      return absl::StrCat(item, "}");
    });
  }

  std::string Messages() const {
    return List(result_.records.size(), [this](size_t i) -> std::string {
      const Trace::Record& record = result_.records[i];
      if (record.kind != Trace::Kind::kMessage || record.key != key_) return "";
      return absl::StrCat("{from: ", record.lane, ", to: ", record.to,
                          ", sent: ", Seconds(record.nanos), ", arrived: ",
                          record.arrived < 0 ? "null" : Seconds(record.arrived),
                          ", text: ", JsonString(record.text), "}");
    });
  }

  std::string Faults() const {
    return List(plan_.faults.size(), [this](size_t i) {
      const Fault& fault = plan_.faults[i];
      const WorldTime from = result_.story.work_began + fault.at;
      const WorldTime to = std::max(
          from,
          std::min(from + fault.hammer + fault.duration, result_.story.healed));
      return absl::StrCat("{from: ", Seconds(from), ", to: ", Seconds(to),
                          ", number: ", fault.number,
                          ", kind: ", JsonString(sim::NameOf(fault.kind)),
                          ", node: ", fault.node, ", mask: ", fault.mask,
                          ", text: ", JsonString(fault.ToString()), "}");
    });
  }

  // The times at which a node did not run.
  std::string States() const {
    using State = RunStory::NodeState;
    struct Since {
      WorldTime at = 0;
      State state = State::kDown;
    };
    std::map<int, Since> now;
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      now[static_cast<int>(i)] = Since{};
    }
    std::vector<std::string> spans;
    const auto close = [&spans](int node, const Since& since, WorldTime to) {
      if (since.state == State::kUp || to <= since.at) return;
      spans.push_back(
          absl::StrCat("{node: ", node, ", from: ", Seconds(since.at),
                       ", to: ", Seconds(to), ", state: \"",
                       since.state == State::kDown ? "down" : "frozen", "\"}"));
    };
    for (const RunStory::Change& change : result_.story.changes) {
      Since& since = now[change.node];
      close(change.node, since, change.at);
      since = {change.at, change.state};
    }
    for (const auto& [node, since] : now) close(node, since, result_.simulated);
    return List(spans.size(), [&spans](size_t i) { return spans[i]; });
  }

  // What nodes and the world said of themselves.
  std::string Notes() const {
    return List(result_.records.size(), [this](size_t i) -> std::string {
      const Trace::Record& record = result_.records[i];
      if (record.kind == Trace::Kind::kMessage ||
          record.kind == Trace::Kind::kClient) {
        return "";
      }
      return absl::StrCat("{lane: ", record.lane,
                          ", at: ", Seconds(record.nanos),
                          ", text: ", JsonString(record.text), "}");
    });
  }

  const Plan& plan_;
  const RunResult& result_;
  const absl::string_view key_;
};

}  // namespace

std::string KeyToShow(const Plan& plan, const RunResult& result) {
  const std::vector<Recorded>& operations = result.story.operations;
  for (const Violation& violation : result.violations) {
    if (!violation.key.empty()) return violation.key;
    for (const OperationId id : OperationsOf(violation)) {
      if (id < operations.size()) return KeyOf(plan, operations[id]);
    }
  }
  std::map<std::string, size_t> uses;
  for (const Recorded& recorded : operations) ++uses[KeyOf(plan, recorded)];
  std::string most;
  size_t count = 0;
  for (const auto& [key, used] : uses) {
    if (used > count) {
      most = key;
      count = used;
    }
  }
  return most;
}

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    // A '<' could end the script; bytes beyond ASCII need not be UTF-8.
    if (byte < 0x20 || byte >= 0x7f || c == '<' || c == '"' || c == '\\') {
      absl::StrAppendFormat(&out, "\\u%04x", byte);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

std::string TimelinePage(const Plan& plan, const RunResult& result,
                         absl::string_view key, absl::string_view command) {
  return absl::StrCat(kTimelineHead, Story(plan, result, key).Json(command),
                      kTimelineTail);
}

}  // namespace ringkv::sim
