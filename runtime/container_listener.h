// The moment a process executes its program, as who started it sees it.
#pragma once

#include "base/result.h"
#include "oci/container_config.h"
#include "oci/json.h"

namespace hutch::runtime {

// Waits until the process at the other end of the socket has executed its program (the socket
// closes then) or says why it has not. A seccomp listener it offers is taken from it by `pid` and
// handed to linux.seccomp.listenerPath, with the state, in the message of the specification.
Status AwaitExecution(int socket_fd, pid_t pid, const oci::ContainerConfig& config,
                      const oci::Json& state);

}  // namespace hutch::runtime
