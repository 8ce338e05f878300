// hutchd's command line.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"
#include "daemon/config_source.h"

namespace hutch::daemon {

struct CommandLine {
  enum class Action { kRun, kPrint };
  Action action = Action::kRun;
  std::string text;           // kPrint: for standard output
  std::vector<Error> errors;  // kPrint: for standard error; the exit code is 1 then
  Config config;              // defaults, the file, then the options
  ConfigSource source;        // to read them again
  std::string file;           // that was read; empty: there is none
  bool takeover = false;      // from a hutchd that runs
};

// Options are "--name VALUE" or "--name=VALUE". kInvalidArgument for an unknown one and for a file
// or value that does not fit; with --check all of them are in `errors`.
Result<CommandLine> ParseCommandLine(int argc, const char* const* argv);

}  // namespace hutch::daemon
