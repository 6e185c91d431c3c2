#include "server/shard/core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mark.h"
#include "base/planted.h"
#include "base/token.h"
#include "server/coordinator/common.h"
#include "server/streaming/slice.h"

namespace ringkv {

ShardCore::ShardCore(ShardOptions options, const Engine& engine, Hlc& hlc,
                     Random& random)
    : options_(options),
      engine_(engine),
      hlc_(hlc),
      random_(random),
      peers_(std::make_shared<PeerView>()),
      outcomes_(Instant{}, options.outcomes_kept, options.outcome_bytes_max),
      hints_(HintStoreOptions{.bytes_max = options.hint_bytes_max,
                              .age_max = options.hint_age_max,
                              .shard = options.shard,
                              .shards = options.shards}) {
  // A random start keeps a late reply to an earlier run from naming an
  // operation of this one.
  next_operation_ =
      random_.Next() & ((uint64_t{1} << kOperationShardShift) - 1);
}

PeerHealth ShardCore::PeerOf(NodeNumber node) const {
  const auto it = peers_->find(node);
  return it == peers_->end() ? PeerHealth{} : it->second;
}

std::vector<NodeNumber> ShardCore::AliveMembers() const {
  std::vector<NodeNumber> alive;
  if (ring_ == nullptr) return alive;
  for (const Member& member : ring_->spec().members) {
    if (IsAlive(member.number)) alive.push_back(member.number);
  }
  return alive;
}

ReadResult ShardCore::ReadNow(Family family, absl::string_view key) const {
  const auto& overlay = overlay_[static_cast<int>(family)];
  const auto it = overlay.find(key);
  if (it != overlay.end() && !Planted("turn-overlay-ignored")) {
    ReadResult result;
    if (it->second.has_value()) {
      result.outcome = ReadResult::Outcome::kFound;
      result.value = *it->second;
    }
    return result;
  }
  if (family == Family::kData) {
    for (const auto& [begin, end] : dropped_) {
      if (key >= begin && key < end) return ReadResult{};
    }
  }
  return engine_.Get(family, key, ReadTier::kCached);
}

void ShardCore::Load(Family family, const std::string& key, LoadCallback done) {
  const auto pending = loads_.find({family, key});
  if (pending != loads_.end()) {
    RINGKV_MARK("load-joins-pending-one");
    pending->second.waiting.push_back(std::move(done));
    return;
  }
  ReadResult result = ReadNow(family, key);
  if (result.outcome != ReadResult::Outcome::kNotCached) {
    done(result);
    return;
  }
  PendingLoad& load = loads_[{family, key}];
  load.job = next_job_++;
  load.waiting.push_back(std::move(done));
  load_jobs_[load.job] = {family, key};
  ReadJob job;
  job.job = load.job;
  job.family = family;
  job.begin = key;
  effects_->reads.push_back(std::move(job));
}

void ShardCore::DropRange(KeyspaceId keyspace, const TokenRange& range) {
  const std::string begin = DataKey(keyspace, range.first, "");
  const std::string end = DataKeyAfter(keyspace, range.last);
  for (auto& [key, value] : overlay_[static_cast<int>(Family::kData)]) {
    if (key >= begin && key < end) value = std::nullopt;
  }
  for (auto it = loads_.lower_bound({Family::kData, begin});
       it != loads_.end() && it->first < StorageKey{Family::kData, end};) {
    RINGKV_MARK("load-amid-a-drop-of-its-range");
    load_jobs_.erase(it->second.job);
    for (LoadCallback& waiting : it->second.waiting) {
      dropped_loads_.push_back(std::move(waiting));
    }
    it = loads_.erase(it);
  }
  dropped_.emplace_back(begin, end);
  effects_->batch.DeleteRange(Family::kData, begin, end);
}

void ShardCore::LoadRange(
    Family family, std::string begin, std::string end, RangeLimits limits,
    std::function<void(const absl::StatusOr<RangeResult>&)> done) {
  ReadJob job;
  job.job = next_job_++;
  job.is_range = true;
  job.family = family;
  job.begin = std::move(begin);
  job.end = std::move(end);
  job.limits = limits;
  range_jobs_[job.job] = std::move(done);
  effects_->reads.push_back(std::move(job));
}

void ShardCore::Write(Family family, std::string key, std::string value) {
  overlay_[static_cast<int>(family)][key] = value;
  effects_->batch.Put(family, std::move(key), std::move(value));
}

void ShardCore::Delete(Family family, std::string key) {
  overlay_[static_cast<int>(family)][key] = std::nullopt;
  effects_->batch.Delete(family, std::move(key));
}

void ShardCore::Apply(WriteBatch batch) {
  for (const WriteBatch::Operation& operation : batch.operations()) {
    auto& overlay = overlay_[static_cast<int>(operation.family)];
    switch (operation.kind) {
      case WriteBatch::Kind::kPut:
        overlay[operation.key] = operation.value;
        break;
      case WriteBatch::Kind::kDelete:
        overlay[operation.key] = std::nullopt;
        break;
      case WriteBatch::Kind::kDeleteRange:
        // Ranges are dropped only where no key is in use any more.
        break;
    }
  }
  effects_->batch.Append(std::move(batch));
}

void ShardCore::WriteRecord(const Keyspace& keyspace, const std::string& key,
                            Token token, const std::optional<OwnRecord>& own,
                            absl::string_view object) {
  has_written_ = true;
  Write(Family::kData, DataKey(keyspace.id, token, key),
        EncodeStored(own, object));
  if (keyspace.durability == Durability::kSync) {
    const uint64_t hash = ContextKeyHash(keyspace.id, key);
    unsynced_[hash] = ~uint64_t{0};
    written_this_turn_.push_back(hash);
  }
}

Release ShardCore::ReleaseOf(const Keyspace& keyspace,
                             absl::string_view key) const {
  if (keyspace.durability != Durability::kSync) return Release::kWritten;
  if (Planted("ack-before-fsync")) return Release::kWritten;
  return unsynced_.contains(ContextKeyHash(keyspace.id, key))
             ? Release::kSynced
             : Release::kWritten;
}

void ShardCore::MergeLocal(const Keyspace& keyspace, const std::string& key,
                           std::string object, MergeCallback done) {
  const Token token = TokenOf(key);
  std::string storage_key = DataKey(keyspace.id, token, key);
  // The keyspace may be gone when a reader comes back: look it up again then.
  Load(Family::kData, storage_key,
       [this, id = keyspace.id, key, token, object = std::move(object),
        done = std::move(done)](const ReadResult& found) {
         const Keyspace* keyspace = ring_->FindKeyspace(id);
         if (keyspace == nullptr) {
           done(ReplyCode::kNotReplica, "the keyspace was dropped");
           return;
         }
         absl::StatusOr<Object> theirs = DecodeObject(object);
         const ObjectMode mode = ModeOf(*keyspace);
         if (!theirs.ok() || theirs->mode != mode) {
           done(ReplyCode::kFailed,
                theirs.ok() ? "an object of the other mode"
                            : std::string(theirs.status().message()));
           return;
         }
         if (found.outcome == ReadResult::Outcome::kFailed) {
           if (absl::IsDataLoss(found.status)) {
             NoteDamaged(*keyspace, key);
           } else if (!absl::IsAborted(found.status)) {
             ++stats_.corrupt_reads;
           }
           done(ReplyCode::kFailed, std::string(found.status.message()));
           return;
         }
         if (theirs->newest.hlc <=
             HlcFromMillis(wall().millis() + absl::ToInt64Milliseconds(
                                                 options_.max_clock_drift))) {
           hlc_.Observe(theirs->newest.hlc);
         } else {
           RINGKV_MARK("clock-far-ahead-not-followed");
         }
         if (found.outcome == ReadResult::Outcome::kMissing) {
           WriteRecord(*keyspace, key, token, std::nullopt, object);
           done(ReplyCode::kOk, "");
           return;
         }
         absl::StatusOr<StoredRecord> record = DecodeStored(found.value);
         if (!record.ok()) {
           NoteDamaged(*keyspace, key);
           done(ReplyCode::kFailed, std::string(record.status().message()));
           return;
         }
         if (record->object == object) {
           done(ReplyCode::kOk, "");
           return;
         }
         absl::StatusOr<Object> ours = DecodeObject(record->object);
         if (!ours.ok() || ours->mode != mode) {
           NoteDamaged(*keyspace, key);
           done(ReplyCode::kFailed, "the stored object is damaged");
           return;
         }
         MergeReport report;
         const Object merged = Merge(*ours, *theirs, &report);
         stats_.lww_dropped += report.lww_dropped;
         stats_.lww_ties += report.lww_ties;
         stats_.unequal_dots += report.equal_dots_with_unequal_values;
         if (merged.clock.entries().size() > 256) ++stats_.large_clocks;
         const std::string encoded = EncodeObject(merged);
         if (encoded != record->object) {
           WriteRecord(*keyspace, key, token, record->own, encoded);
         }
         done(ReplyCode::kOk, "");
       });
}

void ShardCore::NoteDamaged(const Keyspace& keyspace, const std::string& key) {
  ++stats_.corrupt_reads;
  damaged_.emplace_back(keyspace.id, key);
}

void ShardCore::StoreHint(const Keyspace& keyspace, const std::string& key,
                          std::string object, std::vector<NodeNumber> targets,
                          MergeCallback done) {
  // What could never be delivered is not kept.
  absl::StatusOr<Object> hinted = DecodeObject(object);
  if (!hinted.ok() || hinted->mode != ModeOf(keyspace)) {
    done(ReplyCode::kFailed, hinted.ok()
                                 ? "an object of the other mode"
                                 : std::string(hinted.status().message()));
    return;
  }
  const Token token = TokenOf(key);
  Load(Family::kHints, HintRecordKey(keyspace.id, token, key),
       [this, id = keyspace.id, token, key, object = std::move(object),
        targets = std::move(targets),
        done = std::move(done)](const ReadResult& found) {
         // Judged now: a ring may have been adopted while the record was read,
         // and from then on this node may be taken to hold no hints.
         if (ring_->IsLeaving(self_)) {
           RINGKV_MARK("hint-refused-by-leaver");
           ++stats_.hints_refused;
           done(ReplyCode::kOverloaded, "this node leaves the ring");
           return;
         }
         WriteBatch batch;
         const absl::Status status = hints_.Add(
             batch, found, id, token, key, object, targets, wall().millis());
         if (!status.ok()) {
           ++stats_.hints_refused;
           done(absl::IsResourceExhausted(status) ? ReplyCode::kOverloaded
                                                  : ReplyCode::kFailed,
                std::string(status.message()));
           return;
         }
         ++stats_.hints_stored;
         Apply(std::move(batch));
         done(ReplyCode::kOk, "");
       });
}

void ShardCore::Send(NodeNumber to, DataBody body, Release release) {
  if (to == self_) {
    local_.push_back({std::move(body), release});
    return;
  }
  OutgoingMessage message;
  message.to = to;
  message.message.epoch = ring_->epoch();
  message.message.body = std::move(body);
  message.release = release;
  effects_->messages.push_back(std::move(message));
}

void ShardCore::Answer(CallId call, ClientAnswer answer, Release release) {
  calls_.erase(call);
  switch (answer.status.code()) {
    case absl::StatusCode::kOk:
      ++stats_.answered_ok;
      break;
    case absl::StatusCode::kUnavailable:
      ++stats_.answered_unavailable;
      break;
    case absl::StatusCode::kDeadlineExceeded:
      ++stats_.answered_deadline;
      break;
    default:
      ++stats_.answered_refused;
  }
  answer.ring_epoch = has_ring() ? ring_->epoch() : 0;
  effects_->answers.push_back({call, std::move(answer), release});
}

void ShardCore::SetTimer(const Operation& operation, Instant when) {
  Instant& current =
      timer_of_.try_emplace(operation.id(), Instant::Infinite()).first->second;
  if (current == when) return;
  timers_.erase({current, operation.id()});
  current = when;
  if (when != Instant::Infinite()) timers_.insert({when, operation.id()});
}

void ShardCore::ReportTransfers(const TransferReport& report) {
  effects_->transfers = report;
}

void ShardCore::WantRing(NodeNumber from) {
  effects_->wants_ring = true;
  effects_->wants_ring_from = from;
}

uint64_t ShardCore::NextOperationId() {
  const uint64_t mask = (uint64_t{1} << kOperationShardShift) - 1;
  next_operation_ = (next_operation_ + 1) & mask;
  if (next_operation_ == 0) next_operation_ = 1;
  return (static_cast<uint64_t>(options_.shard) << kOperationShardShift) |
         next_operation_;
}

Operation* ShardCore::Find(uint64_t id) {
  const auto it = operations_.find(id);
  return it == operations_.end() ? nullptr : it->second.get();
}

void ShardCore::End(const Operation& operation) {
  const auto it = operations_.find(operation.id());
  RINGKV_CHECK(it != operations_.end());
  const auto timer = timer_of_.find(operation.id());
  if (timer != timer_of_.end()) {
    timers_.erase({timer->second, operation.id()});
    timer_of_.erase(timer);
  }
  ended_.push_back(std::move(it->second));
  operations_.erase(it);
}

}  // namespace ringkv
