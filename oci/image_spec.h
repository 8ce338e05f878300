// The OCI image specification as plain structs (image-spec 1.1: manifest.md, config.md,
// descriptor.md, image-layout.md); Docker's schema 2 documents read the same. Parsers are strict
// about what matters and ignore unknown members.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::oci {

struct Descriptor {
  std::string media_type;
  std::string digest;  // validated: "sha256:" and 64 lower-case hex digits (sha512 likewise)
  uint64_t size = 0;
  std::map<std::string, std::string> annotations;
  std::string os, architecture, variant;  // platform, where given
};

struct Manifest {
  std::string media_type;
  Descriptor config;
  std::vector<Descriptor> layers;
};

struct Index {
  std::vector<Descriptor> manifests;
};

struct ImageConfig {
  std::string created, architecture, os;
  std::vector<std::string> env, entrypoint, cmd;
  std::string user, working_dir, stop_signal;
  std::map<std::string, std::string> labels;
  std::vector<std::string> exposed_ports, volumes;
  std::vector<std::string> diff_ids;
};

// kInvalidArgument for a digest that is not of the one allowed shape; call before any use in a
// path.
Status ValidateDigest(std::string_view digest);
// Documents with both "manifests" and "layers" are refused, whatever their media type says.
Result<Manifest> ParseManifest(std::string_view json);
Result<Index> ParseIndex(std::string_view json);
Result<ImageConfig> ParseImageConfig(std::string_view json);

}  // namespace hutch::oci
