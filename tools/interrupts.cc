#include "tools/interrupts.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace hutch::tools {

Result<UniqueFd> CatchSignals(Catch which) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  if (which == Catch::kForTerminal)
    for (const int signal : {SIGWINCH, SIGTSTP, SIGCONT}) sigaddset(&set, signal);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return SysError(errno, "sigprocmask");
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return SysError(errno, "signalfd");
  return fd;
}

int NextSignal(int signal_fd) {
  signalfd_siginfo info = {};
  const ssize_t n = ::read(signal_fd, &info, sizeof info);
  return n == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace hutch::tools
