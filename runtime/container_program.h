// Which file a container's process executes, and why not.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::runtime {

// A name with a slash as it is; any other in the PATH of `env` (the usual directories when it has
// none). Asked with the caller's ids, in the caller's root and working directory. kCommandNotFound
// and kCommandNotExecutable in runc's words, which engines compare: `exec: "x": executable file not
// found in $PATH`.
Result<std::string> FindProgram(const std::string& name, const std::vector<std::string>& env);

// execve(2); comes back with the error only.
Error ExecuteProgram(const std::string& path, const std::vector<std::string>& args,
                     const std::vector<std::string>& env);

}  // namespace hutch::runtime
