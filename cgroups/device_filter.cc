#include "cgroups/device_filter.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/unique_fd.h"

namespace hutch::cgroups {
namespace {

constexpr uint32_t kMaxPrograms = 64;  // BPF_CGROUP_MAX_PROGS
constexpr int kReplaceTries = 5;

// config-linux.md "Default Devices", and making nodes, which gives no access to what they stand
// for.
constexpr std::array<DeviceRule, 10> kDefaults = {{
    {true, 'c', {}, {}, kDeviceMknod},
    {true, 'b', {}, {}, kDeviceMknod},
    {true, 'c', 1, 3, kDeviceAll},     // null
    {true, 'c', 1, 5, kDeviceAll},     // zero
    {true, 'c', 1, 7, kDeviceAll},     // full
    {true, 'c', 1, 8, kDeviceAll},     // random
    {true, 'c', 1, 9, kDeviceAll},     // urandom
    {true, 'c', 5, 0, kDeviceAll},     // tty
    {true, 'c', 5, 2, kDeviceAll},     // ptmx
    {true, 'c', 136, {}, kDeviceAll},  // pts/*, the console among them
}};

bool MatchesEverything(const DeviceRule& rule) {
  return rule.type == 'a' && !rule.major && !rule.minor && rule.access == kDeviceAll;
}

bool Matches(const DeviceRule& rule, char type, uint32_t major, uint32_t minor) {
  return (rule.type == 'a' || rule.type == type) && (!rule.major || *rule.major == major) &&
         (!rule.minor || *rule.minor == minor);
}

// Whether some device is meant by both.
bool Overlaps(const DeviceRule& a, const DeviceRule& b) {
  return (a.type == 'a' || b.type == 'a' || a.type == b.type) &&
         (!a.major || !b.major || *a.major == *b.major) &&
         (!a.minor || !b.minor || *a.minor == *b.minor) && (a.access & b.access) != 0;
}

bool SameDevices(const DeviceRule& a, const DeviceRule& b) {
  return a.type == b.type && a.major == b.major && a.minor == b.minor;
}

bpf_insn Insn(int code, int dst, int src, int off, int imm) {
  bpf_insn insn = {};
  insn.code = static_cast<uint8_t>(code);
  insn.dst_reg = static_cast<uint8_t>(dst & 0xf);
  insn.src_reg = static_cast<uint8_t>(src & 0xf);
  insn.off = static_cast<int16_t>(off);
  insn.imm = imm;
  return insn;
}

// Registers: what is asked for, and what of the access no rule has decided yet.
constexpr int kType = BPF_REG_2, kPending = BPF_REG_3, kMajor = BPF_REG_4, kMinor = BPF_REG_5,
              kScratch = BPF_REG_6;

constexpr int kJumpUnlessEqual = BPF_JMP32 | BPF_JNE | BPF_K;

bpf_insn LoadWord(int to, size_t offset) {
  return Insn(BPF_LDX | BPF_MEM | BPF_W, to, BPF_REG_1, static_cast<int>(offset), 0);
}

void Return(std::vector<bpf_insn>& program, int value) {
  program.push_back(Insn(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, value));
  program.push_back(Insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
}

// What a rule that matches does: a denial ends the program when it denies what is still pending.
std::vector<bpf_insn> Decide(const DeviceRule& rule) {
  std::vector<bpf_insn> body;
  const int access = static_cast<int>(rule.access);
  if (!rule.allow) {
    body.push_back(Insn(BPF_ALU | BPF_MOV | BPF_X, kScratch, kPending, 0, 0));
    body.push_back(Insn(BPF_ALU | BPF_AND | BPF_K, kScratch, 0, 0, access));
    body.push_back(Insn(BPF_JMP32 | BPF_JEQ | BPF_K, kScratch, 0, 2, 0));
    Return(body, 0);
    return body;
  }
  body.push_back(Insn(BPF_ALU | BPF_AND | BPF_K, kPending, 0, 0, ~access));
  body.push_back(Insn(kJumpUnlessEqual, kPending, 0, 2, 0));
  Return(body, 1);
  return body;
}

void AppendRule(std::vector<bpf_insn>& program, const DeviceRule& rule) {
  const std::vector<bpf_insn> body = Decide(rule);
  std::vector<std::pair<int, int>> tests;
  if (rule.type != 'a')
    tests.emplace_back(kType, rule.type == 'b' ? BPF_DEVCG_DEV_BLOCK : BPF_DEVCG_DEV_CHAR);
  if (rule.major) tests.emplace_back(kMajor, static_cast<int>(*rule.major));
  if (rule.minor) tests.emplace_back(kMinor, static_cast<int>(*rule.minor));
  for (size_t i = 0; i < tests.size(); ++i) {
    const size_t skip = tests.size() - i - 1 + body.size();
    program.push_back(
        Insn(kJumpUnlessEqual, tests[i].first, 0, static_cast<int>(skip), tests[i].second));
  }
  program.insert(program.end(), body.begin(), body.end());
}

long Bpf(int command, bpf_attr* attr) { return ::syscall(SYS_bpf, command, attr, sizeof *attr); }

Error BpfError(const char* what) {
  Error error = SysError(errno, std::string("device filter: ") + what);
  if (error.sys == EPERM || error.sys == EACCES) error.code = Code::kForbidden;
  if (error.sys == ENOSYS || error.sys == EINVAL) {
    error.code = Code::kUnsupported;
    error.hint = "the kernel needs CONFIG_CGROUP_BPF";
  }
  return error;
}

Result<UniqueFd> LoadFilter(const std::vector<bpf_insn>& program) {
  static constexpr char kLicense[] = "GPL";
  bpf_attr attr = {};
  attr.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  attr.insns = reinterpret_cast<uintptr_t>(program.data());
  attr.insn_cnt = static_cast<uint32_t>(program.size());
  attr.license = reinterpret_cast<uintptr_t>(kLicense);
  std::memcpy(attr.prog_name, "hutch_devices", sizeof "hutch_devices");
  const long fd = Bpf(BPF_PROG_LOAD, &attr);
  if (fd < 0) return BpfError("load");
  return UniqueFd(static_cast<int>(fd));
}

Result<std::vector<uint32_t>> AttachedFilters(int group_fd) {
  std::vector<uint32_t> ids(kMaxPrograms);
  bpf_attr attr = {};
  attr.query.target_fd = static_cast<uint32_t>(group_fd);
  attr.query.attach_type = BPF_CGROUP_DEVICE;
  attr.query.prog_ids = reinterpret_cast<uintptr_t>(ids.data());
  attr.query.prog_cnt = kMaxPrograms;
  if (Bpf(BPF_PROG_QUERY, &attr) < 0) return BpfError("query");
  ids.resize(attr.query.prog_cnt);
  return ids;
}

Result<UniqueFd> OpenFilter(uint32_t id) {
  bpf_attr attr = {};
  attr.prog_id = id;
  const long fd = Bpf(BPF_PROG_GET_FD_BY_ID, &attr);
  if (fd < 0) return BpfError("open the one that is attached");
  return UniqueFd(static_cast<int>(fd));
}

Status Attach(int group_fd, int filter_fd, int replace_fd) {
  bpf_attr attr = {};
  attr.target_fd = static_cast<uint32_t>(group_fd);
  attr.attach_bpf_fd = static_cast<uint32_t>(filter_fd);
  attr.attach_type = BPF_CGROUP_DEVICE;
  attr.attach_flags = BPF_F_ALLOW_MULTI;  // those of the groups above go on deciding, too
  if (replace_fd >= 0) {
    attr.attach_flags |= BPF_F_REPLACE;
    attr.replace_bpf_fd = static_cast<uint32_t>(replace_fd);
  }
  if (Bpf(BPF_PROG_ATTACH, &attr) < 0) return BpfError("attach");
  return OkStatus();
}

Status Detach(int group_fd, int filter_fd) {
  bpf_attr attr = {};
  attr.target_fd = static_cast<uint32_t>(group_fd);
  attr.attach_bpf_fd = static_cast<uint32_t>(filter_fd);
  attr.attach_type = BPF_CGROUP_DEVICE;
  if (Bpf(BPF_PROG_DETACH, &attr) < 0 && errno != ENOENT) return BpfError("detach the old one");
  return OkStatus();
}

std::string V1Text(const DeviceRule& rule, char type) {
  const auto number = [](const std::optional<uint32_t>& n) {
    return n ? std::to_string(*n) : std::string("*");
  };
  std::string text = std::string(1, type) + " " + number(rule.major) + ":" + number(rule.minor);
  text += ' ';
  if ((rule.access & kDeviceRead) != 0) text += 'r';
  if ((rule.access & kDeviceWrite) != 0) text += 'w';
  if ((rule.access & kDeviceMknod) != 0) text += 'm';
  return text;
}

}  // namespace

std::vector<DeviceRule> WithDefaultDevices(std::vector<DeviceRule> rules) {
  rules.insert(rules.end(), kDefaults.begin(), kDefaults.end());
  return rules;
}

bool DeviceAllowed(const std::vector<DeviceRule>& rules, char type, uint32_t major, uint32_t minor,
                   uint32_t access) {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (!Matches(*rule, type, major, minor)) continue;
    if (!rule->allow && (access & rule->access) != 0) return false;
    if (rule->allow) access &= ~rule->access;
    if (rule->allow && access == 0) return true;
  }
  return false;
}

// From the last rule to the first; one that decides everything ends the list.
std::vector<bpf_insn> CompileDeviceFilter(const std::vector<DeviceRule>& rules) {
  std::vector<bpf_insn> program;
  program.push_back(LoadWord(kType, offsetof(bpf_cgroup_dev_ctx, access_type)));
  program.push_back(Insn(BPF_ALU | BPF_MOV | BPF_X, kPending, kType, 0, 0));
  program.push_back(Insn(BPF_ALU | BPF_AND | BPF_K, kType, 0, 0, 0xffff));
  program.push_back(Insn(BPF_ALU | BPF_RSH | BPF_K, kPending, 0, 0, 16));
  program.push_back(LoadWord(kMajor, offsetof(bpf_cgroup_dev_ctx, major)));
  program.push_back(LoadWord(kMinor, offsetof(bpf_cgroup_dev_ctx, minor)));
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (MatchesEverything(*rule)) {
      Return(program, rule->allow ? 1 : 0);
      return program;
    }
    AppendRule(program, *rule);
  }
  Return(program, 0);
  return program;
}

