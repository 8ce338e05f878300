// A sandbox's volumes: their mounts for its creation, and again after a restart.
#pragma once

#include <memory>
#include <vector>

#include "daemon/sandbox_record.h"
#include "daemon/volume_request.h"
#include "rootfs/volumes.h"
#include "runtime/runtime.h"

namespace hutch::daemon {

using HeldVolumes = std::vector<std::shared_ptr<rootfs::VolumeMount>>;

// Puts the mounts into the request; whoever holds the result keeps the volumes in use. They should
// be mounted by now (VolumeKeeping::Prepare): else this waits for the disk. kNotFound with the
// field. `volumes` may be nullptr: kUnsupported where there is one to share.
Result<HeldVolumes> ShareVolumes(rootfs::Volumes* volumes, const std::vector<VolumeFields>& wanted,
                                 runtime::CreateRequest* request);

// Of a sandbox that outlived its daemon; what fails is logged: its own mounts are not touched.
HeldVolumes TakeUpVolumes(rootfs::Volumes* volumes, const SandboxFacts& facts);

// "volumes[2].name"
std::string VolumeField(size_t index);

}  // namespace hutch::daemon
