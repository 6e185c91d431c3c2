// kvctl load, verify, dump.

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/token.h"
#include "client/channel.h"
#include "client/kvctl/command.h"
#include "client/kvctl/signals.h"
#include "client/load/loader.h"
#include "client/load/records.h"
#include "client/progress.h"
#include "client/timer_queue.h"

namespace ringkv {
namespace {

// Malformed records and failed writes that are shown one by one.
constexpr size_t kErrorsShown = 10;
// Keys that verify reads with one message.
constexpr size_t kVerifyBatch = 32;

struct InputArguments {
  std::vector<std::string> files;
  std::string format = "auto";
  std::string compression = "auto";
  std::string key;
  std::string separator = "=";
  std::string delimiter = ",";
  bool no_progress = false;

  void AddTo(CLI::App& command) {
    command
        .add_option("FILE", files,
                    "files to read; - is standard input. JSON lines "
                    "({\"key\": ..., \"value\": ...}), CSV, or Debian package "
                    "indexes; plain, gzip, xz or lz4")
        ->required();
    command.add_option("--format", format, "auto, jsonl, csv or debian")
        ->check(CLI::IsMember({"auto", "jsonl", "csv", "debian"}))
        ->capture_default_str();
    command
        .add_option("--compression", compression, "auto, none, gzip, xz or lz4")
        ->check(CLI::IsMember({"auto", "none", "gzip", "xz", "lz4"}))
        ->capture_default_str();
    command.add_option(
        "--key,--key-field", key,
        "column (csv) or field (debian; default Package) of the key; several, "
        "separated by commas, are joined");
    command
        .add_option("--key-separator", separator,
                    "what several are joined with")
        ->capture_default_str();
    command.add_option("--delimiter", delimiter, "between the fields of CSV")
        ->check(CLI::Validator(
            [](std::string& text) -> std::string {
              return text.size() == 1 || text == "\\t"
                         ? ""
                         : "the delimiter must be one byte, or \\t";
            },
            "BYTE"))
        ->capture_default_str();
    AddSwitch(command, "--no-progress", no_progress, "do not show progress");
  }

