// Which hosts this machine's own package managers ask: the preset "packages".
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::tools {

struct PackageHost {
  std::string rule;   // "deb.example.org:80"
  std::string where;  // the file that names it, on this machine
};

// Reads the configuration of apt, npm, pip and cargo below `root`; `home` is below it, too
// ("/root"). What is not there says nothing: hosts that a manager asks without being told to are
// its own to know. In the order found, each rule once. kNotFound for no such root.
Result<std::vector<PackageHost>> FindPackageHosts(const std::string& root, const std::string& home);

}  // namespace hutch::tools
