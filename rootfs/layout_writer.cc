#include "rootfs/layout_writer.h"

#include <fcntl.h>

#include <cstdio>

#include "base/file.h"
#include "oci/json.h"
#include "rootfs/digest.h"

namespace hutch::rootfs {
namespace {

#if defined(__x86_64__)
constexpr char kArchitecture[] = "amd64";
#elif defined(__aarch64__)
constexpr char kArchitecture[] = "arm64";
#endif

}  // namespace

Status WriteLayout(const LayoutImage& image, const std::string& layer_path,
                   const std::string& layout_dir) {
  const std::string blobs = layout_dir + "/blobs/sha256";
  RETURN_IF_ERROR(MakeDirectories(blobs, 0700));
  uint64_t layer_size = 0;
  ASSIGN_OR_RETURN(UniqueFd layer_file, Open(layer_path, O_RDONLY));
  ASSIGN_OR_RETURN(const std::string diff_id, DigestOfFile(layer_file.get(), &layer_size));
  const auto blob_path = [&](const std::string& digest) { return blobs + "/" + digest.substr(7); };
  if (::rename(layer_path.c_str(), blob_path(diff_id).c_str()) != 0)
    return SysError(errno, "rename " + layer_path);
  const auto put = [&](const oci::Json& json, const char* type, oci::Json* descriptor) {
    const std::string bytes = oci::PrintJson(json);
    *descriptor = {{"mediaType", type}, {"digest", DigestOf(bytes)}, {"size", bytes.size()}};
    return WriteFileAtomic(blob_path(DigestOf(bytes)), bytes, Durability::kMemory);
  };
  oci::Json config, manifest;
  RETURN_IF_ERROR(put({{"created", image.created},
                       {"architecture", kArchitecture},
                       {"os", "linux"},
                       {"config",
                        {{"Env", image.env},
                         {"Cmd", image.cmd},
                         {"User", image.user},
                         {"WorkingDir", image.working_dir},
                         {"Labels",
                          {{"org.opencontainers.image.title", image.name},
                           {"org.opencontainers.image.description", image.description}}}}},
                       {"rootfs", {{"type", "layers"}, {"diff_ids", {diff_id}}}}},
                      "application/vnd.oci.image.config.v1+json", &config));
  const oci::Json layer = {{"mediaType", "application/vnd.oci.image.layer.v1.tar"},
                           {"digest", diff_id},
                           {"size", layer_size}};
  RETURN_IF_ERROR(put({{"schemaVersion", 2},
                       {"mediaType", "application/vnd.oci.image.manifest.v1+json"},
                       {"config", config},
                       {"layers", oci::Json::array({layer})}},
                      "application/vnd.oci.image.manifest.v1+json", &manifest));
  manifest["annotations"] = {{"org.opencontainers.image.ref.name", image.name}};
  RETURN_IF_ERROR(WriteFileAtomic(
      layout_dir + "/index.json",
      oci::PrintJson({{"schemaVersion", 2}, {"manifests", oci::Json::array({manifest})}}),
      Durability::kMemory));
  return WriteFileAtomic(layout_dir + "/oci-layout", "{\"imageLayoutVersion\":\"1.0.0\"}",
                         Durability::kMemory);
}

}  // namespace hutch::rootfs
