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
  reported_done_ = false;
  if (Receiving() == 0) return;
  const TokenRange slice =
      SliceOf(core_.options().shard, core_.options().shards);
  for (const Transfer& transfer : TransfersOf(*core_.ring(), core_.self())) {
    const std::optional<TokenRange> range = Intersection(transfer.range, slice);
    if (!range.has_value()) continue;
    Part& part = parts_.emplace_back();
    part.keyspace = transfer.keyspace;
    part.range = *range;
    part.sources_needed = transfer.sources_needed;
    for (NodeNumber node : transfer.sources) {
      TransferProgress& progress = part.sources[node].progress;
      progress = log_.Find({begun_, part.keyspace, part.range, node});
      // Of what it holds already it fetches what differs.
      if (!transfer.gains && progress == TransferProgress()) {
        progress.stage = TransferProgress::Stage::kVerifying;
      }
    }
  }
}

void Streaming::EndStreams() {
  for (Part& part : parts_) {
    for (auto& [node, source] : part.sources) {
      if (Operation* running = core_.Find(source.running)) core_.End(*running);
    }
  }
}

bool Streaming::IsDone(const Part& part) const {
  uint32_t through = 0;
  bool waits = false;  // for one that lives
  for (const auto& [node, source] : part.sources) {
    if (IsThrough(source.progress)) {
      ++through;
    } else {
      waits = waits || core_.IsAlive(node);
    }
  }
  return through >= part.sources_needed && !waits;
}

uint64_t Streaming::ranges_left() const {
  uint64_t left = 0;
  for (const Part& part : parts_) {
    if (!IsDone(part)) ++left;
  }
  return left;
}

void Streaming::Pump() {
  size_t running = 0;
  for (const Part& part : parts_) {
    for (const auto& [node, source] : part.sources) {
      if (source.running != 0 && core_.Find(source.running) != nullptr) {
        ++running;
      }
    }
  }
  for (Part& part : parts_) {
    for (auto& [node, source] : part.sources) {
      if (running >= kStreamsMax) return;
      if (IsThrough(source.progress) || !core_.IsAlive(node) ||
          core_.now() < source.not_before ||
          core_.Find(source.running) != nullptr) {
        continue;
      }
      ++running;
      RangeStream& stream = core_.Begin<RangeStream>();
      source.running = stream.id();
      stream.Start(this, &budget_, {begun_, part.keyspace, part.range, node},
                   source.progress, barrier_);
    }
  }
}

Streaming::Source* Streaming::Find(const TransferId& id) {
  if (id.operation != begun_) return nullptr;
  for (Part& part : parts_) {
    if (part.keyspace != id.keyspace || part.range != id.range) continue;
    const auto source = part.sources.find(id.source);
    if (source != part.sources.end()) return &source->second;
  }
  return nullptr;
}

void Streaming::OnProgress(const TransferId& id,
                           const TransferProgress& progress) {
  Source* source = Find(id);
  if (source == nullptr) return;
  source->progress = progress;
  source->pause = absl::ZeroDuration();
  WriteBatch batch;
  log_.Note(batch, id, progress);
  core_.Apply(std::move(batch));
  changed_ = true;
  // Many small ranges: adding them all up each time would cost more than they.
  if (IsThrough(progress) || core_.now() >= report_after_) {
    Report(/*now=*/false);
  }
}

void Streaming::OnEnd(const TransferId& id) {
  Source* source = Find(id);
  if (source == nullptr) return;
  source->running = 0;
  if (!IsThrough(source->progress)) {
    source->pause = std::clamp(source->pause * 2, kPauseMin, kPauseMax);
    source->not_before = core_.now() + source->pause;
  }
  Pump();
}

void Streaming::Report(bool now) {
  TransferReport report;
  report.operation = begun_;
  report.ranges = parts_.size();
  for (const Part& part : parts_) {
    if (IsDone(part)) ++report.ranges_done;
    for (const auto& [node, source] : part.sources) {
      report.keys += source.progress.keys;
      report.bytes += source.progress.bytes;
    }
  }
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
