#include "network/egress/confine.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/time.h>

#include <csignal>
#include <vector>

#include "base/sys_raw.h"
#include "base/unique_fd.h"

namespace hutch::network {
namespace {

constexpr char kUserName[] = "hutch-egress";
// Any directory that every host has: what is mounted on it is seen by nobody else.
constexpr char kAnyDirectory[] = "/etc";

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#endif

constexpr long kAllowed[] = {
    // Sockets that are there.
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_recvfrom, SYS_recvmsg, SYS_sendto, SYS_sendmsg,
    SYS_accept4, SYS_connect, SYS_bind, SYS_getsockname, SYS_getpeername, SYS_getsockopt,
    SYS_setsockopt, SYS_shutdown, SYS_close, SYS_fcntl,
    // The loop.
    SYS_epoll_ctl, SYS_epoll_pwait,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
    SYS_timerfd_settime,
    // Clocks, where the kernel's shared page (vdso(7)) cannot tell the time.
    SYS_clock_gettime, SYS_gettimeofday,
#ifdef SYS_time
    SYS_time,
#endif
    // Files that hutchd sends: counters and long settings.
    SYS_fallocate, SYS_lseek,
    // Memory, and leaving. One's own signals: abort(3) of a failed check.
    SYS_brk, SYS_munmap, SYS_mremap, SYS_madvise, SYS_futex, SYS_getrandom, SYS_exit,
    SYS_exit_group, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_restart_syscall, SYS_getpid};

Error Fail(const char* step) { return SysError(errno, std::string("confine: ") + step); }
Error Stays(const char* what) {
  return {.code = Code::kKernel, .what = std::string("confine: ") + what};
}

constexpr uint32_t LowHalf(size_t argument) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + argument * sizeof(uint64_t));
}

using Program = std::vector<sock_filter>;
constexpr sock_filter kAllow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
constexpr sock_filter kDeny = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);

void IfCall(Program* program, long number, const Program& then) {
  program->push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0,
                              static_cast<uint8_t>(then.size())));
  program->insert(program->end(), then.begin(), then.end());
}

// Allowed when argument `index` is one of two values.
Program OneOf(size_t index, uint32_t a, uint32_t b) {
  return {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalf(index)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, a, 1, 0),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, b, 0, 1), kAllow, kDeny};
}
Program NotExecutable() {
  return {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, LowHalf(2)),
          BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1), kDeny, kAllow};
}

Status InstallFilter() {
  Program program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const long number : kAllowed) IfCall(&program, number, {kAllow});
  IfCall(&program, SYS_socket, OneOf(0, AF_INET, AF_INET6));
  IfCall(&program, SYS_ioctl, OneOf(1, FIONBIO, FIONREAD));
  IfCall(&program, SYS_mmap, NotExecutable());
  IfCall(&program, SYS_mprotect, NotExecutable());
  program.push_back(kDeny);
  const sock_fprog prog{static_cast<unsigned short>(program.size()), program.data()};
  if (sys::Raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0) return Fail("seccomp filter");
  return OkStatus();
}

// No rule: every access to a file is refused.
Status RestrictWithLandlock() {
  const long abi =
      sys::Raw(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) return OkStatus();
  const landlock_ruleset_attr attr{(LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1};  // all of ABI 1
  const UniqueFd ruleset(
      static_cast<int>(sys::Raw(SYS_landlock_create_ruleset, &attr, sizeof attr, 0)));
  if (sys::Raw(SYS_landlock_restrict_self, ruleset.get(), 0) < 0) return Fail("landlock");
  return OkStatus();
}

Status EnterEmptyRoot() {
  if (::unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) != 0) return Fail("namespaces");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Fail("private mounts");
  if (::mount("hutch-egress", kAnyDirectory, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "size=4k,mode=0555") != 0)
    return Fail("empty root");
  if (::chdir(kAnyDirectory) != 0) return Fail("enter the empty root");
  if (const int rc = sys::PivotRoot(".", "."); rc < 0) return SysError(-rc, "confine: pivot_root");
  if (::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) return Fail("leave the host");
  return OkStatus();
}

