#include "server/loop/turn_loop.h"

#include <utility>

#include "base/check.h"

namespace ringkv {

void Released::Clear() {
  // Keeps the vectors' memory for the next turn.
  messages.clear();
  answers.clear();
  reads.clear();
  wants_ring = false;
  wants_ring_from = NodeNumber{};
  wants_sync = false;
}

TurnLoop::TurnLoop(Shard& shard, Engine& engine)
    : shard_(shard), engine_(engine) {}

absl::Status TurnLoop::Turn(std::vector<ShardEvent>& events, Time time,
                            Released& released) {
  if (!stalled_) Run(events, time, released);
  return Commit(released);
}

void TurnLoop::Run(std::vector<ShardEvent>& events, Time time,
                   Released& released) {
  RINGKV_CHECK(!stalled_);
  for (ShardEvent& event : events) {
    shard_.Step(std::move(event), time, effects_);
  }
  events.clear();
  size_t kept = 0;
  for (OutgoingMessage& message : effects_.messages) {
    if (message.release == Release::kNow) {
      released.messages.push_back(std::move(message));
    } else {
      OutgoingMessage& slot = effects_.messages[kept++];
      if (&slot != &message) slot = std::move(message);
    }
  }
  effects_.messages.resize(kept);
  for (ReadJob& job : effects_.reads) released.reads.push_back(std::move(job));
  effects_.reads.clear();
  if (effects_.wants_ring) {
    released.wants_ring = true;
    released.wants_ring_from = effects_.wants_ring_from;
    effects_.wants_ring = false;
  }
}

absl::Status TurnLoop::Commit(Released& released) {
  uint64_t sequence = engine_.LastSequence();
  if (!effects_.batch.empty()) {
    absl::StatusOr<uint64_t> written = engine_.Write(effects_.batch);
    if (!written.ok()) {
      if (!absl::IsResourceExhausted(written.status())) return written.status();
      stalled_ = true;
      return absl::OkStatus();
    }
    sequence = *written;
  }
  stalled_ = false;
  effects_.batch.Clear();
  shard_.TurnCommitted(sequence);

  for (OutgoingMessage& message : effects_.messages) {
    if (message.release == Release::kSynced) {
      LetGoSynced({sequence, std::move(message)}, released);
    } else {
      released.messages.push_back(std::move(message));
    }
  }
  for (OutgoingAnswer& answer : effects_.answers) {
    if (answer.release == Release::kSynced) {
      LetGoSynced({sequence, std::move(answer)}, released);
    } else {
      released.answers.push_back(std::move(answer));
    }
  }
  effects_.messages.clear();
  effects_.answers.clear();
  if (effects_.adopted != 0) {
    LetGoSynced({sequence, effects_.adopted}, released);
    effects_.adopted = 0;
  }
  if (effects_.transfers.has_value()) {
    LetGoSynced({sequence, *effects_.transfers}, released);
    effects_.transfers.reset();
  }
  released.wants_sync = released.wants_sync || !waiting_.empty();
  return absl::OkStatus();
}

void TurnLoop::LetGoSynced(Waiting waiting, Released& released) {
  if (waiting.sequence > synced_) {
    waiting_.push_back(std::move(waiting));
  } else {
    LetGo(waiting, released);
  }
}

void TurnLoop::LetGo(Waiting& waiting, Released& released) {
  if (auto* message = std::get_if<OutgoingMessage>(&waiting.what)) {
    released.messages.push_back(std::move(*message));
  } else if (auto* answer = std::get_if<OutgoingAnswer>(&waiting.what)) {
    released.answers.push_back(std::move(*answer));
  } else if (auto* adopted = std::get_if<RingEpoch>(&waiting.what)) {
    released.adopted = *adopted;
  } else {
    released.transfers = std::get<TransferReport>(waiting.what);
  }
}

void TurnLoop::Synced(uint64_t sequence, Released& released) {
  if (sequence > synced_) synced_ = sequence;
  shard_.Synced(sequence);
  while (!waiting_.empty() && waiting_.front().sequence <= synced_) {
    LetGo(waiting_.front(), released);
    waiting_.pop_front();
  }
  released.wants_sync = released.wants_sync || !waiting_.empty();
}

}  // namespace ringkv
