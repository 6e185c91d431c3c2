// The first ring. Standby nodes cannot vote, so epoch 1 is decided by consent:
// each node that was found promises, durably, to be in no other ring than this
// one; when all have, the leader writes the ring, and from then it is decided.
// Two inits that share a node cannot both get its promise.
//
// A promise ends with the ring, with a release, or when the leader is heard to
// lead that init no more. A leader that never comes back leaves its promises in
// place: nobody else can tell whether it wrote the ring.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/mark.h"
#include "base/status.h"
#include "membership/control/control_impl.h"
#include "membership/control/meta.h"

namespace ringkv {
namespace {

constexpr absl::Duration kInitTimeout = absl::Seconds(15);
constexpr absl::Duration kVotingTimeout = absl::Seconds(3);
constexpr absl::Duration kSpreadTimeout = absl::Seconds(5);

}  // namespace

std::vector<const Control::Impl::Peer*> Control::Impl::FoundStandby() const {
  std::vector<const Peer*> found;
  for (const auto& [id, peer] : peers_) {
    if (peer.alive && peer.facts->cluster_id.IsNone()) found.push_back(&peer);
  }
  return found;
}

std::string Control::Impl::PledgedText() const {
  return absl::StrCat("node ", options_.name,
                      " has promised itself to the init that the node at ",
                      pledge_->initiator_address,
                      " leads, and does not know how that ended: it waits for "
                      "that node");
}

absl::Status Control::Impl::CheckInit(const InitCall& request) const {
  if (ring_ != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this node is in cluster ", ring_->spec().cluster_id.ToString(),
        " already (ring epoch ", ring_->epoch(), ")"));
  }
  if (learning_ > 0) {
    return absl::FailedPreconditionError(
        "this node is just being taken into a cluster");
  }
  for (const auto& [id, peer] : peers_) {
    if (!IsHeard(peer) || peer.facts->cluster_id.IsNone()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        Called(peer), " is in cluster ", peer.facts->cluster_id.ToString(),
        " already: init makes a new cluster out of nodes that are in none"));
  }
  const uint32_t vnodes_max =
      request.placement == PlacementStrategy::kHashed ? kVnodesMax : 0;
  if (request.vnodes > vnodes_max) {
    return absl::InvalidArgumentError(
        vnodes_max == 0
            ? absl::StrCat("vnodes: ", request.vnodes,
                           " is given, but only hashed placement has vnodes")
            : absl::StrCat("vnodes: ", request.vnodes,
                           " is above the limit of ", vnodes_max));
  }
  const std::vector<const Peer*> found = FoundStandby();
  if (request.expected_nodes != 0 &&
      request.expected_nodes != found.size() + 1) {
    std::vector<std::string> names = {Called(Facts())};
    for (const Peer* peer : found) names.push_back(Called(*peer));
    return absl::FailedPreconditionError(
        absl::StrCat("expected ", request.expected_nodes, " nodes, found ",
                     names.size(), ": ", absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

std::vector<NodeStatus> Control::Impl::FoundStatus() const {
  std::vector<NodeStatus> nodes = {OwnStatus()};
  for (const Peer* peer : FoundStandby()) nodes.push_back(StatusOf(*peer));
  std::sort(nodes.begin(), nodes.end(),
            [](const NodeStatus& a, const NodeStatus& b) {
              return std::tie(a.name, a.id) < std::tie(b.name, b.id);
            });
  return nodes;
}

absl::StatusOr<std::shared_ptr<const Ring>> Control::Impl::MakeFirstRing(
    const ClusterId& id, const InitCall& request,
    std::vector<NodeFacts> nodes) const {
  std::sort(nodes.begin(), nodes.end(),
            [](const NodeFacts& a, const NodeFacts& b) {
              return std::tie(a.name, a.id) < std::tie(b.name, b.id);
            });
  std::vector<Member> members;
  for (const NodeFacts& facts : nodes) {
    Member& member = members.emplace_back();
    member.number = NodeNumber{static_cast<uint32_t>(members.size())};
    member.id = facts.id;
    member.name = facts.name;
    member.client_address = facts.client_address;
    member.peer_address = facts.peer_address;
    member.location = facts.location;
    member.weight = facts.weight;
  }
  uint32_t vnodes = request.vnodes;
  if (vnodes == 0) {
    vnodes = request.placement == PlacementStrategy::kHashed
                 ? kHashedVnodesDefault
                 : kBalancedSegmentsDefault;
  }
  ASSIGN_OR_RETURN(RingSpec spec, FirstRing(id, request.placement, vnodes,
                                            std::move(members)));
  return Ring::Make(std::move(spec));
}

void Control::Impl::InitSingle() {
  if (pledge_.has_value()) {
    return Stop(
        absl::StrCat("cannot form a cluster of one node: ", PledgedText()));
  }
  ClusterId id;
  do {
    id.high = random_.Next();
    id.low = random_.Next();
  } while (id.IsNone());
  absl::StatusOr<std::shared_ptr<const Ring>> ring =
      MakeFirstRing(id, InitCall(), {Facts()});
  if (!ring.ok()) {
    return Stop(absl::StrCat("cannot form a cluster of one node: ",
                             ring.status().message()));
  }
  Learn(*std::move(ring), {{1, {start_id_, ++proposals_}}}, nullptr);
}

// --- The leader ---

void Control::Impl::StartInit(uint64_t call, Instant deadline,
                              const InitCall& request) {
  if (absl::Status status = CheckInit(request); !status.ok()) {
    return Refuse(call, std::move(status));
  }
  if (request.dry_run) {
    InitAnswer answer;
    answer.nodes = FoundStatus();
    return Answer(call, {absl::OkStatus(), std::move(answer)});
  }
  if (init_.has_value()) {
    return Refuse(
        call, absl::AbortedError("this node leads an init already; ask again"));
  }
  InitRun& run = init_.emplace();
  run.call = call;
  run.request = request;
  run.deadline = std::min(deadline, time_.now + kInitTimeout);
  BeginInitAttempt();
}

void Control::Impl::BeginInitAttempt() {
  InitRun& run = *init_;
  ++run.attempts;
  if (absl::Status status = CheckInit(run.request); !status.ok()) {
    return FinishInit(std::move(status));
  }
  if (pledge_.has_value()) return EndInitAttempt(PledgedText());
  run.phase = InitRun::Phase::kVoting;
  do {
    run.init.high = random_.Next();
    run.init.low = random_.Next();
  } while (run.init.IsNone());
  run.granted.clear();
  run.nodes = {id_};
  for (const Peer* peer : FoundStandby()) run.nodes.push_back(peer->id);
  run.phase_end = time_.now + kVotingTimeout;
  pledge_ =
      InitPledge{run.init, id_, options_.peer_address, start_id_, sequence_};
  Write(WritePledge(*pledge_));
  AfterSync([this, init = run.init] {
    if (init_.has_value() && init_->init == init) GrantInit(id_);
  });
  if (init_.has_value()) SendInitPrepares();
}

void Control::Impl::SendInitPrepares() {
  for (const NodeId& id : init_->nodes) {
    if (init_->granted.count(id) > 0) continue;
    if (Peer* peer = FindPeer(id); peer != nullptr) {
      Send(*peer, InitPrepare{init_->init, sequence_});
    }
  }
  init_->timer = time_.now + options_.propose_retry;
}

void Control::Impl::Take(Peer& peer, const InitVote& vote) {
  if (!init_.has_value() || init_->phase != InitRun::Phase::kVoting ||
      vote.init != init_->init) {
    return;
  }
  if (!vote.granted) return EndInitAttempt(vote.message);
  GrantInit(peer.id);
}

void Control::Impl::GrantInit(const NodeId& id) {
  InitRun& run = *init_;
  if (run.phase != InitRun::Phase::kVoting ||
      std::find(run.nodes.begin(), run.nodes.end(), id) == run.nodes.end()) {
    return;
  }
  run.granted.insert(id);
  if (run.granted.size() == run.nodes.size()) CommitInit();
}

void Control::Impl::CommitInit() {
  InitRun& run = *init_;
  std::vector<NodeFacts> nodes;
  for (const NodeId& id : run.nodes) {
    const Peer* const peer = id == id_ ? nullptr : FindPeer(id);
    if (id != id_ && peer == nullptr) {
      return EndInitAttempt(absl::StrCat("node ", id.ToString(), " went away"));
    }
    nodes.push_back(peer == nullptr ? Facts() : *peer->facts);
  }
  absl::StatusOr<std::shared_ptr<const Ring>> ring =
      MakeFirstRing(run.init, run.request, std::move(nodes));
  if (!ring.ok()) return FinishInit(ring.status());
  run.phase = InitRun::Phase::kCommitting;
  const bool learned =
      Learn(*std::move(ring), {{1, {start_id_, ++proposals_}}}, [this] {
        for (auto& [id, peer] : peers_) {
          if (IsMember(id) && peer.IsUp(LinkKind::kControl)) {
            Send(peer, Decided());
          }
        }
        init_->phase = InitRun::Phase::kSpreading;
        init_->phase_end = time_.now + kSpreadTimeout;
      });
  // Its own promise kept every other ring away.
  RINGKV_CHECK(learned);
}

void Control::Impl::EndInitAttempt(std::string reason) {
  InitRun& run = *init_;
  RINGKV_CHECK(run.phase == InitRun::Phase::kVoting ||
               run.phase == InitRun::Phase::kWaiting);
  for (const NodeId& id : run.nodes) {
    if (Peer* peer = FindPeer(id); peer != nullptr) {
      Send(*peer, InitRelease{run.init});
    }
  }
  if (pledge_.has_value() && pledge_->initiator == id_) ReleasePledge();
  RINGKV_MARK("init-attempt-ends");
  run.phase = InitRun::Phase::kWaiting;
  run.init = ClusterId();
  run.nodes.clear();
  run.granted.clear();
  run.last_refusal = std::move(reason);
  run.timer = time_.now + absl::Milliseconds(200) * std::min(run.attempts, 5) *
                              (0.5 + random_.NextDouble());
}

void Control::Impl::FinishInit(absl::Status status) {
  if (!status.ok()) {
    EndInitAttempt(std::string(status.message()));
    Log(LogLevel::kWarning, absl::StrCat("init failed: ", status.message()));
    Refuse(init_->call, std::move(status));
    init_.reset();
    return;
  }
  InitAnswer answer;
  answer.cluster_id = ring_->spec().cluster_id;
  answer.ring_epoch = ring_->epoch();
  for (const Member& member : ring_->spec().members) {
    const Peer* const peer = FindPeer(member.id);
    answer.nodes.push_back(peer == nullptr ? OwnStatus() : StatusOf(*peer));
  }
  Log(LogLevel::kInfo,
      absl::StrCat("init has formed cluster ", answer.cluster_id.ToString(),
                   " of ", answer.nodes.size(), " nodes"));
  Answer(init_->call, {absl::OkStatus(), std::move(answer)});
  init_.reset();
}

bool Control::Impl::InitHasSpread() const {
  if (adopted_epoch_ == 0) return false;
  for (const Member& member : ring_->spec().members) {
    if (member.id == id_) continue;
    const auto found = peers_.find(member.id);
    if (found == peers_.end() || !found->second.beat.has_value() ||
        found->second.beat->adopted_epoch == 0) {
      return false;
    }
  }
  return true;
}

void Control::Impl::TickInit() {
  if (!init_.has_value()) return;
  InitRun& run = *init_;
  const Instant now = time_.now;
  switch (run.phase) {
    case InitRun::Phase::kWaiting:
    case InitRun::Phase::kVoting:
      if (run.deadline <= now) {
        return FinishInit(absl::AbortedError(absl::StrCat(
            "no cluster was formed: ", run.last_refusal.empty()
                                           ? "not every node answered"
                                           : run.last_refusal)));
      }
      if (run.phase == InitRun::Phase::kVoting && run.phase_end <= now) {
        RINGKV_MARK("init-vote-lacking");
        std::vector<std::string> silent;
        for (const NodeId& id : run.nodes) {
          const Peer* const peer = FindPeer(id);
          if (run.granted.count(id) == 0) {
            silent.push_back(peer == nullptr ? id.ToString() : Called(*peer));
          }
        }
        return EndInitAttempt(
            absl::StrCat("no answer from ", absl::StrJoin(silent, ", ")));
      }
      if (run.timer <= now) {
        if (run.phase == InitRun::Phase::kVoting) {
          SendInitPrepares();
        } else {
          BeginInitAttempt();
        }
      }
      break;
    case InitRun::Phase::kCommitting:
      break;  // ends with the write
    case InitRun::Phase::kSpreading:
      if (InitHasSpread() || run.phase_end <= now) FinishInit(absl::OkStatus());
      break;
  }
}

void Control::Impl::WantInit(Instant& next) const {
  if (!init_.has_value()) return;
  const InitRun& run = *init_;
  switch (run.phase) {
    case InitRun::Phase::kVoting:
      next = std::min({next, run.deadline, run.timer, run.phase_end});
      break;
    case InitRun::Phase::kWaiting:
      next = std::min({next, run.deadline, run.timer});
      break;
    case InitRun::Phase::kCommitting:
      break;
    case InitRun::Phase::kSpreading:
      next = std::min(next, run.phase_end);
      break;
  }
}

// --- The others ---

void Control::Impl::Take(Peer& peer, const InitPrepare& prepare) {
  const auto refuse = [&](std::string message) {
    Send(peer, InitVote{prepare.init, false, std::move(message)});
  };
  if (ring_ != nullptr) {
    if (ring_->spec().cluster_id == prepare.init) return;  // a late repeat
    return refuse(absl::StrCat("node ", options_.name, " is in cluster ",
                               ring_->spec().cluster_id.ToString(),
                               " already"));
  }
  if (learning_ > 0) {
    return refuse(absl::StrCat("node ", options_.name,
                               " is just being taken into a cluster"));
  }
  const uint64_t run = peer.facts->start_id;
  if (pledge_.has_value() && pledge_->init != prepare.init) {
    // A leader has one init at a time, so its newer one ends the one before.
    const bool superseded =
        pledge_->initiator == peer.id && (pledge_->initiator_start_id != run ||
                                          pledge_->sequence < prepare.sequence);
    if (!superseded) return refuse(PledgedText());
    RINGKV_MARK("pledge-superseded");
  }
  if (!pledge_.has_value() || pledge_->init != prepare.init) {
    pledge_ = InitPledge{prepare.init, peer.id, peer.facts->peer_address, run,
                         prepare.sequence};
    Write(WritePledge(*pledge_));
    Log(LogLevel::kInfo, absl::StrCat("promised to be in the cluster that ",
                                      Called(peer), " is forming"));
  }
  AfterSync([this, id = peer.id, init = prepare.init] {
    if (!pledge_.has_value() || pledge_->init != init) return;
    if (Peer* leader = FindPeer(id); leader != nullptr) {
      Send(*leader, InitVote{init, true, ""});
    }
  });
}

void Control::Impl::Take(Peer& peer, const InitRelease& release) {
  if (pledge_.has_value() && pledge_->initiator == peer.id &&
      pledge_->init == release.init && ring_ == nullptr && learning_ == 0) {
    ReleasePledge();
  }
}

void Control::Impl::ReleasePledge() {
  pledge_.reset();
  Write(DeletePledge());
}

void Control::Impl::CheckPledge(const Peer& peer, const Heartbeat& beat) {
  if (!pledge_.has_value() || pledge_->initiator != peer.id ||
      ring_ != nullptr || learning_ > 0) {
    return;
  }
  if (beat.cluster_id == pledge_->init) return;  // done: the ring is coming
  const bool another_run = beat.start_id != pledge_->initiator_start_id;
  const bool given_up =
      beat.sequence > pledge_->sequence && beat.init != pledge_->init;
  if (another_run || given_up || !beat.cluster_id.IsNone()) ReleasePledge();
}

}  // namespace ringkv
