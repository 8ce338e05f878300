// Numbers for the names of config.json that the kernel headers of this build may lack, and what is
// set with them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "oci/container_config.h"

namespace hutch::runtime {

int CapabilityNumber(const std::string& name);  // -1: unknown
int LastCapability();                           // of this kernel
uint64_t KnownCapabilities();                   // mask of 0 .. LastCapability()
int RlimitResource(const std::string& name);    // -1: unknown
const char* RlimitName(int resource);

// process.scheduler and process.ioPriority of another process; nothing when they are not given.
Status SetScheduler(const oci::ContainerProcess& process, pid_t pid);
Status SetIoPriority(const oci::ContainerProcess& process, pid_t pid);

}  // namespace hutch::runtime
