// The default profile as data: groups of system calls and what becomes of them. docs/seccomp.md is
// its copy for readers (tested). A call in no group gets ENOSYS, and so does every number newer
// than us.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/result.h"

namespace hutch::seccomp {

enum class Verdict : uint8_t {
  kAllow,
  kEperm,        // known and refused: programs report "not permitted"
  kEnosys,       // hidden: programs take the path for kernels that lack the call
  kAgentOnly,    // allowed by FilterSet::agent, ENOSYS by FilterSet::process
  kClone,        // EPERM with any CLONE_NEW* flag
  kSocket,       // by family and protocol
  kIoctl,        // EPERM for the terminal requests that inject input or change the line discipline
  kPersonality,  // EPERM but for the execution domains of ordinary programs
};

// Whether a call reaches past every namespace: denied to PID 1 of a sandbox even under a caller's
// profile.
enum class Reach : uint8_t { kSandbox, kHost };

struct SyscallGroup {
  const char* name;
  Verdict verdict;
  Reach reach;
  const char* calls;  // names separated by one space
};

std::span<const SyscallGroup> DefaultProfile();

// "allow", "EPERM", "ENOSYS", "agent only", "checked": the word of docs/seccomp.md.
const char* VerdictName(Verdict verdict);

// What the profile says about each number of this machine's architecture; names that it lacks are
// left out. kInternal if a name is unknown or in two groups (a bug, found by tests).
Result<std::map<uint32_t, SyscallGroup>> ResolveDefaultProfile();

}  // namespace hutch::seccomp
