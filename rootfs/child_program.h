// Programs that the library runs for itself (hutch-unpack, mmdebstrap): started by posix_spawn(3),
// which is safe from any thread, with exactly the descriptors they are given.
#pragma once

#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"

namespace hutch::rootfs {

struct ProgramRequest {
  std::string path;               // without a slash: looked for in PATH
  std::vector<std::string> args;  // the first is the program's name
  std::vector<std::string> env;
  std::vector<int> fds;  // fds[i] (borrowed) becomes descriptor i; -1: /dev/null
};

// A child of ours; killed and reaped when it goes out of scope unless waited for.
class ChildProgram {
 public:
  // kNotFound when there is no such program.
  static Result<ChildProgram> Start(const ProgramRequest& request);
  ChildProgram(ChildProgram&&) noexcept = default;
  ChildProgram& operator=(ChildProgram&&) = delete;
  ~ChildProgram();

  // Waits at most timeout_ms for the end; false when it still runs.
  bool WaitEnded(int timeout_ms) const { return process_.WaitEnded(timeout_ms); }
  // Its exit code, or 128 + the signal that ended it.
  Result<int> Wait();
  Status Kill() const { return process_.Signal(9); }

 private:
  explicit ChildProgram(Pidfd process) : process_(std::move(process)) {}
  Pidfd process_;
};

// A program of ours: beside this one, in ../bin, ../libexec/hutch or ../../libexec/hutch. kNotFound
// lists where it was looked for.
Result<std::string> FindProgram(const std::string& name);

}  // namespace hutch::rootfs