  RecordOptions Options() const {
    RecordOptions options;
    options.format = *ParseFormat(format);
    options.compression = *ParseCompression(compression);
    if (!key.empty()) {
      options.key_fields = absl::StrSplit(key, ',', absl::SkipEmpty());
    }
    options.separator = separator;
    options.delimiter = delimiter == "\\t" ? '\t' : delimiter[0];
    return options;
  }
};

Progress::Style StyleOf(const Session& session, bool no_progress) {
  if (no_progress) return Progress::Style::kNone;
  return session.streams.err_is_terminal ? Progress::Style::kBar
                                         : Progress::Style::kLines;
}

// --- load ---

struct LoadArguments {
  InputArguments input;
  std::string keyspace;
  uint32_t w = 0;
  std::string quorum = "default";
  int in_flight = 256;
  std::string record_timeout = "2m";
  bool continue_on_error = false;
};

int Load(Session& session, const LoadArguments& arguments) {
  ClientOptions client_options;
  absl::StatusOr<Client> client = session.Connect(client_options);
  if (!client.ok()) return session.Fail(client.status());
  LoaderOptions options;
  options.keyspace = arguments.keyspace;
  options.w = arguments.w;
  options.quorum = QuorumOf(arguments.quorum);
  options.in_flight = arguments.in_flight;
  options.record_deadline = SpanOf(arguments.record_timeout);
  options.put_deadline = std::min(session.timeout_span(), absl::Seconds(5));
  const Instant start = Now();
  Loader loader(*client, options, std::random_device()());
  Progress progress(session.streams.err,
                    StyleOf(session, arguments.input.no_progress), "load",
                    start);
  uint64_t malformed = 0;
  std::vector<std::string> errors;
  std::string stopped;
  uint64_t consumed_before = 0;
  const SignalWatch signals;
  const auto note = [&](const LoadCounts& counts) {
    return counts.failed + counts.unknown + malformed == 0
               ? std::string()
               : absl::StrCat(counts.failed + malformed, " failed, ",
                              counts.unknown, " unknown");
  };
  for (const std::string& file : arguments.input.files) {
    absl::StatusOr<std::unique_ptr<RecordReader>> reader =
        OpenRecords(file, session.streams.in, arguments.input.Options());
    if (!reader.ok()) {
      stopped = std::string(reader.status().message());
      break;
    }
    while (true) {
      if (SignalWatch::Fired() != 0) {
        stopped = "interrupted; what was begun is finished (again to kill)";
        break;
      }
      absl::StatusOr<std::optional<Record>> record = (*reader)->Next();
      if (!record.ok()) {
        if (arguments.continue_on_error &&
            absl::IsInvalidArgument(record.status())) {
          ++malformed;
          if (errors.size() < kErrorsShown) {
            errors.emplace_back(record.status().message());
          }
          continue;
        }
        stopped = std::string(record.status().message());
        break;
      }
      if (!record->has_value()) break;
      loader.Add(**std::move(record));
      const LoadCounts counts = loader.counts();
      if (!arguments.continue_on_error && counts.failed + counts.unknown > 0) {
        stopped = absl::StrCat(file,
                               ": stopped at the first record that was not "
                               "written; --continue-on-error goes on");
        break;
      }
      progress.Update(
          Now(), consumed_before + (*reader)->consumed(),
          arguments.input.files.size() == 1 ? (*reader)->total() : 0,
          counts.written, note(counts));
    }
    consumed_before += (*reader)->consumed();
    if (!stopped.empty()) break;
  }
  while (!loader.Drain(Now() + absl::Milliseconds(200))) {
    const LoadCounts counts = loader.counts();
    progress.Update(Now(), consumed_before, consumed_before, counts.written,
                    note(counts));
  }
  progress.Finish();
  const LoadCounts counts = loader.counts();
  for (const std::string& error : loader.errors()) {
    if (errors.size() < 2 * kErrorsShown) errors.push_back(error);
  }
  const double seconds = std::max(1e-3, absl::ToDoubleSeconds(Now() - start));
  const uint64_t failed = counts.failed + malformed;
  const bool good = failed == 0 && counts.unknown == 0 && stopped.empty();
  if (session.json()) {
    Json json = Json::object();
    json["written"] = counts.written;
    json["failed"] = failed;
    json["unknown"] = counts.unknown;
    json["resolved"] = counts.resolved;
    json["malformed"] = malformed;
    json["duplicates"] = counts.duplicates;
    json["expired"] = counts.expired;
    json["bytes"] = counts.bytes;
    json["seconds"] = seconds;
    json["records_per_second"] = static_cast<double>(counts.written) / seconds;
    json["complete"] = stopped.empty();
    if (!stopped.empty()) json["stopped"] = Printable(stopped);
    json["errors"] = Json::array();
    for (const std::string& error : errors) {
      json["errors"].push_back(Printable(error));
    }
    session.Print(json);
  } else {
    session.streams.out << "written   " << FormatCount(counts.written) << " ("
                        << FormatBytes(counts.bytes) << " in "
                        << absl::StrFormat("%.1f", seconds) << " s, "
                        << FormatCount(static_cast<uint64_t>(
                               static_cast<double>(counts.written) / seconds))
                        << "/s)\nfailed    " << FormatCount(failed)
                        << "\nunknown   " << FormatCount(counts.unknown)
                        << "\n";
    if (counts.resolved > 0) {
      session.streams.out << "resolved  " << FormatCount(counts.resolved)
                          << " (their first outcome was unknown)\n";
    }
    if (counts.expired > 0) {
      session.streams.out << "expired   " << FormatCount(counts.expired)
                          << " (past their time to live, left out)\n";
    }
  }
  for (const std::string& error : errors) session.Note(Printable(error));
  if (counts.duplicates > 0) {
    session.Note(absl::StrCat(
        FormatCount(counts.duplicates),
        " records have the key of an earlier one and replaced it; more fields "
        "in --key tell them apart"));
  }
  if (!stopped.empty()) {
    session.Note(Printable(stopped));
    session.Note("the load is NOT complete");
  }
  return good ? kExitDone : kExitFailed;
}

// --- verify ---

struct VerifyArguments {
  InputArguments input;
  std::string keyspace;
  int jobs = 32;
  bool values_only = false;
};

// Counts of what was found, and examples.
class Verdicts {
 public:
  void Add(std::atomic<uint64_t>& counter, const std::string& key,
           const std::string& what) {
    ++counter;
    MutexLock lock(mutex_);
    if (examples_.size() < kErrorsShown) {
      examples_.push_back(absl::StrCat(Printable(key), ": ", what));
    }
  }
  std::vector<std::string> examples() const {
    MutexLock lock(mutex_);
    return examples_;
  }
  // Counts what each replica holds of the keys.
  void AddCopies(const v1::LocateResponse& located) {
    MutexLock lock(mutex_);
    for (const v1::LocatedCopy& copy : located.copies()) {
      if (copy.replica() && copy.found()) ++copies_[Printable(copy.name())];
    }
  }
  std::map<std::string, uint64_t> copies() const {
    MutexLock lock(mutex_);
    return copies_;
  }

