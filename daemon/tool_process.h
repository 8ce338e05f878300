// A program of ours that runs inside a sandbox as one of its users (files/): started from a sealed
// memfd, in a cgroup of its own, no time-out of its own. What it says on its descriptors is as
// untrusted as anything else from a sandbox.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/running.h"

namespace hutch::daemon {

struct ToolSpec {
  std::vector<std::string> args;            // argv, the program's name first
  std::string user;                         // empty: the sandbox's
  int program_fd = -1;                      // a sealed memfd; borrowed
  UniqueFd stdin_fd, stdout_fd, stderr_fd;  // the child's ends; not valid: /dev/null
};

class ToolProcess final : public Running, public std::enable_shared_from_this<ToolProcess> {
 public:
  // Called once, later: the wait status of waitpid(2), or why it did not start. SIGKILL's when the
  // sandbox ended.
  using Done = std::function<void(Result<int>)>;

  // Errors as of Sandbox::StartProcess.
  static Result<std::shared_ptr<ToolProcess>> Start(runtime::Sandbox& sandbox, ToolSpec tool,
                                                    oci::ProcessSpec spec, Done done);
  uint32_t process() const { return process_; }

  void OnEvent(const runtime::AgentEvent& event) override;
  void Kill() override;
  void SandboxEnded() override;
  bool finished() const override { return done_ == nullptr; }
  bool is_command() const override { return false; }

 private:
  ToolProcess(runtime::Sandbox& sandbox, Done done) : sandbox_(sandbox), done_(std::move(done)) {}
  void Finish(Result<int> outcome);

  runtime::Sandbox& sandbox_;
  Done done_;
  uint32_t process_ = 0;
};

}  // namespace hutch::daemon
