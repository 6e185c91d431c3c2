#include "client/client.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <future>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/token.h"
#include "client/client_impl.h"

namespace ringkv {
namespace {

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

std::array<uint64_t, 4> RandomSeed() {
  std::random_device device;
  std::array<uint64_t, 4> seed;
  for (uint64_t& word : seed) {
    word = (static_cast<uint64_t>(device()) << 32) | device();
  }
  return seed;
}

absl::Status Check(const ClientOptions& options) {
  const auto refuse = [](absl::string_view what, auto value,
                         absl::string_view range) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", value, "; it must be ", range));
  };
  if (options.deadline <= absl::ZeroDuration()) {
    return refuse("deadline", absl::FormatDuration(options.deadline),
                  "above 0");
  }
  if (options.connect_timeout <= absl::ZeroDuration()) {
    return refuse("connect_timeout",
                  absl::FormatDuration(options.connect_timeout), "above 0");
  }
  if (options.tries_max < 1) {
    return refuse("tries_max", options.tries_max, "at least 1");
  }
  if (!(options.retry_budget_ratio >= 0 && options.retry_budget_ratio <= 1)) {
    return refuse("retry_budget_ratio", options.retry_budget_ratio, "0 to 1");
  }
  if (!(options.retry_budget_burst >= 0)) {
    return refuse("retry_budget_burst", options.retry_budget_burst,
                  "at least 0");
  }
  if (options.backoff_base < absl::ZeroDuration() ||
      options.backoff_max < options.backoff_base) {
    return refuse("backoff_base", absl::FormatDuration(options.backoff_base),
                  "between 0 and backoff_max");
  }
  if (options.io_threads < 1 || options.io_threads > 64) {
    return refuse("io_threads", options.io_threads, "1 to 64");
  }
  if (options.connections_per_node < 1 || options.connections_per_node > 64) {
    return refuse("connections_per_node", options.connections_per_node,
                  "1 to 64");
  }
  return absl::OkStatus();
}

// Runs an asynchronous call and waits for its result.
template <class Result, class Start>
absl::StatusOr<Result> Wait(Start start) {
  if (IoLoop::OnLoopThread()) {
    return absl::FailedPreconditionError(
        "a blocking call from a callback would wait for its own thread; use "
        "the "
        "asynchronous one");
  }
  std::promise<absl::StatusOr<Result>> promise;
  std::future<absl::StatusOr<Result>> future = promise.get_future();
  start([&promise](absl::StatusOr<Result> result) {
    promise.set_value(std::move(result));
  });
  return future.get();
}

void WarnToStderr(const std::string& line) {
  std::fprintf(stderr, "ringkv client: %s\n", line.c_str());
}

}  // namespace

ClientImpl::ClientImpl(ClientOptions options,
                       std::vector<std::string> endpoints)
    : options_(std::move(options)),
      io_(options_.io_threads),
      view_(io_, options_.connections_per_node, std::move(endpoints),
            options_.on_warning ? options_.on_warning : WarnToStderr,
            RandomSeed()),
      watcher_(view_, io_),
      runtime_(options_, io_, view_) {}

ClientImpl::~ClientImpl() {
  watcher_.Stop();
  io_.Stop();
}

Instant ClientImpl::DeadlineOf(absl::Duration deadline) const {
  return Now() +
         (deadline == absl::ZeroDuration() ? options_.deadline : deadline);
}

Repeatable ClientImpl::RepeatableOf(const std::string& keyspace,
                                    bool has_context) {
  const std::shared_ptr<const ClusterSnapshot> snapshot = view_.snapshot();
  const Keyspace* found = snapshot->ring->FindKeyspace(keyspace);
  return RepeatableWrite(
      has_context, found != nullptr && found->mode == VersionMode::kSiblings);
}

std::shared_ptr<GetCallRun> ClientImpl::MakeGet(v1::GetRequest request,
                                                Instant deadline,
                                                Client::GetCallback done) {
  Call::Target target{Repeatable::kRead, request.keyspace(),
                      TokenOf(request.key()), deadline, "get"};
  return std::make_shared<GetCallRun>(runtime_, std::move(target),
                                      &v1::KeyValue::Stub::PrepareAsyncGet,
                                      std::move(request), std::move(done));
}

std::shared_ptr<PutCallRun> ClientImpl::MakePut(v1::PutRequest request,
                                                Instant deadline,
                                                Client::WriteCallback done) {
  Call::Target target{RepeatableOf(request.keyspace(), request.has_context()),
                      request.keyspace(), TokenOf(request.key()), deadline,
                      "put"};
  return std::make_shared<PutCallRun>(runtime_, std::move(target),
                                      &v1::KeyValue::Stub::PrepareAsyncPut,
                                      std::move(request), std::move(done));
}

