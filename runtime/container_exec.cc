// One more process in a running container, with exactly what the first one was confined by.
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/fd_socket.h"
#include "base/file.h"
#include "oci/json.h"
#include "runtime/container.h"
#include "runtime/container_config_reading.h"
#include "runtime/container_init.h"
#include "runtime/container_listener.h"
#include "runtime/container_names.h"
#include "runtime/container_program.h"
#include "runtime/container_report.h"
#include "runtime/container_sync.h"
#include "runtime/container_terminal.h"
#include "runtime/steps.h"

namespace hutch::runtime {
namespace {

struct Execution {
  const ContainerHost* host = nullptr;
  const ExecRequest* request = nullptr;
  std::string id;
  ContainerView view;
  oci::ContainerConfig config;
  oci::ContainerProcess process;
  Pidfd target;
  ChildContext child;
  UniqueFd console, pidfd_receiver, sync, terminal;
  Pidfd made;
  std::optional<cgroups::ContainerGroup> group;
  cgroups::BornIn born_in = cgroups::BornIn::kElsewhere;
};

// Names that are there already are replaced: the last one counts.
void AddEnvironment(const std::vector<std::string>& more, std::vector<std::string>* env) {
  for (const std::string& entry : more) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    std::erase_if(*env, [&name](const std::string& old) { return old.starts_with(name); });
    env->push_back(entry);
  }
}

// Never inheritable ones: CVE-2022-29162. Ambient where config.json has it inheritable already.
void AddCapabilities(const std::vector<std::string>& names, oci::Capabilities* caps) {
  const std::vector<std::string>& heirs = caps->inheritable;
  for (const std::string& name : names) {
    for (std::vector<std::string>* set : {&caps->bounding, &caps->effective, &caps->permitted})
      set->push_back(name);
    if (std::find(heirs.begin(), heirs.end(), name) != heirs.end()) caps->ambient.push_back(name);
  }
}

oci::ContainerProcess ProcessOf(const ExecRequest& request, oci::ContainerProcess process) {
  process.args = request.args;
  process.terminal = request.terminal.value_or(false);
  process.console_size = {};
  AddEnvironment(request.env, &process.env);
  AddCapabilities(request.capabilities, &process.capabilities);
  if (request.cwd) process.cwd = *request.cwd;
  if (request.apparmor) process.apparmor_profile = *request.apparmor;
  if (request.process_label) process.selinux_label = *request.process_label;
  if (request.no_new_privileges) process.no_new_privileges = *request.no_new_privileges;
  if (request.user) {
    process.user.uid = request.user->first;
    if (request.user->second) process.user.gid = *request.user->second;
  }
  std::vector<uint32_t>& groups = process.user.additional_gids;
  groups.insert(groups.end(), request.additional_gids.begin(), request.additional_gids.end());
  return process;
}

Status FindContainer(Execution& e) {
  ASSIGN_OR_RETURN(e.view, ViewContainer(*e.host, e.id));
  const ContainerStatus status = e.view.status;
  if (status == ContainerStatus::kStopped || status == ContainerStatus::kCreating)
    return Error{.code = Code::kBadState, .what = "cannot exec in a stopped container"};
  if (status == ContainerStatus::kPaused && !e.request->ignore_paused)
    return Error{.code = Code::kBadState, .what = "cannot exec in a paused container"};
  ASSIGN_OR_RETURN(e.target, OpenFirstProcess(e.view.record));
  return OkStatus();
}

Status PlanProcess(Execution& e) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadContainerConfigFile(ConfigFileOf(e.host->root, e.id)));
  ASSIGN_OR_RETURN(e.config, ParseContainerConfigText(text));
  if (!e.request->process_file.empty()) {
    ASSIGN_OR_RETURN(const std::string own, ReadContainerConfigFile(e.request->process_file));
    ASSIGN_OR_RETURN(const oci::Json json, oci::ParseJson(own));
    ASSIGN_OR_RETURN(e.process, oci::ParseContainerProcess(json));
  } else {
    e.process = ProcessOf(*e.request, e.config.process.value_or(oci::ContainerProcess{}));
  }
  if (e.process.args.empty())
    return Error{.code = Code::kInvalidArgument, .what = "process args cannot be empty"};
  ChildContext& child = e.child;
  child.config = &e.config;
  child.process = &e.process;
  child.preserve_fds = e.request->preserve_fds;
  child.size = e.request->size;
  ASSIGN_OR_RETURN(child.target_namespaces, NamespacesUnlikeOurs(e.target));
  const bool user = (child.target_namespaces & CLONE_NEWUSER) != 0;
  ASSIGN_OR_RETURN(child.confinement, PlanConfinement(e.process, e.config.linux_,
                                                      user ? CapabilitySource::kUserNamespace
                                                           : CapabilitySource::kCaller));
  for (const std::string& warning : child.confinement.warnings) e.host->warn(warning);
  RETURN_IF_ERROR(PlanFromConfig(e.config, &child.confinement));
  child.target_pidfd = e.target.fd();
  // Without a mount namespace of its own the container's root is a directory of the host's.
  if ((child.target_namespaces & CLONE_NEWNS) == 0) child.root = e.view.record.rootfs;
  child.state = StateDocument(e.view.record, e.view.status);
  return OkStatus();
}

