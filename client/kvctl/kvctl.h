// kvctl, the command line of RingKV, as a function: the program is a thin shell
// around it, and tests call it with streams of their own.

#ifndef RINGKV_CLIENT_KVCTL_KVCTL_H_
#define RINGKV_CLIENT_KVCTL_KVCTL_H_

#include <istream>
#include <ostream>
#include <string>
#include <vector>

namespace ringkv {

// Exit codes.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;    // refused or failed
inline constexpr int kExitUsage = 2;     // wrong flags or arguments
inline constexpr int kExitNoValue = 3;   // get: the key has no value
inline constexpr int kExitDegraded = 4;  // status: something needs attention
inline constexpr int kExitUnknown = 5;  // status: nobody answers, or no cluster

struct Streams {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_is_terminal = false;
  bool err_is_terminal = false;
  // Path of the program, to find kvnode beside it.
  std::string program;
};

// Runs one command; `arguments` without the program's name. Returns the exit
// code.
int RunKvctl(const std::vector<std::string>& arguments, Streams& streams);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_KVCTL_KVCTL_H_
