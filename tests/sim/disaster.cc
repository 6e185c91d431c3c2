#include "tests/sim/disaster.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership/epochs/voters.h"

namespace ringkv::sim {
namespace {

constexpr WorldTime kPatience = 10 * kSecond;

}  // namespace

void Disaster::Strike() {
  const std::vector<Member>& members = world_.newest_ring->spec().members;
  survivors_ = members;
  for (size_t i = survivors_.size(); i > 1; --i) {
    std::swap(survivors_[i - 1], survivors_[random_.Uniform(i)]);
  }
  const std::vector<NodeNumber> voters = VotersOf(world_.newest_ring->spec());
  size_t left = 1 + random_.Uniform(members.size() / 2);
  const auto voters_left = [&] {
    return std::count_if(survivors_.begin(),
                         survivors_.begin() + static_cast<ptrdiff_t>(left),
                         [&voters](const Member& member) {
                           return std::find(voters.begin(), voters.end(),
                                            member.number) != voters.end();
                         });
  };
  while (static_cast<size_t>(voters_left()) >= MajorityOf(voters.size())) {
    if (left > 1) {
      --left;
    } else {  // the only voter
      std::rotate(survivors_.begin(), survivors_.begin() + 1, survivors_.end());
    }
  }
  for (size_t i = left; i < survivors_.size(); ++i) {
    Node& node = *world_.AtAddress(survivors_[i].peer_address);
    world_.trace.Say({.nanos = world_.scheduler.now(),
                      .lane = kWorldLane,
                      .kind = Trace::Kind::kFault,
                      .text = absl::StrCat("n", node.index(),
                                           " is lost for good, with a majority "
                                           "of the members")});
    node.ExchangeDisk(std::nullopt, kForever / 4);
  }
  survivors_.resize(left);
  std::sort(
      survivors_.begin(), survivors_.end(),
      [](const Member& a, const Member& b) { return a.number < b.number; });
  Ask();
}

void Disaster::Ask() {
  RecoverCall call;
  for (const Member& member : survivors_) {
    call.survivors.push_back(absl::StrCat(ToInt(member.number)));
  }
  Node& first = *world_.AtAddress(survivors_.front().peer_address);
  first.Admin(std::move(call), kPatience, [this](const AdminAnswer& answer) {
    last_answer_ = answer.status;
    recovering_ = answer.status.ok();
    // The lost are not taken for dead yet.
    if (!recovering_) world_.scheduler.After(kSecond, [this] { Ask(); });
  });
}

bool Disaster::Recovered() const {
  if (!recovering_) return false;
  for (const Member& member : survivors_) {
    const Node& node = *world_.AtAddress(member.peer_address);
    if (!node.serving()) return false;
    const Ring& ring = *node.control()->ring();
    if (ring.spec().lineage == 0 || ring.spec().operation.has_value() ||
        ring.spec().members.size() != survivors_.size() ||
        node.peers_alive() + 1 != survivors_.size()) {
      return false;
    }
  }
  return true;
}

std::string Disaster::Trouble() const {
  std::string trouble =
      absl::StrCat("the operator was answered ", last_answer_.ToString());
  for (const Member& member : survivors_) {
    const Node& node = *world_.AtAddress(member.peer_address);
    absl::StrAppend(&trouble, "; n", node.index());
    if (node.control() == nullptr || node.control()->ring() == nullptr) {
      absl::StrAppend(&trouble, " has no ring");
      continue;
    }
    const RingSpec& spec = node.control()->ring()->spec();
    absl::StrAppend(&trouble, " has ring epoch ", spec.epoch, " with ",
                    spec.members.size(), " members",
                    spec.operation.has_value() ? " and an operation" : "",
                    ", and sees ", node.peers_alive());
  }
  return trouble;
}

}  // namespace ringkv::sim
