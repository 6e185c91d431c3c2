// kvctl keyspace create, alter, list, drop.

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/kvctl/command.h"
#include "client/kvctl/operations.h"

namespace ringkv {
namespace {

const char* ModeName(VersionMode mode) {
  return mode == VersionMode::kLww ? "lww" : "siblings";
}
const char* DurabilityName(Durability durability) {
  return durability == Durability::kSync ? "sync" : "interval";
}
const char* QuorumName(QuorumMode quorum) {
  return quorum == QuorumMode::kStrict ? "strict" : "sloppy";
}

Json KeyspaceJson(const v1::KeyspaceConfig& keyspace) {
  Json json = Json::object();
  json["id"] = keyspace.id();
  AddBytes("name", keyspace.name(), json);
  json["n"] = keyspace.n();
  json["r"] = keyspace.r();
  json["w"] = keyspace.w();
  json["mode"] = keyspace.mode() == v1::VERSION_MODE_LWW ? "lww" : "siblings";
  json["durability"] =
      keyspace.durability() == v1::DURABILITY_SYNC ? "sync" : "interval";
  json["quorum"] =
      keyspace.quorum() == v1::QUORUM_MODE_STRICT ? "strict" : "sloppy";
  json["changed_at"] = keyspace.changed_at();
  return json;
}

int PrintKeyspace(Session& session, absl::string_view verb,
                  const v1::KeyspaceResponse& response) {
  Json json = KeyspaceJson(response.keyspace());
  if (session.json()) {
    json["ring_epoch"] = response.ring_epoch();
    session.Print(json);
    return kExitDone;
  }
  session.streams.out << "keyspace " << Printable(response.keyspace().name())
                      << " " << verb << " (id " << response.keyspace().id()
                      << "): N=" << response.keyspace().n()
                      << " R=" << response.keyspace().r()
                      << " W=" << response.keyspace().w() << ", "
                      << json["mode"].get<std::string>() << ", "
                      << json["durability"].get<std::string>() << ", "
                      << json["quorum"].get<std::string>() << "; ring epoch "
                      << response.ring_epoch() << "\n";
  return kExitDone;
}

struct CreateArguments {
  std::string name;
  uint32_t n = 3;
  uint32_t r = 2;
  uint32_t w = 2;
  std::string mode = "siblings";
  std::string durability = "interval";
  std::string quorum = "sloppy";
};

int Create(Session& session, const CreateArguments& arguments) {
  v1::CreateKeyspaceRequest request;
  v1::KeyspaceConfig& keyspace = *request.mutable_keyspace();
  keyspace.set_name(arguments.name);
  keyspace.set_n(arguments.n);
  keyspace.set_r(arguments.r);
  keyspace.set_w(arguments.w);
  keyspace.set_mode(arguments.mode == "lww" ? v1::VERSION_MODE_LWW
                                            : v1::VERSION_MODE_SIBLINGS);
  keyspace.set_durability(arguments.durability == "sync"
                              ? v1::DURABILITY_SYNC
                              : v1::DURABILITY_INTERVAL);
  keyspace.set_quorum(arguments.quorum == "strict" ? v1::QUORUM_MODE_STRICT
                                                   : v1::QUORUM_MODE_SLOPPY);
  v1::KeyspaceResponse response;
  AdminClient admin(session);
  absl::Status status = admin.Call(false, [&](auto& stub, auto& context) {
    return stub.CreateKeyspace(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  return PrintKeyspace(session, "created", response);
}

struct AlterArguments {
  std::string name;
  uint32_t n = 0;
  uint32_t r = 0;
  uint32_t w = 0;
  std::string durability;
  std::string quorum;
  bool wait = true;
  bool no_progress = false;
};

int Alter(Session& session, const AlterArguments& arguments) {
  v1::AlterKeyspaceRequest request;
  request.set_name(arguments.name);
  if (!arguments.durability.empty()) {
    request.set_durability(arguments.durability == "sync"
                               ? v1::DURABILITY_SYNC
                               : v1::DURABILITY_INTERVAL);
  }
  if (!arguments.quorum.empty()) {
    request.set_quorum(arguments.quorum == "strict" ? v1::QUORUM_STRICT
                                                    : v1::QUORUM_SLOPPY);
  }
  if (arguments.n != 0) request.set_n(arguments.n);
  if (arguments.r != 0) request.set_r(arguments.r);
  if (arguments.w != 0) request.set_w(arguments.w);
  if (!request.has_durability() && !request.has_quorum() && !request.has_n() &&
      !request.has_r() && !request.has_w()) {
    session.Note("say what to change: --durability, --quorum, --n, --r or --w");
    return kExitUsage;
  }
  v1::KeyspaceResponse response;
  AdminClient admin(session);
  absl::Status status = admin.Call(false, [&](auto& stub, auto& context) {
    return stub.AlterKeyspace(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  if (response.operation() == 0) {
    return PrintKeyspace(session, "changed", response);
  }
  // Other N, R and W need replicas to be moved or quorums to be re-established.
  if (!session.json()) {
    session.streams.out << "keyspace " << Printable(arguments.name)
                        << " is being changed: operation "
                        << response.operation() << std::endl;
  }
  if (arguments.wait) {
    return WatchOperation(session, response.operation(), arguments.no_progress);
  }
  if (session.json()) {
    Json json = KeyspaceJson(response.keyspace());
    json["ring_epoch"] = response.ring_epoch();
    json["operation"] = response.operation();
    session.Print(json);
  }
  return kExitDone;
}

int List(Session& session) {
  absl::StatusOr<std::shared_ptr<const Ring>> ring = FetchRing(session);
  if (!ring.ok()) return session.Fail(ring.status());
  Json json = Json::object();
  json["ring_epoch"] = (*ring)->epoch();
  json["keyspaces"] = Json::array();
  Table table({">ID", "NAME", ">N", ">R", ">W", "MODE", "DURABILITY", "QUORUM",
               ">CHANGED AT"});
  for (const Keyspace& keyspace : (*ring)->spec().keyspaces) {
    Json one = Json::object();
    one["id"] = ToInt(keyspace.id);
    one["name"] = keyspace.name;
    one["n"] = keyspace.n;
    one["r"] = keyspace.r;
    one["w"] = keyspace.w;
    one["mode"] = ModeName(keyspace.mode);
    one["durability"] = DurabilityName(keyspace.durability);
    one["quorum"] = QuorumName(keyspace.quorum);
    one["changed_at"] = keyspace.changed_at;
    json["keyspaces"].push_back(std::move(one));
    table.Row({absl::StrCat(ToInt(keyspace.id)), keyspace.name,
               absl::StrCat(keyspace.n), absl::StrCat(keyspace.r),
               absl::StrCat(keyspace.w), ModeName(keyspace.mode),
               DurabilityName(keyspace.durability), QuorumName(keyspace.quorum),
               absl::StrCat(keyspace.changed_at)});
  }
  if (session.json()) {
    session.Print(json);
  } else {
    session.streams.out << table.ToString();
  }
  return kExitDone;
}

int Drop(Session& session, const std::string& name, bool yes) {
  if (!yes) {
    if (!session.streams.in_is_terminal) {
      return session.Fail(absl::FailedPreconditionError(
          absl::StrCat("nothing was done; dropping \"", Printable(name),
                       "\" deletes all its data for ever: add --yes")));
    }
    session.streams.out << "Drop \"" << Printable(name)
                        << "\" with all its data, for ever? Type its name: "
                        << std::flush;
    std::string answer;
    std::getline(session.streams.in, answer);
    if (answer != name) {
      session.Note("nothing was done");
      return kExitFailed;
    }
  }
  v1::DropKeyspaceRequest request;
  request.set_name(name);
  v1::DropKeyspaceResponse response;
  AdminClient admin(session);
  absl::Status status = admin.Call(false, [&](auto& stub, auto& context) {
    return stub.DropKeyspace(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    Json json = Json::object();
    AddBytes("name", name, json);
    json["ring_epoch"] = response.ring_epoch();
    session.Print(json);
  } else {
    session.streams.out << "keyspace " << Printable(name)
                        << " dropped; ring epoch " << response.ring_epoch()
                        << "\n";
  }
  return kExitDone;
}

}  // namespace

void AddKeyspaceCommands(CLI::App& app, Session& session) {
  CLI::App& keyspace = *app.add_subcommand("keyspace", "work with keyspaces");
  keyspace.require_subcommand(1);
  keyspace.fallthrough();
  {
    auto arguments = std::make_shared<CreateArguments>();
    CLI::App& command = *keyspace.add_subcommand("create", "make a keyspace");
    command.fallthrough();
    command
        .add_option("NAME", arguments->name,
                    "1 to 64 letters, digits, '_', '.' or '-'")
        ->required();
    command.add_option("--n", arguments->n, "replicas of each key")
        ->capture_default_str();
    command.add_option("--r", arguments->r, "replicas that a read waits for")
        ->capture_default_str();
    command.add_option("--w", arguments->w, "replicas that a write waits for")
        ->capture_default_str();
    command
        .add_option("--mode", arguments->mode,
                    "siblings: concurrent writes are kept; lww: the last one "
                    "wins, others are LOST")
        ->check(CLI::IsMember({"siblings", "lww"}))
        ->capture_default_str();
    command
        .add_option("--durability", arguments->durability,
                    "sync: fsync before the acknowledgement; interval: every "
                    "100 ms")
        ->check(CLI::IsMember({"sync", "interval"}))
        ->capture_default_str();
    command
        .add_option("--quorum", arguments->quorum,
                    "what calls use that do not choose: sloppy or strict")
        ->check(CLI::IsMember({"sloppy", "strict"}))
        ->capture_default_str();
    command.callback([&session, arguments] {
      session.run = [&session, arguments] {
        return Create(session, *arguments);
      };
    });
  }
  {
    auto arguments = std::make_shared<AlterArguments>();
    CLI::App& command = *keyspace.add_subcommand("alter", "change a keyspace");
    command.fallthrough();
    command.add_option("NAME", arguments->name, "the keyspace")->required();
    command
        .add_option("--durability", arguments->durability, "sync or interval")
        ->check(CLI::IsMember({"sync", "interval"}));
    command.add_option("--quorum", arguments->quorum, "sloppy or strict")
        ->check(CLI::IsMember({"sloppy", "strict"}));
    command.add_option("--n", arguments->n, "replicas of each key");
    command.add_option("--r", arguments->r, "replicas that a read waits for");
    command.add_option("--w", arguments->w, "replicas that a write waits for");
    command.add_flag("--wait,!--no-wait", arguments->wait,
                     "with --n, --r or --w: stay until it is done (as it is "
                     "by default)");
    AddSwitch(command, "--no-progress", arguments->no_progress,
              "do not show progress");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] {
        return Alter(session, *arguments);
      };
    });
  }
  {
    CLI::App& command = *keyspace.add_subcommand("list", "list the keyspaces");
    command.fallthrough();
    command.callback(
        [&session] { session.run = [&session] { return List(session); }; });
  }
  {
    auto name = std::make_shared<std::string>();
    auto yes = std::make_shared<bool>(false);
    CLI::App& command =
        *keyspace.add_subcommand("drop", "delete a keyspace with all its data");
    command.fallthrough();
    command.add_option("NAME", *name, "the keyspace")->required();
    AddSwitch(command, "--yes", *yes, "do not ask");
    command.callback([&session, name, yes] {
      session.run = [&session, name, yes] {
        return Drop(session, *name, *yes);
      };
    });
  }
}

}  // namespace ringkv
