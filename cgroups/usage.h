// What a sandbox uses right now, for numbers shown inside it. Cheaper than Stats: three files.
#pragma once

#include <cstdint>

namespace hutch::cgroups {

struct Usage {
  uint64_t memory_bytes = 0;       // all that is charged
  uint64_t cache_bytes = 0;        // of that, file pages, shared memory among them
  uint64_t shared_bytes = 0;       // of that, tmpfs and shared memory, which nothing can reclaim
  uint64_t reclaimable_bytes = 0;  // kernel memory that can be reclaimed; 0 where it is not counted
  uint64_t cpu_user_us = 0, cpu_system_us = 0;
  uint64_t tasks = 0;
};

}  // namespace hutch::cgroups
