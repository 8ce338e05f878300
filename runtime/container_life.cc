// Everything but making: start, look, signal, freeze, update, remove.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/pidfd.h"
#include "runtime/container.h"
#include "runtime/container_config_reading.h"
#include "runtime/container_hooks.h"
#include "runtime/container_listener.h"
#include "runtime/container_sync.h"

namespace hutch::runtime {
namespace {

constexpr int kFreezeMs = 10000;
constexpr int kKillMs = 10000;

Result<ContainerStatus> StatusOf(const ContainerDirectory& directory,
                                 const ContainerRecord& record) {
  if (record.pid == 0) return ContainerStatus::kCreating;
  if (!FirstProcessLives(record)) return ContainerStatus::kStopped;
  ASSIGN_OR_RETURN(const std::optional<cgroups::ContainerGroup> group, GroupOf(record));
  if (group) {
    const Result<bool> frozen = group->Frozen();
    if (frozen && *frozen) return ContainerStatus::kPaused;
  }
  return directory.HasGate() ? ContainerStatus::kCreated : ContainerStatus::kRunning;
}

Error BadState(const std::string& what) { return Error{.code = Code::kBadState, .what = what}; }

struct Opened {
  ContainerDirectory directory;
  ContainerRecord record;
  ContainerStatus status;
};
Result<Opened> OpenContainer(const ContainerHost& host, const std::string& id,
                             ContainerDirectory::Lock lock) {
  ASSIGN_OR_RETURN(ContainerDirectory directory, ContainerDirectory::Open(host.root, id, lock));
  ASSIGN_OR_RETURN(ContainerRecord record, directory.ReadRecord());
  ASSIGN_OR_RETURN(const ContainerStatus status, StatusOf(directory, record));
  return Opened{std::move(directory), std::move(record), status};
}

Status KillEverything(const Opened& opened) {
  ASSIGN_OR_RETURN(const std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
  if (opened.status == ContainerStatus::kPaused && group)
    IgnoreError(group->Thaw(), "the kill tells");
  if (FirstProcessLives(opened.record)) {
    const Result<Pidfd> process = OpenFirstProcess(opened.record);
    if (process) RETURN_IF_ERROR(process->Signal(SIGKILL));
    if (group) IgnoreError(group->Kill(), "the first process tells");
    if (process && !process->WaitEnded(kKillMs)) return BadState("the first process does not end");
  } else if (group) {
    IgnoreError(group->Kill(), "the removal tells");
  }
  return OkStatus();
}

Status RemoveEverything(const ContainerHost& host, const Opened& opened) {
  ASSIGN_OR_RETURN(std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
  if (group) RETURN_IF_ERROR(group->Remove());
  const Result<std::string> text = opened.directory.ReadConfig();
  const Result<oci::ContainerConfig> config =
      text ? ParseContainerConfigText(*text) : Result<oci::ContainerConfig>(text.error());
  if (config)
    for (const std::string& failure : RunPoststopHooks(*config, opened.record)) host.warn(failure);
  return opened.directory.Remove();
}

// One that fails ends the container: the specification since 1.3, and runc ever since.
// What fails is destroyed: the lifecycle goes on at its step 12.
Status RunPoststartHooks(const ContainerHost& host, const Opened& opened,
                         const oci::ContainerConfig& config, const oci::Json& state) {
  if (config.hooks.poststart.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const HookRunner runner, HookRunner::Make(state, HookDirectory(opened.record)));
  Status done = runner.Run("poststart", config.hooks.poststart);
  if (done) return done;
  Error error = std::move(done).error();
  Status destroyed = KillEverything(opened);
  if (destroyed) destroyed = RemoveEverything(host, opened);
  if (!destroyed) error.what += "; and destroying the container: " + destroyed.error().ToString();
  return error;
}

// Processes that would outlive the first one: it is not that of a pid namespace.
Result<bool> HasLooseProcesses(const Opened& opened,
                               const std::optional<cgroups::ContainerGroup>& group) {
  if (!group) return false;
  ASSIGN_OR_RETURN(const std::string text, opened.directory.ReadConfig());
  ASSIGN_OR_RETURN(const oci::ContainerConfig config, ParseContainerConfigText(text));
  for (const oci::Namespace& one : config.linux_.namespaces)
    if (one.type == "pid" && one.path.empty()) return false;
  const Result<std::vector<pid_t>> pids = group->Pids();
  return pids && !pids->empty();
}

}  // namespace

Status StartContainer(const ContainerHost& host, const std::string& id) {
  ASSIGN_OR_RETURN(const Opened opened,
                   OpenContainer(host, id, ContainerDirectory::Lock::kExclusive));
  if (opened.status == ContainerStatus::kStopped)
    return BadState("cannot start a container that has stopped");
  if (opened.status != ContainerStatus::kCreated)
    return BadState("cannot start an already running container");
  ASSIGN_OR_RETURN(const std::string text, opened.directory.ReadConfig());
  ASSIGN_OR_RETURN(const oci::ContainerConfig config, ParseContainerConfigText(text));
  ASSIGN_OR_RETURN(const UniqueFd gate, opened.directory.ConnectToGate());
  RETURN_IF_ERROR(opened.directory.RemoveGate());
  opened.directory.Unlock();  // startContainer hooks may ask for the state
  RETURN_IF_ERROR(SendNote(gate.get(), Note::kGo));
  const oci::Json state = StateDocument(opened.record, ContainerStatus::kRunning);
  RETURN_IF_ERROR(AwaitExecution(gate.get(), opened.record.pid, config, state));
  return RunPoststartHooks(host, opened, config, state);
}

Result<ContainerView> ViewContainer(const ContainerHost& host, const std::string& id) {
  // No lock: hooks of a command that has it ask for the state.
  ASSIGN_OR_RETURN(const ContainerDirectory directory,
                   ContainerDirectory::Open(host.root, id, ContainerDirectory::Lock::kNone));
  ContainerView view;
  ASSIGN_OR_RETURN(view.record, directory.ReadRecord());
  ASSIGN_OR_RETURN(view.status, StatusOf(directory, view.record));
  return view;
}

Status SignalContainer(const ContainerHost& host, const std::string& id, int signal, SignalTo to) {
  ASSIGN_OR_RETURN(const Opened opened, OpenContainer(host, id, ContainerDirectory::Lock::kNone));
  if (to == SignalTo::kAllProcesses) {
    ASSIGN_OR_RETURN(const std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
    if (!group) return BadState("the container has no group, its processes are not known");
    if (signal == SIGKILL) return group->Kill();
    return group->Signal(signal);
  }
  if (signal == SIGKILL && opened.status != ContainerStatus::kCreating) {
    ASSIGN_OR_RETURN(const std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
    ASSIGN_OR_RETURN(const bool loose, HasLooseProcesses(opened, group));
    if (loose) return group->Kill();
  }
  if (opened.status == ContainerStatus::kStopped || opened.status == ContainerStatus::kCreating)
    return BadState("container not running");
  ASSIGN_OR_RETURN(const Pidfd process, OpenFirstProcess(opened.record));
  RETURN_IF_ERROR(process.Signal(signal));
  if (signal == SIGKILL) {  // a frozen process does not die on v1, which what is inside may use
    ASSIGN_OR_RETURN(const std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
    if (group && group->exists()) return group->Thaw();
  }
  return OkStatus();
}

Status DeleteContainer(const ContainerHost& host, const std::string& id, DeleteMode mode) {
  Result<Opened> opened = OpenContainer(host, id, ContainerDirectory::Lock::kExclusive);
  if (!opened) {
    if (mode == DeleteMode::kStoppedOnly || opened.error().code != Code::kNotFound)
      return std::move(opened).error();
    // A directory without a record is of a create that was killed.
    Result<ContainerDirectory> directory =
        ContainerDirectory::Open(host.root, id, ContainerDirectory::Lock::kExclusive);
    return directory ? directory->Remove() : OkStatus();
  }
  if (mode == DeleteMode::kStoppedOnly && opened->status != ContainerStatus::kStopped)
    return BadState("cannot delete container " + id +
                    " that is not stopped: " + ContainerStatusName(opened->status));
  if (opened->status == ContainerStatus::kCreating) {  // its create was killed, so its child ends
    ASSIGN_OR_RETURN(std::optional<cgroups::ContainerGroup> group, GroupOf(opened->record));
    if (group) group->RemoveIfEmpty();
    return opened->directory.Remove();
  }
  RETURN_IF_ERROR(KillEverything(*opened));
  return RemoveEverything(host, *opened);
}

Status PauseContainer(const ContainerHost& host, const std::string& id) {
  ASSIGN_OR_RETURN(const Opened opened,
                   OpenContainer(host, id, ContainerDirectory::Lock::kExclusive));
  if (opened.status != ContainerStatus::kRunning && opened.status != ContainerStatus::kCreated)
    return BadState("container not running or created: " +
                    std::string(ContainerStatusName(opened.status)));
  ASSIGN_OR_RETURN(const std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
  if (!group) return BadState("the container has no group to freeze");
  return group->Freeze(kFreezeMs);
}

Status ResumeContainer(const ContainerHost& host, const std::string& id) {
  ASSIGN_OR_RETURN(const Opened opened,
                   OpenContainer(host, id, ContainerDirectory::Lock::kExclusive));
  if (opened.status != ContainerStatus::kPaused) return BadState("container not paused");
  ASSIGN_OR_RETURN(const std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
  return group->Thaw();
}

Result<cgroups::ContainerGroup> OpenContainerGroup(const ContainerHost& host,
                                                   const std::string& id) {
  ASSIGN_OR_RETURN(const Opened opened, OpenContainer(host, id, ContainerDirectory::Lock::kNone));
  ASSIGN_OR_RETURN(std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
  if (!group) return BadState("the container has no group");
  return std::move(*group);
}

Result<std::vector<pid_t>> ContainerPids(const ContainerHost& host, const std::string& id) {
  ASSIGN_OR_RETURN(const cgroups::ContainerGroup group, OpenContainerGroup(host, id));
  return group.Pids();
}

Status UpdateContainer(const ContainerHost& host, const std::string& id,
                       const oci::ContainerResources& resources) {
  ASSIGN_OR_RETURN(const Opened opened,
                   OpenContainer(host, id, ContainerDirectory::Lock::kExclusive));
  if (opened.status == ContainerStatus::kStopped) return BadState("container not running");
  ASSIGN_OR_RETURN(const std::optional<cgroups::ContainerGroup> group, GroupOf(opened.record));
  if (!group) return BadState("the container has no group to limit");
  return group->Apply(resources, cgroups::DeviceRules::kLeave);
}

Result<int> ReapExitCode(const Pidfd& process) {
  int status = 0;
  while (::waitpid(process.pid(), &status, 0) < 0)
    if (errno != EINTR) return SysError(errno, "waitpid");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace hutch::runtime
