#include "seccomp/custom_profile.h"

#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/unique_fd.h"
#include "seccomp/syscall_numbers.h"

namespace hutch::seccomp {
namespace {

enum class Data : uint8_t { kNone, kErrno, kTracer };  // what errnoRet means to an action

constexpr struct ActionRow {
  std::string_view name;
  uint32_t action;
  Data data;
} kActions[] = {
    {"SCMP_ACT_ALLOW", SCMP_ACT_ALLOW, Data::kNone},
    {"SCMP_ACT_ERRNO", SCMP_ACT_ERRNO(0), Data::kErrno},
    {"SCMP_ACT_KILL", SCMP_ACT_KILL_THREAD, Data::kNone},
    {"SCMP_ACT_KILL_PROCESS", SCMP_ACT_KILL_PROCESS, Data::kNone},
    {"SCMP_ACT_KILL_THREAD", SCMP_ACT_KILL_THREAD, Data::kNone},
    {"SCMP_ACT_LOG", SCMP_ACT_LOG, Data::kNone},
    {"SCMP_ACT_NOTIFY", SCMP_ACT_NOTIFY, Data::kNone},
    {"SCMP_ACT_TRACE", SCMP_ACT_TRACE(0), Data::kTracer},
    {"SCMP_ACT_TRAP", SCMP_ACT_TRAP, Data::kNone},
};

constexpr struct OperatorRow {
  std::string_view name;
  scmp_compare op;
} kOperators[] = {
    {"SCMP_CMP_EQ", SCMP_CMP_EQ}, {"SCMP_CMP_GE", SCMP_CMP_GE},
    {"SCMP_CMP_GT", SCMP_CMP_GT}, {"SCMP_CMP_LE", SCMP_CMP_LE},
    {"SCMP_CMP_LT", SCMP_CMP_LT}, {"SCMP_CMP_MASKED_EQ", SCMP_CMP_MASKED_EQ},
    {"SCMP_CMP_NE", SCMP_CMP_NE},
};

// Every architecture of the runtime-spec. Only the native one gets rules; naming another is no
// error.
constexpr std::string_view kArchitectures[] = {
    "SCMP_ARCH_X86",     "SCMP_ARCH_X86_64",   "SCMP_ARCH_X32",         "SCMP_ARCH_ARM",
    "SCMP_ARCH_AARCH64", "SCMP_ARCH_MIPS",     "SCMP_ARCH_MIPS64",      "SCMP_ARCH_MIPS64N32",
    "SCMP_ARCH_MIPSEL",  "SCMP_ARCH_MIPSEL64", "SCMP_ARCH_MIPSEL64N32", "SCMP_ARCH_PPC",
    "SCMP_ARCH_PPC64",   "SCMP_ARCH_PPC64LE",  "SCMP_ARCH_S390",        "SCMP_ARCH_S390X",
    "SCMP_ARCH_PARISC",  "SCMP_ARCH_PARISC64", "SCMP_ARCH_RISCV64",     "SCMP_ARCH_LOONGARCH64",
    "SCMP_ARCH_M68K",    "SCMP_ARCH_SH",       "SCMP_ARCH_SHEB",
};

constexpr struct FlagRow {
  std::string_view name;
  uint32_t flag;
} kFlags[] = {
    {"SECCOMP_FILTER_FLAG_LOG", SECCOMP_FILTER_FLAG_LOG},
    {"SECCOMP_FILTER_FLAG_SPEC_ALLOW", SECCOMP_FILTER_FLAG_SPEC_ALLOW},
    {"SECCOMP_FILTER_FLAG_TSYNC", 0},
    {"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV", SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV},
};

constexpr uint32_t kMaxErrno = 4095;  // the kernel cuts larger values down

Error Refuse(Code code, const std::string& field, const std::string& why) {
  return Error{.code = code, .what = field + ": " + why, .field = field};
}

Result<uint32_t> ParseAction(const std::string& name, std::optional<uint32_t> errno_ret,
                             const std::string& field) {
  const auto row = std::find_if(std::begin(kActions), std::end(kActions),
                                [&name](const ActionRow& r) { return r.name == name; });
  if (row == std::end(kActions))
    return Refuse(Code::kUnsupported, field, "unsupported action \"" + name + "\"");
  if (row->data == Data::kNone) {
    if (errno_ret) return Refuse(Code::kInvalidArgument, field, name + " takes no errnoRet");
    return row->action;
  }
  const uint32_t value = errno_ret.value_or(EPERM);
  if (value > (row->data == Data::kErrno ? kMaxErrno : UINT16_MAX))
    return Refuse(Code::kInvalidArgument, field,
                  "errnoRet " + std::to_string(value) + " is too large");
  return row->action | value;
}

bool Permits(uint32_t action) { return action == SCMP_ACT_ALLOW || action == SCMP_ACT_LOG; }

Result<std::vector<scmp_arg_cmp>> ParseArgs(const oci::SeccompSyscall& rule,
                                            const std::string& field) {
  std::vector<scmp_arg_cmp> args;
  for (const oci::SeccompArg& arg : rule.args) {
    if (arg.index > 5)
      return Refuse(Code::kInvalidArgument, field,
                    "argument index " + std::to_string(arg.index) + " is above 5");
    const auto row = std::find_if(std::begin(kOperators), std::end(kOperators),
                                  [&arg](const OperatorRow& r) { return r.name == arg.op; });
    if (row == std::end(kOperators))
      return Refuse(Code::kUnsupported, field, "unsupported operator \"" + arg.op + "\"");
    args.push_back({arg.index, row->op, arg.value, arg.value_two});
  }
  return args;
}

// Each inner list is one rule for libseccomp, which refuses two conditions on one argument.
std::vector<std::vector<scmp_arg_cmp>> Alternatives(const std::vector<scmp_arg_cmp>& args) {
  std::array<int, 6> uses{};
  for (const scmp_arg_cmp& arg : args) ++uses[arg.arg];
  if (std::all_of(uses.begin(), uses.end(), [](int n) { return n < 2; })) return {args};
  std::vector<std::vector<scmp_arg_cmp>> alternatives;
  for (const scmp_arg_cmp& arg : args) alternatives.push_back({arg});
  return alternatives;
}

// Without a listener the kernel answers ENOSYS in its place; and who starts the program could not
// hand the listener on if its own next call, of any kind or a write, waited for it.
Status CheckNotify(const oci::LinuxSeccomp& profile, const std::string& top) {
  constexpr std::string_view kNotify = "SCMP_ACT_NOTIFY";
  if (profile.default_action == kNotify)
    return Refuse(Code::kUnsupported, top + ".defaultAction", "SCMP_ACT_NOTIFY by default");
  for (size_t i = 0; i < profile.syscalls.size(); ++i) {
    const oci::SeccompSyscall& rule = profile.syscalls[i];
    if (rule.action != kNotify) continue;
    const std::string field = top + ".syscalls[" + std::to_string(i) + "]";
    if (profile.listener_path.empty())
      return Refuse(Code::kUnsupported, field, "SCMP_ACT_NOTIFY without listenerPath");
    for (const std::string& name : rule.names)
      if (name == "write" || name == "sendmsg" || name == "sendto")
        return Refuse(Code::kUnsupported, field, "SCMP_ACT_NOTIFY for " + name);
  }
  return OkStatus();
}

class ProfileCompiler {
 public:
  explicit ProfileCompiler(uint32_t default_action)
      : default_action_(default_action), context_(seccomp_init(default_action), &seccomp_release) {}

