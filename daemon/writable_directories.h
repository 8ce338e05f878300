// Where an image's volumes and a template's mounts go: more tmpfs mounts in a sandbox's spec, and
// the mount points that its image does not have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/create_request.h"
#include "oci/image_spec.h"
#include "oci/runtime_spec.h"
#include "rootfs/lower_layers.h"

namespace hutch::daemon {

// A directory of the layer that is put over the image's; owner as the image's layers have it.
struct LayerDirectory {
  std::string path;  // absolute
  uint32_t mode = 0755, uid = 0, gid = 0;
};

// The image's Volumes, each empty and the sandbox's user's, then `asked`. One of a path that is
// there already is left out. kInvalidArgument for a path that NormalDirectory() refuses, kLimit for
// more than kMaxWritableDirectories; field "image" for what the image asks for.
Result<std::vector<WritableDirectory>> CollectDirectories(
    const oci::ImageConfig& image, const std::vector<WritableDirectory>& asked);

// Puts the sandbox's volumes among them; what is of the image or the template at such a place or
// below it is left out.
void AddVolumeTargets(const std::vector<VolumeFields>& volumes,
                      std::vector<WritableDirectory>* directories);

// Adds a mount to `spec` for each directory, and returns what `image` lacks for them, parents
// first; an existing parent is repeated with its owner and mode, so that the layer changes neither.
// What is mounted already stays as it is, unless a volume takes its place. kInvalidArgument where a
// file or a link of the image is in the way, or where a mount would hide another.
Result<std::vector<LayerDirectory>> PlanDirectories(
    const std::vector<WritableDirectory>& directories, const rootfs::LowerLayers& image,
    oci::Spec& spec);

}  // namespace hutch::daemon
