#include "runtime/default_spec.h"

#include "rootfs/mount_plan.h"

#include <algorithm>

namespace hutch::runtime {
namespace {

constexpr uint64_t kMiB = 1u << 20;
constexpr uint64_t kUnlimited = UINT64_MAX;

const std::vector<std::string> kTenantRootCapabilities = {
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID",
    "CAP_KILL",  "CAP_SETGID",       "CAP_SETUID"};

// No RLIMIT_AS: node and Java reserve far more address space than they use; memory is the cgroup's
// business.
const std::vector<oci::Rlimit> kRlimits = {
    {"RLIMIT_CORE", 0, 0},
    {"RLIMIT_NOFILE", 4096, 65536},
    {"RLIMIT_MEMLOCK", 8 * kMiB, 8 * kMiB},
    {"RLIMIT_MSGQUEUE", 819200, 819200},
    {"RLIMIT_SIGPENDING", 4096, 4096},
    {"RLIMIT_RTPRIO", 0, 0},
    {"RLIMIT_NICE", 0, 0},
    {"RLIMIT_STACK", 8 * kMiB, kUnlimited},
};

std::vector<oci::Mount> DefaultMounts() {
  return {
      {"/proc",
       "proc",
       "proc",
       {"nosuid", "nodev", "noexec", "hidepid=invisible", "subset=honest"}},
      {"/dev/shm", "tmpfs", "tmpfs", {"nosuid", "nodev", "noexec", "mode=1777"}},
      {"/tmp", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=1777"}},
      {"/var/tmp", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=1777"}},
      {"/run", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=755"}},
      {"/workspace", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=755", "uid=1000", "gid=1000"}},
      {"/home/sandbox", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=700", "uid=1000", "gid=1000"}},
      {"/root", "tmpfs", "tmpfs", {"nosuid", "nodev", "mode=700"}},
  };
}

}  // namespace

oci::Spec DefaultSpec() {
  oci::Spec spec;
  spec.root.readonly = true;
  spec.process.user = {.uid = 1000, .gid = 1000, .umask = 022, .additional_gids = {}};
  spec.process.cwd = "/workspace";
  spec.process.env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                      "LANG=C.UTF-8", "TZ=UTC", "HOME=/home/sandbox", "USER=sandbox"};
  spec.process.rlimits = kRlimits;
  spec.mounts = DefaultMounts();
  if (!rootfs::CanSealProc()) UsePidsProc(spec);
  spec.linux_.resources.memory_limit_bytes = 512 * kMiB;
  spec.linux_.resources.memory_swap_bytes = 0;
  spec.linux_.resources.pids_limit = 256;
  spec.linux_.resources.cpu_quota_us = 100000;
  spec.linux_.resources.cpu_period_us = 100000;
  return spec;
}

void UsePidsProc(oci::Spec& spec) {
  for (oci::Mount& mount : spec.mounts)
    if (mount.destination == "/proc")
      mount.options = {"nosuid", "nodev", "noexec", "hidepid=invisible", "subset=pid"};
}

void UseFullProc(oci::Spec& spec) {
  for (oci::Mount& mount : spec.mounts)
    if (mount.destination == "/proc") mount.options = {"nosuid", "nodev", "noexec"};
  spec.linux_.masked_paths = {"/proc/asound",     "/proc/acpi",        "/proc/interrupts",
                              "/proc/kcore",      "/proc/keys",        "/proc/latency_stats",
                              "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
                              "/proc/scsi"};
  spec.linux_.readonly_paths = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                "/proc/sysrq-trigger"};
}

void UseRootUser(oci::Spec& spec) {
  spec.process.user.uid = 0;
  spec.process.user.gid = 0;
  spec.process.capabilities.bounding = kTenantRootCapabilities;
  spec.process.capabilities.effective = kTenantRootCapabilities;
  spec.process.capabilities.permitted = kTenantRootCapabilities;
  for (std::string& entry : spec.process.env) {
    if (entry.starts_with("HOME=")) entry = "HOME=/root";
    if (entry.starts_with("USER=")) entry = "USER=root";
  }
}

}  // namespace hutch::runtime
