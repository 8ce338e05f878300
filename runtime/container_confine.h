// What a container's process gives up between the clone and its program: prepared before the clone
// as one plan, the same for the first process and for those of exec.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/container_config.h"
#include "runtime/container_scheduling.h"
#include "seccomp/filters.h"

namespace hutch::runtime {

struct CapabilityMasks {  // bit n = capability n
  uint64_t bounding = 0, effective = 0, inheritable = 0, permitted = 0, ambient = 0;
};

struct PlannedRlimit {
  uint32_t resource;
  rlimit64 limit;
};

struct Confinement {
  const oci::ContainerProcess* process = nullptr;  // borrowed
  CapabilityMasks capabilities;
  std::vector<PlannedRlimit> rlimits;
  Scheduling scheduling;
  std::string apparmor_profile, selinux_label;  // to be taken at the execve; empty: none
  seccomp::Program filter;                      // empty: none
  uint32_t filter_flags = 0;
  bool filter_notifies = false;  // SECCOMP_FILTER_FLAG_NEW_LISTENER
  bool keep_groups = false;      // the caller's supplementary groups stay
  CapabilityMasks now = {};      // in the child: what BecomeUser left
  // What is asked for and cannot be had, where the specification wants that to be no failure.
  std::vector<std::string> warnings;
};

// Where the process has its capabilities from: the caller's own, or all of them as the first one
// of a user namespace.
enum class CapabilitySource { kCaller, kUserNamespace };
// Looks at the host, changes nothing. kInvalidArgument and kUnsupported with the JSON path for
// names and values that mean nothing here.
Result<Confinement> PlanConfinement(const oci::ContainerProcess& process,
                                    const oci::ContainerLinux& linux_part, CapabilitySource source);

// For another process, by the parent, whose privilege may be the greater one. What the kernel
// refuses is an error. The OOM score: `process` is a pid or "self", and not hidden yet
// (PR_SET_DUMPABLE) unless the caller is root.
Status SetOomScore(const Confinement& plan, const std::string& process);
// Scheduler and I/O priority; and rlimits.
Status ConfineFromOutside(const Confinement& plan, pid_t pid);
Status LimitFromOutside(const Confinement& plan, pid_t pid);

// The rest, in the process itself, in this order.
Status SetLabels(
    const Confinement& plan);  // AppArmor and SELinux, for the exec; by the root's /proc
Status SetNoNewPrivileges(const Confinement& plan);
Status DropBoundingSet(const Confinement& plan);  // needs CAP_SETPCAP
// Groups, gid, uid, umask. Without no-new-privileges CAP_SYS_ADMIN is still permitted afterwards,
// though not in effect: the filter needs it.
Status BecomeUser(Confinement& plan);
// Whether the process is in it already, by a privilege that its user has not.
enum class WorkdirSoFar { kOther, kEntered };
// And proves that it is inside the root.
Status EnterWorkdir(const Confinement& plan, WorkdirSoFar so_far);
Status DropCapabilities(const Confinement& plan);
Status VerifyCapabilities(const Confinement& plan);
// Loads the filter. With filter_notifies *listener gets the descriptor.
Status LoadFilter(const Confinement& plan, UniqueFd* listener);

}  // namespace hutch::runtime
