#include "server/coordinator/quorum.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/status.h"

namespace ringkv {
namespace {

bool IsStrict(const Keyspace& keyspace, Quorum quorum) {
  if (quorum == Quorum::kDefault) return keyspace.quorum == QuorumMode::kStrict;
  return quorum == Quorum::kStrict;
}

// `own` is R or W of the keyspace, `other` the opposite one.
absl::StatusOr<QuorumNeed> Need(const Ring& ring, const Keyspace& keyspace,
                                char name, uint32_t asked, uint32_t own,
                                uint32_t other, Quorum quorum) {
  const uint32_t value = asked == 0 ? own : asked;
  if (value > keyspace.n) {
    return absl::InvalidArgumentError(absl::StrCat(
        std::string(1, name), "=", value, " is above N=", keyspace.n,
        " of keyspace '", keyspace.name, "'; ask for 1 to ", keyspace.n));
  }
  QuorumNeed need;
  need.strict = IsStrict(keyspace, quorum);
  if (need.strict) {
    if (value < own) {
      return absl::InvalidArgumentError(
          absl::StrCat("strict needs ", std::string(1, name), " of at least ",
                       own, ", the keyspace's own, got ", value));
    }
    if (value + other <= keyspace.n) {
      return absl::InvalidArgumentError(absl::StrCat(
          "strict needs R+W > N: keyspace '", keyspace.name,
          "' has N=", keyspace.n, " R=", keyspace.r, " W=", keyspace.w,
          ", asked ", std::string(1, name), "=", value));
    }
  }
  need.n = ring.EffectiveN(keyspace);
  need.required = std::min(value, need.n);
  // Whatever R this call asks for, later strict reads ask for the keyspace's
  // own or more.
  need.holders = need.n - ring.EffectiveR(keyspace) + 1;
  return need;
}

}  // namespace

absl::StatusOr<QuorumNeed> ReadNeed(const Ring& ring, const Keyspace& keyspace,
                                    uint32_t r, Quorum quorum) {
  return Need(ring, keyspace, 'R', r, keyspace.r, keyspace.w, quorum);
}

absl::StatusOr<QuorumNeed> WriteNeed(const Ring& ring, const Keyspace& keyspace,
                                     uint32_t w, Quorum quorum) {
  return Need(ring, keyspace, 'W', w, keyspace.w, keyspace.r, quorum);
}

WriteSets WriteSetsOf(const Ring& ring, const Keyspace& keyspace, Token token) {
  WriteSets sets;
  const auto add = [&](const Ring& arrangement, const Keyspace& settings,
                       absl::Span<const NodeNumber> nodes, bool new_owners) {
    WriteSet& set = sets.emplace_back();
    set.nodes = nodes;
    set.n = arrangement.EffectiveN(settings);
    set.w = arrangement.EffectiveW(settings);
    set.holders = set.n - arrangement.EffectiveR(settings) + 1;
    set.new_owners = new_owners;
  };
  const absl::Span<const NodeNumber> other = ring.OtherList(keyspace, token);
  const bool start = ring.other() != nullptr &&
                     ring.spec().operation->phase == TopologyPhase::kStart;
  add(ring, keyspace, ring.PreferenceList(keyspace, token),
      other.empty() || !start);
  if (!other.empty() && !(start && Planted("pending-gets-no-writes"))) {
    add(*ring.other(), *ring.other()->FindKeyspace(keyspace.id), other, start);
  }
  return sets;
}

absl::StatusOr<WriteSets> WriteSetsFor(const Ring& ring,
                                       const Keyspace& keyspace, Token token,
                                       uint32_t w, Quorum quorum) {
  WriteSets sets = WriteSetsOf(ring, keyspace, token);
  ASSIGN_OR_RETURN(const QuorumNeed need, WriteNeed(ring, keyspace, w, quorum));
  sets[0].w = need.required;
  if (sets.size() > 1) {
    const Keyspace& there = *ring.other()->FindKeyspace(keyspace.id);
    // What is asked for may be above the N that was or is to be.
    Quorum resolved = need.strict ? Quorum::kStrict : Quorum::kSloppy;
    ASSIGN_OR_RETURN(
        const QuorumNeed joint,
        WriteNeed(*ring.other(), there, std::min(w, there.n), resolved));
    sets[1].w = joint.required;
  }
  return sets;
}

uint32_t CountAcks(const std::vector<WriteAck>& acks) {
  if (Planted("stand-in-counted-twice")) {
    return static_cast<uint32_t>(acks.size());
  }
  // Maximum matching between nodes and replicas by augmenting paths; both sides
  // have a handful of members.
  std::map<NodeNumber, std::set<NodeNumber>> stands_for;
  for (const WriteAck& ack : acks) {
    stands_for[ack.node].insert(ack.replicas.begin(), ack.replicas.end());
  }
  std::map<NodeNumber, NodeNumber> matched;  // replica -> node
  std::set<NodeNumber> visited;
  std::function<bool(NodeNumber)> augment = [&](NodeNumber node) {
    for (NodeNumber replica : stands_for[node]) {
      if (!visited.insert(replica).second) continue;
      const auto it = matched.find(replica);
      if (it == matched.end() || augment(it->second)) {
        matched[replica] = node;
        return true;
      }
    }
    return false;
  };
  uint32_t count = 0;
  for (const auto& [node, replicas] : stands_for) {
    visited.clear();
    if (augment(node)) ++count;
  }
  return count;
}

uint32_t CountReadAnswers(const std::vector<ReadAnswerKind>& answers) {
  uint32_t home = 0, hints = 0, nothing = 0;
  for (const ReadAnswerKind& answer : answers) {
    if (answer.home) {
      ++home;
    } else if (answer.found) {
      ++hints;
    } else {
      ++nothing;
    }
  }
  if (Planted("fallback-nothing-is-answer")) return home + hints + nothing;
  if (home + hints == 0 && nothing > 0)
    RINGKV_MARK("nothing-from-fallbacks-alone");
  return home + hints > 0 ? home + hints + nothing : 0;
}

}  // namespace ringkv
