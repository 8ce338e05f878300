// What a request says of volumes. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::daemon {

// One of POST /v1/sandboxes.
struct VolumeFields {
  std::string name;
  std::string target;  // as NormalDirectory() makes it
  bool readonly = false;
  uint64_t size_bytes = 0;  // made with this size where there is none; 0: it must be there
};

// kInvalidArgument with the field: an unknown member, a bad name, a target that is taken or inside
// another one's; kLimit past runtime::kMaxVolumes.
Result<std::vector<VolumeFields>> ParseVolumes(const oci::Json& list, const std::string& field);
oci::Json VolumesJson(const std::vector<VolumeFields>& volumes);

// "1000:1000", or "1000" for both: ids as seen inside.
struct VolumeOwner {
  uint32_t uid = 1000, gid = 1000;
};
Result<VolumeOwner> ParseVolumeOwner(const std::string& text);

}  // namespace hutch::daemon
