#include "daemon/tool_process.h"

#include <csignal>

#include "base/log.h"

namespace hutch::daemon {

Result<std::shared_ptr<ToolProcess>> ToolProcess::Start(runtime::Sandbox& sandbox, ToolSpec tool,
                                                        oci::ProcessSpec spec, Done done) {
  const std::shared_ptr<ToolProcess> process(new ToolProcess(sandbox, std::move(done)));
  spec.args = std::move(tool.args);
  const runtime::ProcessRequest request{.spec = std::move(spec),
                                        .stdin_fd = tool.stdin_fd.get(),
                                        .stdout_fd = tool.stdout_fd.get(),
                                        .stderr_fd = tool.stderr_fd.get(),
                                        .program_fd = tool.program_fd};
  ASSIGN_OR_RETURN(process->process_, sandbox.StartProcess(request));
  return process;
}

void ToolProcess::OnEvent(const runtime::AgentEvent& event) {
  if (event.kind == runtime::AgentEvent::Kind::kExited) return Finish(event.wait_status);
  if (event.kind == runtime::AgentEvent::Kind::kStartFailed)
    Finish(event.error.value_or(
        Error{.code = Code::kInternal, .what = "a program of hutch's could not be started"}));
}

void ToolProcess::Kill() {
  if (finished()) return;
  const Status killed = sandbox_.KillProcess(process_);
  if (!killed.has_value())
    Log(LogLevel::kError, "cannot kill a program in a sandbox",
        {{"sandbox", sandbox_.id()}, {"error", killed.error().ToString()}});
}

void ToolProcess::SandboxEnded() { Finish(SIGKILL); }

void ToolProcess::Finish(Result<int> outcome) {
  if (finished()) return;
  const Done done = std::exchange(done_, nullptr);
  done(std::move(outcome));
}

}  // namespace hutch::daemon
