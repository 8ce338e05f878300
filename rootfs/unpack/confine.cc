#include "rootfs/unpack/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <csignal>
#include <vector>

#include "base/file.h"
#include "base/sys_raw.h"
#include "rootfs/limits.h"

#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)  // ABI 3, Linux 6.2
#endif

namespace hutch::rootfs {
namespace {

constexpr char kIdentityMap[] = "0 0 65536";
constexpr rlim_t kMaxOpenFiles = 1024;  // removing a directory holds one for each level
constexpr uint32_t Bit(int capability) { return 1u << capability; }
constexpr uint32_t kCaps =
    Bit(CAP_CHOWN) | Bit(CAP_DAC_OVERRIDE) | Bit(CAP_FOWNER) | Bit(CAP_FSETID);

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#endif

// Files below the root, memory, the ends of pipes, the clock, and leaving.
constexpr long kAllowed[] = {
    SYS_read,          SYS_write,        SYS_pwrite64,       SYS_lseek,
    SYS_close,         SYS_fstat,        SYS_openat2,        SYS_mkdirat,
    SYS_mknodat,       SYS_symlinkat,    SYS_linkat,         SYS_unlinkat,
    SYS_fchmod,        SYS_fchmodat,     SYS_fchown,         SYS_fchownat,
    SYS_utimensat,     SYS_fsetxattr,    SYS_ftruncate,      SYS_getdents64,
    SYS_fcntl,         SYS_newfstatat,   SYS_statx,          SYS_brk,
    SYS_mmap,          SYS_munmap,       SYS_mremap,         SYS_mprotect,
    SYS_madvise,       SYS_futex,        SYS_getrandom,      SYS_exit,
    SYS_clock_gettime, SYS_gettimeofday,
#ifdef SYS_time
    SYS_time,
#endif
    SYS_exit_group,    SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_restart_syscall,
};

// What unpacking does below the root. Reading files is not among it.
constexpr uint64_t kWrites = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                             LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                             LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                             LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM |
                             LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_REFER;
constexpr uint64_t kAllOfAbi2 = (LANDLOCK_ACCESS_FS_REFER << 1) - 1;

Error Fail(const char* step) { return SysError(errno, std::string("confine: ") + step); }

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

// The second wall around the same directory. Without ABI 2 (Linux 5.19) a hard link from one
// directory to another would be refused, so an older one is not used.
Status RestrictWithLandlock(int root_fd) {
  const long abi =
      sys::Raw(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 2) return OkStatus();
  const uint64_t more = abi >= 3 ? LANDLOCK_ACCESS_FS_TRUNCATE : 0;
  const landlock_ruleset_attr attr{kAllOfAbi2 | more};
  const UniqueFd ruleset(
      static_cast<int>(sys::Raw(SYS_landlock_create_ruleset, &attr, sizeof attr, 0)));
  const landlock_path_beneath_attr rule{kWrites | more, root_fd};
  if (sys::Raw(SYS_landlock_add_rule, ruleset.get(), LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
    return Fail("landlock rule");
  if (sys::Raw(SYS_landlock_restrict_self, ruleset.get(), 0) < 0) return Fail("landlock");
  return OkStatus();
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

Status SetLimits() {
  const std::pair<__rlimit_resource, rlim_t> limits[] = {
      {RLIMIT_CORE, 0},
      {RLIMIT_NOFILE, kMaxOpenFiles},
      {RLIMIT_CPU, kUnpackCpuSeconds},
      {RLIMIT_FSIZE, kMaxLayerBytes},
      {RLIMIT_AS, kUnpackMemoryBytes},
  };
  for (const auto& [resource, value] : limits) {
    struct rlimit limit {};
    if (::getrlimit(resource, &limit) != 0) return Fail("resource limits");
    limit.rlim_cur = limit.rlim_max = std::min(limit.rlim_max, value);
    if (::setrlimit(resource, &limit) != 0) return Fail("resource limits");
  }
  return OkStatus();
}

// The directory as the root, with the host's tree gone.
Result<UniqueFd> EnterRoot(const std::string& directory) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Fail("private mounts");
  if (::mount(directory.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return Fail("bind the directory");
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  if (const int rc = sys::MountSetattr(AT_FDCWD, directory.c_str(), 0, &attr); rc < 0)
    return SysError(-rc, "confine: mount attributes");
  if (::chdir(directory.c_str()) != 0) return Fail("enter the directory");
  if (const int rc = sys::PivotRoot(".", "."); rc < 0) return SysError(-rc, "confine: pivot_root");
  if (::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) return Fail("leave the host");
  return Open("/", O_RDONLY | O_DIRECTORY);
}

// Runs in the outer process, which alone may write the maps.
[[noreturn]] void Watch(pid_t child, int ready_fd, int go_fd) {
  char byte = 0;
  const std::string proc = "/proc/" + std::to_string(child);
  const bool go = ::read(ready_fd, &byte, 1) == 1 &&
                  WriteExisting(proc + "/uid_map", kIdentityMap) &&
                  WriteExisting(proc + "/gid_map", kIdentityMap) && ::write(go_fd, &byte, 1) == 1;
  if (!go) ::kill(child, SIGKILL);  // our own child, not yet waited for
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace

Result<UniqueFd> ConfineTo(const std::string& directory) {
  ASSIGN_OR_RETURN(Pipe ready, MakePipe());
  ASSIGN_OR_RETURN(Pipe go, MakePipe());
  struct clone_args args {};
  args.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
               CLONE_NEWCGROUP | CLONE_NEWPID;
  args.exit_signal = SIGCHLD;
  const long pid = sys::Clone3(&args);
  if (pid < 0) return SysError(static_cast<int>(-pid), "confine: clone");
  if (pid > 0) Watch(static_cast<pid_t>(pid), ready.read.get(), go.write.get());
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return Fail("parent death signal");
  go.write.reset();
  char byte = 'r';
  if (::write(ready.write.get(), &byte, 1) != 1 || ::read(go.read.get(), &byte, 1) != 1)
    return Error{.code = Code::kKernel, .what = "confine: the id maps could not be written"};
  ASSIGN_OR_RETURN(UniqueFd root, EnterRoot(directory));
  RETURN_IF_ERROR(SetLimits());
  RETURN_IF_ERROR(DropPrivileges());
  RETURN_IF_ERROR(RestrictWithLandlock(root.get()));
  RETURN_IF_ERROR(InstallFilter());
  return root;
}

}  // namespace hutch::rootfs
