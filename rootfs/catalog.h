// The catalog's entries: what there is to be built, and how mmdebstrap is asked for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::rootfs {

struct CatalogText {
  std::string_view name;
  std::string_view json;
};
const std::vector<CatalogText>& CatalogTexts();  // rootfs/catalog/*.json, built in

struct CatalogEntry {
  std::string name, description, suite, user, working_dir;
  std::vector<std::string> packages, env, cmd;
};
// kInvalidArgument for unknown members and for package names that are none.
Result<CatalogEntry> ParseCatalogEntry(std::string_view name, std::string_view json);

// The arguments of mmdebstrap for an entry. `sources`: the host's own apt source files;
// `apt_options`: a file of apt.conf lines.
std::vector<std::string> MmdebstrapArgs(const CatalogEntry& entry, const std::string& target,
                                        const std::vector<std::string>& sources,
                                        const std::string& apt_options);

}  // namespace hutch::rootfs
