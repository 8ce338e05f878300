// Numbers of the cgroup tree. docs/limits.md has them with their tests.
#pragma once

#include <cstdint>

namespace hutch::cgroups {

// memory.max of agent/, cgroup v2. PID 1 itself is small, but the kernel memory of what it clones
// (task, stack, page tables until the exec) stays charged to it: room for a thousand processes.
inline constexpr uint64_t kAgentMemoryBytes = 64u << 20;
inline constexpr uint64_t kAgentPids = 4;  // pids.max of agent/: PID 1 and what is being cloned
inline constexpr uint64_t kMinMemoryBytes =
    4u << 20;  // the least limits.memory_bytes: a shell still starts
inline constexpr uint64_t kMinCpuQuotaUs = 1000;          // the kernel refuses less
inline constexpr uint64_t kMaxSandboxDescendants = 2048;  // cgroup.max.descendants of one sandbox
inline constexpr uint64_t kMaxSandboxDepth = 2;           // cgroup.max.depth: work/<process>

}  // namespace hutch::cgroups
