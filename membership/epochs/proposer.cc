#include "membership/epochs/proposer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/mark.h"
#include "base/planted.h"
#include "membership/epochs/voters.h"

namespace ringkv {

Proposer::Proposer(ProposerOptions options, PaxosValue own, uint64_t last_round,
                   Random& random)
    : options_(std::move(options)),
      own_(std::move(own)),
      random_(random),
      round_(last_round) {
  RINGKV_CHECK(!options_.voters.empty());
}

void Proposer::Start(Instant now, std::vector<Out>& out) {
  RINGKV_CHECK(phase_ == Phase::kWaiting);
  Prepare(now, out);
}

void Proposer::Prepare(Instant now, std::vector<Out>& out) {
  ++round_;
  ballot_ = Ballot{round_, options_.self, options_.start_id};
  phase_ = Phase::kPreparing;
  granted_.clear();
  highest_accepted_ = Ballot();
  value_ = own_;
  timer_ = now + options_.retry;
  SendUnanswered(out);
}

void Proposer::SendUnanswered(std::vector<Out>& out) {
  for (NodeNumber voter : Unanswered()) {
    if (phase_ == Phase::kPreparing) {
      out.push_back({voter, PaxosPrepare{options_.epoch, ballot_}});
    } else {
      out.push_back({voter, PaxosAccept{options_.epoch, ballot_, value_}});
    }
  }
}

std::vector<NodeNumber> Proposer::Unanswered() const {
  std::vector<NodeNumber> unanswered;
  for (NodeNumber voter : options_.voters) {
    if (granted_.count(voter) == 0) unanswered.push_back(voter);
  }
  return unanswered;
}

bool Proposer::IsVoter(NodeNumber node) const {
  return std::find(options_.voters.begin(), options_.voters.end(), node) !=
         options_.voters.end();
}

void Proposer::OnPromise(NodeNumber from, const PaxosPromise& promise,
                         Instant now, std::vector<Out>& out) {
  if (phase_ != Phase::kPreparing || promise.epoch != options_.epoch ||
      promise.ballot != ballot_ || !IsVoter(from)) {
    return;
  }
  if (!promise.granted) return Refused(promise.promised, now);
  if (!granted_.insert(from).second) return;
  if (promise.accepted > highest_accepted_ &&
      !Planted("proposer-ignores-accepted")) {
    RINGKV_MARK("accepted-value-taken-over");
    highest_accepted_ = promise.accepted;
    value_ = promise.value;
  }
  if (granted_.size() < MajorityOf(options_.voters.size())) return;
  phase_ = Phase::kAccepting;
  granted_.clear();
  own_value_sent_ = own_value_sent_ || value_.id == own_.id;
  timer_ = now + options_.retry;
  SendUnanswered(out);
}

void Proposer::OnAccepted(NodeNumber from, const PaxosAccepted& accepted,
                          Instant now, std::vector<Out>& out) {
  if (phase_ != Phase::kAccepting || accepted.epoch != options_.epoch ||
      accepted.ballot != ballot_ || !IsVoter(from)) {
    return;
  }
  if (!accepted.granted) return Refused(accepted.promised, now);
  granted_.insert(from);
  if (granted_.size() < MajorityOf(options_.voters.size())) return;
  phase_ = Phase::kDecided;
  timer_ = Instant::Infinite();
}

void Proposer::Refused(const Ballot& promised, Instant now) {
  // A round near the end of its type would leave no room to go on; such a
  // ballot can only come from a broken peer.
  if (promised.round > round_ && promised.round < (uint64_t{1} << 48)) {
    round_ = promised.round;
  }
  RINGKV_MARK("ballot-refused");
  phase_ = Phase::kWaiting;
  refusals_ = std::min(refusals_ + 1, 5);
  // The range doubles, so that of any number of rivals one soon runs
  // undisturbed.
  const absl::Duration range = options_.retry / 4 * (1 << refusals_);
  timer_ = now + range * (0.1 + 0.9 * random_.NextDouble());
}

void Proposer::OnTimer(Instant now, std::vector<Out>& out) {
  if (now < timer_) return;
  switch (phase_) {
    case Phase::kWaiting:
      Prepare(now, out);
      break;
    case Phase::kPreparing:
    case Phase::kAccepting:
      timer_ = now + options_.retry;
      SendUnanswered(out);
      break;
    case Phase::kDecided:
      timer_ = Instant::Infinite();
      break;
  }
}

}  // namespace ringkv
