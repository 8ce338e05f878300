// The daemon's program.
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/fault_point.h"
#include "base/log.h"
#include "daemon/command_line.h"
#include "daemon/reload.h"
#include "daemon/server.h"

namespace hutch::daemon {
namespace {

int Main(int argc, char** argv) {
  ::umask(077);
  TakeFaultVariable();
  std::signal(SIGPIPE, SIG_IGN);
  Result<CommandLine> line = ParseCommandLine(argc, argv);
  if (!line.has_value()) {
    std::fprintf(stderr, "hutchd: %s\n", WithField(line.error()).c_str());
    return EXIT_FAILURE;
  }
  if (line->action == CommandLine::Action::kPrint) {
    for (const Error& error : line->errors)
      std::fprintf(stderr, "hutchd: %s\n", WithField(error).c_str());
    std::fputs(line->text.c_str(), stdout);
    return line->errors.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  ConfigureLog(LogFormatOf(line->config), LogLevelOf(line->config));
  const Status status = RunServer(std::move(*line));
  if (status.has_value()) return EXIT_SUCCESS;
  Log(LogLevel::kError, "hutchd cannot run", {{"error", WithField(status.error())}});
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace hutch::daemon

int main(int argc, char** argv) { return hutch::daemon::Main(argc, argv); }
