// What one sandbox uses now.
#pragma once

#include <cstdint>

#include "daemon/timers.h"
#include "oci/json.h"

namespace hutch::daemon {

struct SandboxEntry;

// Two looks at a sandbox's CPU time: its share is told of the time between them.
class CpuWindow {
 public:
  struct Share {
    double percent = 0;  // 100: one CPU
    double over_ms = 0;
  };
  // `born`: when it had used nothing. Of the time since the last look but one, when the last was
  // less than kMinStatsWindow ago; many may look without making each other's windows short.
  Share Look(uint64_t usage_us, SteadyTime now, SteadyTime born);

 private:
  struct Sample {
    SteadyTime at;
    uint64_t usage_us = 0;
  };
  Sample base_, latest_;
  bool looked_ = false;
};

// The API's form. Reads some ten files of the kernel's; `entry` runs. `network`: its counters, or
// null.
oci::Json StatsJson(SandboxEntry& entry, oci::Json network);

}  // namespace hutch::daemon
