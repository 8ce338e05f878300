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
#include "rootfs/container_sysctl.h"
#include "runtime/agent_messages.h"
#include "runtime/container_names.h"

namespace hutch::runtime {
namespace {

constexpr uint64_t kSysAdmin = 1ull << CAP_SYS_ADMIN;

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

Error Invalid(const std::string& field, const std::string& why) {
  return Error{.code = Code::kInvalidArgument, .what = field + ": " + why, .field = field};
}

// The bits of those that this kernel knows; the others are told.
uint64_t MaskOf(const std::vector<std::string>& names, const std::string& set,
                std::vector<std::string>* warnings) {
  uint64_t mask = 0;
  for (const std::string& name : names) {
    const int number = CapabilityNumber(name);
    if (number >= 0 && (KnownCapabilities() >> number & 1) != 0)
      mask |= 1ull << number;
    else
      warnings->push_back("process.capabilities." + set + ": " +
                          (number < 0 ? "unknown capability \"" : "this kernel has no \"") + name +
                          "\"");
  }
  return mask;
}

void WarnOf(uint64_t missing, const char* set, const char* why,
            std::vector<std::string>* warnings) {
  std::string names;
  for (int cap = 0; cap < 64 && missing >> cap != 0; ++cap)
    if ((missing >> cap & 1) != 0) names += " " + CapabilityName(cap);
  if (!names.empty())
    warnings->push_back(std::string("process.capabilities.") + set + ": cannot be granted, " + why +
                        ":" + names);
}

// The masks as asked for: what the kernel refuses of them is left out where they are set.
Result<CapabilityMasks> PlanCapabilities(const oci::Capabilities& caps, CapabilitySource source,
                                         std::vector<std::string>* warnings) {
  CapabilityMasks masks;
  masks.bounding = MaskOf(caps.bounding, "bounding", warnings);
  masks.effective = MaskOf(caps.effective, "effective", warnings);
  masks.inheritable = MaskOf(caps.inheritable, "inheritable", warnings);
  masks.permitted = MaskOf(caps.permitted, "permitted", warnings);
  masks.ambient = MaskOf(caps.ambient, "ambient", warnings);
  CapabilityMasks had{.bounding = ~0ull, .permitted = ~0ull};
  if (source == CapabilitySource::kCaller) {
    ASSIGN_OR_RETURN(had, ReadCapabilities());
  }
  const char* none = "the runtime has none";
  WarnOf(masks.bounding & ~had.bounding, "bounding", none, warnings);
  WarnOf(masks.permitted & ~had.permitted, "permitted", none, warnings);
  WarnOf(masks.effective & ~masks.permitted, "effective", "not permitted", warnings);
  WarnOf(masks.inheritable & ~(masks.bounding & had.permitted), "inheritable",
         "not in the bounding set", warnings);
  WarnOf(masks.ambient & ~(masks.permitted & masks.inheritable), "ambient",
         "not both permitted and inheritable", warnings);
  return masks;
}

Result<std::vector<PlannedRlimit>> PlanRlimits(const std::vector<oci::Rlimit>& rlimits) {
  std::vector<PlannedRlimit> planned;
  for (size_t i = 0; i < rlimits.size(); ++i) {
    const oci::Rlimit& limit = rlimits[i];
    const std::string path = "process.rlimits[" + std::to_string(i) + "]";
    const Result<uint32_t> number = RlimitNumber(limit.type);
    if (!number) return Invalid(path + ".type", number.error().what);
    if (limit.soft > limit.hard)
      return Invalid(path + ".soft", "rlimit " + limit.type + " is above the hard one");
    planned.push_back({*number, {limit.soft, limit.hard}});
  }
  return planned;
}

Error OfField(Error error, const char* field) {
  error.what = std::string(field) + ": " + error.what;
  error.field = field;
  return error;
}

bool HasAppArmor() {
  const Result<std::string> enabled = ReadFile("/sys/module/apparmor/parameters/enabled", 16);
  return enabled && enabled->starts_with("Y");
}
bool HasSelinux() { return PathExists("/sys/fs/selinux/enforce"); }

// What is asked for and not there would be less isolation than its owner thinks it has.
Status PlanLabels(const oci::ContainerProcess& process, const oci::ContainerLinux& linux_part,
                  Confinement* plan) {
  const bool apparmor = !process.apparmor_profile.empty() && HasAppArmor();
  if (!process.apparmor_profile.empty() && !apparmor && process.apparmor_profile != "unconfined")
    return Invalid("process.apparmorProfile", "AppArmor is not enabled on this host");
  if (apparmor) plan->apparmor_profile = process.apparmor_profile;
  if (!process.selinux_label.empty() && !HasSelinux())
    return Invalid("process.selinuxLabel", "SELinux is not enabled on this host");
  plan->selinux_label = process.selinux_label;
  if (!linux_part.mount_label.empty() && !HasSelinux())
    return Invalid("linux.mountLabel", "SELinux is not enabled on this host");
  return OkStatus();
}

}  // namespace

Result<Confinement> PlanConfinement(const oci::ContainerProcess& process,
                                    const oci::ContainerLinux& linux_part,
                                    CapabilitySource source) {
  Confinement plan;
  plan.process = &process;
  ASSIGN_OR_RETURN(plan.capabilities,
                   PlanCapabilities(process.capabilities, source, &plan.warnings));
  ASSIGN_OR_RETURN(plan.rlimits, PlanRlimits(process.rlimits));
  ASSIGN_OR_RETURN(plan.scheduling, PlanScheduling(process, linux_part));
  RETURN_IF_ERROR(PlanLabels(process, linux_part, &plan));
  return plan;
}

Status SetOomScore(const Confinement& plan, const std::string& process) {
  if (!plan.process->oom_score_adj) return OkStatus();
  return WriteExisting("/proc/" + process + "/oom_score_adj",
                       std::to_string(*plan.process->oom_score_adj));
}

Status ConfineFromOutside(const Confinement& plan, pid_t pid) {
  return SetScheduling(plan.scheduling, pid);
}

Status LimitFromOutside(const Confinement& plan, pid_t pid) {
  for (const PlannedRlimit& one : plan.rlimits) {
    const long rc = sys::Raw(SYS_prlimit64, pid, one.resource, &one.limit, nullptr);
    if (rc < 0)
      return SysError(static_cast<int>(-rc),
                      "error setting rlimit " + std::string(RlimitName(one.resource)));
  }
  return OkStatus();
}

Status SetLabels(const Confinement& plan) {
  if (plan.apparmor_profile.empty() && plan.selinux_label.empty()) return OkStatus();
  // Whoever made the mounts could have let the write go elsewhere (CVE-2025-52881).
  ASSIGN_OR_RETURN(const UniqueFd root, Open("/", O_PATH | O_DIRECTORY));
  ASSIGN_OR_RETURN(const UniqueFd proc, rootfs::OpenVerifiedProc(root.get()));
  if (!plan.apparmor_profile.empty()) {
    const std::string text = "exec " + plan.apparmor_profile;
    Status written = rootfs::WriteOwnAttribute(proc.get(), "apparmor/exec", text);
    // Before Linux 5.8 the one file is of whichever LSM is there.
    if (!written && written.error().sys == ENOENT && plan.selinux_label.empty())
      written = rootfs::WriteOwnAttribute(proc.get(), "exec", text);
    if (!written) return OfField(std::move(written).error(), "process.apparmorProfile");
  }
  if (plan.selinux_label.empty()) return OkStatus();
  Status written = rootfs::WriteOwnAttribute(proc.get(), "exec", plan.selinux_label);
  return written ? OkStatus() : Status(OfField(std::move(written).error(), "process.selinuxLabel"));
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
  if (plan.keep_groups && !groups.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "groups cannot be kept and added",
                 .field = "process.user.additionalGids"};
  const long dropped = plan.keep_groups ? 0 : sys::Raw(SYS_setgroups, groups.size(), groups.data());
  if (dropped < 0) {
    // Where setgroups is denied, an ordinary user's namespace, the groups are nobody's anyway.
    if (dropped != -EPERM || !groups.empty())
      return SysError(static_cast<int>(-dropped), "setgroups");
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
