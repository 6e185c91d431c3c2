#include "membership/ring/fair_share.h"

#include <algorithm>

#include "base/check.h"
#include "membership/ring/domains.h"

namespace ringkv {

namespace {

// Smaller weights count as this much, so that shares stay far from the limits
// of floating point.
constexpr double kWeightFloor = 1e-6;

// A domain with bounds on what its members hold together. The shares that
// minimize the weighted sum of squares under nested bounds have one "water
// level" in every domain: a node holds level * weight, and a domain that hits a
// bound gets a level of its own.
struct Part {
  double lower = 0;
  double upper = 1;
  double weight = 0;            // of a node
  uint32_t member = kNoDomain;  // of a node
  std::vector<uint32_t> parts;  // of a domain; empty for a node
};

class Tree {
 public:
  Tree(absl::Span<const Member> members, uint32_t n) {
    const Domains domains(members, std::vector<bool>(members.size(), true));
    const double all = std::min<uint32_t>(n, domains.nodes);
    const auto add = [&](uint32_t count, uint32_t total) {
      const uint32_t first = static_cast<uint32_t>(parts_.size());
      for (uint32_t i = 0; i < count; ++i) {
        Part part;
        part.lower = total < n ? 1 : 0;
        part.upper = total < n ? all : 1;
        parts_.push_back(std::move(part));
      }
      return first;
    };
    parts_.emplace_back();
    parts_[0].lower = parts_[0].upper = all;
    const uint32_t zones = add(domains.zones, domains.zones);
    const uint32_t racks = add(domains.racks, domains.racks);
    const uint32_t hosts = add(domains.hosts, domains.hosts);
    const uint32_t nodes = static_cast<uint32_t>(parts_.size());
    for (uint32_t i = 0; i < members.size(); ++i) {
      Part part;
      part.weight = std::max(members[i].weight, kWeightFloor);
      part.member = i;
      parts_.push_back(std::move(part));
    }
    std::vector<bool> linked(parts_.size(), false);
    const auto link = [&](uint32_t parent, uint32_t child) {
      if (linked[child]) return;
      linked[child] = true;
      parts_[parent].parts.push_back(child);
    };
    for (uint32_t i = 0; i < members.size(); ++i) {
      link(hosts + domains.host[i], nodes + i);
      link(racks + domains.rack[i], hosts + domains.host[i]);
      link(zones + domains.zone[i], racks + domains.rack[i]);
      link(0, zones + domains.zone[i]);
    }
  }

  // Gives the nodes of `part` shares that add up to `share`.
  void Fill(uint32_t part, double share, std::vector<double>& shares) const {
    const Part& p = parts_[part];
    if (p.parts.empty()) {
      shares[p.member] = share;
      return;
    }
    double low = 0;
    double high = share / kWeightFloor + 1;
    constexpr int kHalvings = 100;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = low + (high - low) / 2;
      double held = 0;
      for (uint32_t child : p.parts) held += Held(child, middle);
      (held < share ? low : high) = middle;
    }
    for (uint32_t child : p.parts) Fill(child, Held(child, high), shares);
  }

 private:
  // What `part` holds at a water level.
  double Held(uint32_t part, double level) const {
    const Part& p = parts_[part];
    double held = level * p.weight;
    for (uint32_t child : p.parts) held += Held(child, level);
    return std::min(std::max(held, p.lower), p.upper);
  }

  std::vector<Part> parts_;
};

}  // namespace

std::vector<double> FairShares(absl::Span<const Member> members, uint32_t n) {
  RINGKV_CHECK(!members.empty());
  RINGKV_CHECK(n > 0);
  std::vector<double> shares(members.size());
  Tree(members, n).Fill(0, std::min<size_t>(n, members.size()), shares);
  return shares;
}

}  // namespace ringkv
