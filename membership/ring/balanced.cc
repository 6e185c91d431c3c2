#include "membership/ring/balanced.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "membership/ring/domains.h"
#include "membership/ring/fair_share.h"

namespace ringkv {

namespace {

// How many different domains of each kind a preference list of N must have.
struct Needs {
  uint32_t zones, racks, hosts, nodes;

  Needs(const Domains& domains, uint32_t n)
      : zones(std::min(n, domains.zones)),
        racks(std::min(n, domains.racks)),
        hosts(std::min(n, domains.hosts)),
        nodes(std::min(n, domains.nodes)) {}
};

// Owners of all segments with the preference lists that follow from them, kept
// up to date as single owners change, and what is wrong with them as one
// number.
class Layout {
 public:
  Layout(const Domains& domains, uint32_t n, std::vector<uint32_t> owners,
         std::vector<double> replicas_wanted)
      : domains_(domains),
        needs_(domains, n),
        size_(static_cast<uint32_t>(owners.size())),
        owners_(std::move(owners)),
        wanted_(std::move(replicas_wanted)),
        replicas_(wanted_.size(), 0),
        lists_(size_t{size_} * needs_.nodes),
        reach_(size_),
        zone_seen_(domains.zones, 0),
        rack_seen_(domains.racks, 0),
        host_seen_(domains.hosts, 0),
        node_seen_(wanted_.size(), 0) {
    const double mean =
        std::accumulate(wanted_.begin(), wanted_.end(), 0.0) / wanted_.size();
    for (double w : wanted_) scale_.push_back(mean / std::max(w, 1.0));
    for (uint32_t i = 0; i < size_; ++i) {
      Walk(i);
      excess_ += reach_[i] - needs_.nodes;
      for (uint32_t k = 0; k < needs_.nodes; ++k) ++replicas_[List(i)[k]];
    }
  }

  uint32_t size() const { return size_; }
  uint32_t owner(uint32_t position) const { return owners_[position]; }
  const std::vector<uint32_t>& owners() const { return owners_; }
  uint64_t excess() const { return excess_; }
  double Deviation(uint32_t node) const {
    return replicas_[node] - wanted_[node];
  }
  double Scale(uint32_t node) const { return scale_[node]; }

  // True if a walk that reads `position` has to skip somebody.
  bool Crowded(uint32_t position) const {
    for (uint32_t back = 0; back < size_; ++back) {
      const uint32_t i = Back(position, back);
      if (reach_[i] <= back) return false;
      if (reach_[i] > needs_.nodes) return true;
    }
    return false;
  }

  // Gives `position` to `node`; returns by how much the cost grows.
  double Assign(uint32_t position, uint32_t node) {
    double growth = 0;
    owners_[position] = node;
    for (uint32_t back = 0; back < size_; ++back) {
      const uint32_t i = Back(position, back);
      if (reach_[i] <= back) break;
      uint32_t* list = List(i);
      for (uint32_t k = 0; k < needs_.nodes; ++k) growth += Count(list[k], -1);
      const uint32_t before = reach_[i];
      Walk(i);
      for (uint32_t k = 0; k < needs_.nodes; ++k) growth += Count(list[k], 1);
      excess_ += reach_[i];
      excess_ -= before;
      growth += kSkipCost * (static_cast<double>(reach_[i]) - before);
    }
    return growth;
  }

 private:
  static constexpr double kSkipCost = 4;

  uint32_t Back(uint32_t position, uint32_t back) const {
    return position >= back ? position - back : position + size_ - back;
  }
  uint32_t* List(uint32_t i) { return &lists_[size_t{i} * needs_.nodes]; }

  double Count(uint32_t node, int change) {
    // ((d + c)^2 - d^2) * scale
    const double d = replicas_[node] - wanted_[node];
    replicas_[node] += change;
    return (2 * d * change + 1) * scale_[node];
  }

