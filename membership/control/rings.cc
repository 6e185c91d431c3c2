// Ring epochs in Control: learning what is decided, voting, proposing. Epoch
// e+1 is decided by Paxos among the voters of epoch e.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/status.h"
#include "membership/control/control_impl.h"
#include "membership/control/meta.h"
#include "membership/epochs/voters.h"
#include "membership/ring/ring_codec.h"
#include "membership/topology/segments.h"

namespace ringkv {
namespace {

constexpr absl::Duration kFetchEvery = absl::Milliseconds(500);
constexpr size_t kChangesMax = 100;
constexpr absl::Duration kAdoptionWait = absl::Seconds(2);

}  // namespace

// --- Learning ---

RingDecided Control::Impl::Decided() const {
  return {ring_->epoch(), EncodeRing(ring_->spec()), history_};
}

void Control::Impl::FetchRing(Peer& peer) {
  const auto [found, added] = fetched_.try_emplace(peer.id, time_.now);
  if (!added && time_.now - found->second < kFetchEvery) return;
  found->second = time_.now;
  Send(peer, RingFetch{ring_ == nullptr ? 0 : ring_->epoch()});
}

void Control::Impl::Handle(const RingWanted& event) {
  if (ring_ == nullptr) return;
  const Member* const member = ring_->FindMember(event.from);
  Peer* const peer = member == nullptr ? nullptr : FindPeer(member->id);
  if (peer != nullptr) FetchRing(*peer);
}

void Control::Impl::Take(Peer& peer, const RingFetch& fetch) {
  if (ring_ == nullptr || ring_->epoch() <= fetch.have_epoch) return;
  // A ring is of no use to a standby node that it does not name; one that
  // names a node which has left tells it so.
  if (!IsMember(peer.id) && peer.facts->number == kNoNode) return;
  RINGKV_MARK("ring-fetched");
  Send(peer, Decided());
}

void Control::Impl::Take(Peer& peer, const RingDecided& decided) {
  if (decided.epoch <= learning_ ||
      (ring_ != nullptr && decided.epoch <= ring_->epoch())) {
    RINGKV_MARK("known-epoch-told-again");
    return;
  }
  const auto reject = [&](absl::string_view why) {
    LogRefusal(peer.id, HelloOutcome::kRefused,
               absl::StrCat(Called(peer), " sent a ring of epoch ",
                            decided.epoch, " that cannot be taken: ", why));
  };
  absl::StatusOr<RingSpec> spec = DecodeRing(decided.ring);
  if (!spec.ok()) return reject(spec.status().message());
  if (spec->epoch != decided.epoch) return reject("its epoch differs inside");
  if (ring_ != nullptr &&
      (spec->cluster_id != ring_->spec().cluster_id ||
       (spec->lineage != ring_->spec().lineage &&
        !IsFormerLineage(spec->former_lineages, ring_->spec().lineage)))) {
    return reject("it is of another cluster, or of another lineage of this");
  }
  if (spec->feature_level > options_.feature_level_max) {
    return Stop(absl::StrCat("the ring of epoch ", spec->epoch,
                             " has feature level ", spec->feature_level,
                             ", and this program knows up to ",
                             options_.feature_level_max, ": upgrade it"));
  }
  absl::StatusOr<std::shared_ptr<const Ring>> ring =
      Ring::Make(*std::move(spec));
  if (!ring.ok()) return reject(ring.status().message());
  // A standby node is in no ring until one has it.
  if (ring_ == nullptr && (*ring)->FindMember(id_) == nullptr) return;
  if (!WhyExpelled(**ring).empty()) {
    if (Planted("departed-comes-back")) return;
    return Depart(**ring);
  }
  if (ring_ == nullptr && pledge_.has_value() &&
      pledge_->init != (*ring)->spec().cluster_id) {
    // It would have needed our promise to have us.
    return reject("this node is promised to another init");
  }
  Learn(*std::move(ring), decided.history, nullptr);
}

std::string Control::Impl::WhyExpelled(const Ring& ring) const {
  const Member* const member = ring.FindMember(id_);
  if (number_ != kNoNode && (member == nullptr || member->number != number_)) {
    return absl::StrCat("node number ", ToInt(number_), " (", options_.name,
                        ") has left the ring: it is not in epoch ",
                        ring.epoch(), ", and its last one was ",
                        ring_->epoch());
  }
  if (member != nullptr && IsTakenForDead(ring, member->number)) {
    return absl::StrCat("node number ", ToInt(member->number), " (",
                        options_.name,
                        ") is being taken out of the ring as dead, since "
                        "epoch ",
                        ring.spec().operation->id);
  }
  return "";
}

void Control::Impl::Depart(const Ring& ring) {
  std::string message =
      absl::StrCat(WhyExpelled(ring),
                   ". This node stops; to add the machine again, start it with "
                   "an empty data directory and join it as a new node");
  if (ring.FindMember(id_) != nullptr) {
    // Taken for dead, which may be aborted yet: then the disk is as good as
    // before. Or its join was aborted and it joins anew meanwhile: under that
    // number this disk must not start.
    return Stop(std::move(message));
  }
  // Also a start that reaches nobody finds that its number is gone.
  learning_ = ring.epoch();
  Write(WriteRing(EncodeRing(ring.spec()), {}));
  AfterSync([this, message = std::move(message)] { Stop(message); });
}

bool Control::Impl::KnowsDeparted(const Peer& peer) const {
  return ring_ != nullptr && peer.facts.has_value() &&
         peer.facts->number != kNoNode && !IsMember(peer.id) &&
         peer.facts->cluster_id == ring_->spec().cluster_id &&
         std::binary_search(ring_->spec().departed.begin(),
                            ring_->spec().departed.end(), peer.facts->number);
}

bool Control::Impl::Learn(std::shared_ptr<const Ring> ring,
                          std::vector<DecidedProposal> history,
                          std::function<void()> after) {
  if (ring->epoch() <= learning_ ||
      (ring_ != nullptr && ring->epoch() <= ring_->epoch())) {
    return false;
  }
  learning_ = ring->epoch();
  if (history.size() > kProposalHistoryMax) {
    history.erase(history.begin(), history.end() - kProposalHistoryMax);
  }
  // What is said of the new epoch comes with a bound that is no older.
  RenewBound(/*force=*/true);
  Write(WriteRing(EncodeRing(ring->spec()), history));
  if (pledge_.has_value()) Write(DeletePledge());
  AfterSync([this, ring = std::move(ring), history = std::move(history),
             after = std::move(after)]() mutable {
    RingIsDurable(std::move(ring), std::move(history));
    if (after) after();
  });
  return true;
}

void Control::Impl::RingIsDurable(std::shared_ptr<const Ring> ring,
                                  std::vector<DecidedProposal> history) {
  if (ring_ != nullptr && ring->epoch() <= ring_->epoch()) return;
  const bool first = ring_ == nullptr;
  const std::shared_ptr<const Ring> before = ring_;
  ring_ = std::move(ring);
  history_ = std::move(history);
  number_ = ring_->FindMember(id_)->number;
  pledge_.reset();
  if (first) {
    // It has held no other state that an older copy of its disk could lack.
    may_vote_ = true;
    view_sent_ = false;
  }
  if (before != nullptr && before->spec().lineage != ring_->spec().lineage) {
    // Streams are made anew, with a handshake that tells lost nodes from those
    // that only have to learn of the recovery.
    for (auto& [id, peer] : peers_) DropLinks(peer);
  }
  AddRingPeers();
  views_stale_ = true;
  out_->ring = ring_;
  Log(LogLevel::kInfo,
      absl::StrCat("ring epoch ", ring_->epoch(), " of cluster ",
                   ring_->spec().cluster_id.ToString(),
                   " is on disk: ", ring_->spec().members.size(), " nodes, ",
                   ring_->spec().keyspaces.size(), " keyspaces"));
  if (proposer_.has_value() && proposer_->epoch() <= ring_->epoch()) {
    last_round_ = std::max(last_round_, proposer_->round());
    proposer_.reset();
  }
  FollowOperation(before.get());
  SettleChanges();
  // So that peers hear of it before the next round; also those that left.
  for (auto& [id, peer] : peers_) {
    if (IsMember(id) || KnowsDeparted(peer)) SendHeartbeat(peer);
  }
  ProposeNext();
}

void Control::Impl::Handle(const EpochAdopted& event) {
  if (ring_ == nullptr || event.epoch > ring_->epoch()) return;
  if (event.epoch <= adopted_epoch_) return;
  adopted_epoch_ = event.epoch;
  step_stale_ = true;
  BeatMembers();
}

bool Control::Impl::AllHaveAdopted(RingEpoch epoch) const {
  for (const auto& [id, peer] : peers_) {
    if (peer.alive && IsMember(id) && peer.beat->adopted_epoch < epoch) {
      return false;
    }
  }
  return true;
}

// --- Voting ---

bool Control::Impl::MayVote() {
  if (may_vote_ || ring_ == nullptr) return may_vote_;
  // A disk that is older than its peers remember would vote twice; so first a
  // majority of the members, this one included, must have accepted its
  // handshake.
  // Those who leave as dead can check nothing, and have no vote. Nor are those
  // counted who still join: they may go for good, and with few members nobody
  // could decide on that any more.
  size_t members = 0;
  size_t checked = 0;
  const TopologyOperation* const running = Running();
  for (const Member& member : ring_->spec().members) {
    if (running != nullptr && (running->TakesForDead(member.number) ||
                               running->Joins(member.number))) {
      continue;
    }
    ++members;
    if (member.number == number_ || checked_by_.count(member.number) > 0) {
      ++checked;
    }
  }
  may_vote_ = checked >= MajorityOf(members);
  return may_vote_;
}

void Control::Impl::PersistAcceptor() {
  if (Planted("acceptor-forgets")) return;
  Write(WriteAcceptor(acceptor_.state()));
}

void Control::Impl::OnPrepare(NodeNumber from, const PaxosPrepare& prepare) {
  PaxosPromise promise;
  promise.epoch = prepare.epoch;
  promise.ballot = prepare.ballot;
  if (prepare.epoch == ring_->epoch() + 1) {
    if (!MayVote()) {
      RINGKV_MARK("may-not-vote-yet");
      return;
    }
    const AcceptorState before = acceptor_.state();
    promise = acceptor_.OnPrepare(prepare);
    if (!(acceptor_.state() == before)) PersistAcceptor();
    RenewBound(/*force=*/true);
    promise.hlc_bound = bound_written_;
  }
  // Otherwise a refusal whose known_epoch tells the proposer what it missed.
  if (prepare.epoch <= ring_->epoch()) RINGKV_MARK("proposal-for-a-past-epoch");
  promise.known_epoch = ring_->epoch();
  AfterSync([this, from, promise = std::move(promise)]() mutable {
    SendToMember(from, std::move(promise));
  });
}

void Control::Impl::OnAccept(NodeNumber from, const PaxosAccept& accept) {
  PaxosAccepted accepted;
  accepted.epoch = accept.epoch;
  accepted.ballot = accept.ballot;
  if (accept.epoch == ring_->epoch() + 1) {
    if (!MayVote()) return;
    const AcceptorState before = acceptor_.state();
    accepted = acceptor_.OnAccept(accept);
    if (!(acceptor_.state() == before)) PersistAcceptor();
    RenewBound(/*force=*/true);
    accepted.hlc_bound = bound_written_;
  }
  accepted.known_epoch = ring_->epoch();
  AfterSync([this, from, accepted] { SendToMember(from, accepted); });
}

void Control::Impl::SendToMember(NodeNumber to, ControlMessage message) {
  if (ring_ == nullptr) return;
  if (to == number_) {
    // The node's own acceptor and proposer talk by the same rules.
    if (const auto* promise = std::get_if<PaxosPromise>(&message)) {
      OnPromise(to, *promise);
    } else if (const auto* accepted = std::get_if<PaxosAccepted>(&message)) {
      OnAccepted(to, *accepted);
    } else if (const auto* prepare = std::get_if<PaxosPrepare>(&message)) {
      OnPrepare(to, *prepare);
    } else if (const auto* accept = std::get_if<PaxosAccept>(&message)) {
      OnAccept(to, *accept);
    }
    return;
  }
  const Member* const member = ring_->FindMember(to);
  Peer* const peer = member == nullptr ? nullptr : FindPeer(member->id);
  if (peer != nullptr) Send(*peer, std::move(message));
}

// Whom a message of `peer` comes from; kNoNode if it is in no ring of ours.
static NodeNumber NumberIn(const Ring* ring, const NodeId& id) {
  const Member* const member = ring == nullptr ? nullptr : ring->FindMember(id);
  return member == nullptr ? kNoNode : member->number;
}

void Control::Impl::Take(Peer& peer, const PaxosPrepare& prepare) {
  const NodeNumber from = NumberIn(ring_.get(), peer.id);
  if (from == kNoNode) return;
  if (prepare.epoch > ring_->epoch() + 1) return FetchRing(peer);
  OnPrepare(from, prepare);
}

void Control::Impl::Take(Peer& peer, const PaxosAccept& accept) {
  const NodeNumber from = NumberIn(ring_.get(), peer.id);
  if (from == kNoNode) return;
  if (accept.epoch > ring_->epoch() + 1) return FetchRing(peer);
  OnAccept(from, accept);
}

void Control::Impl::Take(Peer& peer, const PaxosPromise& promise) {
  const NodeNumber from = NumberIn(ring_.get(), peer.id);
  if (from == kNoNode) return;
  if (promise.known_epoch > ring_->epoch()) return FetchRing(peer);
  RememberFirst(peer, promise.hlc_bound,
                [this, from, promise] { OnPromise(from, promise); });
}

void Control::Impl::Take(Peer& peer, const PaxosAccepted& accepted) {
  const NodeNumber from = NumberIn(ring_.get(), peer.id);
  if (from == kNoNode) return;
  if (accepted.known_epoch > ring_->epoch()) return FetchRing(peer);
  RememberFirst(peer, accepted.hlc_bound,
                [this, from, accepted] { OnAccepted(from, accepted); });
}

// --- Proposing ---

void Control::Impl::OnPromise(NodeNumber from, const PaxosPromise& promise) {
  if (!proposer_.has_value()) return;
  std::vector<Proposer::Out> out;
  proposer_->OnPromise(from, promise, time_.now, out);
  AfterProposerStep(std::move(out));
}

void Control::Impl::OnAccepted(NodeNumber from, const PaxosAccepted& accepted) {
  if (!proposer_.has_value()) return;
  std::vector<Proposer::Out> out;
  proposer_->OnAccepted(from, accepted, time_.now, out);
  AfterProposerStep(std::move(out));
}

void Control::Impl::AfterProposerStep(std::vector<Proposer::Out> out) {
  last_round_ = std::max(last_round_, proposer_->round());
  for (PendingChange& change : changes_) {
    if (change.proposal == proposer_->own().id) {
      change.value_sent = change.value_sent || proposer_->own_value_sent();
    }
  }
  if (proposer_->decided()) {
    const RingEpoch epoch = proposer_->epoch();
    const PaxosValue value = proposer_->value();
    proposer_.reset();
    absl::StatusOr<RingSpec> spec = DecodeRing(value.ring);
    absl::StatusOr<std::shared_ptr<const Ring>> ring =
        spec.ok() ? Ring::Make(*std::move(spec)) : spec.status();
    // Nobody proposes a ring that cannot be made; a newer version might.
    if (!ring.ok() || (*ring)->epoch() != epoch ||
        (*ring)->spec().feature_level > options_.feature_level_max) {
      return Stop(absl::StrCat(
          "ring epoch ", epoch, " was decided, and this node cannot adopt it",
          ring.ok() ? "" : ": ",
          ring.ok() ? "" : std::string(ring.status().message())));
    }
    std::vector<DecidedProposal> history = history_;
    history.push_back({epoch, value.id});
    if (!WhyExpelled(**ring).empty()) {
      // This node has completed the change that takes it out.
      for (auto& [id, peer] : peers_) {
        if ((*ring)->FindMember(id) != nullptr) {
          Send(peer, RingDecided{epoch, value.ring, history});
        }
      }
      return Depart(**ring);
    }
    Learn(*std::move(ring), std::move(history), [this] {
      // Everybody hears of it at once; who misses this fetches it later.
      for (auto& [id, peer] : peers_) {
        if (IsMember(id) && peer.IsUp(LinkKind::kControl)) {
          Send(peer, Decided());
        }
      }
    });
    return;
  }
  SendPaxos(std::move(out));
}

void Control::Impl::SendPaxos(std::vector<Proposer::Out> out) {
  // To this node itself last: its answer may change the proposer.
  std::optional<ControlMessage> to_self;
  for (Proposer::Out& message : out) {
    if (message.to == number_) {
      to_self = std::move(message.message);
    } else {
      SendToMember(message.to, std::move(message.message));
    }
  }
  if (to_self.has_value()) SendToMember(number_, *std::move(to_self));
}

void Control::Impl::StartChange(uint64_t call, Instant deadline,
                                RingChange change) {
  if (ring_ == nullptr) {
    return Refuse(call, absl::FailedPreconditionError(
                            "this node is in no ring yet: form a cluster with "
                            "kvctl init first"));
  }
  if (changes_.size() >= kChangesMax) {
    return Refuse(call, absl::ResourceExhaustedError(absl::StrCat(
                            changes_.size(),
                            " changes of the ring wait already; the limit is ",
                            kChangesMax)));
  }
  PendingChange pending;
  pending.call = call;
  pending.deadline = std::min(deadline, time_.now + options_.propose_timeout);
  pending.change = std::move(change);
  changes_.push_back(std::move(pending));
  ProposeNext();
}

void Control::Impl::ProposeNext() {
  // What is on its way to the disk is the base of the next change.
  if (ring_ == nullptr || learning_ > ring_->epoch()) return;
  while (!proposer_.has_value() && !changes_.empty()) {
    PendingChange& change = changes_.front();
    absl::StatusOr<RingSpec> next = ApplyChange(change.change, ring_->spec());
    const auto* const request = std::get_if<TopologyRequest>(&change.change);
    if (next.ok()) {
      if (absl::Status status = CheckChange(change.change); !status.ok()) {
        next = std::move(status);
      }
    }
    if (next.ok() && next->epoch == ring_->epoch()) {
      RINGKV_MARK("change-is-made-already");
      AnswerChange(change);  // it is so already
      changes_.pop_front();
      continue;
    }
    absl::StatusOr<std::shared_ptr<const Ring>> made =
        next.ok() ? Ring::Make(*next) : next.status();
    if (!made.ok()) {
      RefuseChange(change, made.status());
      changes_.pop_front();
      continue;
    }
    if (request != nullptr) change.plan = PlanOf(**made);
    change.proposal = {start_id_, ++proposals_};
    change.proposed_for = next->epoch;
    change.value_sent = false;
    ProposerOptions options;
    options.epoch = next->epoch;
    options.voters = VotersOf(ring_->spec());
    options.self = number_;
    options.start_id = start_id_;
    options.retry = options_.propose_retry;
    proposer_.emplace(std::move(options),
                      PaxosValue{change.proposal, EncodeRing((*made)->spec())},
                      last_round_, random_);
    std::vector<Proposer::Out> out;
    proposer_->Start(time_.now, out);
    AfterProposerStep(std::move(out));
  }
}

absl::Status Control::Impl::CheckChange(const RingChange& change) const {
  if (const auto* request = std::get_if<TopologyRequest>(&change)) {
    RETURN_IF_ERROR(CheckJoiners(*request));
    return CheckDead(*request);
  }
  if (const auto* raise = std::get_if<RaiseLevel>(&change);
      raise != nullptr && raise->level > ring_->spec().feature_level) {
    return CheckLevel(raise->level);
  }
  return absl::OkStatus();
}

void Control::Impl::RefuseChange(const PendingChange& change,
                                 absl::Status status) {
  if (change.call.has_value()) Refuse(*change.call, std::move(status));
}

void Control::Impl::AnswerChange(const PendingChange& change) {
  if (!change.call.has_value()) return;
  AwaitedAdoption awaited;
  awaited.epoch = ring_->epoch();
  awaited.out.call = *change.call;
  awaited.out.answer = AnswerTo(change);
  awaited.give_up = time_.now + kAdoptionWait;
  awaited_.push_back(std::move(awaited));
}

AdminAnswer Control::Impl::AnswerTo(const PendingChange& change) const {
  AdminAnswer answer;
  const TopologyOperation* const running = Running();
  if (std::holds_alternative<DropKeyspaceCall>(change.change)) {
    answer.answer = DropKeyspaceAnswer{ring_->epoch()};
  } else if (std::holds_alternative<TopologyRequest>(change.change)) {
    answer.answer = StartOperationAnswer{
        change.plan, running == nullptr ? change.proposed_for : running->id};
  } else if (std::holds_alternative<AbortOperationCall>(change.change)) {
    answer.answer = AbortOperationAnswer{
        finished_.empty() ? 0 : finished_.front().id, ring_->epoch()};
  } else if (const auto* raise = std::get_if<RaiseLevel>(&change.change)) {
    answer.answer = FinishUpgradeAnswer{ring_->spec().feature_level,
                                        raise->before, ring_->epoch()};
  } else {
    const std::string name = KeyspaceNameOf(change.change);
    const Keyspace* const keyspace = ring_->FindKeyspace(name);
    if (keyspace == nullptr) {
      // It was made, and is gone again.
      answer.status = absl::AbortedError(absl::StrCat(
          "keyspace \"", name, "\" was changed as asked and dropped since"));
      return answer;
    }
    const bool begun = running != nullptr && change.proposed_for != 0 &&
                       running->id == change.proposed_for;
    answer.answer =
        KeyspaceAnswer{*keyspace, ring_->epoch(), begun ? running->id : 0};
  }
  return answer;
}

void Control::Impl::SettleChanges() {
  for (auto it = changes_.begin(); it != changes_.end();) {
    PendingChange& change = *it;
    if (change.proposal == ProposalId() ||
        change.proposed_for > ring_->epoch()) {
      ++it;
      continue;
    }
    bool known = false;
    bool won = false;
    for (const DecidedProposal& decided : history_) {
      if (decided.epoch != change.proposed_for) continue;
      known = true;
      won = decided.id == change.proposal;
    }
    if (won) {
      AnswerChange(change);
      it = changes_.erase(it);
    } else if (known || !change.value_sent) {
      // Another change came first: propose again on top of it.
      RINGKV_MARK("epoch-decided-by-another");
      change.proposal = ProposalId();
      change.proposed_for = 0;
      change.value_sent = false;
      ++it;
    } else {
      RINGKV_MARK("change-outcome-unknown");
      RefuseChange(
          change,
          absl::AbortedError(absl::StrCat(
              "the ring went on to epoch ", ring_->epoch(),
              " while this node was cut off; whether the change is part of it "
              "is not known here: look at the keyspaces and operations before "
              "asking again")));
      it = changes_.erase(it);
    }
  }
}

std::string Control::Impl::NamesOf(
    const std::vector<NodeNumber>& numbers) const {
  return absl::StrJoin(numbers, ", ", [this](std::string* out, NodeNumber n) {
    const Member* const member = ring_->FindMember(n);
    absl::StrAppend(out, member == nullptr ? "" : member->name, " (", ToInt(n),
                    ")");
  });
}

void Control::Impl::TickRings() {
  for (auto it = changes_.begin(); it != changes_.end();) {
    if (it->deadline > time_.now) {
      ++it;
      continue;
    }
    RINGKV_MARK("change-out-of-time");
    const bool current =
        proposer_.has_value() && proposer_->own().id == it->proposal;
    if (it->value_sent) {
      RefuseChange(*it,
                   absl::DeadlineExceededError(absl::StrCat(
                       "ring epoch ", it->proposed_for,
                       " was not decided in time; the change may still take "
                       "effect")));
    } else {
      std::string why = "another change of the ring was decided on first";
      if (current) {
        const std::vector<NodeNumber> voters = VotersOf(ring_->spec());
        why = absl::StrCat("a majority of the ", voters.size(),
                           " voters is needed, and these did not answer: ",
                           NamesOf(proposer_->Unanswered()));
      }
      RefuseChange(*it, absl::UnavailableError(
                            absl::StrCat("the ring was not changed: ", why)));
    }
    if (current) {
      last_round_ = std::max(last_round_, proposer_->round());
      proposer_.reset();
    }
    it = changes_.erase(it);
  }
  if (proposer_.has_value() && proposer_->NextTimer() <= time_.now) {
    std::vector<Proposer::Out> out;
    proposer_->OnTimer(time_.now, out);
    AfterProposerStep(std::move(out));
  }
  ProposeNext();
  for (auto it = awaited_.begin(); it != awaited_.end();) {
    if (it->epoch <= adopted_epoch_ &&
        (it->give_up <= time_.now || AllHaveAdopted(it->epoch))) {
      out_->answers.push_back(std::move(it->out));
      it = awaited_.erase(it);
    } else {
      ++it;
    }
  }
}

void Control::Impl::WantRings(Instant& next) const {
  for (const AwaitedAdoption& awaited : awaited_) {
    if (awaited.epoch <= adopted_epoch_) next = std::min(next, awaited.give_up);
  }
  for (const PendingChange& change : changes_) {
    next = std::min(next, change.deadline);
  }
  if (proposer_.has_value()) next = std::min(next, proposer_->NextTimer());
}

}  // namespace ringkv
