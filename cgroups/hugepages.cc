#include "cgroups/hugepages.h"

#include "base/file.h"
#include "base/text.h"

namespace hutch::cgroups {

std::string HugepageName(std::string_view directory) {
  constexpr std::string_view kBefore = "hugepages-", kAfter = "kB";
  if (!directory.starts_with(kBefore) || !directory.ends_with(kAfter) ||
      directory.size() <= kBefore.size() + kAfter.size())
    return "";
  directory.remove_prefix(kBefore.size());
  directory.remove_suffix(kAfter.size());
  const auto kib = ParseUint(directory);
  if (!kib) return "";
  if (*kib % (1u << 20) == 0) return std::to_string(*kib >> 20) + "GB";
  if (*kib % (1u << 10) == 0) return std::to_string(*kib >> 10) + "MB";
  return std::to_string(*kib) + "KB";
}

std::vector<std::string> HugepageSizes() {
  std::vector<std::string> sizes;
  const auto names = ListDirectory("/sys/kernel/mm/hugepages");
  if (!names) return sizes;
  for (const std::string& name : *names)
    if (std::string size = HugepageName(name); !size.empty()) sizes.push_back(std::move(size));
  return sizes;
}

}  // namespace hutch::cgroups