Status ConnectReceivers(Execution& e) {
  if (!e.request->pidfd_socket.empty()) {
    ASSIGN_OR_RETURN(e.pidfd_receiver,
                     ConnectToReceiver(e.request->pidfd_socket, "the pidfd socket"));
  }
  if (!e.request->console_socket.empty() && e.process.terminal) {
    ASSIGN_OR_RETURN(e.console, ConnectToReceiver(e.request->console_socket, "the console socket"));
    e.child.console_fd = e.console.get();
  }
  ASSIGN_OR_RETURN(SocketPair pair, MakeSeqpacketPair());
  e.sync = std::move(pair.a);
  e.child.sync = std::move(pair.b);
  return OkStatus();
}

// As root of the host when it may: namespaces that the container was given by path need not belong
// to its user namespace.
Status JoinAll(int target_pidfd, int flags) {
  if (::setns(target_pidfd, flags) == 0) return OkStatus();
  const bool split = errno == EPERM && (flags & CLONE_NEWUSER) != 0 && flags != CLONE_NEWUSER;
  if (split && ::setns(target_pidfd, flags & ~CLONE_NEWUSER) == 0 &&
      ::setns(target_pidfd, CLONE_NEWUSER) == 0)
    return OkStatus();
  return SysError(errno, "join the container's namespaces");
}

// The pid namespace counts for children only, and who is in it sees them from their birth, with a
// working directory, a root and descriptors (CVE-2016-9962). So a helper joins everything, lets go
// of what is the host's and clones the process.
Status CloneProcess(Execution& e) {
  int& wanted = e.child.target_namespaces;
  CloneRequest request;
  if (e.group && e.request->cgroups.empty()) request.cgroup_fd = e.group->clone_fd();
  request.keep = {e.child.sync.get(), e.child.console_fd};
  request.keep_below = static_cast<int>(3 + e.request->preserve_fds);
  request.child = [&e] {
    e.sync.reset();
    RunOneMoreProcess(e.child);
  };
  if ((wanted & (CLONE_NEWUSER | CLONE_NEWPID)) != 0) {
    request.prepare = [&e, all = wanted, root = e.child.root]() -> Status {
      RETURN_IF_ERROR(SetOomScore(e.child.confinement, "self"));  // inherited; who hides cannot
      if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return SysError(errno, "not dumpable");
      RETURN_IF_ERROR(TakeRoot(root));
      return JoinAll(e.target.fd(), all);
    };
    e.child.root.clear();
    e.child.joined_by_helper = wanted;
    wanted = 0;
  }
  ASSIGN_OR_RETURN(ClonedProcess cloned, CloneContainer(request));
  e.made = std::move(cloned.process);
  e.born_in = cloned.in_cgroup ? cgroups::BornIn::kGroup : cgroups::BornIn::kElsewhere;
  e.child.sync.reset();
  return OkStatus();
}
Status KillProcess(Execution& e) {
  if (!e.made.valid()) return OkStatus();
  RETURN_IF_ERROR(e.made.Signal(SIGKILL));
  while (::waitpid(e.made.pid(), nullptr, 0) < 0 && errno == EINTR) continue;
  return OkStatus();
}