  // Finds the preference list of segment `i` and how many segments it reads.
  void Walk(uint32_t i) {
    ++stamp_;
    uint32_t zones = 0, racks = 0, hosts = 0, nodes = 0;
    met_.clear();
    uint32_t at = i;
    uint32_t reach = 0;
    while (true) {
      const uint32_t node = owners_[at];
      ++reach;
      if (node_seen_[node] != stamp_) {
        node_seen_[node] = stamp_;
        ++nodes;
        hosts += Mark(host_seen_[domains_.host[node]]);
        racks += Mark(rack_seen_[domains_.rack[node]]);
        zones += Mark(zone_seen_[domains_.zone[node]]);
        met_.push_back(node);
        if (nodes >= needs_.nodes && hosts >= needs_.hosts &&
            racks >= needs_.racks && zones >= needs_.zones) {
          break;
        }
      }
      at = at + 1 == size_ ? 0 : at + 1;
      if (at == i) break;
    }
    reach_[i] = reach;
    uint32_t* list = List(i);
    if (met_.size() == needs_.nodes) {
      std::copy(met_.begin(), met_.end(), list);
      return;
    }
    uint32_t chosen = 0;
    ++stamp_;
    const auto choose = [&](const std::vector<uint32_t>& domain,
                            std::vector<uint32_t>& seen) {
      for (uint32_t node : met_) {
        if (chosen == needs_.nodes) return;
        if (seen[domain[node]] == stamp_) continue;
        zone_seen_[domains_.zone[node]] = stamp_;
        rack_seen_[domains_.rack[node]] = stamp_;
        host_seen_[domains_.host[node]] = stamp_;
        node_seen_[node] = stamp_;
        list[chosen++] = node;
      }
    };
    choose(domains_.zone, zone_seen_);
    choose(domains_.rack, rack_seen_);
    choose(domains_.host, host_seen_);
    for (uint32_t node : met_) {
      if (chosen == needs_.nodes) break;
      if (node_seen_[node] != stamp_) list[chosen++] = node;
    }
  }

  uint32_t Mark(uint32_t& seen) {
    if (seen == stamp_) return 0;
    seen = stamp_;
    return 1;
  }

  const Domains& domains_;
  const Needs needs_;
  const uint32_t size_;
  std::vector<uint32_t> owners_;
  std::vector<double> wanted_;
  std::vector<double> scale_;
  std::vector<int64_t> replicas_;
  std::vector<uint32_t> lists_;
  std::vector<uint32_t> reach_;
  uint64_t excess_ = 0;
  // A domain was seen in this walk if its stamp is the walk's.
  uint32_t stamp_ = 0;
  std::vector<uint32_t> zone_seen_, rack_seen_, host_seen_, node_seen_;
  std::vector<uint32_t> met_;
};

template <typename T>
void Shuffle(std::vector<T>& items, Random& random) {
  for (size_t i = items.size(); i > 1; --i) {
    std::swap(items[i - 1], items[random.Uniform(i)]);
  }
}

// Decides one change.
class Balancer {
 public:
  Balancer(absl::Span<const Member> members, uint32_t n,
           absl::Span<const uint32_t> current)
      : members_(members),
        n_(std::min<uint32_t>(n, static_cast<uint32_t>(members.size()))),
        domains_(members, std::vector<bool>(members.size(), true)),
        current_(current.begin(), current.end()),
        owners_(current_),
        size_(static_cast<uint32_t>(current.size())),
        random_(0x5ca1ab1e) {}

  std::vector<uint32_t> Run() {
    std::vector<uint32_t> held(members_.size(), 0);
    for (uint32_t owner : current_) {
      if (owner != kNobody) ++held[owner];
    }
    targets_ = TokenTargets(members_, n_, size_, held);
    surplus_.assign(members_.size(), 0);
    deficit_.assign(members_.size(), 0);
    for (size_t m = 0; m < members_.size(); ++m) {
      if (held[m] > targets_[m]) surplus_[m] = held[m] - targets_[m];
      if (held[m] < targets_[m]) deficit_[m] = targets_[m] - held[m];
    }
    if (std::all_of(held.begin(), held.end(),
                    [](uint32_t h) { return h == 0; })) {
      FillEmpty();
    } else {
      Move();
    }
    Improve();
    return owners_;
  }

