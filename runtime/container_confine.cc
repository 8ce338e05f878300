#include "runtime/container_confine.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "runtime/container_names.h"

namespace hutch::runtime {
namespace {

constexpr uint64_t kSysAdmin = 1ull << CAP_SYS_ADMIN;

Result<uint64_t> MaskOf(const std::vector<std::string>& names, const char* set) {
  uint64_t mask = 0;
  for (const std::string& name : names) {
    const int number = CapabilityNumber(name);
    if (number < 0)
      return Error{.code = Code::kInvalidArgument,
                   .what = "unknown capability \"" + name + "\"",
                   .field = std::string("process.capabilities.") + set};
    mask |= 1ull << number;
  }
  return mask & KnownCapabilities();  // what this kernel has not, nobody can be given
}

Status SetCapabilities(uint64_t permitted, uint64_t effective, uint64_t inheritable) {
  const __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const auto low = [](uint64_t mask) { return static_cast<uint32_t>(mask); };
  const auto high = [](uint64_t mask) { return static_cast<uint32_t>(mask >> 32); };
  const __user_cap_data_struct data[2] = {{low(effective), low(permitted), low(inheritable)},
                                          {high(effective), high(permitted), high(inheritable)}};
  const int rc = sys::Capset(&header, data);
  return rc < 0 ? Status(SysError(-rc, "capset")) : OkStatus();
}

Result<CapabilityMasks> ReadCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (const int rc = sys::Capget(&header, data); rc < 0) return SysError(-rc, "capget");
  const auto mask = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
  CapabilityMasks masks;
  masks.effective = mask(data[0].effective, data[1].effective);
  masks.permitted = mask(data[0].permitted, data[1].permitted);
  masks.inheritable = mask(data[0].inheritable, data[1].inheritable);
  for (int cap = 0; cap <= LastCapability(); ++cap)
    if (::prctl(PR_CAPBSET_READ, cap) == 1) masks.bounding |= 1ull << cap;
  return masks;
}

}  // namespace

Result<Confinement> PlanConfinement(const oci::ContainerProcess& process) {
  Confinement plan;
  plan.process = &process;
  CapabilityMasks& masks = plan.capabilities;
  const oci::Capabilities& caps = process.capabilities;
  ASSIGN_OR_RETURN(masks.bounding, MaskOf(caps.bounding, "bounding"));
  ASSIGN_OR_RETURN(masks.effective, MaskOf(caps.effective, "effective"));
  ASSIGN_OR_RETURN(masks.inheritable, MaskOf(caps.inheritable, "inheritable"));
  ASSIGN_OR_RETURN(masks.permitted, MaskOf(caps.permitted, "permitted"));
  ASSIGN_OR_RETURN(masks.ambient, MaskOf(caps.ambient, "ambient"));
  for (const oci::Rlimit& limit : process.rlimits) {
    const int resource = RlimitResource(limit.type);
    if (resource < 0)
      return Error{.code = Code::kInvalidArgument,
                   .what = "unknown limit \"" + limit.type + "\"",
                   .field = "process.rlimits"};
    plan.rlimits.push_back({resource, {limit.soft, limit.hard}});
  }
  return plan;
}

Status ConfineFromOutside(const Confinement& plan, pid_t pid) {
  if (plan.process->oom_score_adj)
    RETURN_IF_ERROR(WriteExisting("/proc/" + std::to_string(pid) + "/oom_score_adj",
                                  std::to_string(*plan.process->oom_score_adj)));
  for (const PlannedRlimit& one : plan.rlimits) {
    const long rc = sys::Raw(SYS_prlimit64, pid, one.resource, &one.limit, nullptr);
    if (rc < 0)
      return SysError(static_cast<int>(-rc),
                      "error setting rlimit " + std::string(RlimitName(one.resource)));
  }
  RETURN_IF_ERROR(SetScheduler(*plan.process, pid));
  return SetIoPriority(*plan.process, pid);
}

Status SetLabels(const Confinement& plan) {
  const oci::ContainerProcess& process = *plan.process;
  if (!process.apparmor_profile.empty() && PathExists("/sys/kernel/security/apparmor")) {
    const std::string text = "exec " + process.apparmor_profile;
    if (!WriteExisting("/proc/self/attr/apparmor/exec", text))
      RETURN_IF_ERROR(WriteExisting("/proc/self/attr/exec", text));
  }
  if (!process.selinux_label.empty() && PathExists("/sys/fs/selinux/enforce"))
    RETURN_IF_ERROR(WriteExisting("/proc/self/attr/exec", process.selinux_label));
  return OkStatus();
}

Status SetNoNewPrivileges(const Confinement& plan) {
  if (!plan.process->no_new_privileges) return OkStatus();
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return SysError(errno, "no new privileges");
  return OkStatus();
}

Status DropBoundingSet(const Confinement& plan) {
  for (int cap = 0; cap <= LastCapability(); ++cap) {
    if ((plan.capabilities.bounding >> cap & 1) != 0) continue;
    if (::prctl(PR_CAPBSET_DROP, cap) != 0 && ::prctl(PR_CAPBSET_READ, cap) != 0)
      return SysError(errno, "drop capability " + std::to_string(cap));
  }
  return OkStatus();
}

