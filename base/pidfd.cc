#include "base/pidfd.h"

#include <poll.h>

#include "base/sys_raw.h"

namespace hutch {

Result<Pidfd> Pidfd::Open(pid_t pid) {
  const int fd = sys::PidfdOpen(pid, 0);
  if (fd < 0) {
    Error error = SysError(-fd, "pidfd_open " + std::to_string(pid));
    if (fd == -ESRCH) error.code = Code::kNotFound;
    return error;
  }
  return Pidfd(UniqueFd(fd), pid);
}

Status Pidfd::Signal(int signal) const {
  const int rc = sys::PidfdSendSignal(fd_.get(), signal);
  if (rc < 0 && rc != -ESRCH) return SysError(-rc, "signal process " + std::to_string(pid_));
  return OkStatus();
}

bool Pidfd::WaitEnded(int timeout_ms) const {
  pollfd p{fd_.get(), POLLIN, 0};
  int rc;
  do rc = ::poll(&p, 1, timeout_ms);
  while (rc < 0 && errno == EINTR);
  return rc > 0;
}

bool Pidfd::HasEnded() const { return WaitEnded(0); }

}  // namespace hutch
