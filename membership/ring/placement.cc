#include "membership/ring/placement.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/token.h"
#include "membership/ring/balanced.h"
#include "membership/ring/domains.h"
#include "membership/ring/fair_share.h"

namespace ringkv {

namespace {

absl::Status CheckMembers(const std::vector<Member>& members) {
  if (members.empty()) {
    return absl::InvalidArgumentError("a placement needs at least one member");
  }
  if (members.size() > kMembersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a placement of ", members.size(),
                     " members, more than the limit of ", kMembersMax));
  }
  for (size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    if (!(member.weight > 0 && member.weight <= kWeightMax)) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", ToInt(member.number), " has weight ",
                       member.weight, ", not above 0 and up to ", kWeightMax));
    }
    if (i > 0 && member.number <= members[i - 1].number) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", ToInt(member.number), " stands after member ",
                       ToInt(members[i - 1].number)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Assignment> PlaceBalanced(const PlacementOptions& options,
                                         const std::vector<Member>& members,
                                         const Assignment& current) {
  const uint32_t segments = options.vnodes;
  if (!std::has_single_bit(segments) || segments > kSegmentsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a balanced placement of ", segments,
                     " segments, not a power of two up to ", kSegmentsMax));
  }
  if (members.size() > segments) {
    return absl::InvalidArgumentError(absl::StrCat(
        members.size(), " members are more than ", segments, " segments"));
  }
  if (!current.owners.empty() && current.owners.size() != segments) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ring of ", current.owners.size(),
                     " segments cannot be placed again with ", segments));
  }
  std::map<NodeNumber, uint32_t> positions;
  for (uint32_t i = 0; i < members.size(); ++i)
    positions[members[i].number] = i;
  std::vector<uint32_t> owners(segments, kNobody);
  for (size_t i = 0; i < current.owners.size(); ++i) {
    const auto at = positions.find(current.owners[i]);
    if (at != positions.end()) owners[i] = at->second;
  }
  Assignment assignment;
  assignment.owners.reserve(segments);
  for (uint32_t owner : BalanceTokens(members, options.n, owners)) {
    assignment.owners.push_back(members[owner].number);
  }
  return assignment;
}

}  // namespace

absl::StatusOr<Assignment> Place(const PlacementOptions& options,
                                 const std::vector<Member>& members,
                                 const Assignment& current) {
  RETURN_IF_ERROR(CheckMembers(members));
  if (options.n < 1 || options.n > kReplicasMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a placement for N=", options.n, ", not 1 to ", kReplicasMax));
  }
  switch (options.strategy) {
    case PlacementStrategy::kBalanced:
      return PlaceBalanced(options, members, current);
    case PlacementStrategy::kHashed:
      return PlaceHashed(options.vnodes, members, &VnodeToken);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown placement strategy ", static_cast<int>(options.strategy)));
}

Token VnodeToken(const NodeId& id, uint32_t index) {
  // Part of what a cluster has agreed on: never changes.
  std::string bytes;
  bytes.reserve(20);
  for (uint64_t part : {id.high, id.low}) {
    for (int shift = 56; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<char>(part >> shift));
    }
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(index >> shift));
  }
  return Hash64(bytes);
}

