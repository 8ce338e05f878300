// What is to be imported, read from its files: an OCI image layout or a docker-archive.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "oci/image_spec.h"
#include "oci/json.h"
#include "rootfs/source_files.h"

namespace hutch::rootfs {

struct LayerSource {
  std::string diff_id;
  std::string digest;  // of the packed bytes; empty when the source does not say (docker-archive)
  uint64_t size = 0;   // likewise
  std::string file;    // in the source
};

struct ImageSource {
  std::string reference;  // what the source calls it, normal; may be empty
  std::string manifest;   // exact bytes; empty for a docker-archive
  std::string manifest_digest;
  std::string config;  // exact bytes, digest verified
  std::string config_digest;
  oci::ImageConfig parsed_config;
  std::vector<LayerSource> layers;  // lowest first, at least one
};

// Reads index, manifest and configuration, verifying digests over the exact bytes; of a
// multi-platform index takes this machine's, of several images the one called `reference`. kCorrupt
// names the digest; kNotFound when it is neither kind of image or there is none for this machine;
// kInvalidArgument for several images and no name that tells which; kUnsupported.
Result<ImageSource> ReadImageSource(const SourceFiles& files, const std::string& reference);

// A document by its descriptor: exactly the bytes whose size and digest it names.
enum class DocumentKind { kManifest, kConfig };  // kManifest: or an index
using DocumentReader =
    std::function<Result<std::string>(const oci::Descriptor& descriptor, DocumentKind kind)>;

bool IsIndexType(const std::string& media_type);
// From an index, over further ones that `read` gives, to the descriptor of this machine's manifest.
// `reference`: as for ReadImageSource. Errors as there.
Result<oci::Descriptor> ChooseManifest(std::string index, const std::string& reference,
                                       const DocumentReader& read);
// The image of a manifest (its exact bytes, verified), whose configuration `read` gives. The files
// of its layers are "blobs/sha256/<hex>". Errors as ReadImageSource.
Result<ImageSource> ReadManifest(const oci::Descriptor& descriptor, std::string manifest,
                                 const DocumentReader& read);

// The manifest of an image that came without one, so that it has an id: the same image gives the
// same bytes. Every layer's digest and size must be known by then.
std::string SyntheticManifest(const ImageSource& source);
// A manifest of its configuration and of these layers' descriptors.
std::string ManifestOf(const ImageSource& source, oci::Json layers);

// "name:tag" with a default tag, or "name[:tag]@sha256:<hex>". kInvalidArgument for anything but
// letters, digits and ._-/: in their places.
Result<std::string> NormalReference(const std::string& text);

}  // namespace hutch::rootfs
