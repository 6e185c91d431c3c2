#include "tests/sim/operators.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership/ring/ring_codec.h"

namespace ringkv::sim {
namespace {

constexpr int kNames = 3;
constexpr WorldTime kTimeout = 10 * kSecond;

}  // namespace

Operators::Operators(World& world)
    : world_(world), random_(RandomFor(world.plan.seed, Purpose::kOperators)) {}

void Operators::Start(WorldTime length) {
  const int rounds = 2 + static_cast<int>(random_.Uniform(10));
  for (int i = 0; i < rounds; ++i) {
    const WorldTime at =
        static_cast<WorldTime>(random_.Uniform(static_cast<uint64_t>(length)));
    const int at_once = random_.Chance(0.5) ? 2 : 1;
    for (int j = 0; j < at_once; ++j) {
      world_.scheduler.After(at, [this] { Ask(); });
    }
  }
}

AdminCall Operators::Draw(Change& change) {
  change.name = absl::StrCat("extra-", random_.Uniform(kNames));
  const double drawn = random_.NextDouble();
  if (drawn < 0.3) {
    change.kind = Kind::kDrop;
    return DropKeyspaceCall{change.name};
  }
  if (drawn < 0.5) {
    change.kind = Kind::kAlter;
    AlterKeyspaceCall call;
    call.name = change.name;
    call.durability =
        random_.Chance(0.5) ? Durability::kSync : Durability::kInterval;
    return call;
  }
  change.kind = Kind::kCreate;
  CreateKeyspaceCall call;
  call.keyspace.name = change.name;
  call.keyspace.n = call.keyspace.r = call.keyspace.w = 1;
  return call;
}

void Operators::Ask() {
  const size_t index = changes_.size();
  Change& change = changes_.emplace_back();
  change.invoked = world_.scheduler.now();
  AdminCall call = Draw(change);
  Node& node = *world_.nodes[random_.Uniform(world_.nodes.size())];
  if (world_.trace.readable()) {
    world_.trace.Say(
        {.nanos = change.invoked,
         .lane = kWorldLane,
         .kind = Trace::Kind::kControl,
         .text = absl::StrCat("an operator asks n", node.index(), " to ",
                              change.kind == Kind::kCreate  ? "make "
                              : change.kind == Kind::kAlter ? "alter "
                                                            : "drop ",
                              change.name)});
  }
  node.Admin(std::move(call), kTimeout,
             [this, index](AdminAnswer answer) { Ended(index, answer); });
}

void Operators::Ended(size_t index, const AdminAnswer& answer) {
  Change& change = changes_[index];
  switch (answer.status.code()) {
    case absl::StatusCode::kOk:
      change.outcome = Outcome::kOk;
      break;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kResourceExhausted:
      change.outcome = Outcome::kRefused;
      break;
    default:
      return;  // it may still take effect
  }
  change.ended = world_.scheduler.now();
  if (const auto* made = std::get_if<KeyspaceAnswer>(&answer.answer)) {
    change.id = made->keyspace.id;
  }
}

bool Operators::MayFollow(const Change& change, Kind kind) const {
  return std::any_of(changes_.begin(), changes_.end(),
                     [&](const Change& other) {
                       return other.kind == kind && other.name == change.name &&
                              other.outcome != Outcome::kRefused &&
                              other.ended > change.invoked;
                     });
}

void Operators::Check(const std::function<void(std::string)>& complain) const {
  // A node whose disk is gone knows of no ring, or not of the newest.
  const auto first =
      std::find_if(world_.nodes.begin(), world_.nodes.end(),
                   [](const auto& node) { return !node->gone(); });
  const Ring& ring = *(*first)->control()->ring();
  const std::string encoded = EncodeRing(ring.spec());
  for (const auto& node : world_.nodes) {
    if (node->gone()) continue;
    if (EncodeRing(node->control()->ring()->spec()) != encoded) {
      complain(absl::StrCat("n", (*first)->index(), " and n", node->index(),
                            " have unequal rings of epoch ", ring.epoch()));
    }
  }
  for (const Change& change : changes_) {
    if (change.outcome != Outcome::kOk) continue;
    const Keyspace* found = ring.FindKeyspace(change.name);
    if (change.kind == Kind::kCreate && !MayFollow(change, Kind::kDrop) &&
        (found == nullptr || found->id != change.id)) {
      complain(absl::StrCat(
          "keyspace ", change.name, " was made with id ", ToInt(change.id),
          ", nobody dropped it, and ",
          found == nullptr ? std::string("it is not there")
                           : absl::StrCat("now it has id ", ToInt(found->id))));
    }
    if (change.kind == Kind::kDrop && found != nullptr &&
        !MayFollow(change, Kind::kCreate)) {
      complain(absl::StrCat("keyspace ", change.name,
                            " was dropped, nobody made it again, and it is "
                            "there"));
    }
  }
}

}  // namespace ringkv::sim
