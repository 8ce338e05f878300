// Pressure stall information: how long tasks waited for a resource
// (Documentation/accounting/psi.rst).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hutch::cgroups {

struct PressureLine {
  double avg10 = 0, avg60 = 0, avg300 = 0;  // percent of the time
  uint64_t total_us = 0;
};
struct Pressure {
  PressureLine some;                 // at least one task waited
  std::optional<PressureLine> full;  // all of them did; the host's cpu has none before Linux 5.13
};

// The text of a pressure file; nullopt when it is none.
std::optional<Pressure> ParsePressure(std::string_view text);

struct Pressures {
  std::optional<Pressure> cpu, memory, io;
};

}  // namespace hutch::cgroups
