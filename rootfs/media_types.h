// What the parts of an image may be: every layer type of OCI's and Docker's that is a tar, plain,
// gzip or zstd. How a layer is really compressed its bytes tell; its type is believed in nothing
// but what must not be unpacked at all.
#pragma once

#include "base/result.h"
#include "oci/image_spec.h"

namespace hutch::rootfs {

// kUnsupported names the digest and the type: layers that are encrypted, may not be distributed, or
// are no file systems; a configuration that is no image's (a chart, a signature, another artifact).
// A missing type is fine: digests are verified whatever it is.
Status CheckMediaTypes(const oci::Manifest& manifest);

}  // namespace hutch::rootfs
