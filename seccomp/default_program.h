// The default profile as BPF: our own emitter, because the filter is loaded at every create. It
// merges equal neighbours among the numbers and searches the ranges; libseccomp's tree has a leaf
// per call and takes more than twice as long to load (docs/seccomp.md). Tests compare the two.
#pragma once

#include "base/result.h"
#include "seccomp/filters.h"

namespace hutch::seccomp {

// FilterSet::agent and FilterSet::process of the default profile. kInternal for a faulty table.
Result<Program> BuildAgentProgram();
Program BuildProcessProgram();

// FilterSet::agent beside a profile of the caller's: everything but the groups with Reach::kHost,
// other architectures and the x32 ABI.
Result<Program> BuildHostGuardProgram();

}  // namespace hutch::seccomp
