#include "server/coordinator/get.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/token.h"
#include "server/coordinator/common.h"

namespace ringkv {

void GetCoordinator::Start(CallId call, GetCall get, Instant deadline) {
  call_ = call;
  get_ = std::move(get);
  deadline_ = deadline;
  started_ = core_.now();
  core_.BindCall(call, id());
  Begin();
}

void GetCoordinator::StartForwarded(NodeNumber from, uint64_t operation,
                                    GetCall get, Instant deadline) {
  forwarded_from_ = from;
  forwarded_operation_ = operation;
  get_ = std::move(get);
  deadline_ = deadline;
  started_ = core_.now();
  Begin();
}

void GetCoordinator::Begin() {
  ring_ = core_.ring();
  asked_.clear();
  fallbacks_.clear();
  fallbacks_known_ = false;
  gathering_ = merged_ = false;
  result_.clear();
  holders_.clear();
  repairs_sent_.clear();

  if (absl::Status status = CheckKey(get_.key); !status.ok()) {
    return Fail(std::move(status));
  }
  absl::StatusOr<const Keyspace*> keyspace =
      ResolveKeyspace(*ring_, get_.keyspace);
  if (!keyspace.ok()) return Fail(keyspace.status());
  keyspace_ = *keyspace;
  absl::StatusOr<QuorumNeed> need =
      ReadNeed(*ring_, *keyspace_, get_.r, get_.quorum);
  if (!need.ok()) return Fail(need.status());
  need_ = *need;
  token_ = TokenOf(get_.key);
  sets_ = WriteSetsOf(*ring_, *keyspace_, token_);
  if (Planted("strict-write-back-old-set-only")) sets_.resize(1);
  replicas_ = ReplicasByPreference(core_, *ring_, *keyspace_, token_);
  AskMore(need_.required);
  Evaluate();
}

void GetCoordinator::Ask(NodeNumber node, bool home, NodeNumber stands_for,
                         ReadKind kind) {
  Asked& asked = asked_[node];
  asked = Asked{};
  asked.home = home;
  asked.stands_for = stands_for;
  asked.kind = kind;
  asked.sent = core_.now();
  ReadRequest request;
  request.operation = id();
  request.keyspace = keyspace_->id;
  request.key = get_.key;
  request.kind = kind;
  request.from_hints = !home;
  request.remaining = deadline_ - core_.now();
  core_.Send(node, std::move(request));
}

bool GetCoordinator::AskNextReplica() {
  // The first is asked for the value, others for its digest; hints are small in
  // number and always asked for in full.
  bool full_expected = false;
  for (const auto& [node, asked] : asked_) {
    full_expected =
        full_expected ||
        (asked.home && asked.kind == ReadKind::kFull && !asked.failed);
  }
  for (NodeNumber node : replicas_) {
    if (asked_.contains(node) || !core_.IsAlive(node)) continue;
    Ask(node, /*home=*/true, kNoNode,
        full_expected ? ReadKind::kDigest : ReadKind::kFull);
    return true;
  }
  return false;
}

bool GetCoordinator::AskNextFallback() {
  if (need_.strict && !Planted("stand-in-at-strict")) return false;
  // A stand-in takes the place of a replica that cannot answer.
  // Of one that is down or has failed, rather than of one that may answer yet:
  // the two would count once.
  NodeNumber missing = kNoNode;
  for (const bool may_answer : {false, true}) {
    for (NodeNumber replica : replicas_) {
      const auto it = asked_.find(replica);
      const bool waited_for =
          it != asked_.end() && !it->second.answered && !it->second.failed;
      const bool hopeless =
          it == asked_.end() ? !core_.IsAlive(replica) : it->second.failed;
      if (may_answer ? !waited_for : !hopeless) continue;
      bool stood_in = false;
      for (const auto& [node, asked] : asked_) {
        stood_in = stood_in || (asked.stands_for == replica && !asked.failed);
      }
      if (!stood_in) missing = replica;
      if (missing != kNoNode) break;
    }
    if (missing != kNoNode) break;
  }
  if (missing == kNoNode) return false;
  if (!fallbacks_known_) {
    fallbacks_known_ = true;
    fallbacks_ = ring_->Fallbacks(*keyspace_, token_);
  }
  for (NodeNumber node : fallbacks_) {
    if (asked_.contains(node) || !core_.IsAlive(node)) continue;
    RINGKV_MARK("read-asks-stand-in");
    Ask(node, /*home=*/false, missing, ReadKind::kFull);
    return true;
  }
  return false;
}

void GetCoordinator::AskMore(uint32_t at_most) {
  uint32_t hopeful = 0;
  for (const auto& [node, asked] : asked_) {
    if (!asked.failed) ++hopeful;
  }
  for (uint32_t i = 0; i < at_most && hopeful < need_.required; ++i) {
    if (!AskNextReplica() && !AskNextFallback()) break;
    ++hopeful;
  }
  ArmTimer();
}

void GetCoordinator::OnReply(NodeNumber from, DataBody& body, Release release) {
  if (auto* write = std::get_if<WriteReply>(&body)) {
    if (write->code == ReplyCode::kOk && repairs_sent_.contains(from)) {
      release_ = std::max(release_, release);
      holders_.insert(from);
      MaybeFinish();
    }
    return;
  }
  auto* reply = std::get_if<ReadReply>(&body);
  const auto it = asked_.find(from);
  if (reply == nullptr || it == asked_.end()) return;
  Asked& asked = it->second;
  // A late digest after the full value was asked for, or an answer twice.
  if (reply->kind != asked.kind || asked.answered || merged_) {
    if (reply->kind != asked.kind) RINGKV_MARK("late-digest-ignored");
    return;
  }
  // Its ring was adopted here meanwhile, and this read has begun anew with
  // that.
  if (reply->code == ReplyCode::kStaleRing) {
    RINGKV_MARK("stale-ring-amid-get");
    return;
  }
  if (reply->code != ReplyCode::kOk) {
    asked.failed = true;
    asked.code = reply->code;
    AskMore(1);
    Evaluate();
    return;
  }
  if (from != core_.self()) {
    core_.latency().Record(from, core_.now() - asked.sent);
  }
  release_ = std::max(release_, release);
  asked.answered = true;
  asked.failed = false;
  asked.found = reply->found;
  asked.digest = reply->digest;
  if (reply->kind == ReadKind::kFull) {
    asked.full = true;
    if (reply->found) asked.object = std::move(reply->object);
  }
  Evaluate();
}

void GetCoordinator::Evaluate() {
  if (merged_ || core_.Find(id()) == nullptr) return;
  std::vector<ReadAnswerKind> answers;
  std::set<NodeNumber> counted;              // replicas that are answered for
  std::map<uint64_t, NodeNumber> differing;  // digest -> one who has it
  std::set<uint64_t> in_full;                // digests whose object is here
  uint32_t hopeful = 0;
  // Home replicas first: a stand-in whose replica answers counts no more.
  for (const bool home : {true, false}) {
    for (const auto& [node, asked] : asked_) {
      if (asked.home != home) continue;
      if (!asked.failed) ++hopeful;
      if (!asked.answered) continue;
      if (!counted.insert(home ? node : asked.stands_for).second &&
          !asked.found) {
        RINGKV_MARK("stand-in-beside-its-replica");
        continue;
      }
      answers.push_back({home, asked.found});
      if (!asked.found) continue;
      differing.emplace(asked.digest, node);
      if (asked.full) in_full.insert(asked.digest);
    }
  }
  const uint32_t count =
      std::min<uint32_t>(CountReadAnswers(answers), counted.size());
  if (count < need_.required) {
    const uint32_t before = asked_.size();
    if (hopeful < need_.required) AskMore(need_.required);
    if (asked_.size() == before) {
      // All that could be asked have been: is anybody still to answer?
      bool waiting = false;
      for (const auto& [node, asked] : asked_) {
        waiting = waiting || (!asked.answered && !asked.failed);
      }
      if (!waiting) {
        if (AskNextReplica() || AskNextFallback()) {
          ArmTimer();
          return;
        }
        RINGKV_MARK("get-has-nobody-left");
        FailUnavailable("no more replicas to ask");
      }
    }
    return;
  }
  if (differing.size() > 1 && !gathering_) ++core_.stats().digest_mismatches;
  gathering_ = true;
  // Fetch the objects that are known by their digest only.
  bool complete = true;
  for (const auto& [digest, node] : differing) {
    if (in_full.contains(digest)) continue;
    complete = false;
    RINGKV_MARK("differing-object-fetched");
    Ask(node, /*home=*/true, kNoNode, ReadKind::kFull);
  }
  if (complete) return Merge();
  ArmTimer();
}

void GetCoordinator::Merge() {
  merged_ = true;
  std::optional<Object> merged;
  for (const auto& [node, asked] : asked_) {
    if (!asked.answered || !asked.object.has_value()) continue;
    absl::StatusOr<Object> object = DecodeObject(*asked.object);
    if (!object.ok() || object->mode != ModeOf(*keyspace_)) {
      // The peer's record is damaged on the way or at rest; it is no answer.
      ++core_.stats().corrupt_reads;
      Asked& bad = asked_[node];
      bad.answered = false;
      bad.failed = true;
      bad.code = ReplyCode::kFailed;
      merged_ = false;
      AskMore(1);
      Evaluate();
      return;
    }
    MergeReport report;
    merged = merged.has_value() ? ringkv::Merge(*merged, *object, &report)
                                : *std::move(object);
    core_.stats().unequal_dots += report.equal_dots_with_unequal_values;
  }
  if (merged.has_value()) {
    object_ = *std::move(merged);
    result_ = EncodeObject(object_);
  }
  const uint64_t digest = result_.empty() ? 0 : DigestOf(result_);
  for (const auto& [node, asked] : asked_) {
    if (!asked.answered || !asked.home) continue;
    const uint64_t theirs = asked.found ? asked.digest : 0;
    if (theirs == digest) holders_.insert(node);
  }
  Repair();
  MaybeFinish();
}

void GetCoordinator::Repair() {
  if (result_.empty()) return;
  std::vector<NodeNumber> stale;
  for (const auto& [node, asked] : asked_) {
    if (asked.home && asked.answered && !holders_.contains(node)) {
      stale.push_back(node);
    }
  }
  if (need_.strict) {
    // Not enough hold it: replicas that were not asked get it too.
    for (const WriteSet& set : sets_) {
      std::vector<NodeNumber> others;
      uint32_t expected = 0;
      for (NodeNumber node : set.nodes) {
        if (holders_.contains(node) ||
            std::find(stale.begin(), stale.end(), node) != stale.end()) {
          ++expected;
        } else if (core_.IsAlive(node)) {
          others.push_back(node);
        }
      }
      for (size_t i = 0; i < others.size() && expected < set.holders; ++i) {
        RINGKV_MARK("write-back-to-unasked-replica");
        stale.push_back(others[i]);
        ++expected;
      }
    }
  }
  for (NodeNumber node : stale) {
    if (!repairs_sent_.insert(node).second) continue;
    RINGKV_MARK("read-repair-sent");
    ++core_.stats().read_repairs;
    WriteRequest repair;
    repair.operation = id();
    repair.keyspace = keyspace_->id;
    repair.key = get_.key;
    repair.object = result_;
    if (Planted("repair-writes-older")) {
      for (const auto& [asked_node, asked] : asked_) {
        if (asked.object.has_value()) repair.object = *asked.object;
      }
    }
    repair.purpose = WritePurpose::kRepair;
    core_.Send(node, std::move(repair));
  }
}

bool GetCoordinator::HeldByEnough() const {
  for (const WriteSet& set : sets_) {
    uint32_t holders = 0;
    for (NodeNumber node : holders_) {
      if (set.Contains(node)) ++holders;
    }
    if (holders < set.holders) return false;
  }
  return true;
}

void GetCoordinator::MaybeFinish() {
  if (!merged_) return;
  if (need_.strict && !result_.empty() &&
      !Planted("strict-answer-before-write-back") && !HeldByEnough()) {
    RINGKV_MARK("strict-read-awaits-write-back");
    ArmTimer();
    return;
  }
  Succeed();
}

ClientAnswer GetCoordinator::MakeAnswer() const {
  ClientAnswer answer;
  GetAnswer get;
  if (!result_.empty()) {
    get.siblings = LiveSiblings(object_, core_.wall().millis());
    if (!(object_.IsTombstone() && Planted("context-misses-tombstone"))) {
      get.context = EncodeContext(ContextOf(object_, keyspace_->id, get_.key));
    }
  }
  size_t bytes = get.context.has_value() ? get.context->size() : 0;
  for (const SiblingAnswer& sibling : get.siblings) {
    bytes += sibling.value.size() + 32;
  }
  const size_t limit = get_.max_answer_bytes == 0 ? kAnswerBytesMaxDefault
                                                  : get_.max_answer_bytes;
  if (bytes > limit) {
    answer.status = absl::ResourceExhaustedError(
        absl::StrCat("the answer has ", bytes, " bytes in ",
                     get.siblings.size(), " siblings, the limit is ", limit,
                     "; ask again with max_answer_bytes of at least ", bytes));
    return answer;
  }
  answer.answer = std::move(get);
  return answer;
}

void GetCoordinator::Succeed() {
  // What this node's own copy shows must be durable before it is shown.
  release_ = std::max(release_, core_.ReleaseOf(*keyspace_, get_.key));
  Reply(MakeAnswer());
}

void GetCoordinator::FailUnavailable(absl::string_view why) {
  std::vector<std::string> reasons;
  uint32_t received = 0;
  for (NodeNumber node : replicas_) {
    const auto it = asked_.find(node);
    if (it == asked_.end()) {
      reasons.push_back(
          absl::StrCat("node ", ToInt(node),
                       core_.IsAlive(node) ? " was not asked" : " is down"));
    } else if (it->second.failed) {
      reasons.push_back(absl::StrCat("node ", ToInt(node), " ",
                                     ReplyCodeText(it->second.code)));
    } else if (!it->second.answered) {
      reasons.push_back(
          absl::StrCat("node ", ToInt(node), " gave no answer in ",
                       absl::FormatDuration(core_.now() - it->second.sent)));
    } else {
      ++received;
    }
  }
  uint32_t stand_ins = 0;
  for (const auto& [node, asked] : asked_) {
    if (!asked.home && asked.answered) ++stand_ins;
  }
  Fail(absl::UnavailableError(absl::StrCat(
      "read quorum not reached: required ", need_.required, " of ", need_.n,
      ", received ", received, " from replicas and ", stand_ins,
      " from stand-ins (", need_.strict ? "strict" : "sloppy", "; ",
      absl::StrJoin(reasons, ", "), "; ", why, ")")));
}

void GetCoordinator::Fail(absl::Status status) {
  ClientAnswer answer;
  answer.status = std::move(status);
  Reply(std::move(answer));
}

void GetCoordinator::Reply(ClientAnswer answer) {
  if (cancelled_) {
    // Nobody waits.
  } else if (forwarded_from_ != kNoNode) {
    ForwardReply reply;
    reply.operation = forwarded_operation_;
    answer.ring_epoch = core_.ring()->epoch();
    reply.answer = std::move(answer);
    core_.Send(forwarded_from_, std::move(reply), release_);
  } else {
    core_.Answer(call_, std::move(answer), release_);
  }
  core_.End(*this);
}

void GetCoordinator::ArmTimer() {
  Instant when = AnswerBy(started_, deadline_);
  if (!merged_) {
    hedge_at_ = Instant::Infinite();
    if (core_.options().hedged_reads) {
      for (const auto& [node, asked] : asked_) {
        if (asked.answered || asked.failed || node == core_.self()) continue;
        const absl::Duration patience =
            std::max(core_.latency().P95(node, (deadline_ - started_) / 8),
                     core_.options().hedge_after_min);
        hedge_at_ = std::min(hedge_at_, asked.sent + patience);
      }
      // One that is overdue has been hedged already.
      if (hedge_at_ <= core_.now()) {
        hedge_at_ = core_.now() + core_.options().hedge_after_min * 4;
      }
    }
    when = std::min(when, hedge_at_);
  }
  core_.SetTimer(*this, when);
}

void GetCoordinator::OnTimer() {
  if (core_.now() >= AnswerBy(started_, deadline_)) {
    if (cancelled_) return core_.End(*this);
    if (merged_) {
      RINGKV_MARK("strict-read-write-back-too-late");
      return Fail(absl::UnavailableError(absl::StrCat(
          "strict read: the value is held by ", holders_.size(), " of ",
          need_.holders, " replicas that must hold it before it is shown",
          sets_.size() == 1 ? ""
                            : ", and as many of those after the topology "
                              "change")));
    }
    RINGKV_MARK("get-deadline-without-quorum");
    return FailUnavailable("the deadline has come");
  }
  if (!merged_ && core_.now() >= hedge_at_) {
    // Ask one more and take whoever answers first. A full value may be what is
    // late, so the extra read is full.
    bool asked_more = false;
    for (NodeNumber node : replicas_) {
      if (asked_.contains(node) || !core_.IsAlive(node)) continue;
      Ask(node, /*home=*/true, kNoNode, ReadKind::kFull);
      asked_more = true;
      break;
    }
    if (asked_more || AskNextFallback()) {
      RINGKV_MARK("get-hedged");
      ++core_.stats().hedged_reads;
    }
  }
  ArmTimer();
}

void GetCoordinator::OnPeersChanged() {
  if (merged_) {
    if (need_.strict) {
      Repair();
      MaybeFinish();
    }
    return;
  }
  bool lost = false;
  for (auto& [node, asked] : asked_) {
    if (!asked.answered && !asked.failed && !core_.IsAlive(node)) {
      asked.failed = true;
      RINGKV_MARK("reader-went-down-amid-get");
      asked.code = ReplyCode::kExpired;
      lost = true;
    }
  }
  if (lost) Evaluate();
}

void GetCoordinator::OnRing() {
  const Keyspace* now = core_.ring()->FindKeyspace(keyspace_->id);
  // Nothing gathered under an older ring counts if the sets may have changed.
  if (now == nullptr || now->changed_at > ring_->epoch()) {
    Begin();
  }
}

void GetCoordinator::OnCancelled(CallId call) {
  RINGKV_MARK("get-cancelled");
  cancelled_ = true;
  core_.End(*this);
}

}  // namespace ringkv
