// Devices and links in a container's /dev.
#pragma once

#include "base/result.h"
#include "rootfs/container_mounts.h"

namespace hutch::rootfs {

// The specification's default devices and links, then linux.devices. Nothing when /dev is a bind
// mount: it is somebody else's. In a user namespace nodes of the host are bound.
Status MakeContainerDevices(PreparedContainerMounts& mounts);

}  // namespace hutch::rootfs
