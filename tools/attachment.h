// One's own standard streams, or the terminal, joined to a background process.
#pragma once

#include <string>

#include "base/result.h"
#include "oci/json.h"
#include "tools/endpoint.h"

namespace hutch::tools {

struct AttachmentPlan {
  Endpoint endpoint;
  std::string sandbox;
  std::string process;
  uint64_t cursor = 0;  // where its output begins
  int signal_fd = -1;   // borrowed, of CatchSignals(kForTerminal)
  // Raw mode, sizes and the detach keys; for a process with a terminal, and only where standard
  // input is one.
  bool terminal = false;
  bool input = false;  // passes standard input on, its end included
};

struct AttachmentEnd {
  enum class How {
    kExited,        // `process` is what it was in the end
    kDetached,      // by the keys
    kSignal,        // `signal` struck us
    kOutputClosed,  // nobody reads our standard output
  };
  How how = How::kExited;
  oci::Json process = {};
  int signal = 0;
};

// Until one of them happens. Errors: of the daemon, kUnavailable when it went away. The terminal is
// as before in every case.
Result<AttachmentEnd> Attach(const AttachmentPlan& plan);

// "/v1/sandboxes/{id}/processes/{process}"
std::string ProcessTarget(const std::string& sandbox, const std::string& process);

}  // namespace hutch::tools
