// Numbers for the names of config.json that the kernel headers of this build may lack.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hutch::runtime {

int CapabilityNumber(const std::string& name);  // -1: unknown
std::string CapabilityName(int number);         // of one that CapabilityNumber knows
std::vector<std::string> CapabilityNames();     // all of them
int LastCapability();                           // of this kernel
uint64_t KnownCapabilities();                   // mask of 0 .. LastCapability()

}  // namespace hutch::runtime
