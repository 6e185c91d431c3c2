// kvctl playground: a cluster on this machine, in the foreground.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/channel.h"
#include "client/kvctl/command.h"
#include "client/kvctl/playground_mark.h"
#include "client/kvctl/signals.h"
#include "client/timer_queue.h"

namespace ringkv {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kReadyTimeout = absl::Seconds(30);
constexpr absl::Duration kStopTimeout = absl::Seconds(15);
constexpr int kPortBase = 7700;
constexpr absl::string_view kFolderPrefix = "ringkv-playground-";

struct PlaygroundArguments {
  int nodes = 5;
  int racks = 3;
  std::string data_dir;
  std::string kvnode;
  std::string placement = "balanced";
  std::string log_level = "warn";
};

bool PortIsFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_free = bind(fd, reinterpret_cast<const sockaddr*>(&address),
                            sizeof address) == 0;
  close(fd);
  return is_free;
}

// The usual port of each kind, or the next ones that are free.
int TakePort(int wanted, std::set<int>& taken) {
  for (int port = wanted; port < 65536; ++port) {
    if (!taken.contains(port) && PortIsFree(port)) {
      taken.insert(port);
      return port;
    }
  }
  return 0;
}

struct LocalNode {
  std::string name;
  std::string data_dir;
  std::string log;
  std::string client_address;
  std::string peer_address;
  std::string http_address;
  std::string location;
  pid_t pid = 0;
};

// Number `i` of the nodes in `folder`, but for its location.
LocalNode MakeNode(const fs::path& folder, int i, std::set<int>& taken) {
  LocalNode node;
  node.name = absl::StrCat("n", i);
  node.data_dir = (folder / node.name).string();
  node.log = (folder / (node.name + ".log")).string();
  // A cluster that was started here before keeps its addresses: they are in
  // its ring.
  const fs::path ports_file = folder / (node.name + ".ports");
  std::ifstream known(ports_file);
  if (!(known >> node.client_address >> node.peer_address >>
        node.http_address)) {
    const int client = TakePort(kPortBase + i - 1, taken);
    const int peer = TakePort(kPortBase + 100 + i - 1, taken);
    const int http = TakePort(kPortBase + 200 + i - 1, taken);
    node.client_address = absl::StrCat("127.0.0.1:", client);
    node.peer_address = absl::StrCat("127.0.0.1:", peer);
    node.http_address = absl::StrCat("127.0.0.1:", http);
    std::ofstream(ports_file) << node.client_address << " " << node.peer_address
                              << " " << node.http_address << "\n";
  }
  return node;
}

