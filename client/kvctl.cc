// The program; what it does is in client/kvctl/.

#include "client/kvctl/kvctl.h"

#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  // A closed pipe ends the command through the failed write, with its exit
  // code.
  signal(SIGPIPE, SIG_IGN);
  std::ios::sync_with_stdio(false);
  ringkv::Streams streams{std::cin, std::cout, std::cerr};
  streams.in_is_terminal = isatty(STDIN_FILENO) != 0;
  streams.err_is_terminal = isatty(STDERR_FILENO) != 0;
  streams.program = argv[0];
  return ringkv::RunKvctl(std::vector<std::string>(argv + 1, argv + argc),
                          streams);
}
