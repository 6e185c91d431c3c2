// What the commands of kvctl share.

#ifndef RINGKV_CLIENT_KVCTL_COMMAND_H_
#define RINGKV_CLIENT_KVCTL_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/kvctl/kvctl.h"
#include "client/load/text.h"
#include "membership/ring/ring.h"
#include "ringkv/v1/admin.grpc.pb.h"
#include "ringkv/v1/kv.grpc.pb.h"

namespace ringkv {

// Options that every command takes, and what it writes to.
struct Session {
  Streams& streams;
  std::string endpoints = "127.0.0.1:7700";
  std::string output = "text";
  std::string timeout = "10s";
  // The chosen command; returns the exit code.
  std::function<int()> run;

  bool json() const { return output == "json"; }
  absl::Duration timeout_span() const;

  // Writes `status` to the error stream (as JSON to the output, too, if asked
  // for) and returns kExitFailed.
  int Fail(const absl::Status& status);
  // One line to the error stream.
  void Note(absl::string_view text);
  void Print(const Json& json);

  absl::StatusOr<Client> Connect(ClientOptions options = {});
};

// Calls of the Admin service to the first endpoint that answers.
class AdminClient {
 public:
  explicit AdminClient(Session& session) : session_(session) {}

  // `call` makes one RPC on a stub. Goes on to the next endpoint after
  // UNAVAILABLE and DEADLINE_EXCEEDED only if `safe` (it changes nothing) or
  // the endpoint could not be reached.
  absl::Status Call(
      bool safe,
      const std::function<grpc::Status(v1::Admin::Stub&, grpc::ClientContext&)>&
          call);

  // The endpoint of the last answer.
  const std::string& answered() const { return answered_; }

 private:
  Session& session_;
  std::string answered_;
};

// The ring as `endpoint` has it.
absl::StatusOr<std::shared_ptr<const Ring>> FetchRing(
    const std::string& endpoint, absl::Duration timeout);
// As the first endpoint that answers has it.
absl::StatusOr<std::shared_ptr<const Ring>> FetchRing(Session& session);

// Columns that line up. Numbers go to the right.
class Table {
 public:
  // A heading that begins with '>' makes a right-aligned column.
  explicit Table(std::vector<std::string> headings);
  void Row(std::vector<std::string> cells);
  std::string ToString() const;

 private:
  std::vector<std::string> headings_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// Options for keys that are no text.
struct KeyArgument {
  std::string text;
  bool hex = false;
  bool base64 = false;

  // Adds the positional KEY and the flags --hex and --base64.
  void AddTo(CLI::App& command);
  // INVALID_ARGUMENT if the text is not what the flag says.
  absl::StatusOr<std::string> Bytes() const;
};

// A flag that may be given once.
CLI::Option* AddSwitch(CLI::App& command, const std::string& name, bool& value,
                       const std::string& help);
// --quorum default|sloppy|strict
CLI::Option* AddQuorum(CLI::App& command, std::string& value);
CallQuorum QuorumOf(const std::string& text);
// Checks "200ms", "5s", "1h30m".
CLI::Validator SpanValidator();
absl::Duration SpanOf(const std::string& text);

// Asks `question` on a terminal. kExitDone: go on. Otherwise it has said that
// nothing is done, or, where nobody can be asked, `refusal`.
int Confirm(Session& session, absl::string_view question,
            absl::string_view refusal);

// True once nobody reads the standard output any more, as after `| head`.
bool OutputReaderIsGone();

// "-" for 0.
std::string CountOrDash(uint64_t count);
std::string Percent(double share, int digits = 2);
// "2026-01-02T03:04:05.678Z" of a hybrid logical clock.
std::string HlcText(uint64_t hlc);

// Each adds its commands to `app`; they set session.run.
void AddDataCommands(CLI::App& app, Session& session);
void AddClusterCommands(CLI::App& app, Session& session);
void AddKeyspaceCommands(CLI::App& app, Session& session);
void AddBulkCommands(CLI::App& app, Session& session);
void AddOperationCommands(CLI::App& app, Session& session);
void AddUpgradeCommands(CLI::App& app, Session& session);
void AddPlayground(CLI::App& app, Session& session);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_KVCTL_COMMAND_H_
