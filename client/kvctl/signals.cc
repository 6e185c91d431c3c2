#include "client/kvctl/signals.h"

namespace ringkv {
namespace {

volatile sig_atomic_t fired = 0;

void OnSignal(int signal) { fired = signal; }

}  // namespace

SignalWatch::SignalWatch() {
  fired = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &before_[i]);
  }
}

SignalWatch::~SignalWatch() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &before_[i], nullptr);
  }
}

int SignalWatch::Fired() { return fired; }

}  // namespace ringkv
