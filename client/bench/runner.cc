#include "client/bench/runner.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"

namespace ringkv::bench {
namespace {

constexpr size_t kErrorsKept = 5;
constexpr absl::Duration kProgressInterval = absl::Seconds(1);

std::chrono::steady_clock::time_point ToSteady(Instant instant) {
  return std::chrono::steady_clock::time_point(
      std::chrono::nanoseconds(instant.nanos));
}

// What all lanes of a phase share.
struct Phase {
  Instant measure_from;
  Instant end;
  int64_t expected_interval_nanos = 0;
  bool bounded = false;
  std::atomic<int64_t> operations_left{0};
  const std::atomic<bool>* stop = nullptr;

  bool Over(Instant now) const {
    return now >= end ||
           (stop != nullptr && stop->load(std::memory_order_relaxed));
  }
  bool TakeOperation() {
    return !bounded ||
           operations_left.fetch_sub(1, std::memory_order_relaxed) > 0;
  }
};

// One target with its source and what was measured there. Completions of one
// target come from few threads, so its lock is hardly ever contended.
class Lane {
 public:
  Lane(Phase& phase, Target& target, OperationSource& source)
      : phase_(phase), target_(target), source_(source) {}

  Target& target() { return target_; }

  // The next operation to start at `now`, or false if the phase is over.
  bool Next(Instant now, Operation& operation) {
    if (phase_.Over(now)) return false;
    if (!phase_.TakeOperation()) return false;
    const MutexLock lock(mutex_);
    return source_.Next(operation);
  }

  void Record(const Operation& operation, Instant start, Instant now,
              const Outcome& outcome) {
    const MutexLock lock(mutex_);
    source_.Finished(operation, outcome.verdict == Verdict::kDone);
    last_ = std::max(last_, now);
    window_counts_.Add(outcome);
    const int64_t nanos = now.nanos - start.nanos;
    const bool done = outcome.verdict == Verdict::kDone;
    if (done) window_.Record(nanos);
    if (now < phase_.measure_from) return;
    Measured& measured = kinds_[static_cast<size_t>(operation.kind)];
    measured.counts.Add(outcome);
    if (done) {
      measured.latency.RecordCorrected(nanos, phase_.expected_interval_nanos);
    } else if (errors_.size() < kErrorsKept) {
      errors_.insert(absl::StrCat(OperationName(operation.kind), ": ",
                                  outcome.status.ToString()));
    }
  }

  void TakeWindow(Progress& progress) {
    const MutexLock lock(mutex_);
    progress.counts.Add(window_counts_);
    progress.latency.Merge(window_);
    window_counts_ = Counts();
    window_.Clear();
  }

  void AddTo(PhaseResult& result, std::set<std::string>& errors,
             Instant& last) {
    const MutexLock lock(mutex_);
    for (size_t i = 0; i < kOperationKinds; ++i) {
      result.kinds[i].counts.Add(kinds_[i].counts);
      result.kinds[i].latency.Merge(kinds_[i].latency);
    }
    errors.insert(errors_.begin(), errors_.end());
    last = std::max(last, last_);
  }

 private:
  Phase& phase_;
  Target& target_;
  Mutex mutex_;
  OperationSource& source_ ABSL_GUARDED_BY(mutex_);
  std::array<Measured, kOperationKinds> kinds_ ABSL_GUARDED_BY(mutex_);
  Counts window_counts_ ABSL_GUARDED_BY(mutex_);
  LatencyHistogram window_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> errors_ ABSL_GUARDED_BY(mutex_);
  Instant last_ ABSL_GUARDED_BY(mutex_);
};

// Counts slots at work; the last one to stop wakes whoever waits.
class Activity {
 public:
  explicit Activity(uint64_t active) : active_(active) {}

  void Ended() {
    if (active_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    // Under the lock, so that the waiter cannot miss it, nor destroy it early.
    const MutexLock lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  // True if all have ended before `until`.
  bool WaitUntil(Instant until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, ToSteady(until), [this] { return over_; });
  }

 private:
  std::atomic<uint64_t> active_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ = false;
};

// Closed loop: one operation in flight after the other.
//
// A completion may come inside Start(), or from another thread before Start()
// has returned. Whoever of the two is last goes on with the next operation, so
// the stack does not grow.
class ClosedSlot final : public Completion {
 public:
  ClosedSlot(Lane& lane, Activity& activity)
      : lane_(lane), activity_(activity) {}

  void Run(Instant now) {
    start_ = now;
    while (lane_.Next(start_, operation_)) {
      passed_.store(0, std::memory_order_relaxed);
      lane_.target().Start(operation_, this);
      if (passed_.fetch_add(1, std::memory_order_acq_rel) == 0) return;
      start_ = ended_;
    }
    activity_.Ended();
  }

  void Done(const Outcome& outcome) override {
    const Instant now = SteadyNow();
    lane_.Record(operation_, start_, now, outcome);
    ended_ = now;
    if (passed_.fetch_add(1, std::memory_order_acq_rel) == 0) return;
    Run(now);
  }

