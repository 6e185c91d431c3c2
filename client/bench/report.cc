#include "client/bench/report.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ringkv::bench {
namespace {

struct NamedQuantile {
  const char* name;
  double quantile;
};
constexpr NamedQuantile kQuantiles[] = {{"p50", 0.5},     {"p90", 0.9},
                                        {"p95", 0.95},    {"p99", 0.99},
                                        {"p99.9", 0.999}, {"p99.99", 0.9999}};

double Micros(double nanos) { return std::round(nanos / 10) / 100; }

double CpuMicros(const PhaseResult& result, uint64_t ended) {
  return ended == 0 ? 0
                    : absl::ToDoubleMicroseconds(result.cpu) /
                          static_cast<double>(ended);
}

void AddCounts(const Counts& counts, nlohmann::ordered_json& json) {
  json["done"] = counts.done;
  json["failed"] = counts.failed;
  json["unknown"] = counts.unknown;
  json["resolved"] = counts.resolved;
  json["missing"] = counts.missing;
  json["wrong"] = counts.wrong;
  json["stale"] = counts.stale;
  json["siblings"] = counts.siblings;
  if (counts.scanned_entries > 0) {
    json["scanned_entries"] = counts.scanned_entries;
  }
}

std::string TableLine(absl::string_view name, const Measured& measured,
                      double seconds) {
  const LatencyHistogram& latency = measured.latency;
  std::string line = absl::StrFormat(
      "%-8s %12s %12s", name, WithCommas(measured.counts.ended()),
      WithCommas(static_cast<uint64_t>(std::llround(
          seconds <= 0
              ? 0
              : static_cast<double>(measured.counts.done) / seconds))));
  for (const double nanos :
       {latency.Mean(), static_cast<double>(latency.ValueAt(0.5)),
        static_cast<double>(latency.ValueAt(0.95)),
        static_cast<double>(latency.ValueAt(0.99)),
        static_cast<double>(latency.ValueAt(0.999)),
        static_cast<double>(latency.max())}) {
    absl::StrAppendFormat(&line, " %9s", ShortTime(nanos));
  }
  return line + "\n";
}

}  // namespace

std::string WithCommas(uint64_t number) {
  std::string digits = absl::StrCat(number);
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<size_t>(i), 1, ',');
  }
  return digits;
}

std::string ShortTime(double nanos) {
  struct Unit {
    double nanos;
    const char* name;
  };
  // A value that three digits would round up to 1000 takes the next unit.
  for (const Unit unit : {Unit{1, "ns"}, Unit{1e3, "us"}, Unit{1e6, "ms"}}) {
    const double value = nanos / unit.nanos;
    if (value < 9.995) return absl::StrFormat("%.2f %s", value, unit.name);
    if (value < 99.95) return absl::StrFormat("%.1f %s", value, unit.name);
    if (value < 999.5) return absl::StrFormat("%.0f %s", value, unit.name);
  }
  return absl::StrFormat("%.2f s", nanos / 1e9);
}

nlohmann::ordered_json LatencyJson(const LatencyHistogram& latency) {
  nlohmann::ordered_json json;
  json["count"] = latency.count();
  json["mean"] = Micros(latency.Mean());
  json["min"] = Micros(static_cast<double>(latency.min()));
  for (const NamedQuantile& each : kQuantiles) {
    json[each.name] =
        Micros(static_cast<double>(latency.ValueAt(each.quantile)));
  }
  json["max"] = Micros(static_cast<double>(latency.max()));
  return json;
}

