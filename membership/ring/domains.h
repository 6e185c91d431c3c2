// Failure domains as small numbers, and the order in which nodes come up on a
// clockwise walk. Used to compute preference lists and placements.

#ifndef RINGKV_MEMBERSHIP_RING_DOMAINS_H_
#define RINGKV_MEMBERSHIP_RING_DOMAINS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "membership/ring/ring.h"

namespace ringkv {

inline constexpr uint32_t kNoDomain = UINT32_MAX;

// Dense numbers, from 0, of the zones, racks and hosts of members. Domains are
// nested: rack "r1" of zone "a" and rack "r1" of zone "b" are two racks. So a
// new zone is always a new rack, and a new rack a new host.
struct Domains {
  // By position in the member list; kNoDomain for members left out.
  std::vector<uint32_t> zone, rack, host;
  uint32_t zones = 0, racks = 0, hosts = 0;
  // How many members take part.
  uint32_t nodes = 0;

  Domains() = default;
  // Numbers the domains of the members whose `taken` entry is true, in the
  // order of `members`. Requires equal sizes.
  Domains(absl::Span<const Member> members, const std::vector<bool>& taken);
};

// A permutation of 0 .. size-1 in which any item moves to the front in O(1).
// When a ring is read anticlockwise and each owner moves to the front, the list
// holds the owners in the order in which a clockwise walk from here meets them.
class RecencyList {
 public:
  static constexpr uint32_t kEnd = UINT32_MAX;

  explicit RecencyList(uint32_t size)
      : next_(size, kEnd), prev_(size, kAbsent) {}

  // Puts `item` first, whether or not it was in the list.
  void MoveToFront(uint32_t item) {
    if (item == head_) return;
    if (prev_[item] != kAbsent) {
      next_[prev_[item]] = next_[item];
      if (next_[item] != kEnd) prev_[next_[item]] = prev_[item];
    }
    next_[item] = head_;
    if (head_ != kEnd) prev_[head_] = item;
    prev_[item] = kAbsent;
    head_ = item;
  }

  // The first item, or kEnd.
  uint32_t First() const { return head_; }
  uint32_t Next(uint32_t item) const { return next_[item]; }

 private:
  // Before the first item, and of items not in the list.
  static constexpr uint32_t kAbsent = UINT32_MAX;

  std::vector<uint32_t> next_, prev_;
  uint32_t head_ = kEnd;
};

// Calls `visit(segment, list)` for each segment, from the last to the first,
// with its preference list of `n` member positions. `owners` are member
// positions in token order, `n` at most domains.nodes. Each segment costs O(n *
// n) whatever the ring looks like, since no walk passes the same node twice.
template <typename Visit>
void ForEachPreferenceList(absl::Span<const uint32_t> owners,
                           const Domains& domains, uint32_t n, Visit visit) {
  const uint32_t members = static_cast<uint32_t>(domains.host.size());
  RecencyList zones(domains.zones), racks(domains.racks), hosts(domains.hosts),
      nodes(members);
  // The member that a walk meets first in each domain.
  std::vector<uint32_t> zone_front(domains.zones), rack_front(domains.racks),
      host_front(domains.hosts);
  const auto meet = [&](uint32_t member) {
    const uint32_t zone = domains.zone[member];
    const uint32_t rack = domains.rack[member];
    const uint32_t host = domains.host[member];
    zones.MoveToFront(zone);
    racks.MoveToFront(rack);
    hosts.MoveToFront(host);
    nodes.MoveToFront(member);
    zone_front[zone] = rack_front[rack] = host_front[host] = member;
  };
  std::vector<uint32_t> list;
  list.reserve(n);
  const auto taken = [&list](const std::vector<uint32_t>& domain,
                             uint32_t value) {
    for (uint32_t member : list) {
      if (domain[member] == value) return true;
    }
    return false;
  };
  const auto listed = [&list](uint32_t member) {
    for (uint32_t other : list) {
      if (other == member) return true;
    }
    return false;
  };
  for (size_t i = owners.size(); i-- > 0;) meet(owners[i]);
  for (size_t i = owners.size(); i-- > 0;) {
    meet(owners[i]);
    list.clear();
    for (uint32_t z = zones.First(); z != RecencyList::kEnd && list.size() < n;
         z = zones.Next(z)) {
      list.push_back(zone_front[z]);
    }
    for (uint32_t r = racks.First(); r != RecencyList::kEnd && list.size() < n;
         r = racks.Next(r)) {
      if (!taken(domains.rack, r)) list.push_back(rack_front[r]);
    }
    for (uint32_t h = hosts.First(); h != RecencyList::kEnd && list.size() < n;
         h = hosts.Next(h)) {
      if (!taken(domains.host, h)) list.push_back(host_front[h]);
    }
    for (uint32_t m = nodes.First(); m != RecencyList::kEnd && list.size() < n;
         m = nodes.Next(m)) {
      if (!listed(m)) list.push_back(m);
    }
    visit(i, absl::Span<const uint32_t>(list));
  }
}

}  // namespace ringkv

#endif  // RINGKV_MEMBERSHIP_RING_DOMAINS_H_
