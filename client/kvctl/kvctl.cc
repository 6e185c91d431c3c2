#include "client/kvctl/kvctl.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "client/channel.h"
#include "client/kvctl/command.h"

#ifndef RINGKV_VERSION
#define RINGKV_VERSION "0.1.0"
#endif

namespace ringkv {

int RunKvctl(const std::vector<std::string>& arguments, Streams& streams) {
  Session session{streams};
  CLI::App app("kvctl: the command line of RingKV", "kvctl");
  app.set_version_flag("--version", "kvctl " RINGKV_VERSION);
  app.require_subcommand(1);
  // Common options may stand behind the command, too.
  app.fallthrough();
  app.add_option("--endpoint", session.endpoints,
                 "nodes to talk to: host:port, several separated by commas")
      ->envname("RINGKV_ENDPOINT")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](std::string& text) -> std::string {
            const auto parsed = ParseEndpoints(text);
            return parsed.ok() ? "" : std::string(parsed.status().message());
          },
          "HOST:PORT,..."));
  app.add_option("-o,--output", session.output, "form of the output")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--timeout", session.timeout,
                 "time that one request may take, over all its tries")
      ->check(SpanValidator())
      ->capture_default_str();
  AddDataCommands(app, session);
  AddBulkCommands(app, session);
  AddClusterCommands(app, session);
  AddKeyspaceCommands(app, session);
  AddOperationCommands(app, session);
  AddUpgradeCommands(app, session);
  AddPlayground(app, session);

  std::vector<const char*> argv = {"kvctl"};
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return absl::StrCat("kvctl: ", error.what(), "\nkvctl --help says more\n");
  });
  try {
    app.parse(static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::RequiredError& error) {
    // Where a command is missing, the parser does not name the word that is
    // none.
    const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
    streams.err << "kvctl: "
                << (unknown.empty()
                        ? std::string(error.what())
                        : absl::StrCat("\"", Printable(unknown.front()),
                                       "\" is no command"))
                << "\nkvctl --help lists the commands\n";
    return kExitUsage;
  } catch (const CLI::ParseError& error) {
    // Help and version are such "errors", too.
    const int code = app.exit(error, streams.out, streams.err);
    return code == 0 ? kExitDone : kExitUsage;
  }
  const int code = session.run ? session.run() : kExitUsage;
  streams.out.flush();
  if (!streams.out && code == kExitDone) {
    // A reader that has seen enough (`| head`) is no news.
    if (!OutputReaderIsGone()) session.Note("the output could not be written");
    return kExitFailed;
  }
  return code;
}

}  // namespace ringkv
