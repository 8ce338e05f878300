// hutchd's command line.
#pragma once

#include <string>

#include "base/result.h"
#include "daemon/config.h"

namespace hutch::daemon {

struct CommandLine {
  enum class Action { kRun, kPrint };
  Action action = Action::kRun;
  std::string text;  // kPrint: what --help or --version prints
  Config config;     // defaults, the file, then the options
};

// Options are "--name VALUE" or "--name=VALUE". kInvalidArgument for an unknown one and for a file
// or value that does not fit.
Result<CommandLine> ParseCommandLine(int argc, const char* const* argv);

}  // namespace hutch::daemon
