// Ctrl-C and its like, as something to look at.

#ifndef RINGKV_CLIENT_KVCTL_SIGNALS_H_
#define RINGKV_CLIENT_KVCTL_SIGNALS_H_

#include <array>
#include <csignal>

namespace ringkv {

// Takes SIGINT, SIGTERM and SIGHUP for as long as it lives: the first one is
// noted, and from then on a next one kills. One at a time.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // The signal that came to the living one; 0: none.
  static int Fired();

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_KVCTL_SIGNALS_H_
