// The simulator's engine: sorted maps, with the disk's habit of forgetting what
// was not synced. It keeps, for each write that is not durable yet, what it
// takes to undo it, so that a crash can go back to any prefix of the writes.
//
// Invariant: undoing every un-synced write, newest first, gives the durable
// state. Deterministic: the same calls give the same answers. Unlike other
// engines it is thread-compatible only, since the simulator has one thread.

#ifndef RINGKV_STORAGE_MEMORY_ENGINE_H_
#define RINGKV_STORAGE_MEMORY_ENGINE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/engine.h"

namespace ringkv {

class MemoryEngine final : public Engine {
 public:
  // All that a disk holds, at one instant.
  struct Image {
    std::array<absl::btree_map<std::string, std::string>, kFamilies> families;
    uint64_t sequence = 0;
    // Records with a flipped bit: reading one is DATA_LOSS, until it is
    // overwritten or deleted.
    std::set<std::pair<Family, std::string>> damaged;
  };

  MemoryEngine() = default;
  // Starts from what a disk held, for example from an old backup.
  explicit MemoryEngine(Image image);

  absl::StatusOr<uint64_t> Write(const WriteBatch& batch) override;
  absl::StatusOr<uint64_t> Sync() override;
  uint64_t LastSequence() const override { return live_.sequence; }
  ReadResult Get(Family family, absl::string_view key,
                 ReadTier tier) const override;
  absl::StatusOr<RangeResult> Range(Family family, absl::string_view begin,
                                    absl::string_view end,
                                    const RangeLimits& limits) const override;
  // `visit` must not write to this engine.
  absl::Status Visit(
      Family family, absl::string_view begin, absl::string_view end,
      const std::function<bool(absl::string_view key, absl::string_view value)>&
          visit) const override;
  EngineStats Stats() const override;

  // Makes the writes up to `sequence` durable, and no later ones: a sync that
  // began at that sequence and ends now. Asks the sync hook, as Sync() does.
  absl::Status SyncTo(uint64_t sequence);

  // Number of writes that a crash may lose.
  size_t UnsyncedWrites() const { return unsynced_.size(); }

  // Power is lost: the oldest `keep_unsynced` (at most UnsyncedWrites()) of the
  // writes that were not durable reached the disk, all later ones are gone.
  // What is left is durable.
  void Crash(size_t keep_unsynced);

  // What the disk would hold after Crash(0).
  Image DurableImage() const;

  // The disk is exchanged: `image` is all there is, and durable.
  void Replace(Image image);

  // Flips a bit of a stored record, which must be there.
  void Damage(Family family, const std::string& key);
  bool IsDamaged(Family family, absl::string_view key) const;
  size_t damaged() const { return live_.damaged.size(); }
  // All keys of a family, damaged or not.
  std::vector<std::string> Keys(Family family) const;

  // Faults. An empty function means none.

  // Keys for which it answers true are kNotCached at ReadTier::kCached.
  void set_not_cached(
      std::function<bool(Family family, absl::string_view key)> not_cached) {
    not_cached_ = std::move(not_cached);
  }
  // Asked before each point read (at both tiers, once the key counts as
  // cached), and for each entry of Range and Visit: a status other than OK
  // fails the read. A failed checksum is DATA_LOSS.
  void set_read_error(
      std::function<absl::Status(Family family, absl::string_view key)>
          read_error) {
    read_error_ = std::move(read_error);
  }
  // Asked before each write: a status other than OK is its answer and nothing
  // is written. RESOURCE_EXHAUSTED is a stall or a full disk; see also
  // DiskFull().
  void set_write_error(
      std::function<absl::Status(const WriteBatch& batch)> write_error) {
    write_error_ = std::move(write_error);
  }
  // Asked before each sync: a status other than OK is its answer and nothing
  // becomes durable.
  void set_sync_error(std::function<absl::Status()> sync_error) {
    sync_error_ = std::move(sync_error);
  }
  // Writes that add bytes fail with RESOURCE_EXHAUSTED while the disk holds
  // more than this; without a value there is no limit.
  void set_disk_bytes_max(std::optional<uint64_t> bytes) {
    disk_bytes_max_ = bytes;
  }

  // Aborts if an invariant does not hold. Takes time in proportion to the
  // content.
  void CheckInvariants() const;

 private:
  using Map = absl::btree_map<std::string, std::string>;
  struct Undo {
    Family family;
    std::string key;
    std::optional<std::string> old_value;  // none: there was no such key
    bool was_damaged = false;
  };
  struct UnsyncedWrite {
    uint64_t sequence = 0;           // after this write
    uint64_t previous_sequence = 0;  // before it
    std::vector<Undo> undo;          // in the order of the changes
  };

  const Map& MapOf(Family family) const {
    return live_.families[static_cast<size_t>(family)];
  }
  Map& MapOf(Family family) {
    return live_.families[static_cast<size_t>(family)];
  }
  void Apply(const WriteBatch::Operation& operation, std::vector<Undo>& undo);
  void Erase(Family family, Map::iterator first, Map::iterator last,
             std::vector<Undo>& undo);
  // Whether a record was damaged that now goes.
  bool Heal(Family family, const std::string& key);
  absl::Status CheckRead(Family family, absl::string_view key) const;
  static void TakeBack(const UnsyncedWrite& write, Image& image);

  Image live_;
  uint64_t bytes_ = 0;                  // keys and values of live_
  std::deque<UnsyncedWrite> unsynced_;  // oldest first
  mutable int visits_ = 0;

  std::function<bool(Family, absl::string_view)> not_cached_;
  std::function<absl::Status(Family, absl::string_view)> read_error_;
  std::function<absl::Status(const WriteBatch&)> write_error_;
  std::function<absl::Status()> sync_error_;
  std::optional<uint64_t> disk_bytes_max_;
};

}  // namespace ringkv

#endif  // RINGKV_STORAGE_MEMORY_ENGINE_H_
