// kvctl get, put, delete, scan, locate.

#include <istream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/kvctl/command.h"
#include "client/load/byte_source.h"
#include "client/progress.h"

namespace ringkv {
namespace {

// A value of 1 MiB in hexadecimal digits, and a line end.
constexpr size_t kReadValueBytesMax = (2 << 20) + 2;

Json SiblingJson(const SiblingValue& sibling, bool with_value) {
  Json json = Json::object();
  if (with_value) AddBytes("value", sibling.value, json);
  json["written_at"] = HlcText(sibling.hlc_timestamp);
  json["hlc_timestamp"] = absl::StrCat(sibling.hlc_timestamp);
  if (sibling.expires_at.has_value()) {
    json["expires_at_ms"] = absl::ToUnixMillis(*sibling.expires_at);
  }
  return json;
}

// A context on the command line and in JSON is base64.
struct ContextArgument {
  std::string text;
  CLI::Option* option = nullptr;
};

absl::StatusOr<std::optional<std::string>> ContextOf(
    const ContextArgument& argument) {
  const std::string& text = argument.text;
  if (argument.option == nullptr || argument.option->count() == 0) {
    return std::optional<std::string>();
  }
  // Of a variable that was not set: a plain write would replace what is there.
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "--context is empty; leave it out, or give it as `kvctl get -o json` "
        "shows it");
  }
  absl::StatusOr<std::string> bytes = FromBase64(text);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        "--context is not base64; give it as `kvctl get -o json` shows it");
  }
  return std::optional<std::string>(*std::move(bytes));
}

void AddContext(CLI::App& command, ContextArgument& context) {
  context.option = command.add_option(
      "--context", context.text, "of the read that this follows, in base64");
}

// A file, or standard input for "-", as far as a value may go.
absl::StatusOr<std::string> ReadValue(const std::string& path,
                                      std::istream& standard_input) {
  absl::StatusOr<std::unique_ptr<ByteSource>> source =
      OpenFile(path, standard_input);
  if (!source.ok()) return source.status();
  std::string value;
  std::vector<char> piece(64 << 10);
  while (true) {
    const absl::StatusOr<size_t> got =
        (*source)->Read(piece.data(), piece.size());
    if (!got.ok()) return got.status();
    if (*got == 0) return value;
    value.append(piece.data(), *got);
    if (value.size() > kReadValueBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          path == "-" ? "standard input" : path, ": more than ",
          kReadValueBytesMax,
          " bytes; a value has 1 MiB at most, so keep large data in pieces"));
    }
  }
}

int PrintWritten(Session& session, const std::string& key,
                 const WriteResult& written) {
  if (session.json()) {
    Json json = Json::object();
    AddBytes("key", key, json);
    if (written.context.has_value()) {
      json["context"] = absl::Base64Escape(*written.context);
    }
    json["unresolved_siblings"] = written.unresolved_siblings;
    json["replica_acks"] = written.replica_acks;
    json["stand_in_acks"] = written.stand_in_acks;
    session.Print(json);
  } else if (written.unresolved_siblings > 0) {
    session.Note(absl::StrCat("written, but the key has ",
                              written.unresolved_siblings,
                              " other sibling(s); read it, then put the merged "
                              "value with --context"));
  }
  return kExitDone;
}

struct GetArguments {
  KeyArgument key;
  std::string keyspace;
  uint32_t r = 0;
  std::string quorum = "default";
  uint32_t max_answer_bytes = 0;
  bool raw = false;
};

int Get(Session& session, const GetArguments& arguments) {
  absl::StatusOr<std::string> key = arguments.key.Bytes();
  if (!key.ok()) {
    session.Fail(key.status());
    return kExitUsage;
  }
  absl::StatusOr<Client> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  GetOptions options;
  options.keyspace = arguments.keyspace;
  options.r = arguments.r;
  options.quorum = QuorumOf(arguments.quorum);
  options.max_answer_bytes = arguments.max_answer_bytes;
  absl::StatusOr<GetResult> got = client->Get(*key, options);
  if (!got.ok()) return session.Fail(got.status());
  if (session.json()) {
    Json json = Json::object();
    AddBytes("key", *key, json);
    json["found"] = got->found();
    json["siblings"] = Json::array();
    for (const SiblingValue& sibling : got->siblings) {
      json["siblings"].push_back(SiblingJson(sibling, true));
    }
    if (got->context.has_value()) {
      json["context"] = absl::Base64Escape(*got->context);
    }
    session.Print(json);
    return got->found() ? kExitDone : kExitNoValue;
  }
  if (!got->found()) {
    session.Note(absl::StrCat("no value for \"", Printable(*key), "\""));
    return kExitNoValue;
  }
  std::ostream& out = session.streams.out;
  if (arguments.raw) {
    if (got->siblings.size() > 1) {
      return session.Fail(absl::FailedPreconditionError(absl::StrCat(
          "the key has ", got->siblings.size(),
          " siblings; --raw prints one value: resolve them first, or use "
          "-o json")));
    }
    out << got->value();
    return kExitDone;
  }
  for (const SiblingValue& sibling : got->siblings) {
    out << sibling.value << "\n";
  }
  if (got->siblings.size() > 1) {
    session.Note(absl::StrCat(
        got->siblings.size(),
        " siblings, newest first: concurrent writes that nobody has resolved. "
        "To resolve them: kvctl put KEY VALUE --context ",
        absl::Base64Escape(got->context.value_or(""))));
  }
  return kExitDone;
}

