#include "client/load/loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/token.h"
#include "client/load/text.h"
#include "client/retry_policy.h"
#include "client/timer_queue.h"

namespace ringkv {
namespace {

constexpr size_t kErrorsKept = 20;
// Duplicates are counted among so many keys (8 bytes and a bit each).
constexpr size_t kKeysRemembered = 8 << 20;

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsResourceExhausted(status) || absl::IsAborted(status);
}

}  // namespace

Loader::Loader(Client& client, const LoaderOptions& options, uint64_t seed)
    : client_(client), options_(options), random_(seed) {}

Loader::~Loader() {
  std::unique_lock<Mutex> lock(mutex_);
  while (under_way_ > static_cast<int>(again_.size())) changed_.wait(lock);
}

void Loader::Add(Record record) {
  auto job = std::make_shared<Job>();
  job->record = std::move(record);
  const int64_t now_ms = absl::ToUnixMillis(absl::Now());
  std::erase_if(job->record.values, [now_ms](const Record::Value& value) {
    return value.expires_at_ms != 0 && value.expires_at_ms <= now_ms;
  });
  if (job->record.values.empty()) {
    MutexLock lock(mutex_);
    ++counts_.expired;
    return;
  }
  if (seen_.size() < kKeysRemembered &&
      !seen_.insert(Hash64(job->record.key, 1)).second) {
    MutexLock lock(mutex_);
    ++counts_.duplicates;
  }
  while (true) {
    StartDue();
    uint64_t changes = 0;
    {
      MutexLock lock(mutex_);
      changes = changes_;
      if (under_way_ < options_.in_flight &&
          !keys_under_way_.contains(job->record.key)) {
        ++under_way_;
        keys_under_way_.insert(job->record.key);
        break;
      }
    }
    WaitABit(Now() + absl::Seconds(1), changes);
  }
  job->deadline = Now() + options_.record_deadline;
  Start(std::move(job));
}

void Loader::Start(std::shared_ptr<Job> job) {
  const Record::Value& value = job->record.values[job->at];
  PutOptions put;
  put.keyspace = options_.keyspace;
  put.w = options_.w;
  put.quorum = options_.quorum;
  put.deadline =
      std::min(options_.put_deadline,
               std::max(job->deadline - Now(), absl::Milliseconds(1)));
  if (value.expires_at_ms != 0) {
    put.ttl = std::max(absl::FromUnixMillis(value.expires_at_ms) - absl::Now(),
                       absl::Milliseconds(1));
  }
  // The first value of a key replaces what is there, the others join it. A
  // blind put may be repeated: it can only add an equal sibling.
  put.blind = job->at > 0;
  ++job->tries;
  const auto done = [this, job](absl::StatusOr<WriteResult> result) {
    OnDone(job, result.status());
  };
  if (job->now_unknown && !put.blind) {
    client_.ResolveAsync(job->record.key, value.bytes, put, done);
  } else {
    client_.PutAsync(job->record.key, value.bytes, put, done);
  }
}

void Loader::OnDone(const std::shared_ptr<Job>& job,
                    const absl::Status& status) {
  std::shared_ptr<Job> next;
  {
    MutexLock lock(mutex_);
    if (status.ok()) {
      job->was_unknown = job->was_unknown || job->now_unknown;
      job->now_unknown = false;
      job->tries = 0;
      if (job->at + 1 < job->record.values.size()) {
        ++job->at;
        next = job;
      } else {
        ++counts_.written;
        counts_.resolved += job->was_unknown ? 1 : 0;
        counts_.bytes += job->record.key.size();
        for (const Record::Value& value : job->record.values) {
          counts_.bytes += value.bytes.size();
        }
        --under_way_;
        keys_under_way_.erase(job->record.key);
      }
    } else {
      const bool unknown = IsOutcomeUnknown(status);
      job->now_unknown = job->now_unknown || unknown;
      const absl::Duration pause =
          FullJitter(absl::Milliseconds(50), absl::Seconds(2), job->tries,
                     random_.NextDouble());
      if ((unknown || MayPass(status)) && Now() + pause < job->deadline) {
        job->due = Now() + pause;
        again_.push_back(job);
      } else {
        ++(job->now_unknown ? counts_.unknown : counts_.failed);
        if (errors_.size() < kErrorsKept) {
          errors_.push_back(absl::StrCat(Printable(job->record.key), ": ",
                                         status.ToString()));
        }
        --under_way_;
        keys_under_way_.erase(job->record.key);
      }
    }
    // Under the lock: after the last one the loader may be gone.
    if (next == nullptr) {
      ++changes_;
      changed_.notify_all();
    }
  }
  if (next != nullptr) Start(std::move(next));
}

void Loader::StartDue() {
  std::vector<std::shared_ptr<Job>> due;
  {
    MutexLock lock(mutex_);
    const Instant now = Now();
    std::erase_if(again_, [&](const std::shared_ptr<Job>& job) {
      if (job->due > now) return false;
      due.push_back(job);
      return true;
    });
  }
  for (std::shared_ptr<Job>& job : due) Start(std::move(job));
}

void Loader::WaitABit(Instant until, uint64_t changes) {
  std::unique_lock<Mutex> lock(mutex_);
  if (changes_ != changes) return;
  for (const std::shared_ptr<Job>& job : again_) {
    until = std::min(until, job->due);
  }
  const Instant now = Now();
  if (until <= now) return;
  changed_.wait_for(lock, absl::ToChronoNanoseconds(until - now));
}

bool Loader::Drain(Instant until) {
  while (true) {
    StartDue();
    uint64_t changes = 0;
    {
      MutexLock lock(mutex_);
      changes = changes_;
      if (under_way_ == 0) return true;
    }
    if (Now() >= until) return false;
    WaitABit(until, changes);
  }
}

LoadCounts Loader::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

std::vector<std::string> Loader::errors() const {
  MutexLock lock(mutex_);
  return errors_;
}

}  // namespace ringkv
