#include "tools/live_view.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "base/text.h"
#include "tools/interrupts.h"
#include "tools/terminal.h"

namespace hutch::tools {
namespace {

constexpr int kPauseMs = 1000;
constexpr char kCtrlC = 0x03;
constexpr const char* kClear = "\x1b[2J";

// The first `columns` characters; not in the middle of one.
std::string_view Cut(std::string_view line, size_t columns) {
  size_t at = 0, seen = 0;
  for (; at < line.size(); ++at) {
    if ((line[at] & 0xc0) == 0x80) continue;
    if (seen++ == columns) break;
  }
  return line.substr(0, at);
}

enum class Next { kDraw, kQuit };

Next TakeKeys(const LiveView& view) {
  char keys[64];
  const ssize_t count = ::read(STDIN_FILENO, keys, sizeof keys);
  if (count <= 0) return Next::kQuit;
  for (ssize_t i = 0; i < count; ++i) {
    if (keys[i] == 'q' || keys[i] == kCtrlC) return Next::kQuit;
    if (view.on_key) view.on_key(keys[i]);
  }
  return Next::kDraw;
}

// The exit code that a signal asks for; 0: it asks for none.
Result<int> TakeSignal(int signal, RawMode& raw) {
  if (signal == SIGTSTP) {
    raw.Leave();
    ::raise(SIGSTOP);
    RETURN_IF_ERROR(raw.Enter());
  }
  const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
  return ends ? 128 + signal : 0;
}

}  // namespace

bool CanShowLive() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

std::string Frame(const std::string& text, size_t rows, size_t columns) {
  std::string frame = "\x1b[H";
  std::vector<std::string> lines = Split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  // The last row stays free: a line feed there would move all the others.
  for (size_t i = 0; i < lines.size() && i + 1 < rows; ++i)
    frame.append(Cut(lines[i], columns)).append("\x1b[K\r\n");
  return frame.append("\x1b[J");
}

Result<int> ShowLive(Client& client, const LiveView& view) {
  ASSIGN_OR_RETURN(const UniqueFd signals, CatchSignals(Catch::kForTerminal));
  RawMode raw(STDIN_FILENO);
  RETURN_IF_ERROR(raw.Enter());
  RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, kClear));
  for (;;) {
    client.set_interrupt_fd(signals.get());
    const Result<std::string> text = view.render();
    client.set_interrupt_fd(-1);
    if (text) {
      const TerminalSize size = SizeOfTerminal(STDOUT_FILENO);
      RETURN_IF_ERROR(WriteAll(STDOUT_FILENO, Frame(*text, size.rows, size.columns)));
    }
    pollfd watched[] = {{STDIN_FILENO, POLLIN, 0}, {signals.get(), POLLIN, 0}};
    if (::poll(watched, 2, text ? kPauseMs : 0) < 0 && errno != EINTR)
      return SysError(errno, "poll");
    if (watched[1].revents == 0 && !text) return text.error();
    if (watched[1].revents != 0) {
      ASSIGN_OR_RETURN(const int exit_code, TakeSignal(NextSignal(signals.get()), raw));
      if (exit_code != 0) return exit_code;
    }
    if (watched[0].revents != 0 && TakeKeys(view) == Next::kQuit) return 0;
  }
}

}  // namespace hutch::tools
