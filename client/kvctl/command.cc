#include "client/kvctl/command.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/channel.h"
#include "membership/ring/ring_codec.h"

namespace ringkv {
namespace {

// Code points, as a terminal shows them (wide ones aside).
size_t Width(absl::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

absl::Duration Session::timeout_span() const { return SpanOf(timeout); }

int Session::Fail(const absl::Status& status) {
  std::string text = absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                                  status.message());
  streams.err << "kvctl: " << text << "\n";
  if (json()) {
    Json error;
    error["error"]["code"] = absl::StatusCodeToString(status.code());
    AddBytes("message", status.message(), error["error"]);
    if (IsOutcomeUnknown(status)) error["error"]["outcome"] = "unknown";
    Print(error);
  }
  return kExitFailed;
}

void Session::Note(absl::string_view text) {
  streams.err << "kvctl: " << text << "\n";
}

void Session::Print(const Json& json) { streams.out << json.dump(2) << "\n"; }

absl::StatusOr<Client> Session::Connect(ClientOptions options) {
  options.endpoints = endpoints;
  options.deadline = timeout_span();
  options.connect_timeout = std::min(timeout_span(), absl::Seconds(10));
  options.on_warning = [this](const std::string& line) { Note(line); };
  return Client::Connect(std::move(options));
}

absl::Status AdminClient::Call(
    bool safe,
    const std::function<grpc::Status(v1::Admin::Stub&, grpc::ClientContext&)>&
        call) {
  absl::StatusOr<std::vector<std::string>> endpoints =
      ParseEndpoints(session_.endpoints);
  if (!endpoints.ok()) return endpoints.status();
  std::string reasons;
  absl::Status last;
  for (const std::string& endpoint : *endpoints) {
    const std::shared_ptr<grpc::Channel> channel = MakeChannel(endpoint);
    const absl::Duration timeout = session_.timeout_span();
    // Waiting for the connection apart tells "never sent" from "no answer".
    if (!WaitConnected(
            *channel,
            std::min(timeout, absl::Seconds(endpoints->size() > 1 ? 2 : 5)))) {
      last = absl::UnavailableError("cannot connect");
    } else {
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(timeout));
      const std::unique_ptr<v1::Admin::Stub> stub = v1::Admin::NewStub(channel);
      last = FromGrpc(call(*stub, context));
      if (last.ok()) {
        answered_ = endpoint;
        return last;
      }
      if (!safe ||
          (!absl::IsUnavailable(last) && !absl::IsDeadlineExceeded(last))) {
        return absl::Status(last.code(),
                            absl::StrCat(last.message(), " (", endpoint, ")"));
      }
    }
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", endpoint, ": ",
                    last.message());
  }
  return absl::Status(last.code(), reasons);
}

int Confirm(Session& session, absl::string_view question,
            absl::string_view refusal) {
  if (!session.streams.in_is_terminal || session.json()) {
    return session.Fail(absl::FailedPreconditionError(refusal));
  }
  session.streams.out << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(session.streams.in, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return kExitDone;
  session.Note("nothing was done");
  return kExitFailed;
}

bool OutputReaderIsGone() {
  pollfd output = {STDOUT_FILENO, 0, 0};
  return poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

absl::StatusOr<std::shared_ptr<const Ring>> FetchRing(
    const std::string& endpoint, absl::Duration timeout) {
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(endpoint);
  if (!WaitConnected(*channel, std::min(timeout, absl::Seconds(2)))) {
    return absl::UnavailableError("cannot connect");
  }
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(timeout));
  const std::unique_ptr<v1::KeyValue::Stub> stub =
      v1::KeyValue::NewStub(channel);
  const auto reader = stub->WatchRing(&context, v1::WatchRingRequest());
  v1::WatchRingResponse response;
  if (!reader->Read(&response) || !response.has_ring()) {
    const absl::Status status = FromGrpc(reader->Finish());
    return status.ok() ? absl::FailedPreconditionError(
                             "no cluster was formed yet; run kvctl init")
                       : status;
  }
  context.TryCancel();
  reader->Finish();
  absl::StatusOr<RingSpec> spec = RingFromProto(response.ring());
  if (!spec.ok()) return spec.status();
  return Ring::Make(*std::move(spec));
}

absl::StatusOr<std::shared_ptr<const Ring>> FetchRing(Session& session) {
  absl::StatusOr<std::vector<std::string>> endpoints =
      ParseEndpoints(session.endpoints);
  if (!endpoints.ok()) return endpoints.status();
  std::string reasons;
  absl::Status last;
  for (const std::string& endpoint : *endpoints) {
    absl::StatusOr<std::shared_ptr<const Ring>> ring =
        FetchRing(endpoint, std::min(session.timeout_span(), absl::Seconds(5)));
    if (ring.ok()) return ring;
    last = ring.status();
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", endpoint, ": ",
                    last.message());
  }
  return absl::Status(last.code(), reasons);
}

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    const bool right = absl::StartsWith(heading, ">");
    right_.push_back(right);
    headings_.push_back(right ? heading.substr(1) : std::move(heading));
  }
}

void Table::Row(std::vector<std::string> cells) {
  cells.resize(headings_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (const std::string& heading : headings_) widths.push_back(Width(heading));
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string pad(widths[i] - Width(cells[i]), ' ');
      if (i > 0) text += "  ";
      text += right_[i] ? pad + cells[i] : cells[i] + pad;
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    absl::StrAppend(&out, text, "\n");
  };
  line(headings_);
  for (const std::vector<std::string>& row : rows_) line(row);
  return out;
}

void KeyArgument::AddTo(CLI::App& command) {
  command.add_option("KEY", text, "the key")->required();
  CLI::Option* const as_hex =
      AddSwitch(command, "--hex", hex, "KEY is hexadecimal");
  AddSwitch(command, "--base64", base64, "KEY is base64")->excludes(as_hex);
}

absl::StatusOr<std::string> KeyArgument::Bytes() const {
  if (hex) return FromHex(text);
  if (base64) return FromBase64(text);
  return text;
}

CLI::Option* AddSwitch(CLI::App& command, const std::string& name, bool& value,
                       const std::string& help) {
  return command.add_flag(name, value, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

CLI::Option* AddQuorum(CLI::App& command, std::string& value) {
  return command
      .add_option("--quorum", value,
                  "how answers are counted: default (of the keyspace), sloppy "
                  "or strict")
      ->check(CLI::IsMember({"default", "sloppy", "strict"}))
      ->capture_default_str();
}

CallQuorum QuorumOf(const std::string& text) {
  if (text == "sloppy") return CallQuorum::kSloppy;
  if (text == "strict") return CallQuorum::kStrict;
  return CallQuorum::kDefault;
}

CLI::Validator SpanValidator() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        absl::Duration span;
        if (!absl::ParseDuration(text, &span) || span <= absl::ZeroDuration()) {
          return absl::StrCat(
              "\"", text, "\" is no time above 0, as in 200ms, 5s or 1h30m");
        }
        return "";
      },
      "TIME");
}

absl::Duration SpanOf(const std::string& text) {
  absl::Duration span;
  return absl::ParseDuration(text, &span) ? span : absl::ZeroDuration();
}

std::string CountOrDash(uint64_t count) {
  return count == 0 ? "-" : absl::StrCat(count);
}

std::string Percent(double share, int digits) {
  return absl::StrFormat("%.*f %%", digits, share * 100);
}

std::string HlcText(uint64_t hlc) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ",
                          absl::FromUnixMillis(static_cast<int64_t>(hlc >> 16)),
                          absl::UTCTimeZone());
}

}  // namespace ringkv
