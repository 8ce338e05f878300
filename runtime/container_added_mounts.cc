// Mounts of a container that runs: added and removed from outside.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/fd_socket.h"
#include "base/sys_raw.h"
#include "oci/json.h"
#include "rootfs/container_mounts.h"
#include "runtime/container.h"
#include "runtime/container_config_reading.h"
#include "runtime/container_namespaces.h"
#include "runtime/container_sync.h"

namespace hutch::runtime {
namespace {

struct Target {
  Pidfd process;
  int namespaces = 0;  // to be joined
  oci::ContainerConfig config;
  rootfs::ContainerMountSurroundings where;
};

Result<Target> FindTarget(const ContainerHost& host, const std::string& id) {
  ASSIGN_OR_RETURN(const ContainerView view, ViewContainer(host, id));
  if (view.status == ContainerStatus::kStopped || view.status == ContainerStatus::kCreating)
    return Error{.code = Code::kBadState, .what = "container not running"};
  Target target;
  ASSIGN_OR_RETURN(target.process, OpenFirstProcess(view.record));
  ASSIGN_OR_RETURN(const std::string text, ReadContainerConfigFile(ConfigFileOf(host.root, id)));
  ASSIGN_OR_RETURN(target.config, ParseContainerConfigText(text));
  ASSIGN_OR_RETURN(const int unlike, NamespacesUnlikeOurs(target.process));
  if ((unlike & CLONE_NEWNS) == 0)
    return Error{.code = Code::kBadState, .what = "the container has no mount namespace"};
  target.namespaces = unlike & (CLONE_NEWNS | CLONE_NEWUSER);
  target.where.bundle = view.record.bundle;
  target.where.user_namespace = (unlike & CLONE_NEWUSER) != 0;
  if (!target.where.user_namespace) return target;
  RETURN_IF_ERROR(
      ReadIdMaps(view.record.pid, &target.config.linux_));  // "idmap" may mean the container's
  return target;
}

Status EnterAsRoot(const Target& target) {
  // Whoever shares the pid namespace must not look into this process.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return SysError(errno, "not dumpable");
  if (::setns(target.process.fd(), target.namespaces) != 0)
    return SysError(errno, "join the container's namespaces");
  if (!target.where.user_namespace) return OkStatus();
  if (const long rc = sys::Raw(SYS_setgroups, 0, nullptr); rc < 0 && rc != -EPERM)
    return SysError(static_cast<int>(-rc), "setgroups");
  if (const long rc = sys::Raw(SYS_setresgid, 0, 0, 0); rc < 0)
    return SysError(static_cast<int>(-rc), "become group 0 of the user namespace");
  if (const long rc = sys::Raw(SYS_setresuid, 0, 0, 0); rc < 0)
    return SysError(static_cast<int>(-rc), "become user 0 of the user namespace");
  return OkStatus();
}

// In a process of its own: there is no way back from a user namespace.
Status DoInside(const Target& target, const std::function<Status()>& work) {
  ASSIGN_OR_RETURN(SocketPair pair, MakeSeqpacketPair());
  CloneRequest request;
  request.child = [&pair, &target, &work] {
    Status done = EnterAsRoot(target);
    if (done) done = work();
    if (done) done = SendNote(pair.b.get(), Note::kReady);
    if (!done) SendFailure(pair.b.get(), done.error());
    ::_exit(done ? 0 : 1);
  };
  ASSIGN_OR_RETURN(const ClonedProcess helper, CloneContainer(request));
  pair.b.reset();
  const Result<ReceivedNote> done = ExpectNote(pair.a.get(), Note::kReady);
  while (::waitpid(helper.process.pid(), nullptr, 0) < 0 && errno == EINTR) continue;
  return done ? OkStatus() : Status(done.error());
}

Result<std::vector<oci::ContainerMount>> ReadMounts(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadContainerConfigFile(file));
  ASSIGN_OR_RETURN(const oci::Json json, oci::ParseJson(text));
  return oci::ParseContainerMounts(json);
}

}  // namespace

Status AddMounts(const ContainerHost& host, const std::string& id, const std::string& file) {
  ASSIGN_OR_RETURN(Target target, FindTarget(host, id));
  ASSIGN_OR_RETURN(target.config.mounts, ReadMounts(file));
  ASSIGN_OR_RETURN(rootfs::PreparedContainerMounts mounts,
                   rootfs::PrepareAddedMounts(target.config, target.where));
  return DoInside(target, [&mounts] { return rootfs::AddContainerMounts(mounts); });
}

Status RemoveMounts(const ContainerHost& host, const std::string& id, const std::string& file) {
  ASSIGN_OR_RETURN(const Target target, FindTarget(host, id));
  ASSIGN_OR_RETURN(const std::vector<oci::ContainerMount> mounts, ReadMounts(file));
  return DoInside(target, [&mounts] { return rootfs::RemoveContainerMounts(mounts); });
}

}  // namespace hutch::runtime
