// Running another program: posix_spawn(3), its standard streams, its end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::tools {

// Borrowed descriptors for the child's streams; -1 is /dev/null.
struct Streams {
  int in_fd = -1;
  int out_fd = -1;
  int err_fd = -1;
};

// Starts argv[0] (found in PATH) with the caller's environment and default signals. The caller
// reaps the child. kCommandNotFound when there is no such program.
Result<pid_t> Spawn(const std::vector<std::string>& argv, const Streams& streams);

// waitpid(2): the exit code, or 128+n for signal n.
Result<int> WaitForExit(pid_t pid);

struct Finished {
  int exit_code = 0;
  std::string output;  // of both streams
};
// Runs a program to its end, its input `in_fd` as in Streams. kTooLarge when it says more than 1
// MiB.
Result<Finished> RunToEnd(const std::vector<std::string>& argv, int in_fd = -1);

// Whether PATH has such a program.
bool ProgramExists(const std::string& name);

}  // namespace hutch::tools
