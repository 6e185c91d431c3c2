#include "membership/control/meta.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/coding.h"
#include "base/status.h"
#include "base/token.h"
#include "membership/ring/ring_codec.h"

namespace ringkv {
namespace {

constexpr uint8_t kFormatVersion = 1;

uint64_t Checksum(absl::string_view key, absl::string_view content) {
  return Hash64(content, Hash64(key));
}

MetaWrite Framed(absl::string_view key, absl::string_view content) {
  std::string value;
  value.reserve(content.size() + 9);
  AppendByte(value, kFormatVersion);
  AppendFixed64(value, Checksum(key, content));
  value.append(content.data(), content.size());
  return {std::string(key), std::move(value)};
}

absl::Status Garbled(absl::string_view key) {
  return absl::DataLossError(absl::StrCat(
      "the record \"", key,
      "\" in the data directory is garbled (its checksum or form is wrong); "
      "this node cannot tell who it is or what it promised. Restore the disk, "
      "or "
      "replace the node by a new one with an empty data directory"));
}

absl::StatusOr<absl::string_view> Unframed(absl::string_view key,
                                           absl::string_view value) {
  FieldReader reader(value);
  const uint8_t version = reader.Byte();
  const uint64_t checksum = reader.Fixed64();
  if (!reader.ok() || version == 0) return Garbled(key);
  if (version > kFormatVersion) {
    // A flipped bit in the version byte must not read as "newer".
    if (checksum != Checksum(key, reader.rest())) return Garbled(key);
    return absl::FailedPreconditionError(absl::StrCat(
        "the record \"", key, "\" in the data directory has format ", version,
        ", this program knows up to ", kFormatVersion,
        ": it was written by a newer version"));
  }
  if (checksum != Checksum(key, reader.rest())) return Garbled(key);
  return reader.rest();
}

void AppendId(std::string& out, uint64_t high, uint64_t low) {
  AppendBigEndian64(out, high);
  AppendBigEndian64(out, low);
}
template <class Id>
Id TakeId(FieldReader& reader) {
  Id id;
  id.high = reader.BigEndian64();
  id.low = reader.BigEndian64();
  return id;
}

void AppendBallot(std::string& out, const Ballot& ballot) {
  AppendVarint(out, ballot.round);
  AppendVarint(out, ToInt(ballot.proposer));
  AppendFixed64(out, ballot.start_id);
}
Ballot TakeBallot(FieldReader& reader) {
  Ballot ballot;
  ballot.round = reader.Varint();
  ballot.proposer =
      NodeNumber{static_cast<uint32_t>(reader.Varint(UINT32_MAX))};
  ballot.start_id = reader.Fixed64();
  return ballot;
}

void AppendProposal(std::string& out, const ProposalId& id) {
  AppendFixed64(out, id.start_id);
  AppendVarint(out, id.counter);
}
ProposalId TakeProposal(FieldReader& reader) {
  ProposalId id;
  id.start_id = reader.Fixed64();
  id.counter = reader.Varint();
  return id;
}

void AppendRef(std::string& out, const NodeRef& node) {
  AppendVarint(out, ToInt(node.number));
  AppendBytes(out, node.name);
}
void AppendRefs(std::string& out, const std::vector<NodeRef>& nodes) {
  AppendVarint(out, nodes.size());
  for (const NodeRef& node : nodes) AppendRef(out, node);
}
NodeRef TakeRef(FieldReader& reader) {
  NodeRef node;
  node.number = NodeNumber{static_cast<uint32_t>(reader.Varint(UINT32_MAX))};
  node.name = std::string(reader.Bytes());
  return node;
}
std::vector<NodeRef> TakeRefs(FieldReader& reader) {
  std::vector<NodeRef> nodes;
  const size_t count = reader.Count(/*item_bytes_min=*/2);
  for (size_t i = 0; i < count; ++i) nodes.push_back(TakeRef(reader));
  return nodes;
}

}  // namespace

MetaWrite WriteIdentity(const IdentityRecord& record) {
  std::string content;
  AppendId(content, record.id.high, record.id.low);
  AppendVarint(content, record.incarnation);
  AppendBytes(content, record.name);
  AppendBytes(content, record.location.zone);
  AppendBytes(content, record.location.rack);
  AppendBytes(content, record.location.host);
  return Framed(kIdentityKey, content);
}

absl::StatusOr<IdentityRecord> ReadIdentity(absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view content,
                   Unframed(kIdentityKey, value));
  FieldReader reader(content);
  IdentityRecord record;
  record.id = TakeId<NodeId>(reader);
  record.incarnation = reader.Varint();
  record.name = std::string(reader.Bytes());
  record.location.zone = std::string(reader.Bytes());
  record.location.rack = std::string(reader.Bytes());
  record.location.host = std::string(reader.Bytes());
  if (!reader.Finished() || record.id.IsNone() || record.incarnation == 0) {
    return Garbled(kIdentityKey);
  }
  return record;
}

