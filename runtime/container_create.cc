// Making a container: the parent's table. Its undo column is what a failed create runs; delete has
// the group and the directory from the same functions (container_life.cc).
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "base/fd_socket.h"
#include "base/file.h"
#include "base/text.h"
#include "runtime/container.h"
#include "runtime/container_config_reading.h"
#include "runtime/container_creation.h"
#include "runtime/container_hooks.h"
#include "runtime/container_init.h"
#include "runtime/container_report.h"
#include "runtime/container_sync.h"
#include "runtime/container_terminal.h"
#include "runtime/steps.h"

namespace hutch::runtime {
namespace {

constexpr int kKillWaitMs = 10000;

Status ReadConfig(ContainerCreation& c) {
  ASSIGN_OR_RETURN(c.config_text, ReadContainerConfigFile(c.request->config_file));
  ASSIGN_OR_RETURN(c.config, ParseContainerConfigText(c.config_text));
  if (!c.config.process)
    return Error{.code = Code::kInvalidArgument,
                 .what = "the configuration has no process",
                 .field = "process"};
  for (unsigned i = 0; i < c.request->preserve_fds; ++i)
    if (::fcntl(static_cast<int>(3 + i), F_GETFD) < 0)
      return SysError(errno, "descriptor " + std::to_string(3 + i) + " of --preserve-fds");
  return OkStatus();
}

Status PlanChild(ContainerCreation& c) {
  ChildContext& child = c.child;
  child.config = &c.config;
  oci::ConsoleSize& size = c.config.process->console_size;
  if (size.height == 0 && size.width == 0) size = c.request->size;
  child.process = &*c.config.process;
  child.preserve_fds = c.request->preserve_fds;
  child.new_keyring = !c.request->no_new_keyring;
  ASSIGN_OR_RETURN(child.confinement, PlanConfinement(*child.process));
  RETURN_IF_ERROR(PlanFilter(c.config, &child.confinement));
  ASSIGN_OR_RETURN(child.namespaces, PlanNamespaces(c.config.linux_.namespaces));
  child.cgroup_namespace = child.namespaces.Makes(CLONE_NEWCGROUP);
  ContainerRecord& record = c.record;
  record.oci_version = c.config.oci_version;
  record.id = c.request->id;
  record.bundle = c.request->bundle;
  record.rootfs = c.config.root.path.starts_with("/") ? c.config.root.path
                                                      : record.bundle + "/" + c.config.root.path;
  record.created = FormatRfc3339(std::chrono::system_clock::now());
  record.owner = ::getuid();
  record.systemd_cgroup = c.host->manager == cgroups::GroupManager::kSystemd;
  record.annotations = c.config.annotations;
  child.state = StateDocument(record, ContainerStatus::kCreating);
  return OkStatus();
}

Status ReserveId(ContainerCreation& c) {
  ASSIGN_OR_RETURN(c.directory, ContainerDirectory::Make(c.host->root, c.request->id));
  return c.directory->WriteConfig(c.config_text);
}
Status ReleaseId(ContainerCreation& c) { return c.directory ? c.directory->Remove() : OkStatus(); }

Status ConnectReceivers(ContainerCreation& c) {
  if (!c.request->pidfd_socket.empty()) {
    ASSIGN_OR_RETURN(c.pidfd_receiver,
                     ConnectToReceiver(c.request->pidfd_socket, "the pidfd socket"));
  }
  if (!c.child.process->terminal) {
    if (c.request->console_socket.empty()) return OkStatus();
    return Error{.code = Code::kInvalidArgument,
                 .what = "cannot use console socket if runc will not detach or allocate tty"};
  }
  if (c.request->console_socket.empty()) return OkStatus();
  ASSIGN_OR_RETURN(c.console, ConnectToReceiver(c.request->console_socket, "the console socket"));
  c.child.console_fd = c.console.get();
  return OkStatus();
}

Status MakeGroup(ContainerCreation& c) {
  if (c.host->no_group) return OkStatus();
  ASSIGN_OR_RETURN(cgroups::ContainerGroup group,
                   cgroups::ContainerGroup::Plan({.container_id = c.request->id,
                                                  .cgroups_path = c.config.linux_.cgroups_path,
                                                  .manager = c.host->manager,
                                                  .user = c.host->user,
                                                  .annotations = c.config.annotations}));
  RETURN_IF_ERROR(group.Make());
  c.group = std::move(group);  // not before: one that was refused is somebody else's
  return OkStatus();
}
Status RemoveGroup(ContainerCreation& c) { return c.group ? c.group->Remove() : OkStatus(); }

Status PrepareMounts(ContainerCreation& c) {
  const NamespacePlan& plan = c.child.namespaces;
  const auto has = [&plan](int flag) {
    return plan.Makes(static_cast<uint64_t>(flag)) || plan.JoinedFd(flag) >= 0;
  };
  ASSIGN_OR_RETURN(
      c.mounts, rootfs::PrepareContainerMounts(c.config, {.rootfs = c.record.rootfs,
                                                          .bundle = c.record.bundle,
                                                          .user_namespace = has(CLONE_NEWUSER),
                                                          .own_mounts = has(CLONE_NEWNS),
                                                          .no_pivot = c.request->no_pivot,
                                                          .cgroup_namespace = has(CLONE_NEWCGROUP),
                                                          .own_network = has(CLONE_NEWNET),
                                                          .own_ipc = has(CLONE_NEWIPC),
                                                          .own_uts = has(CLONE_NEWUTS)}));
  c.child.mounts = &c.mounts;
  return OkStatus();
}

Status OpenGate(ContainerCreation& c) {
  ASSIGN_OR_RETURN(c.child.gate, c.directory->ListenAtGate());
  ASSIGN_OR_RETURN(SocketPair pair, MakeSeqpacketPair());
  c.sync = std::move(pair.a);
  c.child.sync = std::move(pair.b);
  return OkStatus();
}

// What the child gets by inheriting it: its parent is there for the moment of the clone.
Status CloneFirst(ContainerCreation& c) {
  NamespaceVisit visit;
  const NamespacePlan& plan = c.child.namespaces;
  const int user_fd = plan.JoinedFd(CLONE_NEWUSER);
  CloneRequest request{.cgroup_fd = c.group ? c.group->clone_fd() : -1, .child = {}};
  constexpr uint64_t kTakenLater = CLONE_NEWTIME | CLONE_NEWCGROUP;
  request.flags = plan.fresh & ~kTakenLater;
  if (c.child.cgroup_namespace && c.group && c.group->NamespaceByClone()) {
    request.flags |= CLONE_NEWCGROUP;
    c.child.cgroup_namespace = false;
  }
  request.child = [&c] {
    c.sync.reset();
    c.directory.reset();  // its lock is the file description's: who has it last has it
    RunFirstProcess(c.child);
  };
  constexpr int kInherited[] = {CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS};
  if (user_fd >= 0) {
    // Those that do not belong to the user namespace only we may join, the others perhaps only its
    // root.
    request.prepare = [&plan, user_fd, &kInherited]() -> Status {
      int later = 0;
      for (const int flag : kInherited)
        if (const int fd = plan.JoinedFd(flag); fd >= 0 && ::setns(fd, flag) != 0) later |= flag;
      if (::setns(user_fd, CLONE_NEWUSER) != 0) return SysError(errno, "join the user namespace");
      for (const int flag : kInherited)
        if ((later & flag) != 0 && ::setns(plan.JoinedFd(flag), flag) != 0)
          return SysError(errno, "join a namespace by path");
      return OkStatus();
    };
  } else {
    for (const int flag : kInherited)
      if (const int fd = plan.JoinedFd(flag); fd >= 0) RETURN_IF_ERROR(visit.Enter(flag, fd));
  }
  ASSIGN_OR_RETURN(ClonedProcess cloned, CloneContainer(request));
  c.init = std::move(cloned.process);
  c.born_in = cloned.in_cgroup ? cgroups::BornIn::kGroup : cgroups::BornIn::kElsewhere;
  c.child.sync.reset();
  c.child.gate.reset();
  return OkStatus();
}
Status KillFirst(ContainerCreation& c) {
  if (!c.init.valid()) return OkStatus();
  RETURN_IF_ERROR(c.init.Signal(SIGKILL));
  if (c.group) IgnoreError(c.group->Kill(), "without a group there was one process");
  if (!c.init.WaitEnded(kKillWaitMs))
    return Error{.code = Code::kKernel, .what = "the first process does not end"};
  ::waitpid(c.init.pid(), nullptr, 0);
  return OkStatus();
}

Status MapIds(ContainerCreation& c) {
  if (!c.child.namespaces.Makes(CLONE_NEWUSER)) return OkStatus();
  return WriteIdMaps(c.init.pid(), c.config.linux_.uid_mappings, c.config.linux_.gid_mappings);
}

Status FillGroup(ContainerCreation& c) {
  if (!c.group) return OkStatus();
  RETURN_IF_ERROR(c.group->Attach(c.init.pid(), c.born_in));
  return c.group->Apply(c.config.linux_.resources, cgroups::DeviceRules::kApply);
}

Status ConfineFirst(ContainerCreation& c) {
  return ConfineFromOutside(c.child.confinement, c.init.pid());
}

Status AwaitMounts(ContainerCreation& c) {
  RETURN_IF_ERROR(SendNote(c.sync.get(), Note::kGo));
  RETURN_IF_ERROR(ExpectNote(c.sync.get(), Note::kMounted));
  return OkStatus();
}

Status SaveRecord(ContainerCreation& c) {
  c.record.pid = c.init.pid();
  ASSIGN_OR_RETURN(c.record.start_time, ProcessStartTime(c.record.pid));
  if (c.group) c.record.group = cgroups::PrintGroupPlace(c.group->place());
  return c.directory->WriteRecord(c.record);
}

Status RunOuterHooks(ContainerCreation& c) {
  const oci::Json state = StateDocument(c.record, ContainerStatus::kCreating);
  c.hooks_begun = true;
  if (!c.config.hooks.prestart.empty() || !c.config.hooks.create_runtime.empty()) {
    ASSIGN_OR_RETURN(const HookRunner runner, HookRunner::Make(state, HookDirectory(c.record)));
    RETURN_IF_ERROR(runner.Run("prestart", c.config.hooks.prestart));
    RETURN_IF_ERROR(runner.Run("createRuntime", c.config.hooks.create_runtime));
  }
  return SendNote(c.sync.get(), Note::kGo, std::to_string(c.init.pid()));
}
Status RunPoststop(ContainerCreation& c) {
  if (!c.hooks_begun) return OkStatus();
  for (const std::string& failure : RunPoststopHooks(c.config, c.record)) c.host->warn(failure);
  return OkStatus();
}

Status AwaitReady(ContainerCreation& c) {
  ASSIGN_OR_RETURN(ReceivedNote note, ReceiveNote(c.sync.get()));
  if (note.note == Note::kTerminal && note.fds.size() == 1) {
    c.terminal = std::move(note.fds[0]);
    ASSIGN_OR_RETURN(note, ReceiveNote(c.sync.get()));
  }
  if (note.note == Note::kReady) return OkStatus();
  return Error{.code = Code::kKernel, .what = "the container's first process ended early"};
}

Status SendPidfd(ContainerCreation& c) {
  if (!c.pidfd_receiver.valid()) return OkStatus();
  return SendDescriptor(c.pidfd_receiver.get(), c.init.fd(), "pidfd");
}

Status WritePidFile(ContainerCreation& c) {
  if (c.request->pid_file.empty()) return OkStatus();
  return WriteFileAtomic(c.request->pid_file, std::to_string(c.init.pid()), Durability::kMemory);
}
Status RemovePidFile(ContainerCreation& c) {
  if (!c.request->pid_file.empty()) ::unlink(c.request->pid_file.c_str());
  return OkStatus();
}

constexpr StepRow<ContainerCreation> kContainerSteps[] = {
    {"read config", ReadConfig, nullptr},            // pure: nothing in the kernel yet
    {"plan child", PlanChild, nullptr},              // the same; the filter is compiled here
    {"reserve container id", ReserveId, ReleaseId},  // exclusive: two creates cannot share an id
    {"connect receivers", ConnectReceivers, nullptr},
    {"make group", MakeGroup, RemoveGroup},      // before the clone: CLONE_INTO_CGROUP
    {"prepare mounts", PrepareMounts, nullptr},  // what only we may open
    {"open gate", OpenGate, nullptr},            // in the directory
    {"clone first process", CloneFirst, KillFirst},
    {"map ids", MapIds, nullptr},        // needs the child, and our privilege
    {"fill group", FillGroup, nullptr},  // limits before anything of the user's runs
    {"confine from outside", ConfineFirst, nullptr},
    {"await mounts", AwaitMounts, nullptr},
    {"save record", SaveRecord, nullptr},  // hooks call `state`
    {"run outer hooks", RunOuterHooks, RunPoststop},
    {"await ready", AwaitReady, nullptr},
    {"send pidfd", SendPidfd, nullptr},
    {"write pid file", WritePidFile, RemovePidFile},
};

}  // namespace

std::span<const StepRow<ContainerCreation>> ContainerSteps() { return kContainerSteps; }

Result<CreatedContainer> CreateContainer(const ContainerHost& host, const CreateRequest& request) {
  RETURN_IF_ERROR(CheckContainerId(request.id));
  ContainerCreation creation;
  creation.host = &host;
  creation.request = &request;
  std::vector<Timing> timings;
  const Status made = WithoutStep(RunSteps(ContainerSteps(), creation, &timings));
  TellSteps(host, timings, creation.child.confinement);
  RETURN_IF_ERROR(made);
  creation.directory->Unlock();  // explicitly: the child was cloned with a copy
  return CreatedContainer{std::move(creation.init), std::move(creation.terminal)};
}

}  // namespace hutch::runtime
