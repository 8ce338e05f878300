// The daemon as a whole: puts the parts together in the order they need, runs the loop, and stops
// in good order.
#pragma once

#include "base/result.h"
#include "daemon/command_line.h"

namespace hutch::daemon {

// Runs until SIGTERM or SIGINT; at SIGHUP it reads the configuration again. Sandboxes stay alive:
// the next hutchd of the same run directory takes them up. Call from main, without threads, umask
// 077 and SIGPIPE ignored.
Status RunServer(CommandLine line);

}  // namespace hutch::daemon
