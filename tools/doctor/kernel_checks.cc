// What hutch wants from the kernel: docs/kernel.md, as checks.
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "tools/doctor/check.h"
#include "tools/doctor/mount_probe.h"

namespace hutch::tools {
namespace {

constexpr Version kOldestKernel = {6, 1};
constexpr const char* kAsRoot = "run `sudo hutch doctor` to try it";
constexpr const char* kNeeded[] = {"memory", "cpu", "pids"};

bool IsRoot() { return ::geteuid() == 0; }

bool Has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct MountLine {
  std::string point, type, options;
};

// Fields of /proc/PID/mountinfo (proc(5)): the optional ones end at " - ".
std::vector<MountLine> ParseMountinfo(const std::string& mountinfo) {
  std::vector<MountLine> mounts;
  for (const std::string& line : Split(mountinfo, '\n')) {
    const std::vector<std::string> fields = Split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 10 || fields.end() - dash < 4) continue;
    mounts.push_back({fields[4], dash[1], dash[3]});
  }
  return mounts;
}

std::string WhereToProbe() { return PathExists("/var/lib/hutch") ? "/var/lib/hutch" : "/var/lib"; }

}  // namespace

std::string Setting(const std::string& path) {
  const auto text = ReadFile(path, size_t{64} << 10);
  return text ? std::string(Trim(*text)) : "";
}

Version ParseKernelRelease(const std::string& release) {
  Version version;
  if (std::sscanf(release.c_str(), "%u.%u", &version.major, &version.minor) != 2) return {};
  return version;
}

Finding CheckKernelVersion(Client&) {
  utsname name = {};
  if (::uname(&name) != 0) return Failure("unknown", "");
  if (std::string(name.machine) != "x86_64")
    return Failure(std::string("machine ") + name.machine, "hutch runs on x86-64 only");
  if (ParseKernelRelease(name.release) < kOldestKernel)
    return Failure(name.release, "boot Linux 6.1 or newer (Debian 12 has it)");
  return Fine(name.release);
}

Finding CheckUserNamespaces(Client&) {
  if (Setting("/proc/sys/user/max_user_namespaces") == "0")
    return Failure("user.max_user_namespaces is 0",
                   "sysctl -w user.max_user_namespaces=65536, and the same in /etc/sysctl.d");
  const Status made = ProbeNamespace(CLONE_NEWUSER);
  const bool restricted = Setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1";
  if (made)
    return Fine(restricted ? "work (AppArmor restricts those of other users only)" : "work");
  // hutchd makes them as root: what stops another user need not stop it.
  if (!IsRoot()) return Warning("not for this user: " + made.error().what, kAsRoot);
  return Failure(made.error().what, "boot a kernel with CONFIG_USER_NS");
}

Finding CheckTimeNamespace(Client&) {
  if (!PathExists("/proc/self/ns/time"))
    return Warning("none: sandboxes see the host's uptime", "boot a kernel with CONFIG_TIME_NS");
  return Fine("present");
}

CgroupView ParseCgroupMounts(const std::string& mountinfo) {
  constexpr const char* kKnown[] = {"memory", "cpu", "pids", "cpuset", "blkio", "devices"};
  CgroupView view;
  std::set<std::string> v1;
  for (const MountLine& mount : ParseMountinfo(mountinfo)) {
    if (mount.type == "cgroup2" && view.v2_mount.empty()) view.v2_mount = mount.point;
    if (mount.type != "cgroup") continue;
    const std::vector<std::string> options = Split(mount.options, ',');
    for (const char* name : kKnown)
      if (Has(options, name)) v1.insert(name);
  }
  view.v1_controllers.assign(v1.begin(), v1.end());
  return view;
}

Finding JudgeCgroups(const CgroupView& view) {
  if (view.v2_mount.empty())
    return Failure("no cgroup v2 tree",
                   "mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd");
  std::vector<std::string> missing;
  bool hybrid = false;
  for (const char* name : kNeeded) {
    if (Has(view.v2_controllers, name)) continue;
    hybrid = true;
    if (!Has(view.v1_controllers, name)) missing.emplace_back(name);
  }
  if (!missing.empty())
    return Failure("no controller for " + Join(missing, ", "),
                   "boot with systemd.unified_cgroup_hierarchy=1, without cgroup_disable=");
  if (hybrid)
    return Warning("hybrid: limits go to v1 (" + Join(view.v1_controllers, " ") + "); slower",
                   "boot with systemd.unified_cgroup_hierarchy=1");
  return Fine("v2 at " + view.v2_mount + ": " + Join(view.v2_controllers, " "));
}

Finding CheckCgroups(Client&) {
  CgroupView view = ParseCgroupMounts(Setting("/proc/self/mountinfo"));
  const std::string names = Setting(view.v2_mount + "/cgroup.controllers");
  if (!view.v2_mount.empty() && !names.empty()) view.v2_controllers = Split(names, ' ');
  return JudgeCgroups(view);
}

