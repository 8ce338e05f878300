#include "runtime/container_names.h"

#include <linux/capability.h>

#include <cstdlib>

#include "base/file.h"

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

std::string CapabilityName(int number) { return std::string("CAP_") + kCapabilities[number]; }

std::vector<std::string> CapabilityNames() {
  std::vector<std::string> names;
  for (const char* name : kCapabilities) names.push_back(std::string("CAP_") + name);
  return names;
}

uint64_t KnownCapabilities() { return (2ull << LastCapability()) - 1; }

}  // namespace hutch::runtime
