#include "runtime/container_namespaces.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "base/check.h"
#include "base/fd_socket.h"
#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/container_idmap.h"
#include "runtime/container_sync.h"

namespace hutch::runtime {
namespace {

struct NamespaceKind {
  const char* type;  // the specification's
  const char* file;  // in /proc/<pid>/ns
  int flag;
};
constexpr NamespaceKind kKinds[] = {
    {"user", "user", CLONE_NEWUSER},       {"mount", "mnt", CLONE_NEWNS},
    {"pid", "pid", CLONE_NEWPID},          {"network", "net", CLONE_NEWNET},
    {"ipc", "ipc", CLONE_NEWIPC},          {"uts", "uts", CLONE_NEWUTS},
    {"cgroup", "cgroup", CLONE_NEWCGROUP}, {"time", "time", CLONE_NEWTIME},
};

const char* FileOf(int flag) {
  for (const NamespaceKind& kind : kKinds)
    if (kind.flag == flag) return kind.file;
  CHECK(false);
}

constexpr size_t kMapBytes = 65536;           // 340 lines, says user_namespaces(7)
constexpr unsigned long kNsGetType = 0xb703;  // NS_GET_NSTYPE, _IO(0xb7, 3)

}  // namespace

std::vector<std::string> NamespaceTypes() {
  std::vector<std::string> types;
  for (const NamespaceKind& kind : kKinds) types.emplace_back(kind.type);
  return types;
}

int NamespacePlan::JoinedFd(int flag) const {
  for (const JoinedNamespace& one : joined)
    if (one.flag == flag) return one.fd.get();
  return -1;
}

Result<NamespacePlan> PlanNamespaces(const std::vector<oci::Namespace>& namespaces) {
  NamespacePlan plan;
  for (const oci::Namespace& one : namespaces) {
    int flag = 0;
    for (const NamespaceKind& kind : kKinds)
      if (one.type == kind.type) flag = kind.flag;
    if (flag == 0)
      return Error{.code = Code::kInvalidArgument,
                   .what = "unknown namespace \"" + one.type + "\"",
                   .field = "linux.namespaces"};
    if (one.path.empty()) {
      plan.fresh |= static_cast<uint64_t>(flag);
      continue;
    }
    ASSIGN_OR_RETURN(UniqueFd fd, Open(one.path, O_RDONLY));
    if (::ioctl(fd.get(), kNsGetType) != flag)
      return Error{.code = Code::kInvalidArgument,
                   .what = one.path + " is no " + one.type + " namespace",
                   .field = "linux.namespaces"};
    plan.joined.push_back({flag, std::move(fd)});
  }
  return plan;
}

Result<int> NamespacesUnlikeOurs(const Pidfd& process) {
  int flags = 0;
  for (const NamespaceKind& kind : kKinds) {
    struct stat ours, theirs;
    const std::string name = std::string("/ns/") + kind.file;
    if (::stat(("/proc/self" + name).c_str(), &ours) != 0) continue;  // not in this kernel
    const std::string path = "/proc/" + std::to_string(process.pid()) + name;
    if (::stat(path.c_str(), &theirs) != 0) return SysError(errno, path);
    if (ours.st_ino != theirs.st_ino) flags |= kind.flag;
  }
  if (process.HasEnded()) return Error{.code = Code::kNotFound, .what = "the process has ended"};
  return flags;
}

Result<bool> IsOwnNamespace(int flag, int namespace_fd) {
  if (namespace_fd < 0) return false;
  struct stat ours, theirs;
  if (::stat((std::string("/proc/self/ns/") + FileOf(flag)).c_str(), &ours) != 0 ||
      ::fstat(namespace_fd, &theirs) != 0)
    return SysError(errno, "stat a namespace");
  return ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

Status NamespaceVisit::Enter(int flag, int namespace_fd) {
  ASSIGN_OR_RETURN(UniqueFd own, Open(std::string("/proc/self/ns/") + FileOf(flag), O_RDONLY));
  if (::setns(namespace_fd, flag) != 0)
    return SysError(errno, std::string("join ") + FileOf(flag) + " namespace");
  former_.push_back({flag, std::move(own)});
  return OkStatus();
}

NamespaceVisit::~NamespaceVisit() {
  for (const JoinedNamespace& one : former_) CHECK(::setns(one.fd.get(), one.flag) == 0);
}

namespace {

Result<pid_t> PidOfPidfd(int pidfd) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile("/proc/self/fdinfo/" + std::to_string(pidfd), 4096));
  for (const std::string& line : Split(text, '\n')) {
    if (!line.starts_with("Pid:")) continue;
    const pid_t pid = std::atoi(line.c_str() + 4);
    if (pid > 0) return pid;
  }
  return Error{.code = Code::kKernel, .what = "the cloned process is gone"};
}

// One clone3; the child never comes back from here.
Result<Pidfd> CloneOnce(const CloneRequest& request, uint64_t more_flags, bool into_cgroup) {
  int pidfd = -1;
  clone_args args{};
  args.flags = request.flags | more_flags | CLONE_PIDFD | CLONE_CLEAR_SIGHAND;
  args.pidfd = reinterpret_cast<uintptr_t>(&pidfd);
  if ((more_flags & CLONE_PARENT) == 0) args.exit_signal = SIGCHLD;
  if (into_cgroup) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<uint64_t>(request.cgroup_fd);
  }
  const long pid = sys::Clone3(&args);
  if (pid == 0) {
    request.child();
    ::_exit(1);
  }
  if (pid < 0) return SysError(static_cast<int>(-pid), "clone3");
  return Pidfd(UniqueFd(pidfd), static_cast<pid_t>(pid));
}

}  // namespace

