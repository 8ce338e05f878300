// The daemon as a whole: puts the parts together in the order they need, runs the loop, and stops
// in good order.
#pragma once

#include "base/result.h"
#include "daemon/config.h"

namespace hutch::daemon {

// Runs until SIGTERM or SIGINT. Sandboxes stay alive: the next hutchd of the same run directory
// takes them up. Call from main, without threads, umask 077 and SIGPIPE ignored.
Status RunServer(const Config& config);

}  // namespace hutch::daemon
