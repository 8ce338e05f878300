// The command line, read by the tables of options.h and commands.h.
#pragma once

#include <string>
#include <vector>

#include "tools/commands.h"

namespace hutch::tools {

struct Arguments {
  const CommandRow* command = nullptr;  // nullptr: print `text` and leave with `exit_code`
  Options options;
  std::string text;  // help, the version, or what is wrong
  int exit_code = 0;
};

// `words` without the program's name. Everything behind the first "--" is the command, verbatim.
Arguments ParseArguments(std::vector<std::string> words);

}  // namespace hutch::tools
