#include "seccomp/custom_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <sys/syscall.h>

#include "seccomp/syscall_numbers.h"
#include "tests/seccomp/interpreter.h"

namespace hutch::seccomp {
namespace {

using testing::HasSubstr;

constexpr uint32_t kAllowed = SECCOMP_RET_ALLOW;
constexpr uint32_t Errno(int sys) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(sys); }

oci::LinuxSeccomp Profile(std::string default_action, std::vector<oci::SeccompSyscall> rules) {
  oci::LinuxSeccomp profile;
  profile.default_action = std::move(default_action);
  profile.syscalls = std::move(rules);
  return profile;
}
oci::LinuxSeccomp DenyByDefault(std::vector<oci::SeccompSyscall> rules) {
  return Profile("SCMP_ACT_ERRNO", std::move(rules));
}
oci::LinuxSeccomp AllowByDefault(std::vector<oci::SeccompSyscall> rules) {
  return Profile("SCMP_ACT_ALLOW", std::move(rules));
}
oci::SeccompSyscall Rule(std::vector<std::string> names, std::string action = "SCMP_ACT_ALLOW") {
  oci::SeccompSyscall rule;
  rule.names = std::move(names);
  rule.action = std::move(action);
  return rule;
}
oci::SeccompArg Arg(uint32_t index, std::string op, uint64_t value, uint64_t value_two = 0) {
  return {index, value, value_two, std::move(op)};
}

Program Compile(const oci::LinuxSeccomp& profile, const std::vector<std::string>& caps = {}) {
  auto program = CompileProfile(profile, SurroundingsHere(caps));
  EXPECT_TRUE(program.has_value()) << program.error().ToString();
  return program ? *program : Program{};
}
Error ErrorOf(const oci::LinuxSeccomp& profile) {
  auto filters = CompileFilters(profile);
  EXPECT_FALSE(filters.has_value());
  return filters ? Error{} : filters.error();
}

TEST(CustomProfile, AllowsWhatItNames) {
  const Program program = Compile(DenyByDefault({Rule({"read", "seccomp"})}));
  EXPECT_EQ(Interpret(program, Call(SYS_read)), kAllowed);
  EXPECT_EQ(Interpret(program, Call(SYS_write)), Errno(EPERM));
}

TEST(CustomProfile, OtherAbisAreKilledEvenWhenListed) {
  oci::LinuxSeccomp profile = AllowByDefault({Rule({"reboot"}, "SCMP_ACT_KILL_PROCESS")});
  profile.architectures = {"SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"};
  const Program program = Compile(profile);
  seccomp_data foreign = Call(SYS_read);
  foreign.arch = kNativeArch == AUDIT_ARCH_X86_64 ? AUDIT_ARCH_I386 : AUDIT_ARCH_ARM;
  EXPECT_EQ(Interpret(program, foreign), SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(Interpret(program, Call(SYS_reboot)), SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(Interpret(program, Call(SYS_read)), kAllowed);
#ifdef __x86_64__
  EXPECT_EQ(Interpret(program, Call(kX32Bit | SYS_read)), SECCOMP_RET_KILL_PROCESS);
  EXPECT_EQ(Interpret(Compile(DenyByDefault({Rule({"read"})})), Call(kX32Bit | 600)),
            SECCOMP_RET_KILL_PROCESS);
#endif
}

TEST(CustomProfile, NewerCallsThanTheProfileAreEnosys) {
  const Program program = Compile(DenyByDefault({Rule({"read", "rseq"})}));
  EXPECT_EQ(Interpret(program, Call(SYS_clone3)), Errno(ENOSYS));
  EXPECT_EQ(Interpret(program, Call(SYS_rseq)), kAllowed);
  EXPECT_EQ(Interpret(program, Call(SYS_mount)), Errno(EPERM));
  const Program killing = Compile(Profile("SCMP_ACT_KILL_PROCESS", {Rule({"read"})}));
  EXPECT_EQ(Interpret(killing, Call(SYS_clone3)), SECCOMP_RET_KILL_PROCESS);
}

TEST(CustomProfile, ActionsBecomeTheKernels) {
  struct {
    const char* name;
    uint32_t action;
  } const rows[] = {{"SCMP_ACT_KILL", SECCOMP_RET_KILL_THREAD},
                    {"SCMP_ACT_KILL_THREAD", SECCOMP_RET_KILL_THREAD},
                    {"SCMP_ACT_KILL_PROCESS", SECCOMP_RET_KILL_PROCESS},
                    {"SCMP_ACT_TRAP", SECCOMP_RET_TRAP},
                    {"SCMP_ACT_LOG", SECCOMP_RET_LOG},
                    {"SCMP_ACT_ERRNO", Errno(EPERM)},
                    {"SCMP_ACT_TRACE", SECCOMP_RET_TRACE | EPERM}};
  for (const auto& row : rows)
    EXPECT_EQ(Interpret(Compile(AllowByDefault({Rule({"getpid"}, row.name)})), Call(SYS_getpid)),
              row.action)
        << row.name;
  oci::SeccompSyscall rule = Rule({"getpid"}, "SCMP_ACT_ERRNO");
  rule.errno_ret = EIO;
  EXPECT_EQ(Interpret(Compile(AllowByDefault({rule})), Call(SYS_getpid)), Errno(EIO));
}

TEST(CustomProfile, OperatorsCompareAllSixtyFourBits) {
  constexpr uint64_t kValue = 0x100000005;
  struct {
    const char* op;
    uint64_t hit, miss;
  } const rows[] = {{"SCMP_CMP_EQ", kValue, 5},     {"SCMP_CMP_NE", 5, kValue},
                    {"SCMP_CMP_LT", 6, kValue},     {"SCMP_CMP_LE", kValue, kValue + 1},
                    {"SCMP_CMP_GT", kValue + 1, 6}, {"SCMP_CMP_GE", kValue, kValue - 1}};
  for (const auto& row : rows) {
    oci::SeccompSyscall rule = Rule({"dup"}, "SCMP_ACT_TRAP");
    rule.args = {Arg(0, row.op, kValue)};
    const Program program = Compile(AllowByDefault({rule}));
    EXPECT_EQ(Interpret(program, Call(SYS_dup, row.hit)), SECCOMP_RET_TRAP) << row.op;
    EXPECT_EQ(Interpret(program, Call(SYS_dup, row.miss)), kAllowed) << row.op;
  }
  oci::SeccompSyscall masked = Rule({"dup"}, "SCMP_ACT_TRAP");
  masked.args = {Arg(0, "SCMP_CMP_MASKED_EQ", 0xf0, 0x10)};
  EXPECT_EQ(Interpret(Compile(AllowByDefault({masked})), Call(SYS_dup, 0x1f)), SECCOMP_RET_TRAP);
  EXPECT_EQ(Interpret(Compile(AllowByDefault({masked})), Call(SYS_dup, 0x2f)), kAllowed);
}

TEST(CustomProfile, ConditionsOnOneArgumentTwiceAreAlternatives) {
  oci::SeccompSyscall rule = Rule({"personality"});
  rule.args = {Arg(0, "SCMP_CMP_EQ", 0), Arg(0, "SCMP_CMP_EQ", 8)};
  const Program program = Compile(DenyByDefault({rule, Rule({"seccomp"})}));
  EXPECT_EQ(Interpret(program, Call(SYS_personality, 0)), kAllowed);
  EXPECT_EQ(Interpret(program, Call(SYS_personality, 8)), kAllowed);
  EXPECT_EQ(Interpret(program, Call(SYS_personality, 1)), Errno(EPERM));
}

TEST(CustomProfile, ConditionsOnDifferentArgumentsMustAllHold) {
  oci::SeccompSyscall rule = Rule({"socket"});
  rule.args = {Arg(0, "SCMP_CMP_EQ", 1), Arg(1, "SCMP_CMP_EQ", 2)};
  const Program program = Compile(DenyByDefault({rule, Rule({"seccomp"})}));
  EXPECT_EQ(Interpret(program, Call(SYS_socket, 1, 2)), kAllowed);
  EXPECT_EQ(Interpret(program, Call(SYS_socket, 1, 3)), Errno(EPERM));
}

TEST(CustomProfile, CapabilitiesDecideDockersConditions) {
  oci::SeccompSyscall with = Rule({"mount"});
  with.includes_caps = {"CAP_SYS_ADMIN"};
  oci::SeccompSyscall without = Rule({"clone"});
  without.excludes_caps = {"CAP_SYS_ADMIN"};
  const oci::LinuxSeccomp profile = DenyByDefault({with, without, Rule({"seccomp"})});
  EXPECT_EQ(Interpret(Compile(profile), Call(SYS_mount)), Errno(EPERM));
  EXPECT_EQ(Interpret(Compile(profile), Call(SYS_clone)), kAllowed);
  EXPECT_EQ(Interpret(Compile(profile, {"CAP_SYS_ADMIN"}), Call(SYS_mount)), kAllowed);
  EXPECT_EQ(Interpret(Compile(profile, {"CAP_SYS_ADMIN"}), Call(SYS_clone)), Errno(EPERM));
  EXPECT_NE(CompileFilters(profile)->get(), CompileFilters(profile, {"CAP_SYS_ADMIN"})->get());
}

TEST(Conditions, ArchitectureAndKernel) {
  const Surroundings where{{}, "amd64", "6.1.0-18-amd64"};
  oci::SeccompSyscall rule = Rule({"read"});
  EXPECT_TRUE(*RuleApplies(rule, where));
  rule.includes_arches = {"arm64", "amd64"};
  EXPECT_TRUE(*RuleApplies(rule, where));
  rule.includes_arches = {"arm64"};
  EXPECT_FALSE(*RuleApplies(rule, where));
  rule.includes_arches.clear();
  rule.excludes_arches = {"amd64"};
  EXPECT_FALSE(*RuleApplies(rule, where));
  rule.excludes_arches.clear();
  for (const char* older : {"4.8", "6.1", "6", "5.19"}) {
    rule.includes_min_kernel = older;
    EXPECT_TRUE(*RuleApplies(rule, where)) << older;
  }
  for (const char* newer : {"6.2", "7", "6.10"}) {
    rule.includes_min_kernel = newer;
    EXPECT_FALSE(*RuleApplies(rule, where)) << newer;
  }
  for (const char* bad : {"4.8.1", "x", "4.", ".8", "-1.2"}) {
    rule.includes_min_kernel = bad;
    EXPECT_FALSE(RuleApplies(rule, where).has_value()) << bad;
  }
  rule.includes_min_kernel.clear();
  rule.excludes_min_kernel = "4.8";
  EXPECT_FALSE(*RuleApplies(rule, where));
}

TEST(CustomProfile, BadProfilesNameTheRule) {
  EXPECT_EQ(ErrorOf({}).field, "linux.seccomp.defaultAction");
  Error error = ErrorOf(DenyByDefault({Rule({"read"}), Rule({"write"}, "SCMP_ACT_NOTIFY")}));
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_EQ(error.field, "linux.seccomp.syscalls[1]");
  EXPECT_THAT(error.what, HasSubstr("SCMP_ACT_NOTIFY"));

  oci::SeccompSyscall rule = Rule({"read"});
  rule.errno_ret = 1;
  EXPECT_THAT(ErrorOf(DenyByDefault({rule})).what, HasSubstr("takes no errnoRet"));
  rule = Rule({"read"}, "SCMP_ACT_ERRNO");
  rule.errno_ret = 4096;
  EXPECT_THAT(ErrorOf(AllowByDefault({rule})).what, HasSubstr("4096"));
  rule = Rule({"read"});
  rule.args = {Arg(6, "SCMP_CMP_EQ", 0)};
  EXPECT_THAT(ErrorOf(DenyByDefault({rule})).what, HasSubstr("index 6"));
  rule.args = {Arg(0, "SCMP_CMP_ALMOST", 0)};
  EXPECT_EQ(ErrorOf(DenyByDefault({rule})).code, Code::kUnsupported);
  EXPECT_THAT(ErrorOf(DenyByDefault({Rule({})})).what, HasSubstr("names no system call"));
  rule = Rule({"read"});
  rule.includes_min_kernel = "new";
  EXPECT_EQ(ErrorOf(DenyByDefault({rule})).field, "linux.seccomp.syscalls[0]");
}

TEST(CustomProfile, UnknownArchitecturesAndFlagsAreUnsupported) {
  oci::LinuxSeccomp profile = DenyByDefault({Rule({"read"})});
  profile.architectures = {"SCMP_ARCH_Z80"};
  EXPECT_EQ(ErrorOf(profile).code, Code::kUnsupported);
  profile.architectures.clear();
  profile.flags = {"SECCOMP_FILTER_FLAG_NEW_LISTENER"};
  EXPECT_EQ(ErrorOf(profile).code, Code::kUnsupported);
  profile.flags = {"SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_TSYNC"};
  EXPECT_EQ((*CompileFilters(profile))->process_flags, uint32_t{SECCOMP_FILTER_FLAG_LOG});
}

// Leaving an unknown name out is harmless only where that refuses the call.
TEST(CustomProfile, UnknownNames) {
  EXPECT_TRUE(CompileFilters(DenyByDefault({Rule({"read", "fresh_call"})})).has_value());
  EXPECT_TRUE(CompileFilters(DenyByDefault({Rule({"fresh_call"}, "SCMP_ACT_KILL")})).has_value());
  const Error error = ErrorOf(AllowByDefault({Rule({"ptrce"}, "SCMP_ACT_ERRNO")}));
  EXPECT_EQ(error.code, Code::kInvalidArgument);
  EXPECT_THAT(error.what, HasSubstr("ptrce"));
  EXPECT_TRUE(
      CompileFilters(AllowByDefault({Rule({"s390_pci_mmio_read"}, "SCMP_ACT_ERRNO")})).has_value());
}

TEST(CustomProfile, HasALimit) {
  std::vector<oci::SeccompSyscall> rules;
  for (uint64_t value = 0; value <= kMaxProfileRules; ++value) {
    rules.push_back(Rule({"dup"}));
    rules.back().args = {Arg(0, "SCMP_CMP_EQ", value * 2)};
  }
  EXPECT_EQ(ErrorOf(DenyByDefault(rules)).code, Code::kLimit);
}

TEST(CompileFilters, CachesByContent) {
  const oci::LinuxSeccomp profile = DenyByDefault({Rule({"read", "write"})});
  EXPECT_EQ(CompileFilters(profile)->get(), CompileFilters(profile)->get());
  EXPECT_NE(CompileFilters(profile)->get(),
            CompileFilters(DenyByDefault({Rule({"readwrite"})}))->get());
  EXPECT_NE(CompileFilters(profile)->get(),
            CompileFilters(DenyByDefault({Rule({"read"}), Rule({"write"})}))->get());
}

TEST(CustomProfile, NotifyingNeedsAListenerAndLeavesTheHandingOnAlone) {
  oci::LinuxSeccomp profile = DenyByDefault({Rule({"read"}), Rule({"mkdir"}, "SCMP_ACT_NOTIFY")});
  EXPECT_EQ(CompileFilters(profile).error().code, Code::kUnsupported);
  profile.listener_path = "/run/agent.sock";
  profile.flags = {"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"};
  const auto filters = CompileFilters(profile);
  ASSERT_TRUE(filters.has_value());
  EXPECT_EQ((*filters)->process_flags, uint32_t{SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV});
  profile.syscalls[1].names = {"sendmsg"};
  EXPECT_EQ(CompileFilters(profile).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace hutch::seccomp
