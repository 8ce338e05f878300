// The steps of the agent and of a process by number, as failures name them. Usable after clone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hutch::runtime {

// Steps of the agent, in order: before the plan is known, then the plan. Names in kAgentStepNames.
enum class AgentStep : uint32_t {
  kOpenOomScore,
  kOpenClock,
  kJoinV1Cgroups,
  kAwaitMaps,
  kBecomeRoot,
  kSession,
  kKeyring,
  kHostname,
  kPropagation,
  kPrepareMounts,
  kDropBounding,
  kListen,
  kReadPlan,
  kRlimits,
  kClock,
  kMounts,
  kSealFds,
  kNoNewPrivileges,
  kDropCapabilities,
  kVerifyCapabilities,
  kSeccomp,
  kVerifySeccomp,
  kVerifyRoot,
  kCount,
};
inline constexpr const char* kAgentStepNames[] = {
    "open oom score",
    "open clock",
    "join v1 cgroups",
    "await id maps",
    "become root",
    "new session",
    "session keyring",
    "hostname",
    "mount propagation",
    "prepare mounts",
    "drop bounding set",
    "listen",
    "read plan",
    "rlimits",
    "clock",
    "mounts",
    "seal descriptors",
    "no new privileges",
    "drop capabilities",
    "verify capabilities",
    "seccomp filter",
    "verify seccomp",
    "verify root",
};
static_assert(sizeof kAgentStepNames / sizeof *kAgentStepNames ==
              static_cast<size_t>(AgentStep::kCount));

// Steps of a process between clone and exec.
enum class ProcessStep : uint32_t {
  kSignals,
  kAffinity,
  kStdio,
  kSession,
  kOpenFiles,
  kGroups,
  kUser,
  kVerifyUser,
  kWorkdir,
  kFilter,
  kSealFds,
  kExec,
  kCount,
};
inline constexpr const char* kProcessStepNames[] = {
    "reset signals",    "cpu affinity", "standard descriptors", "session", "open files",
    "groups",           "user",         "verify user",          "workdir", "seccomp filter",
    "seal descriptors", "exec",
};
static_assert(sizeof kProcessStepNames / sizeof *kProcessStepNames ==
              static_cast<size_t>(ProcessStep::kCount));

}  // namespace hutch::runtime
