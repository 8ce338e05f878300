// The texts of /proc's live files (rootfs/proc_files.h), from the limits and the use of a sandbox.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cgroups/usage.h"

namespace hutch::daemon {

struct ProcNumbers {
  uint32_t cpus = 1;
  uint64_t memory_bytes = 0;   // the limit
  uint64_t uptime_ms = 0;      // since the sandbox was made
  int64_t born_seconds = 0;    // when, since 1970
  double load[3] = {0, 0, 0};  // over 1, 5 and 15 minutes
  cgroups::Usage usage = {};
};

// The processors of the host's text; empty when it has none.
std::vector<std::string> SplitCpuinfo(std::string_view text);
// `cpus` of them, numbered anew as the cores of one socket.
std::string CpuinfoText(const std::vector<std::string>& processors, uint32_t cpus);
std::string MeminfoText(const ProcNumbers& numbers);
std::string StatText(const ProcNumbers& numbers);
std::string UptimeText(const ProcNumbers& numbers);
std::string LoadavgText(const ProcNumbers& numbers);

// The load after `seconds` in which `running` CPUs were busy: the kernel's exponential averages.
void AdvanceLoad(double (&load)[3], double running, double seconds);

}  // namespace hutch::daemon
