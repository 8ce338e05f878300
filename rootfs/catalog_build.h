// Building an entry of the catalog with mmdebstrap.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rootfs/catalog.h"
#include "rootfs/store.h"

namespace hutch::rootfs {

// The arguments of mmdebstrap for an entry. `sources`: files of apt sources; `apt_options`: a file
// of apt.conf lines.
std::vector<std::string> MmdebstrapArgs(const CatalogEntry& entry, const std::string& target,
                                        const std::vector<std::string>& sources,
                                        const std::string& apt_options);

// What mmdebstrap, apt and dpkg print, as progress: how far which stage is.
class BuildProgress {
 public:
  explicit BuildProgress(std::string name) : name_(std::move(name)) {}
  // What a line says; nothing for most lines.
  std::optional<Progress> Take(std::string_view line);

 private:
  Progress Report() const { return {stage_, name_, done_, total_}; }

  std::string name_;
  const char* stage_ = "update lists";
  uint64_t done_ = 0, total_ = 0, packages_ = 0;
};

}  // namespace hutch::rootfs
