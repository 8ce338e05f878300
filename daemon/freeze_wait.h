// Freezes the processes of a sandbox and tells when they are frozen, or that they do not freeze.
// On the loop's thread.
#pragma once

#include <functional>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/tree.h"
#include "daemon/loop.h"

namespace hutch::daemon {

class FreezeWait {
 public:
  using Done = std::function<void(const Status&)>;

  FreezeWait(Loop& loop, const cgroups::SandboxGroup& group, Done done)
      : loop_(loop), group_(group), done_(std::move(done)) {}
  // `done` once, in a turn of its own: the kernel said that all is frozen; or why not, and then it
  // is thawed again: kUnavailable after kFreezeDeadline. Not when this is destroyed before.
  void Start();

 private:
  void Look();
  void Finish(Status status);

  Loop& loop_;
  const cgroups::SandboxGroup& group_;
  Done done_;
  UniqueFd events_;
  Watch watch_;
  SteadyTime begun_;
  Milliseconds pause_{1};
  Timer timer_;
};

}  // namespace hutch::daemon
