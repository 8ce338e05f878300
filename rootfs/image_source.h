// Where an image comes from, once it is a directory on disk: an OCI image layout, or what a
// docker-archive holds.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/image_spec.h"

namespace hutch::rootfs {

struct LayerSource {
  std::string diff_id;
  std::string digest;  // of the packed bytes; empty when the source does not say (docker-archive)
  uint64_t size = 0;   // likewise
  std::string file;    // below the source's root
};

struct ImageSource {
  std::string reference;  // what the source calls it; may be empty
  std::string manifest;   // exact bytes; empty for a docker-archive
  std::string manifest_digest;
  std::string config;  // exact bytes, digest verified
  std::string config_digest;
  oci::ImageConfig parsed_config;
  std::vector<LayerSource> layers;
};

// "sha256:<hex>" of bytes.
std::string Sha256(std::string_view bytes);

// Reads index, manifest and configuration below root_fd, verifying digests over the exact bytes; of
// a multi-platform index takes this machine's. Links are followed inside only. kCorrupt names the
// digest; kNotFound when it is neither kind of image.
Result<ImageSource> ReadImageSource(int root_fd);
// Opens a layer's file of it, a regular file.
Result<UniqueFd> OpenSourceFile(int root_fd, const std::string& file);

// "name:tag" with a default tag. kInvalidArgument for anything but lower-case names, digits and
// ._-/:@.
Result<std::string> NormalReference(const std::string& text);

}  // namespace hutch::rootfs
