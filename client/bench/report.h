// Results of a benchmark, for people and for programs.

#ifndef RINGKV_CLIENT_BENCH_REPORT_H_
#define RINGKV_CLIENT_BENCH_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "client/bench/histogram.h"
#include "client/bench/runner.h"

namespace ringkv::bench {

// {"count", "mean", "min", "p50", "p90", "p95", "p99", "p99.9", "p99.99",
// "max"}, times in microseconds.
nlohmann::ordered_json LatencyJson(const LatencyHistogram& latency);

// {"seconds", "operations", "throughput", "cpu_us_per_operation", the counts,
// "latency_us" of all, "kinds" with the same for each kind that occurred,
// "errors"}; with an open loop also "lateness_us" and "never_started".
nlohmann::ordered_json PhaseJson(const PhaseResult& result, bool open_loop);

// One line: "   12.0 s    31,204 ops/s   p50 1.93 ms   p99 4.10 ms ...".
std::string ProgressLine(const Progress& progress);

// A table with a line for each kind and one for all, the counts of what went
// wrong, and the first errors. Ends with a newline.
std::string PhaseTable(const PhaseResult& result, bool open_loop);

// "1,234,567".
std::string WithCommas(uint64_t number);
// Three significant digits with a unit: "850 us", "1.93 ms", "2.50 s".
std::string ShortTime(double nanos);

}  // namespace ringkv::bench

#endif  // RINGKV_CLIENT_BENCH_REPORT_H_
