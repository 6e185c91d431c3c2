#include "server/coordinator/common.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

namespace ringkv {

absl::StatusOr<const Keyspace*> ResolveKeyspace(const Ring& ring,
                                                const std::string& name) {
  // A view of each: a conditional of a literal and a string would make a string
  // that is gone by the next line.
  const absl::string_view wanted =
      name.empty() ? absl::string_view("default") : absl::string_view(name);
  const Keyspace* keyspace = ring.FindKeyspace(wanted);
  if (keyspace == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no keyspace '", wanted,
                     "'; see `kvctl keyspace list` or create it first"));
  }
  return keyspace;
}

absl::Status CheckKey(absl::string_view key) {
  if (key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key is empty; use 1 to ", kKeyBytesMax, " bytes"));
  }
  if (key.size() > kKeyBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the key has ", key.size(), " bytes, the limit is ", kKeyBytesMax));
  }
  return absl::OkStatus();
}

ObjectMode ModeOf(const Keyspace& keyspace) {
  return keyspace.mode == VersionMode::kLww ? ObjectMode::kLww
                                            : ObjectMode::kSiblings;
}

std::vector<NodeNumber> ReplicasByPreference(ShardCore& core, const Ring& ring,
                                             const Keyspace& keyspace,
                                             Token token) {
  struct Candidate {
    int rank;
    absl::Duration median;
    NodeNumber node;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank < other.rank : median < other.median;
    }
  };
  absl::InlinedVector<Candidate, 5> sorted;
  for (const NodeNumber node : ring.PreferenceList(keyspace, token)) {
    const Candidate candidate = {node == core.self()  ? 0
                                 : core.IsAlive(node) ? 1
                                                      : 2,
                                 core.latency().Median(node), node};
    // Few: each goes behind those that are not worse.
    sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), candidate),
                  candidate);
  }
  std::vector<NodeNumber> replicas;
  replicas.reserve(sorted.size());
  for (const Candidate& candidate : sorted) replicas.push_back(candidate.node);
  return replicas;
}

Instant AnswerBy(Instant started, Instant deadline) {
  const absl::Duration margin =
      std::min((deadline - started) / 20, absl::Milliseconds(20));
  return deadline - margin;
}

absl::string_view ReplyCodeText(ReplyCode code) {
  switch (code) {
    case ReplyCode::kOk:
      return "ok";
    case ReplyCode::kStaleRing:
      return "has a newer ring";
    case ReplyCode::kNotReplica:
      return "is no replica";
    case ReplyCode::kOverloaded:
      return "is overloaded";
    case ReplyCode::kFailed:
      return "failed to read or write";
    case ReplyCode::kWrongStart:
      return "has restarted";
    case ReplyCode::kExpired:
      return "got it too late";
    case ReplyCode::kUnchecked:
      return "has just started and too few members have checked its disk";
  }
  return "unknown";
}

std::vector<SiblingAnswer> LiveSiblings(const Object& object, int64_t wall_ms) {
  std::vector<SiblingAnswer> live;
  for (const Sibling& sibling : object.siblings) {
    if (sibling.expires_at_ms != 0 && sibling.expires_at_ms <= wall_ms) {
      continue;
    }
    // A put that was repeated at another coordinator stands under two dots;
    // what clients see is one value, under its later stamp and expiry.
    const auto equal = std::find_if(live.begin(), live.end(),
                                    [&sibling](const SiblingAnswer& shown) {
                                      return shown.value == sibling.value;
                                    });
    if (equal != live.end()) {
      equal->hlc = std::max(equal->hlc, sibling.stamp.hlc);
      const bool never =
          equal->expires_at_ms == 0 || sibling.expires_at_ms == 0;
      equal->expires_at_ms =
          never ? 0 : std::max(equal->expires_at_ms, sibling.expires_at_ms);
      continue;
    }
    live.push_back({sibling.value, sibling.stamp.hlc, sibling.expires_at_ms});
  }
  return live;
}

}  // namespace ringkv