  Status Prepare() {
    if (context_ == nullptr) return Error{.what = "libseccomp: cannot start a filter"};
    const int failed =
        seccomp_attr_set(context_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) |
        seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (failed != 0) return Error{.what = "libseccomp: cannot set the filter's attributes"};
    return OkStatus();
  }

  Status AddRule(const oci::SeccompSyscall& rule, const std::string& field) {
    ASSIGN_OR_RETURN(const uint32_t action, ParseAction(rule.action, rule.errno_ret, field));
    ASSIGN_OR_RETURN(const std::vector<scmp_arg_cmp> args, ParseArgs(rule, field));
    if (rule.names.empty()) return Refuse(Code::kInvalidArgument, field, "names no system call");
    for (const std::string& name : rule.names) {
      const SyscallName call = FindSyscall(name);
      if (call.kind == SyscallName::kUnknown && Permits(default_action_) && !Permits(action))
        return Refuse(Code::kInvalidArgument, field, "unknown system call \"" + name + "\"");
      if (call.kind != SyscallName::kHere) continue;
      highest_ = std::max(highest_, call.number);
      if (action == default_action_) continue;
      RETURN_IF_ERROR(AddCall(call.number, name, action, args, field));
    }
    return OkStatus();
  }

  Result<Program> Export() {
    const UniqueFd memory(memfd_create("seccomp", MFD_CLOEXEC));
    if (!memory.valid()) return SysError(errno, "memfd_create");
    if (const int rc = seccomp_export_bpf(context_.get(), memory.get()); rc < 0)
      return SysError(-rc, "libseccomp: export");
    if (::lseek(memory.get(), 0, SEEK_SET) != 0) return SysError(errno, "lseek");
    ASSIGN_OR_RETURN(const std::string bytes, ReadAll(memory.get(), size_t{1} << 22));
    const Program preamble = Preamble();
    Program program(preamble.size() + bytes.size() / sizeof(sock_filter));
    std::copy(preamble.begin(), preamble.end(), program.begin());
    std::memcpy(&program[preamble.size()], bytes.data(),
                (program.size() - preamble.size()) * sizeof(sock_filter));
    if (program.size() > BPF_MAXINSNS)
      return Error{.code = Code::kLimit,
                   .what = "seccomp profile needs " + std::to_string(program.size()) +
                           " instructions, the kernel takes " + std::to_string(BPF_MAXINSNS)};
    return program;
  }