absl::StatusOr<Assignment> PlaceHashed(uint32_t vnodes,
                                       const std::vector<Member>& members,
                                       Token (*token_of)(const NodeId&,
                                                         uint32_t)) {
  RETURN_IF_ERROR(CheckMembers(members));
  if (vnodes < 1 || vnodes > kVnodesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a hashed placement of ", vnodes, " vnodes, not 1 to ", kVnodesMax));
  }
  // By id, since numbers depend on who joined first.
  std::vector<uint32_t> by_id(members.size());
  for (uint32_t i = 0; i < members.size(); ++i) by_id[i] = i;
  std::sort(by_id.begin(), by_id.end(), [&](uint32_t a, uint32_t b) {
    return members[a].id < members[b].id;
  });
  std::vector<uint32_t> counts(members.size());
  size_t total = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    counts[i] = static_cast<uint32_t>(
        std::max(1.0, std::round(vnodes * members[i].weight)));
    total += counts[i];
  }
  if (total > kTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hashed placement of ", total,
                     " tokens, more than the limit of ", kTokensMax));
  }
  struct Vnode {
    Token token;
    uint32_t rank;  // in by_id
  };
  std::vector<Vnode> all;
  all.reserve(total);
  for (uint32_t rank = 0; rank < by_id.size(); ++rank) {
    const uint32_t i = by_id[rank];
    for (uint32_t v = 0; v < counts[i]; ++v) {
      all.push_back({token_of(members[i].id, v), rank});
    }
  }
  std::sort(all.begin(), all.end(), [](const Vnode& a, const Vnode& b) {
    return a.token != b.token ? a.token < b.token : a.rank < b.rank;
  });
  // Of vnodes with one token, the smallest id's owns it; the others have none
  // there until that node leaves, and then get the very range it had.
  std::vector<Vnode> kept;
  kept.reserve(all.size());
  std::vector<uint32_t> owned(members.size(), 0);
  for (const Vnode& vnode : all) {
    if (!kept.empty() && kept.back().token == vnode.token) continue;
    kept.push_back(vnode);
    ++owned[vnode.rank];
  }
  // A node that lost all of them draws further tokens until one is free.
  for (uint32_t rank = 0; rank < by_id.size(); ++rank) {
    if (owned[rank] > 0) continue;
    const uint32_t i = by_id[rank];
    constexpr uint32_t kDraws = 1 << 20;
    bool found = false;
    for (uint32_t v = counts[i]; v < counts[i] + kDraws && !found; ++v) {
      const Token token = token_of(members[i].id, v);
      const auto at = std::lower_bound(
          kept.begin(), kept.end(), token,
          [](const Vnode& vnode, Token t) { return vnode.token < t; });
      if (at != kept.end() && at->token == token) continue;
      kept.insert(at, {token, rank});
      found = true;
    }
    if (!found) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no token is free for member ", ToInt(members[i].number)));
    }
  }
  Assignment assignment;
  assignment.tokens.reserve(kept.size());
  assignment.owners.reserve(kept.size());
  for (const Vnode& vnode : kept) {
    assignment.tokens.push_back(vnode.token);
    assignment.owners.push_back(members[by_id[vnode.rank]].number);
  }
  return assignment;
}

namespace {

// Two of `list` that share a domain of one kind though they need not.
struct Clash {
  bool found = false;
  NodeNumber first{}, second{};
};

// `domain` holds the domain of each member; there are `domains` of them.
Clash FindClash(const Ring& ring, absl::Span<const NodeNumber> list,
                const std::vector<uint32_t>& domain, uint32_t domains) {
  const Member* members = ring.spec().members.data();
  Clash clash;
  uint32_t different = 0;
  for (size_t b = 0; b < list.size(); ++b) {
    const uint32_t here = domain[ring.FindMember(list[b]) - members];
    size_t a = 0;
    while (a < b && domain[ring.FindMember(list[a]) - members] != here) ++a;
    if (a == b) {
      ++different;
    } else if (!clash.found) {
      clash = {true, list[a], list[b]};
    }
  }
  // As many as there are is all that can be asked for.
  if (different >= domains) clash.found = false;
  return clash;
}

std::vector<bool> TokenOwners(const Ring& ring) {
  std::vector<bool> taken(ring.spec().members.size(), false);
  for (NodeNumber owner : ring.spec().owners) {
    taken[ring.FindMember(owner) - ring.spec().members.data()] = true;
  }
  return taken;
}

std::string NameOf(const Ring& ring, NodeNumber number) {
  const Member* member = ring.FindMember(number);
  return member == nullptr || member->name.empty()
             ? absl::StrCat("node ", ToInt(number))
             : member->name;
}

std::optional<RingViolation> CheckList(const Ring& ring, const Domains& domains,
                                       const Keyspace& keyspace, size_t segment,
                                       absl::Span<const NodeNumber> list) {
  using Kind = RingViolation::Kind;
  const auto violation = [&](Kind kind, NodeNumber first, NodeNumber second,
                             absl::string_view what) {
    return RingViolation{
        kind,
        keyspace.id,
        segment,
        first,
        second,
        absl::StrCat("keyspace ", keyspace.name, ", segment ", segment,
                     ": the replicas ", NameOf(ring, first), " and ",
                     NameOf(ring, second), " ", what)};
  };
  for (size_t b = 0; b < list.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      if (list[a] != list[b]) continue;
      return violation(Kind::kSameNode, list[a], list[b], "are one node");
    }
  }
  if (const Clash c = FindClash(ring, list, domains.host, domains.hosts);
      c.found) {
    return violation(Kind::kSameHost, c.first, c.second,
                     "share a host, though another was left");
  }
  if (const Clash c = FindClash(ring, list, domains.rack, domains.racks);
      c.found) {
    return violation(Kind::kSameRack, c.first, c.second,
                     "share a rack, though another was left");
  }
  if (const Clash c = FindClash(ring, list, domains.zone, domains.zones);
      c.found) {
    return violation(Kind::kSameZone, c.first, c.second,
                     "share a zone, though another was left");
  }
  return std::nullopt;
}

}  // namespace

