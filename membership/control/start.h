// How a node begins: who it is, from what its disk says. Pure; reads through a
// functor and answers with what must be written.

#ifndef RINGKV_MEMBERSHIP_CONTROL_START_H_
#define RINGKV_MEMBERSHIP_CONTROL_START_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/hlc.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/time.h"
#include "membership/control/admin.h"
#include "membership/control/messages.h"
#include "membership/ring/ring.h"

namespace ringkv {

// One change of the engine's kMeta family. No value: the key is deleted.
struct MetaWrite {
  std::string key;
  std::optional<std::string> value;
};

// Reads one key of kMeta: nullopt if it is not there, an error if the disk
// failed.
using MetaReader = std::function<absl::StatusOr<std::optional<std::string>>(
    absl::string_view key)>;

struct StartOptions {
  std::string name;
  // Empty: as stored.
  Location location;
  // The newest ring feature level that this program knows.
  uint32_t feature_level_max = kFeatureLevelMax;
  // The engine holds any entry at all, in any family. With data but without an
  // identity a start is refused: a new identity would orphan the data.
  bool has_data = false;
};

// The acceptor's memory for one epoch to be decided.
struct AcceptorState {
  RingEpoch epoch = 0;
  Ballot promised;
  Ballot accepted;
  PaxosValue value;  // if accepted
  bool operator==(const AcceptorState&) const = default;
};

// A promise to be in no other ring than the one of this init.
struct InitPledge {
  ClusterId init;
  NodeId initiator;
  std::string initiator_address;
  uint64_t initiator_start_id = 0;
  uint64_t sequence = 0;  // the initiator's newest heartbeat at that time
  bool operator==(const InitPledge&) const = default;
};

// The greatest that a member has shown; a disk that shows less is an old copy.
struct SeenPeer {
  uint64_t incarnation = 0;
  uint64_t start_id = 0;
  HlcTimestamp hlc_bound{};
  bool operator==(const SeenPeer&) const = default;
};

// All that a node knows when it starts.
struct StartedNode {
  NodeId id;
  uint64_t incarnation = 0;  // raised for this start
  uint64_t start_id = 0;     // random, never 0
  Location location;         // as stored, if none was given
  // Construct the node's Hlc with `hlc_floor`. `hlc_bound` is in `writes`;
  // Control raises the Hlc to it.
  HlcTimestamp hlc_floor{};
  HlcTimestamp hlc_bound{};
  std::shared_ptr<const Ring> ring;  // null: standby
  std::vector<DecidedProposal> history;
  AcceptorState acceptor;
  std::optional<InitPledge> pledge;
  std::map<NodeId, SeenPeer> seen;
  std::deque<OperationStatus> finished;  // newest first
  // To be written and fsynced before anything is sent, and before Control is
  // made.
  std::vector<MetaWrite> writes;
};

// FAILED_PRECONDITION: data without an identity, a data directory of a newer
// format, a ring of a feature level above what this program knows, or another
// location than the stored one while the node is in a ring (both are named).
// DATA_LOSS: a garbled record, named. Never makes a new identity but for an
// empty engine.
absl::StatusOr<StartedNode> StartNode(const MetaReader& read,
                                      const StartOptions& options,
                                      WallTime wall, Random& random);

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_CONTROL_START_H_
