// An application that goes on working while its cluster is disturbed: each
// thread puts keys of its own and reads back one that it has written. Runs
// until its standard input ends and prints one line of JSON.
//
// usage: steady_load ENDPOINTS DEADLINE_MS THREADS

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Totals {
  std::mutex mutex;
  uint64_t puts = 0;
  uint64_t gets = 0;
  uint64_t failed = 0;
  uint64_t unknown = 0;
  // Reads that did not show an acknowledged write.
  uint64_t lost = 0;
  std::vector<double> milliseconds;
  std::vector<std::string> errors;  // the first few

  void Failed(const absl::Status& status, bool write) {
    const std::lock_guard<std::mutex> lock(mutex);
    ++(write && ringkv::IsOutcomeUnknown(status) ? unknown : failed);
    if (errors.size() < 10) errors.push_back(status.ToString());
  }
};

void Work(ringkv::Client client, int thread, const std::atomic<bool>& stop,
          Totals& totals) {
  std::vector<std::string> written;
  std::vector<double> milliseconds;
  uint64_t puts = 0;
  uint64_t gets = 0;
  uint64_t lost = 0;
  const auto timed = [&](auto call) {
    const auto begin = Clock::now();
    auto result = call();
    milliseconds.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - begin)
            .count());
    return result;
  };
  for (uint64_t i = 0; !stop; ++i) {
    const std::string key = absl::StrCat("steady-", thread, "-", i);
    const auto put = timed([&] { return client.Put(key, key); });
    ++puts;
    if (put.ok()) {
      written.push_back(key);
    } else {
      totals.Failed(put.status(), true);
    }
    if (written.empty()) continue;
    const std::string& earlier = written[(i * 7919) % written.size()];
    const auto got = timed([&] { return client.Get(earlier); });
    ++gets;
    if (!got.ok()) {
      totals.Failed(got.status(), false);
    } else if (got->value() != earlier) {
      ++lost;
    }
  }
  const std::lock_guard<std::mutex> lock(totals.mutex);
  totals.puts += puts;
  totals.gets += gets;
  totals.lost += lost;
  totals.milliseconds.insert(totals.milliseconds.end(), milliseconds.begin(),
                             milliseconds.end());
}

}  // namespace

int main(int argc, char** argv) {
  int deadline_ms = 0;
  int threads = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &deadline_ms) ||
      !absl::SimpleAtoi(argv[3], &threads)) {
    std::cerr << "usage: steady_load ENDPOINTS DEADLINE_MS THREADS\n";
    return 2;
  }
  ringkv::ClientOptions options;
  options.endpoints = argv[1];
  options.deadline = absl::Milliseconds(deadline_ms);
  const auto client = ringkv::Client::Connect(options);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  std::cout << "started" << std::endl;
  std::atomic<bool> stop = false;
  Totals totals;
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] { Work(*client, i, stop, totals); });
  }
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  stop = true;
  for (std::thread& worker : workers) worker.join();

  std::vector<double>& all = totals.milliseconds;
  std::sort(all.begin(), all.end());
  const auto quantile = [&](double q) {
    return all.empty() ? 0.0 : all[static_cast<size_t>(q * (all.size() - 1))];
  };
  std::cout
      << nlohmann::json{{"puts", totals.puts},      {"gets", totals.gets},
                        {"failed", totals.failed},  {"unknown", totals.unknown},
                        {"lost", totals.lost},      {"p50_ms", quantile(0.5)},
                        {"p99_ms", quantile(0.99)}, {"max_ms", quantile(1.0)},
                        {"errors", totals.errors}}
      << std::endl;
  return 0;
}
