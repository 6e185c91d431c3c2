#include "server/coordinator/forward.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mark.h"
#include "base/token.h"
#include "server/coordinator/common.h"

namespace ringkv {
namespace {

const std::string& KeyOf(const ClientCall& call) {
  if (const auto* get = std::get_if<GetCall>(&call)) return get->key;
  return std::get<PutCall>(call).key;
}

const std::string& KeyspaceOf(const ClientCall& call) {
  if (const auto* get = std::get_if<GetCall>(&call)) return get->keyspace;
  return std::get<PutCall>(call).keyspace;
}

}  // namespace

void ForwardCoordinator::Start(CallId call, ClientCall request,
                               Instant deadline, NodeNumber only,
                               uint64_t only_start_id) {
  request_ = std::move(request);
  deadline_ = deadline;
  started_ = core_.now();
  only_ = only;
  only_start_id_ = only_start_id;
  ++core_.stats().forwards;
  Join(call);
  if (!HandOn()) Fail("no replica of the key can be reached", false);
}

void ForwardCoordinator::Join(CallId call) {
  calls_.push_back(call);
  core_.BindCall(call, id());
}

bool ForwardCoordinator::Repeatable() const {
  const auto* put = std::get_if<PutCall>(&request_);
  return put == nullptr;
}

bool ForwardCoordinator::HandOn() {
  absl::StatusOr<const Keyspace*> keyspace =
      ResolveKeyspace(*core_.ring(), KeyspaceOf(request_));
  if (!keyspace.ok()) return false;
  for (NodeNumber node : ReplicasByPreference(core_, *core_.ring(), **keyspace,
                                              TokenOf(KeyOf(request_)))) {
    if (node == core_.self() || tried_.contains(node)) continue;
    if (!core_.IsAlive(node)) continue;
    if (only_ != kNoNode && node != only_) continue;
    tried_.insert(node);
    waiting_[node] = core_.now();
    ForwardRequest forward;
    forward.operation = id();
    forward.start_id =
        only_ == kNoNode ? core_.PeerOf(node).start_id : only_start_id_;
    forward.call = request_;
    forward.remaining = AnswerBy(started_, deadline_) - core_.now();
    forward.sent = core_.wall();
    if (auto* put = std::get_if<PutCall>(&request_);
        put != nullptr && !put->request.id.empty()) {
      // A repeat has to find the node that may have minted its dot.
      if (Outcomes::Entry* entry = core_.outcomes().Find(put->request.id)) {
        entry->forwarded_to = node;
        entry->forwarded_start_id = forward.start_id;
      }
    }
    core_.Send(node, std::move(forward));
    ArmTimer();
    return true;
  }
  return false;
}

void ForwardCoordinator::OnReply(NodeNumber from, DataBody& body,
                                 Release release) {
  auto* reply = std::get_if<ForwardReply>(&body);
  if (reply == nullptr || !waiting_.contains(from)) return;
  if (reply->code == ReplyCode::kOk) {
    core_.latency().Record(from, core_.now() - waiting_[from]);
    AnswerAll(std::move(reply->answer));
    return;
  }
  waiting_.erase(from);
  // Refused before anything was done: the next one may have it.
  absl::StrAppend(&refusals_, refusals_.empty() ? "" : ", ", "node ",
                  ToInt(from), " ", ReplyCodeText(reply->code));
  RINGKV_MARK("forward-tries-another");
  if (reply->code == ReplyCode::kStaleRing) core_.WantRing(from);
  if (reply->code == ReplyCode::kWrongStart && only_ != kNoNode) {
    RINGKV_MARK("forward-repeat-meets-restart");
    return Fail("the node that this was first handed to has restarted", true);
  }
  if (waiting_.empty() && !HandOn()) {
    Fail("no other replica can be reached", false);
  }
}

void ForwardCoordinator::OnPeersChanged() {
  const size_t lost = std::erase_if(waiting_, [this](const auto& waiting) {
    return !core_.IsAlive(waiting.first);
  });
  if (lost == 0 || !waiting_.empty()) return;
  if (!Repeatable()) {
    RINGKV_MARK("forwarded-put-lost-its-node");
    return Fail("the node that this was handed to went down", true);
  }
  RINGKV_MARK("forwarded-get-lost-its-node");
  if (!HandOn()) Fail("no other replica can be reached", false);
}

void ForwardCoordinator::ArmTimer() {
  Instant when = AnswerBy(started_, deadline_);
  if (Repeatable() && core_.options().hedged_reads) {
    for (const auto& [node, at] : waiting_) {
      const absl::Duration patience =
          std::max(core_.latency().P95(node, (deadline_ - started_) / 4),
                   core_.options().hedge_after_min);
      if (at + patience > core_.now()) when = std::min(when, at + patience);
    }
  }
  core_.SetTimer(*this, when);
}

void ForwardCoordinator::OnTimer() {
  if (core_.now() >= AnswerBy(started_, deadline_)) {
    return Fail("the deadline has come", !Repeatable());
  }
  if (Repeatable() && HandOn()) {
    RINGKV_MARK("forward-hedged");
    ++core_.stats().hedged_reads;
    return;
  }
  ArmTimer();
}

void ForwardCoordinator::Fail(absl::string_view why, bool may_take_effect) {
  ClientAnswer answer;
  answer.status = absl::UnavailableError(
      absl::StrCat("handed to a replica of the key without success: ", why,
                   refusals_.empty() ? "" : "; ", refusals_,
                   may_take_effect ? "; it may still take effect" : ""));
  AnswerAll(std::move(answer));
}

void ForwardCoordinator::AnswerAll(ClientAnswer answer) {
  if (auto* put = std::get_if<PutCall>(&request_);
      put != nullptr && !put->request.id.empty()) {
    Outcomes::Entry* entry = core_.outcomes().Find(put->request.id);
    if (entry != nullptr && entry->running == id()) {
      entry->running = 0;
      if (answer.status.ok()) {
        entry->answer = std::make_shared<ClientAnswer>(answer);
        core_.outcomes().Updated(put->request.id);
      }
    }
  }
  for (CallId call : calls_) core_.Answer(call, answer, Release::kWritten);
  core_.End(*this);
}

void ForwardCoordinator::OnCancelled(CallId call) {
  std::erase(calls_, call);
  if (calls_.empty() && Repeatable()) core_.End(*this);
}

}  // namespace ringkv
