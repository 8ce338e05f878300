// Bounds on network policies, with units. docs/limits.md has them with their tests.
#pragma once

#include <cstddef>

namespace hutch::network {

inline constexpr size_t kMaxAllowRules = 1024;  // of one policy, those of presets included
inline constexpr size_t kMaxRulePorts = 32;     // ports and ranges of them in one rule
inline constexpr size_t kMaxRuleMethods = 16;
inline constexpr size_t kMaxRulePaths = 64;
inline constexpr size_t kMaxRulePathBytes = 1024;
inline constexpr size_t kMaxRuleOriginBytes = 320;  // how a rule was written
inline constexpr size_t kMaxHostBytes = 253;        // RFC 1035, 2.3.4, without the last dot
inline constexpr size_t kMaxHostLabelBytes = 63;
inline constexpr size_t kMaxPresets = 64;
inline constexpr size_t kMaxPresetsBytes = 1u << 20;  // of the file of presets
inline constexpr size_t kMaxJoins = 8;                // networks of one sandbox
inline constexpr size_t kMaxNetworkNameBytes = 63;    // of networks, presets and secrets

}  // namespace hutch::network
