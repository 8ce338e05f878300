#include "runtime/container_names.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstdlib>

#include "base/file.h"
#include "base/sys_raw.h"

namespace hutch::runtime {
namespace {

constexpr const char* kCapabilities[] = {"CHOWN",
                                         "DAC_OVERRIDE",
                                         "DAC_READ_SEARCH",
                                         "FOWNER",
                                         "FSETID",
                                         "KILL",
                                         "SETGID",
                                         "SETUID",
                                         "SETPCAP",
                                         "LINUX_IMMUTABLE",
                                         "NET_BIND_SERVICE",
                                         "NET_BROADCAST",
                                         "NET_ADMIN",
                                         "NET_RAW",
                                         "IPC_LOCK",
                                         "IPC_OWNER",
                                         "SYS_MODULE",
                                         "SYS_RAWIO",
                                         "SYS_CHROOT",
                                         "SYS_PTRACE",
                                         "SYS_PACCT",
                                         "SYS_ADMIN",
                                         "SYS_BOOT",
                                         "SYS_NICE",
                                         "SYS_RESOURCE",
                                         "SYS_TIME",
                                         "SYS_TTY_CONFIG",
                                         "MKNOD",
                                         "LEASE",
                                         "AUDIT_WRITE",
                                         "AUDIT_CONTROL",
                                         "SETFCAP",
                                         "MAC_OVERRIDE",
                                         "MAC_ADMIN",
                                         "SYSLOG",
                                         "WAKE_ALARM",
                                         "BLOCK_SUSPEND",
                                         "AUDIT_READ",
                                         "PERFMON",
                                         "BPF",
                                         "CHECKPOINT_RESTORE"};

struct Named {
  const char* name;
  int number;
};
constexpr Named kRlimits[] = {
    {"RLIMIT_AS", RLIMIT_AS},
    {"RLIMIT_CORE", RLIMIT_CORE},
    {"RLIMIT_CPU", RLIMIT_CPU},
    {"RLIMIT_DATA", RLIMIT_DATA},
    {"RLIMIT_FSIZE", RLIMIT_FSIZE},
    {"RLIMIT_LOCKS", RLIMIT_LOCKS},
    {"RLIMIT_MEMLOCK", RLIMIT_MEMLOCK},
    {"RLIMIT_MSGQUEUE", RLIMIT_MSGQUEUE},
    {"RLIMIT_NICE", RLIMIT_NICE},
    {"RLIMIT_NOFILE", RLIMIT_NOFILE},
    {"RLIMIT_NPROC", RLIMIT_NPROC},
    {"RLIMIT_RSS", RLIMIT_RSS},
    {"RLIMIT_RTPRIO", RLIMIT_RTPRIO},
    {"RLIMIT_RTTIME", RLIMIT_RTTIME},
    {"RLIMIT_SIGPENDING", RLIMIT_SIGPENDING},
    {"RLIMIT_STACK", RLIMIT_STACK},
};
constexpr Named kPolicies[] = {{"SCHED_OTHER", 0}, {"SCHED_FIFO", 1}, {"SCHED_RR", 2},
                               {"SCHED_BATCH", 3}, {"SCHED_IDLE", 5}, {"SCHED_DEADLINE", 6},
                               {"SCHED_ISO", -1}};
constexpr Named kPolicyFlags[] = {
    {"SCHED_FLAG_RESET_ON_FORK", 0x01}, {"SCHED_FLAG_RECLAIM", 0x02},
    {"SCHED_FLAG_DL_OVERRUN", 0x04},    {"SCHED_FLAG_KEEP_POLICY", 0x08},
    {"SCHED_FLAG_KEEP_PARAMS", 0x10},   {"SCHED_FLAG_UTIL_CLAMP_MIN", 0x20},
    {"SCHED_FLAG_UTIL_CLAMP_MAX", 0x40}};
constexpr Named kIoClasses[] = {
    {"IOPRIO_CLASS_RT", 1}, {"IOPRIO_CLASS_BE", 2}, {"IOPRIO_CLASS_IDLE", 3}};
constexpr int kIoClassShift = 13;

template <size_t N>
int Find(const Named (&table)[N], const std::string& name) {
  for (const Named& one : table)
    if (name == one.name) return one.number;
  return -1;
}

struct SchedulerAttributes {  // struct sched_attr, which glibc 2.36 lacks
  uint32_t size = sizeof(SchedulerAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;
};

}  // namespace

int CapabilityNumber(const std::string& name) {
  if (!name.starts_with("CAP_")) return -1;
  for (size_t i = 0; i < std::size(kCapabilities); ++i)
    if (name.compare(4, std::string::npos, kCapabilities[i]) == 0) return static_cast<int>(i);
  return -1;
}

int LastCapability() {
  static const int last = [] {
    const Result<std::string> text = ReadFile("/proc/sys/kernel/cap_last_cap", 64);
    return text ? std::atoi(text->c_str()) : CAP_LAST_CAP;
  }();
  return last;
}

uint64_t KnownCapabilities() { return (2ull << LastCapability()) - 1; }

int RlimitResource(const std::string& name) { return Find(kRlimits, name); }

const char* RlimitName(int resource) {
  for (const Named& one : kRlimits)
    if (one.number == resource) return one.name;
  return "RLIMIT";
}

Status SetScheduler(const oci::ContainerProcess& process, pid_t pid) {
  if (!process.scheduler) return OkStatus();
  const oci::Scheduler& wanted = *process.scheduler;
  SchedulerAttributes attributes;
  const int policy = Find(kPolicies, wanted.policy);
  if (policy < 0)
    return Error{.code = Code::kUnsupported,
                 .what = "scheduling policy \"" + wanted.policy + "\"",
                 .field = "process.scheduler.policy"};
  attributes.policy = static_cast<uint32_t>(policy);
  for (const std::string& name : wanted.flags) {
    const int flag = Find(kPolicyFlags, name);
    if (flag < 0)
      return Error{.code = Code::kInvalidArgument,
                   .what = "unknown flag \"" + name + "\"",
                   .field = "process.scheduler.flags"};
    attributes.flags |= static_cast<uint64_t>(flag);
  }
  attributes.nice = wanted.nice;
  attributes.priority = static_cast<uint32_t>(wanted.priority);
  attributes.runtime = wanted.runtime;
  attributes.deadline = wanted.deadline;
  attributes.period = wanted.period;
  const long rc = sys::Raw(SYS_sched_setattr, pid, &attributes, 0u);
  return rc < 0 ? Status(SysError(static_cast<int>(-rc), "set the scheduler")) : OkStatus();
}

Status SetIoPriority(const oci::ContainerProcess& process, pid_t pid) {
  if (!process.io_priority) return OkStatus();
  const int io_class = Find(kIoClasses, process.io_priority->io_class);
  if (io_class < 0)
    return Error{.code = Code::kInvalidArgument,
                 .what = "unknown class \"" + process.io_priority->io_class + "\"",
                 .field = "process.ioPriority.class"};
  const int value = io_class << kIoClassShift | process.io_priority->priority;
  const long rc = sys::Raw(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, pid, value);
  return rc < 0 ? Status(SysError(static_cast<int>(-rc), "set the I/O priority")) : OkStatus();
}

}  // namespace hutch::runtime