absl::Status Spawn(const std::string& program, const std::string& seeds,
                   const std::string& log_level, LocalNode& node) {
  std::vector<std::string> arguments = {program,
                                        "--name",
                                        node.name,
                                        "--data-dir",
                                        node.data_dir,
                                        "--listen",
                                        node.client_address,
                                        "--peer-listen",
                                        node.peer_address,
                                        "--http-listen",
                                        node.http_address,
                                        "--seeds",
                                        seeds,
                                        "--location",
                                        node.location,
                                        "--log-level",
                                        log_level};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int log =
      open(node.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(node.log, ": ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  node.pid = fork();
  if (node.pid == 0) {
    // Only async-signal-safe calls from here on. The node ends with its parent,
    // and gets no Ctrl-C of the terminal: it is stopped in order.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    setpgid(0, 0);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  close(log);
  if (node.pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", program, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

// True if the child has ended; then it is reaped.
bool HasEnded(LocalNode& node, std::string& how) {
  if (node.pid <= 0) return false;
  int status = 0;
  if (waitpid(node.pid, &status, WNOHANG) != node.pid) return false;
  node.pid = 0;
  how = WIFSIGNALED(status)
            ? absl::StrCat("by signal ", WTERMSIG(status))
            : absl::StrCat("with exit code ", WEXITSTATUS(status));
  return true;
}

void StopAll(Session& session, std::vector<LocalNode>& nodes) {
  for (LocalNode& node : nodes) {
    if (node.pid > 0) kill(node.pid, SIGTERM);
  }
  const Instant until = Now() + kStopTimeout;
  std::string how;
  for (LocalNode& node : nodes) {
    while (node.pid > 0 && !HasEnded(node, how)) {
      if (Now() >= until) {
        session.Note(node.name + " does not stop; killing it");
        kill(node.pid, SIGKILL);
        waitpid(node.pid, nullptr, 0);
        node.pid = 0;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

std::string LastLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > 5) lines.erase(lines.begin());
  }
  return absl::StrJoin(lines, "\n");
}

absl::StatusOr<std::string> FindKvnode(const PlaygroundArguments& arguments,
                                       const std::string& program) {
  if (!arguments.kvnode.empty()) return arguments.kvnode;
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) self = program;
  const fs::path beside = self.parent_path() / "kvnode";
  if (access(beside.c_str(), X_OK) == 0) return beside.string();
  return absl::NotFoundError(absl::StrCat(
      "there is no kvnode at ", beside.string(), "; name it with --kvnode"));
}

bool Answers(const std::string& address) {
  const auto stub = v1::Admin::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(absl::Milliseconds(500)));
  v1::StatusResponse response;
  return stub->Status(&context, v1::StatusRequest(), &response).ok();
}

// A new temporary folder if `data_dir` is empty.
absl::StatusOr<fs::path> MakeFolder(const std::string& data_dir) {
  std::error_code error;
  if (data_dir.empty()) {
    std::string pattern =
        (fs::temp_directory_path(error) / absl::StrCat(kFolderPrefix, "XXXXXX"))
            .string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return absl::PermissionDeniedError(
          absl::StrCat(pattern, ": ", std::strerror(errno)));
    }
    return fs::path(pattern);
  }
  fs::path folder = fs::absolute(data_dir, error);
  fs::create_directories(folder, error);
  if (error) {
    return absl::PermissionDeniedError(
        absl::StrCat(folder.string(), ": ", error.message()));
  }
  return folder;
}

int RunPlayground(Session& session, const PlaygroundArguments& arguments) {
  absl::StatusOr<std::string> kvnode =
      FindKvnode(arguments, session.streams.program);
  if (!kvnode.ok()) return session.Fail(kvnode.status());
  const bool temporary = arguments.data_dir.empty();
  const absl::StatusOr<fs::path> made = MakeFolder(arguments.data_dir);
  if (!made.ok()) return session.Fail(made.status());
  const fs::path folder = *made;
  std::error_code error;

  std::vector<LocalNode> nodes;
  std::set<int> taken;
  for (int i = 1; i <= arguments.nodes; ++i) {
    LocalNode node = MakeNode(folder, i, taken);
    node.location = absl::StrCat("zone=z1,rack=r",
                                 (i - 1) % arguments.racks + 1, ",host=h", i);
    nodes.push_back(std::move(node));
  }
  std::vector<std::string> endpoints;
  std::vector<std::string> peers;
  for (const LocalNode& node : nodes) {
    endpoints.push_back(node.client_address);
    peers.push_back(node.peer_address);
  }
  session.endpoints = absl::StrJoin(endpoints, ",");
  const absl::StatusOr<PlaygroundMark> mark =
      PlaygroundMark::Claim(folder, {0, /*is_added=*/false, endpoints});
  if (!mark.ok()) return session.Fail(mark.status());

  const SignalWatch signals;
  std::ostream& out = session.streams.out;
  absl::Status status;
  const auto watch = [&] {
    for (LocalNode& node : nodes) {
      std::string how;
      if (HasEnded(node, how)) {
        status = absl::UnavailableError(
            absl::StrCat(node.name, " ended ", how, "; its log (", node.log,
                         ") ends with:\n", LastLines(node.log)));
        return false;
      }
    }
    return SignalWatch::Fired() == 0;
  };
  for (LocalNode& node : nodes) {
    status =
        Spawn(*kvnode, absl::StrJoin(peers, ","), arguments.log_level, node);
    if (!status.ok()) break;
  }
  const Instant until = Now() + kReadyTimeout;
  const auto wait_for = [&](const std::string& what, const auto& condition) {
    while (status.ok() && watch() && !condition()) {
      if (Now() >= until) {
        status = absl::DeadlineExceededError(absl::StrCat(
            what, " took longer than ", absl::FormatDuration(kReadyTimeout),
            "; logs are in ", folder.string()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return status.ok() && SignalWatch::Fired() == 0;
  };
  for (const LocalNode& node : nodes) {
    if (!wait_for("starting " + node.name,
                  [&] { return Answers(node.client_address); })) {
      break;
    }
  }
  // Forms the cluster, unless it was formed in an earlier run.
  bool formed = false;
  wait_for("forming the cluster", [&] {
    AdminClient admin(session);
    v1::StatusResponse seen;
    absl::Status asked = admin.Call(true, [&](auto& stub, auto& context) {
      seen.Clear();
      return stub.Status(&context, v1::StatusRequest(), &seen);
    });
    if (asked.ok() && !seen.cluster_id().empty()) {
      formed = true;
      return true;
    }
    v1::InitRequest request;
    request.set_expected_nodes(static_cast<uint32_t>(arguments.nodes));
    request.set_placement(arguments.placement == "hashed"
                              ? v1::PLACEMENT_STRATEGY_HASHED
                              : v1::PLACEMENT_STRATEGY_BALANCED);
    v1::InitResponse response;
    asked = admin.Call(false, [&](auto& stub, auto& context) {
      return stub.Init(&context, request, &response);
    });
    formed = asked.ok();
    return formed;
  });
  for (const LocalNode& node : nodes) {
    wait_for(node.name + " joining the ring", [&] {
      return FetchRing(node.client_address, absl::Seconds(1)).ok();
    });
  }
  if (status.ok() && SignalWatch::Fired() == 0) {
    const std::string self =
        session.streams.program.empty() ? "kvctl" : session.streams.program;
    if (session.json()) {
      Json json = Json::object();
      json["endpoints"] = endpoints;
      json["folder"] = folder.string();
      json["nodes"] = Json::array();
      for (const LocalNode& node : nodes) {
        json["nodes"].push_back({{"name", node.name},
                                 {"pid", node.pid},
                                 {"client_address", node.client_address},
                                 {"peer_address", node.peer_address},
                                 {"http_address", node.http_address},
                                 {"location", node.location},
                                 {"log", node.log}});
      }
      session.Print(json);
    } else {
      Table table({"NODE", "LOCATION", "CLIENTS", "HTTP", ">PID", "LOG"});
      for (const LocalNode& node : nodes) {
        table.Row({node.name, node.location, node.client_address,
                   node.http_address, absl::StrCat(node.pid), node.log});
      }
      out << table.ToString() << "\nThe cluster is ready. In another terminal:"
          << "\n\n  export RINGKV_ENDPOINT=" << session.endpoints << "\n  "
          << self << " put greeting hello\n  " << self << " get greeting\n  "
          << self << " locate greeting\n  " << self << " status\n  kill -9 "
          << nodes.back().pid << "      # and see that everything goes on\n\n"
          << (temporary
                  ? "Ctrl-C, or " + self +
                        " playground stop, stops it and deletes its data.\n"
                  : "Ctrl-C, or " + self + " playground stop --data-dir " +
                        folder.string() + ", stops it; its data stays.\n");
    }
    out.flush();
    // A node that dies is part of the play: only told, unless it was the last.
    while (SignalWatch::Fired() == 0) {
      size_t alive = 0;
      for (LocalNode& node : nodes) {
        std::string how;
        if (HasEnded(node, how)) {
          session.Note(
              absl::StrCat(node.name, " ended ", how, " (", node.log, ")"));
        }
        alive += node.pid > 0 ? 1 : 0;
      }
      if (alive == 0) {
        status = absl::UnavailableError("all nodes have ended");
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  if (status.ok()) session.Note("stopping");
  StopAll(session, nodes);
  if (temporary && status.ok()) {
    fs::remove_all(folder, error);
  } else if (!status.ok()) {
    session.Note(absl::StrCat("what is left is in ", folder.string()));
  }
  return status.ok() ? kExitDone : session.Fail(status);
}

// --- playground add ---

absl::StatusOr<v1::StatusResponse> AskStatus(Session& session) {
  AdminClient admin(session);
  v1::StatusResponse seen;
  const absl::Status asked = admin.Call(true, [&](auto& stub, auto& context) {
    seen.Clear();
    return stub.Status(&context, v1::StatusRequest(), &seen);
  });
  if (!asked.ok()) return asked;
  if (seen.cluster_id().empty()) {
    return absl::FailedPreconditionError(
        "no cluster was formed yet; run kvctl playground first");
  }
  return seen;
}

// The rack with the fewest nodes, and a host of its own.
std::string NextLocation(const v1::StatusResponse& seen, int number) {
  std::map<std::pair<std::string, std::string>, int> racks;
  for (const v1::NodeStatus& node : seen.nodes()) {
    ++racks[{node.location().zone(), node.location().rack()}];
  }
  auto least = racks.begin();
  for (auto rack = racks.begin(); rack != racks.end(); ++rack) {
    if (rack->second < least->second) least = rack;
  }
  return absl::StrCat("zone=", least->first.first,
                      ",rack=", least->first.second, ",host=h", number);
}

// The number after the greatest one that a name "n..." has.
int NextNumber(const v1::StatusResponse& seen) {
  int next = 1;
  for (const v1::NodeStatus& node : seen.nodes()) {
    int number = 0;
    if (node.name().size() > 1 && node.name()[0] == 'n' &&
        absl::SimpleAtoi(node.name().substr(1), &number) && number < 10000) {
      next = std::max(next, number + 1);
    }
  }
  return next;
}

// One more node for a cluster that runs, in the foreground.
int RunOneMore(Session& session, const PlaygroundArguments& arguments) {
  absl::StatusOr<std::string> kvnode =
      FindKvnode(arguments, session.streams.program);
  if (!kvnode.ok()) return session.Fail(kvnode.status());
  const absl::StatusOr<v1::StatusResponse> seen = AskStatus(session);
  if (!seen.ok()) return session.Fail(seen.status());
  const bool temporary = arguments.data_dir.empty();
  const absl::StatusOr<fs::path> folder = MakeFolder(arguments.data_dir);
  if (!folder.ok()) return session.Fail(folder.status());

  const int number = NextNumber(*seen);
  std::set<int> taken;
  std::vector<LocalNode> nodes = {MakeNode(*folder, number, taken)};
  LocalNode& node = nodes.front();
  node.location = NextLocation(*seen, number);
  std::vector<std::string> seeds;
  for (const v1::NodeStatus& other : seen->nodes()) {
    if (other.state() == v1::NODE_STATE_ALIVE) {
      seeds.push_back(other.peer_address());
    }
  }
  PlaygroundFacts facts;
  facts.is_added = true;
  for (const v1::NodeStatus& other : seen->nodes()) {
    facts.endpoints.push_back(other.client_address());
  }
  const absl::StatusOr<PlaygroundMark> mark =
      PlaygroundMark::Claim(*folder, facts);
  if (!mark.ok()) return session.Fail(mark.status());
  const SignalWatch signals;
  absl::Status status =
      Spawn(*kvnode, absl::StrJoin(seeds, ","), arguments.log_level, node);
  const auto is_found = [&] {
    const absl::StatusOr<v1::StatusResponse> now = AskStatus(session);
    return now.ok() &&
           std::any_of(now->nodes().begin(), now->nodes().end(),
                       [&](const v1::NodeStatus& other) {
                         return other.name() == node.name &&
                                other.state() == v1::NODE_STATE_STANDBY;
                       });
  };
  const Instant until = Now() + kReadyTimeout;
  bool told = false;
  while (status.ok() && SignalWatch::Fired() == 0) {
    std::string how;
    if (HasEnded(node, how)) {
      status = absl::UnavailableError(
          absl::StrCat(node.name, " ended ", how, "; its log (", node.log,
                       ") ends with:\n", LastLines(node.log)));
    } else if (!told && is_found()) {
      told = true;
      session.streams.out << node.name << " (" << node.client_address << ", "
                          << node.location
                          << ") is found by the cluster and stands by. In "
                             "another terminal:\n\n  kvctl join "
                          << node.name << "\n\nCtrl-C stops it"
                          << (temporary ? " and deletes its data" : "") << ".\n"
                          << std::flush;
    } else if (!told && Now() >= until) {
      status = absl::DeadlineExceededError(absl::StrCat(
          "the cluster has not found ", node.name, " in ",
          absl::FormatDuration(kReadyTimeout), "; its log is ", node.log));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(told ? 100 : 200));
  }
  StopAll(session, nodes);
  std::error_code error;
  if (temporary && status.ok()) fs::remove_all(*folder, error);
  return status.ok() ? kExitDone : session.Fail(status);
}

// --- playground stop ---

// What runs in the temporary folders of this user's playgrounds.
std::map<fs::path, PlaygroundFacts> TemporaryPlaygrounds() {
  std::map<fs::path, PlaygroundFacts> found;
  std::error_code error;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::temp_directory_path(error), error)) {
    struct stat info = {};
    if (!absl::StartsWith(entry.path().filename().string(), kFolderPrefix) ||
        lstat(entry.path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != getuid()) {
      continue;
    }
    const std::optional<PlaygroundFacts> facts = FindPlayground(entry.path());
    if (facts.has_value()) found.emplace(entry.path(), *facts);
  }
  return found;
}

int StopPlayground(Session& session, const PlaygroundArguments& arguments) {
  std::map<fs::path, PlaygroundFacts> found = TemporaryPlaygrounds();
  std::vector<std::pair<fs::path, PlaygroundFacts>> clusters;
  std::error_code error;
  if (!arguments.data_dir.empty()) {
    const fs::path folder = fs::absolute(arguments.data_dir, error);
    const std::optional<PlaygroundFacts> facts = FindPlayground(folder);
    if (!facts.has_value()) {
      return session.Fail(absl::NotFoundError(
          absl::StrCat("no playground runs in ", folder.string())));
    }
    clusters.emplace_back(folder, *facts);
  } else {
    for (const auto& [folder, facts] : found) {
      if (!facts.is_added) clusters.emplace_back(folder, facts);
    }
    // Of clusters with a folder of their own, added nodes may be left.
    if (clusters.empty() && found.size() == 1) {
      clusters.assign(found.begin(), found.end());
    }
    if (clusters.empty()) {
      return session.Fail(absl::NotFoundError(
          "no playground of yours runs in a temporary folder; name the folder "
          "of another one with --data-dir"));
    }
    if (clusters.size() > 1) {
      const std::string folders = absl::StrJoin(
          clusters, ", ", [](std::string* out, const auto& cluster) {
            absl::StrAppend(out, cluster.first.string());
          });
      return session.Fail(absl::FailedPreconditionError(
          absl::StrCat(clusters.size(), " playgrounds run (", folders,
                       "); name one with --data-dir")));
    }
  }
  // Nodes that were added to it first.
  const std::vector<std::string> endpoints = clusters.front().second.endpoints;
  for (const auto& [folder, facts] : found) {
    const bool belongs =
        std::any_of(facts.endpoints.begin(), facts.endpoints.end(),
                    [&](const std::string& endpoint) {
                      return std::find(endpoints.begin(), endpoints.end(),
                                       endpoint) != endpoints.end();
                    });
    if (facts.is_added && belongs && folder != clusters.front().first) {
      clusters.emplace(clusters.begin(), folder, facts);
    }
  }
  Json stopped = Json::array();
  for (const auto& [folder, facts] : clusters) {
    const absl::Status status = StopPlaygroundIn(folder, 2 * kStopTimeout);
    if (!status.ok()) return session.Fail(status);
    stopped.push_back(folder.string());
    if (!session.json()) {
      session.streams.out << "stopped the "
                          << (facts.is_added ? "added node" : "playground")
                          << " in " << folder.string() << "\n";
    }
  }
  if (session.json()) session.Print({{"stopped", stopped}});
  return kExitDone;
}

}  // namespace

void AddPlayground(CLI::App& app, Session& session) {
  auto arguments = std::make_shared<PlaygroundArguments>();
  CLI::App& command = *app.add_subcommand(
      "playground", "run a cluster on this machine until Ctrl-C");
  command.add_option("--nodes", arguments->nodes, "how many nodes")
      ->check(CLI::Range(1, 60))
      ->capture_default_str();
  command.add_option("--racks", arguments->racks, "over how many racks")
      ->check(CLI::Range(1, 60))
      ->capture_default_str();
  command.add_option("--data-dir", arguments->data_dir,
                     "where data and logs go; without it, a temporary folder "
                     "that is deleted at the end");
  command.add_option("--kvnode", arguments->kvnode,
                     "the program to run; without it, the one beside kvctl");
  command.add_option("--placement", arguments->placement, "balanced or hashed")
      ->check(CLI::IsMember({"balanced", "hashed"}))
      ->capture_default_str();
  command
      .add_option("--log-level", arguments->log_level,
                  "of the nodes: trace, debug, info, warn, error")
      ->capture_default_str();
  command.require_subcommand(0, 1);
  command.callback([&session, arguments] {
    if (session.run) return;  // playground add or stop
    session.run = [&session, arguments] {
      return RunPlayground(session, *arguments);
    };
  });
  CLI::App& add = *command.add_subcommand(
      "add", "run one more node, which kvctl join takes into the cluster");
  add.fallthrough();
  add.callback([&session, arguments] {
    session.run = [&session, arguments] {
      return RunOneMore(session, *arguments);
    };
  });
  CLI::App& stop =
      *command.add_subcommand("stop",
                              "stop a playground that runs elsewhere, with the "
                              "nodes that were added to "
                              "it; --data-dir says which");
  stop.fallthrough();
  stop.callback([&session, arguments] {
    session.run = [&session, arguments] {
      return StopPlayground(session, *arguments);
    };
  });
}

}  // namespace ringkv
