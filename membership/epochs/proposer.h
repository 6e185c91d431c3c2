// The proposer of single-decree Paxos: tries to have one value decided for one
// ring epoch, and completes another's value where it finds that one may be
// decided. Source: Lamport, "Paxos Made Simple", 2001.
//
//   kPreparing --majority promised--> kAccepting --majority accepted-->
//   kDecided
//        \------------- refused ----------/
//                          |
//                       kWaiting (randomised) --> kPreparing with a higher
//                       round
//
// Messages may be lost, repeated and reordered: what is unanswered is sent
// again, and answers to older ballots are ignored. Thread-compatible.

#ifndef RINGKV_MEMBERSHIP_EPOCHS_PROPOSER_H_
#define RINGKV_MEMBERSHIP_EPOCHS_PROPOSER_H_

#include <cstdint>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "membership/control/messages.h"

namespace ringkv {

struct ProposerOptions {
  RingEpoch epoch = 0;             // to be decided
  std::vector<NodeNumber> voters;  // not empty
  NodeNumber self{};
  uint64_t start_id = 0;  // of this run of the node
  absl::Duration retry = absl::Milliseconds(300);
};

class Proposer {
 public:
  struct Out {
    NodeNumber to{};  // may be this node itself
    ControlMessage message;
  };

  // Begins with a round above `last_round`. Within one run of the node no round
  // is used twice: give round() of the proposer before.
  Proposer(ProposerOptions options, PaxosValue own, uint64_t last_round,
           Random& random);

  void Start(Instant now, std::vector<Out>& out);
  void OnPromise(NodeNumber from, const PaxosPromise& promise, Instant now,
                 std::vector<Out>& out);
  void OnAccepted(NodeNumber from, const PaxosAccepted& accepted, Instant now,
                  std::vector<Out>& out);
  // To be called when `now` has reached NextTimer().
  void OnTimer(Instant now, std::vector<Out>& out);
  Instant NextTimer() const { return timer_; }

  bool decided() const { return phase_ == Phase::kDecided; }
  // What is decided. Requires decided().
  const PaxosValue& value() const { return value_; }
  // The own value was sent to an acceptor: it may be decided even if this
  // proposer gives up.
  bool own_value_sent() const { return own_value_sent_; }

  RingEpoch epoch() const { return options_.epoch; }
  const PaxosValue& own() const { return own_; }
  uint64_t round() const { return round_; }
  // Voters that have not granted the present phase.
  std::vector<NodeNumber> Unanswered() const;

 private:
  enum class Phase { kWaiting, kPreparing, kAccepting, kDecided };

  void Prepare(Instant now, std::vector<Out>& out);
  void Refused(const Ballot& promised, Instant now);
  void SendUnanswered(std::vector<Out>& out);
  bool IsVoter(NodeNumber node) const;

  const ProposerOptions options_;
  const PaxosValue own_;
  Random& random_;
  Phase phase_ = Phase::kWaiting;
  uint64_t round_;
  int refusals_ = 0;
  Ballot ballot_;
  std::set<NodeNumber> granted_;  // of the present phase
  Ballot highest_accepted_;       // among the promises
  PaxosValue value_;              // to be accepted
  bool own_value_sent_ = false;
  Instant timer_ = Instant::Infinite();
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_EPOCHS_PROPOSER_H_
