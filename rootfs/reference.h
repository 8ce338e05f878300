// Names of images: [HOST[:PORT]/]REPOSITORY[:TAG][@DIGEST], by the grammar of the distribution
// specification and Docker's reading of it: the first component is a host when it has a '.' or a
// ':', or is "localhost"; a repository of one component on Docker's own registry is in "library/".
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hutch::rootfs {

inline constexpr char kDefaultRegistry[] = "docker.io";

struct Reference {
  std::string host;        // "docker.io", "registry.example:5000"
  std::string repository;  // "library/python"
  std::string tag;         // empty only with a digest
  std::string digest;      // "sha256:<hex>", or empty

  // "host/repository:tag", "host/repository@sha256:..", "host/repository:tag@sha256:.."
  std::string ToString() const;
};

// "registry.example" or "registry.example:5000": labels of letters, digits, "-" and "_", so that it
// can stand in a path or a URL. IPv6 addresses have no form here.
bool IsRegistryHost(std::string_view host);

// kInvalidArgument says which part is wrong. Upper case in a repository, "..", empty components, a
// tag of more than 128 bytes, a port above 65535, more than kMaxReferenceBytes before the digest, a
// bare digest or an id are refused. What ToString() gives parses to the same again.
Result<Reference> ParseReference(std::string_view text, const std::string& default_registry);

}  // namespace hutch::rootfs
