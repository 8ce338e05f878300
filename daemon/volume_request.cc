#include "daemon/volume_request.h"

#include "base/text.h"
#include "daemon/create_request.h"
#include "rootfs/limits.h"
#include "rootfs/volumes.h"
#include "runtime/agent_protocol.h"

namespace hutch::daemon {
namespace {

using oci::Json;

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

bool Inside(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory + "/");
}

Result<VolumeFields> ParseVolume(const Json& json, const std::string& field) {
  VolumeFields volume;
  RETURN_IF_ERROR(oci::ObjectReader(json, field)
                      .String("name", &volume.name, 1024)
                      .String("target", &volume.target)
                      .Bool("readonly", &volume.readonly)
                      .Uint("size_bytes", &volume.size_bytes, 0, rootfs::kMaxVolumeBytes)
                      .Done(oci::ObjectReader::Unknown::kRefuse));
  if (!rootfs::Volumes::IsName(volume.name))
    return Invalid("must be [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}", field + ".name");
  if (volume.size_bytes != 0 && volume.size_bytes < rootfs::kMinVolumeBytes)
    return Invalid("must be at least " + std::to_string(rootfs::kMinVolumeBytes),
                   field + ".size_bytes");
  ASSIGN_OR_RETURN(volume.target, NormalDirectory(volume.target, field + ".target"));
  return volume;
}

}  // namespace

Result<std::vector<VolumeFields>> ParseVolumes(const Json& list, const std::string& field) {
  if (!list.is_array()) return Invalid("must be an array", field);
  if (list.size() > runtime::kMaxVolumes)
    return Error{.code = Code::kLimit,
                 .what = "more than " + std::to_string(runtime::kMaxVolumes) + " volumes",
                 .field = field};
  std::vector<VolumeFields> volumes;
  for (const Json& json : list) {
    const std::string at = field + "[" + std::to_string(volumes.size()) + "]";
    ASSIGN_OR_RETURN(VolumeFields volume, ParseVolume(json, at));
    for (const VolumeFields& other : volumes)
      if (Inside(volume.target, other.target) || Inside(other.target, volume.target))
        return Invalid("is at, in or around the target of volume \"" + other.name + "\"",
                       at + ".target");
    volumes.push_back(std::move(volume));
  }
  return volumes;
}

Json VolumesJson(const std::vector<VolumeFields>& volumes) {
  Json list = Json::array();
  for (const VolumeFields& volume : volumes) {
    Json json = {{"name", volume.name}, {"target", volume.target}, {"readonly", volume.readonly}};
    if (volume.size_bytes != 0) json["size_bytes"] = volume.size_bytes;
    list.push_back(std::move(json));
  }
  return list;
}

Result<VolumeOwner> ParseVolumeOwner(const std::string& text) {
  VolumeOwner owner;
  if (text.empty()) return owner;
  const size_t colon = text.find(':');
  const auto uid = ParseUint(text.substr(0, colon), rootfs::kMaxOwnerId);
  const auto gid =
      colon == std::string::npos ? uid : ParseUint(text.substr(colon + 1), rootfs::kMaxOwnerId);
  if (!uid || !gid) return Invalid("must be UID or UID:GID, up to 65535", "owner");
  return VolumeOwner{static_cast<uint32_t>(*uid), static_cast<uint32_t>(*gid)};
}

}  // namespace hutch::daemon
