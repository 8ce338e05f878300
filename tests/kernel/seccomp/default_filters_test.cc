// What the default filters deny, asked of the running kernel. Test names are those of the hardening
// catalogue.
#include <asm/ioctls.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "seccomp/default_profile.h"
#include "seccomp/syscall_numbers.h"
#include "tests/kernel/seccomp/confined.h"

namespace hutch::seccomp {
namespace {

constexpr long kMinusOne = -1;

// The errno of one call inside a tenant's process.
int TenantErrno(long number, long a0 = 0, long a1 = 0, long a2 = 0, long a3 = 0, long a4 = 0) {
  const int status = Confined(Layers::kTenant, [=] { return ErrnoOf(number, a0, a1, a2, a3, a4); });
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(SeccompKernel, af_alg_denied) {
  EXPECT_EQ(TenantErrno(SYS_socket, AF_ALG, SOCK_SEQPACKET, 0), EAFNOSUPPORT);
  EXPECT_EQ(Ask(Layers::kTenant, {{SYS_socket, {AF_ALG, SOCK_SEQPACKET, 0}}})[0], EAFNOSUPPORT);
}

TEST(SeccompKernel, vsock_denied) {
  EXPECT_EQ(Ask(Layers::kTenant, {{SYS_socket, {AF_VSOCK, SOCK_STREAM, 0}}})[0], EAFNOSUPPORT);
}

TEST(SeccompKernel, family_table) {
  for (const uint32_t call : {uint32_t{SYS_socket}, uint32_t{SYS_socketpair}}) {
    std::vector<Probe> probes;
    for (uint64_t family = 0; family <= 46; ++family)
      probes.push_back({call, {family, SOCK_STREAM, 0}});
    const std::vector<int> answers = Ask(Layers::kTenant, probes);
    for (int family = 0; family <= 46; ++family) {
      const bool open =
          family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK;
      EXPECT_EQ(answers[static_cast<size_t>(family)], open ? kLetThrough : EAFNOSUPPORT) << family;
    }
  }
}

TEST(SeccompKernel, nft_in_sandbox_denied) {
  EXPECT_EQ(TenantErrno(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER), EPROTONOSUPPORT);
  EXPECT_EQ(TenantErrno(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), 0);
}

TEST(SeccompKernel, protocol_modules_denied) {
  for (const long protocol : {33, 115, 132, 256, 262})
    EXPECT_EQ(Ask(Layers::kTenant,
                  {{SYS_socket, {AF_INET, SOCK_STREAM, static_cast<uint64_t>(protocol)}}})[0],
              EPROTONOSUPPORT);
}

TEST(SeccompKernel, io_uring_denied) {
  for (const long call : {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register})
    EXPECT_EQ(TenantErrno(call, kMinusOne), ENOSYS);
}

TEST(SeccompKernel, keyctl_blocked) {
  for (const long call : {SYS_keyctl, SYS_add_key, SYS_request_key})
    EXPECT_EQ(TenantErrno(call), ENOSYS);
}

TEST(SeccompKernel, tiocsti_high_bits) {
  for (const long request : {TIOCSTI, TIOCLINUX, TIOCSETD})
    for (const long high : {0L, 1L << 32, 1L << 63, -1L << 32})
      EXPECT_EQ(TenantErrno(SYS_ioctl, kMinusOne, request | high), EPERM);
  EXPECT_EQ(TenantErrno(SYS_ioctl, kMinusOne, TIOCGWINSZ), EBADF);
}

TEST(SeccompKernel, nested_userns_denied) {
  for (const long flag : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWIPC,
                          CLONE_NEWUTS, CLONE_NEWCGROUP}) {
    EXPECT_EQ(TenantErrno(SYS_clone, flag | SIGCHLD), EPERM) << flag;
    EXPECT_EQ(TenantErrno(SYS_clone, (1L << 40) | flag | SIGCHLD), EPERM) << flag;
    EXPECT_EQ(TenantErrno(SYS_unshare, flag), EPERM) << flag;
  }
  EXPECT_EQ(TenantErrno(SYS_unshare, CLONE_NEWTIME), EPERM);
  EXPECT_EQ(TenantErrno(SYS_setns, 0, CLONE_NEWUSER), EPERM);
  static clone_args args = {};
  args.flags = CLONE_NEWUSER;
  args.exit_signal = SIGCHLD;
  EXPECT_EQ(TenantErrno(SYS_clone3, reinterpret_cast<long>(&args), sizeof args), ENOSYS);
}

TEST(SeccompKernel, clone3_is_the_agents) {
  EXPECT_EQ(Ask(Layers::kAgent, {{SYS_clone3}})[0], kLetThrough);
  EXPECT_EQ(Ask(Layers::kTenant, {{SYS_clone3}})[0], ENOSYS);
}

TEST(SeccompKernel, fsopen_denied) {
  static const char kType[] = "tmpfs";
  EXPECT_EQ(TenantErrno(SYS_fsopen, reinterpret_cast<long>(kType), 0), EPERM);
  for (const long call : {SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_open_tree, SYS_move_mount,
                          SYS_mount_setattr, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot})
    EXPECT_EQ(TenantErrno(call, kMinusOne), EPERM) << call;
}

TEST(SeccompKernel, personality_by_value) {
  for (const long open : {0L, 8L, 0x20000L, 0x20008L, 0xffffffffL})
    EXPECT_EQ(TenantErrno(SYS_personality, open), 0) << open;
  EXPECT_EQ(TenantErrno(SYS_personality, ADDR_NO_RANDOMIZE), EPERM);
  EXPECT_EQ(TenantErrno(SYS_personality, READ_IMPLIES_EXEC), EPERM);
}

#ifdef __x86_64__
TEST(SeccompKernel, x32_killed) {
  for (const Layers layers : {Layers::kAgent, Layers::kTenant}) {
    const int status = Confined(layers, [] { return ErrnoOf(kX32Bit | SYS_getpid); });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGSYS);
  }
}

// A kernel without 32-bit entry points kills the process by SIGSEGV, with and without a filter.
TEST(SeccompKernel, int80_killed) {
  const auto getpid32 = [] {
    long value = 20;
    asm volatile("int $0x80" : "+a"(value) : : "memory", "r8", "r9", "r10", "r11");
    return value == ::getpid() ? 0 : 1;
  };
  const int bare = InChild(getpid32);
  const int status = Confined(Layers::kTenant, getpid32);
  if (WIFEXITED(bare) && WEXITSTATUS(bare) == 1) {
    // No 32-bit entry at all (User Mode Linux): the instruction makes a 64-bit call, which the
    // filter judges as one.
    EXPECT_EQ(status, bare);
    return;
  }
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), WIFSIGNALED(bare) ? WTERMSIG(bare) : SIGSYS);
}
#endif