MetaWrite WriteClockBound(HlcTimestamp bound) {
  std::string content;
  AppendFixed64(content, ToInt(bound));
  return Framed(kClockBoundKey, content);
}

absl::StatusOr<HlcTimestamp> ReadClockBound(absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view content,
                   Unframed(kClockBoundKey, value));
  FieldReader reader(content);
  const HlcTimestamp bound{reader.Fixed64()};
  if (!reader.Finished()) return Garbled(kClockBoundKey);
  return bound;
}

MetaWrite WriteRing(absl::string_view encoded,
                    const std::vector<DecidedProposal>& history) {
  std::string content;
  const size_t skip = history.size() > kProposalHistoryMax
                          ? history.size() - kProposalHistoryMax
                          : 0;
  AppendVarint(content, history.size() - skip);
  for (size_t i = skip; i < history.size(); ++i) {
    AppendVarint(content, history[i].epoch);
    AppendProposal(content, history[i].id);
  }
  AppendBytes(content, encoded);
  return Framed(kRingKey, content);
}

absl::StatusOr<RingRecord> ReadRing(absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view content, Unframed(kRingKey, value));
  FieldReader reader(content);
  RingRecord record;
  const size_t count = reader.Count(/*item_bytes_min=*/10);
  for (size_t i = 0; i < count; ++i) {
    DecidedProposal& entry = record.history.emplace_back();
    entry.epoch = reader.Varint();
    entry.id = TakeProposal(reader);
  }
  const absl::string_view encoded = reader.Bytes();
  if (!reader.Finished()) return Garbled(kRingKey);
  absl::StatusOr<RingSpec> spec = DecodeRing(encoded);
  if (spec.ok()) {
    absl::StatusOr<std::shared_ptr<const Ring>> ring =
        Ring::Make(*std::move(spec));
    if (ring.ok()) {
      record.ring = *std::move(ring);
      return record;
    }
    spec = ring.status();
  }
  // The checksum was right, so this was written on purpose, by a version that
  // knows more than this one.
  return absl::FailedPreconditionError(
      absl::StrCat("the stored ring is not one that this program can use: ",
                   spec.status().message()));
}

MetaWrite WriteAcceptor(const AcceptorState& state) {
  std::string content;
  AppendVarint(content, state.epoch);
  AppendBallot(content, state.promised);
  AppendBallot(content, state.accepted);
  AppendProposal(content, state.value.id);
  AppendBytes(content, state.value.ring);
  return Framed(kAcceptorKey, content);
}

absl::StatusOr<AcceptorState> ReadAcceptor(absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view content,
                   Unframed(kAcceptorKey, value));
  FieldReader reader(content);
  AcceptorState state;
  state.epoch = reader.Varint();
  state.promised = TakeBallot(reader);
  state.accepted = TakeBallot(reader);
  state.value.id = TakeProposal(reader);
  state.value.ring = std::string(reader.Bytes());
  if (!reader.Finished()) return Garbled(kAcceptorKey);
  return state;
}

MetaWrite WritePledge(const InitPledge& pledge) {
  std::string content;
  AppendId(content, pledge.init.high, pledge.init.low);
  AppendId(content, pledge.initiator.high, pledge.initiator.low);
  AppendBytes(content, pledge.initiator_address);
  AppendFixed64(content, pledge.initiator_start_id);
  AppendVarint(content, pledge.sequence);
  return Framed(kPledgeKey, content);
}

MetaWrite DeletePledge() { return {std::string(kPledgeKey), std::nullopt}; }

