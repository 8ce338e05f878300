// Signals as something to read, for commands that must clean up whatever ends them.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::tools {

enum class Catch {
  kEnds,         // SIGINT, SIGTERM, SIGHUP
  kForTerminal,  // those, SIGWINCH, SIGTSTP and SIGCONT
};

// Blocks them for good and returns a signalfd(2), not blocking. Errors: kKernel.
Result<UniqueFd> CatchSignals(Catch which);
// The next one caught; 0 for none.
int NextSignal(int signal_fd);

}  // namespace hutch::tools