Finding CheckCloneIntoCgroup(Client&) {
  // A descriptor that is no cgroup: a kernel with the flag says EBADF, an older one EINVAL. No
  // process is made either way.
  const auto null = Open("/dev/null", O_RDONLY);
  if (!null) return Failure(null.error().what, "");
  struct clone_args args = {};
  args.flags = CLONE_INTO_CGROUP;
  args.cgroup = static_cast<uint64_t>(null->get());
  const long value = sys::Clone3(&args);
  if (value == -EBADF) return Fine("known");
  return Failure("refused: " + ErrnoName(static_cast<int>(-value)), "boot Linux 6.1 or newer");
}

Finding CheckSystemCalls(Client&) {
  struct Row {
    const char* name;
    long result;
  };
  const UniqueFd opened(sys::Openat2(AT_FDCWD, "/", O_PATH, 0));
  const UniqueFd fs(sys::Fsopen("tmpfs"));
  const UniqueFd tree(sys::OpenTree(AT_FDCWD, "/", 0));
  struct mount_attr none = {};
  const Row rows[] = {
      {"openat2", opened.get()},
      {"fsopen", fs.get()},
      {"open_tree", tree.get()},
      {"mount_setattr", sys::MountSetattr(-1, "", 0, &none)},
      {"clone3", sys::Raw(SYS_clone3, nullptr, 0)},
      {"close_range", sys::CloseRange(~0u, ~0u, 0)},
      {"pidfd_open", sys::PidfdOpen(-1, 0)},
  };
  std::vector<std::string> missing;
  for (const Row& row : rows)
    if (row.result == -ENOSYS) missing.emplace_back(row.name);
  if (missing.empty()) return Fine("openat2 fsopen open_tree mount_setattr clone3 close_range");
  return Failure("missing: " + Join(missing, " "),
                 "boot Linux 6.1 or newer; inside a container, allow them in its seccomp profile");
}

Finding CheckSeccomp(Client&) {
  uint32_t action = SECCOMP_RET_KILL_PROCESS;
  const long value = sys::Raw(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0u, &action);
  if (value == 0) return Fine("filters, killing whole processes");
  return Failure(ErrnoName(static_cast<int>(-value)), "boot a kernel with CONFIG_SECCOMP_FILTER");
}

Finding CheckLandlock(Client&) {
  const long abi =
      sys::Raw(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi > 0) return Fine("ABI " + std::to_string(abi));
  return Warning("absent: one wall less around the image unpacker",
                 "boot with lsm=landlock,... on a kernel with CONFIG_SECURITY_LANDLOCK");
}

Finding CheckOverlay(Client&) {
  if (!IsRoot()) return Warning("not tried", kAsRoot);
  const Status probed = ProbeOverlay(WhereToProbe());
  if (probed) return Fine("writable on " + WhereToProbe());
  return Failure(probed.error().what,
                 "modprobe overlay; /var/lib/hutch must be on ext4, xfs (ftype=1) or btrfs");
}

Finding CheckIdmappedMounts(Client&) {
  if (!IsRoot()) return Warning("not tried", kAsRoot);
  const Status probed = ProbeIdmap(WhereToProbe());
  if (probed) return Fine("work on " + WhereToProbe());
  return Failure(probed.error().what, "put /var/lib/hutch on ext4, xfs or btrfs");
}

Finding CheckIoUring(Client&) {
  const std::string value = Setting("/proc/sys/kernel/io_uring_disabled");
  if (value.empty()) return Fine("no such setting; sandboxes may not use io_uring");
  if (value != "0") return Fine("kernel.io_uring_disabled is " + value);
  return Warning("open to the host's users; closed to sandboxes by their filter",
                 "sysctl -w kernel.io_uring_disabled=2 where nothing needs it");
}

Finding CheckAutogroup(Client&) {
  if (Setting("/proc/sys/kernel/sched_autogroup_enabled") != "1") return Fine("off");
  return Warning("on: a new session costs milliseconds under load",
                 "sysctl -w kernel.sched_autogroup_enabled=0");
}

std::vector<std::string> MountsBelowProc(const std::string& mountinfo) {
  std::vector<std::string> found;
  for (const MountLine& mount : ParseMountinfo(mountinfo)) {
    // A directory made to be mounted on hides nothing (mount_too_revealing in fs/namespace.c).
    if (mount.point == "/proc/sys/fs/binfmt_misc" || mount.point == "/proc/fs/nfsd") continue;
    if (mount.point.starts_with("/proc/")) found.push_back(mount.point);
  }
  return found;
}

Finding CheckProcMounts(Client&) {
  const std::vector<std::string> found = MountsBelowProc(Setting("/proc/self/mountinfo"));
  if (found.empty()) return Fine("nothing is mounted over it");
  return Failure("mounted over: " + Join(found, " "),
                 "umount them in hutchd's mount namespace: the kernel refuses sandboxes a fresh "
                 "/proc otherwise");
}

}  // namespace hutch::tools
