#include "server/streaming/streaming.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/mark.h"
#include "base/planted.h"
#include "server/streaming/cleanup.h"
#include "server/streaming/slice.h"

namespace ringkv {
namespace {

// Streams of one shard at a time.
constexpr size_t kStreamsMax = 4;
constexpr absl::Duration kPauseMin = absl::Milliseconds(100);
constexpr absl::Duration kPauseMax = absl::Seconds(5);
constexpr absl::Duration kReportInterval = absl::Milliseconds(200);

bool IsThrough(const TransferProgress& progress) {
  return progress.stage == TransferProgress::Stage::kDone;
}

}  // namespace

absl::Status Streaming::Recover(const Engine& engine) {
  was_empty_ = true;
  const absl::Status looked = engine.Visit(
      Family::kData, "", "", [this](absl::string_view, absl::string_view) {
        was_empty_ = false;
        return false;
      });
  // What cannot be read is there all the same; it is rebuilt when it is used.
  if (!looked.ok()) was_empty_ = false;
  return log_.Recover(engine);
}

RingEpoch Streaming::Receiving() const {
  const auto& operation = core_.ring()->spec().operation;
  const bool receives = operation.has_value() &&
                        operation->phase == TopologyPhase::kStart &&
                        operation->id == begun_;
  return receives ? begun_ : 0;
}

void Streaming::Adopt() {
  const auto& operation = core_.ring()->spec().operation;
  WriteBatch batch;
  log_.KeepOnly(batch, operation.has_value() ? operation->id : 0);
  core_.Apply(std::move(batch));
  if (operation.has_value() && operation->phase == TopologyPhase::kStart) {
    Wipe(*operation);
    if (Planted("stream-before-adoption")) begun_ = operation->id;
  }
  cleanup_at_ = operation.has_value() && !Planted("cleanup-while-pending")
                    ? Instant::Infinite()
                    : core_.now() + core_.options().drop_grace;
  EndStreams();
  MakeParts();
  if (Receiving() != 0) Report(/*now=*/true);
}

void Streaming::Wipe(const TopologyOperation& operation) {
  const TokenRange slice =
      SliceOf(core_.options().shard, core_.options().shards);
  const std::vector<TokenRange> left = log_.NotWiped(operation.id, slice);
  if (left.empty()) return;
  const bool nothing_there = was_empty_ && !core_.has_written();
  for (const Transfer& transfer : TransfersOf(*core_.ring(), core_.self())) {
    if (!transfer.gains || nothing_there || Planted("left-over-not-wiped")) {
      continue;
    }
    for (const TokenRange& range : left) {
      const std::optional<TokenRange> gained =
          Intersection(transfer.range, range);
      if (!gained.has_value()) continue;
      ++core_.stats().ranges_wiped;
      core_.DropRange(transfer.keyspace, *gained);
    }
  }
  WriteBatch batch;
  log_.NoteWiped(batch, operation.id, slice);
  core_.Apply(std::move(batch));
}

void Streaming::Begin(RingEpoch operation) {
  EndStreams();
  begun_ = operation;
  // Of nobody whose clock may be trusted was anything stamped later before now.
  barrier_ = std::max(core_.hlc().Last(),
                      HlcFromMillis(core_.wall().millis() +
                                    absl::ToInt64Milliseconds(
                                        core_.options().max_clock_drift)));
  if (!core_.has_ring() || Receiving() == 0) return;
  MakeParts();
  Report(/*now=*/true);
  Pump();
}

void Streaming::MakeParts() {
  parts_.clear();
  places_.clear();
  ready_.clear();
  pausing_.clear();
  alive_.clear();
  sum_ = TransferReport();
  sum_.operation = begun_;
  reported_done_ = false;
  if (Receiving() == 0) return;
  const TokenRange slice =
      SliceOf(core_.options().shard, core_.options().shards);
  for (const Transfer& transfer : TransfersOf(*core_.ring(), core_.self())) {
    const std::optional<TokenRange> range = Intersection(transfer.range, slice);
    if (!range.has_value()) continue;
    const size_t index = parts_.size();
    Part& part = parts_.emplace_back();
    part.keyspace = transfer.keyspace;
    part.range = *range;
    part.sources_needed = transfer.sources_needed;
    for (NodeNumber node : transfer.sources) {
      const TransferId id{begun_, part.keyspace, part.range, node};
      TransferProgress& progress = part.sources[node].progress;
      progress = log_.Find(id);
      // Of what it holds already it fetches what differs.
      if (!transfer.gains && progress == TransferProgress()) {
        progress.stage = TransferProgress::Stage::kVerifying;
      }
      places_[id] = {index, node};
      alive_[node] = core_.IsAlive(node);
      if (!IsThrough(progress)) ready_[node].insert(index);
      sum_.keys += progress.keys;
      sum_.bytes += progress.bytes;
    }
    Judge(part);
  }
  sum_.ranges = parts_.size();
}

void Streaming::EndStreams() {
  for (const Place& place : running_) {
    if (Operation* running = core_.Find(At(place).running)) core_.End(*running);
  }
  running_.clear();
}

bool Streaming::IsDone(const Part& part) const {
  uint32_t through = 0;
  bool waits = false;  // for one that lives
  for (const auto& [node, source] : part.sources) {
    if (IsThrough(source.progress)) {
      ++through;
    } else {
      waits = waits || alive_.at(node);
    }
  }
  return through >= part.sources_needed && !waits;
}

void Streaming::Judge(Part& part) {
  const bool done = IsDone(part);
  if (done == part.done) return;
  part.done = done;
  if (done) {
    ++sum_.ranges_done;
  } else {
    --sum_.ranges_done;
  }
}

void Streaming::NoteWhoIsAlive() {
  bool changed = false;
  for (auto& [node, alive] : alive_) {
    if (alive == core_.IsAlive(node)) continue;
    alive = !alive;
    changed = true;
  }
  if (!changed) return;
  for (Part& part : parts_) Judge(part);
}

void Streaming::Pump() {
  while (!pausing_.empty() && pausing_.begin()->first <= core_.now()) {
    const Place& place = pausing_.begin()->second;
    ready_[place.source].insert(place.part);
    pausing_.erase(pausing_.begin());
  }
  while (running_.size() < kStreamsMax) {
    std::optional<Place> next;
    for (const auto& [node, parts] : ready_) {
      if (parts.empty() || !core_.IsAlive(node)) continue;
      const Place first{*parts.begin(), node};
      if (!next.has_value() || first < *next) next = first;
    }
    if (!next.has_value()) return;
    ready_[next->source].erase(next->part);
    running_.insert(*next);
    const Part& part = parts_[next->part];
    Source& source = At(*next);
    RangeStream& stream = core_.Begin<RangeStream>();
    source.running = stream.id();
    stream.Start(this, &budget_,
                 {begun_, part.keyspace, part.range, next->source},
                 source.progress, barrier_);
  }
}

const Streaming::Place* Streaming::Find(const TransferId& id) const {
  const auto place = places_.find(id);
  return place == places_.end() ? nullptr : &place->second;
}

void Streaming::OnProgress(const TransferId& id,
                           const TransferProgress& progress) {
  const Place* place = Find(id);
  if (place == nullptr) return;
  Source& source = At(*place);
  sum_.keys += progress.keys - source.progress.keys;
  sum_.bytes += progress.bytes - source.progress.bytes;
  source.progress = progress;
  source.pause = absl::ZeroDuration();
  Judge(parts_[place->part]);
  WriteBatch batch;
  log_.Note(batch, id, progress);
  core_.Apply(std::move(batch));
  changed_ = true;
  Report(/*now=*/false);
}

void Streaming::OnEnd(const TransferId& id) {
  const Place* place = Find(id);
  if (place == nullptr) return;
  Source& source = At(*place);
  source.running = 0;
  running_.erase(*place);
  if (!IsThrough(source.progress)) {
    source.pause = std::clamp(source.pause * 2, kPauseMin, kPauseMax);
    pausing_.emplace(core_.now() + source.pause, *place);
  }
  Pump();
}

void Streaming::Report(bool now) {
  NoteWhoIsAlive();
  TransferReport report = sum_;
  report.done = report.ranges_done == report.ranges;
  const bool news = report.done && !reported_done_;
  if (!now && !news && (!changed_ || core_.now() < report_after_)) return;
  changed_ = false;
  reported_done_ = report.done;
  report_after_ = core_.now() + kReportInterval;
  core_.ReportTransfers(report);
}

void Streaming::Tick() {
  if (!core_.has_ring()) return;
  if (Receiving() != 0) {
    Pump();
    Report(/*now=*/false);
  }
  if (core_.now() < cleanup_at_) return;
  cleanup_at_ = Instant::Infinite();
  core_.Begin<Cleanup>().Start();
}

}  // namespace ringkv
