#include "membership/epochs/acceptor.h"

#include "base/check.h"

namespace ringkv {

void Acceptor::Begin(RingEpoch epoch) {
  RINGKV_CHECK(epoch >= state_.epoch);
  if (epoch == state_.epoch) return;
  // The instances before are decided: what was promised there has served.
  state_ = AcceptorState();
  state_.epoch = epoch;
}

PaxosPromise Acceptor::OnPrepare(const PaxosPrepare& prepare) {
  Begin(prepare.epoch);
  PaxosPromise promise;
  promise.epoch = prepare.epoch;
  promise.ballot = prepare.ballot;
  promise.granted = prepare.ballot >= state_.promised;
  if (promise.granted) {
    state_.promised = prepare.ballot;
    promise.accepted = state_.accepted;
    promise.value = state_.value;
  }
  promise.promised = state_.promised;
  RINGKV_CHECK(state_.accepted <= state_.promised);
  return promise;
}

PaxosAccepted Acceptor::OnAccept(const PaxosAccept& accept) {
  Begin(accept.epoch);
  PaxosAccepted accepted;
  accepted.epoch = accept.epoch;
  accepted.ballot = accept.ballot;
  accepted.granted = accept.ballot >= state_.promised;
  if (accepted.granted) {
    state_.promised = accept.ballot;
    state_.accepted = accept.ballot;
    state_.value = accept.value;
  }
  accepted.promised = state_.promised;
  RINGKV_CHECK(state_.accepted <= state_.promised);
  return accepted;
}

}  // namespace ringkv
