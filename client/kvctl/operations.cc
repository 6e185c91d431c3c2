// kvctl join, decommission, remove-dead, replace, weight, plan, operations,
// abort.

#include "client/kvctl/operations.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/kvctl/signals.h"
#include "client/progress.h"
#include "client/timer_queue.h"

namespace ringkv {
namespace {

constexpr auto kPollEvery = std::chrono::milliseconds(500);
// Nodes may restart, and one that leaves stops: others are asked then.
constexpr absl::Duration kSilenceBorne = absl::Seconds(30);
constexpr absl::string_view kWatchAgain =
    "watch it with kvctl operations --watch; before its switch kvctl abort "
    "takes it back";

// Values are the same in both.
const char* KindName(v1::TopologyKind kind) {
  return v1::TopologyKind_IsValid(kind)
             ? NameOf(static_cast<TopologyKind>(kind))
             : "unknown";
}

const char* StateName(v1::OperationState state) {
  switch (state) {
    case v1::OPERATION_STATE_STARTING:
      return "starting";
    case v1::OPERATION_STATE_STREAMING:
      return "streaming";
    case v1::OPERATION_STATE_SWITCHING:
      return "switching";
    case v1::OPERATION_STATE_DONE:
      return "done";
    case v1::OPERATION_STATE_ABORTED:
      return "aborted";
    default:
      return "unknown";
  }
}

std::string RefText(const v1::NodeRef& node) {
  return node.name().empty() ? absl::StrCat("#", node.node_number())
                             : Printable(node.name());
}

Json RefJson(const v1::NodeRef& node) {
  Json json = Json::object();
  json["node_number"] = node.node_number();
  AddBytes("name", node.name(), json);
  return json;
}

struct Totals {
  uint64_t ranges = 0;
  uint64_t ranges_done = 0;
  uint64_t keys = 0;
  uint64_t bytes = 0;
};

Totals TotalsOf(const v1::OperationStatus& operation) {
  Totals totals;
  for (const v1::OperationProgress& node : operation.progress()) {
    totals.ranges += node.ranges();
    totals.ranges_done += node.ranges_done();
    totals.keys += node.keys();
    totals.bytes += node.bytes();
  }
  return totals;
}

std::string WaitsText(const v1::OperationStatus& operation, size_t max) {
  std::vector<std::string> waits;
  for (const v1::OperationWait& wait : operation.waits()) {
    if (waits.size() == max) {
      waits.push_back(absl::StrCat(
          static_cast<size_t>(operation.waits_size()) - max, " more"));
      break;
    }
    const bool all = wait.node().node_number() == 0;
    waits.push_back(
        all ? Printable(wait.why())
            : absl::StrCat(RefText(wait.node()), " ", Printable(wait.why())));
  }
  return absl::StrJoin(waits, "; ");
}

// --- Plans ---

struct OperationArguments {
  v1::TopologyKind kind = v1::TOPOLOGY_KIND_JOIN;
  std::vector<std::string> nodes;
  std::string replacement;
  double weight = 1;
  bool allow_fewer_replicas = false;
  bool accept_data_loss = false;
  bool plan_only = false;
  bool yes = false;
  bool wait = true;
  bool no_progress = false;
};

v1::StartOperationRequest RequestOf(const OperationArguments& arguments) {
  v1::StartOperationRequest request;
  request.set_kind(arguments.kind);
  for (const std::string& node : arguments.nodes) request.add_nodes(node);
  if (!arguments.replacement.empty()) {
    request.add_replacements(arguments.replacement);
  }
  if (arguments.kind == v1::TOPOLOGY_KIND_WEIGHT) {
    request.set_weight(arguments.weight);
  }
  request.set_allow_fewer_replicas(arguments.allow_fewer_replicas);
  request.set_accept_data_loss(arguments.accept_data_loss);
  return request;
}

int Run(Session& session, const OperationArguments& arguments) {
  v1::StartOperationRequest request = RequestOf(arguments);
  request.set_dry_run(true);
  v1::StartOperationResponse response;
  AdminClient admin(session);
  absl::Status status = admin.Call(true, [&](auto& stub, auto& context) {
    response.Clear();
    return stub.StartOperation(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  if (arguments.plan_only) {
    if (session.json()) {
      session.Print(PlanJson(response.plan()));
    } else {
      session.streams.out << PlanText(response.plan());
    }
    return kExitDone;
  }
  if (!arguments.yes) {
    if (!session.json()) session.streams.out << PlanText(response.plan());
    const int agreed =
        Confirm(session, "Do this?",
                "nothing was done; this is the plan, if you agree with it: add "
                "--yes");
    if (agreed != kExitDone) return agreed;
  }
  request.set_dry_run(false);
  request.set_planned_for(response.plan().epoch());
  status = admin.Call(false, [&](auto& stub, auto& context) {
    response.Clear();
    return stub.StartOperation(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  const uint64_t id = response.operation();
  if (!session.json()) {
    session.streams.out << KindName(response.plan().kind()) << " of "
                        << RefsText(response.plan().nodes())
                        << " started: operation " << id << std::endl;
  }
  if (arguments.wait) {
    return WatchOperation(session, id, arguments.no_progress);
  }
  if (session.json()) {
    Json json = Json::object();
    json["operation"] = id;
    json["plan"] = PlanJson(response.plan());
    session.Print(json);
  } else {
    session.streams.out << kWatchAgain << "\n";
  }
  return kExitDone;
}

// --- Progress ---

absl::Status FetchOperations(AdminClient& admin,
                             v1::OperationsResponse& response) {
  return admin.Call(true, [&](auto& stub, auto& context) {
    response.Clear();
    return stub.Operations(&context, v1::OperationsRequest(), &response);
  });
}

// The endpoint that was given may be the node that leaves.
void AddMembersToEndpoints(Session& session) {
  const absl::StatusOr<std::shared_ptr<const Ring>> ring = FetchRing(session);
  if (!ring.ok()) return;
  for (const Member& member : (*ring)->spec().members) {
    if (!absl::StrContains(session.endpoints, member.client_address)) {
      absl::StrAppend(&session.endpoints, ",", member.client_address);
    }
  }
}

int ShowEnd(Session& session, const v1::OperationStatus& operation) {
  const bool done = operation.state() == v1::OPERATION_STATE_DONE;
  if (session.json()) {
    session.Print(OperationJson(operation));
  } else {
    session.streams.out << Subject(operation)
                        << (done ? " is done" : " was aborted");
    if (operation.started_ms() > 0) {
      session.streams.out << " after "
                          << FormatSpan(
                                 absl::Milliseconds(operation.ended_ms() -
                                                    operation.started_ms()));
    }
    if (const Totals totals = TotalsOf(operation); totals.keys > 0) {
      session.streams.out << ": " << FormatCount(totals.keys) << " keys, "
                          << FormatBytes(totals.bytes) << " moved";
    }
    session.streams.out << "\n";
  }
  return done ? kExitDone : kExitFailed;
}

int ShowOperations(Session& session, bool watch, bool no_progress) {
  v1::OperationsResponse response;
  AdminClient admin(session);
  const absl::Status status = FetchOperations(admin, response);
  if (!status.ok()) return session.Fail(status);
  if (watch && response.has_running()) {
    return WatchOperation(session, response.running().id(), no_progress);
  }
  if (session.json()) {
    Json json = Json::object();
    json["ring_epoch"] = response.ring_epoch();
    json["running"] = response.has_running() ? OperationJson(response.running())
                                             : Json(nullptr);
    json["finished"] = Json::array();
    for (const v1::OperationStatus& operation : response.finished()) {
      json["finished"].push_back(OperationJson(operation));
    }
    session.Print(json);
    return kExitDone;
  }
  std::ostream& out = session.streams.out;
  if (response.has_running()) {
    const v1::OperationStatus& running = response.running();
    out << Subject(running) << " (operation " << running.id()
        << "): " << ProgressText(running) << "\n";
    if (running.progress_size() > 0) {
      Table table({"NODE", "STATE", ">RANGES", ">DONE", ">KEYS", ">BYTES"});
      for (const v1::OperationProgress& node : running.progress()) {
        table.Row({RefText(node.node()),
                   node.done()    ? "done"
                   : node.alive() ? "receives"
                                  : "down",
                   FormatCount(node.ranges()), FormatCount(node.ranges_done()),
                   FormatCount(node.keys()), FormatBytes(node.bytes())});
      }
      out << "\n" << table.ToString();
    }
  } else {
    out << "no operation runs\n";
  }
  if (response.finished_size() > 0) {
    Table table({">ID", "OPERATION", "STATE", "ENDED", ">TOOK"});
    for (const v1::OperationStatus& operation : response.finished()) {
      table.Row({absl::StrCat(operation.id()), Subject(operation),
                 StateName(operation.state()),
                 absl::FormatTime("%Y-%m-%dT%H:%M:%SZ",
                                  absl::FromUnixMillis(operation.ended_ms()),
                                  absl::UTCTimeZone()),
                 operation.started_ms() == 0
                     ? "?"
                     : FormatSpan(absl::Milliseconds(operation.ended_ms() -
                                                     operation.started_ms()))});
    }
    out << "\n" << table.ToString();
  }
  return kExitDone;
}

int Abort(Session& session, bool yes) {
  v1::OperationsResponse operations;
  AdminClient admin(session);
  absl::Status status = FetchOperations(admin, operations);
  if (!status.ok()) return session.Fail(status);
  if (!operations.has_running()) {
    return session.Fail(absl::FailedPreconditionError("no operation runs"));
  }
  const std::string subject = Subject(operations.running());
  if (!yes) {
    const int agreed =
        Confirm(session, absl::StrCat("Abort the ", subject, "?"),
                absl::StrCat("nothing was done; to abort the ", subject,
                             " and go back to the old ring: add --yes"));
    if (agreed != kExitDone) return agreed;
  }
  v1::AbortOperationRequest request;
  request.set_operation(operations.running().id());
  v1::AbortOperationResponse response;
  status = admin.Call(false, [&](auto& stub, auto& context) {
    return stub.AbortOperation(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    Json json = Json::object();
    json["operation"] = request.operation();
    json["ring_epoch"] = response.ring_epoch();
    session.Print(json);
  } else {
    session.streams.out << subject << " is aborted; ring epoch "
                        << response.ring_epoch() << "\n";
  }
  return kExitDone;
}

}  // namespace

std::string RefsText(const NodeRefs& nodes) {
  std::vector<std::string> names;
  for (const v1::NodeRef& node : nodes) names.push_back(RefText(node));
  return absl::StrJoin(names, ", ");
}

Json RefsJson(const NodeRefs& nodes) {
  Json json = Json::array();
  for (const v1::NodeRef& node : nodes) json.push_back(RefJson(node));
  return json;
}

Json PlanJson(const v1::OperationPlan& plan) {
  Json json = Json::object();
  json["kind"] = KindName(plan.kind());
  json["ring_epoch"] = plan.epoch();
  json["nodes"] = RefsJson(plan.nodes());
  json["transfers"] = Json::array();
  for (const v1::PlannedTransfer& transfer : plan.transfers()) {
    Json one = Json::object();
    one["from"] = RefJson(transfer.from());
    one["to"] = RefJson(transfer.to());
    one["ranges"] = transfer.ranges();
    one["estimated_bytes"] = transfer.bytes();
    json["transfers"].push_back(std::move(one));
  }
  json["shares"] = Json::array();
  for (const v1::PlannedShare& share : plan.shares()) {
    Json one = RefJson(share.node());
    one["before"] = share.before();
    one["after"] = share.after();
    json["shares"].push_back(std::move(one));
  }
  json["largest_over_fair"] = {{"before", plan.largest_over_fair_before()},
                               {"after", plan.largest_over_fair_after()}};
  json["warnings"] = Json::array();
  for (const std::string& warning : plan.warnings()) {
    json["warnings"].push_back(Printable(warning));
  }
  return json;
}

std::string PlanText(const v1::OperationPlan& plan) {
  std::string text =
      absl::StrCat(KindName(plan.kind()), " of ", RefsText(plan.nodes()),
                   ", in ring epoch ", plan.epoch(), "\n\n");
  uint64_t ranges = 0;
  uint64_t bytes = 0;
  Table transfers({"FROM", "TO", ">RANGES", ">BYTES~"});
  for (const v1::PlannedTransfer& transfer : plan.transfers()) {
    ranges += transfer.ranges();
    bytes += transfer.bytes();
    transfers.Row({RefText(transfer.from()), RefText(transfer.to()),
                   FormatCount(transfer.ranges()),
                   FormatBytes(transfer.bytes())});
  }
  if (ranges == 0) {
    absl::StrAppend(&text, "nothing moves\n\n");
  } else {
    absl::StrAppend(&text, transfers.ToString(), "in all ", FormatCount(ranges),
                    " ranges, about ", FormatBytes(bytes), "\n\n");
  }
  Table shares({"NODE", ">OWNS NOW", ">OWNS AFTER"});
  for (const v1::PlannedShare& share : plan.shares()) {
    shares.Row({RefText(share.node()),
                share.before() > 0 ? Percent(share.before()) : "-",
                share.after() > 0 ? Percent(share.after()) : "-"});
  }
  absl::StrAppend(
      &text, shares.ToString(),
      absl::StrFormat("largest part over fair part: %.4f now, %.4f after\n",
                      plan.largest_over_fair_before(),
                      plan.largest_over_fair_after()));
  for (const std::string& warning : plan.warnings()) {
    absl::StrAppend(&text, "warning: ", Printable(warning), "\n");
  }
  return text;
}

std::string Subject(const v1::OperationStatus& operation) {
  if (!operation.keyspace().empty()) {
    return absl::StrCat("change of keyspace ", Printable(operation.keyspace()));
  }
  std::string text = absl::StrCat(KindName(operation.kind()), " of ");
  if (operation.replaced_size() > 0) {
    return absl::StrCat(text, RefsText(operation.replaced()), " by ",
                        RefsText(operation.nodes()));
  }
  return absl::StrCat(text, RefsText(operation.nodes()));
}

std::string ProgressText(const v1::OperationStatus& operation) {
  std::string text = StateName(operation.state());
  const Totals totals = TotalsOf(operation);
  if (totals.ranges > 0) {
    absl::StrAppend(&text, ", ", FormatCount(totals.ranges_done), " of ",
                    FormatCount(totals.ranges), " ranges");
  }
  const std::string waits = WaitsText(operation, 3);
  if (!waits.empty()) absl::StrAppend(&text, "; waits: ", waits);
  return text;
}

Json OperationJson(const v1::OperationStatus& operation) {
  Json json = Json::object();
  json["operation"] = operation.id();
  json["kind"] = KindName(operation.kind());
  json["state"] = StateName(operation.state());
  json["nodes"] = RefsJson(operation.nodes());
  json["replaced"] = RefsJson(operation.replaced());
  json["keyspace"] = Printable(operation.keyspace());
  json["started_ms"] = operation.started_ms();
  json["ended_ms"] = operation.ended_ms();
  json["progress"] = Json::array();
  for (const v1::OperationProgress& node : operation.progress()) {
    Json one = RefJson(node.node());
    one["alive"] = node.alive();
    one["ranges"] = node.ranges();
    one["ranges_done"] = node.ranges_done();
    one["keys"] = node.keys();
    one["bytes"] = node.bytes();
    one["done"] = node.done();
    json["progress"].push_back(std::move(one));
  }
  json["waits"] = Json::array();
  for (const v1::OperationWait& wait : operation.waits()) {
    Json one = RefJson(wait.node());
    one["why"] = Printable(wait.why());
    json["waits"].push_back(std::move(one));
  }
  return json;
}

int WatchOperation(Session& session, uint64_t id, bool no_progress) {
  AddMembersToEndpoints(session);
  const SignalWatch signals;
  Progress progress(session.streams.err,
                    no_progress                       ? Progress::Style::kNone
                    : session.streams.err_is_terminal ? Progress::Style::kBar
                                                      : Progress::Style::kLines,
                    absl::StrCat("operation ", id), Now(),
                    Progress::Unit::kRanges);
  AdminClient admin(session);
  v1::OperationsResponse response;
  Instant heard = Now();
  while (true) {
    const absl::Status status = FetchOperations(admin, response);
    if (status.ok()) {
      heard = Now();
      if (response.has_running() && response.running().id() == id) {
        const Totals totals = TotalsOf(response.running());
        progress.Update(
            Now(), totals.ranges_done, totals.ranges, totals.keys,
            absl::StrCat(FormatBytes(totals.bytes), ", ",
                         StateName(response.running().state()),
                         "; waits: ", WaitsText(response.running(), 1)));
      } else {
        progress.Finish();
        for (const v1::OperationStatus& operation : response.finished()) {
          if (operation.id() == id) return ShowEnd(session, operation);
        }
        // A node that is behind, or was started since, has not seen the end.
        if (response.ring_epoch() > id) {
          return session.Fail(absl::UnknownError(
              absl::StrCat("operation ", id,
                           " is over, but the node that answers was "
                           "started since and does not know how it ended: see "
                           "kvctl status")));
        }
      }
    } else if (Now() - heard > kSilenceBorne) {
      progress.Finish();
      return session.Fail(absl::Status(
          status.code(),
          absl::StrCat("operation ", id, " may still run, but nobody answers: ",
                       status.message(), "; ", kWatchAgain)));
    }
    if (SignalWatch::Fired() != 0) {
      progress.Finish();
      session.Note(absl::StrCat("operation ", id, " goes on without kvctl; ",
                                kWatchAgain));
      return kExitFailed;
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

namespace {

void AddCommon(CLI::App& command, Session& session,
               const std::shared_ptr<OperationArguments>& arguments,
               bool plan_only) {
  arguments->plan_only = plan_only;
  command.fallthrough();
  AddSwitch(command, "--allow-fewer-replicas", arguments->allow_fewer_replicas,
            "go on even if fewer nodes or racks than N are left");
  if (arguments->kind == v1::TOPOLOGY_KIND_REMOVE_DEAD ||
      arguments->kind == v1::TOPOLOGY_KIND_REPLACE) {
    AddSwitch(command, "--accept-data-loss", arguments->accept_data_loss,
              "go on without writes that only the dead nodes may have had");
  }
  if (!plan_only) {
    AddSwitch(command, "--yes", arguments->yes, "do not ask");
    command.add_flag("--wait,!--no-wait", arguments->wait,
                     "stay until it is done (as it is by default)");
    AddSwitch(command, "--no-progress", arguments->no_progress,
              "do not show progress");
  }
  command.callback([&session, arguments] {
    session.run = [&session, arguments] { return Run(session, *arguments); };
  });
}

void AddOperations(CLI::App& parent, Session& session, bool plan_only) {
  struct Named {
    const char* name;
    v1::TopologyKind kind;
    const char* what;
    const char* nodes;
  };
  constexpr Named kNamed[] = {
      {"join", v1::TOPOLOGY_KIND_JOIN, "take standby nodes into the ring",
       "name, peer address or id of each node that joins"},
      {"decommission", v1::TOPOLOGY_KIND_DECOMMISSION,
       "hand over what nodes hold, and let them leave",
       "name, number or address of each node that leaves"},
      {"remove-dead", v1::TOPOLOGY_KIND_REMOVE_DEAD,
       "take nodes out that are stopped for good",
       "name, number or address of each dead node"},
  };
  for (const Named& named : kNamed) {
    auto arguments = std::make_shared<OperationArguments>();
    arguments->kind = named.kind;
    CLI::App& command = *parent.add_subcommand(named.name, named.what);
    command.add_option("NODE", arguments->nodes, named.nodes)->required();
    AddCommon(command, session, arguments, plan_only);
  }
  {
    auto arguments = std::make_shared<OperationArguments>();
    arguments->kind = v1::TOPOLOGY_KIND_REPLACE;
    arguments->nodes.emplace_back();
    CLI::App& command = *parent.add_subcommand(
        "replace", "let a standby node take the place of a dead one");
    command
        .add_option("DEAD", arguments->nodes.front(),
                    "name, number or address of the dead node")
        ->required();
    command
        .add_option("NEW", arguments->replacement,
                    "name, peer address or id of the new node")
        ->required();
    AddCommon(command, session, arguments, plan_only);
  }
  {
    auto arguments = std::make_shared<OperationArguments>();
    arguments->kind = v1::TOPOLOGY_KIND_WEIGHT;
    arguments->nodes.emplace_back();
    CLI::App& command = *parent.add_subcommand(
        "weight", "change how much of the data a node holds");
    command
        .add_option("NODE", arguments->nodes.front(),
                    "name, number or address of the node")
        ->required();
    command
        .add_option("WEIGHT", arguments->weight,
                    "above 0, up to 64; others have 1 unless told otherwise")
        ->required()
        ->check(CLI::PositiveNumber);
    AddCommon(command, session, arguments, plan_only);
  }
}

}  // namespace

void AddOperationCommands(CLI::App& app, Session& session) {
  AddOperations(app, session, /*plan_only=*/false);
  CLI::App& plan = *app.add_subcommand(
      "plan", "show what an operation would move, and change nothing");
  plan.require_subcommand(1);
  plan.fallthrough();
  AddOperations(plan, session, /*plan_only=*/true);
  {
    auto watch = std::make_shared<bool>(false);
    auto no_progress = std::make_shared<bool>(false);
    CLI::App& command = *app.add_subcommand(
        "operations", "the change of the cluster that runs, and the last ones");
    AddSwitch(command, "--watch", *watch, "stay until it is done");
    AddSwitch(command, "--no-progress", *no_progress, "do not show progress");
    command.callback([&session, watch, no_progress] {
      session.run = [&session, watch, no_progress] {
        return ShowOperations(session, *watch, *no_progress);
      };
    });
  }
  {
    auto yes = std::make_shared<bool>(false);
    CLI::App& command = *app.add_subcommand(
        "abort", "take the running operation back, before its switch");
    AddSwitch(command, "--yes", *yes, "do not ask");
    command.callback([&session, yes] {
      session.run = [&session, yes] { return Abort(session, *yes); };
    });
  }
}

}  // namespace ringkv
