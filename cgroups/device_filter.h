// linux.resources.devices: which devices a container may make, read and write. On v2 a BPF program
// (BPF_PROG_TYPE_CGROUP_DEVICE), on v1 the devices hierarchy. Of this folder only.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hutch::cgroups {

enum DeviceAccess : uint32_t {  // the kernel's BPF_DEVCG_ACC_*
  kDeviceMknod = 1,
  kDeviceRead = 2,
  kDeviceWrite = 4,
  kDeviceAll = 7,
};

struct DeviceRule {
  bool allow = false;
  char type = 'a';                                 // a, b, c
  std::optional<uint32_t> major = {}, minor = {};  // absent: every
  uint32_t access = kDeviceAll;
};

// Rules read from the first to the last, the last that matches decides, for each kind of access
// alone; before the first everything is denied. Adds those of the devices that the specification
// promises to every container.
std::vector<DeviceRule> WithDefaultDevices(std::vector<DeviceRule> rules);

// Whether the rules allow it; the meaning that the two below give to the kernel.
bool DeviceAllowed(const std::vector<DeviceRule>& rules, char type, uint32_t major, uint32_t minor,
                   uint32_t access);

std::vector<bpf_insn> CompileDeviceFilter(const std::vector<DeviceRule>& rules);
// Loads the program and makes it the group's only one. Needs CAP_BPF or CAP_SYS_ADMIN in the
// host's user namespace: kForbidden without.
Status AttachDeviceFilter(int group_fd, const std::vector<bpf_insn>& program);

// File and value, in the order to write, for the devices hierarchy; nothing when it cannot say the
// same (a hole in a wider rule).
using DeviceWrites = std::vector<std::pair<const char*, std::string>>;
std::optional<DeviceWrites> PlanV1Devices(const std::vector<DeviceRule>& rules);

}  // namespace hutch::cgroups
