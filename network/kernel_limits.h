// Bounds of the kernel's side of the network; docs/limits.md has them with their tests.
#pragma once

#include <cstdint>

namespace hutch::network {

// Caught connections (and DNS questions) of one sandbox that the kernel tracks at once.
inline constexpr uint32_t kMaxCaughtConnections = 1024;
inline constexpr int kListenBacklog = 256;            // connections not yet accepted, per listener
inline constexpr uint32_t kMaxListeningPorts = 1024;  // that are told of one sandbox

}  // namespace hutch::network
