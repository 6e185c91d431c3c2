#include "server/coordinator/locate.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/token.h"
#include "server/coordinator/common.h"

namespace ringkv {

void LocateCoordinator::Start(CallId call, LocateCall locate,
                              Instant deadline) {
  call_ = call;
  deadline_ = deadline;
  started_ = core_.now();
  core_.BindCall(call, id());
  const Ring& ring = *core_.ring();
  absl::Status status = CheckKey(locate.key);
  absl::StatusOr<const Keyspace*> keyspace =
      ResolveKeyspace(ring, locate.keyspace);
  if (status.ok()) status = keyspace.status();
  if (!status.ok()) {
    ClientAnswer answer;
    answer.status = std::move(status);
    core_.Answer(call_, std::move(answer), Release::kWritten);
    core_.End(*this);
    return;
  }
  answer_.token = TokenOf(locate.key);
  const auto ask = [&](NodeNumber node, bool replica) {
    LocateAnswer::Copy copy;
    copy.node = node;
    copy.replica = replica;
    copy.pending = !replica && ring.IsHolder(**keyspace, answer_.token, node);
    if (!core_.IsAlive(node)) {
      copy.status = absl::UnavailableError("is down");
      if (replica || copy.pending) answer_.copies.push_back(std::move(copy));
      return;
    }
    copy.status = absl::DeadlineExceededError("gave no answer in time");
    answer_.copies.push_back(std::move(copy));
    waiting_.insert(node);
    ReadRequest request;
    request.operation = id();
    request.keyspace = (*keyspace)->id;
    request.key = locate.key;
    request.from_hints = !replica;
    request.remaining = deadline_ - core_.now();
    core_.Send(node, std::move(request));
  };
  for (NodeNumber node : ring.PreferenceList(**keyspace, answer_.token)) {
    ask(node, true);
  }
  for (NodeNumber node : ring.Fallbacks(**keyspace, answer_.token)) {
    ask(node, false);
  }
  core_.SetTimer(*this, AnswerBy(started_, deadline_));
  MaybeFinish();
}

LocateAnswer::Copy& LocateCoordinator::CopyOf(NodeNumber node) {
  for (LocateAnswer::Copy& copy : answer_.copies) {
    if (copy.node == node) return copy;
  }
  return answer_.copies.emplace_back();
}

void LocateCoordinator::OnReply(NodeNumber from, DataBody& body,
                                Release release) {
  auto* reply = std::get_if<ReadReply>(&body);
  if (reply == nullptr || waiting_.erase(from) == 0) return;
  LocateAnswer::Copy& copy = CopyOf(from);
  if (reply->code != ReplyCode::kOk) {
    copy.status = absl::UnavailableError(ReplyCodeText(reply->code));
  } else {
    copy.status = absl::OkStatus();
    copy.found = reply->found;
    copy.digest = reply->digest;
    copy.bytes = reply->object.size();
    copy.hint_for = reply->hint_for;
    if (reply->found) {
      absl::StatusOr<Object> object = DecodeObject(reply->object);
      if (object.ok()) {
        copy.tombstone = object->IsTombstone();
        copy.siblings = static_cast<uint32_t>(object->siblings.size());
        copy.newest = object->newest.hlc;
      } else {
        copy.status = object.status();
      }
    }
  }
  MaybeFinish();
}

void LocateCoordinator::OnPeersChanged() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (core_.IsAlive(*it)) {
      ++it;
      continue;
    }
    CopyOf(*it).status = absl::UnavailableError("went down");
    it = waiting_.erase(it);
  }
  MaybeFinish();
}

void LocateCoordinator::MaybeFinish() {
  if (waiting_.empty()) Finish();
}

void LocateCoordinator::Finish() {
  // Members that are no replica count only if they hold a hint.
  std::erase_if(answer_.copies, [](const LocateAnswer::Copy& copy) {
    return !copy.replica && !copy.pending && copy.status.ok() && !copy.found;
  });
  ClientAnswer answer;
  answer.answer = std::move(answer_);
  core_.Answer(call_, std::move(answer), Release::kSynced);
  core_.End(*this);
}

void LocateCoordinator::OnTimer() { Finish(); }

void LocateCoordinator::OnCancelled(CallId call) { core_.End(*this); }

}  // namespace ringkv
