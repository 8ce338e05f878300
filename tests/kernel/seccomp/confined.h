// Children under the default filters, for kernel tests.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "seccomp/filters.h"

namespace hutch::seccomp {

enum class Layers {
  kAgent,
  kTenant
};  // the first filter, or both as a process of a tenant has them

// Installs them on the calling thread, with no-new-privileges. False if the kernel refuses.
bool Install(const FilterSet& filters, Layers layers);

// The wait status of a forked child that runs `body` and exits with its value; killed after 20
// seconds.
int InChild(const std::function<int()>& body);
// The same under the default filters; exit code 125 if they cannot be installed.
int Confined(Layers layers, const std::function<int()>& body);

struct Probe {
  uint32_t number;
  uint64_t args[3] = {};
};
inline constexpr int kLetThrough = 0;
inline constexpr int kNotAsked = -1;
// What the installed filters make of each call, as the kernel applies them, without running any:
// kLetThrough, or the errno that the caller saw. An outermost filter hands every call that the
// others allow to a supervisor, which answers in the kernel's place; so even exit and reboot can be
// asked.
std::vector<int> Ask(Layers layers, const std::vector<Probe>& probes);

// errno of a raw system call, or 0.
int ErrnoOf(long number, long a0 = 0, long a1 = 0, long a2 = 0, long a3 = 0, long a4 = 0);

}  // namespace hutch::seccomp
