// linux.sysctl of config.json, and other writes to the container's procfs.
#pragma once

#include <string>

#include "base/result.h"
#include "rootfs/container_mounts.h"

namespace hutch::rootfs {

// kInvalidArgument for a key that is not of a namespace of the container's own (it would be the
// host's), that is no plain key, or whose value has more than one line.
Status CheckSysctl(const std::string& name, const std::string& value,
                   const ContainerMountSurroundings& where);

// In the container's namespaces. proc_fd is a procfs's root, verified; no link, no other mount and
// no file of another file system is written (CVE-2025-52881).
Status WriteSysctl(int proc_fd, const std::string& name, const std::string& value);

// The root of the procfs that root_fd's /proc is; kForbidden when it is something else or a link.
Result<UniqueFd> OpenVerifiedProc(int root_fd);

// "apparmor/exec" and the like: the caller's own, whichever pid it has in that procfs, and likewise
// nothing else.
Status WriteOwnAttribute(int proc_fd, const std::string& name, const std::string& value);

}  // namespace hutch::rootfs