  std::atomic<uint64_t> equal{0};      // the value, and in every replica
  std::atomic<uint64_t> missing{0};    // no value
  std::atomic<uint64_t> different{0};  // another value, or siblings
  std::atomic<uint64_t> unequal{0};    // replicas differ or lack it
  std::atomic<uint64_t> failed{0};     // could not be read
  std::atomic<uint64_t> hinted{0};     // a stand-in still holds it

 private:
  mutable Mutex mutex_;
  std::vector<std::string> examples_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> copies_ ABSL_GUARDED_BY(mutex_);
};

// Empty if all replicas hold equal copies.
std::string CompareCopies(const v1::LocateResponse& located, uint32_t n,
                          bool& hinted) {
  uint32_t replicas = 0;
  std::optional<uint64_t> digest;
  for (const v1::LocatedCopy& copy : located.copies()) {
    const std::string name =
        absl::StrCat(Printable(copy.name()), " #", copy.node_number());
    if (!copy.replica()) {
      hinted = hinted || copy.found();
      continue;
    }
    if (!copy.answered()) return absl::StrCat(name, " did not answer");
    if (!copy.found()) return absl::StrCat(name, " lacks it");
    if (digest.value_or(copy.digest()) != copy.digest()) {
      return absl::StrCat(name, " holds another version");
    }
    digest = copy.digest();
    ++replicas;
  }
  return replicas == n ? ""
                       : absl::StrCat(replicas, " replicas of ", n, " hold it");
}

int Verify(Session& session, const VerifyArguments& arguments) {
  absl::StatusOr<Client> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  absl::StatusOr<std::shared_ptr<const Ring>> ring = FetchRing(session);
  if (!ring.ok()) return session.Fail(ring.status());
  const std::string keyspace_name =
      arguments.keyspace.empty() ? "default" : arguments.keyspace;
  const Keyspace* keyspace = (*ring)->FindKeyspace(keyspace_name);
  if (keyspace == nullptr) {
    return session.Fail(absl::NotFoundError(
        absl::StrCat("there is no keyspace \"", keyspace_name, "\"")));
  }
  const uint32_t n = (*ring)->EffectiveN(*keyspace);

  // Of records with the same key the last one counts, so all are read first;
  // their values are kept as hashes.
  const Instant start = Now();
  Progress progress(session.streams.err,
                    StyleOf(session, arguments.input.no_progress), "verify",
                    start, Progress::Unit::kRecords);
  absl::flat_hash_map<std::string, std::vector<uint64_t>> expected;
  uint64_t records = 0;
  const int64_t now_ms = absl::ToUnixMillis(absl::Now());
  for (const std::string& file : arguments.input.files) {
    absl::StatusOr<std::unique_ptr<RecordReader>> reader =
        OpenRecords(file, session.streams.in, arguments.input.Options());
    if (!reader.ok()) return session.Fail(reader.status());
    while (true) {
      absl::StatusOr<std::optional<Record>> record = (*reader)->Next();
      if (!record.ok()) return session.Fail(record.status());
      if (!record->has_value()) break;
      ++records;
      std::vector<uint64_t> hashes;
      for (const Record::Value& value : (*record)->values) {
        if (value.expires_at_ms != 0 && value.expires_at_ms <= now_ms) continue;
        hashes.push_back(Hash64(value.bytes));
      }
      std::sort(hashes.begin(), hashes.end());
      hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
      if (!hashes.empty()) {
        expected[std::move((*record)->key)] = std::move(hashes);
      }
    }
  }

  std::vector<std::pair<std::string, std::vector<uint64_t>>> work(
      std::make_move_iterator(expected.begin()),
      std::make_move_iterator(expected.end()));
  expected.clear();
  std::vector<std::unique_ptr<v1::Admin::Stub>> admins;
  for (const Member& member : (*ring)->spec().members) {
    admins.push_back(v1::Admin::NewStub(MakeChannel(member.client_address)));
  }
  const absl::Duration timeout = session.timeout_span();
  Verdicts verdicts;
  std::atomic<size_t> next{0};
  std::atomic<size_t> finished{0};
  // What the replicas hold of a key: nothing to say if it is equal, nullopt if
  // nobody could tell.
  const auto look_at = [&](size_t i) -> std::optional<std::string> {
    const std::string& key = work[i].first;
    v1::LocateRequest request;
    request.set_keyspace(keyspace_name);
    request.set_key(key);
    v1::LocateResponse located;
    grpc::Status status;
    for (size_t t = 0; t < admins.size(); ++t) {
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(timeout));
      located.Clear();
      status =
          admins[(i + t) % admins.size()]->Locate(&context, request, &located);
      if (status.ok()) break;
    }
    if (!status.ok()) {
      verdicts.Add(verdicts.failed, key,
                   absl::StrCat("locate: ", status.error_message()));
      return std::nullopt;
    }
    bool hinted = false;
    verdicts.AddCopies(located);
    std::string finding = CompareCopies(located, n, hinted);
    if (hinted) ++verdicts.hinted;
    return finding;
  };
  const auto judge = [&](size_t i, const std::string& copies,
                         const BatchResult& result) {
    const auto& [key, hashes] = work[i];
    if (!result.status.ok()) {
      verdicts.Add(verdicts.failed, key, result.status.ToString());
      return;
    }
    std::vector<uint64_t> found;
    for (const SiblingValue& sibling : result.got.siblings) {
      found.push_back(Hash64(sibling.value));
    }
    std::sort(found.begin(), found.end());
    if (found.empty()) {
      verdicts.Add(verdicts.missing, key, "has no value");
    } else if (found != hashes) {
      verdicts.Add(verdicts.different, key,
                   found.size() > hashes.size()
                       ? absl::StrCat("has ", found.size(), " siblings")
                       : "has another value");
    } else if (!copies.empty()) {
      verdicts.Add(verdicts.unequal, key, copies);
    } else {
      ++verdicts.equal;
    }
  };
  const auto check = [&](size_t begin, size_t end) {
    std::vector<BatchOperation> gets;
    std::vector<std::pair<size_t, std::string>> looked;
    for (size_t i = begin; i < end; ++i) {
      // Looked at before it is read: a read repairs what differs.
      std::optional<std::string> copies = "";
      if (!arguments.values_only) copies = look_at(i);
      ++finished;
      if (!copies.has_value()) continue;
      looked.emplace_back(i, *std::move(copies));
      GetOptions get;
      get.keyspace = keyspace_name;
      get.r = arguments.values_only ? 0 : n;
      gets.push_back(BatchGet{work[i].first, get});
    }
    if (gets.empty()) return;
    absl::StatusOr<std::vector<BatchResult>> results =
        client->Batch(std::move(gets));
    for (size_t k = 0; k < looked.size(); ++k) {
      BatchResult failed;
      failed.status = results.status();
      judge(looked[k].first, looked[k].second,
            results.ok() ? (*results)[k] : failed);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < arguments.jobs; ++t) {
    threads.emplace_back([&] {
      for (size_t i = 0; (i = next.fetch_add(kVerifyBatch)) < work.size();) {
        check(i, std::min(i + kVerifyBatch, work.size()));
      }
    });
  }
  Mutex mutex;
  CondVar tick;
  while (finished < work.size()) {
    progress.Update(Now(), finished, work.size(), finished);
    std::unique_lock<Mutex> lock(mutex);
    tick.wait_for(lock, std::chrono::milliseconds(50));
  }
  for (std::thread& thread : threads) thread.join();
  progress.Finish();

  const double seconds = absl::ToDoubleSeconds(Now() - start);
  const bool good = verdicts.equal == work.size();
  if (session.json()) {
    Json json = Json::object();
    json["records"] = records;
    json["keys"] = work.size();
    json["replicas"] = arguments.values_only ? 0 : n;
    json["equal"] = verdicts.equal.load();
    json["missing"] = verdicts.missing.load();
    json["different"] = verdicts.different.load();
    json["replicas_unequal"] = verdicts.unequal.load();
    json["failed"] = verdicts.failed.load();
    json["hinted"] = verdicts.hinted.load();
    json["copies"] = verdicts.copies();
    json["seconds"] = seconds;
    json["examples"] = Json::array();
    for (const std::string& example : verdicts.examples()) {
      json["examples"].push_back(example);
    }
    session.Print(json);
  } else {
    session.streams.out
        << "records            " << FormatCount(records) << " ("
        << FormatCount(work.size()) << " keys, "
        << absl::StrFormat("%.1f", seconds) << " s)\n"
        << "equal              " << FormatCount(verdicts.equal)
        << (arguments.values_only
                ? ""
                : absl::StrCat(" (and the same in ", n, " replicas)"))
        << "\nmissing            " << FormatCount(verdicts.missing)
        << "\ndifferent          " << FormatCount(verdicts.different)
        << "\nreplicas unequal   " << FormatCount(verdicts.unequal)
        << "\ncould not be read  " << FormatCount(verdicts.failed) << "\n";
    if (verdicts.hinted > 0) {
      session.streams.out << "hints wait         "
                          << FormatCount(verdicts.hinted) << "\n";
    }
  }
  for (const std::string& example : verdicts.examples()) {
    session.Note(example);
  }
  return good ? kExitDone : kExitFailed;
}

// --- dump ---

struct DumpArguments {
  std::string file = "-";
  std::string keyspace;
  uint32_t r = 0;
  bool no_progress = false;
};

Json DumpValue(const SiblingValue& sibling) {
  Json json = Json::object();
  AddBytes("value", sibling.value, json);
  if (sibling.expires_at.has_value()) {
    json["expires_at_ms"] = absl::ToUnixMillis(*sibling.expires_at);
  }
  return json;
}

// Where a dump goes.
struct DumpTarget {
  std::string path;  // with links followed
  // A plain file, or none yet: written beside it and renamed at the end.
  // Devices and pipes are written to as they are.
  bool renamed = true;
};

absl::StatusOr<DumpTarget> TargetOf(const std::string& file) {
  namespace fs = std::filesystem;
  std::error_code error;
  DumpTarget target{file, true};
  const fs::file_status status = fs::status(file, error);
  if (fs::is_directory(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": is a directory; name a file in it"));
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    target.renamed = false;
  } else if (fs::is_symlink(fs::symlink_status(file, error))) {
    target.path = fs::weakly_canonical(file, error).string();
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": cannot be followed: ", error.message()));
    }
  }
  return target;
}