struct PutArguments {
  KeyArgument key;
  std::string value;
  std::string file;
  std::string keyspace;
  uint32_t w = 0;
  std::string quorum = "default";
  ContextArgument context;
  std::string ttl;
  bool blind = false;
  bool value_hex = false;
  bool value_base64 = false;
  CLI::Option* value_option = nullptr;
};

int Put(Session& session, const PutArguments& arguments) {
  absl::StatusOr<std::string> key = arguments.key.Bytes();
  absl::StatusOr<std::optional<std::string>> context =
      ContextOf(arguments.context);
  absl::StatusOr<std::string> value = arguments.value;
  const bool has_value = arguments.value_option->count() > 0;
  if (has_value == !arguments.file.empty()) {
    session.Note(has_value ? "put takes VALUE or --file, not both"
                           : "put needs a VALUE (\"-\" reads standard input) "
                             "or --file");
    return kExitUsage;
  }
  if (!arguments.file.empty() || arguments.value == "-") {
    value = ReadValue(arguments.file.empty() ? "-" : arguments.file,
                      session.streams.in);
    if (!value.ok()) {
      session.Fail(value.status());
      return absl::IsInvalidArgument(value.status()) ? kExitUsage : kExitFailed;
    }
  }
  if (arguments.value_hex) value = FromHex(*value);
  if (arguments.value_base64) value = FromBase64(*value);
  for (const absl::Status& status :
       {key.status(), context.status(), value.status()}) {
    if (!status.ok()) {
      session.Fail(status);
      return kExitUsage;
    }
  }
  absl::StatusOr<Client> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  PutOptions options;
  options.keyspace = arguments.keyspace;
  options.w = arguments.w;
  options.quorum = QuorumOf(arguments.quorum);
  options.context = *std::move(context);
  options.blind = arguments.blind;
  if (!arguments.ttl.empty()) options.ttl = SpanOf(arguments.ttl);
  absl::StatusOr<WriteResult> written = client->Put(*key, *value, options);
  if (!written.ok()) return session.Fail(written.status());
  return PrintWritten(session, *key, *written);
}

struct DeleteArguments {
  KeyArgument key;
  std::string keyspace;
  uint32_t w = 0;
  std::string quorum = "default";
  ContextArgument context;
};

int Delete(Session& session, const DeleteArguments& arguments) {
  absl::StatusOr<std::string> key = arguments.key.Bytes();
  absl::StatusOr<std::optional<std::string>> context =
      ContextOf(arguments.context);
  for (const absl::Status& status : {key.status(), context.status()}) {
    if (!status.ok()) {
      session.Fail(status);
      return kExitUsage;
    }
  }
  absl::StatusOr<Client> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  DeleteOptions options;
  options.keyspace = arguments.keyspace;
  options.w = arguments.w;
  options.quorum = QuorumOf(arguments.quorum);
  options.context = *std::move(context);
  absl::StatusOr<WriteResult> written = client->Delete(*key, options);
  if (!written.ok()) return session.Fail(written.status());
  return PrintWritten(session, *key, *written);
}

struct ScanArguments {
  std::string keyspace;
  std::string cursor;
  uint64_t limit = 100;
  bool all = false;
  bool keys_only = false;
  uint32_t r = 0;
};

