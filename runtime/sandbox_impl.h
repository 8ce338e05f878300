// Sandbox as Runtime makes it. See runtime/sandbox.h for the contract.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "runtime/creation.h"
#include "runtime/sandbox.h"

namespace hutch::runtime {

struct ProcessRecord {
  cgroups::ProcessGroup group;
  UniqueFd report;        // what the process says if it cannot execute
  oci::ProcessSpec spec;  // args, env, cwd for messages; env and additional args dropped
  std::vector<int> kept;  // the agent's descriptor numbers
  bool killed = false;    // perhaps before the agent had made it: again when it has
};

class SandboxImpl : public Sandbox {
 public:
  explicit SandboxImpl(std::unique_ptr<Shell> shell, bool from_pool);
  ~SandboxImpl() override;

  const std::string& id() const override { return shell_->id; }
  uint32_t host_id_start() const override { return shell_->host_id_start; }
  pid_t pid() const override { return shell_->init.pid(); }
  bool from_pool() const override { return from_pool_; }
  const std::vector<Timing>& timings() const override { return shell_->timings; }
  const std::vector<std::string>& reported() const override { return reported_; }
  const cgroups::SandboxGroup& group() const override { return shell_->group; }
  int proc_files_fd() const override { return shell_->proc_files.get(); }
  const ScratchView& scratch() const override { return shell_->scratch_view; }
  int skeleton_fd() const override {
    const auto& templates = shell_->workshop->templates;
    return templates ? templates->skeleton_fd() : -1;
  }
  int agent_fd() const override { return shell_->init.valid() ? shell_->conn.get() : -1; }
  const Pidfd& init() const override { return shell_->init; }

  std::vector<AgentEvent> ReadAgent() override;
  Result<uint32_t> StartProcess(const ProcessRequest& request) override;
  const cgroups::ProcessGroup* ProcessCgroup(uint32_t process) const override;
  Status KillProcess(uint32_t process) override;
  Status SignalLeader(uint32_t process, int signal) override;
  Status SignalTree(uint32_t process, int signal) override;
  void AcknowledgeExit(uint32_t process) override;
  Result<UniqueFd> KeptFd(uint32_t process, size_t index) override;
  void DropKeptFd(uint32_t process, size_t index) override;
  int ReportFd(uint32_t process) const override;
  void SkipProcessNumbers(uint32_t last) override;
  Status ForgetProcess(uint32_t process) override;
  std::vector<uint32_t> Processes() const override;
  void Prepare() override;
  Status Kill() override;

  // For the runtime.
  Shell& shell() { return *shell_; }
  std::unique_ptr<Creation> pending;  // until the shell is spawned
  Status TakeUpProcesses();           // after a restart: what still has a cgroup
  void MarkReady() { ready_ = true; }
  // Cuts the tie to the runtime's bookkeeping when the sandbox object goes first.
  void (*on_destroy)(void* owner, SandboxImpl* self) = nullptr;
  void* owner = nullptr;

 private:
  std::optional<AgentEvent> Interpret(std::string_view bytes);
  void Started(struct AgentReply& reply);
  AgentEvent Exited(const AgentReply& reply);
  void SendSurely(std::string message);
  void FlushOwed();
  Status SendStart(uint32_t number, const ProcessRequest& request, int group_fd, int report_fd);
  Result<cgroups::ProcessGroup> TakeGroup(uint32_t number);

  std::unique_ptr<Shell> shell_;
  bool from_pool_;
  bool ready_ = false;
  bool closed_ = false;
  std::vector<std::string> reported_;
  std::map<uint32_t, ProcessRecord> processes_;
  std::deque<std::string> owed_;  // to the agent, when its socket has room
  uint32_t next_process_ = 1;
  cgroups::ProcessGroup prepared_;  // for number next_process_
};

}  // namespace hutch::runtime