 private:
  Status AddCall(uint32_t number, const std::string& name, uint32_t action,
                 const std::vector<scmp_arg_cmp>& args, const std::string& field) {
    for (const auto& conditions : Alternatives(args)) {
      if (++rules_ > kMaxProfileRules)
        return Error{
            .code = Code::kLimit,
            .what = "seccomp profile has more than " + std::to_string(kMaxProfileRules) + " rules",
            .field = field};
      const int rc =
          seccomp_rule_add_array(context_.get(), action, static_cast<int>(number),
                                 static_cast<unsigned>(conditions.size()), conditions.data());
      if (rc == -EEXIST)
        return Refuse(Code::kInvalidArgument, field, name + " contradicts another rule");
      if (rc != 0) return Refuse(Code::kInvalidArgument, field, name + ": " + ErrnoName(-rc));
    }
    return OkStatus();
  }

  // ENOSYS for calls newer than the profile, so that libc finds its older way: a profile that knows
  // no clone3 would otherwise break every thread with EPERM.
  Program Preamble() const {
    const bool by_errno = (default_action_ & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO;
    if (!by_errno || default_action_ == SCMP_ACT_ERRNO(ENOSYS)) return {};
    return {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kNativeArch, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32Bit, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, highest_, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
  }

  uint32_t default_action_;
  std::unique_ptr<void, decltype(&seccomp_release)> context_;
  uint32_t highest_ = 0;  // the largest number that the profile names
  size_t rules_ = 0;
};

}  // namespace

Result<Program> CompileProfile(const oci::LinuxSeccomp& profile, const Surroundings& where) {
  const std::string top = "linux.seccomp";
  ASSIGN_OR_RETURN(
      const uint32_t default_action,
      ParseAction(profile.default_action, profile.default_errno_ret, top + ".defaultAction"));
  for (const std::string& name : profile.architectures)
    if (std::find(std::begin(kArchitectures), std::end(kArchitectures), name) ==
        std::end(kArchitectures))
      return Refuse(Code::kUnsupported, top + ".architectures",
                    "unknown architecture \"" + name + "\"");
  RETURN_IF_ERROR(CheckNotify(profile, top));
  ProfileCompiler compiler(default_action);
  RETURN_IF_ERROR(compiler.Prepare());
  for (size_t i = 0; i < profile.syscalls.size(); ++i) {
    const std::string field = top + ".syscalls[" + std::to_string(i) + "]";
    auto applies = RuleApplies(profile.syscalls[i], where);
    if (!applies) return Refuse(applies.error().code, field, applies.error().what);
    if (*applies) RETURN_IF_ERROR(compiler.AddRule(profile.syscalls[i], field));
  }
  return compiler.Export();
}

Result<uint32_t> LoadFlags(const oci::LinuxSeccomp& profile) {
  uint32_t flags = 0;
  for (const std::string& name : profile.flags) {
    const auto row = std::find_if(std::begin(kFlags), std::end(kFlags),
                                  [&name](const FlagRow& r) { return r.name == name; });
    if (row == std::end(kFlags))
      return Refuse(Code::kUnsupported, "linux.seccomp.flags", "unsupported flag \"" + name + "\"");
    if (row->flag == SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV && profile.listener_path.empty())
      return Refuse(Code::kInvalidArgument, "linux.seccomp.flags", name + " without listenerPath");
    flags |= row->flag;
  }
  return flags;
}

ProfileWords KnownProfileWords() {
  ProfileWords words;
  for (const ActionRow& row : kActions) words.actions.emplace_back(row.name);
  for (const OperatorRow& row : kOperators) words.operators.emplace_back(row.name);
  words.architectures.emplace_back(kNativeArchOciName);
  for (const FlagRow& row : kFlags) words.flags.emplace_back(row.name);
  return words;
}

}  // namespace hutch::seccomp
