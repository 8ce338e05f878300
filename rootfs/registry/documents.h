// Manifests, indexes and configurations from a registry: nothing is parsed before its digest, and
// what kind of document it is, were settled over the exact bytes.
#pragma once

#include <string>

#include "oci/image_spec.h"
#include "rootfs/image_source.h"
#include "rootfs/registry/session.h"

namespace hutch::rootfs::registry {

struct Document {
  oci::Descriptor descriptor;  // digest computed over `text`, the media type both sides name
  std::string text;
};

// The document the reference names, by its digest where it has one. From the first endpoint that
// has it. kNotFound, kForbidden, kUnavailable, kCorrupt (names the digest), kUnsupported (schema
// 1).
Result<Document> FetchNamed(Session& session);
// One by its descriptor. The same.
Result<std::string> FetchDocument(Session& session, const oci::Descriptor& descriptor,
                                  DocumentKind kind);

// The media type of a manifest or index: what the document calls itself, which the Content-Type
// must be too. kCorrupt when they differ, kUnsupported for anything that is neither.
Result<std::string> MediaTypeOf(const std::string& text, const std::string& content_type);

}  // namespace hutch::rootfs::registry
