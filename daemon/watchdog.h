// Tells systemd that the loop still turns (WatchdogSec=), from the loop itself, so that a daemon
// whose loop is stuck is seen and started anew.
#pragma once

#include <sys/types.h>

#include <optional>

#include "daemon/loop.h"

namespace hutch::daemon {

// How often systemd wants to hear from `pid`: half of WATCHDOG_USEC, if that is set and
// WATCHDOG_PID is this process or nobody in particular. Clears both variables.
std::optional<Milliseconds> TakeWatchdogInterval(pid_t pid);

class Watchdog {
 public:
  // The first word at once.
  void Start(Loop& loop, Milliseconds interval);

 private:
  void Tell();
  Loop* loop_ = nullptr;
  Milliseconds interval_{0};
  bool failed_ = false;  // said once
  Timer timer_;
};

}  // namespace hutch::daemon
