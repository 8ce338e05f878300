// The commands of one sandbox: those that run, and what ended ones left behind.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "daemon/exec.h"
#include "daemon/leftover.h"
#include "daemon/loop.h"
#include "daemon/tool_process.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

class Commands {
 public:
  // `changed`: a command began or ended. Borrows everything.
  Commands(Loop& loop, runtime::Sandbox& sandbox, cgroups::Mode mode);
  ~Commands();

  // Runs one; kLimit past `max_running`. `done` as Exec's.
  Result<std::shared_ptr<Exec>> Run(ExecFields fields, oci::ProcessSpec spec, size_t max_running,
                                    Exec::Done done);
  // Starts a program of ours; not counted as a command.
  Result<std::shared_ptr<ToolProcess>> RunTool(ToolSpec tool, oci::ProcessSpec spec,
                                               ToolProcess::Done done);
  void OnAgentEvent(const runtime::AgentEvent& event);
  // From now on commands tell which files they changed.
  void TrackFiles(std::unique_ptr<FileTracker> tracker);
  // After a restart: what still has a group belongs to no request. Leaders that still run are
  // killed when the agent names them.
  void TakeUp();
  void KillAll();
  void SandboxEnded();

  size_t running() const { return running_.size() + waiting_.size(); }
  size_t count() const { return running() + leftovers_.size(); }
  const SandboxCounters& counters() const { return place_.counters; }

 private:
  Status Launch(const std::shared_ptr<Exec>& exec);
  Result<std::shared_ptr<Exec>> RunTracked(std::shared_ptr<Exec> exec);
  void Untrack();
  void Retire(uint32_t process);

  ExecPlace place_;
  std::map<uint32_t, std::shared_ptr<Running>> running_;
  std::set<std::shared_ptr<Exec>> waiting_;  // for the tracker to say how the files are
  std::map<uint32_t, std::unique_ptr<Leftover>> leftovers_;
  std::unique_ptr<FileTracker> tracker_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hutch::daemon
