#include "membership/control/start.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "membership/control/clock_bound.h"
#include "membership/control/meta.h"

namespace ringkv {
namespace {

template <class Id>
Id RandomId(Random& random) {
  Id id;
  do {
    id.high = random.Next();
    id.low = random.Next();
  } while (id.IsNone());
  return id;
}

uint64_t RandomNonZero(Random& random) {
  uint64_t value = 0;
  do {
    value = random.Next();
  } while (value == 0);
  return value;
}

std::string Described(const Location& location) {
  const std::string text = location.ToString();
  return text.empty() ? "no location" : absl::StrCat("\"", text, "\"");
}

}  // namespace

absl::StatusOr<StartedNode> StartNode(const MetaReader& read,
                                      const StartOptions& options,
                                      WallTime wall, Random& random) {
  StartedNode node;
  IdentityRecord identity;
  ASSIGN_OR_RETURN(const std::optional<std::string> stored_identity,
                   read(kIdentityKey));
  ASSIGN_OR_RETURN(const std::optional<std::string> stored_bound,
                   read(kClockBoundKey));
  ASSIGN_OR_RETURN(const std::optional<std::string> stored_ring,
                   read(kRingKey));
  ASSIGN_OR_RETURN(const std::optional<std::string> stored_acceptor,
                   read(kAcceptorKey));
  ASSIGN_OR_RETURN(const std::optional<std::string> stored_pledge,
                   read(kPledgeKey));
  ASSIGN_OR_RETURN(const std::optional<std::string> stored_seen,
                   read(kSeenKey));
  ASSIGN_OR_RETURN(const std::optional<std::string> stored_finished,
                   read(kFinishedKey));

  const bool fresh = !stored_identity.has_value();
  if (fresh) {
    if (options.has_data || stored_bound.has_value() ||
        stored_ring.has_value() || stored_acceptor.has_value() ||
        stored_pledge.has_value() || stored_seen.has_value() ||
        stored_finished.has_value()) {
      return absl::FailedPreconditionError(
          "the data directory holds data but no node identity; a new identity "
          "would orphan the data. Restore the directory, or start with an "
          "empty "
          "one");
    }
    identity.id = RandomId<NodeId>(random);
    identity.location = options.location;
  } else {
    ASSIGN_OR_RETURN(identity, ReadIdentity(*stored_identity));
    if (!stored_bound.has_value()) {
      return absl::DataLossError(
          absl::StrCat("the record \"", kClockBoundKey,
                       "\" is missing from the data directory of node ",
                       identity.id.ToString()));
    }
    ASSIGN_OR_RETURN(node.hlc_floor, ReadClockBound(*stored_bound));
  }
  if (stored_ring.has_value()) {
    ASSIGN_OR_RETURN(RingRecord record, ReadRing(*stored_ring));
    if (record.ring->FindMember(identity.id) == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "node ", identity.id.ToString(),
          " has left its ring: it is not in "
          "epoch ",
          record.ring->epoch(),
          ". To add the machine again, start "
          "it with an empty data directory and join it as a new node"));
    }
    const uint32_t level = record.ring->spec().feature_level;
    if (level > options.feature_level_max) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the ring in the data directory has feature level ", level,
          ", and this program knows up to ", options.feature_level_max,
          ": after kvctl upgrade finish there is no way back; start the newer "
          "program"));
    }
    node.ring = std::move(record.ring);
    node.history = std::move(record.history);
  }
  if (stored_acceptor.has_value()) {
    ASSIGN_OR_RETURN(node.acceptor, ReadAcceptor(*stored_acceptor));
    if (node.ring == nullptr || node.acceptor.epoch > node.ring->epoch() + 1) {
      return absl::DataLossError(absl::StrCat(
          "this node voted on ring epoch ", node.acceptor.epoch,
          ", but its data directory ",
          node.ring == nullptr
              ? "holds no ring"
              : absl::StrCat("holds only epoch ", node.ring->epoch()),
          ": it lost a record"));
    }
  }
  if (stored_pledge.has_value()) {
    ASSIGN_OR_RETURN(node.pledge, ReadPledge(*stored_pledge));
  }
  if (stored_seen.has_value()) {
    ASSIGN_OR_RETURN(node.seen, ReadSeen(*stored_seen));
  }
  if (stored_finished.has_value()) {
    ASSIGN_OR_RETURN(node.finished, ReadFinished(*stored_finished));
  }

  if (options.location != Location() && options.location != identity.location) {
    // The ring places data by the label it was decided with.
    if (node.ring != nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "this node joined its ring with location ",
          Described(identity.location), ", and is started with ",
          Described(options.location),
          ": a change would misplace its data. Start it with the old location; "
          "to move it, decommission it and add it again"));
    }
    identity.location = options.location;
  }
  identity.name = options.name;
  ++identity.incarnation;

  node.id = identity.id;
  node.incarnation = identity.incarnation;
  node.start_id = RandomNonZero(random);
  node.location = identity.location;
  node.hlc_bound = NextBound(node.hlc_floor, wall);
  node.writes.push_back(WriteIdentity(identity));
  node.writes.push_back(WriteClockBound(node.hlc_bound));
  return node;
}

}  // namespace ringkv
