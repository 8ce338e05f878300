// Writes an OCI image layout of one layer.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::rootfs {

struct LayoutImage {  // what its configuration says
  std::string name, description, user, working_dir;
  std::string created;  // RFC 3339
  std::vector<std::string> env, cmd;
};

// Moves the plain tar at `layer_path` into a new layout at `layout_dir` (same file system), for
// this machine's architecture.
Status WriteLayout(const LayoutImage& image, const std::string& layer_path,
                   const std::string& layout_dir);

}  // namespace hutch::rootfs