std::shared_ptr<DeleteCallRun> ClientImpl::MakeDelete(
    v1::DeleteRequest request, Instant deadline, Client::WriteCallback done) {
  Call::Target target{RepeatableOf(request.keyspace(), request.has_context()),
                      request.keyspace(), TokenOf(request.key()), deadline,
                      "delete"};
  return std::make_shared<DeleteCallRun>(
      runtime_, std::move(target), &v1::KeyValue::Stub::PrepareAsyncDelete,
      std::move(request), std::move(done));
}

void ClientImpl::Get(absl::string_view key, const GetOptions& options,
                     Instant deadline, Client::GetCallback done) {
  if (absl::Status status = CheckGet(options); !status.ok()) {
    done(status);
    return;
  }
  MakeGet(ToRequest(key, KeyspaceOf(options.keyspace), options), deadline,
          std::move(done))
      ->Start();
}

void ClientImpl::Put(absl::string_view key, absl::string_view value,
                     const PutOptions& options, Instant deadline,
                     Client::WriteCallback done) {
  if (absl::Status status = CheckPut(key, value, options); !status.ok()) {
    done(status);
    return;
  }
  v1::PutRequest request =
      ToRequest(key, value, KeyspaceOf(options.keyspace), options);
  request.mutable_request_id()->set_id(NewRequestId());
  MakePut(std::move(request), deadline, std::move(done))->Start();
}

void ClientImpl::Delete(absl::string_view key, const DeleteOptions& options,
                        Instant deadline, Client::WriteCallback done) {
  v1::DeleteRequest request =
      ToRequest(key, KeyspaceOf(options.keyspace), options);
  request.mutable_request_id()->set_id(NewRequestId());
  MakeDelete(std::move(request), deadline, std::move(done))->Start();
}

void ClientImpl::Scan(const ScanOptions& options, Instant deadline,
                      Client::ScanCallback done) {
  v1::ScanRequest request;
  request.set_keyspace(KeyspaceOf(options.keyspace));
  request.set_cursor(options.cursor);
  request.set_limit(options.limit == 0 ? 1000 : options.limit);
  request.set_keys_only(options.keys_only);
  request.set_r(options.r);
  Call::Target target{Repeatable::kRead, request.keyspace(), std::nullopt,
                      deadline, "scan"};
  std::make_shared<ScanCallRun>(runtime_, std::move(target), std::move(request),
                                std::move(done))
      ->Start();
}

ClientStats ClientImpl::stats() const {
  ClientStats stats;
  stats.calls = runtime_.calls;
  stats.tries = runtime_.tries;
  stats.retries = runtime_.retries;
  stats.hedges = runtime_.hedges;
  stats.budget_refusals = runtime_.budget_refusals;
  stats.unknown = runtime_.unknown;
  stats.ring_epoch = view_.epoch();
  stats.ring_watches = watcher_.watches();
  stats.ring_rejects = view_.rejects();
  if (const auto snapshot = view_.snapshot(); snapshot != nullptr) {
    const Instant now = Now();
    stats.nodes = static_cast<int>(snapshot->nodes.size());
    for (const auto& [number, node] : snapshot->nodes) {
      stats.nodes_live += node->Live(now) ? 1 : 0;
    }
  }
  return stats;
}

absl::StatusOr<Client> Client::Connect(ClientOptions options) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  absl::StatusOr<std::vector<std::string>> endpoints =
      ParseEndpoints(options.endpoints);
  if (!endpoints.ok()) return endpoints.status();
  auto impl =
      std::make_shared<ClientImpl>(std::move(options), *std::move(endpoints));
  if (absl::Status status = impl->WaitForRing(); !status.ok()) return status;
  return Client(std::move(impl));
}

absl::StatusOr<GetResult> Client::Get(std::string_view key,
                                      GetOptions options) {
  return Wait<GetResult>([&](GetCallback done) {
    GetAsync(key, std::move(options), std::move(done));
  });
}

absl::StatusOr<WriteResult> Client::Put(std::string_view key,
                                        std::string_view value,
                                        PutOptions options) {
  return Wait<WriteResult>([&](WriteCallback done) {
    PutAsync(key, value, std::move(options), std::move(done));
  });
}

absl::StatusOr<WriteResult> Client::Delete(std::string_view key,
                                           DeleteOptions options) {
  return Wait<WriteResult>([&](WriteCallback done) {
    DeleteAsync(key, std::move(options), std::move(done));
  });
}

