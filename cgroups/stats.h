// What the kernel counted for one group. Absent where the kernel or the mode does not know it.
#pragma once

#include <cstdint>
#include <optional>

namespace hutch::cgroups {

struct MemoryEvents {
  uint64_t oom_kill = 0;  // > 0: processes were killed because a memory limit was hit; not a count
  uint64_t oom = 0;       // v1: the same number as oom_kill
  uint64_t limit_hits = 0;  // memory.events max; v1 failcnt, which Linux 6.18 leaves at 0
};

struct Stats {
  std::optional<uint64_t> memory_current_bytes, memory_peak_bytes;
  std::optional<uint64_t> cpu_usage_us, cpu_user_us, cpu_system_us, throttled_us;
  std::optional<uint64_t> pids_current, pids_peak;
  std::optional<uint64_t> io_read_bytes, io_write_bytes;
  MemoryEvents memory_events;
  uint64_t pids_limit_hits = 0;  // forks refused (pids.events max)
};

// The two that say why a process may have ended: few files, for every command's end.
struct Events {
  uint64_t oom_kills = 0;  // as MemoryEvents::oom_kill
  uint64_t pids_limit_hits = 0;
};

}  // namespace hutch::cgroups
