// Making a container: the parent's table. Its undo column is what a failed create runs; delete has
// the group and the directory from the same functions (container_life.cc).
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "base/check.h"
#include "base/fd_socket.h"
#include "base/file.h"
#include "base/text.h"
#include "runtime/container.h"
#include "runtime/container_config_reading.h"
#include "runtime/container_creation.h"
#include "runtime/container_hooks.h"
#include "runtime/container_init.h"
#include "runtime/container_program.h"
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
  return OkStatus();
}

// A path may lead to the namespace that we are in: what is set there is the host's.
Result<bool> HasOwn(const NamespacePlan& plan, int flag) {
  if (plan.Makes(static_cast<uint64_t>(flag))) return true;
  const int fd = plan.JoinedFd(flag);
  ASSIGN_OR_RETURN(const bool ours, IsOwnNamespace(flag, fd));
  return fd >= 0 && !ours;
}

Status CheckOwn(const NamespacePlan& plan, int flag, const char* field, bool wanted) {
  if (!wanted) return OkStatus();
  ASSIGN_OR_RETURN(const bool own, HasOwn(plan, flag));
  if (own) return OkStatus();
  return Error{.code = Code::kInvalidArgument,
               .what = std::string(field) + ": the container has no " +
                       (flag == CLONE_NEWNET ? "network" : "uts") + " namespace of its own",
               .field = field};
}

Status CheckNothingIsTheHosts(const ContainerCreation& c) {
  const NamespacePlan& plan = c.child.namespaces;
  RETURN_IF_ERROR(
      CheckOwn(plan, CLONE_NEWNET, "linux.netDevices", !c.config.linux_.net_devices.empty()));
  RETURN_IF_ERROR(CheckOwn(plan, CLONE_NEWUTS, "hostname", !c.config.hostname.empty()));
  RETURN_IF_ERROR(CheckOwn(plan, CLONE_NEWUTS, "domainname", !c.config.domainname.empty()));
  // There the root would be changed for everybody.
  return CheckOwn(plan, CLONE_NEWNS, "linux.namespaces", plan.JoinedFd(CLONE_NEWNS) >= 0);
}

