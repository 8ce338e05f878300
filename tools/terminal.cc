#include "tools/terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace hutch::tools {
namespace {

constexpr char kCtrlP = 0x10;
constexpr char kCtrlQ = 0x11;

// What a signal handler and atexit(3) need; they can be handed nothing.
termios former_mode;
volatile sig_atomic_t raw_fd = -1;

// SIGTERM, SIGINT and SIGHUP come as descriptors; these end the program where they strike.
constexpr int kFatalSignals[] = {SIGQUIT, SIGILL,  SIGABRT, SIGFPE,  SIGSEGV, SIGBUS, SIGTRAP,
                                 SIGSYS,  SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};

void Restore() {
  const int fd = raw_fd;
  if (fd < 0) return;
  raw_fd = -1;
  // At once: waiting for output to drain could take for ever. Safe in a handler (POSIX).
  ::tcsetattr(fd, TCSANOW, &former_mode);
}

void RestoreAndDie(int signal) {
  Restore();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void InstallOnce() {
  [[maybe_unused]] static const bool installed = [] {
    std::atexit(Restore);
    for (const int signal : kFatalSignals) {
      struct sigaction action = {};
      action.sa_handler = RestoreAndDie;
      ::sigaction(signal, &action, nullptr);
    }
    return true;
  }();
}

}  // namespace

TerminalSize SizeOfTerminal(int fd) {
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {.rows = size.ws_row, .columns = size.ws_col};
}

Status RawMode::Enter(Output output) {
  if (raw_fd >= 0) return OkStatus();
  if (::tcgetattr(fd_, &former_mode) != 0) return SysError(errno, "tcgetattr");
  InstallOnce();
  termios raw = former_mode;
  ::cfmakeraw(&raw);
  if (output == Output::kWithReturns) raw.c_oflag |= OPOST;
  // Recorded first: a signal in between restores what was never changed.
  raw_fd = fd_;
  if (::tcsetattr(fd_, TCSANOW, &raw) != 0) {
    raw_fd = -1;
    return SysError(errno, "tcsetattr");
  }
  // From the background, too, the former mode must come back: ignored, SIGTTOU does not stop us.
  ::signal(SIGTTOU, SIG_IGN);
  return OkStatus();
}

void RawMode::Leave() { Restore(); }

std::string DetachKeys::Feed(std::string_view typed) {
  std::string passed;
  for (const char key : typed) {
    if (pending_ && key == kCtrlQ) {
      pending_ = false;
      detached_ = true;
      return passed;
    }
    passed += TakeWaiting();
    if (key == kCtrlP)
      pending_ = true;
    else
      passed += key;
  }
  return passed;
}

std::string DetachKeys::TakeWaiting() {
  const bool waited = std::exchange(pending_, false);
  return waited ? std::string(1, kCtrlP) : std::string();
}

}  // namespace hutch::tools