nlohmann::ordered_json PhaseJson(const PhaseResult& result, bool open_loop) {
  const Measured total = result.Total();
  nlohmann::ordered_json json;
  json["seconds"] = absl::ToDoubleSeconds(result.elapsed);
  json["operations"] = total.counts.ended();
  json["throughput"] = result.throughput();
  json["cpu_us_per_operation"] = CpuMicros(result, total.counts.ended());
  AddCounts(total.counts, json);
  if (open_loop) {
    json["never_started"] = result.never_started;
    json["lateness_us"] = LatencyJson(result.lateness);
  }
  json["latency_us"] = LatencyJson(total.latency);
  nlohmann::ordered_json& kinds = json["kinds"];
  kinds = nlohmann::ordered_json::object();
  for (size_t i = 0; i < kOperationKinds; ++i) {
    const Measured& measured = result.kinds[i];
    if (measured.counts.ended() == 0) continue;
    nlohmann::ordered_json kind;
    AddCounts(measured.counts, kind);
    kind["latency_us"] = LatencyJson(measured.latency);
    kinds[std::string(OperationName(static_cast<OperationKind>(i)))] =
        std::move(kind);
  }
  json["errors"] = result.errors;
  return json;
}

std::string ProgressLine(const Progress& progress) {
  const double seconds = absl::ToDoubleSeconds(progress.interval);
  const Counts& counts = progress.counts;
  return absl::StrFormat(
      "%8.1f s %11s ops/s   p50 %8s   p99 %8s   max %8s   failed %d   unknown "
      "%d%s",
      absl::ToDoubleSeconds(progress.elapsed),
      WithCommas(static_cast<uint64_t>(std::llround(
          seconds <= 0 ? 0 : static_cast<double>(counts.done) / seconds))),
      ShortTime(static_cast<double>(progress.latency.ValueAt(0.5))),
      ShortTime(static_cast<double>(progress.latency.ValueAt(0.99))),
      ShortTime(static_cast<double>(progress.latency.max())),
      counts.failed + counts.missing + counts.wrong + counts.stale,
      counts.unknown, progress.warmup ? "   (warm-up)" : "");
}

std::string PhaseTable(const PhaseResult& result, bool open_loop) {
  const Measured total = result.Total();
  const double seconds = absl::ToDoubleSeconds(result.elapsed);
  std::string out = absl::StrFormat("%-8s %12s %12s %9s %9s %9s %9s %9s %9s\n",
                                    "", "operations", "per second", "mean",
                                    "p50", "p95", "p99", "p99.9", "max");
  int kinds = 0;
  for (size_t i = 0; i < kOperationKinds; ++i) {
    if (result.kinds[i].counts.ended() == 0) continue;
    ++kinds;
    out += TableLine(OperationName(static_cast<OperationKind>(i)),
                     result.kinds[i], seconds);
  }
  if (kinds != 1) out += TableLine("all", total, seconds);
  const Counts& counts = total.counts;
  absl::StrAppendFormat(
      &out,
      "%.1f s, %.1f us of CPU an operation in this process; failed %d, unknown "
      "%d (%d more were resolved), missing %d, wrong %d\n",
      seconds, CpuMicros(result, counts.ended()), counts.failed, counts.unknown,
      counts.resolved, counts.missing, counts.wrong);
  if (counts.stale > 0) {
    absl::StrAppend(&out, WithCommas(counts.stale), " reads were stale\n");
  }
  if (counts.siblings > 0) {
    absl::StrAppend(&out, WithCommas(counts.siblings),
                    " reads found several values\n");
  }
  if (counts.scanned_entries > 0) {
    absl::StrAppend(&out, WithCommas(counts.scanned_entries),
                    " entries scanned\n");
  }
  if (open_loop) {
    absl::StrAppend(
        &out, "started late by p50 ",
        ShortTime(static_cast<double>(result.lateness.ValueAt(0.5))), ", p99 ",
        ShortTime(static_cast<double>(result.lateness.ValueAt(0.99))),
        " (part of the latencies)\n");
    if (result.never_started > 0) {
      absl::StrAppend(&out, WithCommas(result.never_started),
                      " requests were due and never started, because too many "
                      "were in flight: the latencies are too good\n");
    }
  }
  for (const std::string& error : result.errors) {
    absl::StrAppend(&out, "  ", error, "\n");
  }
  return out;
}

}  // namespace ringkv::bench
