// A text that is drawn again and again on the terminal, until a key or a signal ends it.
#pragma once

#include <functional>
#include <string>

#include "tools/client.h"
#include "tools/commands.h"

namespace hutch::tools {

struct LiveView {
  std::function<Result<std::string>()> render;  // lines, as now
  std::function<void(char)> on_key = {};        // but q and ctrl-C, which end it
};

// Whether both standard input and output are a terminal.
bool CanShowLive();
// Draws every second. The terminal is in raw mode meanwhile and as it was afterwards, whatever ends
// this. The value is the exit code: 0, or 128 and the signal. Calls of `client` are interrupted by
// signals.
Result<int> ShowLive(Client& client, const LiveView& view);

// As many lines, and of each as many characters, as the terminal has, with what draws them over
// what is there.
std::string Frame(const std::string& text, size_t rows, size_t columns);

}  // namespace hutch::tools
