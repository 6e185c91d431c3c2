#include "server/loop/control_turn_loop.h"

#include <optional>
#include <string>
#include <utility>

namespace ringkv {

MetaReader ReadMeta(const Engine& engine) {
  return
      [&engine](
          absl::string_view key) -> absl::StatusOr<std::optional<std::string>> {
        ReadResult result = engine.Get(Family::kMeta, key, ReadTier::kAll);
        switch (result.outcome) {
          case ReadResult::Outcome::kFound:
            return std::optional<std::string>(std::move(result.value));
          case ReadResult::Outcome::kMissing:
            return std::optional<std::string>();
          case ReadResult::Outcome::kNotCached:
          case ReadResult::Outcome::kFailed:
            break;
        }
        if (!result.status.ok()) return result.status;
        return absl::InternalError("a read of the disk gave no result");
      };
}

WriteBatch ToBatch(const std::vector<MetaWrite>& writes) {
  WriteBatch batch;
  for (const MetaWrite& write : writes) {
    if (write.value.has_value()) {
      batch.Put(Family::kMeta, write.key, *write.value);
    } else {
      batch.Delete(Family::kMeta, write.key);
    }
  }
  return batch;
}

ControlTurnLoop::ControlTurnLoop(Control& control, Engine& engine)
    : control_(control), engine_(engine) {}

absl::Status ControlTurnLoop::Turn(std::vector<ControlEvent>& events, Time time,
                                   ControlEffects& effects) {
  Run(events, time, effects);
  return Commit();
}

void ControlTurnLoop::Run(std::vector<ControlEvent>& events, Time time,
                          ControlEffects& effects) {
  for (const ControlEvent& event : events) {
    control_.Step(event, time, effects);
  }
  events.clear();
  TakeWrites(effects);
}

void ControlTurnLoop::TakeWrites(ControlEffects& effects) {
  batch_.Append(ToBatch(effects.writes));
  if (effects.ticket != 0) ticket_ = effects.ticket;
  effects.writes.clear();
  effects.ticket = 0;
}

absl::Status ControlTurnLoop::Commit() {
  if (batch_.empty()) return absl::OkStatus();
  const absl::StatusOr<uint64_t> written = engine_.Write(batch_);
  if (!written.ok()) {
    if (absl::IsResourceExhausted(written.status())) return absl::OkStatus();
    return written.status();
  }
  batch_.Clear();
  waiting_.push_back({*written, ticket_});
  return absl::OkStatus();
}

void ControlTurnLoop::Synced(uint64_t sequence, Time time,
                             ControlEffects& effects) {
  uint64_t ticket = 0;
  while (!waiting_.empty() && waiting_.front().sequence <= sequence) {
    ticket = waiting_.front().ticket;
    waiting_.pop_front();
  }
  if (ticket == 0) return;
  control_.Step(MetaPersisted{ticket}, time, effects);
  TakeWrites(effects);
}

}  // namespace ringkv
