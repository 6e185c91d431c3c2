#include "tests/sim/network.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ringkv::sim {

Network::Network(Scheduler& scheduler, Trace& trace, const NetworkPlan& plan,
                 int nodes, SeededRandom random)
    : scheduler_(scheduler),
      trace_(trace),
      plan_(plan),
      nodes_(nodes),
      random_(random),
      blocked_(static_cast<size_t>(nodes * nodes), 0),
      powered_(static_cast<size_t>(nodes), true) {}

void Network::Block(int from, int to) {
  ++blocked_[static_cast<size_t>(from * nodes_ + to)];
}

void Network::Unblock(int from, int to) {
  if (--blocked_[static_cast<size_t>(from * nodes_ + to)] == 0) Flush(from, to);
}

void Network::Heal() {
  plan_.lost_share = 0;
  plan_.duplicated_share = 0;
  plan_.held_share = 0;
  plan_.slow_share = 0;
}

WorldTime Network::Delay() {
  const double mean = static_cast<double>(
      plan_.slow_share > 0 && random_.Chance(plan_.slow_share)
          ? plan_.slow_mean
          : plan_.delay_mean);
  return plan_.delay_min +
         static_cast<WorldTime>(-mean * std::log1p(-random_.NextDouble()));
}

void Network::SendLoose(int from, int to, std::function<void()> arrive) {
  if (!Open(from, to)) return;
  if (!plan_.streams && random_.Chance(plan_.lost_share)) return;
  scheduler_.After(Delay(), [this, from, to, arrive = std::move(arrive)] {
    if (Open(from, to)) arrive();
  });
}

Network::LinkNumber Network::Connect(Endpoint dialled_by, Endpoint accepted_by,
                                     ClosedCallback dialler_closed,
                                     ClosedCallback acceptor_closed) {
  Link link;
  link.ends[0] = dialled_by;
  link.ends[1] = accepted_by;
  link.closed[0] = std::move(dialler_closed);
  link.closed[1] = std::move(acceptor_closed);
  links_.emplace(next_link_, std::move(link));
  return next_link_++;
}

void Network::Send(LinkNumber number, int from, bool may_repeat, size_t bytes,
                   std::function<void()> arrive) {
  const auto it = links_.find(number);
  if (it == links_.end()) return;
  Link& link = it->second;
  const int direction = DirectionFrom(link, from);
  if (link.dead[direction]) return;
  ++messages_;
  const int to = link.ends[1 - direction].node;
  if (plan_.streams) {
    if (!Open(from, to) || !link.waiting[direction].empty()) {
      link.waiting[direction].push_back(std::move(arrive));
    } else {
      Schedule(number, direction, std::move(arrive));
    }
    return;
  }
  if (!Open(from, to)) return;
  if (plan_.lost_share > 0 && random_.Chance(plan_.lost_share)) return;
  if (plan_.held_share > 0 && random_.Chance(plan_.held_share)) {
    // Delivered whatever has become of the link meanwhile.
    const WorldTime delay = static_cast<WorldTime>(
        random_.Uniform(static_cast<uint64_t>(plan_.held_max)));
    last_held_arrival_ = std::max(last_held_arrival_, scheduler_.now() + delay);
    scheduler_.After(delay, std::move(arrive));
    return;
  }
  if (may_repeat && plan_.duplicated_share > 0 &&
      random_.Chance(plan_.duplicated_share)) {
    Schedule(number, direction, arrive);
  }
  Schedule(number, direction, std::move(arrive));
}

void Network::Schedule(LinkNumber number, int direction,
                       std::function<void()> arrive) {
  Link& link = links_.at(number);
  WorldTime when = scheduler_.now() + Delay();
  if (plan_.streams) {
    when = std::max(when, link.last_arrival[direction]);
    link.last_arrival[direction] = when;
  }
  scheduler_.At(when, [this, number, direction, arrive = std::move(arrive)] {
    const auto it = links_.find(number);
    if (it == links_.end()) return;
    Link& link = it->second;
    const int from = link.ends[direction].node;
    const int to = link.ends[1 - direction].node;
    if (link.dead[1 - direction]) {
      // The machine knows no such connection (any more) and says so.
      if (Open(from, to) && powered_[static_cast<size_t>(to)]) {
        TellClosed(number, direction, Delay());
      }
      return;
    }
    if (Open(from, to)) {
      arrive();
    } else if (plan_.streams) {
      // TCP sends it again once the way is open.
      link.waiting[direction].push_back(std::move(arrive));
    }
  });
}

void Network::Flush(int from, int to) {
  for (auto& [number, link] : links_) {
    for (int direction = 0; direction < 2; ++direction) {
      if (link.ends[direction].node != from ||
          link.ends[1 - direction].node != to) {
        continue;
      }
      std::deque<std::function<void()>> waiting;
      waiting.swap(link.waiting[direction]);
      for (std::function<void()>& arrive : waiting) {
        Schedule(number, direction, std::move(arrive));
      }
    }
  }
}

void Network::TellClosed(LinkNumber number, int end, WorldTime delay,
                         bool surely) {
  scheduler_.After(delay, [this, number, end, surely] {
    const auto it = links_.find(number);
    if (it == links_.end() || it->second.dead[end]) return;
    const int node = it->second.ends[end].node;
    const int other = it->second.ends[1 - end].node;
    // A reset that does not arrive: that end finds out by itself.
    if (!surely && !Open(other, node)) return;
    it->second.dead[end] = true;
    const ClosedCallback closed = it->second.closed[end];
    DropIfOver(number);
    closed();
  });
}

void Network::DropIfOver(LinkNumber number) {
  const auto it = links_.find(number);
  if (it != links_.end() && it->second.dead[0] && it->second.dead[1]) {
    links_.erase(it);
  }
}

void Network::Close(LinkNumber number, int by) {
  const auto it = links_.find(number);
  if (it == links_.end()) return;
  const int end = DirectionFrom(it->second, by);
  if (it->second.dead[end]) return;
  it->second.dead[end] = true;
  TellClosed(number, 1 - end, Delay());
  DropIfOver(number);
}

void Network::Died(Endpoint endpoint, bool reset) {
  std::vector<LinkNumber> over;
  for (auto& [number, link] : links_) {
    for (int end = 0; end < 2; ++end) {
      if (link.ends[end].node != endpoint.node ||
          link.ends[end].run != endpoint.run) {
        continue;
      }
      link.dead[end] = true;
      link.waiting[end].clear();
      if (reset) TellClosed(number, 1 - end, Delay());
      over.push_back(number);
    }
  }
  for (const LinkNumber number : over) DropIfOver(number);
}

void Network::CutLinks(int node) {
  for (auto& [number, link] : links_) {
    if (link.ends[0].node != node && link.ends[1].node != node) continue;
    // What is under way is lost with the stream.
    for (int end = 0; end < 2; ++end) link.waiting[end].clear();
    TellClosed(number, 0, kMicrosecond, true);
    TellClosed(number, 1, kMicrosecond, true);
  }
}

}  // namespace ringkv::sim
