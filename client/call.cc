#include "client/call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ringkv {
namespace {

// Connecting is looked at this often, which bounds how long Stop() waits.
constexpr absl::Duration kConnectSlice = absl::Milliseconds(200);
constexpr absl::Duration kConnectMax = absl::Seconds(1);

// A node that lets every request wait for this long is suspected as soon as one
// of them is given up.
constexpr absl::Duration kSuspectAfter = absl::Milliseconds(50);

// Attempts to reach the one run that may be asked again.
constexpr int kHomeConnectsMax = 5;

std::string Trailing(const grpc::ClientContext& context, const char* key) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(key);
  if (found == metadata.end()) return "";
  return std::string(found->second.data(), found->second.size());
}

}  // namespace

void Try::Complete(bool ok) {
  const std::shared_ptr<Call> keep = call;
  keep->OnCompletion(this, ok);
}

bool Call::Begin(bool first) {
  started_at_ = Now();
  if (!runtime_.io.Begin(shared_from_this())) {
    {
      MutexLock lock(mutex_);
      done_ = true;
    }
    absl::Status status = absl::CancelledError("the client is closed");
    if (!first && target_.repeatable != Repeatable::kRead) {
      MarkOutcomeUnknown(status);
    }
    Deliver(status, nullptr);
    return false;
  }
  if (first) {
    ++runtime_.calls;
    MutexLock lock(runtime_.mutex);
    runtime_.budget.OnCall();
  }
  return true;
}

void Call::Start() {
  if (!Begin(/*first=*/true)) return;
  After after;
  {
    MutexLock lock(mutex_);
    if (!done_) Launch(/*hedge=*/false, after);
  }
  Settle(after);
}

void Call::StartAfter(const EarlierTry& earlier) {
  if (!Begin(/*first=*/false)) return;
  After after;
  {
    MutexLock lock(mutex_);
    if (!done_) {
      if (earlier.sent) ++sent_;
      tried_.push_back(earlier.node->address());
      TryReport report;
      report.code = earlier.status.code();
      report.sent = earlier.sent;
      report.said_not_done = earlier.said_not_done;
      Decide(report, earlier.status, earlier.node, earlier.start_id,
             earlier.sent_at, after);
    }
  }
  Settle(after);
}

void Call::Cancel() {
  After after;
  {
    MutexLock lock(mutex_);
    if (!done_) End(absl::CancelledError("the client is closing"), after);
  }
  Settle(after);
}

void Call::OnCompletion(Try* attempt, bool ok) {
  After after;
  {
    MutexLock lock(mutex_);
    if (!attempt->sent) {
      if (done_ || !Advance(attempt)) OnOver(Remove(attempt), after);
    } else if (attempt->Step(ok)) {
      OnOver(Remove(attempt), after);
    }
  }
  Settle(after);
}

void Call::OnHedgeTimer(int index) {
  After after;
  {
    MutexLock lock(mutex_);
    const bool waits =
        std::any_of(running_.begin(), running_.end(),
                    [index](const auto& t) { return t->index == index; });
    if (done_ || retry_pending_ || !waits ||
        sent_ >= runtime_.options.tries_max || !runtime_.TakeRetry()) {
      return;
    }
    Launch(/*hedge=*/true, after);
  }
  Settle(after);
}

void Call::OnRetryTimer() {
  After after;
  {
    MutexLock lock(mutex_);
    retry_pending_ = false;
    if (!done_) Launch(/*hedge=*/false, after);
  }
  Settle(after);
}

void Call::Settle(After& after) {
  if (!after.end) return;
  if (!after.status.ok() && IsOutcomeUnknown(after.status)) ++runtime_.unknown;
  Deliver(after.status, after.winner.get());
  runtime_.io.End(this);
}

