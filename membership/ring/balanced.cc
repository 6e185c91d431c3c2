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
  // What is wrong: squares of how far nodes are from the replicas they should
  // hold, and a price for each owner that walks skip.
  double Cost() const {
    double cost = kSkipCost * static_cast<double>(excess_);
    for (size_t node = 0; node < wanted_.size(); ++node) {
      const double d = replicas_[node] - wanted_[node];
      cost += d * d * scale_[node];
    }
    return cost;
  }
  double Deviation(uint32_t node) const {
    return replicas_[node] - wanted_[node];
  }

  // True if a walk that reads `position` has to skip somebody.
  bool Crowded(uint32_t position) const {
    for (uint32_t back = 0; back < size_; ++back) {
      const uint32_t i = Back(position, back);
      if (reach_[i] <= back) return false;
      if (reach_[i] > needs_.nodes) return true;
    }
    return false;
  }

  // Gives `position` to `node`; returns by how much the cost grows (negative:
  // it falls). Only walks that read `position` change, and a walk that begins
  // later never ends earlier, so going back from `position` finds them all.
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

// A hair off a whole number is that number.
constexpr double kHair = 1e-6;

uint32_t RoundDown(double tokens) {
  return std::max(1u, static_cast<uint32_t>(std::floor(tokens + kHair)));
}
uint32_t RoundUp(double tokens) {
  return std::max(1u, static_cast<uint32_t>(std::ceil(tokens - kHair)));
}

