// The reply of an exec, as a command line passes it on.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::tools {

inline constexpr int kExitStillRunning = 123;
inline constexpr int kExitTimedOut = 124;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct ExecOutcome {
  int exit_code = 0;               // the command's own, 128+n for signal n, 124 for a time-out
  std::string out, err;            // bytes as the command wrote them
  std::vector<std::string> notes;  // what befell it, a line each with what to do about it
};

// kInternal when the reply is not what docs/api.md says.
Result<ExecOutcome> ReadExecReply(const oci::Json& reply);
// The same of what has no output in it: an "exit" event, or a process that has ended.
Result<ExecOutcome> ReadEnd(const oci::Json& end);

// One "output" event, or one chunk of a process's log.
struct OutputPiece {
  bool to_stderr = false;
  std::string bytes;
};
Result<OutputPiece> ReadOutputPiece(const oci::Json& event);

// 127 and 126 for a command that is not there or cannot be executed, 125 for everything else.
int ExitCodeFor(const Error& error);

// 9 for "SIGKILL"; 0 for a name that is none.
int SignalNumber(const std::string& name);

}  // namespace hutch::tools
