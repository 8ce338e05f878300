// From the mounts of a container spec to the flat list the agent carries out. Pure: nothing in the
// kernel is touched.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "oci/runtime_spec.h"
#include "rootfs/mount_plan.h"
#include "rootfs/overlay.h"

namespace hutch::rootfs {

struct MountPlan {
  std::vector<MountOp> ops;
  std::string strings;  // every string NUL-terminated
  std::vector<ScratchDirectory> scratch_directories;
  bool default_proc = false;  // the ready-made procfs may be used
  bool live_proc = false;     // kProcFilesDirectory of the scratch file system has its files
  bool root_upper = false;    // the root's overlay needs an upper: it is writable, or a part of it
};

// Descriptor numbers of kAttach ops: the caller's order of descriptors.
struct AttachSlots {
  uint8_t dev;
  uint8_t first_volume = 0, volumes = 0;  // as many from there on
};

// Plans /dev first, then spec.mounts in order, then masked and read-only paths. kInvalidArgument
// for a destination that is not absolute and normal, an unknown option, or a mount over /dev;
// kUnsupported for an unknown type; kLimit past kMaxMountOps.
Result<MountPlan> PlanMounts(const oci::Spec& spec, const AttachSlots& slots);

// The types PlanMounts knows, for documents and their test.
std::vector<std::string> MountTypes();

}  // namespace hutch::rootfs
