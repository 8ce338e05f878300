#include "tools/hutch_oci_foreground.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "base/file.h"
#include "runtime/container.h"
#include "tools/terminal.h"

namespace hutch::tools {
namespace {

constexpr size_t kChunkBytes = 16384;

// Moves what is there; false at the end of either side.
bool MoveSome(int from_fd, int to_fd) {
  char buffer[kChunkBytes];
  const ssize_t n = ::read(from_fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  return WriteAll(to_fd, {buffer, static_cast<size_t>(n)}).has_value();
}

void PassSize(int terminal_fd) {
  winsize size{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) ::ioctl(terminal_fd, TIOCSWINSZ, &size);
}

// What is still in the terminal when its last holder has gone: reads end with EIO then.
void Drain(int terminal_fd) {
  pollfd ready{terminal_fd, POLLIN, 0};
  while (::poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN) != 0)
    if (!MoveSome(terminal_fd, STDOUT_FILENO)) return;
}

void PassSignal(int signals_fd, const Pidfd& process, int terminal_fd) {
  signalfd_siginfo info;
  if (::read(signals_fd, &info, sizeof info) != sizeof info) return;
  const int signal = static_cast<int>(info.ssi_signo);
  if (signal == SIGWINCH && terminal_fd >= 0)
    PassSize(terminal_fd);
  else if (signal != SIGCHLD)
    IgnoreError(process.Signal(signal), "then it has ended");
}

// A ctrl-d that was typed before us would turn into a NUL with the raw mode.
void PassPendingEnd(int terminal_fd) {
  pollfd ready{STDIN_FILENO, POLLIN, 0};
  int bytes = 0;
  const bool end = ::poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0 &&
                   ::ioctl(STDIN_FILENO, FIONREAD, &bytes) == 0 && bytes == 0;
  char none;
  if (!end || ::read(STDIN_FILENO, &none, 1) != 0) return;
  constexpr char kEndOfTransmission = 4;
  IgnoreError(WriteAll(terminal_fd, {&kEndOfTransmission, 1}), "the relay tells");
}

}  // namespace

oci::ConsoleSize CallersTerminalSize() {
  winsize size{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {.height = size.ws_row, .width = size.ws_col};
}

Foreground::~Foreground() {
  if (signals_.valid()) ::sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
}

Status Foreground::Prepare() {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT})
    ::sigaddset(&mask, signal);
  if (::sigprocmask(SIG_BLOCK, &mask, &former_mask_) != 0) return SysError(errno, "sigprocmask");
  signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC));
  return signals_.valid() ? OkStatus() : Status(SysError(errno, "signalfd"));
}

Result<int> Foreground::Relay(const Pidfd& process, UniqueFd terminal) {
  std::optional<RawMode> raw;
  if (terminal.valid() && ::isatty(STDIN_FILENO) == 1) {
    PassSize(terminal.get());  // it may have changed meanwhile
    PassPendingEnd(terminal.get());
    raw.emplace(STDIN_FILENO);
    // The container's terminal leaves lines as they are written: output may be a file.
    RETURN_IF_ERROR(raw->Enter(RawMode::Output::kWithReturns));
  }
  enum { kProcess, kSignals, kTerminal, kInput };
  pollfd fds[] = {{process.fd(), POLLIN, 0},
                  {signals_.get(), POLLIN, 0},
                  {terminal.get(), POLLIN, 0},
                  {terminal.valid() ? STDIN_FILENO : -1, POLLIN, 0}};
  while (true) {
    if (::poll(fds, std::size(fds), -1) < 0) {
      if (errno == EINTR) continue;
      return SysError(errno, "poll");
    }
    if (fds[kSignals].revents != 0) PassSignal(signals_.get(), process, terminal.get());
    if (fds[kInput].revents != 0 && !MoveSome(STDIN_FILENO, terminal.get())) fds[kInput].fd = -1;
    if (fds[kTerminal].revents != 0 && !MoveSome(terminal.get(), STDOUT_FILENO))
      fds[kTerminal].fd = -1;
    if (fds[kProcess].revents != 0) break;
  }
  if (terminal.valid()) Drain(terminal.get());
  return runtime::ReapExitCode(process);
}

}  // namespace hutch::tools
