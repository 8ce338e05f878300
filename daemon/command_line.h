// hutchd's command line. The only place that knows CLI11.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "daemon/config.h"

namespace hutch::daemon {

struct CommandLine {
  std::optional<int>
      exit_code;  // --help and --version were answered, or the usage was wrong (told on stderr)
  Config config;  // defaults, the file, then the options
};

// kInvalidArgument for a file or value that does not fit.
Result<CommandLine> ParseCommandLine(int argc, char** argv);

}  // namespace hutch::daemon
