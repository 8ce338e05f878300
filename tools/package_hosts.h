// Which hosts this machine's own package managers ask: the preset "packages".
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hutch::tools {

struct PackageHost {
  std::string rule;   // "deb.example.org:80"
  std::string where;  // the file that names it, or "pip's default"
};

// Reads the configuration of apt, npm, pip and cargo below `root`; `home` is below it, too
// ("/root"). What is not there says nothing; a manager's own hosts are among the result unless its
// configuration replaces them. In the order found, each rule once. kNotFound for no such root.
Result<std::vector<PackageHost>> FindPackageHosts(const std::string& root, const std::string& home);

}  // namespace hutch::tools
