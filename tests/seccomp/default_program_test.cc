#include "seccomp/default_program.h"

#include <asm/ioctls.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>

#include "base/text.h"
#include "seccomp/default_profile.h"
#include "seccomp/syscall_numbers.h"
#include "tests/seccomp/interpreter.h"

namespace hutch::seccomp {
namespace {

constexpr uint32_t kLastNumber = 600;
constexpr uint32_t kAllowed = SECCOMP_RET_ALLOW;
constexpr uint32_t kKilled = SECCOMP_RET_KILL_PROCESS;
constexpr uint32_t Errno(int sys) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(sys); }

Program Agent() {
  auto program = BuildAgentProgram();
  EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().ToString());
  return program ? *program : Program{};
}

// Values that an argument check might get wrong: its own constants, neighbours, high halves.
std::vector<uint64_t> Samples() {
  std::vector<uint64_t> low = {0,
                               1,
                               2,
                               6,
                               8,
                               10,
                               16,
                               17,
                               38,
                               40,
                               58,
                               132,
                               262,
                               TIOCSTI,
                               TIOCLINUX,
                               TIOCSETD,
                               TIOCGWINSZ,
                               0x20000,
                               0x20008,
                               0x40000,
                               CLONE_NEWUSER,
                               CLONE_NEWNS,
                               CLONE_NEWNET | SIGCHLD,
                               CLONE_VM | CLONE_VFORK | SIGCHLD,
                               0x3d0f00,
                               0x80,
                               UINT32_MAX};
  std::vector<uint64_t> samples = low;
  for (const uint64_t value : low) {
    samples.push_back(value | uint64_t{1} << 32);
    samples.push_back(value | uint64_t{0xffffffff} << 32);
  }
  return samples;
}

