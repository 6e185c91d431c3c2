#include "client/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ringkv {
namespace {

constexpr absl::Duration kBarEvery = absl::Milliseconds(100);
constexpr absl::Duration kLineEvery = absl::Seconds(5);
constexpr int kBarCells = 24;

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, units[unit]);
}

std::string FormatSpan(absl::Duration span) {
  const int64_t seconds = absl::ToInt64Seconds(span + absl::Milliseconds(500));
  if (seconds < 60) return absl::StrCat(seconds, "s");
  if (seconds < 3600) {
    return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  }
  return absl::StrFormat("%dh%02dm", seconds / 3600, seconds % 3600 / 60);
}

std::string FormatCount(uint64_t count) {
  std::string digits = absl::StrCat(count);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

Progress::Progress(std::ostream& out, Style style, std::string what,
                   Instant now, Unit unit)
    : out_(out),
      style_(style),
      what_(std::move(what)),
      unit_(unit),
      start_(now),
      next_(now + (style == Style::kBar ? kBarEvery : kLineEvery)) {}

std::string Progress::Line(Instant now, uint64_t done, uint64_t total,
                           uint64_t items) const {
  const double seconds = std::max(1e-3, absl::ToDoubleSeconds(now - start_));
  std::string line = what_;
  if (total > 0) {
    absl::StrAppend(
        &line,
        absl::StrFormat("  %3.0f %%",
                        100.0 * static_cast<double>(std::min(done, total)) /
                            static_cast<double>(total)));
  }
  if (unit_ == Unit::kBytes) {
    absl::StrAppend(&line, "  ", FormatBytes(done));
    if (total > 0) absl::StrAppend(&line, " of ", FormatBytes(total));
    absl::StrAppend(&line, ", ", FormatCount(items), " records");
  } else {
    absl::StrAppend(&line, "  ", FormatCount(done));
    if (total > 0) absl::StrAppend(&line, " of ", FormatCount(total));
    absl::StrAppend(&line, unit_ == Unit::kRanges ? " ranges" : " records");
    if (unit_ == Unit::kRanges) {
      absl::StrAppend(&line, ", ", FormatCount(items), " keys");
    }
  }
  absl::StrAppend(
      &line, ", ",
      FormatCount(static_cast<uint64_t>(static_cast<double>(items) / seconds)),
      "/s");
  if (total > 0 && done > 0 && done < total) {
    const double left =
        seconds * static_cast<double>(total - done) / static_cast<double>(done);
    absl::StrAppend(&line, ", ", FormatSpan(absl::Seconds(left)), " left");
  }
  return line;
}

void Progress::Update(Instant now, uint64_t done, uint64_t total,
                      uint64_t items, absl::string_view note) {
  if (style_ == Style::kNone || now < next_) return;
  next_ = now + (style_ == Style::kBar ? kBarEvery : kLineEvery);
  std::string line = Line(now, done, total, items);
  if (!note.empty()) absl::StrAppend(&line, ", ", note);
  if (style_ == Style::kLines) {
    out_ << line << std::endl;
    return;
  }
  std::string bar;
  if (total > 0) {
    const int full =
        static_cast<int>(static_cast<double>(std::min(done, total)) *
                         kBarCells / static_cast<double>(total));
    bar = absl::StrCat("[", std::string(static_cast<size_t>(full), '='),
                       std::string(static_cast<size_t>(kBarCells - full), ' '),
                       "] ");
  }
  out_ << "\r\x1b[K" << bar << line << std::flush;
  drawn_ = true;
}

void Progress::Finish() {
  if (drawn_) out_ << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace ringkv
