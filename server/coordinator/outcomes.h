// What became of puts that carry a request id, so that a repeat never takes
// effect twice. Forgotten at a restart; bounded in age and bytes.

#ifndef RINGKV_SERVER_COORDINATOR_OUTCOMES_H_
#define RINGKV_SERVER_COORDINATOR_OUTCOMES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/time.h"
#include "server/messages.h"

namespace ringkv {

// The dot and object of one put, kept so that a repeat continues it.
struct MintedWrite {
  std::string object;  // encoded, whole
  PutAnswer answer;    // context and unresolved_siblings
};

class Outcomes {
 public:
  struct Entry {
    // Of keyspace, key, value and kind: a repeat must be the same operation.
    uint64_t fingerprint = 0;
    // The operation that runs for it, or 0.
    uint64_t running = 0;
    // Set once minted: what a repeat of a failed put goes on with.
    std::shared_ptr<const MintedWrite> minted;
    // Set once the outcome is definite.
    std::shared_ptr<const ClientAnswer> answer;
    // Set while another node coordinates it.
    NodeNumber forwarded_to{};
    uint64_t forwarded_start_id = 0;
    Instant created;
    size_t bytes = 0;
  };

  Outcomes(Instant start, absl::Duration kept, uint64_t bytes_max)
      : kept_(kept), bytes_max_(bytes_max), remembered_since_(start) {}

  // Null if unknown.
  Entry* Find(absl::string_view id);
  Entry& Insert(absl::string_view id, uint64_t fingerprint, Instant now);
  // After an entry's answer or minted write was set.
  void Updated(absl::string_view id);
  void Erase(absl::string_view id);

  // Drops what is too old or too much; running entries stay.
  void Trim(Instant now);

  // OK if a repeat that was first sent `age` ago and is unknown cannot have
  // been here; FAILED_PRECONDITION if it may have been forgotten.
  absl::Status CheckUnknown(absl::Duration age, Instant now) const;

  size_t size() const { return entries_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  absl::Duration kept_;
  uint64_t bytes_max_;
  // Everything that arrived after this instant is still known.
  Instant remembered_since_;
  uint64_t bytes_ = 0;
  std::map<std::string, Entry, std::less<>> entries_;
  std::deque<std::pair<Instant, std::string>> order_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_OUTCOMES_H_
