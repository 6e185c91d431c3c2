#include "client/kvbench_calls.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/token.h"

namespace ringkv::bench {
namespace {

constexpr uint64_t kWalkPageEntries = 1000;

Outcome Failed(Verdict verdict, absl::Status status) {
  Outcome outcome;
  outcome.verdict = verdict;
  outcome.status = std::move(status);
  return outcome;
}

}  // namespace

Outcome JudgeRead(uint64_t record, const GetResult& got) {
  if (!got.found()) {
    return Failed(Verdict::kMissing,
                  absl::NotFoundError(absl::StrCat(
                      "nothing found of key ", Records::KeyOf(record),
                      ", which is one of those loaded or inserted")));
  }
  Outcome outcome;
  outcome.siblings = got.siblings.size() > 1;
  for (const SiblingValue& sibling : got.siblings) {
    if (!Records::Matches(record, sibling.value)) {
      return Failed(Verdict::kWrong,
                    absl::DataLossError(absl::StrCat(
                        "the value of key ", Records::KeyOf(record),
                        " was not written for it by kvbench")));
    }
  }
  return outcome;
}

absl::StatusOr<std::vector<std::string>> FindScanStarts(
    Client client, const std::string& keyspace, size_t starts_max) {
  std::vector<std::string> starts = {""};
  for (;;) {
    ScanOptions options;
    options.keyspace = keyspace;
    options.cursor = starts.back();
    options.limit = kWalkPageEntries;
    options.keys_only = true;
    const absl::StatusOr<ScanEnd> end =
        client.Scan(options, [](const ScannedEntry&) { return true; });
    if (!end.ok()) return end.status();
    if (end->cursor.empty()) break;
    starts.push_back(end->cursor);
  }
  if (starts.size() <= starts_max) return starts;
  std::vector<std::string> spread;
  for (size_t i = 0; i < starts_max; ++i) {
    spread.push_back(starts[i * starts.size() / starts_max]);
  }
  return spread;
}

CallTarget::CallTarget(Client client, CallSettings settings,
                       const Records& records,
                       std::vector<std::string> scan_starts, uint64_t seed,
                       History* history)
    : client_(std::move(client)),
      settings_(std::move(settings)),
      records_(records),
      scan_starts_(std::move(scan_starts)),
      history_(history),
      random_(seed) {}

GetOptions CallTarget::ToGet() const {
  GetOptions options;
  options.keyspace = settings_.keyspace;
  options.r = settings_.r;
  options.quorum = settings_.quorum;
  options.deadline = settings_.deadline;
  return options;
}

PutOptions CallTarget::ToPut() const {
  PutOptions options;
  options.keyspace = settings_.keyspace;
  options.w = settings_.w;
  options.quorum = settings_.quorum;
  options.deadline = settings_.deadline;
  return options;
}

CallTarget::Fresh CallTarget::NewValue(uint64_t record, bool late) {
  Fresh fresh;
  if (history_ != nullptr) {
    fresh.version = history_->NextVersion(record);
    if (late) history_->MayComeLate(record, fresh.version);
  }
  const MutexLock lock(mutex_);
  fresh.value = history_ == nullptr
                    ? records_.NewValue(record, random_)
                    : records_.NewValue(record, fresh.version, random_);
  return fresh;
}

void CallTarget::Acknowledged(uint64_t record, const Fresh& fresh) {
  if (history_ != nullptr) history_->Acknowledge(record, fresh.version);
}

Outcome CallTarget::Judge(uint64_t record, uint64_t floor,
                          const GetResult& got) {
  const Outcome outcome = JudgeRead(record, got);
  if (history_ == nullptr || outcome.verdict != Verdict::kDone) return outcome;
  std::vector<uint64_t> versions;
  for (const SiblingValue& sibling : got.siblings) {
    // Another size than ours: certainly none that we wrote.
    versions.push_back(Records::VersionOf(sibling.value)
                           .value_or(std::numeric_limits<uint64_t>::max()));
  }
  const absl::Status status = history_->Judge(record, floor, versions);
  if (status.ok()) return outcome;
  return Failed(absl::IsOutOfRange(status) ? Verdict::kWrong : Verdict::kStale,
                status);
}

void CallTarget::Start(const Operation& operation, Completion* completion) {
  const uint64_t record = operation.record;
  const uint64_t floor = history_ == nullptr ? 0 : history_->Floor(record);
  switch (operation.kind) {
    case OperationKind::kRead:
      client_.GetAsync(
          Records::KeyOf(record), ToGet(),
          [this, record, floor, completion](absl::StatusOr<GetResult> got) {
            completion->Done(got.ok() ? Judge(record, floor, *got)
                                      : Failed(Verdict::kFailed, got.status()));
          });
      return;
    case OperationKind::kUpdate:
    case OperationKind::kInsert:
      Put(record, std::nullopt, completion);
      return;
    case OperationKind::kReadModifyWrite:
      client_.GetAsync(
          Records::KeyOf(record), ToGet(),
          [this, record, floor, completion](absl::StatusOr<GetResult> got) {
            const Outcome read = got.ok()
                                     ? Judge(record, floor, *got)
                                     : Failed(Verdict::kFailed, got.status());
            if (read.verdict != Verdict::kDone) {
              completion->Done(read);
              return;
            }
            Put(record, std::move(got->context), completion);
          });
      return;
    case OperationKind::kScan:
      Scan(operation, completion);
      return;
  }
}

void CallTarget::Put(uint64_t record, std::optional<std::string> context,
                     Completion* completion) {
  PutOptions options = ToPut();
  // The client may repeat a put with a context anywhere, so that it is stored
  // twice, and the second time late.
  const Fresh fresh = NewValue(record, /*late=*/context.has_value());
  options.context = std::move(context);
  client_.PutAsync(
      Records::KeyOf(record), fresh.value, std::move(options),
      [this, record, fresh, completion](absl::StatusOr<WriteResult> written) {
        if (written.ok()) {
          Acknowledged(record, fresh);
          completion->Done({});
          return;
        }
        if (!IsOutcomeUnknown(written.status())) {
          completion->Done(Failed(Verdict::kFailed, written.status()));
          return;
        }
        if (history_ != nullptr) history_->MayComeLate(record, fresh.version);
        Resolve(record, completion);
      });
}

void CallTarget::Resolve(uint64_t record, Completion* completion) {
  const Fresh fresh = NewValue(record, /*late=*/true);
  client_.ResolveAsync(
      Records::KeyOf(record), fresh.value, ToPut(),
      [this, record, fresh, completion](absl::StatusOr<WriteResult> resolved) {
        Outcome outcome;
        if (resolved.ok()) {
          Acknowledged(record, fresh);
          outcome.resolved = true;
        } else {
          outcome = Failed(Verdict::kUnknown, resolved.status());
        }
        completion->Done(outcome);
      });
}

void CallTarget::Scan(const Operation& operation, Completion* completion) {
  RINGKV_CHECK(!scan_starts_.empty());
  ScanOptions options;
  options.keyspace = settings_.keyspace;
  options.r = settings_.r;
  options.page_deadline = settings_.deadline;
  options.limit = operation.scan_length;
  // The starts lie at about equal distances on the ring, as hashed keys do.
  const Token token = TokenOf(Records::KeyOf(operation.record));
  options.cursor = scan_starts_[static_cast<size_t>(
      (static_cast<unsigned __int128>(token) * scan_starts_.size()) >> 64)];
  client_.ScanAsync(
      std::move(options), [completion](absl::StatusOr<Client::ScanPage> page) {
        if (!page.ok()) {
          completion->Done(Failed(Verdict::kFailed, page.status()));
          return;
        }
        Outcome outcome;
        outcome.entries = static_cast<uint32_t>(page->entries.size());
        completion->Done(outcome);
      });
}

}  // namespace ringkv::bench