Status OpenGroup(Execution& e) {
  ASSIGN_OR_RETURN(e.group, GroupOf(e.view.record));
  return OkStatus();
}

// Of ourselves: the process inherits them.
Status TakeInitialCpus(Execution& e) {
  const std::vector<uint32_t>& cpus = e.process.exec_cpu_affinity.initial;
  return cpus.empty() ? OkStatus() : RunOnCpus(0, cpus, "process.execCPUAffinity.initial");
}
Status SetFinalCpus(Execution& e) {
  const oci::CpuAffinity& affinity = e.process.exec_cpu_affinity;
  if (!affinity.final.empty())
    return RunOnCpus(e.made.pid(), affinity.final, "process.execCPUAffinity.final");
  if (affinity.initial.empty())
    IgnoreError(RunOnAllCpus(e.made.pid()), "then it runs where its caller does");
  return OkStatus();
}

Status JoinGroup(Execution& e) {
  if (!e.group) return OkStatus();
  return e.group->AttachExec(e.made.pid(), e.born_in, e.view.record.pid, e.request->cgroups);
}

Status ConfineProcess(Execution& e) {
  if (e.child.joined_by_helper == 0)
    RETURN_IF_ERROR(SetOomScore(e.child.confinement, std::to_string(e.made.pid())));
  RETURN_IF_ERROR(ConfineFromOutside(e.child.confinement, e.made.pid()));
  return LimitFromOutside(e.child.confinement, e.made.pid());
}

Status AwaitProgram(Execution& e) {
  RETURN_IF_ERROR(SendNote(e.sync.get(), Note::kGo));
  if (e.process.terminal && e.child.console_fd < 0) {
    ASSIGN_OR_RETURN(ReceivedNote note, ExpectNote(e.sync.get(), Note::kTerminal));
    if (note.fds.size() != 1)
      return Error{.code = Code::kInternal, .what = "a terminal without a descriptor"};
    e.terminal = std::move(note.fds[0]);
  }
  return AwaitExecution(e.sync.get(), e.made.pid(), e.config, e.child.state);
}

Status TellItsPid(Execution& e) {
  if (e.pidfd_receiver.valid())
    RETURN_IF_ERROR(SendDescriptor(e.pidfd_receiver.get(), e.made.fd(), "pidfd"));
  if (e.request->pid_file.empty()) return OkStatus();
  return WriteFileAtomic(e.request->pid_file, std::to_string(e.made.pid()), Durability::kMemory);
}

constexpr StepRow<Execution> kExecSteps[] = {
    {"find container", FindContainer, nullptr},
    {"plan process", PlanProcess, nullptr},
    {"connect receivers", ConnectReceivers, nullptr},
    {"open group", OpenGroup, nullptr},
    {"initial cpus", TakeInitialCpus, nullptr},  // before the group, which may take some away
    {"clone process", CloneProcess, KillProcess},
    {"join group", JoinGroup, nullptr},  // before its program runs
    {"final cpus", SetFinalCpus, nullptr},
    {"confine process", ConfineProcess, nullptr},
    {"tell its pid", TellItsPid, nullptr},
    {"await program", AwaitProgram, nullptr},
};

}  // namespace

Result<CreatedContainer> ExecInContainer(const ContainerHost& host, const std::string& id,
                                         const ExecRequest& request) {
  // Of config.json it would be a warning; here somebody has mistyped it.
  for (const std::string& name : request.capabilities)
    if (CapabilityNumber(name) < 0)
      return Error{.code = Code::kInvalidArgument,
                   .what = "unknown capability \"" + name + "\"",
                   .field = "--cap"};
  RETURN_IF_ERROR(CheckPreserved(request.preserve_fds));
  Execution e;
  e.host = &host;
  e.request = &request;
  e.id = id;
  std::vector<Timing> timings;
  const Status made =
      WithoutStep(RunSteps(std::span<const StepRow<Execution>>(kExecSteps), e, &timings));
  TellSteps(host, timings, e.child.confinement);
  RETURN_IF_ERROR(made);
  return CreatedContainer{std::move(e.made), std::move(e.terminal)};
}

}  // namespace hutch::runtime