int Scan(Session& session, const ScanArguments& arguments) {
  absl::StatusOr<std::string> cursor = FromBase64(arguments.cursor);
  if (!cursor.ok()) {
    session.Note("--cursor is not base64; give it as scan printed it");
    return kExitUsage;
  }
  absl::StatusOr<Client> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  ScanOptions options;
  options.keyspace = arguments.keyspace;
  options.cursor = *cursor;
  options.limit = arguments.all ? 0 : arguments.limit;
  options.keys_only = arguments.keys_only;
  options.r = arguments.r;
  std::ostream& out = session.streams.out;
  // One entry at a time: a keyspace may be larger than memory.
  bool first = true;
  if (session.json()) out << "{\n  \"entries\": [";
  std::string resume;
  absl::StatusOr<ScanEnd> end = client->Scan(
      options,
      [&](const ScannedEntry& entry) {
        if (session.json()) {
          Json json = Json::object();
          AddBytes("key", entry.key, json);
          json["siblings"] = Json::array();
          for (const SiblingValue& sibling : entry.siblings) {
            json["siblings"].push_back(
                SiblingJson(sibling, !arguments.keys_only));
          }
          out << (first ? "\n    " : ",\n    ") << json.dump();
        } else if (arguments.keys_only) {
          out << Printable(entry.key) << "\n";
        } else {
          for (const SiblingValue& sibling : entry.siblings) {
            out << Printable(entry.key) << "\t" << Printable(sibling.value)
                << "\n";
          }
        }
        first = false;
        return static_cast<bool>(out);
      },
      &resume);
  const std::string shown = absl::Base64Escape(resume);
  if (session.json()) {
    out << (first ? "]" : "\n  ]") << ",\n  \"cursor\": \"" << shown << "\"";
    if (!end.ok()) {
      out << ",\n  \"error\": "
          << Json(std::string(end.status().message()))
                 .dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    out << "\n}\n";
  }
  if (!end.ok()) {
    session.Note(absl::StrCat(absl::StatusCodeToString(end.status().code()),
                              ": ", end.status().message(),
                              resume.empty() ? "" : "; go on with --cursor ",
                              shown));
    return kExitFailed;
  }
  if (!session.json() && !end->cursor.empty()) {
    session.Note(absl::StrCat("more follows: --cursor ", shown,
                              ", or --all for everything"));
  }
  return kExitDone;
}

struct LocateArguments {
  KeyArgument key;
  std::string keyspace;
};

int Locate(Session& session, const LocateArguments& arguments) {
  absl::StatusOr<std::string> key = arguments.key.Bytes();
  if (!key.ok()) {
    session.Fail(key.status());
    return kExitUsage;
  }
  v1::LocateRequest request;
  request.set_keyspace(arguments.keyspace);
  request.set_key(*key);
  v1::LocateResponse response;
  AdminClient admin(session);
  absl::Status status = admin.Call(true, [&](auto& stub, auto& context) {
    return stub.Locate(&context, request, &response);
  });
  if (!status.ok()) return session.Fail(status);
  const std::string token =
      absl::StrFormat("%016x", static_cast<uint64_t>(response.token()));
  if (session.json()) {
    Json json = Json::object();
    AddBytes("key", *key, json);
    json["token"] = token;
    json["copies"] = Json::array();
    for (const v1::LocatedCopy& copy : response.copies()) {
      Json one = Json::object();
      one["node_number"] = copy.node_number();
      AddBytes("name", copy.name(), one);
      one["replica"] = copy.replica();
      one["pending"] = copy.pending();
      one["answered"] = copy.answered();
      if (!copy.error().empty()) AddBytes("error", copy.error(), one);
      one["found"] = copy.found();
      one["tombstone"] = copy.tombstone();
      one["siblings"] = copy.siblings();
      one["bytes"] = copy.bytes();
      one["digest"] = absl::StrFormat("%016x", copy.digest());
      if (copy.newest_hlc_timestamp() != 0) {
        one["newest"] = HlcText(copy.newest_hlc_timestamp());
      }
      one["hint_for"] = Json::array();
      for (const uint32_t target : copy.hint_for()) {
        one["hint_for"].push_back(target);
      }
      json["copies"].push_back(std::move(one));
    }
    session.Print(json);
    return kExitDone;
  }
  session.streams.out << "key    " << Printable(*key) << "\ntoken  " << token
                      << "\n\n";
  Table table({"NODE", "ROLE", "HOLDS", ">SIBLINGS", ">BYTES", "DIGEST",
               "NEWEST WRITE"});
  for (const v1::LocatedCopy& copy : response.copies()) {
    std::string role = copy.replica()   ? "replica"
                       : copy.pending() ? "pending replica"
                                        : "stand-in";
    if (copy.hint_for_size() > 0) {
      absl::StrAppend(&role, " for ");
      for (int i = 0; i < copy.hint_for_size(); ++i) {
        absl::StrAppend(&role, i > 0 ? "," : "", "#", copy.hint_for(i));
      }
    }
    const std::string name =
        absl::StrCat(copy.name().empty() ? "" : Printable(copy.name()) + " ",
                     "#", copy.node_number());
    if (!copy.answered()) {
      table.Row({name, role, absl::StrCat("? ", Printable(copy.error())), "",
                 "", "", ""});
    } else if (!copy.found()) {
      table.Row({name, role, copy.pending() ? "not read yet" : "nothing", "",
                 "", "", ""});
    } else {
      table.Row({name, role, copy.tombstone() ? "tombstone" : "value",
                 absl::StrCat(copy.siblings()), FormatBytes(copy.bytes()),
                 absl::StrFormat("%016x", copy.digest()),
                 HlcText(copy.newest_hlc_timestamp())});
    }
  }
  session.streams.out << table.ToString();
  return kExitDone;
}

}  // namespace