Status AttachDeviceFilter(int group_fd, const std::vector<bpf_insn>& program) {
  ASSIGN_OR_RETURN(const UniqueFd filter, LoadFilter(program));
  ASSIGN_OR_RETURN(std::vector<uint32_t> old, AttachedFilters(group_fd));
  if (old.size() == 1) {
    // systemd may put its own there between two calls: then there is another one to replace.
    for (int tries = 0; old.size() == 1 && tries < kReplaceTries; ++tries) {
      auto before = OpenFilter(old[0]);
      Status attached = before ? Attach(group_fd, filter.get(), before->get())
                               : Status(std::move(before).error());
      if (attached || attached.error().sys != ENOENT) return attached;
      ASSIGN_OR_RETURN(old, AttachedFilters(group_fd));
    }
  }
  RETURN_IF_ERROR(Attach(group_fd, filter.get(), -1));
  for (const uint32_t id : old) {
    auto before = OpenFilter(id);
    if (before) RETURN_IF_ERROR(Detach(group_fd, before->get()));
  }
  return OkStatus();
}

// The kernel keeps a default and exceptions to it, where a second rule for the same devices
// changes the first and no rule makes a hole in a wider one (security/device_cgroup.c).
std::optional<DeviceWrites> PlanV1Devices(const std::vector<DeviceRule>& rules) {
  DeviceWrites writes = {{"devices.deny", "a"}};
  std::vector<DeviceRule> exceptions;
  bool allow_all = false;
  for (const DeviceRule& rule : rules) {
    const char* const file = rule.allow ? "devices.allow" : "devices.deny";
    if (MatchesEverything(rule)) {
      writes = {{file, "a"}};
      exceptions.clear();
      allow_all = rule.allow;
      continue;
    }
    if (rule.allow == allow_all) {
      // Takes exceptions back: only those for exactly these devices can be.
      for (const DeviceRule& other : exceptions)
        if (Overlaps(rule, other) && !SameDevices(rule, other)) return std::nullopt;
    } else {
      exceptions.push_back(rule);
    }
    for (const char type : {'b', 'c'})
      if (rule.type == 'a' || rule.type == type) writes.emplace_back(file, V1Text(rule, type));
  }
  return writes;
}

}  // namespace hutch::cgroups
