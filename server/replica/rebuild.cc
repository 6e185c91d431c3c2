#include "server/replica/rebuild.h"

#include <algorithm>
#include <vector>

#include "base/mark.h"
#include "base/token.h"
#include "server/coordinator/common.h"

namespace ringkv {
namespace {

constexpr size_t kRebuildsMax = 64;
constexpr absl::Duration kPatience = absl::Seconds(2);
constexpr absl::Duration kPauseMin = absl::Milliseconds(100);
constexpr absl::Duration kPauseMax = absl::Seconds(5);

// Whether a copy can be built on.
bool IsWhole(const ReadResult& found, ObjectMode mode) {
  if (found.outcome == ReadResult::Outcome::kMissing) return true;
  if (found.outcome != ReadResult::Outcome::kFound) return false;
  const absl::StatusOr<StoredRecord> record = DecodeStored(found.value);
  if (!record.ok()) return false;
  const absl::StatusOr<Object> object = DecodeObject(record->object);
  return object.ok() && object->mode == mode;
}

}  // namespace

void CopyRebuild::Start(KeyspaceId keyspace, std::string key) {
  keyspace_ = keyspace;
  key_ = std::move(key);
  token_ = TokenOf(key_);
  Ask();
}

void CopyRebuild::Ask() {
  if (replacing_) return;
  asked_.clear();
  answered_ = 0;
  merged_.reset();
  pausing_ = false;
  const Ring& ring = *core_.ring();
  const Keyspace* keyspace = ring.FindKeyspace(keyspace_);
  if (keyspace == nullptr || !ring.IsReplica(*keyspace, token_, core_.self())) {
    core_.End(*this);
    return;
  }
  since_ = keyspace->changed_at;
  const auto replicas = ring.PreferenceList(*keyspace, token_);
  const uint32_t n = ring.EffectiveN(*keyspace);
  const uint32_t w = ring.EffectiveW(*keyspace);
  needed_ = std::min<uint32_t>(std::max(ring.EffectiveR(*keyspace), n - w + 1),
                               static_cast<uint32_t>(replicas.size()) - 1);
  if (needed_ == 0) {
    // The only copy. It stays as it is, and says so when it is read.
    core_.End(*this);
    return;
  }
  for (NodeNumber node : replicas) {
    if (node == core_.self() || !core_.IsAlive(node)) continue;
    asked_[node] = false;
    ReadRequest request;
    request.operation = id();
    request.keyspace = keyspace_;
    request.key = key_;
    request.kind = ReadKind::kFull;
    request.remaining = kPatience;
    core_.Send(node, std::move(request));
  }
  if (asked_.size() < needed_) return Pause();
  core_.SetTimer(*this, core_.now() + kPatience);
}

void CopyRebuild::Pause() {
  pausing_ = true;
  pause_ = std::clamp(pause_ * 2, kPauseMin, kPauseMax);
  core_.SetTimer(*this, core_.now() + pause_);
}

void CopyRebuild::OnTimer() {
  if (replacing_) return;
  if (pausing_) return Ask();
  Pause();
}

void CopyRebuild::OnReply(NodeNumber from, DataBody& body,
                          Release /*release*/) {
  auto* reply = std::get_if<ReadReply>(&body);
  const auto asked = asked_.find(from);
  if (reply == nullptr || reply->kind != ReadKind::kFull || pausing_ ||
      replacing_ || asked == asked_.end() || asked->second) {
    return;
  }
  if (reply->code == ReplyCode::kStaleRing) return core_.WantRing(from);
  if (reply->code != ReplyCode::kOk) return;
  if (reply->found) {
    const Keyspace* keyspace = core_.ring()->FindKeyspace(keyspace_);
    absl::StatusOr<Object> object = DecodeObject(reply->object);
    if (!object.ok() || object->mode != ModeOf(*keyspace)) return;
    merged_ =
        merged_.has_value() ? Merge(*merged_, *object) : *std::move(object);
  }
  asked->second = true;
  if (++answered_ >= needed_) Finish();
}

void CopyRebuild::Finish() {
  replacing_ = true;
  core_.Load(Family::kData, DataKey(keyspace_, token_, key_),
             [&core = core_, id = id()](const ReadResult& found) {
               auto* self = dynamic_cast<CopyRebuild*>(core.Find(id));
               if (self != nullptr) self->Replace(found);
             });
}

void CopyRebuild::Replace(const ReadResult& found) {
  const Keyspace* keyspace = core_.ring()->FindKeyspace(keyspace_);
  // It may have lost the key meanwhile, and be about to get it anew.
  if (keyspace != nullptr &&
      core_.ring()->IsReplica(*keyspace, token_, core_.self()) &&
      !IsWhole(found, ModeOf(*keyspace))) {
    RINGKV_MARK("copy-rebuilt");
    ++core_.stats().copies_rebuilt;
    if (merged_.has_value()) {
      core_.WriteRecord(*keyspace, key_, token_, std::nullopt,
                        EncodeObject(*merged_));
    } else {
      core_.Delete(Family::kData, DataKey(keyspace_, token_, key_));
    }
  }
  core_.End(*this);
}

void Rebuilds::Start() {
  const auto damaged = core_.TakeDamaged();
  if (damaged.empty()) return;
  std::erase_if(running_, [this](const auto& running) {
    return core_.Find(running.second) == nullptr;
  });
  for (const auto& key : damaged) {
    if (running_.size() >= kRebuildsMax || running_.contains(key)) continue;
    CopyRebuild& rebuild = core_.Begin<CopyRebuild>();
    running_[key] = rebuild.id();
    rebuild.Start(key.first, key.second);
  }
}

}  // namespace ringkv
