// What runs in a sandbox for somebody: a command of a client's, a background process, a program of
// ours. The registry in daemon/commands.h tells each its events. On the loop's thread.
#pragma once

#include <vector>

#include "base/unique_fd.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

class Running {
 public:
  virtual ~Running() = default;
  virtual void OnEvent(const runtime::AgentEvent& event) = 0;
  virtual void Kill() = 0;          // asked for, or nobody waits for it any more
  virtual void SandboxEnded() = 0;  // everything of it is dead
  // Its sandbox is paused, and goes on: its time-out stands still meanwhile.
  virtual void Paused() {}
  virtual void Continued() {}
  // Its end has been dealt with: the registry acknowledges it to the agent and lets go of it.
  virtual bool finished() const = 0;
  virtual bool is_command() const { return true; }  // a client's, not a program of ours
  // Whether the agent goes on keeping its descriptors until nothing of it lives; GroupGone() then.
  virtual bool keeps_until_empty() const { return false; }
  virtual void GroupGone() {}
  virtual bool stored() const { return true; }  // its end survives this daemon
  // After the end: read ends that its children may still write to.
  virtual std::vector<UniqueFd> TakePipes() { return {}; }
};

}  // namespace hutch::daemon
