// From an OCI seccomp profile to BPF programs, ready for seccomp(2) in the child: libseccomp runs
// here, in the parent, once per profile; the child only loads bytes.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "oci/runtime_spec.h"

namespace hutch::seccomp {

using Program = std::vector<sock_filter>;  // at most BPF_MAXINSNS instructions

// Two layers. PID 1 of a sandbox runs under `agent`; each process it starts inherits that and adds
// `process`. What a tenant may do is therefore the intersection. For the default profile `agent` is
// the whole profile plus clone3 (which the agent needs for CLONE_INTO_CGROUP), and `process` is a
// handful of instructions that turn clone3 into ENOSYS: loading it costs microseconds.
struct FilterSet {
  Program agent;
  Program process;
  uint32_t process_flags = 0;  // SECCOMP_FILTER_FLAG_* for loading `process`; `agent` takes none
};
using SharedFilters = std::shared_ptr<const FilterSet>;

// The default profile (docs/seccomp.md). Compiled once, cached.
Result<SharedFilters> DefaultFilters();

// A profile of the caller's. `agent` is then the smallest filter that keeps the agent from what no
// sandbox may do, `process` the whole profile. A runtime without an agent (hutch-oci) loads
// `process` alone. `capabilities` ("CAP_SYS_ADMIN") decides rules of Docker's format that are tied
// to capabilities. Programs of other architectures are always killed, even those the profile lists.
// Cached by content. kInvalidArgument names the rule; kUnsupported for actions, arches or flags
// that we do not know; kLimit for a profile too large to be one filter.
Result<SharedFilters> CompileFilters(const oci::LinuxSeccomp& profile,
                                     const std::vector<std::string>& capabilities = {});

}  // namespace hutch::seccomp
