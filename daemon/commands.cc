#include "daemon/commands.h"

#include "base/log.h"

namespace hutch::daemon {

Commands::Commands(Loop& loop, runtime::Sandbox& sandbox, cgroups::Mode mode)
    : place_{.loop = loop, .sandbox = sandbox, .mode = mode, .counters = {}} {}

Commands::~Commands() {
  *alive_ = false;
  Untrack();
}

void Commands::TrackFiles(std::unique_ptr<FileTracker> tracker) {
  tracker_ = std::move(tracker);
  place_.tracker = tracker_.get();
  place_.others = [this](uint32_t process) {
    const cgroups::ProcessGroup* group = place_.sandbox.ProcessCgroup(process);
    if (count() > 1 || group == nullptr) return Others::kRunning;
    const auto populated = group->Populated();
    return populated.has_value() && !*populated ? Others::kQuiet : Others::kRunning;
  };
}

// Who waits for it is called back by this.
void Commands::Untrack() {
  place_.tracker = nullptr;
  tracker_.reset();
}

Result<std::shared_ptr<Exec>> Commands::Run(ExecFields fields, oci::ProcessSpec spec,
                                            size_t max_running, Exec::Done done) {
  if (running_.size() >= max_running)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(running_.size()) + " commands run in this sandbox already"};
  // With anything else alive the counters may have moved since they were read last.
  if (place_.mode == cgroups::Mode::kHybrid && count() > 0)
    place_.counters = ReadCounters(place_.sandbox);
  const bool tracked = fields.track_files && tracker_ != nullptr;
  std::shared_ptr<Exec> exec =
      Exec::Make(place_, std::move(fields), std::move(spec), std::move(done));
  if (tracked) return RunTracked(std::move(exec));
  if (tracker_ != nullptr) tracker_->Touch();
  RETURN_IF_ERROR(Launch(exec));
  return exec;
}

Status Commands::Launch(const std::shared_ptr<Exec>& exec) {
  RETURN_IF_ERROR(exec->Launch());
  running_.emplace(exec->process(), exec);
  return OkStatus();
}

Result<std::shared_ptr<Exec>> Commands::RunTracked(std::shared_ptr<Exec> exec) {
  const Others others = count() == 0 ? Others::kQuiet : Others::kRunning;
  struct Call {
    bool pending = true;  // our caller learns of an error by itself
    Status status = OkStatus();
  };
  const auto call = std::make_shared<Call>();
  waiting_.insert(exec);
  tracker_->Begin(others, [this, alive = alive_, exec, call](FileTracker::SnapshotPointer before) {
    if (!*alive) return;
    waiting_.erase(exec);
    if (exec->answered()) return;  // killed meanwhile
    exec->SetFilesBefore(std::move(before));
    Status launched = Launch(exec);
    if (call->pending)
      call->status = std::move(launched);
    else if (!launched.has_value())
      exec->Fail(std::move(launched).error());
  });
  call->pending = false;
  RETURN_IF_ERROR(call->status);
  return exec;
}

Result<std::shared_ptr<ToolProcess>> Commands::RunTool(ToolSpec tool, oci::ProcessSpec spec,
                                                       ToolProcess::Done done) {
  if (tracker_ != nullptr) tracker_->Touch();
  ASSIGN_OR_RETURN(
      std::shared_ptr<ToolProcess> process,
      ToolProcess::Start(place_.sandbox, std::move(tool), std::move(spec), std::move(done)));
  running_.emplace(process->process(), process);
  return process;
}

void Commands::OnAgentEvent(const runtime::AgentEvent& event) {
  const auto it = running_.find(event.process);
  if (it == running_.end()) {
    // Only a daemon that came back meets a process it did not start: the request it belonged to is
    // lost.
    if (event.kind == runtime::AgentEvent::Kind::kStarted)
      IgnoreError(place_.sandbox.KillProcess(event.process), "it may have ended by itself");
    if (event.kind == runtime::AgentEvent::Kind::kExited)
      place_.sandbox.AcknowledgeExit(event.process);
    return;
  }
  const std::shared_ptr<Running> running = it->second;
  running->OnEvent(event);
  if (!running->finished() || event.kind == runtime::AgentEvent::Kind::kStarted) return;
  if (event.kind == runtime::AgentEvent::Kind::kExited)
    place_.sandbox.AcknowledgeExit(event.process);
  // After the answer has been written: removing the group is nobody's waiting time.
  place_.loop.Post([this, alive = alive_, process = event.process] {
    if (*alive) Retire(process);
  });
}

void Commands::Retire(uint32_t process) {
  const auto it = running_.find(process);
  if (it == running_.end()) return;
  std::vector<UniqueFd> pipes = it->second->TakePipes();
  running_.erase(it);
  if (place_.sandbox.ForgetProcess(process).has_value()) return;
  leftovers_[process] = std::make_unique<Leftover>(
      place_.loop, place_.sandbox, process, std::move(pipes), [this, alive = alive_, process] {
        if (*alive) leftovers_.erase(process);
      });
}

void Commands::TakeUp() {
  if (place_.mode == cgroups::Mode::kHybrid) place_.counters = ReadCounters(place_.sandbox);
  for (const uint32_t process : place_.sandbox.Processes())
    leftovers_[process] =
        std::make_unique<Leftover>(place_.loop, place_.sandbox, process, std::vector<UniqueFd>(),
                                   [this, alive = alive_, process] {
                                     if (*alive) leftovers_.erase(process);
                                   });
}

void Commands::KillAll() {
  const auto running = running_;
  const auto waiting = waiting_;
  for (const auto& [process, exec] : running) exec->Kill();
  for (const auto& exec : waiting) exec->Kill();
}

void Commands::SandboxEnded() {
  const auto running = running_;
  for (const auto& exec : std::exchange(waiting_, {})) exec->SandboxEnded();
  Untrack();
  for (const auto& [process, exec] : running) exec->SandboxEnded();
  running_.clear();
  leftovers_.clear();
}

}  // namespace hutch::daemon