std::shared_ptr<Node> Call::NextCandidate() {
  if (next_candidate_ < candidates_.size()) {
    return candidates_[next_candidate_++];
  }
  const std::shared_ptr<const ClusterSnapshot> snapshot =
      runtime_.view.snapshot();
  const Keyspace* keyspace =
      target_.token.has_value() ? snapshot->ring->FindKeyspace(target_.keyspace)
                                : nullptr;
  const Token token = target_.token.value_or(0);
  if (rounds_ == 0) {
    rounds_ = 1;
    candidates_ = runtime_.view.Route(*snapshot, keyspace, token,
                                      target_.repeatable == Repeatable::kRead);
    if (!candidates_.empty()) {
      next_candidate_ = 1;
      return candidates_.front();
    }
  }
  if (rounds_ == 1) {
    // The live replicas did not do: everyone else.
    rounds_ = 2;
    const std::vector<std::shared_ptr<Node>> before = std::move(candidates_);
    candidates_ = runtime_.view.RouteToAll(*snapshot, keyspace, token);
    std::erase_if(candidates_, [&before](const std::shared_ptr<Node>& node) {
      return std::find(before.begin(), before.end(), node) != before.end();
    });
    next_candidate_ = 0;
    if (!candidates_.empty()) return candidates_[next_candidate_++];
  }
  return nullptr;
}

void Call::Launch(bool hedge, After& after) {
  while (true) {
    std::shared_ptr<Node> node = home_;
    if (node == nullptr) node = NextCandidate();
    if (node == nullptr) {
      if (hedge) return;
      // Once around without an answer: begin anew after a pause.
      const std::shared_ptr<const ClusterSnapshot> snapshot =
          runtime_.view.snapshot();
      const absl::Duration delay =
          std::max(absl::Milliseconds(1),
                   FullJitter(runtime_.options.backoff_base,
                              runtime_.options.backoff_max, rounds_,
                              runtime_.view.RandomDouble()));
      ++rounds_;
      candidates_ = runtime_.view.RouteToAll(
          *snapshot,
          target_.token.has_value()
              ? snapshot->ring->FindKeyspace(target_.keyspace)
              : nullptr,
          target_.token.value_or(0));
      next_candidate_ = 0;
      if (Now() + delay >= target_.deadline) {
        if (running_.empty() && !retry_pending_) {
          End(last_error_.ok()
                  ? absl::UnavailableError("no node can be reached")
                  : last_error_,
              after);
        }
        return;
      }
      if (!retry_pending_) {
        retry_pending_ = true;
        runtime_.io.timers().At(Now() + delay, [self = shared_from_this()] {
          self->OnRetryTimer();
        });
      }
      return;
    }
    RepeatMark mark;
    if (home_ != nullptr) {
      mark.age_ms = static_cast<uint64_t>(std::max<int64_t>(
          1, absl::ToInt64Milliseconds(Now() - home_sent_at_)));
      mark.coordinator_start_id = home_start_id_;
    }
    std::unique_ptr<Try> attempt = NewTry(mark);
    Try* const raw = attempt.get();
    raw->call = shared_from_this();
    raw->node = node;
    raw->hedge = hedge;
    raw->pinned = home_ != nullptr;
    raw->index = launched_++;
    const Instant now = Now();
    const absl::Duration remaining = target_.deadline - now;
    raw->connect_by =
        std::min(target_.deadline, now + std::min(kConnectMax, remaining / 3));
    running_.push_back(std::move(attempt));
    if (Advance(raw)) return;
    std::unique_ptr<Try> over = Remove(raw);
    last_error_ = absl::UnavailableError(
        absl::StrCat("cannot connect to ", node->address()));
    tried_.push_back(node->address());
    runtime_.view.Suspect(node);
    after.over.push_back(std::move(over));
    if (home_ != nullptr) {
      TryReport report;
      report.code = absl::StatusCode::kUnavailable;
      report.sent = false;
      report.pinned = true;
      Decide(report, last_error_, node, home_start_id_, home_sent_at_, after);
      return;
    }
  }
}

