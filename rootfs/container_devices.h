// Devices and links in a container's /dev.
#pragma once

#include "base/result.h"
#include "rootfs/container_mounts.h"

namespace hutch::rootfs {

// In the parent, for a container in a user namespace, which may make no nodes: they stand in a
// detached tmpfs, by their number, with the owners and modes that are asked for. Not valid where
// the caller may make none either (EPERM), or nobody needs them. kInvalidArgument for an owner that
// is not mapped. Needs CAP_SYS_ADMIN.
Result<UniqueFd> MakeDeviceNodes(const oci::ContainerConfig& config);

// In the child, before the root is attached: those nodes one by one, for MakeContainerDevices.
Status TakeDeviceNodes(PreparedContainerMounts& mounts);

// The specification's default devices and links, then linux.devices. Nothing when /dev is a bind
// mount: it is somebody else's. In a user namespace the nodes taken before, or the host's own
// where there are none, are bound, so that nobody inside can change them.
Status MakeContainerDevices(PreparedContainerMounts& mounts);

}  // namespace hutch::rootfs