// Before the filter: ids, and the bounding set.
Status VerifyUser(const Confinement& plan) {
  const oci::ContainerUser& user = plan.process->user;
  uid_t r, e, s;
  gid_t rg, eg, sg;
  if (::getresuid(&r, &e, &s) != 0 || ::getresgid(&rg, &eg, &sg) != 0)
    return SysError(errno, "getresuid");
  bool right = r == user.uid && e == user.uid && s == user.uid;
  right = right && rg == user.gid && eg == user.gid && sg == user.gid;
  for (int cap = 0; cap <= LastCapability(); ++cap)
    if ((plan.capabilities.bounding >> cap & 1) == 0 && ::prctl(PR_CAPBSET_READ, cap) == 1)
      right = false;
  if (!right)
    return Error{.code = Code::kForbidden, .what = "more privilege is left than asked for"};
  return OkStatus();
}

Status BecomeUser(Confinement& plan) {
  const oci::ContainerUser& user = plan.process->user;
  if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return SysError(errno, "keep capabilities");
  const std::vector<uint32_t>& groups = user.additional_gids;
  if (const long rc = sys::Raw(SYS_setgroups, groups.size(), groups.data()); rc < 0) {
    // Where setgroups is denied, an ordinary user's namespace, the groups are nobody's anyway.
    if (rc != -EPERM || !groups.empty()) return SysError(static_cast<int>(-rc), "setgroups");
  }
  if (const long rc = sys::Raw(SYS_setresgid, user.gid, user.gid, user.gid); rc < 0)
    return SysError(static_cast<int>(-rc), "setgid " + std::to_string(user.gid));
  if (const long rc = sys::Raw(SYS_setresuid, user.uid, user.uid, user.uid); rc < 0)
    return SysError(static_cast<int>(-rc), "setuid " + std::to_string(user.uid));
  ::umask(user.umask.value_or(022));
  const CapabilityMasks& masks = plan.capabilities;
  const uint64_t later = plan.process->no_new_privileges || plan.filter.empty() ? 0 : kSysAdmin;
  ASSIGN_OR_RETURN(const CapabilityMasks now, ReadCapabilities());
  // Inheritable ones now: later they could only be of those that are still permitted.
  plan.now.permitted = (masks.permitted | later) & now.permitted;
  plan.now.effective = masks.effective & plan.now.permitted;
  plan.now.inheritable = masks.inheritable & now.permitted & (now.bounding | now.inheritable);
  RETURN_IF_ERROR(SetCapabilities(plan.now.permitted, plan.now.effective, plan.now.inheritable));
  return VerifyUser(plan);
}

Status EnterWorkdir(const Confinement& plan, WorkdirSoFar so_far) {
  const std::string& cwd = plan.process->cwd;
  if (::chdir(cwd.c_str()) != 0 && so_far != WorkdirSoFar::kEntered)
    return SysError(errno, "chdir to cwd (\"" + cwd + "\") set in config.json failed");
  char where[PATH_MAX];
  // A directory outside of the root, reached through a descriptor of the host's (CVE-2024-21626),
  // has no path here: getcwd(2) then says "(unreachable)".
  if (sys::Raw(SYS_getcwd, where, sizeof where) < 0 || where[0] != '/')
    return Error{.code = Code::kForbidden,
                 .what = "the working directory is outside of the container's root"};
  return OkStatus();
}

// Few calls: without no-new-privileges they are made under the filter.
Status DropCapabilities(const Confinement& plan) {
  const CapabilityMasks& masks = plan.capabilities;
  const uint64_t permitted = masks.permitted & plan.now.permitted;
  RETURN_IF_ERROR(SetCapabilities(permitted, masks.effective & permitted, plan.now.inheritable));
  const uint64_t ambient = masks.ambient & permitted & plan.now.inheritable;
  for (int cap = 0; ambient >> cap != 0 && cap < 63; ++cap) {
    if ((ambient >> cap & 1) == 0) continue;
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) != 0)
      return SysError(errno, "raise ambient capability " + std::to_string(cap));
  }
  return OkStatus();
}

Status VerifyCapabilities(const Confinement& plan) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  // A filter that forbids to look is the caller's choice.
  if (sys::Capget(&header, data) < 0) return OkStatus();
  const auto mask = [](uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; };
  const bool more =
      (mask(data[0].permitted, data[1].permitted) & ~plan.capabilities.permitted) != 0 ||
      (mask(data[0].effective, data[1].effective) & ~plan.capabilities.effective) != 0 ||
      (mask(data[0].inheritable, data[1].inheritable) & ~plan.capabilities.inheritable) != 0;
  if (more)
    return Error{.code = Code::kForbidden, .what = "more capabilities are left than asked for"};
  return OkStatus();
}

Status LoadFilter(const Confinement& plan, UniqueFd* listener) {
  if (plan.filter.empty()) return OkStatus();
  const bool privileged = !plan.process->no_new_privileges;
  if (privileged) {
    RETURN_IF_ERROR(SetCapabilities(plan.now.permitted,
                                    plan.now.effective | (kSysAdmin & plan.now.permitted),
                                    plan.now.inheritable));
  }
  const sock_fprog program{static_cast<unsigned short>(plan.filter.size()),
                           const_cast<sock_filter*>(plan.filter.data())};
  const uint32_t flags =
      plan.filter_flags | (plan.filter_notifies ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0u);
  const long rc = sys::Raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  if (rc < 0) return SysError(static_cast<int>(-rc), "load the seccomp filter");
  if (plan.filter_notifies) listener->reset(static_cast<int>(rc));
  return OkStatus();
}

}  // namespace hutch::runtime