int Dump(Session& session, const DumpArguments& arguments) {
  const bool to_file = arguments.file != "-";
  const absl::StatusOr<DumpTarget> target = TargetOf(arguments.file);
  if (to_file && !target.ok()) {
    session.Fail(target.status());
    return kExitUsage;
  }
  absl::StatusOr<Client> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const bool renamed = to_file && target->renamed;
  const std::string written_to =
      absl::StrCat(target.ok() ? target->path : "", renamed ? ".partial" : "");
  std::ofstream file;
  if (to_file) {
    file.open(written_to, std::ios::binary | std::ios::trunc);
    if (!file) {
      return session.Fail(absl::PermissionDeniedError(
          absl::StrCat(written_to, ": cannot be written")));
    }
  }
  std::ostream& out = to_file ? file : session.streams.out;
  const Instant start = Now();
  Progress progress(session.streams.err,
                    StyleOf(session, arguments.no_progress), "dump", start);
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t with_siblings = 0;
  ScanOptions options;
  options.keyspace = arguments.keyspace;
  options.r = arguments.r;
  absl::StatusOr<ScanEnd> end =
      client->Scan(options, [&](const ScannedEntry& entry) {
        if (entry.siblings.empty()) return true;
        Json json = Json::object();
        AddBytes("key", entry.key, json);
        if (entry.siblings.size() == 1) {
          json.update(DumpValue(entry.siblings.front()));
        } else {
          ++with_siblings;
          json["siblings"] = Json::array();
          // Oldest first: loading writes them in this order.
          for (auto it = entry.siblings.rbegin(); it != entry.siblings.rend();
               ++it) {
            json["siblings"].push_back(DumpValue(*it));
          }
        }
        const std::string line = json.dump();
        out << line << '\n';
        bytes += line.size() + 1;
        ++entries;
        progress.Update(Now(), bytes, 0, entries);
        return static_cast<bool>(out);
      });
  progress.Finish();
  out.flush();
  if (end.ok() && (!out || !end->cursor.empty())) {
    // A reader that has seen enough (`| head`) is no news.
    if (!to_file && OutputReaderIsGone()) return kExitFailed;
    end = absl::DataLossError(absl::StrCat(to_file ? written_to : "the output",
                                           ": writing failed after ", entries,
                                           " records"));
  }
  if (to_file) {
    file.close();
    if (end.ok() && renamed &&
        std::rename(written_to.c_str(), target->path.c_str()) != 0) {
      end = absl::PermissionDeniedError(absl::StrCat(
          target->path, ": cannot be written; the dump is in ", written_to));
    }
  }
  if (!end.ok()) {
    session.Note(absl::StrCat(absl::StatusCodeToString(end.status().code()),
                              ": ", end.status().message()));
    session.Note(absl::StrCat("the dump is NOT complete: ", entries,
                              " records were written"));
    return kExitFailed;
  }
  const double seconds = std::max(1e-3, absl::ToDoubleSeconds(Now() - start));
  if (to_file && session.json()) {
    Json json = Json::object();
    json["records"] = entries;
    json["with_siblings"] = with_siblings;
    json["bytes"] = bytes;
    json["seconds"] = seconds;
    session.Print(json);
  } else {
    session.Note(absl::StrCat(FormatCount(entries), " records (",
                              FormatCount(with_siblings), " with siblings), ",
                              FormatBytes(bytes), " in ",
                              absl::StrFormat("%.1f s", seconds)));
  }
  return kExitDone;
}

}  // namespace