bool Call::Advance(Try* attempt) {
  const Node::Connection& connection = attempt->node->NextConnection();
  const Instant now = Now();
  const grpc_connectivity_state state = connection.channel->GetState(true);
  if (state == GRPC_CHANNEL_READY) {
    attempt->sent = true;
    attempt->sent_at = now;
    attempt->start_id = attempt->node->start_id();
    attempt->context.set_deadline(GrpcDeadline(target_.deadline - now));
    attempt->node->OnSent(now);
    ++sent_;
    ++runtime_.tries;
    if (attempt->hedge) {
      ++runtime_.hedges;
    } else if (sent_ > 1) {
      ++runtime_.retries;
    }
    if (target_.repeatable != Repeatable::kSameCoordinator &&
        sent_ < runtime_.options.tries_max) {
      absl::Duration p99;
      {
        MutexLock lock(runtime_.mutex);
        p99 = target_.repeatable == Repeatable::kRead
                  ? runtime_.read_p99.Estimate()
                  : runtime_.write_p99.Estimate();
      }
      const absl::Duration delay = HedgeDelay(
          p99, runtime_.options.hedge_delay_min, target_.deadline - now);
      runtime_.io.timers().At(now + delay,
                              [weak = std::weak_ptr<Call>(shared_from_this()),
                               index = attempt->index] {
                                if (std::shared_ptr<Call> self = weak.lock()) {
                                  self->OnHedgeTimer(index);
                                }
                              });
    }
    attempt->Send(connection, runtime_.io.queue());
    return true;
  }
  if (state == GRPC_CHANNEL_TRANSIENT_FAILURE ||
      state == GRPC_CHANNEL_SHUTDOWN || now >= attempt->connect_by) {
    return false;
  }
  connection.channel->NotifyOnStateChange(
      state, GrpcDeadline(std::min(kConnectSlice, attempt->connect_by - now)),
      runtime_.io.queue(), attempt);
  return true;
}

std::unique_ptr<Try> Call::Remove(Try* attempt) {
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i].get() == attempt) {
      std::unique_ptr<Try> removed = std::move(running_[i]);
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      return removed;
    }
  }
  return nullptr;
}

void Call::OnOver(std::unique_ptr<Try> attempt, After& after) {
  const Instant now = Now();
  const std::shared_ptr<Node> node = attempt->node;
  const grpc::StatusCode code = attempt->status.error_code();
  if (attempt->sent) {
    if (code == grpc::StatusCode::DEADLINE_EXCEEDED ||
        code == grpc::StatusCode::CANCELLED) {
      node->OnGivenUp();
      if (node->Silence(now) >= kSuspectAfter) runtime_.view.Suspect(node);
    } else if (code == grpc::StatusCode::UNAVAILABLE &&
               node->NextConnection().channel->GetState(false) !=
                   GRPC_CHANNEL_READY) {
      node->OnGivenUp();
      runtime_.view.Suspect(node);
    } else {
      node->OnAnswer(now, now - attempt->sent_at);
      // It drains, or cannot write: others are asked until its ring watch says
      // that it is well, or retries would go on being spent on it.
      if (code == grpc::StatusCode::UNAVAILABLE &&
          SaysNothingWasDone(attempt->status.error_message())) {
        runtime_.view.Suspect(node);
      }
    }
  }
  if (done_) {
    after.over.push_back(std::move(attempt));
    return;
  }
  tried_.push_back(node->address());
  if (!attempt->sent) {
    last_error_ = absl::UnavailableError(
        absl::StrCat("cannot connect to ", node->address()));
    runtime_.view.Suspect(node);
    const bool hedge = attempt->hedge;
    after.over.push_back(std::move(attempt));
    if (home_ == nullptr) {
      Launch(hedge, after);
    } else {
      TryReport report;
      report.code = absl::StatusCode::kUnavailable;
      report.sent = false;
      report.pinned = true;
      Decide(report, last_error_, node, home_start_id_, home_sent_at_, after);
    }
    return;
  }
  if (attempt->status.ok()) {
    {
      MutexLock lock(runtime_.mutex);
      (target_.repeatable == Repeatable::kRead ? runtime_.read_p99
                                               : runtime_.write_p99)
          .Add(now - attempt->sent_at);
    }
    if (const RingEpoch epoch = AnswerEpoch(*attempt);
        epoch > runtime_.view.epoch()) {
      runtime_.view.NoteEpoch(epoch, node);
    }
    End(absl::OkStatus(), after);
    after.winner = std::move(attempt);
    return;
  }
  TryReport report;
  report.code = static_cast<absl::StatusCode>(code);
  report.pinned = attempt->pinned;
  report.said_not_done = SaysNothingWasDone(attempt->status.error_message());
  if (!absl::SimpleAtoi(Trailing(attempt->context, kRetryAfterMetadata),
                        &report.retry_after_ms)) {
    report.retry_after_ms = 0;
  }
  const uint64_t start_id = attempt->start_id;
  const Instant sent_at = attempt->sent_at;
  absl::Status status = FromGrpc(attempt->status);
  if (absl::IsDeadlineExceeded(status) && now >= target_.deadline) {
    status = absl::DeadlineExceededError(
        absl::StrCat("no answer from ", node->address(), " within ",
                     absl::FormatDuration(absl::Trunc(now - attempt->sent_at,
                                                      absl::Milliseconds(1)))));
  }
  after.over.push_back(std::move(attempt));
  Decide(report, status, node, start_id, sent_at, after);
}