Status PlanChild(ContainerCreation& c) {
  ChildContext& child = c.child;
  child.config = &c.config;
  child.process = &*c.config.process;
  child.preserve_fds = c.request->preserve_fds;
  child.listen_fds = c.request->listen_fds;
  child.size = c.request->size;
  child.new_keyring = !c.request->no_new_keyring;
  ASSIGN_OR_RETURN(child.namespaces, PlanNamespaces(c.config.linux_.namespaces));
  RETURN_IF_ERROR(FillIdMaps(child.namespaces, &c.config.linux_));
  const bool user =
      child.namespaces.Makes(CLONE_NEWUSER) || child.namespaces.JoinedFd(CLONE_NEWUSER) >= 0;
  ASSIGN_OR_RETURN(child.confinement, PlanConfinement(*child.process, c.config.linux_,
                                                      user ? CapabilitySource::kUserNamespace
                                                           : CapabilitySource::kCaller));
  for (const std::string& warning : child.confinement.warnings) c.host->warn(warning);
  RETURN_IF_ERROR(PlanFromConfig(c.config, &child.confinement));
  RETURN_IF_ERROR(CheckNothingIsTheHosts(c));
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
  // Before it is made: who is killed from here on leaves what `delete --force` finds.
  c.record.group = cgroups::PrintGroupPlace(group.place());
  RETURN_IF_ERROR(c.directory->WriteRecord(c.record));
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
  ASSIGN_OR_RETURN(const bool own_network, HasOwn(plan, CLONE_NEWNET));
  ASSIGN_OR_RETURN(const bool own_ipc, HasOwn(plan, CLONE_NEWIPC));
  ASSIGN_OR_RETURN(const bool own_uts, HasOwn(plan, CLONE_NEWUTS));
  ASSIGN_OR_RETURN(
      c.mounts, rootfs::PrepareContainerMounts(c.config, {.rootfs = c.record.rootfs,
                                                          .bundle = c.record.bundle,
                                                          .user_namespace = has(CLONE_NEWUSER),
                                                          .own_mounts = has(CLONE_NEWNS),
                                                          .no_pivot = c.request->no_pivot,
                                                          .cgroup_namespace = has(CLONE_NEWCGROUP),
                                                          .own_network = own_network,
                                                          .own_ipc = own_ipc,
                                                          .own_uts = own_uts}));
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

// What the child gets by inheriting it: its parent is there for the moment of the clone. Namespaces
// that belong to another user namespace than the one that is joined need the caller's own rights,
// those of an ordinary user's the rights in it.
Status CloneFirst(ContainerCreation& c) {
  NamespaceVisit visit;
  const NamespacePlan& plan = c.child.namespaces;
  const int user_fd = plan.JoinedFd(CLONE_NEWUSER);
  CloneRequest request{.child = {}};
  if (c.group && !c.born_elsewhere) request.cgroup_fd = c.group->clone_fd();
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
      // Who is in that user namespace and shares the pid namespace must not look into us. Not an
      // ordinary user, who could not write the process's OOM score any more, and not before the
      // offsets of a new time namespace are written: there, it hides later.
      if (::geteuid() == 0 && !plan.Makes(CLONE_NEWTIME) &&
          ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return SysError(errno, "not dumpable");
      std::vector<int> left;
      for (const int flag : kInherited) {
        const int fd = plan.JoinedFd(flag);
        if (fd < 0 || ::setns(fd, flag) == 0) continue;
        if (errno != EPERM) return SysError(errno, "join a namespace by path");
        left.push_back(flag);
      }
      if (::setns(user_fd, CLONE_NEWUSER) != 0) return SysError(errno, "join the user namespace");
      for (const int flag : left)
        if (::setns(plan.JoinedFd(flag), flag) != 0)
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

// Linux 6.14 to 6.18 kill who is cloned into a group that is not the cloner's own when the cloner's
// was killed once (cgroup.kill counts for ever there).
bool KilledAtBirth(const ContainerCreation& c) {
  if (c.born_in != cgroups::BornIn::kGroup || c.record.pid != 0) return false;
  // Its end of the socket is closed before it can be waited for.
  pollfd socket{c.sync.get(), POLLIN, 0};
  const bool ends = ::poll(&socket, 1, 0) > 0 && (socket.revents & POLLHUP) != 0;
  siginfo_t end{};
  const auto pidfd = static_cast<id_t>(c.init.fd());
  return ends && c.init.WaitEnded(kKillWaitMs) &&
         ::waitid(P_PIDFD, pidfd, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0 &&
         end.si_code == CLD_KILLED && end.si_status == SIGKILL;
}

Status KillFirst(ContainerCreation& c) {
  if (!c.init.valid()) return OkStatus();
  c.killed_at_birth = KilledAtBirth(c);
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

Status JoinGroup(ContainerCreation& c) {
  IgnoreError(RunOnAllCpus(c.init.pid()), "then it runs where its caller does");
  return c.group ? c.group->Attach(c.init.pid(), c.born_in) : OkStatus();
}

Status MoveDevices(ContainerCreation& c) {
  const std::vector<oci::NetDevice>& devices = c.config.linux_.net_devices;
  if (devices.empty()) return OkStatus();
  ASSIGN_OR_RETURN(c.devices, network::DeviceMoves::Open(c.init.fd()));
  for (const oci::NetDevice& device : devices) {
    Status moved = c.devices->Move(device.host_name, device.name);
    if (moved) continue;
    Error error = std::move(moved).error();
    error.field = "linux.netDevices." + device.host_name;
    error.what = error.field + ": " + error.what;
    return error;
  }
  return OkStatus();
}
Status GiveDevicesBack(ContainerCreation& c) {
  return c.devices ? c.devices->GiveBack() : OkStatus();
}

Status ConfineFirst(ContainerCreation& c) {
  RETURN_IF_ERROR(SetOomScore(c.child.confinement, std::to_string(c.init.pid())));
  return ConfineFromOutside(c.child.confinement, c.init.pid());
}

Status LetMount(ContainerCreation& c) { return SendNote(c.sync.get(), Note::kGo); }

Status FillGroup(ContainerCreation& c) {
  if (!c.group) return OkStatus();
  return c.group->Apply(c.config.linux_.resources, cgroups::DeviceRules::kApply);
}

Status AwaitMounts(ContainerCreation& c) {
  RETURN_IF_ERROR(ExpectNote(c.sync.get(), Note::kMounted));
  return OkStatus();
}

Status LimitFirst(ContainerCreation& c) {
  return LimitFromOutside(c.child.confinement, c.init.pid());
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
    {"map ids", MapIds, nullptr},                            // needs the child, and our privilege
    {"join group", JoinGroup, nullptr},                      // before the cgroup namespace is taken
    {"confine from outside", ConfineFirst, nullptr},         // before it hides from us, too
    {"move network devices", MoveDevices, GiveDevicesBack},  // before sysctls and hooks see them
    {"let mount", LetMount, nullptr},
    {"fill group", FillGroup, nullptr},  // beside the mounts; before anything of the user's runs
    {"await mounts", AwaitMounts, nullptr},
    {"limit from outside", LimitFirst, nullptr},  // mounting may need more than the user gets
    {"save record", SaveRecord, nullptr},         // hooks call `state`
    {"run outer hooks", RunOuterHooks, RunPoststop},
    {"await ready", AwaitReady, nullptr},
    {"send pidfd", SendPidfd, nullptr},
    {"write pid file", WritePidFile, RemovePidFile},
};

}  // namespace

std::span<const StepRow<ContainerCreation>> ContainerSteps() { return kContainerSteps; }

Result<CreatedContainer> CreateContainer(const ContainerHost& host, const CreateRequest& request) {
  RETURN_IF_ERROR(CheckContainerId(request.id));
  RETURN_IF_ERROR(CheckPreserved(request.preserve_fds));
  for (const bool born_elsewhere : {false, true}) {
    ContainerCreation creation;
    creation.host = &host;
    creation.request = &request;
    creation.born_elsewhere = born_elsewhere;
    std::vector<Timing> timings;
    Status done = WithoutStep(RunSteps(ContainerSteps(), creation, &timings));
    TellSteps(host, timings, creation.child.confinement);
    if (!done && creation.killed_at_birth && !born_elsewhere) continue;
    if (!done) return std::move(done).error();
    creation.directory->Unlock();  // explicitly: the child was cloned with a copy
    return CreatedContainer{std::move(creation.init), std::move(creation.terminal)};
  }
  CHECK(false);
}

}  // namespace hutch::runtime
