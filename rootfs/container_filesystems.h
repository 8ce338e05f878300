// File systems of a container's own: proc, tmpfs, cgroup and whatever else the kernel can mount.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/container_config.h"
#include "rootfs/container_mount_options.h"
#include "rootfs/container_mounts.h"
#include "rootfs/container_target.h"

namespace hutch::rootfs {

// "error mounting "proc" to rootfs at "/proc": ...": the words engines know.
Error MountError(int sys, const oci::ContainerMount& mount);

// A detached mount of a new file system. kKernel with what the file system says about it.
Result<UniqueFd> NewFilesystem(const oci::ContainerMount& mount, const std::string& type,
                               const ContainerMountOptions& options);

// linux.mountLabel, for what is in a new file system of this type; one of its own options counts
// more. Nothing for types that SELinux labels itself.
void AddMountLabel(const std::string& label, const std::string& type,
                   ContainerMountOptions* options);

// mount_setattr on a mount that is detached or ours. `propagation` 0: as it is.
struct MountChange {
  uint64_t set = 0, clear = 0, propagation = 0;
  bool all = false;  // and everything below it
};
Status ChangeMount(int tree_fd, const MountChange& change, const oci::ContainerMount& mount);

// Resolves the destination in the root, makes it if it is missing, and attaches the mount there.
// kForbidden for a destination in /proc that is not one of the few harmless files (CVE-2019-16884).
Status AttachMount(PreparedContainerMounts& m, const oci::ContainerMount& mount, int tree_fd,
                   LastLink last = LastLink::kFollow);

// The host's sysfs, read-only: for a container in a user namespace without a network of its own,
// which may mount none. Without what the host mounts in it, unless an ordinary user asks, who may
// not take that away. kForbidden when /sys is no sysfs.
Result<UniqueFd> HostSysfs(const oci::ContainerMount& mount);

// "cgroup" and "cgroup2": the container's own group and what is below. Without a cgroup namespace
// it is bound from the host's tree, and only it (CVE-2023-25809). On a hybrid host a tmpfs with one
// directory for each hierarchy. Words that no mount knows are for the kernel to refuse, or
// kInvalidArgument where it is not asked.
Status MountCgroups(PreparedContainerMounts& m, const oci::ContainerMount& mount,
                    const ContainerMountOptions& options);

}  // namespace hutch::rootfs
