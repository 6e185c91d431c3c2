// The acceptor of single-decree Paxos, one instance for each ring epoch.
// Source: Lamport, "Paxos Made Simple", 2001.
//
// Invariant: for one epoch the promised ballot only grows, and nothing is
// accepted below it. Whoever owns the acceptor makes state() durable before a
// granting answer leaves. Thread-compatible.

#ifndef RINGKV_MEMBERSHIP_EPOCHS_ACCEPTOR_H_
#define RINGKV_MEMBERSHIP_EPOCHS_ACCEPTOR_H_

#include "membership/control/messages.h"
#include "membership/control/start.h"

namespace ringkv {

class Acceptor {
 public:
  explicit Acceptor(AcceptorState state) : state_(std::move(state)) {}

  // Requires: `prepare.epoch` is the epoch after the newest that is known to be
  // decided, so it never goes back.
  PaxosPromise OnPrepare(const PaxosPrepare& prepare);
  PaxosAccepted OnAccept(const PaxosAccept& accept);

  const AcceptorState& state() const { return state_; }

 private:
  void Begin(RingEpoch epoch);

  AcceptorState state_;
};

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_EPOCHS_ACCEPTOR_H_