Status CloseOthers(int keep_below, std::vector<int> keep) {
  keep.push_back(INT_MAX);
  std::sort(keep.begin(), keep.end());
  unsigned from = static_cast<unsigned>(keep_below);
  for (const int fd : keep) {
    if (fd < 0 || static_cast<unsigned>(fd) < from) continue;
    const auto one = static_cast<unsigned>(fd);
    if (one > from)
      if (const int rc = sys::CloseRange(from, one - 1, 0); rc < 0)
        return SysError(-rc, "close_range");
    from = one + 1;
  }
  return OkStatus();
}

namespace {

Result<Pidfd> CloneWithHelper(const CloneRequest& request, bool into_cgroup) {
  ASSIGN_OR_RETURN(SocketPair pair, MakeSeqpacketPair());
  CloneRequest stage{.cgroup_fd = request.cgroup_fd, .child = {}};
  stage.child = [&request, &pair] {
    Status prepared = request.prepare();
    std::vector<int> keep = request.keep;
    keep.push_back(pair.b.get());
    if (prepared && request.keep_below != INT_MAX) prepared = CloseOthers(request.keep_below, keep);
    if (!prepared) {
      SendFailure(pair.b.get(), prepared.error());
      ::_exit(1);
    }
    Result<Pidfd> child = CloneOnce(request, CLONE_PARENT, false);
    if (!child)
      SendFailure(pair.b.get(), child.error());
    else
      IgnoreError(SendNote(pair.b.get(), Note::kStaged, {}, {child->fd()}),
                  "then nobody waits for it");
    ::_exit(0);
  };
  ASSIGN_OR_RETURN(const Pidfd helper, CloneOnce(stage, 0, into_cgroup));
  pair.b.reset();
  Result<ReceivedNote> staged = ExpectNote(pair.a.get(), Note::kStaged);
  int ended = 0;
  while (::waitpid(helper.pid(), &ended, 0) < 0 && errno == EINTR) continue;
  if (!staged && WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL)
    return SysError(EBUSY, "the group kills who is born in it");
  if (!staged) return std::move(staged).error();
  if (staged->fds.size() != 1)
    return Error{.code = Code::kInternal, .what = "no descriptor of the cloned process"};
  ASSIGN_OR_RETURN(const pid_t pid, PidOfPidfd(staged->fds[0].get()));
  return Pidfd(std::move(staged->fds[0]), pid);
}

}  // namespace

Result<ClonedProcess> CloneContainer(const CloneRequest& request) {
  for (const bool into_cgroup : {true, false}) {
    if (into_cgroup && request.cgroup_fd < 0) continue;
    Result<Pidfd> child = request.prepare ? CloneWithHelper(request, into_cgroup)
                                          : CloneOnce(request, 0, into_cgroup);
    if (child) return ClonedProcess{std::move(*child), into_cgroup};
    if (!into_cgroup || child.error().sys != EBUSY) return std::move(child).error();
  }
  CHECK(false);
}

namespace {

Status RunMapHelper(const char* program, pid_t pid, const std::vector<oci::IdMapping>& maps) {
  std::vector<std::string> args = {program, std::to_string(pid)};
  for (const oci::IdMapping& map : maps)
    for (const uint32_t number : {map.container_id, map.host_id, map.size})
      args.push_back(std::to_string(number));
  std::vector<char*> argv;
  for (std::string& one : args) argv.push_back(one.data());
  argv.push_back(nullptr);
  CloneRequest request;
  request.child = [&argv, program] {
    ::execvp(program, argv.data());
    ::_exit(127);
  };
  ASSIGN_OR_RETURN(const ClonedProcess helper, CloneContainer(request));
  int status = 0;
  while (::waitpid(helper.process.pid(), &status, 0) < 0)
    if (errno != EINTR) return SysError(errno, "waitpid");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return OkStatus();
  return Error{.code = Code::kForbidden,
               .what = std::string(program) + " failed",
               .hint = "is there a line for this user in /etc/subuid and /etc/subgid?"};
}

// As seen from our own user namespace.
Result<std::vector<oci::IdMapping>> ReadMap(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMapBytes));
  std::vector<oci::IdMapping> maps;
  std::istringstream words(text);
  for (oci::IdMapping map; words >> map.container_id >> map.host_id >> map.size;)
    maps.push_back(map);
  return maps;
}

}  // namespace