// Sets the targets of `members` to their fair numbers of tokens, rounded up or
// down so that they add up to `total` and as few as possible move.
void RoundTargets(const std::vector<uint32_t>& members,
                  const std::vector<double>& fair,
                  absl::Span<const uint32_t> held, uint32_t total,
                  std::vector<uint32_t>& target) {
  int64_t left = total;
  for (uint32_t i : members) {
    target[i] = std::clamp(held[i], RoundDown(fair[i]), RoundUp(fair[i]));
    left -= target[i];
  }
  // Rounding up costs the least where the share is nearly one more, rounding
  // down where it is hardly more.
  std::vector<uint32_t> order = members;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return fair[a] - RoundDown(fair[a]) > fair[b] - RoundDown(fair[b]);
  });
  for (uint32_t i : order) {
    if (left > 0 && target[i] < RoundUp(fair[i])) {
      ++target[i];
      --left;
    }
  }
  std::reverse(order.begin(), order.end());
  for (uint32_t i : order) {
    if (left < 0 && target[i] > RoundDown(fair[i])) {
      --target[i];
      ++left;
    }
  }
  // What is left is the doing of nodes whose one token is more than their
  // share.
  while (left != 0) {
    uint32_t best = kNobody;
    for (uint32_t i : members) {
      if (left < 0 && target[i] == 1) continue;
      if (best == kNobody ||
          (left < 0) == (target[i] - fair[i] > target[best] - fair[best])) {
        best = i;
      }
    }
    RINGKV_CHECK(best != kNobody);
    target[best] += left < 0 ? -1 : 1;
    left += left < 0 ? 1 : -1;
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
        needs_(domains_, n_),
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
  // Lays out a ring that nobody owns, one position after the other: a rack and
  // one of its nodes, at random among those that lag behind their share and
  // keep their distance. Chance is on purpose: in a ring where the same nodes
  // always stand side by side, all tokens of a leaving node would have the same
  // neighbours, who alone would bear what that changes.
  void FillEmpty() {
    const uint32_t racks = domains_.racks;
    std::vector<std::vector<uint32_t>> rack_nodes(racks);
    std::vector<uint32_t> rack_left(racks, 0);
    std::vector<uint32_t> left = targets_;
    for (uint32_t m = 0; m < members_.size(); ++m) {
      rack_left[domains_.rack[m]] += targets_[m];
      rack_nodes[domains_.rack[m]].push_back(m);
    }
    const std::vector<uint32_t> rack_target = rack_left;
    std::vector<uint32_t> all_racks(racks);
    std::iota(all_racks.begin(), all_racks.end(), 0);
    for (uint32_t p = 0; p < size_; ++p) {
      const uint32_t rack =
          Choose(p, all_racks, rack_target, rack_left, [&](uint32_t r) {
            return FitsBehind(p, rack_nodes[r][0], /*rack_only=*/true);
          });
      const uint32_t node = Choose(
          p, rack_nodes[rack], targets_, left,
          [&](uint32_t m) { return FitsBehind(p, m, /*rack_only=*/false); });
      owners_[p] = node;
      --left[node];
      --rack_left[rack];
      moved_.push_back(p);
    }
  }

  // Chooses who comes next at position `p` of those with tokens left. Whoever
  // could not keep its distance any more if passed over goes first; then chance
  // decides among those that lag behind their share the most.
  template <typename Fits>
  uint32_t Choose(uint32_t p, const std::vector<uint32_t>& candidates,
                  const std::vector<uint32_t>& target,
                  const std::vector<uint32_t>& left, Fits fits) {
    constexpr double kTolerance = 1;
    const double to_go = static_cast<double>(size_ - p) / size_;
    // What is left to give, less what ought to be left now.
    const auto lag = [&](uint32_t c) { return left[c] - target[c] * to_go; };
    fitting_.clear();
    uint32_t behind = kNobody;  // of all
    uint32_t urgent = kNobody;
    int64_t least_slack = n_;
    double largest_lag = 0;
    for (uint32_t c : candidates) {
      if (left[c] == 0) continue;
      if (behind == kNobody || lag(c) > lag(behind)) behind = c;
      const int64_t slack =
          int64_t{size_} - p - int64_t{n_} * (left[c] - 1) - 1;
      const bool lags = fitting_.empty() || lag(c) >= largest_lag - kTolerance;
      if ((slack >= least_slack && !lags) || !fits(c)) continue;
      if (slack < least_slack) {
        least_slack = slack;
        urgent = c;
      }
      if (!lags) continue;
      if (fitting_.empty() || lag(c) > largest_lag) largest_lag = lag(c);
      fitting_.push_back(c);
    }
    RINGKV_CHECK(behind != kNobody);
    if (urgent != kNobody) return urgent;
    if (fitting_.empty()) return behind;
    std::erase_if(fitting_, [&](uint32_t c) {
      return lag(c) < largest_lag - kTolerance;
    });
    return fitting_[random_.Uniform(fitting_.size())];
  }

  // True if `node` (or at least its rack) adds what the last N owners need.
  bool FitsBehind(uint32_t position, uint32_t node, bool rack_only) {
    window_.clear();
    window_.push_back(node);
    for (uint32_t back = 1; back < n_ && back <= position; ++back) {
      window_.push_back(owners_[position - back]);
    }
    const uint32_t missing = n_ - static_cast<uint32_t>(window_.size());
    return Different(domains_.zone) + missing >= needs_.zones &&
           Different(domains_.rack) + missing >= needs_.racks &&
           (rack_only || (Different(domains_.host) + missing >= needs_.hosts &&
                          DifferentNodes() + missing >= needs_.nodes));
  }

  uint32_t Different(const std::vector<uint32_t>& domain) const {
    uint32_t different = 0;
    for (size_t a = 0; a < window_.size(); ++a) {
      size_t b = 0;
      while (b < a && domain[window_[b]] != domain[window_[a]]) ++b;
      different += b == a;
    }
    return different;
  }
  uint32_t DifferentNodes() const {
    uint32_t different = 0;
    for (size_t a = 0; a < window_.size(); ++a) {
      different += std::find(window_.begin(), window_.begin() + a,
                             window_[a]) == window_.begin() + a;
    }
    return different;
  }

  // How many of the N windows of N neighbours around `position` would lack
  // something if `node` had it. Positions without an owner may still get any.
  uint32_t Conflicts(uint32_t position, uint32_t node) {
    uint32_t conflicts = 0;
    for (uint32_t first = 0; first < n_; ++first) {
      window_.clear();
      for (uint32_t k = 0; k < n_; ++k) {
        const uint32_t owner =
            k == first ? node : owners_[(position + size_ - first + k) % size_];
        if (owner != kNobody) window_.push_back(owner);
      }
      const uint32_t missing = n_ - static_cast<uint32_t>(window_.size());
      conflicts += Different(domains_.zone) + missing < needs_.zones ||
                   Different(domains_.rack) + missing < needs_.racks ||
                   Different(domains_.host) + missing < needs_.hosts ||
                   DifferentNodes() + missing < needs_.nodes;
    }
    return conflicts;
  }

  // First choice of the tokens that move and of their new owners: random tokens
  // for random gainers where they fit, then wherever they fit best.
  void Move() {
    std::vector<uint32_t> order;
    for (uint32_t p = 0; p < size_; ++p) {
      if (current_[p] == kNobody || surplus_[current_[p]] > 0)
        order.push_back(p);
    }
    Shuffle(order, random_);
    // A gainer for each token that it gets.
    std::vector<uint32_t> wanted;
    for (uint32_t m = 0; m < members_.size(); ++m) {
      wanted.insert(wanted.end(), deficit_[m], m);
    }
    for (uint32_t allowed : {0u, 0u, 1u, n_}) {
      for (uint32_t p : order) {
        if (wanted.empty()) return;
        const uint32_t giver = current_[p];
        if (owners_[p] != giver || (giver != kNobody && surplus_[giver] == 0))
          continue;
        constexpr int kDraws = 8;
        size_t best = wanted.size();
        uint32_t fewest = allowed + 1;
        for (int draw = 0; draw < kDraws && fewest > 0; ++draw) {
          const size_t w = random_.Uniform(wanted.size());
          const uint32_t conflicts = Conflicts(p, wanted[w]);
          if (conflicts < fewest) {
            fewest = conflicts;
            best = w;
          }
        }
        if (best == wanted.size()) continue;
        owners_[p] = wanted[best];
        wanted[best] = wanted.back();
        wanted.pop_back();
        if (giver != kNobody) --surplus_[giver];
        moved_.push_back(p);
      }
    }
    RINGKV_CHECK(wanted.empty());
  }

  // Exchanges choices for better ones: two tokens that move exchange their new
  // owners, or a giver gives another of its tokens instead. What each node
  // gives and gets stays.
  void Improve() {
    if (moved_.empty()) return;
    std::vector<double> wanted;
    for (uint32_t t : targets_) wanted.push_back(static_cast<double>(t) * n_);
    Layout layout(domains_, n_, owners_, std::move(wanted));
    std::vector<std::vector<uint32_t>> tokens_of(members_.size());
    std::vector<bool> moves(size_, false);
    for (uint32_t p : moved_) moves[p] = true;
    for (uint32_t p = 0; p < size_; ++p) {
      if (current_[p] != kNobody) tokens_of[current_[p]].push_back(p);
    }
    uint64_t tries = 0;
    int idle_rounds = 0;
    while (idle_rounds < kIdleRoundsMax && tries < kTriesMax) {
      const double cost = layout.Cost();
      double gain = 0;
      for (size_t s = 0; s < moved_.size() && tries < kTriesMax; ++s) {
        if (!Bad(layout, moved_[s])) continue;
        for (int attempt = 0; attempt < kAttempts; ++attempt) {
          ++tries;
          const uint32_t p = moved_[s];
          const uint32_t giver = current_[p];
          const uint32_t gainer = layout.owner(p);
          uint32_t q;      // gets `gainer`
          uint32_t other;  // and loses this one, which p gets
          const bool give_another = giver != kNobody && random_.Chance(0.5);
          if (give_another) {
            q = tokens_of[giver][random_.Uniform(tokens_of[giver].size())];
            if (moves[q]) continue;
            other = giver;
          } else {
            q = moved_[random_.Uniform(moved_.size())];
            other = layout.owner(q);
            if (other == gainer) continue;
          }
          double growth = layout.Assign(p, other);
          growth += layout.Assign(q, gainer);
          if (growth > -1e-6) {
            layout.Assign(q, other);
            layout.Assign(p, gainer);
            continue;
          }
          gain -= growth;
          if (give_another) {
            moves[p] = false;
            moves[q] = true;
            moved_[s] = q;
          }
          break;
        }
      }
      constexpr double kWorthwhile = 0.01;
      idle_rounds = gain > kWorthwhile * cost ? 0 : idle_rounds + 1;
      if (gain == 0 && layout.Cost() == 0) break;
    }
    owners_ = layout.owners();
  }

  // True if another choice for the token at `p` could be better.
  bool Bad(const Layout& layout, uint32_t p) const {
    // Owners have whole tokens, so replicas come in steps of about one.
    constexpr double kEven = 1.5;
    return layout.Crowded(p) ||
           std::abs(layout.Deviation(layout.owner(p))) > kEven ||
           (current_[p] != kNobody &&
            std::abs(layout.Deviation(current_[p])) > kEven);
  }

  // Bounds the time of a change, to some tenths of a second.
  static constexpr uint64_t kTriesMax = 300'000;
  static constexpr int kAttempts = 12;
  static constexpr int kIdleRoundsMax = 2;

  absl::Span<const Member> members_;
  const uint32_t n_;
  const Domains domains_;
  const Needs needs_;
  const std::vector<uint32_t> current_;
  std::vector<uint32_t> owners_;
  const uint32_t size_;
  SeededRandom random_;
  std::vector<uint32_t> targets_, surplus_, deficit_;
  std::vector<uint32_t> moved_;
  std::vector<uint32_t> window_, fitting_;  // scratch
};

}  // namespace

