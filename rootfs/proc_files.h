// The top level of a sandbox's /proc beside its processes. A list of what there is, not of what
// there is not: whatever else a kernel has there cannot be found (MountOpKind::kSealProc).
// docs/security.md has the reason for each. Usable after clone.
#pragma once

#include <cstdint>

#include "base/sys_raw.h"

namespace hutch::rootfs {

// Of the sandbox's own, in the scratch file system; their content is the daemon's business.
inline constexpr const char* kLiveProcFiles[] = {"cpuinfo", "meminfo", "stat", "uptime", "loadavg"};
inline constexpr char kProcFilesDirectory[] = "proc";

// The same for every sandbox, in the template that also has the empty directory for masks.
inline constexpr char kEmptyTemplate[] = "empty";
inline constexpr char kProcTemplate[] = "proc";
struct ProcTextRow {
  const char* name;
  const char* text;  // nullptr: made when the daemon starts
};
inline constexpr ProcTextRow kProcTexts[] = {
    {"version", nullptr},
    // Of what a sandbox is made; not of what the host has loaded.
    {"filesystems", "nodev\ttmpfs\nnodev\tproc\nnodev\tdevpts\nnodev\tmqueue\nnodev\toverlay\n"},
    {"swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"},
    // Swap is all that is read here, and there is none.
    {"vmstat", "pgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\npgmajfault 0\noom_kill 0\n"},
};

// Settings that programs ask for, below /proc/sys: copied from the host when the daemon starts,
// where it has them. Each is a bound that holds inside too, or the same on every host.
inline constexpr const char* kProcSettings[] = {
    "crypto/fips_enabled",
    "fs/inotify/max_queued_events",
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
    "fs/nr_open",
    "fs/pipe-max-size",
    "kernel/cap_last_cap",
    "kernel/ngroups_max",
    "kernel/osrelease",
    "kernel/ostype",
    "kernel/pid_max",
    "kernel/random/entropy_avail",
    "net/core/somaxconn",
    "net/ipv4/ip_local_port_range",
    "vm/max_map_count",
    "vm/overcommit_memory",
};
// The one file of the kernel's own: another random number at each reading.
inline constexpr char kProcUuid[] = "kernel/random/uuid";
inline constexpr char kProcUuidTarget[] = "proc/sys/kernel/random/uuid";

// Symbolic links to files of the reading process, which it has anyway.
inline constexpr const char* kProcLinks[] = {"mounts", "net"};

// On every kernel, and to be found in no sandbox: what the seal is proved with.
inline constexpr const char* kNeverInProc[] = {"kmsg", "kallsyms", "interrupts", "cmdline"};

inline constexpr uint64_t kProcFileAttributes =
    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

}  // namespace hutch::rootfs
