// An OCI bundle for runc and crun that asks for what hutch gives by itself.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::tools {

// config.json: user, pid, network, ipc, uts, mount and cgroup namespaces, no capabilities, no new
// privileges, a read-only root, /proc, /dev and /tmp. No terminal, no rlimits (raising them needs
// CAP_SYS_RESOURCE) and no seccomp profile: less work than hutch does.
oci::Json PlanBundleConfig(const std::string& rootfs, const std::vector<std::string>& argv);

// Writes config.json into a new directory.
Status MakeBundle(const std::string& directory, const std::string& rootfs,
                  const std::vector<std::string>& argv);

}  // namespace hutch::tools
