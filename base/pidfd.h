// A process handle. Never a bare pid_t: pids are reused, pidfds are not (pidfd_open(2)).
#pragma once

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch {

class Pidfd {
 public:
  Pidfd() = default;
  Pidfd(UniqueFd fd, pid_t pid) : fd_(std::move(fd)), pid_(pid) {}

  // Opens a handle for a process that may not be our child. kNotFound when there is no such
  // process.
  static Result<Pidfd> Open(pid_t pid);

  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }  // readable (POLLIN) once the process has ended
  pid_t pid() const { return pid_; }    // for messages and files only, never for kill(2)

  // pidfd_send_signal(2). "Already ended" (ESRCH) is success.
  Status Signal(int signal) const;
  bool HasEnded() const;
  // Waits at most timeout_ms for the end (-1: for ever); false when it still lives.
  bool WaitEnded(int timeout_ms) const;

 private:
  UniqueFd fd_;
  pid_t pid_ = 0;
};

}  // namespace hutch