Status SetLimits() {
  struct rlimit files {};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return Fail("resource limits");
  files.rlim_cur = files.rlim_max;
  const struct rlimit none {};
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0 || ::setrlimit(RLIMIT_CORE, &none) != 0 ||
      ::setrlimit(RLIMIT_NPROC, &none) != 0)
    return Fail("resource limits");
  return OkStatus();
}

Status DropPrivileges(const EgressUser& user) {
  for (int cap = 0; ::prctl(PR_CAPBSET_READ, cap) >= 0; ++cap)
    if (::prctl(PR_CAPBSET_DROP, cap) != 0) return Fail("bounding set");
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return Fail("ambient set");
  if (::setgroups(0, nullptr) != 0) return Fail("groups");
  if (::setresgid(user.gid, user.gid, user.gid) != 0) return Fail("group");
  if (::setresuid(user.uid, user.uid, user.uid) != 0) return Fail("user");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (sys::Capset(&header, data) < 0) return Fail("capabilities");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Fail("no new privileges");
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return Fail("not dumpable");
  // After the change of ids, which clears it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return Fail("parent death signal");
  return OkStatus();
}

// What "returned 0" does not prove.
Status VerifyDropped(const EgressUser& user) {
  uid_t uids[3] = {};
  gid_t gids[3] = {};
  if (::getresuid(&uids[0], &uids[1], &uids[2]) != 0 ||
      ::getresgid(&gids[0], &gids[1], &gids[2]) != 0)
    return Fail("ids");
  for (const uid_t uid : uids)
    if (uid != user.uid || uid == 0) return Stays("the user stays");
  for (const gid_t gid : gids)
    if (gid != user.gid || gid == 0) return Stays("the group stays");
  if (::getgroups(0, nullptr) != 0) return Stays("groups stay");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (sys::Capget(&header, data) < 0) return Fail("capabilities");
  for (const auto& half : data)
    if ((half.permitted | half.effective | half.inheritable) != 0)
      return Stays("capabilities stay");
  if (::setresuid(0, 0, 0) == 0) return Stays("root can be had again");
  if (::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return Stays("new privileges stay");
  if (::access("/proc", F_OK) == 0) return Stays("the host's files stay");
  return OkStatus();
}

Status VerifyFilter() {
  if (sys::Raw(SYS_openat, AT_FDCWD, "/", O_RDONLY) != -EPERM) return Stays("files can be opened");
  if (sys::Raw(SYS_socket, AF_UNIX, SOCK_STREAM, 0) != -EPERM)
    return Stays("sockets of any kind can be made");
  if (sys::Raw(SYS_mmap, nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
               0) != -EPERM)
    return Stays("memory can be made executable");
  // Certificates are judged by it, and the C library takes a refusal for a time.
  struct timeval now {};
  if (sys::Raw(SYS_gettimeofday, &now, nullptr) != 0 || now.tv_sec == 0)
    return Stays("the clock cannot be read");
  return sys::Raw(SYS_getppid) == -EPERM ? OkStatus() : Stays("seccomp does not refuse");
}

}  // namespace

EgressUser FindEgressUser() {
  const struct passwd* entry = ::getpwnam(kUserName);
  if (entry == nullptr || entry->pw_uid == 0 || entry->pw_gid == 0) return {};
  return {entry->pw_uid, entry->pw_gid};
}

Status ConfineEgress(const EgressUser& user) {
  RETURN_IF_ERROR(SetLimits());
  RETURN_IF_ERROR(EnterEmptyRoot());
  RETURN_IF_ERROR(DropPrivileges(user));
  RETURN_IF_ERROR(VerifyDropped(user));
  RETURN_IF_ERROR(RestrictWithLandlock());
  RETURN_IF_ERROR(InstallFilter());
  return VerifyFilter();
}

}  // namespace hutch::network
