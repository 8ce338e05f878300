#include "daemon/workspaces.h"

namespace hutch::daemon {

WorkspaceKernel RealWorkspaceKernel() {
  return {.make = network::MakeWorkspace,
          .join = network::JoinWorkspace,
          .leave = network::LeaveWorkspace};
}

}  // namespace hutch::daemon
