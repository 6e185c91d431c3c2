// What happened in one simulated run, as a hash for machines and as lines for
// people. Two runs of a seed must give equal hashes; every event, every message
// byte and every effect goes into it.

#ifndef RINGKV_TESTS_SIM_TRACE_H_
#define RINGKV_TESTS_SIM_TRACE_H_

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
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
    // Of a message:
    int to = kWorldLane;   // the lane it goes to
    std::string key;       // keyspace/key; empty if it is of none or unknown
    int64_t arrived = -1;  // nanos; -1: never
  };
  // What Say() answers for a record that is not kept.
  static constexpr size_t kNotKept = SIZE_MAX;

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

  // Its place among the records, or kNotKept.
  size_t Say(Record record);
  // The message of record `place` is there; the first time counts.
  void Arrived(size_t place, int64_t nanos);

  // Replies do not name the key that they are about: a request of `lane` tells
  // it. Empty if none did.
  void NoteRequest(int lane, uint64_t operation, std::string key);
  std::string KeyOfRequest(int lane, uint64_t operation) const;

  uint64_t hash() const { return hash_; }
  uint64_t events() const { return events_; }
  const std::vector<Record>& records() const { return records_; }

 private:
  bool live_;
  bool keep_;
  uint64_t hash_ = 0x5be0cd19137e2179;
  uint64_t events_ = 0;
  std::vector<Record> records_;
  std::map<std::pair<int, uint64_t>, std::string> requests_;
};

// "n3", "c2" or "world".
std::string LaneName(int lane);

}  // namespace ringkv::sim

#endif  // RINGKV_TESTS_SIM_TRACE_H_
