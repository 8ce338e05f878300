// Bounds that every sandbox gets whatever it was asked to be. docs/limits.md names their tests.
#pragma once

#include <cstdint>

namespace hutch::cgroups {

// agent/ holds PID 1 alone. Its memory is small, but the kernel memory of a clone (task, stack, the
// copied page tables) is charged to the parent: room for a thousand processes it started.
inline constexpr uint64_t kAgentMemoryBytes = 64 * 1024 * 1024;
inline constexpr uint64_t kAgentPids = 4;  // it has one task; clones are counted where they go

// Below <sandbox>: agent, work, and one group for each process of work.
inline constexpr uint64_t kMaxGroupDepth = 2;
inline constexpr uint64_t kMaxSandboxGroups = 1088;  // more than an agent remembers processes

}  // namespace hutch::cgroups
