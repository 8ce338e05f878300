// hutch: the command line of hutchd.
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/file.h"
#include "tools/arguments.h"
#include "tools/commands.h"
#include "tools/completion.h"
#include "tools/doctor/mount_probe.h"
#include "tools/doctor/network_probe.h"

namespace {

using namespace hutch;
using namespace hutch::tools;

int Run(const CommandRow& command, const Options& options) {
  Result<Endpoint> endpoint = EndpointOf(options);
  if (!endpoint) {
    PrintError(endpoint.error(), options);
    return PassesExitCode(command) ? kExitOwnError : kExitFailed;
  }
  Client client(std::move(*endpoint));
  Context context = {options, client, ColoursFor(STDOUT_FILENO)};
  const Result<int> exit_code = command.run(context);
  if (exit_code) return *exit_code;
  PrintError(exit_code.error(), options);
  return PassesExitCode(command) ? kExitOwnError : kExitFailed;
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // a reader that went away is an EPIPE: run must still clean up
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (!words.empty() && words[0] == "__complete") {
    PrintCompletions(std::span(words).subspan(1));
    return 0;
  }
  if (!words.empty() && words[0] == "__hold-namespace") return HoldNamespace(words);
  if (!words.empty() && words[0] == "__probe-network") return AnswerNetworkProbe(words);
  const Arguments arguments = ParseArguments(words);
  if (arguments.command != nullptr) return Run(*arguments.command, arguments.options);
  const int output = arguments.exit_code == 0 ? STDOUT_FILENO : STDERR_FILENO;
  IgnoreError(WriteAll(output, arguments.text), "nowhere is left to say it");
  return arguments.exit_code;
}