void Call::Decide(const TryReport& report, const absl::Status& status,
                  const std::shared_ptr<Node>& node, uint64_t start_id,
                  Instant sent_at, After& after) {
  last_error_ = status;
  const TryVerdict verdict = Judge(target_.repeatable, report);
  if (verdict == TryVerdict::kRefused) {
    End(status, after);
    return;
  }
  if (verdict == TryVerdict::kAmbiguous && !ambiguous_) {
    ambiguous_ = true;
    if (target_.repeatable == Repeatable::kSameCoordinator) {
      home_ = node;
      home_start_id_ = start_id;
      home_sent_at_ = sent_at;
    }
  }
  const NextTry where =
      WhereNext(target_.repeatable, ambiguous_, home_start_id_ != 0);
  bool again = where != NextTry::kNone;
  if (where == NextTry::kSameRun) {
    if (!report.sent && ++unsent_in_a_row_ >= kHomeConnectsMax) again = false;
    // Known to be over: asking would only be refused.
    if (home_->start_id() != home_start_id_) again = false;
  }
  const absl::Duration pause =
      absl::Milliseconds(report.retry_after_ms) +
      FullJitter(runtime_.options.backoff_base, runtime_.options.backoff_max,
                 sent_ + unsent_in_a_row_ - 1, runtime_.view.RandomDouble());
  if (Now() + pause >= target_.deadline) again = false;
  if (again && report.sent) {
    again = sent_ < runtime_.options.tries_max && runtime_.TakeRetry();
  }
  if (!again) {
    if (running_.empty() && !retry_pending_) End(last_error_, after);
    return;
  }
  if (retry_pending_) return;
  retry_pending_ = true;
  runtime_.io.timers().At(
      Now() + pause, [self = shared_from_this()] { self->OnRetryTimer(); });
}

void Call::End(const absl::Status& status, After& after) {
  done_ = true;
  after.end = true;
  const Instant now = Now();
  bool unknown = ambiguous_;
  for (const std::unique_ptr<Try>& attempt : running_) {
    if (attempt->sent) {
      unknown = unknown || target_.repeatable != Repeatable::kRead;
      // Another node was quicker, and this one gave no sign of life.
      if (attempt->node->Silence(now) >= kSuspectAfter) {
        runtime_.view.Suspect(attempt->node);
      }
    }
    attempt->context.TryCancel();
  }
  if (!status.ok()) after.status = EndStatus(status, unknown, Detail());
}

std::string Call::Detail() const {
  std::vector<std::string> nodes = tried_;
  for (const std::unique_ptr<Try>& attempt : running_) {
    nodes.push_back(attempt->node->address());
  }
  constexpr size_t kNodesShown = 6;
  std::string shown;
  if (nodes.size() > kNodesShown) {
    shown = absl::StrCat(nodes.size() - kNodesShown, " tries before, then ");
    nodes.erase(nodes.begin(),
                nodes.end() - static_cast<std::ptrdiff_t>(kNodesShown));
  }
  if (nodes.empty()) return target_.what;
  return absl::StrCat(target_.what, " sent to ", shown,
                      absl::StrJoin(nodes, ", "), "; ",
                      absl::FormatDuration(absl::Trunc(Now() - started_at_,
                                                       absl::Milliseconds(1))));
}

}  // namespace ringkv
