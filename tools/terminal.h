// The terminal that hutch runs in: its size, its raw mode, the keys that detach from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::tools {

struct TerminalSize {
  uint16_t rows = 24;
  uint16_t columns = 80;
};
// Of the terminal at this descriptor; 24 x 80 when it has none.
TerminalSize SizeOfTerminal(int fd);

// Raw mode for as long as it lives. The former mode comes back with its end, with exit(3), and with
// every signal that ends a program (SIGKILL excepted). One at a time.
class RawMode {
 public:
  // Whether a line that is written to the terminal still gets its carriage return.
  enum class Output { kRaw, kWithReturns };
  // Borrows `fd`, a terminal. Not raw yet.
  explicit RawMode(int fd) : fd_(fd) {}
  ~RawMode() { Leave(); }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

  // kKernel when `fd` is no terminal. Again after Leave (a stopped program that goes on).
  Status Enter(Output output = Output::kRaw);
  void Leave();

 private:
  int fd_;
};

// ctrl-p ctrl-q among the bytes that are typed. A ctrl-p waits for what comes after it.
class DetachKeys {
 public:
  // The bytes to pass on; those behind the keys are dropped.
  std::string Feed(std::string_view typed);
  bool detached() const { return detached_; }
  bool waits() const { return pending_; }
  // The ctrl-p that nothing followed, or nothing.
  std::string TakeWaiting();

 private:
  bool pending_ = false, detached_ = false;
};

}  // namespace hutch::tools
