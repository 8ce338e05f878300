// Bounds of the kernel's side of the network; docs/limits.md has them with their tests.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hutch::network {

// Caught connections (and DNS questions) of one sandbox that the kernel tracks at once.
inline constexpr uint32_t kMaxCaughtConnections = 1024;
inline constexpr int kListenBacklog = 256;            // connections not yet accepted, per listener
inline constexpr uint32_t kMaxListeningPorts = 1024;  // that are told of one sandbox

// In mode "open", whatever a policy says: connections tracked at once, of one sandbox.
inline constexpr uint32_t kMaxOpenConnections = 4096;
inline constexpr uint32_t kMaxLeases = 1 << 20;   // sandboxes with mode "open"
inline constexpr size_t kMaxOpenedRanges = 4096;  // of addresses and ports, of one policy
inline constexpr size_t kMaxAliasBytes = 255;     // a sandbox's id as the alias of its link

}  // namespace hutch::network
