// What happened in one simulated run, as a hash for machines and as lines for
// people. Two runs of a seed must give equal hashes; every event, every message
// byte and every effect goes into it.

#ifndef RINGKV_TESTS_SIM_TRACE_H_
#define RINGKV_TESTS_SIM_TRACE_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ringkv::sim {

// Which lane of a timeline a record belongs to.
inline constexpr int kWorldLane = -1;
constexpr int ClientLane(int client) { return 1000 + client; }

class Trace {
 public:
  // What a record tells of; chooses its colour in a timeline.
  enum class Kind : uint8_t {
    kFault,
    kProcess,
    kMessage,
    kClient,
    kControl,
    kCheck
  };
  struct Record {
    int64_t nanos = 0;
    int lane = kWorldLane;
    Kind kind = Kind::kFault;
    std::string text;
    int to = kWorldLane;  // of a message: the lane it goes to
  };

  // With `live`, lines are printed as they come, so that a run that dies shows
  // how it got there. With `keep`, records are kept for a timeline.
  Trace(bool live, bool keep) : live_(live), keep_(keep) {}

  // Whether lines are wanted at all; callers ask before they format one.
  bool readable() const { return live_ || keep_; }

  void Mix(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15;
    hash_ ^= hash_ >> 29;
    ++events_;
  }
  void Mix(absl::string_view bytes);

  void Say(Record record);

  uint64_t hash() const { return hash_; }
  uint64_t events() const { return events_; }
  const std::vector<Record>& records() const { return records_; }

 private:
  bool live_;
  bool keep_;
  uint64_t hash_ = 0x5be0cd19137e2179;
  uint64_t events_ = 0;
  std::vector<Record> records_;
};

// "n3", "c2" or "world".
std::string LaneName(int lane);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_TRACE_H_
