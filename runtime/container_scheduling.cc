#include "runtime/container_scheduling.h"

#include <sched.h>
#include <sys/syscall.h>

#include <climits>

#include "base/sys_raw.h"

namespace hutch::runtime {
namespace {

struct Named {
  const char* name;
  int number;
};

enum class Takes { kNice, kPriority, kDeadline, kNothing };
struct PolicyRow {
  const char* name;
  uint32_t number;
  Takes takes;
};
constexpr PolicyRow kPolicies[] = {
    {"SCHED_OTHER", 0, Takes::kNice},   {"SCHED_FIFO", 1, Takes::kPriority},
    {"SCHED_RR", 2, Takes::kPriority},  {"SCHED_BATCH", 3, Takes::kNice},
    {"SCHED_IDLE", 5, Takes::kNothing}, {"SCHED_DEADLINE", 6, Takes::kDeadline},
};
// Of the specification, too: SCHED_ISO, which no kernel has, and the two flags
// SCHED_FLAG_UTIL_CLAMP_..., for whose values it has no members.
constexpr Named kPolicyFlags[] = {
    {"SCHED_FLAG_RESET_ON_FORK", 0x01}, {"SCHED_FLAG_RECLAIM", 0x02},
    {"SCHED_FLAG_DL_OVERRUN", 0x04},    {"SCHED_FLAG_KEEP_POLICY", 0x08},
    {"SCHED_FLAG_KEEP_PARAMS", 0x10},
};
constexpr uint64_t kShortestRuntime = 1024;  // nanoseconds, of SCHED_DEADLINE
constexpr Named kIoClasses[] = {
    {"IOPRIO_CLASS_RT", 1}, {"IOPRIO_CLASS_BE", 2}, {"IOPRIO_CLASS_IDLE", 3}};
constexpr int kIoClassIdle = 3;
constexpr int kIoClassShift = 13;
constexpr int kLowestIoPriority = 7;

enum class Nodes { kNone, kSome, kAny };
struct ModeRow {
  const char* name;
  int number;
  Nodes nodes;
};
constexpr ModeRow kModes[] = {
    {"MPOL_DEFAULT", 0, Nodes::kNone},
    {"MPOL_PREFERRED", 1, Nodes::kAny},
    {"MPOL_BIND", 2, Nodes::kSome},
    {"MPOL_INTERLEAVE", 3, Nodes::kSome},
    {"MPOL_LOCAL", 4, Nodes::kNone},
    {"MPOL_PREFERRED_MANY", 5, Nodes::kSome},
    {"MPOL_WEIGHTED_INTERLEAVE", 6, Nodes::kSome},
};
constexpr int kRelativeNodes = 1 << 14, kStaticNodes = 1 << 15;
constexpr Named kModeFlags[] = {
    {"MPOL_F_NUMA_BALANCING", 1 << 13},
    {"MPOL_F_RELATIVE_NODES", kRelativeNodes},
    {"MPOL_F_STATIC_NODES", kStaticNodes},
};

constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
constexpr uint32_t kMostCpus = 8192;  // of any kernel

template <class Row, size_t N>
const Row* Find(const Row (&table)[N], const std::string& name) {
  for (const Row& one : table)
    if (name == one.name) return &one;
  return nullptr;
}

template <class Row, size_t N>
std::vector<std::string> NamesOf(const Row (&table)[N]) {
  std::vector<std::string> names;
  for (const Row& one : table) names.emplace_back(one.name);
  return names;
}

Error Refuse(Code code, const std::string& field, const std::string& why) {
  return Error{.code = code, .what = field + ": " + why, .field = field};
}
Error Invalid(const std::string& field, const std::string& why) {
  return Refuse(Code::kInvalidArgument, field, why);
}

std::vector<unsigned long> BitsOf(const std::vector<uint32_t>& numbers) {
  std::vector<unsigned long> bits;
  for (const uint32_t number : numbers) {
    const size_t word = number / kWordBits;
    if (bits.size() <= word) bits.resize(word + 1);
    bits[word] |= 1ul << (number % kWordBits);
  }
  return bits;
}

Status CheckScheduler(const oci::Scheduler& wanted, Takes takes) {
  const std::string path = "process.scheduler";
  if (wanted.nice < -20 || wanted.nice > 19)
    return Invalid(path + ".nice", "must be between -20 and 19");
  const bool ranked = takes == Takes::kPriority;
  if (ranked && (wanted.priority < 1 || wanted.priority > 99))
    return Invalid(path + ".priority", wanted.policy + " needs one between 1 and 99");
  if (!ranked && wanted.priority != 0)
    return Invalid(path + ".priority", wanted.policy + " has none");
  if (takes != Takes::kDeadline) return OkStatus();
  const std::string call = "sched_setattr: `" + wanted.policy + "` ";  // crun's words
  const auto text = [](uint64_t number) { return std::to_string(number); };
  if (wanted.runtime == 0) return Invalid(path + ".runtime", call + "requires `runtime`");
  if (wanted.runtime < kShortestRuntime || wanted.runtime > INT64_MAX)
    return Invalid(path + ".runtime", call + "runtime " + text(wanted.runtime) +
                                          " must be between " + text(kShortestRuntime) + " and " +
                                          text(INT64_MAX));
  if (wanted.deadline == 0) return Invalid(path + ".deadline", call + "requires `deadline`");
  if (wanted.runtime > wanted.deadline)
    return Invalid(path + ".runtime", call + "runtime " + text(wanted.runtime) +
                                          " must be <= deadline " + text(wanted.deadline));
  if (wanted.period != 0 && wanted.deadline > wanted.period)
    return Invalid(path + ".deadline", call + "deadline " + text(wanted.deadline) +
                                           " must be <= period " + text(wanted.period));
  return OkStatus();
}

Result<SchedulerAttributes> PlanScheduler(const oci::Scheduler& wanted) {
  const PolicyRow* policy = Find(kPolicies, wanted.policy);
  if (policy == nullptr)
    return Refuse(Code::kUnsupported, "process.scheduler.policy",
                  "unsupported policy \"" + wanted.policy + "\"");
  SchedulerAttributes attributes;
  attributes.policy = policy->number;
  for (const std::string& name : wanted.flags) {
    const Named* flag = Find(kPolicyFlags, name);
    if (flag == nullptr)
      return Refuse(Code::kUnsupported, "process.scheduler.flags",
                    "unsupported flag \"" + name + "\"");
    attributes.flags |= static_cast<uint64_t>(flag->number);
  }
  RETURN_IF_ERROR(CheckScheduler(wanted, policy->takes));
  attributes.nice = wanted.nice;
  attributes.priority = static_cast<uint32_t>(wanted.priority);
  attributes.runtime = wanted.runtime;
  attributes.deadline = wanted.deadline;
  attributes.period = wanted.period;
  return attributes;
}

Result<int> PlanIoPriority(const oci::IoPriority& wanted) {
  const Named* row = Find(kIoClasses, wanted.io_class);
  if (row == nullptr)
    return Invalid("process.ioPriority.class", "unknown class \"" + wanted.io_class + "\"");
  // The idle class has no levels; configurations leave it out there.
  if (!wanted.priority && row->number != kIoClassIdle)
    return Invalid("process.ioPriority.priority", "is required");
  const int priority = wanted.priority.value_or(0);
  if (priority < 0 || priority > kLowestIoPriority)
    return Invalid("process.ioPriority.priority", "must be between 0 and 7");
  return row->number << kIoClassShift | priority;
}

Result<PlannedMemoryPolicy> PlanMemoryPolicy(const oci::MemoryPolicy& wanted) {
  const std::string path = "linux.memoryPolicy";
  const ModeRow* mode = Find(kModes, wanted.mode);
  if (mode == nullptr) return Invalid(path + ".mode", "unknown mode \"" + wanted.mode + "\"");
  int flags = 0;
  for (const std::string& name : wanted.flags) {
    const Named* flag = Find(kModeFlags, name);
    if (flag == nullptr) return Invalid(path + ".flags", "unknown flag \"" + name + "\"");
    flags |= flag->number;
  }
  if ((flags & kRelativeNodes) != 0 && (flags & kStaticNodes) != 0)
    return Invalid(path + ".flags", "nodes are relative or static, not both");
  if (wanted.nodes.empty() && (flags & (kRelativeNodes | kStaticNodes)) != 0)
    return Invalid(path + ".flags", "there are no nodes for them to be of");
  if (mode->nodes == Nodes::kNone && !wanted.nodes.empty())
    return Invalid(path + ".nodes", wanted.mode + " takes none");
  if (mode->nodes == Nodes::kSome && wanted.nodes.empty())
    return Invalid(path + ".nodes", wanted.mode + " needs them");
  return PlannedMemoryPolicy{mode->number | flags, BitsOf(wanted.nodes)};
}

long SetAffinity(pid_t pid, const std::vector<unsigned long>& bits) {
  return sys::Raw(SYS_sched_setaffinity, pid, bits.size() * sizeof(unsigned long), bits.data());
}

}  // namespace

Result<Scheduling> PlanScheduling(const oci::ContainerProcess& process,
                                  const oci::ContainerLinux& linux_part) {
  Scheduling plan;
  if (process.scheduler) {
    ASSIGN_OR_RETURN(plan.scheduler, PlanScheduler(*process.scheduler));
  }
  if (process.io_priority) {
    ASSIGN_OR_RETURN(plan.io_priority, PlanIoPriority(*process.io_priority));
  }
  if (linux_part.memory_policy) {
    ASSIGN_OR_RETURN(plan.memory, PlanMemoryPolicy(*linux_part.memory_policy));
  }
  return plan;
}

Status SetScheduling(const Scheduling& plan, pid_t pid) {
  if (plan.scheduler) {
    const long rc = sys::Raw(SYS_sched_setattr, pid, &*plan.scheduler, 0u);
    if (rc < 0) {
      Error error = SysError(static_cast<int>(-rc), "process.scheduler: set the scheduler");
      error.field = "process.scheduler";
      return error;
    }
  }
  if (!plan.io_priority) return OkStatus();
  const long rc = sys::Raw(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, pid, *plan.io_priority);
  if (rc >= 0) return OkStatus();
  Error error = SysError(static_cast<int>(-rc), "process.ioPriority: set the I/O priority");
  error.field = "process.ioPriority";
  return error;
}

Status SetMemoryPolicy(const Scheduling& plan) {
  if (!plan.memory) return OkStatus();
  const std::vector<unsigned long>& nodes = plan.memory->nodes;
  // The kernel takes the number of bits to be one more than there are.
  const unsigned long count = nodes.empty() ? 0 : nodes.size() * kWordBits + 1;
  const long rc =
      sys::Raw(SYS_set_mempolicy, plan.memory->mode, nodes.empty() ? nullptr : nodes.data(), count);
  if (rc >= 0) return OkStatus();
  Error error = SysError(static_cast<int>(-rc), "linux.memoryPolicy: set the memory policy");
  if (rc == -ENOSYS) {
    error.code = Code::kUnsupported;
    error.what = "linux.memoryPolicy: this kernel has no NUMA memory policies";
  }
  error.field = "linux.memoryPolicy";
  return error;
}

Status RunOnCpus(pid_t pid, const std::vector<uint32_t>& cpus, const char* field) {
  const long rc = SetAffinity(pid, BitsOf(cpus));
  if (rc >= 0) return OkStatus();
  Error error = SysError(static_cast<int>(-rc), std::string(field) + ": set the CPUs");
  error.field = field;
  return error;
}

Status RunOnAllCpus(pid_t pid) {
  const long rc = SetAffinity(pid, std::vector<unsigned long>(kMostCpus / kWordBits, ~0ul));
  return rc < 0 ? Status(SysError(static_cast<int>(-rc), "set the CPUs")) : OkStatus();
}

std::vector<std::string> MemoryPolicyModes() { return NamesOf(kModes); }
std::vector<std::string> MemoryPolicyFlags() { return NamesOf(kModeFlags); }

}  // namespace hutch::runtime