 private:
  // Lays out a ring that nobody owns: at each position the node that lags
  // furthest behind its share, of those that keep their distance.
  void FillEmpty() {
    const Needs needs(domains_, n_);
    std::vector<double> rack_target(domains_.racks, 0),
        rack_given(domains_.racks, 0);
    std::vector<std::vector<uint32_t>> rack_nodes(domains_.racks);
    for (uint32_t m = 0; m < members_.size(); ++m) {
      rack_target[domains_.rack[m]] += targets_[m];
      rack_nodes[domains_.rack[m]].push_back(m);
    }
    std::vector<uint32_t> given(members_.size(), 0);
    for (uint32_t p = 0; p < size_; ++p) {
      uint32_t best_rack = kNoDomain;
      double best_lag = 0;
      const double progress = static_cast<double>(p + 1) / size_;
      for (uint32_t r = 0; r < domains_.racks; ++r) {
        if (rack_given[r] >= rack_target[r]) continue;
        double lag = rack_target[r] * progress - rack_given[r];
        for (uint32_t back = 1; back < n_ && back <= p; ++back) {
          const uint32_t other = owners_[p - back];
          if (needs.zones == n_ &&
              domains_.zone[other] == domains_.zone[rack_nodes[r][0]]) {
            lag -= size_;
          }
          if (needs.racks == n_ && domains_.rack[other] == r) lag -= size_;
          // With fewer racks than N, at least not all in one.
          if (needs.racks < n_ && domains_.racks > 1 && back == 1 &&
              domains_.rack[other] == r) {
            lag -= 1;
          }
        }
        if (best_rack == kNoDomain || lag > best_lag) {
          best_rack = r;
          best_lag = lag;
        }
      }
      uint32_t best = kNobody;
      for (uint32_t m : rack_nodes[best_rack]) {
        if (given[m] >= targets_[m]) continue;
        double lag = targets_[m] * progress - given[m];
        for (uint32_t back = 1; back < n_ && back <= p; ++back) {
          if (owners_[p - back] == m ||
              domains_.host[owners_[p - back]] == domains_.host[m])
            lag -= size_;
        }
        if (best == kNobody || lag > best_lag) {
          best = m;
          best_lag = lag;
        }
      }
      owners_[p] = best;
      ++given[best];
      ++rack_given[best_rack];
      moved_.push_back(p);
    }
  }

  // How many neighbours of `position` stand too near to give it to `node`.
  uint32_t Conflicts(uint32_t position, uint32_t node) const {
    const Needs needs(domains_, n_);
    const std::vector<uint32_t>& domain = needs.zones == n_   ? domains_.zone
                                          : needs.racks == n_ ? domains_.rack
                                                              : domains_.host;
    uint32_t conflicts = 0;
    for (uint32_t distance = 1; distance < n_; ++distance) {
      for (uint32_t at : {(position + distance) % size_,
                          (position + size_ - distance) % size_}) {
        const uint32_t other = owners_[at];
        if (other == kNobody) continue;
        if (other == node || domain[other] == domain[node]) ++conflicts;
      }
    }
    return conflicts;
  }

  // First choice of the tokens that move and of their new owners.
  void Move() {
    std::vector<uint32_t> order;
    for (uint32_t p = 0; p < size_; ++p) {
      if (current_[p] == kNobody || surplus_[current_[p]] > 0)
        order.push_back(p);
    }
    Shuffle(order, random_);
    std::vector<uint32_t> gainers;
    for (uint32_t m = 0; m < members_.size(); ++m) {
      if (deficit_[m] > 0) gainers.push_back(m);
    }
    for (uint32_t allowed = 0;; allowed = allowed * 2 + 1) {
      bool left = false;
      for (uint32_t p : order) {
        if (owners_[p] != current_[p]) continue;
        if (current_[p] != kNobody && surplus_[current_[p]] == 0) continue;
        uint32_t best = kNobody;
        for (uint32_t g : gainers) {
          if (deficit_[g] == 0 ||
              (best != kNobody && deficit_[g] <= deficit_[best]))
            continue;
          if (Conflicts(p, g) > allowed) continue;
          best = g;
        }
        if (best == kNobody) {
          left = true;
          continue;
        }
        if (current_[p] != kNobody) --surplus_[current_[p]];
        --deficit_[best];
        owners_[p] = best;
        moved_.push_back(p);
      }
      if (!left || allowed > 2 * n_) break;
    }
  }

