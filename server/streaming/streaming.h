// What a shard does about its slice of the tokens when the ring is changed:
//
//  - adopts START: wipes, in the batch of that turn and once in an operation,
//    what it holds of the ranges that it gains; what is left there from an
//    earlier time may be older than a delete that was forgotten since;
//  - is told that no quorum can be formed on an older ring (Begin): receives
//    each of its ranges from their sources, a few at a time, and reports;
//  - adopts a ring without an operation: deletes, after a time of grace, what
//    the node holds no more.
//
// Owned by one shard; thread-compatible.

#ifndef RINGKV_SERVER_STREAMING_STREAMING_H_
#define RINGKV_SERVER_STREAMING_STREAMING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "membership/topology/segments.h"
#include "server/handoff/handoff.h"
#include "server/shard/core.h"
#include "server/streaming/progress.h"
#include "server/streaming/range_stream.h"

namespace ringkv {

class Streaming final : public RangeStream::Owner {
 public:
  explicit Streaming(ShardCore& core) : core_(core) {}

  // Reads what is stored. Once, before anything else.
  absl::Status Recover(const Engine& engine);

  // A newer ring stands in the core; its operations have not heard of it yet.
  void Adopt();
  // See BeginTransfers.
  void Begin(RingEpoch operation);
  // Call now and then, and when peers change.
  void Tick();

  uint64_t ranges_left() const { return sum_.ranges - sum_.ranges_done; }

  void OnProgress(const TransferId& id,
                  const TransferProgress& progress) override;
  void OnEnd(const TransferId& id) override;

 private:
  struct Source {
    TransferProgress progress;
    uint64_t running = 0;  // the RangeStream, if it has not ended
    absl::Duration pause = absl::ZeroDuration();  // after a failure
  };
  // What one transfer has in this slice.
  struct Part {
    KeyspaceId keyspace{};
    TokenRange range;
    uint32_t sources_needed = 1;
    std::map<NodeNumber, Source> sources;
    bool done = false;
  };
  // A source of parts_[part].
  struct Place {
    size_t part = 0;
    NodeNumber source{};
    auto operator<=>(const Place&) const = default;
  };

  // The running operation, while ranges may be received in it; 0: none.
  RingEpoch Receiving() const;
  void Wipe(const TopologyOperation& operation);
  void MakeParts();
  void EndStreams();
  bool IsDone(const Part& part) const;
  // `part` may be done now, or no more.
  void Judge(Part& part);
  // Judges all parts if one of their sources came or went.
  void NoteWhoIsAlive();
  // Starts what may run.
  void Pump();
  void Report(bool now);
  Source& At(const Place& place) {
    return parts_[place.part].sources.at(place.source);
  }
  const Place* Find(const TransferId& id) const;

  ShardCore& core_;
  TransferLog log_;
  HandoffBudget budget_;
  // Nothing is stored in this slice, and nothing ever was since the start.
  bool was_empty_ = false;
  RingEpoch begun_ = 0;  // the operation of Begin
  HlcTimestamp barrier_{};
  // There may be thousands: what happens for each piece of one is looked up,
  // kept in order or added up as it changes, never gathered from all.
  std::vector<Part> parts_;
  std::map<TransferId, Place> places_;
  // Sources with something left to fetch that do not run: by node, those that
  // may begin, as indices of parts; and those that pause after a failure.
  std::map<NodeNumber, std::set<size_t>> ready_;
  std::set<std::pair<Instant, Place>> pausing_;
  std::set<Place> running_;
  std::map<NodeNumber, bool> alive_;  // the sources, when last judged
  TransferReport sum_;                // over all parts
  bool changed_ = false;              // since the last report
  bool reported_done_ = false;
  Instant report_after_;
  Instant cleanup_at_ = Instant::Infinite();
};

}  // namespace ringkv

#endif  // RINGKV_SERVER_STREAMING_STREAMING_H_