Status ReadIdMaps(pid_t pid, oci::ContainerLinux* linux_part) {
  const std::string process = "/proc/" + std::to_string(pid);
  ASSIGN_OR_RETURN(linux_part->uid_mappings, ReadMap(process + "/uid_map"));
  ASSIGN_OR_RETURN(linux_part->gid_mappings, ReadMap(process + "/gid_map"));
  return OkStatus();
}

namespace {

Status ReadMapsOfNamespace(int user_fd, oci::ContainerLinux* linux_part) {
  ASSIGN_OR_RETURN(SocketPair pair, MakeSeqpacketPair());
  CloneRequest request;
  request.child = [&pair, user_fd] {
    pair.a.reset();
    if (::setns(user_fd, CLONE_NEWUSER) != 0)
      SendFailure(pair.b.get(), SysError(errno, "join the user namespace"));
    else if (SendNote(pair.b.get(), Note::kReady))
      IgnoreError(ExpectNote(pair.b.get(), Note::kGo), "it ends with whoever waits for it");
    ::_exit(1);
  };
  ASSIGN_OR_RETURN(const ClonedProcess helper, CloneContainer(request));
  pair.b.reset();
  const Result<ReceivedNote> joined = ExpectNote(pair.a.get(), Note::kReady);
  Status read = joined ? ReadIdMaps(helper.process.pid(), linux_part) : Status(joined.error());
  RETURN_IF_ERROR(helper.process.Signal(SIGKILL));
  while (::waitpid(helper.process.pid(), nullptr, 0) < 0 && errno == EINTR) continue;
  return read;
}

}  // namespace

Status FillIdMaps(const NamespacePlan& plan, oci::ContainerLinux* linux_part) {
  if (const int fd = plan.JoinedFd(CLONE_NEWUSER); fd >= 0)
    return ReadMapsOfNamespace(fd, linux_part);
  if (!plan.Makes(CLONE_NEWUSER) || !linux_part->uid_mappings.empty()) return OkStatus();
  linux_part->uid_mappings = {{.container_id = 0, .host_id = ::geteuid(), .size = 1}};
  linux_part->gid_mappings = {{.container_id = 0, .host_id = ::getegid(), .size = 1}};
  return OkStatus();
}

Status WriteIdMaps(pid_t pid, const std::vector<oci::IdMapping>& uids,
                   const std::vector<oci::IdMapping>& gids) {
  const std::string process = "/proc/" + std::to_string(pid);
  if (!gids.empty()) {
    Status direct = WriteExisting(process + "/gid_map", rootfs::IdMapText(gids));
    if (!direct) {
      const bool own_group =
          gids.size() == 1 && gids[0].size == 1 && gids[0].host_id == ::getegid();
      if (own_group) {
        RETURN_IF_ERROR(WriteExisting(process + "/setgroups", "deny"));
        RETURN_IF_ERROR(WriteExisting(process + "/gid_map", rootfs::IdMapText(gids)));
      } else {
        RETURN_IF_ERROR(RunMapHelper("newgidmap", pid, gids));
      }
    }
  }
  if (uids.empty() || WriteExisting(process + "/uid_map", rootfs::IdMapText(uids)))
    return OkStatus();
  return RunMapHelper("newuidmap", pid, uids);
}

Status MakeTimeNamespace(const oci::ContainerConfig& config) {
  if (::unshare(CLONE_NEWTIME) != 0) return SysError(errno, "unshare the time namespace");
  std::string text;
  for (const auto& [clock, offset] : config.linux_.time_offsets)
    text += clock + " " + std::to_string(offset.seconds) + " " +
            std::to_string(offset.nanoseconds) + "\n";
  if (!text.empty()) RETURN_IF_ERROR(WriteExisting("/proc/self/timens_offsets", text));
  ASSIGN_OR_RETURN(const UniqueFd fd, Open("/proc/self/ns/time_for_children", O_RDONLY));
  if (::setns(fd.get(), CLONE_NEWTIME) != 0) return SysError(errno, "enter the time namespace");
  return OkStatus();
}

Status BringLoopbackUp() {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SysError(errno, "socket");
  ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(fd.get(), SIOCSIFFLAGS, &request) != 0) return SysError(errno, "bring up lo");
  return OkStatus();
}

}  // namespace hutch::runtime
