// Shows how far a long command is: a bar on a terminal, a line now and then
// elsewhere.

#ifndef RINGKV_CLIENT_PROGRESS_H_
#define RINGKV_CLIENT_PROGRESS_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/time.h"

namespace ringkv {

// "12.3 MiB", "950 B".
std::string FormatBytes(uint64_t bytes);
// "12s", "3m05s", "2h10m".
std::string FormatSpan(absl::Duration span);
// "63,440".
std::string FormatCount(uint64_t count);

// Not thread-safe.
class Progress {
 public:
  enum class Style { kNone, kLines, kBar };
  // What `done` and `total` count.
  enum class Unit { kBytes, kRecords, kRanges };

  // `what` is the verb in front: "load".
  Progress(std::ostream& out, Style style, std::string what, Instant now,
           Unit unit = Unit::kBytes);

  // Called as often as one likes; draws 10 times a second (bar) or every 5 s
  // (lines). `done` of `total` (0: not known), `items` records or keys; `note`
  // is added at the end.
  void Update(Instant now, uint64_t done, uint64_t total, uint64_t items,
              absl::string_view note = "");

  // Clears the bar.
  void Finish();

  // The line that Update shows, without the bar: "load  42 %  8.1 MiB of 19.2
  // MiB, 26,000 records, 5,120/s, 7s left".
  std::string Line(Instant now, uint64_t done, uint64_t total,
                   uint64_t items) const;

 private:
  std::ostream& out_;
  const Style style_;
  const std::string what_;
  const Unit unit_;
  const Instant start_;
  Instant next_;
  bool drawn_ = false;
};

}  // namespace ringkv

#endif  // RINGKV_CLIENT_PROGRESS_H_