 private:
  Lane& lane_;
  Activity& activity_;
  Operation operation_;
  Instant start_;
  Instant ended_;
  std::atomic<int> passed_{0};
};

class Progresser {
 public:
  Progresser(std::vector<std::unique_ptr<Lane>>& lanes, const Phase& phase,
             const RunOptions& options, Instant begin)
      : lanes_(lanes),
        phase_(phase),
        options_(options),
        cpu_before_(CpuOfThisProcess()),
        begin_(begin),
        last_(begin),
        next_(begin + kProgressInterval) {}

  // When Poll() has something to do again.
  Instant next() const {
    const Instant report = options_.on_progress ? next_ : Instant::Infinite();
    return warm_ ? report : std::min(report, phase_.measure_from);
  }

  void Poll(Instant now) {
    if (!warm_ && now >= phase_.measure_from) {
      warm_ = true;
      cpu_before_ = CpuOfThisProcess();
    }
    if (!options_.on_progress || now < next_) return;
    Progress progress;
    progress.elapsed = now - begin_;
    progress.interval = now - last_;
    progress.warmup = now <= phase_.measure_from;
    for (auto& lane : lanes_) lane->TakeWindow(progress);
    ended_total_ += progress.counts.ended();
    progress.ended_total = ended_total_;
    options_.on_progress(progress);
    last_ = now;
    while (next_ <= now) next_ = next_ + kProgressInterval;
  }

  // Of this process since the warm-up ended.
  absl::Duration Cpu() const { return CpuOfThisProcess() - cpu_before_; }

 private:
  std::vector<std::unique_ptr<Lane>>& lanes_;
  const Phase& phase_;
  const RunOptions& options_;
  absl::Duration cpu_before_;
  bool warm_ = false;
  const Instant begin_;
  Instant last_;
  Instant next_;
  uint64_t ended_total_ = 0;
};

// When to look again, so that progress and a stop are seen soon.
Instant NextLook(const Progresser& progresser, Instant now) {
  return std::min(progresser.next(), now + absl::Milliseconds(100));
}

void RunClosed(std::vector<std::unique_ptr<Lane>>& lanes, uint64_t in_flight,
               Progresser& progresser, Instant begin) {
  Activity activity(in_flight);
  std::vector<std::unique_ptr<ClosedSlot>> slots;
  for (uint64_t i = 0; i < in_flight; ++i) {
    slots.push_back(
        std::make_unique<ClosedSlot>(*lanes[i % lanes.size()], activity));
  }
  for (auto& slot : slots) slot->Run(begin);
  for (auto& lane : lanes) lane->target().Flush();
  for (;;) {
    const Instant now = SteadyNow();
    if (activity.WaitUntil(NextLook(progresser, now))) return;
    progresser.Poll(SteadyNow());
  }
}

class OpenSlot;

// The open loop on the real clock: one thread starts what is due.
class OpenRunner {
 public:
  OpenRunner(std::vector<std::unique_ptr<Lane>>& lanes, Phase& phase,
             const RunOptions& options, Instant begin);
  void Run(Progresser& progresser, PhaseResult& result);
  void Release(OpenSlot* slot);

 private:
  std::vector<std::unique_ptr<Lane>>& lanes_;
  Phase& phase_;
  std::vector<std::unique_ptr<OpenSlot>> slots_;
  Mutex mutex_;
  CondVar released_;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  OpenLoop loop_ ABSL_GUARDED_BY(mutex_);
  std::vector<OpenSlot*> free_ ABSL_GUARDED_BY(mutex_);
};

class OpenSlot final : public Completion {
 public:
  explicit OpenSlot(OpenRunner& runner) : runner_(runner) {}

  void Begin(Lane& lane, const Operation& operation, Instant intended) {
    lane_ = &lane;
    operation_ = operation;
    intended_ = intended;
    lane.target().Start(operation, this);
  }

  void Done(const Outcome& outcome) override {
    lane_->Record(operation_, intended_, SteadyNow(), outcome);
    runner_.Release(this);
  }

