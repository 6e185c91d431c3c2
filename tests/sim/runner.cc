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
#include "absl/strings/str_format.h"
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
  AppendBytes(out, absl::StrJoin(outcome.checks, "\n"));
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
  const absl::string_view checks = reader.Bytes();
  if (!checks.empty()) outcome.checks = absl::StrSplit(checks, '\n');
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
        Encode(RunHere(PlanOf(job.seed), job.twice != 0, options.check_every));
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

SeedOutcome Died(uint64_t seed, int status) {
  SeedOutcome outcome;
  outcome.seed = seed;
  outcome.failed = true;
  outcome.check = "crash";
  outcome.checks = {outcome.check};
  outcome.text = absl::StrCat("    ", HowItEnded(status), "\n");
  return outcome;
}

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The line that tells how far a run of many seeds is.
class Progress {
 public:
  explicit Progress(bool wanted)
      : wanted_(wanted), terminal_(isatty(STDERR_FILENO) == 1) {}

  void Show(const std::string& text, double now) {
    if (!Due(now)) return;
    shown_ = now;
    if (terminal_) {
      std::fprintf(stderr, "\r\033[K%s ", text.c_str());
    } else {
      std::fprintf(stderr, "%s\n", text.c_str());
    }
    std::fflush(stderr);
  }
  bool Due(double now) const {
    return wanted_ && now - shown_ >= (terminal_ ? 0.2 : kLineSeconds);
  }
  // Makes room for other output.
  void Clear() const {
    if (wanted_ && terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  // In a log a line a minute is enough.
  static constexpr double kLineSeconds = 60;

  bool wanted_;
  bool terminal_;
  double shown_ = Seconds();
};

}  // namespace

SeedOutcome RunHere(const Plan& plan, bool twice, int check_every) {
  ResetMarks();
  RunOptions options;
  options.check_every = check_every;
  RunResult result = RunPlan(plan, options);
  SeedOutcome outcome;
  outcome.seed = plan.seed;
  outcome.hash = result.hash;
  outcome.operations = result.operations;
  outcome.answered_ok = result.answered_ok;
  outcome.simulated_seconds = static_cast<double>(result.simulated) / kSecond;
  for (const Violation& violation : result.violations) {
    if (!outcome.failed) outcome.check = violation.check;
    outcome.failed = true;
    outcome.checks.push_back(violation.check);
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

SeedOutcome RunApart(const Plan& plan, int check_every) {
  int up[2];
  RINGKV_CHECK(pipe(up) == 0);
  std::fflush(nullptr);
  const pid_t pid = fork();
  RINGKV_CHECK(pid >= 0);
  if (pid == 0) {
    close(up[0]);
    WriteAll(up[1], Encode(RunHere(plan, false, check_every)));
    _exit(0);
  }
  close(up[1]);
  std::string bytes;
  while (true) {
    char chunk[65536];
    const ssize_t count = read(up[0], chunk, sizeof(chunk));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    bytes.append(chunk, static_cast<size_t>(count));
  }
  close(up[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Decode(bytes);
  return Died(plan.seed, status);
}

std::string ProgressText(uint64_t done, uint64_t all, uint64_t failed,
                         double seconds) {
  std::string text =
      absl::StrCat(done, " of ", all, " seeds, ", failed, " failed");
  if (done == 0 || seconds <= 0) return text;
  const double rate = static_cast<double>(done) / seconds;
  absl::StrAppendFormat(&text, ", %.*f seeds/s, %.0f s left", rate < 10 ? 1 : 0,
                        rate, static_cast<double>(all - done) / rate);
  return text;
}

ManyResult RunMany(const ManyOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  ManyResult result;
  const double began = Seconds();
  Progress progress(options.progress);
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
    for (const std::string& mark : outcome.marks) {
      uint64_t& seed = result.marks.emplace(mark, UINT64_MAX).first->second;
      seed = std::min(seed, outcome.seed);
    }
    if (outcome.failed) {
      progress.Clear();
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
          take(Died(worker.seed, status));
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
    const double now = Seconds();
    if (progress.Due(now)) {
      progress.Show(ProgressText(result.runs, options.seeds.size(),
                                 result.failures.size(), now - began),
                    now);
    }
  }
  progress.Clear();
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
