// The control loop's records in the engine's kMeta family. Each is framed by a
// format version and a checksum over its key and content, so that a garbled or
// misplaced record is found and named, never taken for another state.

#ifndef RINGKV_MEMBERSHIP_CONTROL_META_H_
#define RINGKV_MEMBERSHIP_CONTROL_META_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/hlc.h"
#include "base/ids.h"
#include "membership/control/admin.h"
#include "membership/control/messages.h"
#include "membership/control/start.h"
#include "membership/ring/ring.h"

namespace ringkv {

// Keys; part of the on-disk format.
inline constexpr absl::string_view kIdentityKey = "control/identity";
inline constexpr absl::string_view kClockBoundKey = "control/clock_bound";
inline constexpr absl::string_view kRingKey = "control/ring";
inline constexpr absl::string_view kAcceptorKey = "control/acceptor";
inline constexpr absl::string_view kPledgeKey = "control/init_pledge";
inline constexpr absl::string_view kSeenKey = "control/seen_peers";
inline constexpr absl::string_view kFinishedKey = "control/operations";

struct IdentityRecord {
  NodeId id;
  uint64_t incarnation = 0;
  std::string name;
  Location location;
};

struct RingRecord {
  std::shared_ptr<const Ring> ring;
  std::vector<DecidedProposal> history;  // oldest first
};

MetaWrite WriteIdentity(const IdentityRecord& record);
MetaWrite WriteClockBound(HlcTimestamp bound);
// `encoded` is the ring as EncodeRing gives it.
MetaWrite WriteRing(absl::string_view encoded,
                    const std::vector<DecidedProposal>& history);
MetaWrite WriteAcceptor(const AcceptorState& state);
MetaWrite WritePledge(const InitPledge& pledge);
MetaWrite DeletePledge();
MetaWrite WriteSeen(const std::map<NodeId, SeenPeer>& seen);
// Operations that have ended, newest first, without what they waited for.
MetaWrite WriteFinished(const std::deque<OperationStatus>& finished);

// DATA_LOSS: garbled. FAILED_PRECONDITION: written by a newer version.
absl::StatusOr<IdentityRecord> ReadIdentity(absl::string_view value);
absl::StatusOr<HlcTimestamp> ReadClockBound(absl::string_view value);
absl::StatusOr<RingRecord> ReadRing(absl::string_view value);
absl::StatusOr<AcceptorState> ReadAcceptor(absl::string_view value);
absl::StatusOr<InitPledge> ReadPledge(absl::string_view value);
absl::StatusOr<std::map<NodeId, SeenPeer>> ReadSeen(absl::string_view value);
absl::StatusOr<std::deque<OperationStatus>> ReadFinished(
    absl::string_view value);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_META_H_