void AddBulkCommands(CLI::App& app, Session& session) {
  {
    auto arguments = std::make_shared<LoadArguments>();
    CLI::App& command = *app.add_subcommand(
        "load",
        "write the records of files; exit code 1 if any was not written");
    arguments->input.AddTo(command);
    command.add_option("--keyspace", arguments->keyspace, "keyspace");
    command.add_option("--w", arguments->w,
                       "replicas that must acknowledge; 0: the keyspace's W");
    AddQuorum(command, arguments->quorum);
    command
        .add_option("--in-flight,-j,--jobs", arguments->in_flight,
                    "writes under way at once")
        ->check(CLI::Range(1, 65536))
        ->capture_default_str();
    command
        .add_option("--record-timeout", arguments->record_timeout,
                    "how long to go on trying for one record")
        ->check(SpanValidator())
        ->capture_default_str();
    AddSwitch(command, "--continue-on-error", arguments->continue_on_error,
              "go on after malformed records and failed writes");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] { return Load(session, *arguments); };
    });
  }
  {
    auto arguments = std::make_shared<VerifyArguments>();
    CLI::App& command = *app.add_subcommand(
        "verify",
        "read back what load wrote, and compare every replica's copy");
    arguments->input.AddTo(command);
    command.add_option("--keyspace", arguments->keyspace, "keyspace");
    command.add_option("-j,--jobs", arguments->jobs, "keys looked at at once")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    AddSwitch(command, "--values-only", arguments->values_only,
              "compare what a read at the keyspace's R gives, not each "
              "replica's copy");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] {
        return Verify(session, *arguments);
      };
    });
  }
  {
    auto arguments = std::make_shared<DumpArguments>();
    CLI::App& command = *app.add_subcommand(
        "dump", "write all records of a keyspace as JSON lines, for load");
    command
        .add_option("FILE", arguments->file, "where to; - is standard output")
        ->capture_default_str();
    command.add_option("--keyspace", arguments->keyspace, "keyspace");
    command.add_option("--r", arguments->r,
                       "replicas that must answer; 0: the keyspace's R");
    AddSwitch(command, "--no-progress", arguments->no_progress,
              "do not show progress");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] { return Dump(session, *arguments); };
    });
  }
}

}  // namespace ringkv
