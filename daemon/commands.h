// The commands of one sandbox: those that run, and what ended ones left behind.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "daemon/background.h"
#include "daemon/exec.h"
#include "daemon/leftover.h"
#include "daemon/loop.h"
#include "daemon/tool_process.h"
#include "runtime/sandbox.h"

namespace hutch::daemon {

class Commands {
 public:
  // `changed`: a command began or ended. Borrows everything.
  Commands(Loop& loop, runtime::Sandbox& sandbox, cgroups::Mode mode, Pace* pace = nullptr);
  ~Commands();

  // Runs one; kLimit past `max_running`. `done` as Exec's.
  Result<std::shared_ptr<Exec>> Run(ExecFields fields, oci::ProcessSpec spec, size_t max_running,
                                    Exec::Done done, ExecSink sink = {});
  // Starts a program of ours; not counted as a command.
  Result<std::shared_ptr<ToolProcess>> RunTool(ToolSpec tool, oci::ProcessSpec spec,
                                               ToolProcess::Done done);
  // Starts a process that outlives the call; counted as a command while it runs. Its files are
  // under `directory`, one directory a process. Errors as BackgroundProcess::Start's, kLimit.
  Result<std::shared_ptr<BackgroundProcess>> StartBackground(ProcessFields fields,
                                                             oci::ProcessSpec spec,
                                                             size_t max_running,
                                                             const std::string& directory,
                                                             BackgroundProcess::Started started);
  // By number; kNotFound. Those that ended are remembered up to kMaxEndedProcesses.
  Result<std::shared_ptr<BackgroundProcess>> FindBackground(uint32_t process) const;
  const std::map<uint32_t, std::shared_ptr<BackgroundProcess>>& background() const {
    return background_;
  }
  // One that has ended, children and all, with its log.
  void DropBackground(uint32_t process);
  // Called with each background process that ends.
  void OnBackgroundEnd(std::function<void(const BackgroundProcess&)> listener) {
    ended_ = std::move(listener);
  }
  void OnAgentEvent(const runtime::AgentEvent& event);
  // From now on commands tell which files they changed.
  void TrackFiles(std::unique_ptr<FileTracker> tracker);
  // After a restart. Background processes go on from their records in `directory`. What else has a
  // group belongs to no request: leaders that still run are killed when the agent names them.
  void TakeUp(const std::string& directory);
  void KillAll();  // but not background processes
  // Nothing in the sandbox goes on until Continue(): time-outs stand still.
  void Pause();
  void Continue(uint64_t paused_ms);
  // How long it has been paused, all together.
  void SetPausedTime(uint64_t paused_ms) { place_.paused_ms = paused_ms; }
  void SandboxEnded();

  size_t running() const;  // programs of ours not counted
  size_t awaited() const;  // of them those whose client waits
  size_t count() const { return running_.size() + waiting_.size() + leftovers_.size(); }
  const SandboxCounters& counters() const { return place_.counters; }

 private:
  Status Admit(size_t max_running);
  Status Launch(const std::shared_ptr<Exec>& exec);
  Result<std::shared_ptr<Exec>> RunTracked(std::shared_ptr<Exec> exec);
  void Untrack();
  void TouchFiles();  // something else writes
  void OnStrayEvent(const runtime::AgentEvent& event);
  void RetireSoon(uint32_t process);
  void Retire(uint32_t process);
  void TakeUpBackground(const std::string& directory);
  void KeepNumber(uint32_t process, const std::string& directory);
  void TakeUpNumber(const std::string& directory);
  void Linger(uint32_t process, std::vector<UniqueFd> pipes, std::shared_ptr<Running> running);
  void Gone(uint32_t process, const std::shared_ptr<Running>& running);
  void TrimBackground();

  ExecPlace place_;
  std::map<uint32_t, std::shared_ptr<Running>> running_;
  std::map<uint32_t, std::shared_ptr<BackgroundProcess>> background_;  // ended ones included
  std::set<std::shared_ptr<Exec>> waiting_;  // for the tracker to say how the files are
  std::function<void(const BackgroundProcess&)> ended_;
  std::map<uint32_t, std::unique_ptr<Leftover>> leftovers_;
  uint32_t last_removed_ = 0;  // of background processes
  std::unique_ptr<FileTracker> tracker_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hutch::daemon