 private:
  OpenRunner& runner_;
  Lane* lane_ = nullptr;
  Operation operation_;
  Instant intended_;
};

OpenRunner::OpenRunner(std::vector<std::unique_ptr<Lane>>& lanes, Phase& phase,
                       const RunOptions& options, Instant begin)
    : lanes_(lanes),
      phase_(phase),
      loop_(Arrivals(options.arrivals, *options.rate, begin, options.seed),
            phase.end, options.in_flight) {
  for (uint64_t i = 0; i < options.in_flight; ++i) {
    slots_.push_back(std::make_unique<OpenSlot>(*this));
    free_.push_back(slots_.back().get());
  }
}

void OpenRunner::Release(OpenSlot* slot) {
  const MutexLock lock(mutex_);
  loop_.Finished();
  free_.push_back(slot);
  if (waiting_) released_.notify_one();
}

void OpenRunner::Run(Progresser& progresser, PhaseResult& result) {
  // The default slack of 50 us would be part of every latency.
  prctl(PR_SET_TIMERSLACK, 1);
  size_t turn = 0;
  bool over = false;
  for (;;) {
    const Instant now = SteadyNow();
    progresser.Poll(now);
    bool started = false;
    while (!over) {
      OpenSlot* slot = nullptr;
      std::optional<Instant> intended;
      {
        const MutexLock lock(mutex_);
        intended = loop_.TakeDue(now);
        if (!intended.has_value()) break;
        slot = free_.back();
        free_.pop_back();
      }
      Lane& lane = *lanes_[turn++ % lanes_.size()];
      Operation operation;
      if (!lane.Next(*intended, operation)) {
        over = true;
        Release(slot);
        break;
      }
      if (*intended >= phase_.measure_from) {
        result.lateness.Record(now.nanos - intended->nanos);
      }
      started = true;
      slot->Begin(lane, operation, *intended);
    }
    if (started) {
      for (auto& lane : lanes_) lane->target().Flush();
      continue;  // more may be due by now
    }
    std::unique_lock lock(mutex_);
    if (!over && now >= phase_.end) {
      result.never_started = loop_.TakeLeftOver(now);
      over = true;
    }
    if (loop_.NextDue() == Instant::Infinite()) over = true;
    if (over && loop_.in_flight() == 0) return;
    Instant wake = NextLook(progresser, now);
    const bool for_slot = over || loop_.blocked(now);
    if (!for_slot) wake = std::min(wake, loop_.NextDue());
    if (!over) wake = std::min(wake, phase_.end);
    waiting_ = for_slot;
    released_.wait_until(lock, ToSteady(wake));
    waiting_ = false;
  }
}

}  // namespace

void Counts::Add(const Outcome& outcome) {
  switch (outcome.verdict) {
    case Verdict::kDone:
      ++done;
      break;
    case Verdict::kFailed:
      ++failed;
      break;
    case Verdict::kUnknown:
      ++unknown;
      break;
    case Verdict::kMissing:
      ++missing;
      break;
    case Verdict::kWrong:
      ++wrong;
      break;
    case Verdict::kStale:
      ++stale;
      break;
  }
  resolved += outcome.resolved ? 1 : 0;
  siblings += outcome.siblings ? 1 : 0;
  scanned_entries += outcome.entries;
}

void Counts::Add(const Counts& other) {
  done += other.done;
  failed += other.failed;
  unknown += other.unknown;
  missing += other.missing;
  wrong += other.wrong;
  stale += other.stale;
  resolved += other.resolved;
  siblings += other.siblings;
  scanned_entries += other.scanned_entries;
}

Measured PhaseResult::Total() const {
  Measured total;
  for (const Measured& kind : kinds) {
    total.counts.Add(kind.counts);
    total.latency.Merge(kind.latency);
  }
  return total;
}

double PhaseResult::throughput() const {
  uint64_t done = 0;
  for (const Measured& kind : kinds) done += kind.counts.done;
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds <= 0 ? 0 : static_cast<double>(done) / seconds;
}

Instant SteadyNow() {
  return Instant{std::chrono::duration_cast<std::chrono::nanoseconds>(
                     std::chrono::steady_clock::now().time_since_epoch())
                     .count()};
}

absl::Duration CpuOfThisProcess() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) +
         absl::DurationFromTimeval(usage.ru_stime);
}

PhaseResult RunPhase(const std::vector<Target*>& targets,
                     const std::vector<OperationSource*>& sources,
                     const RunOptions& options) {
  RINGKV_CHECK(!targets.empty() && targets.size() == sources.size());
  const Instant begin = SteadyNow();
  Phase phase;
  phase.measure_from = begin + options.warmup;
  phase.end = options.duration == absl::InfiniteDuration()
                  ? Instant::Infinite()
                  : phase.measure_from + options.duration;
  phase.expected_interval_nanos =
      absl::ToInt64Nanoseconds(options.expected_interval);
  phase.bounded = options.operations > 0;
  phase.operations_left = static_cast<int64_t>(std::min<uint64_t>(
      options.operations, std::numeric_limits<int64_t>::max()));
  phase.stop = options.stop;
  std::vector<std::unique_ptr<Lane>> lanes;
  for (size_t i = 0; i < targets.size(); ++i) {
    lanes.push_back(std::make_unique<Lane>(phase, *targets[i], *sources[i]));
  }
  Progresser progresser(lanes, phase, options, begin);
  progresser.Poll(begin);
  PhaseResult result;
  if (options.rate.has_value()) {
    OpenRunner(lanes, phase, options, begin).Run(progresser, result);
  } else {
    const uint64_t in_flight =
        std::max<uint64_t>(options.in_flight, lanes.size());
    RunClosed(lanes, in_flight, progresser, begin);
  }
  result.cpu = progresser.Cpu();
  std::set<std::string> errors;
  Instant last = phase.measure_from;
  for (auto& lane : lanes) lane->AddTo(result, errors, last);
  result.elapsed = last - phase.measure_from;
  for (const std::string& error : errors) {
    if (result.errors.size() < kErrorsKept) result.errors.push_back(error);
  }
  return result;
}

}  // namespace ringkv::bench