// uretprobe and uprobe: the kernel's own trampolines, which pass every filter and kill any other
// caller.
bool BelongsToTheKernel(uint32_t nr) {
  return kNativeArch == AUDIT_ARCH_X86_64 && (nr == 335 || nr == 336);
}

// Every number, with arguments that every check allows, judged by the kernel itself.
TEST(SeccompKernel, syscall_matrix) {
  auto profile = ResolveDefaultProfile();
  ASSERT_TRUE(profile.has_value());
  std::vector<Probe> probes;
  for (uint32_t nr = 0; nr <= 470; ++nr)
    probes.push_back({BelongsToTheKernel(nr) ? UINT32_MAX : nr,
                      {nr == SYS_socket || nr == SYS_socketpair ? AF_UNIX : 0u, 0, 0}});
  for (const Layers layers : {Layers::kAgent, Layers::kTenant}) {
    const std::vector<int> answers = Ask(layers, probes);
    for (uint32_t nr = 0; nr <= 470; ++nr) {
      const auto row = profile->find(nr);
      const Verdict verdict = row == profile->end() ? Verdict::kEnosys : row->second.verdict;
      int expected = kLetThrough;
      if (verdict == Verdict::kEperm) expected = EPERM;
      if (verdict == Verdict::kEnosys) expected = ENOSYS;
      if (verdict == Verdict::kAgentOnly && layers == Layers::kTenant) expected = ENOSYS;
      EXPECT_EQ(answers[nr], expected) << nr << (layers == Layers::kTenant ? " tenant" : " agent");
    }
  }
}

// The same numbers executed for real with -1 in every argument: what is refused is refused.
TEST(SeccompKernel, refused_calls_do_nothing) {
  auto profile = ResolveDefaultProfile();
  ASSERT_TRUE(profile.has_value());
  for (const auto& [nr, group] : *profile) {
    if (group.verdict != Verdict::kEperm && group.verdict != Verdict::kEnosys) continue;
    EXPECT_EQ(TenantErrno(nr, kMinusOne, kMinusOne, kMinusOne, kMinusOne, kMinusOne),
              group.verdict == Verdict::kEperm ? EPERM : ENOSYS)
        << nr;
  }
}

#ifdef __x86_64__
// Runs getpid in a traced child and turns it into `number` at its entry; the errno that the child
// then saw.
int TracerSwaps(long number) {
  const pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    raise(SIGSTOP);
    _exit(ErrnoOf(SYS_getpid));
  }
  int state = 0;
  waitpid(pid, &state, 0);
  for (bool swapped = false; !WIFEXITED(state);) {
    user_regs_struct registers = {};
    ptrace(PTRACE_SYSCALL, pid, 0, 0);
    waitpid(pid, &state, 0);
    if (swapped || !WIFSTOPPED(state) || ptrace(PTRACE_GETREGS, pid, 0, &registers) != 0) continue;
    if (registers.orig_rax != SYS_getpid) continue;
    registers.orig_rax = static_cast<unsigned long long>(number);
    ptrace(PTRACE_SETREGS, pid, 0, &registers);
    swapped = true;
  }
  return WEXITSTATUS(state);
}

// Since 4.8 the filter judges the number after the tracer had its say.
TEST(SeccompKernel, tracer_cannot_step_around) {
  for (const long number : std::vector<long>{SYS_add_key, SYS_io_uring_setup, -1}) {
    const int status = Confined(Layers::kTenant, [number] { return TracerSwaps(number); });
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), ENOSYS) << number;
  }
  const int status = Confined(Layers::kTenant, [] { return TracerSwaps(SYS_mount); });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), EPERM);
}
#endif

}  // namespace
}  // namespace hutch::seccomp