class Reference {  // the profile through libseccomp, one rule per call
 public:
  Reference() : context_(seccomp_init(SCMP_ACT_ERRNO(ENOSYS)), &seccomp_release) {
    seccomp_attr_set(context_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (const SyscallGroup& group : DefaultProfile())
      for (const std::string& name : Split(group.calls, ' ')) {
        const SyscallName call = FindSyscall(name);
        if (call.kind == SyscallName::kHere) Add(static_cast<int>(call.number), group.verdict);
      }
  }
  Program Export() {
    const int fd = memfd_create("reference", 0);
    EXPECT_EQ(seccomp_export_bpf(context_.get(), fd), 0);
    Program program(static_cast<size_t>(lseek(fd, 0, SEEK_END)) / sizeof(sock_filter));
    const size_t size = program.size() * sizeof(sock_filter);
    EXPECT_EQ(pread(fd, program.data(), size, 0), static_cast<ssize_t>(size));
    close(fd);
    return program;
  }

 private:
  static constexpr uint64_t kLow = 0xffffffff;
  static scmp_arg_cmp Low(unsigned index, uint64_t value) {
    return {index, SCMP_CMP_MASKED_EQ, kLow, value};
  }
  void Rule(uint32_t action, int nr, const std::vector<scmp_arg_cmp>& args) {
    EXPECT_EQ(seccomp_rule_add_array(context_.get(), action, nr, static_cast<unsigned>(args.size()),
                                     args.data()),
              0)
        << nr;
  }
  void Add(int nr, Verdict verdict) {
    switch (verdict) {
      case Verdict::kEnosys:
        return;
      case Verdict::kEperm:
        return Rule(SCMP_ACT_ERRNO(EPERM), nr, {});
      case Verdict::kClone:
        return Rule(SCMP_ACT_ALLOW, nr, {{0, SCMP_CMP_MASKED_EQ, 0x7e020000, 0}});
      case Verdict::kSocket:
        return;  // needs two defaults; compared with the kernel's view below
      case Verdict::kIoctl:
        return;  // "none of three" on one argument is beyond libseccomp
      case Verdict::kPersonality:
        for (const uint64_t value : {0x0ull, 0x8ull, 0x20000ull, 0x20008ull, 0xffffffffull})
          Rule(SCMP_ACT_ALLOW, nr, {Low(0, value)});
        return;
      default:
        return Rule(SCMP_ACT_ALLOW, nr, {});
    }
  }
  std::unique_ptr<void, decltype(&seccomp_release)> context_;
};

// libseccomp has one default for calls whose condition fails, we have EPERM there.
uint32_t Conditional(uint32_t action) { return action == Errno(ENOSYS) ? Errno(EPERM) : action; }

TEST(DefaultProgram, AgreesWithLibseccompOnEveryNumberAndArgument) {
  const Program ours = Agent();
  const Program theirs = Reference().Export();
  auto profile = ResolveDefaultProfile();
  ASSERT_TRUE(profile.has_value());
  const std::vector<uint64_t> samples = Samples();
  for (uint32_t nr = 0; nr <= kLastNumber; ++nr) {
    const auto row = profile->find(nr);
    const Verdict verdict = row == profile->end() ? Verdict::kEnosys : row->second.verdict;
    if (verdict == Verdict::kSocket || verdict == Verdict::kIoctl) continue;
    for (const uint64_t a0 : samples) {
      uint32_t expected = Interpret(theirs, Call(nr, a0, a0, a0));
      if (verdict == Verdict::kClone || verdict == Verdict::kPersonality)
        expected = Conditional(expected);
      ASSERT_EQ(Interpret(ours, Call(nr, a0, a0, a0)), expected) << nr << " with " << a0;
    }
  }
}

TEST(DefaultProgram, FollowsTheTable) {
  const Program program = Agent();
  auto profile = ResolveDefaultProfile();
  ASSERT_TRUE(profile.has_value());
  for (uint32_t nr = 0; nr <= kLastNumber; ++nr) {
    const auto row = profile->find(nr);
    const Verdict verdict = row == profile->end() ? Verdict::kEnosys : row->second.verdict;
    const uint32_t action = Interpret(program, Call(nr, 0));
    switch (verdict) {
      case Verdict::kEperm:
        EXPECT_EQ(action, Errno(EPERM)) << nr;
        break;
      case Verdict::kEnosys:
        EXPECT_EQ(action, Errno(ENOSYS)) << nr;
        break;
      case Verdict::kSocket:
        EXPECT_EQ(action, Errno(EAFNOSUPPORT)) << nr;
        break;
      default:
        EXPECT_EQ(action, kAllowed) << nr;
    }
  }
}

TEST(DefaultProgram, SocketsByFamilyAndProtocolWhateverTheHighHalves) {
  const Program program = Agent();
  const std::vector<uint64_t> samples = Samples();
  for (const uint32_t nr : {uint32_t{SYS_socket}, uint32_t{SYS_socketpair}})
    for (const uint64_t family : samples)
      for (const uint64_t protocol : samples) {
        const auto f = static_cast<uint32_t>(family), p = static_cast<uint32_t>(protocol);
        uint32_t expected = Errno(EAFNOSUPPORT);
        if (f == AF_UNIX) expected = kAllowed;
        if (f == AF_INET || f == AF_INET6)
          expected =
              p == 0 || p == 1 || p == 6 || p == 17 || p == 58 ? kAllowed : Errno(EPROTONOSUPPORT);
        if (f == AF_NETLINK) expected = p == 0 ? kAllowed : Errno(EPROTONOSUPPORT);
        ASSERT_EQ(Interpret(program, Call(nr, family, SOCK_STREAM, protocol)), expected)
            << f << " " << p;
      }
}

TEST(DefaultProgram, TerminalInjectionWhateverTheHighHalves) {
  const Program program = Agent();
  for (const uint64_t request : Samples()) {
    const auto r = static_cast<uint32_t>(request);
    const bool denied = r == TIOCSTI || r == TIOCLINUX || r == TIOCSETD;
    EXPECT_EQ(Interpret(program, Call(SYS_ioctl, 0, request)), denied ? Errno(EPERM) : kAllowed)
        << request;
  }
}

TEST(DefaultProgram, OtherArchitecturesAreKilled) {
  for (const Program& program : {Agent(), BuildProcessProgram(), *BuildHostGuardProgram()})
    for (const uint32_t arch :
         std::vector<uint32_t>{AUDIT_ARCH_I386, AUDIT_ARCH_ARM, AUDIT_ARCH_S390X, 0})
      for (const uint32_t nr : {0u, 39u, 435u}) {
        seccomp_data data = Call(nr);
        data.arch = arch;
        EXPECT_EQ(Interpret(program, data), kKilled) << arch;
      }
}

TEST(DefaultProgram, X32NumbersAreKilledAndASkippedCallIsNot) {
  for (const uint32_t nr :
       {kX32Bit, kX32Bit | 1, kX32Bit | 520, 0x7fffffffu, 0x80000000u, 0xfffffffeu}) {
    EXPECT_EQ(Interpret(Agent(), Call(nr)), kKilled) << nr;
    EXPECT_EQ(Interpret(*BuildHostGuardProgram(), Call(nr)), kKilled) << nr;
  }
  EXPECT_EQ(Interpret(Agent(), Call(UINT32_MAX)), Errno(ENOSYS));
  EXPECT_EQ(Interpret(*BuildHostGuardProgram(), Call(UINT32_MAX)), kAllowed);
  EXPECT_EQ(Interpret(Agent(), Call(kX32Bit - 1)), Errno(ENOSYS));
}

TEST(DefaultProgram, Clone3IsForTheAgentOnly) {
  EXPECT_EQ(Interpret(Agent(), Call(SYS_clone3)), kAllowed);
  const Program process = BuildProcessProgram();
  for (uint32_t nr = 0; nr <= kLastNumber; ++nr)
    EXPECT_EQ(Interpret(process, Call(nr)), nr == SYS_clone3 ? Errno(ENOSYS) : kAllowed) << nr;
}

TEST(DefaultProgram, TheGuardBesideACustomProfileDeniesTheHostGroupOnly) {
  const Program guard = *BuildHostGuardProgram();
  auto profile = ResolveDefaultProfile();
  ASSERT_TRUE(profile.has_value());
  for (uint32_t nr = 0; nr <= kLastNumber; ++nr) {
    const auto row = profile->find(nr);
    const bool host = row != profile->end() && row->second.reach == Reach::kHost;
    EXPECT_EQ(Interpret(guard, Call(nr)), host ? Errno(EPERM) : kAllowed) << nr;
  }
}

// The figure that the create path pays for; docs/seccomp.md has the measured times.
TEST(DefaultProgram, StaysSmall) {
  EXPECT_LE(Agent().size(), 120u);
  EXPECT_LE(BuildProcessProgram().size(), 7u);
  EXPECT_LT(Agent().size() * 2, Reference().Export().size());
}

TEST(DefaultFilters, AreBuiltOnce) {
  auto first = DefaultFilters();
  auto second = DefaultFilters();
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ((*first)->process_flags, 0u);
}

}  // namespace
}  // namespace hutch::seccomp
