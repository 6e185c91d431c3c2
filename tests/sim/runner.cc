#include "tests/sim/runner.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/coding.h"
#include "base/mark.h"
#include "tests/sim/simulation.h"

namespace ringkv::sim {
namespace {

std::string Encode(const SeedOutcome& outcome) {
  std::string out;
  AppendFixed64(out, outcome.seed);
  AppendByte(out, outcome.failed ? 1 : 0);
  AppendBytes(out, outcome.check);
  AppendBytes(out, outcome.text);
  AppendFixed64(out, outcome.hash);
  AppendFixed64(out, outcome.operations);
  AppendFixed64(out, outcome.answered_ok);
  AppendFixed64(out, static_cast<uint64_t>(outcome.simulated_seconds * 1000));
  AppendBytes(out, absl::StrJoin(outcome.marks, "\n"));
  return out;
}

SeedOutcome Decode(absl::string_view bytes) {
  FieldReader reader(bytes);
  SeedOutcome outcome;
  outcome.seed = reader.Fixed64();
  outcome.failed = reader.Byte() != 0;
  outcome.check = std::string(reader.Bytes());
  outcome.text = std::string(reader.Bytes());
  outcome.hash = reader.Fixed64();
  outcome.operations = reader.Fixed64();
  outcome.answered_ok = reader.Fixed64();
  outcome.simulated_seconds = static_cast<double>(reader.Fixed64()) / 1000;
  const absl::string_view marks = reader.Bytes();
  if (!marks.empty()) outcome.marks = absl::StrSplit(marks, '\n');
  RINGKV_CHECK(reader.Finished());
  return outcome;
}

void WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    RINGKV_CHECK(count > 0);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

// A process that takes seeds from one pipe and writes outcomes to another.
struct Worker {
  pid_t pid = -1;
  int to = -1;
  int from = -1;
  bool busy = false;
  uint64_t seed = 0;
  std::string buffer;
};

[[noreturn]] void Serve(int from, int to, const ManyOptions& options) {
  while (true) {
    struct {
      uint64_t seed;
      uint64_t twice;
    } job;
    size_t have = 0;
    while (have < sizeof(job)) {
      const ssize_t count =
          read(from, reinterpret_cast<char*>(&job) + have, sizeof(job) - have);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) _exit(0);
      have += static_cast<size_t>(count);
    }
    const std::string bytes =
        Encode(RunSeed(job.seed, job.twice != 0, options.check_every));
    std::string framed;
    AppendFixed64(framed, bytes.size());
    framed += bytes;
    WriteAll(to, framed);
  }
}

Worker Spawn(const ManyOptions& options) {
  int down[2];
  int up[2];
  RINGKV_CHECK(pipe(down) == 0 && pipe(up) == 0);
  std::fflush(nullptr);
  const pid_t pid = fork();
  RINGKV_CHECK(pid >= 0);
  if (pid == 0) {
    close(down[1]);
    close(up[0]);
    Serve(down[0], up[1], options);
  }
  close(down[0]);
  close(up[1]);
  Worker worker;
  worker.pid = pid;
  worker.to = down[1];
  worker.from = up[0];
  return worker;
}

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("the run died of signal ", WTERMSIG(status), " (",
                        strsignal(WTERMSIG(status)), ")");
  }
  return absl::StrCat("the run ended with exit code ", WEXITSTATUS(status));
}

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

SeedOutcome RunSeed(uint64_t seed, bool twice, int check_every) {
  ResetMarks();
  RunOptions options;
  options.check_every = check_every;
  const Plan plan = PlanOf(seed);
  RunResult result = RunPlan(plan, options);
  SeedOutcome outcome;
  outcome.seed = seed;
  outcome.hash = result.hash;
  outcome.operations = result.operations;
  outcome.answered_ok = result.answered_ok;
  outcome.simulated_seconds = static_cast<double>(result.simulated) / kSecond;
  for (const Violation& violation : result.violations) {
    if (!outcome.failed) outcome.check = violation.check;
    outcome.failed = true;
    absl::StrAppend(&outcome.text, "    ", violation.check, " ",
                    violation.key.empty() ? "" : violation.key + ": ",
                    violation.text, "\n");
  }
  outcome.marks = MarksReached();
  if (twice && !outcome.failed) {
    const RunResult again = RunPlan(plan, options);
    if (again.hash != result.hash) {
      outcome.failed = true;
      outcome.check = "determinism";
      outcome.text = absl::StrCat(
          "    two runs of the seed differ: ", absl::Hex(result.hash), " and ",
          absl::Hex(again.hash), "\n");
    }
  }
  return outcome;
}

