// kvctl init, status, ring, hints.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/channel.h"
#include "client/kvctl/command.h"
#include "client/kvctl/operations.h"
#include "client/progress.h"
#include "client/timer_queue.h"
#include "membership/ring/placement.h"
#include "membership/ring/ring_codec.h"

namespace ringkv {
namespace {

const char* StateName(v1::NodeState state) {
  switch (state) {
    case v1::NODE_STATE_STANDBY:
      return "standby";
    case v1::NODE_STATE_ALIVE:
      return "alive";
    case v1::NODE_STATE_DOWN:
      return "down";
    case v1::NODE_STATE_DRAINING:
      return "draining";
    default:
      return "unknown";
  }
}

std::string LocationText(const v1::Location& location) {
  const std::string text = LocationFromProto(location).ToString();
  return text.empty() ? "-" : Printable(text);
}

Json NodeJson(const v1::NodeStatus& node) {
  Json json = Json::object();
  json["node_number"] = node.node_number();
  json["node_id"] = node.node_id();
  AddBytes("name", node.name(), json);
  json["state"] = StateName(node.state());
  json["age_ms"] = node.age_ms();
  json["client_address"] = node.client_address();
  json["peer_address"] = node.peer_address();
  json["location"] = Json::object();
  AddBytes("zone", node.location().zone(), json["location"]);
  AddBytes("rack", node.location().rack(), json["location"]);
  AddBytes("host", node.location().host(), json["location"]);
  json["weight"] = node.weight();
  json["incarnation"] = node.incarnation();
  json["ring_epoch"] = node.ring_epoch();
  json["ownership"] = node.ownership();
  json["keys"] = node.keys();
  json["disk_bytes"] = node.disk_bytes();
  json["read_only"] = node.read_only();
  json["hints"] = node.hints();
  json["hint_bytes"] = node.hint_bytes();
  json["in_flight"] = node.in_flight();
  json["clock_offset_ms"] = node.clock_offset_ms();
  json["flaps"] = node.flaps();
  json["version"] = node.version();
  return json;
}

// What was heard of a node that has been silent is old: it is shown with its
// age, and what was never heard is shown as such.
std::string Seen(const v1::NodeStatus& node, bool self) {
  if (self) return "itself";
  if (node.state() == v1::NODE_STATE_UNKNOWN) return "never";
  if (node.age_ms() < 1000) return absl::StrCat(node.age_ms(), "ms ago");
  return absl::StrCat(FormatSpan(absl::Milliseconds(node.age_ms())), " ago");
}

// A ring with fewer nodes or racks than N is what its operator made it, with
// the guarantees of that: shown, but no cause for alarm.
bool IsAdvice(absl::string_view warning) {
  return absl::StrContains(warning, "wants N=");
}

// --- init ---

struct InitArguments {
  uint32_t nodes = 0;
  bool yes = false;
  std::string placement = "balanced";
  uint32_t vnodes = 0;
  std::string wait = "10s";
};

std::string FoundTable(const v1::InitResponse& response) {
  Table table(
      {"NAME", "STATE", "LOCATION", "CLIENTS", "PEERS", ">WEIGHT", "NODE ID"});
  for (const v1::NodeStatus& node : response.nodes()) {
    table.Row({Printable(node.name()), StateName(node.state()),
               LocationText(node.location()), node.client_address(),
               node.peer_address(), absl::StrFormat("%g", node.weight()),
               node.node_id()});
  }
  return table.ToString();
}

int Init(Session& session, const InitArguments& arguments) {
  if (arguments.placement != "hashed" && arguments.vnodes != 0) {
    session.Note("--vnodes is for --placement hashed");
    return kExitUsage;
  }
  v1::InitRequest request;
  request.set_dry_run(true);
  request.set_placement(arguments.placement == "hashed"
                            ? v1::PLACEMENT_STRATEGY_HASHED
                            : v1::PLACEMENT_STRATEGY_BALANCED);
  request.set_vnodes(arguments.vnodes);
  AdminClient admin(session);
  v1::InitResponse found;
  const Instant until = Now() + SpanOf(arguments.wait);
  while (true) {
    absl::Status status = admin.Call(true, [&](auto& stub, auto& context) {
      found.Clear();
      return stub.Init(&context, request, &found);
    });
    if (!status.ok()) return session.Fail(status);
    const uint32_t count = static_cast<uint32_t>(found.nodes_size());
    if (arguments.nodes == 0 || count >= arguments.nodes || Now() >= until) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  const int count = found.nodes_size();
  if (!session.json()) {
    session.streams.out << "found " << count
                        << (count == 1 ? " node:\n\n" : " nodes:\n\n")
                        << FoundTable(found) << "\n";
  }
  if (arguments.nodes != 0 && static_cast<int>(arguments.nodes) != count) {
    return session.Fail(absl::FailedPreconditionError(absl::StrCat(
        "found ", count, " nodes, --nodes says ", arguments.nodes,
        "; start the missing ones with --seeds that reach these, or give the "
        "number that is there")));
  }
  if (arguments.nodes == 0 && !arguments.yes) {
    const int agreed = Confirm(
        session,
        absl::StrCat("Form a cluster of ",
                     count == 1 ? "this node" : "these nodes", "?"),
        absl::StrCat(
            "nothing was done; if these are all the nodes, add --nodes ", count,
            " (or --yes for any number)"));
    if (agreed != kExitDone) return agreed;
  }
  request.set_dry_run(false);
  request.set_expected_nodes(static_cast<uint32_t>(count));
  v1::InitResponse response;
  absl::Status status = admin.Call(false, [&](auto& stub, auto& context) {
    return stub.Init(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    Json json = Json::object();
    json["cluster_id"] = response.cluster_id();
    json["ring_epoch"] = response.ring_epoch();
    json["nodes"] = Json::array();
    for (const v1::NodeStatus& node :
         response.nodes_size() > 0 ? response.nodes() : found.nodes()) {
      json["nodes"].push_back(NodeJson(node));
    }
    session.Print(json);
  } else {
    session.streams.out << "cluster " << response.cluster_id()
                        << " formed: " << count
                        << (count == 1 ? " node" : " nodes") << ", ring epoch "
                        << response.ring_epoch() << "\n";
  }
  return kExitDone;
}

// --- status ---

int ShowStatus(Session& session) {
  v1::StatusResponse status;
  AdminClient admin(session);
  absl::Status asked = admin.Call(true, [&](auto& stub, auto& context) {
    status.Clear();
    return stub.Status(&context, v1::StatusRequest(), &status);
  });
  if (!asked.ok()) {
    session.Fail(asked);
    return kExitUnknown;
  }
  const bool formed = !status.cluster_id().empty();
  v1::OperationsResponse operations;
  if (formed) {
    // The status stands without them.
    const absl::Status told = admin.Call(true, [&](auto& stub, auto& context) {
      operations.Clear();
      return stub.Operations(&context, v1::OperationsRequest(), &operations);
    });
    if (!told.ok()) operations.Clear();
  }
  std::vector<std::string> problems;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (formed && node.state() != v1::NODE_STATE_ALIVE &&
        node.state() != v1::NODE_STATE_STANDBY) {
      problems.push_back(absl::StrCat(Printable(node.name()), " is ",
                                      StateName(node.state())));
    }
    if (node.read_only()) {
      problems.push_back(absl::StrCat(
          Printable(node.name()),
          " refuses puts: its disk is below disk_reserve; free space there"));
    }
  }
  const bool degraded =
      !problems.empty() ||
      !std::all_of(status.warnings().begin(), status.warnings().end(),
                   [](const std::string& w) { return IsAdvice(w); });
  const char* const verdict = !formed    ? "unknown"
                              : degraded ? "degraded"
                                         : "healthy";
  if (session.json()) {
    Json json = Json::object();
    json["health"] = verdict;
    json["cluster_id"] = status.cluster_id();
    json["ring_epoch"] = status.ring_epoch();
    json["feature_level"] = status.feature_level();
    json["operation"] = operations.has_running()
                            ? OperationJson(operations.running())
                            : Json(nullptr);
    json["answered_by"] = Json::object();
    AddBytes("name", status.name(), json["answered_by"]);
    json["answered_by"]["node_number"] = status.node_number();
    json["answered_by"]["endpoint"] = admin.answered();
    json["nodes"] = Json::array();
    for (const v1::NodeStatus& node : status.nodes()) {
      json["nodes"].push_back(NodeJson(node));
    }
    json["warnings"] = Json::array();
    for (const std::string& warning : status.warnings()) {
      json["warnings"].push_back(Printable(warning));
    }
    session.Print(json);
  } else {
    std::ostream& out = session.streams.out;
    if (formed) {
      out << "cluster " << status.cluster_id() << ", ring epoch "
          << status.ring_epoch() << ": " << verdict << "\n";
    } else {
      out << "no cluster yet; these nodes found each other (kvctl init forms "
             "one of them)\n";
    }
    out << "as seen by " << Printable(status.name()) << " (" << admin.answered()
        << ")\n\n";
    Table table({">#", "NAME", "STATE", "HEARD", "LOCATION", "CLIENTS",
                 ">WEIGHT", ">OWNS", ">KEYS~", ">DISK", ">HINTS", ">EPOCH",
                 ">CLOCK", ">FLAPS", "VERSION"});
    for (const v1::NodeStatus& node : status.nodes()) {
      const bool self = node.node_id() == status.node_id();
      // What was never heard has no value, not a zero.
      const bool known = node.state() != v1::NODE_STATE_UNKNOWN;
      const auto or_none = [known](std::string text) {
        return known ? std::move(text) : std::string("?");
      };
      table.Row(
          {CountOrDash(node.node_number()), Printable(node.name()),
           StateName(node.state()), Seen(node, self),
           LocationText(node.location()), node.client_address(),
           absl::StrFormat("%g", node.weight()),
           formed ? Percent(node.ownership(), 1) : "-",
           or_none(FormatCount(node.keys())),
           or_none(FormatBytes(node.disk_bytes())),
           or_none(FormatCount(node.hints())),
           or_none(absl::StrCat(node.ring_epoch())),
           self ? "-"
                : or_none(absl::StrFormat("%+dms", node.clock_offset_ms())),
           self ? "-" : FormatCount(node.flaps()),
           known ? Printable(node.version()) : "?"});
    }
    out << table.ToString();
    out << "KEYS~ is an estimate of the store, which counts replaced versions "
           "until they are compacted\n";
    if (!problems.empty() || status.warnings_size() > 0 ||
        operations.has_running()) {
      out << "\n";
    }
    if (operations.has_running()) {
      out << "running: " << Subject(operations.running()) << ": "
          << ProgressText(operations.running()) << "\n";
    }
    for (const std::string& problem : problems) {
      out << "degraded: " << problem << "\n";
    }
    for (const std::string& warning : status.warnings()) {
      out << (IsAdvice(warning) ? "note: " : "warning: ") << Printable(warning)
          << "\n";
    }
  }
  if (!formed) return kExitUnknown;
  return degraded ? kExitDegraded : kExitDone;
}

// --- ring ---

Json ReportJson(const Ring& ring, const PlacementReport& report, uint32_t n) {
  std::map<NodeNumber, size_t> tokens;
  for (const NodeNumber owner : ring.spec().owners) ++tokens[owner];
  Json json = Json::object();
  json["n"] = n;
  json["coefficient_of_variation"] = report.coefficient_of_variation;
  json["largest_over_mean"] = report.largest_over_mean;
  json["host_violations"] = report.host_violations;
  json["rack_violations"] = report.rack_violations;
  json["nodes"] = Json::array();
  for (const PlacementReport::Node& node : report.nodes) {
    const Member* member = ring.FindMember(node.number);
    Json one = Json::object();
    one["node_number"] = ToInt(node.number);
    AddBytes("name", member->name, one);
    one["location"] = Printable(member->location.ToString());
    one["weight"] = member->weight;
    one["tokens"] = tokens[node.number];
    one["primary_share"] = node.primary_share;
    one["replicated_share"] = node.replicated_share;
    one["fair_share"] = node.fair_share;
    json["nodes"].push_back(std::move(one));
  }
  return json;
}

const char* PlacementName(PlacementStrategy placement) {
  return placement == PlacementStrategy::kHashed ? "hashed" : "balanced";
}

int ShowRing(Session& session, const std::string& keyspace_name) {
  absl::StatusOr<std::shared_ptr<const Ring>> fetched = FetchRing(session);
  if (!fetched.ok()) return session.Fail(fetched.status());
  const Ring& ring = **fetched;
  const RingSpec& spec = ring.spec();
  const Keyspace* keyspace = ring.FindKeyspace(keyspace_name);
  if (keyspace == nullptr) {
    return session.Fail(absl::NotFoundError(
        absl::StrCat("there is no keyspace \"", keyspace_name, "\"")));
  }
  const uint32_t n = ring.EffectiveN(*keyspace);
  const PlacementReport report = Inspect(ring, n);
  if (session.json()) {
    Json json = ReportJson(ring, report, n);
    json["cluster_id"] = spec.cluster_id.ToString();
    json["ring_epoch"] = spec.epoch;
    json["feature_level"] = spec.feature_level;
    json["placement"] = PlacementName(spec.placement);
    json["vnodes"] = spec.vnodes;
    json["segments"] = ring.segments();
    json["keyspace"] = keyspace->name;
    session.Print(json);
    return kExitDone;
  }
  std::ostream& out = session.streams.out;
  out << "cluster " << spec.cluster_id.ToString() << ", ring epoch "
      << spec.epoch << "\nplacement " << PlacementName(spec.placement) << ", "
      << FormatCount(ring.segments()) << " segments; keyspace "
      << keyspace->name << ": N=" << n << "\n\n";
  std::map<NodeNumber, size_t> tokens;
  for (const NodeNumber owner : spec.owners) ++tokens[owner];
  Table table({">#", "NAME", "LOCATION", "CLIENTS", ">WEIGHT", ">TOKENS",
               ">PRIMARY", ">REPLICATED", ">FAIR", ">OF FAIR"});
  for (const PlacementReport::Node& node : report.nodes) {
    const Member* member = ring.FindMember(node.number);
    table.Row(
        {absl::StrCat(ToInt(node.number)), Printable(member->name),
         Printable(member->location.ToString()), member->client_address,
         absl::StrFormat("%g", member->weight),
         FormatCount(tokens[node.number]), Percent(node.primary_share),
         Percent(node.replicated_share), Percent(node.fair_share),
         node.fair_share > 0
             ? absl::StrFormat("%.4f", node.replicated_share / node.fair_share)
             : "-"});
  }
  out << table.ToString() << "\n"
      << absl::StrFormat(
             "replicated ownership: coefficient of variation %.3f %%, "
             "largest/mean %.4f\n",
             report.coefficient_of_variation * 100, report.largest_over_mean)
      << absl::StrFormat(
             "segments whose replicas share a host: %d, a rack: %d (though "
             "another was left)\n",
             report.host_violations, report.rack_violations);
  return kExitDone;
}

int CheckRing(Session& session) {
  absl::StatusOr<std::shared_ptr<const Ring>> fetched = FetchRing(session);
  if (!fetched.ok()) return session.Fail(fetched.status());
  const Ring& ring = **fetched;
  std::vector<std::string> findings;
  Json views = Json::array();
  Table table({">#", "NAME", "CLIENTS", ">EPOCH", "VIEW"});
  // The newest epoch seen is what the others should have.
  RingEpoch newest = ring.epoch();
  struct View {
    const Member* member;
    absl::StatusOr<std::shared_ptr<const Ring>> ring;
  };
  std::vector<View> all;
  for (const Member& member : ring.spec().members) {
    all.push_back({&member, absl::UnknownError("")});
  }
  std::vector<std::thread> threads;
  const absl::Duration timeout =
      std::min(session.timeout_span(), absl::Seconds(5));
  for (View& view : all) {
    threads.emplace_back([&view, timeout] {
      view.ring = FetchRing(view.member->client_address, timeout);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::shared_ptr<const Ring> reference = *fetched;
  for (const View& view : all) {
    if (view.ring.ok() && (*view.ring)->epoch() > newest) {
      newest = (*view.ring)->epoch();
      reference = *view.ring;
    }
  }
  for (const View& view : all) {
    std::string verdict;
    Json one = Json::object();
    one["node_number"] = ToInt(view.member->number);
    AddBytes("name", view.member->name, one);
    if (!view.ring.ok()) {
      verdict = absl::StrCat("no answer: ", view.ring.status().message());
    } else {
      one["ring_epoch"] = (*view.ring)->epoch();
      if ((*view.ring)->epoch() != newest) {
        verdict = absl::StrCat("behind: the newest is ", newest);
      } else if (!((*view.ring)->spec() == reference->spec())) {
        verdict = "differs at the same epoch";
      } else {
        verdict = "agrees";
      }
    }
    if (verdict != "agrees") {
      findings.push_back(
          absl::StrCat(Printable(view.member->name), ": ", verdict));
    }
    one["view"] = verdict;
    views.push_back(std::move(one));
    table.Row({absl::StrCat(ToInt(view.member->number)),
               Printable(view.member->name), view.member->client_address,
               view.ring.ok() ? absl::StrCat((*view.ring)->epoch()) : "?",
               verdict});
  }
  // Every N that a keyspace has, once.
  Json placements = Json::array();
  std::string lines;
  std::set<uint32_t> ns;
  for (const Keyspace& keyspace : reference->spec().keyspaces) {
    const uint32_t n = reference->EffectiveN(keyspace);
    if (!ns.insert(n).second) continue;
    const PlacementReport report = Inspect(*reference, n);
    placements.push_back(ReportJson(*reference, report, n));
    absl::StrAppend(
        &lines,
        absl::StrFormat("N=%d: coefficient of variation %.3f %%, largest/mean "
                        "%.4f, %d segments share a host, %d a rack\n",
                        n, report.coefficient_of_variation * 100,
                        report.largest_over_mean, report.host_violations,
                        report.rack_violations));
    if (report.host_violations > 0 || report.rack_violations > 0) {
      findings.push_back(absl::StrCat(
          "N=", n, ": ", report.host_violations + report.rack_violations,
          " segments have replicas that share a host or rack"));
    }
  }
  if (session.json()) {
    Json json = Json::object();
    json["ring_epoch"] = newest;
    json["ok"] = findings.empty();
    json["views"] = std::move(views);
    json["placements"] = std::move(placements);
    json["findings"] = findings;
    session.Print(json);
  } else {
    session.streams.out << table.ToString() << "\n" << lines;
    for (const std::string& finding : findings) {
      session.streams.out << "finding: " << finding << "\n";
    }
    session.streams.out << (findings.empty() ? "the ring is as it should be\n"
                                             : "");
  }
  return findings.empty() ? kExitDone : kExitFailed;
}

// --- hints ---

int ShowHints(Session& session) {
  v1::HintsResponse hints;
  AdminClient admin(session);
  absl::Status status = admin.Call(true, [&](auto& stub, auto& context) {
    hints.Clear();
    return stub.Hints(&context, v1::HintsRequest(), &hints);
  });
  if (!status.ok()) return session.Fail(status);
  // Names make the table readable; numbers alone do if nobody gives a ring.
  absl::StatusOr<std::shared_ptr<const Ring>> ring = FetchRing(session);
  const auto name = [&ring](uint32_t number) {
    const Member* member =
        ring.ok() ? (*ring)->FindMember(NodeNumber{number}) : nullptr;
    return absl::StrCat(member == nullptr ? "" : Printable(member->name) + " ",
                        "#", number);
  };
  if (session.json()) {
    Json json = Json::object();
    json["backlogs"] = Json::array();
    for (const v1::HintBacklog& backlog : hints.backlogs()) {
      Json one = Json::object();
      one["holder"] = backlog.holder();
      one["target"] = backlog.target();
      one["hints"] = backlog.hints();
      one["bytes"] = backlog.bytes();
      one["oldest_ms"] = backlog.oldest_ms();
      one["refused"] = backlog.refused();
      one["rate"] = backlog.rate();
      json["backlogs"].push_back(std::move(one));
    }
    json["unheard"] = Json::array();
    for (const uint32_t number : hints.unheard()) {
      json["unheard"].push_back(number);
    }
    session.Print(json);
    return kExitDone;
  }
  Table table({"HOLDER", "TARGET", ">HINTS", ">BYTES", ">OLDEST", ">REFUSED",
               ">PER SECOND", ">LEFT"});
  uint64_t sum = 0;
  for (const v1::HintBacklog& backlog : hints.backlogs()) {
    sum += backlog.hints();
    const bool moves = backlog.rate() > 0.05 && backlog.hints() > 0;
    table.Row({name(backlog.holder()), name(backlog.target()),
               FormatCount(backlog.hints()), FormatBytes(backlog.bytes()),
               backlog.hints() == 0
                   ? "-"
                   : FormatSpan(absl::Milliseconds(backlog.oldest_ms())),
               FormatCount(backlog.refused()),
               absl::StrFormat("%.1f", backlog.rate()),
               moves
                   ? FormatSpan(absl::Seconds(
                         static_cast<double>(backlog.hints()) / backlog.rate()))
                   : "-"});
  }
  std::ostream& out = session.streams.out;
  if (hints.backlogs_size() > 0) out << table.ToString() << "\n";
  out << (sum == 0 ? "no hints wait\n" : FormatCount(sum) + " hints wait\n");
  for (const uint32_t number : hints.unheard()) {
    out << "not heard from: " << name(number)
        << " (what it holds is not counted)\n";
  }
  return kExitDone;
}

}  // namespace

void AddClusterCommands(CLI::App& app, Session& session) {
  {
    auto arguments = std::make_shared<InitArguments>();
    CLI::App& command = *app.add_subcommand(
        "init", "form a cluster out of the nodes that found each other");
    command
        .add_option("--nodes", arguments->nodes,
                    "how many there must be; waits for them")
        ->check(CLI::Range(1, 10000));
    AddSwitch(command, "--yes", arguments->yes, "however many there are");
    command
        .add_option("--placement", arguments->placement,
                    "how tokens are chosen: balanced or hashed")
        ->check(CLI::IsMember({"balanced", "hashed"}))
        ->capture_default_str();
    command
        .add_option("--vnodes", arguments->vnodes,
                    "tokens of a node of weight 1, for hashed; 0: 256")
        ->check(CLI::Range(1, 65536));
    command
        .add_option("--wait", arguments->wait, "how long to wait for --nodes")
        ->check(SpanValidator())
        ->capture_default_str();
    command.callback([&session, arguments] {
      session.run = [&session, arguments] { return Init(session, *arguments); };
    });
  }
  {
    CLI::App& command = *app.add_subcommand(
        "status", "the nodes and their state; exit code 4 degraded, 5 unknown");
    command.callback([&session] {
      session.run = [&session] { return ShowStatus(session); };
    });
  }
  {
    auto keyspace = std::make_shared<std::string>("default");
    CLI::App& command = *app.add_subcommand(
        "ring", "members, tokens, shares, and how even the placement is");
    command
        .add_option("--keyspace", *keyspace, "the keyspace whose N is shown")
        ->capture_default_str();
    command.require_subcommand(0, 1);
    command.callback([&session, keyspace] {
      if (session.run) return;  // ring check
      session.run = [&session, keyspace] {
        return ShowRing(session, *keyspace);
      };
    });
    CLI::App& check = *command.add_subcommand(
        "check", "compare every node's ring and look for violations");
    check.fallthrough();
    check.callback([&session] {
      session.run = [&session] { return CheckRing(session); };
    });
  }
  {
    CLI::App& command =
        *app.add_subcommand("hints", "hints that wait for delivery");
    command.callback([&session] {
      session.run = [&session] { return ShowHints(session); };
    });
  }
}

}  // namespace ringkv
