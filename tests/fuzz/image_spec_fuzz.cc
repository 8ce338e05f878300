// The documents of an image, and the unpacker's report: whatever the bytes, an answer.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "oci/image_spec.h"
#include "rootfs/image_source.h"
#include "rootfs/unpack_process.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = hutch::oci::ParseManifest(text);
  const auto index = hutch::oci::ParseIndex(text);
  // The same bytes must not be both.
  if (manifest.has_value() && index.has_value()) std::abort();
  if (manifest.has_value())
    for (const auto& layer : manifest->layers)
      if (!hutch::oci::ValidateDigest(layer.digest)) std::abort();
  hutch::IgnoreError(hutch::oci::ParseImageConfig(text), "any answer is right");
  hutch::IgnoreError(hutch::rootfs::ParseUnpackReport(text), "any answer is right");
  const auto name = hutch::rootfs::NormalReference(std::string(text));
  if (name.has_value() && *hutch::rootfs::NormalReference(*name) != *name) std::abort();
  return 0;
}
