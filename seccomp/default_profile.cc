#include "seccomp/default_profile.h"

#include "base/text.h"
#include "seccomp/syscall_numbers.h"

namespace hutch::seccomp {
namespace {

using enum Verdict;
using enum Reach;

constexpr SyscallGroup kGroups[] = {
    {"files", kAllow, kSandbox,
     "access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat "
     "faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl "
     "fdatasync "
     "fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat "
     "getcwd "
     "getdents getdents64 getxattr getxattrat inotify_add_watch inotify_init inotify_init1 "
     "inotify_rm_watch lchown lgetxattr link linkat listxattr listxattrat llistxattr lremovexattr "
     "lseek lsetxattr lstat mkdir mkdirat name_to_handle_at newfstatat open openat openat2 pread64 "
     "preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv "
     "removexattr "
     "removexattrat rename renameat renameat2 rmdir setxattr setxattrat splice stat statfs statx "
     "symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime "
     "utimensat utimes vmsplice write writev"},
    // Device nodes are refused by the kernel in a user namespace; FIFOs and sockets need the call.
    {"nodes", kAllow, kSandbox, "mknod mknodat"},
    {"memory", kAllow, kSandbox,
     "brk madvise map_shadow_stack membarrier memfd_create mincore mlock mlock2 mlockall mmap "
     "mprotect "
     "mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect "
     "remap_file_pages"},
    {"processes", kAllow, kSandbox,
     "arch_prctl capget capset execve execveat exit exit_group fork get_robust_list "
     "get_thread_area "
     "getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority getresgid "
     "getresuid getrlimit getrusage getsid gettid getuid ioprio_get ioprio_set kill "
     "landlock_add_rule "
     "landlock_create_ruleset landlock_restrict_self pidfd_open pidfd_send_signal prctl prlimit64 "
     "process_mrelease rseq sched_get_priority_max sched_get_priority_min sched_getaffinity "
     "sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity "
     "sched_setattr sched_setparam sched_setscheduler sched_yield seccomp set_robust_list "
     "set_thread_area set_tid_address setfsgid setfsuid setgid setgroups setpgid setpriority "
     "setregid "
     "setresgid setresuid setreuid setrlimit setsid setuid tgkill tkill vfork wait4 waitid"},
    // Since Linux 4.8 a tracer cannot step around the filter, and ids are disjoint between
    // sandboxes.
    {"debugging", kAllow, kSandbox, "process_vm_readv process_vm_writev ptrace"},
    {"signals", kAllow, kSandbox,
     "pause restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn "
     "rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack signalfd signalfd4"},
    {"waiting", kAllow, kSandbox,
     "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 "
     "futex "
     "futex_requeue futex_wait futex_waitv futex_wake io_cancel io_destroy io_getevents "
     "io_pgetevents "
     "io_setup io_submit pipe pipe2 poll ppoll pselect6 select"},
    // The kernel asks for a capability before adjtimex and clock_adjtime change anything.
    {"time", kAllow, kSandbox,
     "adjtimex alarm clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer "
     "gettimeofday "
     "nanosleep setitimer time timer_create timer_delete timer_getoverrun timer_gettime "
     "timer_settime "
     "timerfd_create timerfd_gettime timerfd_settime times"},
    {"system v and posix ipc", kAllow, kSandbox,
     "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv "
     "msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget"},
    {"sockets", kAllow, kSandbox,
     "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg "
     "recvmsg "
     "sendfile sendmmsg sendmsg sendto setsockopt shutdown"},
    {"about the system", kAllow, kSandbox, "getrandom sysinfo uname"},

    {"clone", kClone, kSandbox, "clone"},
    {"socket families", kSocket, kSandbox, "socket socketpair"},
    {"ioctl", kIoctl, kSandbox, "ioctl"},
    {"personality", kPersonality, kSandbox, "personality"},
    // Its flags are behind a pointer, where a filter cannot look; libc falls back to clone.
    {"clone3", kAgentOnly, kSandbox, "clone3"},

    {"namespaces", kEperm, kSandbox, "setns unshare"},
    {"mounts", kEperm, kSandbox,
     "chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree "
     "open_tree_attr "
     "pivot_root umount2"},
    {"names", kEperm, kSandbox, "setdomainname sethostname"},
    {"other processes", kEperm, kSandbox, "kcmp pidfd_getfd process_madvise vhangup"},
    {"kernel programs", kEperm, kSandbox,
     "bpf fanotify_init fanotify_mark perf_event_open userfaultfd"},
    {"host", kEperm, kHost,
     "acct clock_settime delete_module finit_module init_module ioperm iopl kexec_file_load "
     "kexec_load "
     "open_by_handle_at quotactl quotactl_fd reboot settimeofday swapoff swapon syslog"},

    {"keyrings", kEnosys, kSandbox, "add_key keyctl request_key"},
    {"io_uring", kEnosys, kSandbox, "io_uring_enter io_uring_register io_uring_setup"},
    {"memory placement", kEnosys, kSandbox,
     "cachestat get_mempolicy mbind memfd_secret migrate_pages move_pages set_mempolicy "
     "set_mempolicy_home_node"},
    // Segments of 16-bit and 32-bit programs, which the architecture check kills anyway.
    {"segments", kEnosys, kSandbox, "modify_ldt"},
    {"mount listing and security modules", kEnosys, kSandbox,
     "listmount lsm_get_self_attr lsm_list_modules lsm_set_self_attr statmount"},
    {"obsolete", kEnosys, kSandbox,
     "_sysctl afs_syscall create_module epoll_ctl_old epoll_wait_old get_kernel_syms getpmsg "
     "lookup_dcookie nfsservctl putpmsg query_module security sysfs tuxcall uselib ustat vserver"},
};

}  // namespace

std::span<const SyscallGroup> DefaultProfile() { return kGroups; }

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case kAllow:
      return "allow";
    case kEperm:
      return "EPERM";
    case kEnosys:
      return "ENOSYS";
    case kAgentOnly:
      return "agent only";
    case kClone:
    case kSocket:
    case kIoctl:
    case kPersonality:
      return "checked";
  }
  return "";
}

Result<std::map<uint32_t, SyscallGroup>> ResolveDefaultProfile() {
  std::map<uint32_t, SyscallGroup> by_number;
  for (const SyscallGroup& group : kGroups) {
    for (const std::string& name : Split(group.calls, ' ')) {
      const SyscallName known = FindSyscall(name);
      if (known.kind == SyscallName::kUnknown)
        return Error{.what = "default profile: unknown system call \"" + name + "\""};
      if (known.kind == SyscallName::kElsewhere) continue;
      if (!by_number.emplace(known.number, group).second)
        return Error{.what = "default profile: " + name + " is in two groups"};
    }
  }
  return by_number;
}

}  // namespace hutch::seccomp