  // Exchanges choices for better ones; what each node gives and gets stays.
  void Improve() {
    std::vector<double> wanted;
    for (uint32_t t : targets_) wanted.push_back(static_cast<double>(t) * n_);
    if (true) {
      const std::vector<double> shares = FairShares(members_, n_);
      for (size_t m = 0; m < shares.size(); ++m) {
        const double fair = shares[m] * size_;
        if (std::abs(fair - wanted[m]) > n_) wanted[m] = fair;
      }
    }
    Layout layout(domains_, n_, owners_, std::move(wanted));
    std::vector<std::vector<uint32_t>> tokens_of(members_.size());
    for (uint32_t p = 0; p < size_; ++p) {
      if (current_[p] != kNobody) tokens_of[current_[p]].push_back(p);
    }
    std::vector<uint32_t> order = moved_;
    std::vector<uint32_t> slot(size_, kNobody);  // position in moved_
    for (uint32_t s = 0; s < moved_.size(); ++s) slot[moved_[s]] = s;
    uint64_t budget = kBudget;
    int idle = 0;
    for (int round = 0;
         round < 200 && idle < 4 && budget > 0 && !moved_.empty(); ++round) {
      Shuffle(order, random_);
      bool improved = false;
      bool hot = false;
      for (uint32_t s = 0; s < moved_.size() && budget > 0; ++s) {
        const uint32_t p = moved_[s];
        const uint32_t g = layout.owner(p);
        const uint32_t x = current_[p];
        const bool crowded = layout.Crowded(p);
        const bool uneven =
            std::abs(layout.Deviation(g)) > 1.5 ||
            (x != kNobody && std::abs(layout.Deviation(x)) > 1.5);
        if (!crowded && !uneven) continue;
        hot = true;
        for (int attempt = 0; attempt < kAttempts && budget > 0; ++attempt) {
          --budget;
          const bool relocate = x != kNobody && random_.Chance(0.5);
          if (relocate) {
            const uint32_t q =
                tokens_of[x][random_.Uniform(tokens_of[x].size())];
            if (slot[q] != kNobody) continue;
            double growth = layout.Assign(p, x);
            growth += layout.Assign(q, g);
            if (growth < -1e-9) {
              slot[q] = s;
              slot[p] = kNobody;
              moved_[s] = q;
              improved = true;
              break;
            }
            layout.Assign(q, x);
            layout.Assign(p, g);
          } else {
            const uint32_t q = moved_[random_.Uniform(moved_.size())];
            const uint32_t h = layout.owner(q);
            if (h == g || current_[q] == g || current_[p] == h) continue;
            double growth = layout.Assign(p, h);
            growth += layout.Assign(q, g);
            if (growth < -1e-9) {
              improved = true;
              break;
            }
            layout.Assign(q, h);
            layout.Assign(p, g);
          }
        }
      }
      idle = improved ? 0 : idle + 1;
      if (!hot) break;
    }
    owners_ = layout.owners();
  }

  static constexpr uint64_t kBudget = 400'000;
  static constexpr int kAttempts = 12;

  absl::Span<const Member> members_;
  const uint32_t n_;
  const Domains domains_;
  const std::vector<uint32_t> current_;
  std::vector<uint32_t> owners_;
  const uint32_t size_;
  SeededRandom random_;
  std::vector<uint32_t> targets_, surplus_, deficit_;
  std::vector<uint32_t> moved_;
};

}  // namespace

std::vector<uint32_t> TokenTargets(absl::Span<const Member> members, uint32_t n,
                                   uint32_t segments,
                                   absl::Span<const uint32_t> held) {
  RINGKV_CHECK(held.size() == members.size());
  RINGKV_CHECK(segments >= members.size());
  const uint32_t effective =
      std::min<uint32_t>(n, static_cast<uint32_t>(members.size()));
  const std::vector<double> shares = FairShares(members, effective);
  const size_t count = members.size();
  std::vector<double> fair(count);
  std::vector<uint32_t> low(count), high(count), target(count);
  int64_t left = segments;
  for (size_t i = 0; i < count; ++i) {
    fair[i] = shares[i] * segments / effective;
    // A hair off a whole number is that number.
    constexpr double kHair = 1e-6;
    low[i] = std::max(1u, static_cast<uint32_t>(std::floor(fair[i] + kHair)));
    high[i] = std::max(1u, static_cast<uint32_t>(std::ceil(fair[i] - kHair)));
    target[i] = std::clamp(held[i], low[i], high[i]);
    left -= target[i];
  }
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  // Rounding up costs the least where the share is nearly one more, rounding
  // down where it is hardly more.
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return fair[a] - low[a] > fair[b] - low[b];
  });
  for (uint32_t i : order) {
    if (left > 0 && target[i] < high[i]) {
      ++target[i];
      --left;
    }
  }
  std::reverse(order.begin(), order.end());
  for (uint32_t i : order) {
    if (left < 0 && target[i] > low[i]) {
      --target[i];
      ++left;
    }
  }
  // Many nodes of tiny weight have more than their share in one token each.
  while (left != 0) {
    uint32_t best = kNobody;
    for (uint32_t i = 0; i < count; ++i) {
      if (left < 0 && target[i] == 1) continue;
      if (best == kNobody ||
          (left < 0) == (target[i] - fair[i] > target[best] - fair[best])) {
        best = i;
      }
    }
    target[best] += left < 0 ? -1 : 1;
    left += left < 0 ? 1 : -1;
  }
  return target;
}

std::vector<uint32_t> BalanceTokens(absl::Span<const Member> members,
                                    uint32_t n,
                                    absl::Span<const uint32_t> current) {
  RINGKV_CHECK(!members.empty());
  RINGKV_CHECK(current.size() >= members.size());
  return Balancer(members, n, current).Run();
}

}  // namespace ringkv
