// The daemon's program.
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "daemon/command_line.h"
#include "daemon/server.h"

namespace hutch::daemon {
namespace {

LogLevel LevelOf(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "warning") return LogLevel::kWarning;
  return name == "error" ? LogLevel::kError : LogLevel::kInfo;
}

std::string WithField(const Error& error) {
  return error.field.empty() ? error.ToString() : error.field + ": " + error.ToString();
}

int Main(int argc, char** argv) {
  ::umask(077);
  std::signal(SIGPIPE, SIG_IGN);
  const Result<CommandLine> line = ParseCommandLine(argc, argv);
  if (!line.has_value()) {
    std::fprintf(stderr, "hutchd: %s\n", WithField(line.error()).c_str());
    return EXIT_FAILURE;
  }
  if (line->action == CommandLine::Action::kPrint) {
    std::fputs(line->text.c_str(), stdout);
    return EXIT_SUCCESS;
  }
  const Config& config = line->config;
  ConfigureLog(config.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
               LevelOf(config.log_level));
  const Status status = RunServer(config);
  if (status.has_value()) return EXIT_SUCCESS;
  Log(LogLevel::kError, "hutchd cannot run", {{"error", WithField(status.error())}});
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace hutch::daemon

int main(int argc, char** argv) { return hutch::daemon::Main(argc, argv); }
