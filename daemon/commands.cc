#include "daemon/commands.h"

#include "base/log.h"

namespace hutch::daemon {

Commands::Commands(Loop& loop, runtime::Sandbox& sandbox, cgroups::Mode mode)
    : place_{.loop = loop, .sandbox = sandbox, .mode = mode, .counters = {}} {}

Commands::~Commands() { *alive_ = false; }

Result<std::shared_ptr<Exec>> Commands::Run(ExecFields fields, oci::ProcessSpec spec,
                                            size_t max_running, Exec::Done done) {
  if (running_.size() >= max_running)
    return Error{.code = Code::kLimit,
                 .what = std::to_string(running_.size()) + " commands run in this sandbox already"};
  // With anything else alive the counters may have moved since they were read last.
  if (count() > 0) place_.counters = ReadCounters(place_.sandbox);
  ASSIGN_OR_RETURN(std::shared_ptr<Exec> exec,
                   Exec::Start(place_, std::move(fields), std::move(spec), std::move(done)));
  running_.emplace(exec->process(), exec);
  return exec;
}

Result<std::shared_ptr<ToolProcess>> Commands::RunTool(ToolSpec tool, oci::ProcessSpec spec,
                                                       ToolProcess::Done done) {
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
  place_.counters = ReadCounters(place_.sandbox);
  for (const uint32_t process : place_.sandbox.Processes())
    leftovers_[process] =
        std::make_unique<Leftover>(place_.loop, place_.sandbox, process, std::vector<UniqueFd>(),
                                   [this, alive = alive_, process] {
                                     if (*alive) leftovers_.erase(process);
                                   });
}

void Commands::KillAll() {
  const auto running = running_;
  for (const auto& [process, exec] : running) exec->Kill();
}

void Commands::SandboxEnded() {
  const auto running = running_;
  for (const auto& [process, exec] : running) exec->SandboxEnded();
  running_.clear();
  leftovers_.clear();
}

}  // namespace hutch::daemon
