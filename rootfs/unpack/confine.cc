#include "rootfs/unpack/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstddef>
#include <vector>

#include "base/file.h"
#include "base/sys_raw.h"

namespace hutch::rootfs {
namespace {

constexpr char kIdentityMap[] = "0 0 65536";
constexpr uint32_t kCaps =
    1u << 0 /*CHOWN*/ | 1u << 1 /*DAC_OVERRIDE*/ | 1u << 3 /*FOWNER*/ | 1u << 4 /*FSETID*/;
constexpr rlim_t kMaxOpenFiles = 256;

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#endif

// Files below the root, memory, the ends of pipes, the clock, and leaving.
constexpr long kAllowed[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_openat2,
    SYS_mkdirat,
    SYS_mknodat,
    SYS_symlinkat,
    SYS_linkat,
    SYS_unlinkat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_utimensat,
    SYS_fsetxattr,
    SYS_ftruncate,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_newfstatat,
    SYS_statx,
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_futex,
    SYS_getrandom,
    SYS_clock_gettime,
    SYS_rt_sigreturn,
    SYS_rt_sigprocmask,
    SYS_getpid,
    SYS_gettid,
    SYS_exit,
    SYS_exit_group,
    SYS_restart_syscall,
};

Status Fail(const char* step) { return SysError(errno, std::string("confine: ") + step); }

Status InstallFilter() {
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const long number : kAllowed) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
  const sock_fprog prog{static_cast<unsigned short>(program.size()), program.data()};
  if (sys::Raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0) return Fail("seccomp filter");
  // Proof: a call that is not in the list.
  return sys::Raw(SYS_getppid) == -EPERM ? OkStatus() : Fail("seccomp does not refuse");
}

Status DropPrivileges() {
  for (int cap = 0; ::prctl(PR_CAPBSET_READ, cap) >= 0; ++cap)
    if (::prctl(PR_CAPBSET_DROP, cap) != 0) return Fail("bounding set");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {{kCaps, kCaps, 0}, {0, 0, 0}};
  if (sys::Capset(&header, data) < 0) return Fail("capabilities");
  if (sys::Capget(&header, data) < 0 || data[0].permitted != kCaps || data[1].permitted != 0)
    return Fail("capabilities stay");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Fail("no new privileges");
  return OkStatus();
}

Status SetLimits(unsigned cpu_seconds) {
  const std::pair<__rlimit_resource, rlim_t> limits[] = {
      {RLIMIT_CORE, 0}, {RLIMIT_NOFILE, kMaxOpenFiles}, {RLIMIT_CPU, cpu_seconds}};
  for (const auto& [resource, value] : limits) {
    const rlimit limit{value, value};
    if (::setrlimit(resource, &limit) != 0) return Fail("resource limits");
  }
  return OkStatus();
}

// The directory as the root, nosuid and nodev, with the host's tree gone.
Result<UniqueFd> EnterRoot(const std::string& directory) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Fail("private mounts").error();
  if (::mount(directory.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return Fail("bind the directory").error();
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  if (const int rc = sys::MountSetattr(AT_FDCWD, directory.c_str(), 0, &attr); rc < 0)
    return SysError(-rc, "confine: mount attributes");
  if (::chdir(directory.c_str()) != 0) return Fail("enter the directory").error();
  if (const int rc = sys::PivotRoot(".", "."); rc < 0) return SysError(-rc, "confine: pivot_root");
  if (::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) return Fail("leave the host").error();
  return Open("/", O_RDONLY | O_DIRECTORY);
}

// Runs in the outer process, which alone may write the maps.
[[noreturn]] void Watch(pid_t child, int ready_fd, int go_fd) {
  char byte = 0;
  const std::string proc = "/proc/" + std::to_string(child);
  const bool mapped = ::read(ready_fd, &byte, 1) == 1 &&
                      WriteExisting(proc + "/uid_map", kIdentityMap) &&
                      WriteExisting(proc + "/gid_map", kIdentityMap);
  if (mapped && ::write(go_fd, &byte, 1) != 1) ::kill(child, SIGKILL);
  ::close(go_fd);  // end of file tells the child that it must not go on
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

Result<UniqueFd> ConfineTo(const std::string& directory, unsigned cpu_seconds) {
  ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  ASSIGN_OR_RETURN(Pipe go, MakePipe());
  // The child's own child is PID 1 of the new PID namespace; one fork does, since CLONE_NEWPID goes
  // into it.
  struct clone_args args {};
  args.flags =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID;
  args.exit_signal = SIGCHLD;
  const long pid = sys::Clone3(&args);
  if (pid < 0) return SysError(static_cast<int>(-pid), "confine: clone");
  if (pid > 0) Watch(static_cast<pid_t>(pid), ready.read.get(), go.write.get());
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return Fail("parent death signal").error();
  go.write.reset();
  char byte = 'r';
  if (::write(ready.write.get(), &byte, 1) != 1 || ::read(go.read.get(), &byte, 1) != 1)
    return Error{.code = Code::kKernel, .what = "confine: the id maps could not be written"};
  ASSIGN_OR_RETURN(UniqueFd root, EnterRoot(directory));
  RETURN_IF_ERROR(SetLimits(cpu_seconds));
  RETURN_IF_ERROR(DropPrivileges());
  RETURN_IF_ERROR(InstallFilter());
  return root;
}

}  // namespace hutch::rootfs
