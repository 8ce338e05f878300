// Names of the huge page sizes as cgroup files have them. Of this folder only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hutch::cgroups {

// Of this host: "64KB", "2MB", "1GB".
std::vector<std::string> HugepageSizes();
// "hugepages-2048kB" as "2MB"; empty for what is none.
std::string HugepageName(std::string_view directory);

}  // namespace hutch::cgroups
