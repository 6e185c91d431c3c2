#include "client/retry_policy.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"

namespace ringkv {
namespace {

// Payload of a status whose write may have taken effect.
constexpr char kOutcomeUnknownUrl[] =
    "type.googleapis.com/ringkv.v1.OutcomeUnknown";

}  // namespace

bool IsOutcomeUnknown(const absl::Status& status) {
  return !status.ok() && status.GetPayload(kOutcomeUnknownUrl).has_value();
}

void MarkOutcomeUnknown(absl::Status& status) {
  if (!status.ok()) status.SetPayload(kOutcomeUnknownUrl, absl::Cord());
}

Repeatable RepeatableWrite(bool has_context, bool siblings_keyspace) {
  return has_context && siblings_keyspace ? Repeatable::kAnywhere
                                          : Repeatable::kSameCoordinator;
}

TryVerdict Judge(Repeatable repeatable, const TryReport& report) {
  using Code = absl::StatusCode;
  if (report.code == Code::kOk) return TryVerdict::kDone;
  if (!report.sent) return TryVerdict::kNotDone;
  switch (report.code) {
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kOutOfRange:
    case Code::kPermissionDenied:
    case Code::kUnauthenticated:
    case Code::kUnimplemented:
      return TryVerdict::kRefused;
    case Code::kResourceExhausted:
      // Overload passes; a size over a limit does not.
      return report.said_not_done ? TryVerdict::kNotDone : TryVerdict::kRefused;
    case Code::kFailedPrecondition:
      // A repeat that names a run is refused when the run is over or the
      // request forgotten: no other node would know more.
      return report.pinned ? TryVerdict::kRefused : TryVerdict::kNotDone;
    default:
      // UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, INTERNAL and the like.
      if (repeatable == Repeatable::kRead || report.said_not_done) {
        return TryVerdict::kNotDone;
      }
      return TryVerdict::kAmbiguous;
  }
}

NextTry WhereNext(Repeatable repeatable, bool ambiguous_before,
                  bool run_known) {
  if (repeatable != Repeatable::kSameCoordinator || !ambiguous_before) {
    return NextTry::kAnyNode;
  }
  return run_known ? NextTry::kSameRun : NextTry::kNone;
}

void RetryBudget::OnCall() { tokens_ = std::min(burst_, tokens_ + ratio_); }

bool RetryBudget::TakeRetry() {
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

absl::Duration FullJitter(absl::Duration base, absl::Duration max, int n,
                          double uniform) {
  return std::min(max, base * std::ldexp(1.0, std::clamp(n, 0, 30))) * uniform;
}

void LatencyQuantile::Add(absl::Duration latency) {
  const double seconds = absl::ToDoubleSeconds(latency);
  if (seconds_ == 0) {
    seconds_ = seconds;
    return;
  }
  // A tenth of the estimate as step follows changes of load within some hundred
  // calls, and stays within a few percent of the quantile.
  const double step = seconds_ * 0.1;
  if (seconds > seconds_) {
    seconds_ += step * quantile_;
  } else {
    seconds_ -= step * (1 - quantile_);
  }
}

absl::Duration HedgeDelay(absl::Duration p99, absl::Duration least,
                          absl::Duration remaining) {
  return std::min(std::max(2 * p99, least), remaining / 3);
}

absl::Status EndStatus(const absl::Status& last, bool unknown,
                       absl::string_view detail) {
  std::string message;
  if (unknown) message = "outcome unknown: ";
  absl::StrAppend(&message, last.message());
  if (!detail.empty()) absl::StrAppend(&message, " (", detail, ")");
  absl::Status status(last.code(), message);
  if (unknown) MarkOutcomeUnknown(status);
  return status;
}

}  // namespace ringkv