absl::StatusOr<InitPledge> ReadPledge(absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view content,
                   Unframed(kPledgeKey, value));
  FieldReader reader(content);
  InitPledge pledge;
  pledge.init = TakeId<ClusterId>(reader);
  pledge.initiator = TakeId<NodeId>(reader);
  pledge.initiator_address = std::string(reader.Bytes());
  pledge.initiator_start_id = reader.Fixed64();
  pledge.sequence = reader.Varint();
  if (!reader.Finished()) return Garbled(kPledgeKey);
  return pledge;
}

MetaWrite WriteSeen(const std::map<NodeId, SeenPeer>& seen) {
  std::string content;
  AppendVarint(content, seen.size());
  for (const auto& [id, peer] : seen) {
    AppendId(content, id.high, id.low);
    AppendVarint(content, peer.incarnation);
    AppendFixed64(content, peer.start_id);
    AppendFixed64(content, ToInt(peer.hlc_bound));
  }
  return Framed(kSeenKey, content);
}

absl::StatusOr<std::map<NodeId, SeenPeer>> ReadSeen(absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view content, Unframed(kSeenKey, value));
  FieldReader reader(content);
  std::map<NodeId, SeenPeer> seen;
  const size_t count = reader.Count(/*item_bytes_min=*/33);
  for (size_t i = 0; i < count; ++i) {
    const NodeId id = TakeId<NodeId>(reader);
    SeenPeer& peer = seen[id];
    peer.incarnation = reader.Varint();
    peer.start_id = reader.Fixed64();
    peer.hlc_bound = HlcTimestamp{reader.Fixed64()};
  }
  if (!reader.Finished()) return Garbled(kSeenKey);
  return seen;
}

MetaWrite WriteFinished(const std::deque<OperationStatus>& finished) {
  std::string content;
  AppendVarint(content, finished.size());
  for (const OperationStatus& status : finished) {
    AppendVarint(content, status.id);
    AppendByte(content, static_cast<uint8_t>(status.kind));
    AppendByte(content, static_cast<uint8_t>(status.state));
    AppendRefs(content, status.nodes);
    AppendRefs(content, status.replaced);
    AppendBytes(content, status.keyspace);
    AppendFixed64(content, static_cast<uint64_t>(status.started_ms));
    AppendFixed64(content, static_cast<uint64_t>(status.ended_ms));
    AppendVarint(content, status.progress.size());
    for (const OperationProgress& progress : status.progress) {
      AppendRef(content, progress.node);
      AppendVarint(content, progress.report.ranges);
      AppendVarint(content, progress.report.ranges_done);
      AppendVarint(content, progress.report.keys);
      AppendVarint(content, progress.report.bytes);
      AppendByte(content, progress.report.done ? 1 : 0);
    }
  }
  return Framed(kFinishedKey, content);
}

absl::StatusOr<std::deque<OperationStatus>> ReadFinished(
    absl::string_view value) {
  ASSIGN_OR_RETURN(const absl::string_view content,
                   Unframed(kFinishedKey, value));
  FieldReader reader(content);
  std::deque<OperationStatus> finished;
  const size_t count = reader.Count(/*item_bytes_min=*/20);
  for (size_t i = 0; i < count; ++i) {
    OperationStatus& status = finished.emplace_back();
    status.id = reader.Varint();
    status.kind = static_cast<TopologyKind>(reader.Byte());
    status.state = static_cast<OperationState>(reader.Byte());
    status.nodes = TakeRefs(reader);
    status.replaced = TakeRefs(reader);
    status.keyspace = std::string(reader.Bytes());
    status.started_ms = static_cast<int64_t>(reader.Fixed64());
    status.ended_ms = static_cast<int64_t>(reader.Fixed64());
    const size_t receivers = reader.Count(/*item_bytes_min=*/7);
    for (size_t j = 0; j < receivers; ++j) {
      OperationProgress& progress = status.progress.emplace_back();
      progress.node = TakeRef(reader);
      progress.report.operation = status.id;
      progress.report.ranges = reader.Varint();
      progress.report.ranges_done = reader.Varint();
      progress.report.keys = reader.Varint();
      progress.report.bytes = reader.Varint();
      progress.report.done = reader.Byte() != 0;
    }
  }
  if (!reader.Finished()) return Garbled(kFinishedKey);
  return finished;
}

}  // namespace ringkv
