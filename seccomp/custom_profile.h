// A profile of the caller's to one BPF program, through libseccomp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "oci/runtime_spec.h"
#include "seccomp/conditions.h"
#include "seccomp/filters.h"

namespace hutch::seccomp {

// Names times conditions of one profile: libseccomp's time grows with them.
inline constexpr size_t kMaxProfileRules = 4096;

// Errors as CompileFilters. The rules of the runtime-spec and, where it is silent, what runc does:
// conditions on one argument given twice are alternatives; a rule with the default action says
// nothing; a profile that fails with an errno by default answers ENOSYS for calls newer than every
// call it names. A name that no architecture knows is an error where leaving it out would allow the
// call.
Result<Program> CompileProfile(const oci::LinuxSeccomp& profile, const Surroundings& where);

// SECCOMP_FILTER_FLAG_* for the profile's flags. TSYNC is left out: the loader has one thread.
Result<uint32_t> LoadFlags(const oci::LinuxSeccomp& profile);

// What a profile may name. Architectures: only those that get rules.
struct ProfileWords {
  std::vector<std::string> actions, operators, architectures, flags;
};
ProfileWords KnownProfileWords();

}  // namespace hutch::seccomp