void AddDataCommands(CLI::App& app, Session& session) {
  {
    auto arguments = std::make_shared<GetArguments>();
    CLI::App& command = *app.add_subcommand(
        "get", "print the value of a key; exit code 3 if it has none");
    arguments->key.AddTo(command);
    command.add_option("--keyspace", arguments->keyspace, "keyspace");
    command.add_option("--r", arguments->r,
                       "replicas that must answer; 0: the keyspace's R");
    AddQuorum(command, arguments->quorum);
    command.add_option("--max-answer-bytes", arguments->max_answer_bytes,
                       "refuse larger answers; 0: 3 MiB");
    AddSwitch(command, "--raw", arguments->raw,
              "exactly the bytes, without a newline behind them");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] { return Get(session, *arguments); };
    });
  }
  {
    auto arguments = std::make_shared<PutArguments>();
    CLI::App& command = *app.add_subcommand("put", "write the value of a key");
    arguments->key.AddTo(command);
    arguments->value_option = command.add_option(
        "VALUE", arguments->value, "the value; - reads standard input");
    command.add_option("--file", arguments->file, "read the value from a file");
    AddSwitch(command, "--value-hex", arguments->value_hex,
              "the value is hexadecimal");
    AddSwitch(command, "--value-base64", arguments->value_base64,
              "the value is base64");
    command.add_option("--keyspace", arguments->keyspace, "keyspace");
    command.add_option("--w", arguments->w,
                       "replicas that must acknowledge; 0: the keyspace's W");
    AddQuorum(command, arguments->quorum);
    AddContext(command, arguments->context);
    command.add_option("--ttl", arguments->ttl, "time to live")
        ->check(SpanValidator());
    AddSwitch(command, "--blind", arguments->blind,
              "do not read first: concurrent with everything");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] { return Put(session, *arguments); };
    });
  }
  {
    auto arguments = std::make_shared<DeleteArguments>();
    CLI::App& command = *app.add_subcommand("delete", "delete a key");
    arguments->key.AddTo(command);
    command.add_option("--keyspace", arguments->keyspace, "keyspace");
    command.add_option("--w", arguments->w,
                       "replicas that must acknowledge; 0: the keyspace's W");
    AddQuorum(command, arguments->quorum);
    AddContext(command, arguments->context);
    command.callback([&session, arguments] {
      session.run = [&session, arguments] {
        return Delete(session, *arguments);
      };
    });
  }
  {
    auto arguments = std::make_shared<ScanArguments>();
    CLI::App& command = *app.add_subcommand(
        "scan", "list entries of a keyspace in token order");
    command.add_option("--keyspace", arguments->keyspace, "keyspace");
    command.add_option("--cursor", arguments->cursor,
                       "where an earlier scan stopped");
    CLI::Option* const limit =
        command.add_option("--limit", arguments->limit, "entries to list")
            ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 48))
            ->capture_default_str();
    AddSwitch(command, "--all", arguments->all, "list them all")
        ->excludes(limit);
    AddSwitch(command, "--keys-only", arguments->keys_only,
              "leave the values out");
    command.add_option("--r", arguments->r,
                       "replicas that must answer; 0: the keyspace's R");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] { return Scan(session, *arguments); };
    });
  }
  {
    auto arguments = std::make_shared<LocateArguments>();
    CLI::App& command = *app.add_subcommand(
        "locate", "show a key's token, replicas and what each of them holds");
    arguments->key.AddTo(command);
    command.add_option("--keyspace", arguments->keyspace, "keyspace");
    command.callback([&session, arguments] {
      session.run = [&session, arguments] {
        return Locate(session, *arguments);
      };
    });
  }
}

}  // namespace ringkv
