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

// Whether descriptors 3 .. 3 + count - 1 are open and to be inherited: what is passed on to the
// program must be the caller's, none that is opened here. kInvalidArgument names one that is not.
Status CheckPreserved(unsigned count);

// execve(2); comes back with the error only.
Error ExecuteProgram(const std::string& path, const std::vector<std::string>& args,
                     const std::vector<std::string>& env);

}  // namespace hutch::runtime