absl::StatusOr<std::vector<BatchResult>> Client::Batch(
    std::vector<BatchOperation> operations, BatchOptions options) {
  return Wait<std::vector<BatchResult>>([&](BatchCallback done) {
    BatchAsync(std::move(operations), std::move(options), std::move(done));
  });
}

absl::StatusOr<ScanEnd> Client::Scan(
    ScanOptions options, absl::FunctionRef<bool(const ScannedEntry&)> visit,
    std::string* resume) {
  if (IoLoop::OnLoopThread()) {
    return absl::FailedPreconditionError(
        "a blocking scan from a callback would wait for its own thread; use "
        "ScanAsync");
  }
  constexpr uint64_t kPageEntries = 1000;
  const uint64_t limit = options.limit;
  ScanEnd end;
  end.cursor = options.cursor;
  using Page = absl::StatusOr<ScanPage>;
  const auto fetch = [&](const std::string& cursor, uint64_t ahead) {
    auto promise = std::make_shared<std::promise<Page>>();
    ScanOptions page = options;
    page.cursor = cursor;
    page.limit =
        limit == 0 ? kPageEntries : std::min(kPageEntries, limit - ahead);
    ScanAsync(std::move(page), [promise](Page result) {
      promise->set_value(std::move(result));
    });
    return promise->get_future();
  };
  std::future<Page> next = fetch(options.cursor, 0);
  while (true) {
    Page page = next.get();
    if (!page.ok()) {
      if (resume != nullptr) *resume = end.cursor;
      return page.status();
    }
    const uint64_t ahead = end.entries + page->entries.size();
    const bool more = !page->cursor.empty() && (limit == 0 || ahead < limit);
    // The next page travels while this one is looked at.
    if (more) next = fetch(page->cursor, ahead);
    for (const ScannedEntry& entry : page->entries) {
      ++end.entries;
      if (!visit(entry)) {
        // The cursor of the page before: entries of this one come again.
        if (resume != nullptr) *resume = end.cursor;
        return end;
      }
    }
    end.cursor = page->cursor;
    if (!more) break;
  }
  if (resume != nullptr) *resume = end.cursor;
  return end;
}

absl::StatusOr<UpdateResult> Client::Update(std::string_view key,
                                            const MergeFunction& merge,
                                            UpdateOptions options) {
  return Wait<UpdateResult>([&](UpdateCallback done) {
    UpdateAsync(key, merge, std::move(options), std::move(done));
  });
}

void Client::GetAsync(std::string_view key, GetOptions options,
                      GetCallback done) {
  impl_->Get(View(key), options, impl_->DeadlineOf(options.deadline),
             std::move(done));
}

void Client::PutAsync(std::string_view key, std::string_view value,
                      PutOptions options, WriteCallback done) {
  impl_->Put(View(key), View(value), options,
             impl_->DeadlineOf(options.deadline), std::move(done));
}

void Client::DeleteAsync(std::string_view key, DeleteOptions options,
                         WriteCallback done) {
  impl_->Delete(View(key), options, impl_->DeadlineOf(options.deadline),
                std::move(done));
}

void Client::BatchAsync(std::vector<BatchOperation> operations,
                        BatchOptions options, BatchCallback done) {
  impl_->Batch(std::move(operations), impl_->DeadlineOf(options.deadline),
               std::move(done));
}

void Client::ScanAsync(ScanOptions options, ScanCallback done) {
  impl_->Scan(options, impl_->DeadlineOf(options.page_deadline),
              std::move(done));
}

void Client::UpdateAsync(std::string_view key, MergeFunction merge,
                         UpdateOptions options, UpdateCallback done) {
  impl_->Update(View(key), std::move(merge), options, std::move(done));
}

void Client::ResolveAsync(std::string_view key, std::string_view value,
                          PutOptions options, WriteCallback done) {
  UpdateOptions update;
  update.keyspace = options.keyspace;
  update.w = options.w;
  update.quorum = options.quorum;
  update.deadline = options.deadline;
  update.ttl = options.ttl;
  impl_->Update(
      View(key),
      [value = std::string(value)](const std::vector<std::string>&) {
        return std::optional<std::string>(value);
      },
      update,
      [done = std::move(done)](absl::StatusOr<UpdateResult> result) mutable {
        if (!result.ok()) {
          done(result.status());
          return;
        }
        WriteResult written;
        written.context = std::move(result->context);
        written.unresolved_siblings = result->unresolved_siblings;
        done(std::move(written));
      });
}

ClientStats Client::stats() const { return impl_->stats(); }

}  // namespace ringkv