ManyResult RunMany(const ManyOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  ManyResult result;
  const double began = Seconds();
  double shown = began;
  size_t next = 0;
  std::vector<Worker> workers;
  bool stop = false;

  const auto give = [&](Worker& worker) {
    if (stop || next >= options.seeds.size()) return;
    const bool twice = options.repeat_every > 0 &&
                       next % static_cast<size_t>(options.repeat_every) == 0;
    const uint64_t job[2] = {options.seeds[next], twice ? 1ull : 0ull};
    worker.busy = true;
    worker.seed = options.seeds[next];
    if (twice) ++result.repeated;
    ++next;
    WriteAll(worker.to, absl::string_view(reinterpret_cast<const char*>(job),
                                          sizeof(job)));
  };
  const auto take = [&](SeedOutcome outcome) {
    ++result.runs;
    result.operations += outcome.operations;
    result.simulated_seconds += outcome.simulated_seconds;
    for (const std::string& mark : outcome.marks) ++result.marks[mark];
    if (outcome.failed) {
      if (options.progress) std::fprintf(stderr, "\r%60s\r", "");
      std::printf("seed %llu fails (%s):\n%s    repeat: %s%llu\n",
                  static_cast<unsigned long long>(outcome.seed),
                  outcome.check.c_str(), outcome.text.c_str(),
                  options.command.c_str(),
                  static_cast<unsigned long long>(outcome.seed));
      std::fflush(stdout);
      result.failures.push_back(std::move(outcome));
      if (options.stop_at_first) stop = true;
    }
  };

  const int jobs = std::max(
      1, std::min<int>(options.jobs, static_cast<int>(options.seeds.size())));
  for (int i = 0; i < jobs; ++i) {
    workers.push_back(Spawn(options));
    give(workers.back());
  }
  while (std::any_of(workers.begin(), workers.end(),
                     [](const Worker& worker) { return worker.busy; })) {
    std::vector<pollfd> polls;
    for (const Worker& worker : workers) {
      polls.push_back({worker.from, POLLIN, 0});
    }
    poll(polls.data(), polls.size(), 1000);
    for (size_t i = 0; i < workers.size(); ++i) {
      if ((polls[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      Worker& worker = workers[i];
      char chunk[65536];
      const ssize_t count = read(worker.from, chunk, sizeof(chunk));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        int status = 0;
        waitpid(worker.pid, &status, 0);
        close(worker.from);
        close(worker.to);
        if (worker.busy) {
          SeedOutcome outcome;
          outcome.seed = worker.seed;
          outcome.failed = true;
          outcome.check = "crash";
          outcome.text = absl::StrCat("    ", HowItEnded(status), "\n");
          take(std::move(outcome));
        }
        worker = Spawn(options);
        give(worker);
        continue;
      }
      worker.buffer.append(chunk, static_cast<size_t>(count));
      FieldReader reader(worker.buffer);
      if (worker.buffer.size() < 8) continue;
      const size_t size = static_cast<size_t>(reader.Fixed64());
      if (worker.buffer.size() < 8 + size) continue;
      SeedOutcome outcome =
          Decode(absl::string_view(worker.buffer).substr(8, size));
      worker.buffer.erase(0, 8 + size);
      worker.busy = false;
      take(std::move(outcome));
      give(worker);
    }
    if (options.progress && Seconds() - shown > 0.5) {
      shown = Seconds();
      std::fprintf(stderr, "\r%llu of %zu seeds, %zu failed, %.0f s ",
                   static_cast<unsigned long long>(result.runs),
                   options.seeds.size(), result.failures.size(), shown - began);
    }
  }
  if (options.progress) std::fprintf(stderr, "\r%60s\r", "");
  // All ends first: later workers hold copies of those of earlier ones.
  for (Worker& worker : workers) {
    close(worker.to);
    close(worker.from);
  }
  for (Worker& worker : workers) {
    int status = 0;
    waitpid(worker.pid, &status, 0);
  }
  std::sort(result.failures.begin(), result.failures.end(),
            [](const SeedOutcome& a, const SeedOutcome& b) {
              return a.seed < b.seed;
            });
  result.seconds = Seconds() - began;
  return result;
}

}  // namespace ringkv::sim
