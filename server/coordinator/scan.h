// Coordinates one page of a scan: asks every live member for the objects it
// replicates after the cursor, merges what they list up to where all of them
// have got, and checks that every segment on the way was read from R replicas.

#ifndef RINGKV_SERVER_COORDINATOR_SCAN_H_
#define RINGKV_SERVER_COORDINATOR_SCAN_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "server/coordinator/quorum.h"
#include "server/shard/core.h"

namespace ringkv {

// Where a scan goes on: after this token and key. Opaque to clients.
struct ScanCursor {
  KeyspaceId keyspace{};
  Token token = 0;
  std::string key;
  bool operator==(const ScanCursor&) const = default;
};
std::string EncodeScanCursor(const ScanCursor& cursor);
// INVALID_ARGUMENT for bytes that EncodeScanCursor never made, or of another
// keyspace.
absl::StatusOr<ScanCursor> DecodeScanCursor(absl::string_view bytes,
                                            KeyspaceId keyspace);

class ScanCoordinator final : public Operation {
 public:
  ScanCoordinator(ShardCore& core, uint64_t id) : Operation(core, id) {}

  void Start(CallId call, ScanCall scan, Instant deadline);

  void OnReply(NodeNumber from, DataBody& reply, Release release) override;
  void OnTimer() override;
  void OnPeersChanged() override;
  void OnRing() override;
  void OnCancelled(CallId call) override;
  RingEpoch replies_since() const override {
    return keyspace_ == nullptr ? 0 : keyspace_->changed_at;
  }

 private:
  void Begin();
  void Evaluate();
  // UNAVAILABLE if a segment of (cursor, end] was read from fewer than R.
  absl::Status CheckCovered(bool to_the_end, Token end) const;
  void Finish();
  void Fail(absl::Status status);

  CallId call_ = 0;
  ScanCall scan_;
  Instant deadline_;
  Instant started_;
  std::shared_ptr<const Ring> ring_;
  const Keyspace* keyspace_ = nullptr;
  uint32_t required_ = 0;
  bool from_start_ = true;
  ScanCursor cursor_;
  uint32_t entries_max_ = 0;
  std::set<NodeNumber> waiting_;
  std::map<NodeNumber, RangeReply> replies_;
  std::map<NodeNumber, std::string> failed_;
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_COORDINATOR_SCAN_H_