PlacementReport Inspect(const Ring& ring, uint32_t n) {
  RINGKV_CHECK(n >= 1 && n <= kReplicasMax);
  const std::vector<Member>& members = ring.spec().members;
  const std::vector<bool> taken = TokenOwners(ring);
  const Domains domains(members, taken);
  n = std::min(n, domains.nodes);
  const size_t segments = ring.segments();
  std::vector<uint32_t> owners(segments);
  for (size_t i = 0; i < segments; ++i) {
    owners[i] = static_cast<uint32_t>(ring.FindMember(ring.spec().owners[i]) -
                                      members.data());
  }
  PlacementReport report;
  std::vector<double> primary(members.size(), 0), replicated(members.size(), 0);
  std::vector<NodeNumber> list(n);
  ForEachPreferenceList(
      owners, domains, n, [&](size_t i, absl::Span<const uint32_t> positions) {
        const Token before =
            i == 0 ? ring.SegmentEnd(segments - 1) : ring.SegmentEnd(i - 1);
        // A single segment is the whole ring, which 64 bits count as 0.
        const double length =
            segments == 1
                ? 1
                : static_cast<double>(ring.SegmentEnd(i) - before) * 0x1p-64;
        primary[owners[i]] += length;
        for (uint32_t k = 0; k < n; ++k) {
          replicated[positions[k]] += length;
          list[k] = members[positions[k]].number;
        }
        const auto clash = [&](const std::vector<uint32_t>& domain,
                               uint32_t count) {
          return FindClash(ring, list, domain, count).found ? 1 : 0;
        };
        report.host_violations += clash(domains.host, domains.hosts);
        report.rack_violations += clash(domains.rack, domains.racks);
        bool crowded = false;
        for (uint32_t k = 0; k < n; ++k) {
          const uint32_t owner = owners[(i + k) % segments];
          crowded |= std::find(positions.begin(), positions.end(), owner) ==
                     positions.end();
          for (uint32_t l = 0; l < k; ++l) {
            crowded |= owners[(i + l) % segments] == owner;
          }
        }
        report.crowded_segments += crowded ? 1 : 0;
      });
  std::vector<Member> placed;
  for (size_t i = 0; i < members.size(); ++i) {
    if (taken[i]) placed.push_back(members[i]);
  }
  const std::vector<double> fair = FairShares(placed, n);
  double sum = 0, squares = 0, largest = 0;
  for (size_t i = 0, at = 0; i < members.size(); ++i) {
    if (!taken[i]) continue;
    PlacementReport::Node node;
    node.number = members[i].number;
    node.primary_share = primary[i];
    node.replicated_share = replicated[i];
    node.fair_share = fair[at++];
    const double ratio = node.replicated_share / node.fair_share;
    sum += ratio;
    squares += ratio * ratio;
    largest = std::max(largest, ratio);
    report.nodes.push_back(node);
  }
  const double count = static_cast<double>(report.nodes.size());
  const double mean = sum / count;
  report.coefficient_of_variation =
      std::sqrt(std::max(0.0, squares / count - mean * mean)) / mean;
  report.largest_over_mean = largest / mean;
  return report;
}

std::optional<RingViolation> CheckPreferenceList(
    const Ring& ring, const Keyspace& keyspace, size_t segment,
    absl::Span<const NodeNumber> list) {
  return CheckList(ring, Domains(ring.spec().members, TokenOwners(ring)),
                   keyspace, segment, list);
}

std::vector<RingViolation> CheckRing(const Ring& ring, size_t max) {
  std::vector<RingViolation> found;
  const Domains domains(ring.spec().members, TokenOwners(ring));
  std::vector<uint32_t> looked_at;
  for (const Keyspace& keyspace : ring.spec().keyspaces) {
    if (found.size() >= max) break;
    if (std::find(looked_at.begin(), looked_at.end(), keyspace.n) !=
        looked_at.end()) {
      continue;
    }
    looked_at.push_back(keyspace.n);
    if (domains.nodes < keyspace.n) {
      found.push_back({RingViolation::Kind::kFewerReplicas, keyspace.id, 0,
                       kNoNode, kNoNode,
                       absl::StrCat("keyspace ", keyspace.name, " asks for ",
                                    keyspace.n, " replicas, but only ",
                                    domains.nodes, " members own tokens")});
    }
    for (size_t i = 0; i < ring.segments() && found.size() < max; ++i) {
      std::optional<RingViolation> violation =
          CheckList(ring, domains, keyspace, i,
                    ring.PreferenceListOfSegment(keyspace, i));
      if (violation.has_value()) found.push_back(*std::move(violation));
    }
  }
  return found;
}

}  // namespace ringkv
