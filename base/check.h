// CHECK is for our own mistakes, in release builds too: a stopped replica is
// repaired, a corrupt one spreads. Never for bytes from a client, peer or disk.

#ifndef RINGKV_BASE_CHECK_H_
#define RINGKV_BASE_CHECK_H_

namespace ringkv {

// Prints the failed condition with its place to stderr and aborts.
[[noreturn]] void CheckFailed(const char* condition, const char* file,
                              int line);

}  // namespace ringkv

#define RINGKV_CHECK(condition) \
  (static_cast<bool>(condition) \
       ? static_cast<void>(0)   \
       : ::ringkv::CheckFailed(#condition, __FILE__, __LINE__))

#endif  // RINGKV_BASE_CHECK_H_
