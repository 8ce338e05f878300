// Files into running sandboxes and out of them, with each contestant's own command.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/measure.h"

namespace hutch::tools {

// Four results: a file of plan.copy_bytes in and out, a directory of plan.copy_files in and out.
// Makes both below setup.work, copies each in, out again under another name, compares the digests,
// and takes the copies away, plan.copy_runs times with every contestant in turn. A contestant that
// brings back something else has that as its reason, and no samples.
Result<std::vector<CaseResult>> MeasureCopies(const Setup& setup, const Plan& plan,
                                              std::vector<Entrant>* entrants);

// What a daemon takes in memory, from /proc.
struct DaemonMemory {
  uint64_t before_kib = 0, after_kib = 0;  // resident
  uint64_t peak_kib = 0;                   // the most since ResetPeak
};
// "VmRSS" or "VmHWM" of a process, KiB; 0 when it is not there.
uint64_t MemoryOf(int pid, const char* field);
// Makes VmHWM begin anew; needs root.
Status ResetPeak(int pid);

}  // namespace hutch::tools
