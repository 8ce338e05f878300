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
#include "seccomp/filters.h"

namespace hutch::runtime {

struct CapabilityMasks {  // bit n = capability n
  uint64_t bounding = 0, effective = 0, inheritable = 0, permitted = 0, ambient = 0;
};

struct PlannedRlimit {
  int resource;
  rlimit64 limit;
};

struct Confinement {
  const oci::ContainerProcess* process = nullptr;  // borrowed
  CapabilityMasks capabilities;
  std::vector<PlannedRlimit> rlimits;
  seccomp::Program filter;  // empty: none
  uint32_t filter_flags = 0;
  bool filter_notifies = false;  // SECCOMP_FILTER_FLAG_NEW_LISTENER
  CapabilityMasks now = {};      // in the child: what BecomeUser left
};

// Pure. kInvalidArgument with the JSON path for names and values that mean nothing.
Result<Confinement> PlanConfinement(const oci::ContainerProcess& process);

// For another process, by the parent, whose privilege may be the greater one: rlimits, OOM score,
// scheduler, I/O priority. What the kernel refuses is an error.
Status ConfineFromOutside(const Confinement& plan, pid_t pid);

// The rest, in the process itself, in this order.
Status SetLabels(const Confinement& plan);  // AppArmor and SELinux, for the exec; /proc is needed
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
