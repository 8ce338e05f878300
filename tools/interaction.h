// A command that is talked to while it runs: a background process of ours, attached, and removed in
// the end.
#pragma once

#include <string>

#include "base/result.h"
#include "oci/json.h"
#include "tools/commands.h"

namespace hutch::tools {

// POST .../processes. A body without a command gets bash, or sh where there is no bash.
Result<oci::Json> StartProcess(Client& client, const std::string& sandbox, oci::Json body);

// What -t needs: kInvalidArgument when standard input is no terminal.
Status CheckTerminal(const Options& options);

struct Interaction {
  int exit_code = 0;
  bool detached = false;  // it goes on; the user was told its id
};
// Starts `body`, attaches, passes its exit code on. `signal_fd` is of CatchSignals(kForTerminal).
// An error of starting it is printed here, as its exit code depends on its kind.
Result<Interaction> Interact(Context& context, const std::string& sandbox, oci::Json body,
                             int signal_fd);

// The error is printed, the value its exit code: 127 and 126 for commands that do not start.
int Failed(const Error& error, const Options& options);
// Notes on standard error what befell a process that has ended; its exit code.
Result<int> PassOnEnd(const oci::Json& end);

}  // namespace hutch::tools
