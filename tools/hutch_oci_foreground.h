// A container or a process of exec in the foreground: its terminal relayed, signals passed on, its
// exit code taken over.
#pragma once

#include <csignal>

#include "base/pidfd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/container_config.h"

namespace hutch::tools {

class Foreground {
 public:
  ~Foreground();
  // Before anything is started: blocks the signals that Relay passes on, so that none is lost.
  Status Prepare();
  // The size of the caller's own terminal, for that of the process before it runs; 0, 0 for none.
  static oci::ConsoleSize SizeOfOurs();
  // Until the process has ended, and what it wrote to the terminal has been passed on. The mode of
  // the caller's own terminal comes back on every way out. Reaps the process.
  Result<int> Relay(const Pidfd& process, UniqueFd terminal);

 private:
  UniqueFd signals_;
  sigset_t former_mask_{};
};

}  // namespace hutch::tools
