#include "rootfs/media_types.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace hutch::rootfs {
namespace {

constexpr std::string_view kLayerTypes[] = {
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
};
constexpr std::string_view kConfigTypes[] = {
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
};
constexpr size_t kShownBytes = 120;

struct ReasonRow {
  std::string_view part;  // of the type
  const char* why;
};
constexpr ReasonRow kReasons[] = {
    {"nondistributable", "a layer that may not be distributed with its image"},
    {"foreign", "a layer that may not be distributed with its image"},
    {"encrypted", "an encrypted layer"},
    {"", "not a layer of files"},
};

bool IsOneOf(const std::string& type, std::span<const std::string_view> known) {
  return type.empty() || std::find(known.begin(), known.end(), type) != known.end();
}

Error Refuse(const char* part, const oci::Descriptor& descriptor, const std::string& why) {
  return Error{.code = Code::kUnsupported,
               .what = part + descriptor.digest + ": " + why + ": type \"" +
                       descriptor.media_type.substr(0, kShownBytes) + "\""};
}

}  // namespace

Status CheckMediaTypes(const oci::Manifest& manifest) {
  if (!IsOneOf(manifest.config.media_type, kConfigTypes))
    return Refuse("configuration ", manifest.config, "not an image but something else");
  for (const oci::Descriptor& layer : manifest.layers) {
    if (IsOneOf(layer.media_type, kLayerTypes)) continue;
    for (const ReasonRow& row : kReasons)
      if (layer.media_type.find(row.part) != std::string::npos)
        return Refuse("layer ", layer, row.why);
  }
  return OkStatus();
}

}  // namespace hutch::rootfs