std::vector<uint32_t> TokenTargets(absl::Span<const Member> members, uint32_t n,
                                   uint32_t segments,
                                   absl::Span<const uint32_t> held) {
  RINGKV_CHECK(held.size() == members.size());
  RINGKV_CHECK(segments >= members.size());
  const uint32_t count = static_cast<uint32_t>(members.size());
  n = std::min(n, count);
  std::vector<double> fair = FairShares(members, n);
  for (double& share : fair) share *= static_cast<double>(segments) / n;

  // A domain that has a replica of every key owns every N-th token, whoever of
  // its nodes has them: it is rounded as a whole, so that its nodes exchange
  // tokens among themselves. All others are rounded together.
  const Domains domains(members, std::vector<bool>(count, true));
  const Needs needs(domains, n);
  const std::vector<uint32_t>& domain =
      needs.zones == n ? domains.zone : domains.rack;
  const uint32_t domain_count =
      needs.zones == n ? domains.zones : domains.racks;
  struct Group {
    std::vector<uint32_t> members;
    double fair = 0;
    uint32_t held = 0;
    uint32_t total = 0;
  };
  std::vector<Group> groups(domain_count);
  for (uint32_t i = 0; i < count; ++i) {
    Group& group = groups[domain[i]];
    group.members.push_back(i);
    group.fair += fair[i];
    group.held += held[i];
  }
  Group rest;
  const double full = static_cast<double>(segments) / n;
  std::erase_if(groups, [&](const Group& group) {
    const bool whole = needs.racks == n && group.fair > full - kHair;
    if (!whole) {
      rest.members.insert(rest.members.end(), group.members.begin(),
                          group.members.end());
    }
    return !whole;
  });
  std::sort(rest.members.begin(), rest.members.end());
  std::stable_sort(
      groups.begin(), groups.end(),
      [](const Group& a, const Group& b) { return a.held > b.held; });
  int64_t left = segments;
  for (Group& group : groups) {
    group.total = std::clamp(group.held, RoundDown(full), RoundUp(full));
    left -= group.total;
  }
  if (rest.members.empty()) {
    // Those that hold the most keep one more.
    for (Group& group : groups) {
      if (left > 0 && group.total < RoundUp(full)) {
        ++group.total;
        --left;
      }
    }
    for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
      if (left < 0 && group->total > RoundDown(full)) {
        --group->total;
        ++left;
      }
    }
    RINGKV_CHECK(left == 0);
  }
  bool fits = left >= static_cast<int64_t>(rest.members.size());
  rest.total = static_cast<uint32_t>(left);
  groups.push_back(std::move(rest));
  for (const Group& group : groups) {
    fits = fits && group.total >= group.members.size();
  }
  if (!fits) {
    // Hardly more tokens than nodes: a token for each of them comes first.
    Group all;
    all.members.resize(count);
    std::iota(all.members.begin(), all.members.end(), 0);
    all.total = segments;
    groups = {std::move(all)};
  }
  std::vector<uint32_t> target(count);
  for (const Group& group : groups) {
    RoundTargets(group.members, fair, held, group.total, target);
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
