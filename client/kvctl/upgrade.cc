// kvctl recover, upgrade.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/kvctl/command.h"
#include "client/kvctl/operations.h"

namespace ringkv {
namespace {

// --- recover ---

struct RecoverArguments {
  std::vector<std::string> survivors;
  bool unsafe = false;
  bool yes = false;
  bool wait = true;
  bool no_progress = false;
};

std::string RecoveryText(const v1::RecoverResponse& response) {
  std::string text =
      absl::StrCat("The ring of epoch ", response.ring_epoch(),
                   " is rebuilt with ", RefsText(response.survivors()),
                   "\nand without ", RefsText(response.lost()), ".\n\n");
  if (response.plan().shares_size() > 0) {
    absl::StrAppend(&text, PlanText(response.plan()));
  } else {
    for (const std::string& warning : response.plan().warnings()) {
      absl::StrAppend(&text, "warning: ", Printable(warning), "\n");
    }
  }
  return text;
}

Json RecoveryJson(const v1::RecoverResponse& response) {
  Json json = Json::object();
  json["ring_epoch"] = response.ring_epoch();
  json["survivors"] = RefsJson(response.survivors());
  json["lost"] = RefsJson(response.lost());
  json["plan"] = PlanJson(response.plan());
  if (response.lineage() != 0) {
    json["lineage"] = absl::StrFormat("%016x", response.lineage());
    json["operation"] = response.operation();
  }
  return json;
}

int Recover(Session& session, const RecoverArguments& arguments) {
  if (!arguments.unsafe) {
    session.Note(
        "recover may lose acknowledged writes, and is only for a cluster that "
        "has lost a majority of its nodes for good; if that is so, add "
        "--unsafe");
    return kExitUsage;
  }
  v1::RecoverRequest request;
  for (const std::string& node : arguments.survivors) {
    request.add_survivors(node);
  }
  request.set_dry_run(true);
  AdminClient admin(session);
  v1::RecoverResponse response;
  absl::Status status = admin.Call(true, [&](auto& stub, auto& context) {
    response.Clear();
    return stub.Recover(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  if (!session.json()) session.streams.out << RecoveryText(response);
  if (!arguments.yes) {
    const int agreed = Confirm(
        session,
        absl::StrCat("Are the disks of ", RefsText(response.lost()),
                     " lost for good, and shall the ring go on without them?"),
        absl::StrCat(
            "nothing was done; if the disks of ", RefsText(response.lost()),
            " are lost for good, and the ring is to go on without them and "
            "what only they had: add --yes"));
    if (agreed != kExitDone) return agreed;
  }
  request.set_dry_run(false);
  request.set_planned_for(response.ring_epoch());
  request.clear_survivors();
  for (const v1::NodeRef& node : response.survivors()) {
    request.add_survivors(absl::StrCat(node.node_number()));
  }
  // Only the node that made the plan.
  session.endpoints = admin.answered();
  status = admin.Call(false, [&](auto& stub, auto& context) {
    response.Clear();
    return stub.Recover(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.Print(RecoveryJson(response));
    return kExitDone;
  }
  session.streams.out << "recovered: ring epoch " << response.ring_epoch()
                      << ", lineage "
                      << absl::StrFormat("%016x", response.lineage()) << "\n"
                      << std::flush;
  if (response.operation() == 0) return kExitDone;
  session.streams.out << "taking " << RefsText(response.lost())
                      << " out of the ring: operation " << response.operation()
                      << std::endl;
  if (!arguments.wait) return kExitDone;
  return WatchOperation(session, response.operation(), arguments.no_progress);
}

// --- upgrade ---

int UpgradeStatus(Session& session) {
  AdminClient admin(session);
  v1::StatusResponse status;
  const absl::Status asked = admin.Call(true, [&](auto& stub, auto& context) {
    status.Clear();
    return stub.Status(&context, v1::StatusRequest(), &status);
  });
  if (!asked.ok()) return session.Fail(asked);
  if (status.cluster_id().empty()) {
    return session.Fail(absl::FailedPreconditionError(
        "no cluster was formed yet; run kvctl init"));
  }
  uint32_t newest = 0;
  uint32_t common = UINT32_MAX;
  std::vector<std::string> away;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.node_number() == 0) continue;
    const bool heard = node.state() == v1::NODE_STATE_ALIVE ||
                       node.state() == v1::NODE_STATE_DRAINING;
    if (!heard) away.push_back(Printable(node.name()));
    if (node.feature_level_max() == 0) continue;
    newest = std::max(newest, node.feature_level_max());
    common = std::min(common, node.feature_level_max());
  }
  common = std::min(common, newest);
  if (session.json()) {
    Json json = Json::object();
    json["feature_level"] = status.feature_level();
    json["known_to_all"] = common;
    json["known_to_any"] = newest;
    json["not_heard"] = away;
    json["nodes"] = Json::array();
    for (const v1::NodeStatus& node : status.nodes()) {
      Json one = Json::object();
      one["node_number"] = node.node_number();
      AddBytes("name", node.name(), one);
      one["version"] = Printable(node.version());
      one["feature_level_max"] = node.feature_level_max();
      json["nodes"].push_back(std::move(one));
    }
    session.Print(json);
    return kExitDone;
  }
  Table table({">#", "NAME", "VERSION", ">KNOWS LEVEL"});
  for (const v1::NodeStatus& node : status.nodes()) {
    table.Row({CountOrDash(node.node_number()), Printable(node.name()),
               node.version().empty() ? "?" : Printable(node.version()),
               node.feature_level_max() == 0
                   ? "?"
                   : absl::StrCat(node.feature_level_max())});
  }
  std::ostream& out = session.streams.out;
  out << table.ToString() << "\nthe ring has feature level "
      << status.feature_level();
  if (!away.empty()) {
    out << "; what " << absl::StrJoin(away, ", ")
        << " will know is not sure: not heard now\n";
  } else if (common > status.feature_level()) {
    out << ", and every member knows " << common
        << ": kvctl upgrade finish raises it\n";
  } else if (newest > status.feature_level()) {
    out << "; level " << newest << " is possible once every member knows it\n";
  } else {
    out << ", the newest that its members know\n";
  }
  return kExitDone;
}

struct FinishArguments {
  uint32_t level = 0;
  bool yes = false;
};

int FinishUpgrade(Session& session, const FinishArguments& arguments) {
  if (!arguments.yes) {
    const int agreed = Confirm(
        session,
        "Raise the feature level? Older programs cannot be started again then.",
        "nothing was done; there is no way back to older programs once the "
        "feature level is raised: add --yes if you agree");
    if (agreed != kExitDone) return agreed;
  }
  v1::FinishUpgradeRequest request;
  request.set_level(arguments.level);
  v1::FinishUpgradeResponse response;
  AdminClient admin(session);
  const absl::Status status = admin.Call(false, [&](auto& stub, auto& context) {
    return stub.FinishUpgrade(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    Json json = Json::object();
    json["feature_level"] = response.level();
    json["before"] = response.before();
    json["ring_epoch"] = response.ring_epoch();
    session.Print(json);
  } else if (response.level() == response.before()) {
    session.streams.out << "the ring has feature level " << response.level()
                        << " already\n";
  } else {
    session.streams.out << "feature level " << response.level() << ", was "
                        << response.before() << "; ring epoch "
                        << response.ring_epoch() << "\n";
  }
  return kExitDone;
}

}  // namespace

void AddUpgradeCommands(CLI::App& app, Session& session) {
  {
    auto arguments = std::make_shared<RecoverArguments>();
    CLI::App& command = *app.add_subcommand(
        "recover",
        "rebuild the ring around what is left of it, when most nodes are lost "
        "for good");
    command.fallthrough();
    command.add_option("SURVIVOR", arguments->survivors,
                       "name, number or address of each node that is left; "
                       "without them, all that the asked node hears");
    AddSwitch(command, "--unsafe", arguments->unsafe,
              "writes that only lost nodes had are lost, and I know it");
    AddSwitch(command, "--yes", arguments->yes, "do not ask");
    command.add_flag("--wait,!--no-wait", arguments->wait,
                     "stay until it is done (as it is by default)");
    AddSwitch(command, "--no-progress", arguments->no_progress,
              "do not show progress");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] {
        return Recover(session, *arguments);
      };
    });
  }
  CLI::App& upgrade = *app.add_subcommand(
      "upgrade", "what the members know, and the end of a rolling upgrade");
  upgrade.require_subcommand(1);
  upgrade.fallthrough();
  {
    CLI::App& command = *upgrade.add_subcommand(
        "status", "the feature levels that members know");
    command.fallthrough();
    command.callback([&session] {
      session.run = [&session] { return UpgradeStatus(session); };
    });
  }
  {
    auto arguments = std::make_shared<FinishArguments>();
    CLI::App& command = *upgrade.add_subcommand(
        "finish", "raise the ring's feature level, once every member knows it");
    command.fallthrough();
    command
        .add_option("--level", arguments->level,
                    "the level; without it, the newest that any member knows")
        ->check(CLI::PositiveNumber);
    AddSwitch(command, "--yes", arguments->yes, "do not ask");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] {
        return FinishUpgrade(session, *arguments);
      };
    });
  }
}

}  // namespace ringkv
