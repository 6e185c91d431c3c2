// Compares a Debian package index with what a cluster holds of it: each stanza
// must be in every replica of its key, equal in all, with nothing left in
// stand-ins, and must read back byte for byte with R = N. Looks at the replicas
// before it reads, since a read repairs. Prints one line of JSON.
//
// usage: replica_check ENDPOINTS N FIELD[,FIELD...] < INDEX

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "ringkv/v1/admin.grpc.pb.h"

namespace {

constexpr int kThreads = 24;
constexpr size_t kBatch = 64;

using Records = std::vector<std::pair<std::string, std::string>>;

// Key (the fields, joined with '=') and text of each stanza; the last of equal
// keys, as a store has it.
Records ReadStanzas(std::istream& in, const std::vector<std::string>& fields,
                    uint64_t& stanzas) {
  std::map<std::string, std::string> records;
  std::string stanza;
  const auto finish = [&] {
    if (stanza.empty()) return;
    ++stanzas;
    std::vector<std::string> key;
    for (const std::string& field : fields) {
      for (absl::string_view line : absl::StrSplit(stanza, '\n')) {
        if (absl::ConsumePrefix(&line, field + ": ")) {
          key.emplace_back(line);
          break;
        }
      }
    }
    records[absl::StrJoin(key, "=")] = std::move(stanza);
    stanza.clear();
  };
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) {
      finish();
    } else {
      absl::StrAppend(&stanza, line, "\n");
    }
  }
  finish();
  return Records(std::make_move_iterator(records.begin()),
                 std::make_move_iterator(records.end()));
}

// Empty if all `n` replicas hold the same single value and no stand-in holds
// any.
std::string LookAtReplicas(ringkv::v1::Admin::Stub& admin,
                           const std::string& key, size_t n) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  ringkv::v1::LocateRequest request;
  request.set_key(key);
  ringkv::v1::LocateResponse response;
  const grpc::Status status = admin.Locate(&context, request, &response);
  if (!status.ok()) return status.error_message();
  size_t replicas = 0;
  for (const ringkv::v1::LocatedCopy& copy : response.copies()) {
    if (!copy.answered()) return copy.name() + " did not answer";
    if (!copy.replica()) {
      if (copy.found()) return copy.name() + " still holds a hint";
      continue;
    }
    ++replicas;
    if (!copy.found()) return copy.name() + " lacks it";
    if (copy.siblings() != 1) return copy.name() + " has siblings";
    if (copy.digest() != response.copies(0).digest()) {
      return copy.name() + " differs";
    }
  }
  return replicas == n ? "" : absl::StrCat(replicas, " replicas");
}

class Findings {
 public:
  void Add(const std::string& key, const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
    if (examples_.size() < 10) examples_.push_back(key + ": " + what);
  }
  uint64_t count() const { return count_; }
  const std::vector<std::string>& examples() const { return examples_; }

 private:
  std::mutex mutex_;
  uint64_t count_ = 0;
  std::vector<std::string> examples_;
};

// Runs work(0), work(1), ... work(count - 1) on several threads.
template <typename Work>
void InParallel(size_t count, const Work& work) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (size_t item; (item = next++) < count;) work(item);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void ReadBack(ringkv::Client& client, const Records& records, size_t begin,
              size_t end, uint32_t r, Findings& findings) {
  std::vector<ringkv::BatchOperation> gets;
  for (size_t i = begin; i < end; ++i) {
    ringkv::BatchGet get;
    get.key = records[i].first;
    get.options.r = r;
    gets.emplace_back(std::move(get));
  }
  ringkv::BatchOptions options;
  options.deadline = absl::Seconds(30);
  const auto results = client.Batch(std::move(gets), options);
  for (size_t i = begin; i < end; ++i) {
    const auto& [key, value] = records[i];
    if (!results.ok()) {
      findings.Add(key, results.status().ToString());
      continue;
    }
    const ringkv::BatchResult& result = (*results)[i - begin];
    if (!result.status.ok()) {
      findings.Add(key, result.status.ToString());
    } else if (result.got.siblings.size() != 1 || result.got.value() != value) {
      findings.Add(key, "reads back differently");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t n = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[2], &n)) {
    std::cerr << "usage: replica_check ENDPOINTS N FIELD[,FIELD...] < INDEX\n";
    return 2;
  }
  auto client = ringkv::Client::Connect(argv[1]);
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  std::ios::sync_with_stdio(false);
  uint64_t stanzas = 0;
  const Records records =
      ReadStanzas(std::cin, absl::StrSplit(argv[3], ','), stanzas);

  std::vector<std::unique_ptr<ringkv::v1::Admin::Stub>> admins;
  for (absl::string_view endpoint : absl::StrSplit(argv[1], ',')) {
    admins.push_back(ringkv::v1::Admin::NewStub(grpc::CreateChannel(
        std::string(endpoint), grpc::InsecureChannelCredentials())));
  }
  Findings findings;
  InParallel(records.size(), [&](size_t i) {
    const std::string what =
        LookAtReplicas(*admins[i % admins.size()], records[i].first, n);
    if (!what.empty()) findings.Add(records[i].first, what);
  });
  const size_t batches = (records.size() + kBatch - 1) / kBatch;
  InParallel(batches, [&](size_t batch) {
    const size_t begin = batch * kBatch;
    ReadBack(*client, records, begin, std::min(begin + kBatch, records.size()),
             n, findings);
  });
  std::cout << nlohmann::json{{"stanzas", stanzas},
                              {"keys", records.size()},
                              {"different", findings.count()},
                              {"examples", findings.examples()}}
            << std::endl;
  return findings.count() == 0 ? 0 : 1;
}
