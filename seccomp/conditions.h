// The `includes` and `excludes` of Docker's and podman's profile format.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "oci/runtime_spec.h"

namespace hutch::seccomp {

struct Surroundings {
  std::vector<std::string> capabilities;  // what the sandbox's processes may hold
  std::string architecture;               // Go's name: "amd64"
  std::string kernel_release;             // "6.1.0-18-amd64"
};
// This machine, with these capabilities.
Surroundings SurroundingsHere(const std::vector<std::string>& capabilities);

// Whether the rule takes effect there: it needs all of includes_caps, one of includes_arches and at
// least includes_min_kernel; any match of an excludes_ list turns it off. kInvalidArgument for a
// malformed kernel version.
Result<bool> RuleApplies(const oci::SeccompSyscall& rule, const Surroundings& where);

}  // namespace hutch::seccomp
