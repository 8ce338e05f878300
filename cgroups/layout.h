// Where the machine's cgroup hierarchies are mounted, and which mode follows from that.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hutch::cgroups {

enum class Mode { kV2, kHybrid };
const char* ModeName(Mode mode);  // "v2", "hybrid"

// Found once; a parameter so that tests can pass directories.
struct Layout {
  Mode mode = Mode::kV2;
  std::string v2_root;  // mount point of the cgroup2 tree, "/sys/fs/cgroup"
  // kHybrid only: controller (memory, pids, cpu, and io where there is blkio) -> mount point.
  // Controllers of one combined hierarchy have the same mount point.
  std::vector<std::pair<std::string, std::string>> v1_roots;
};

// From /proc/self/mountinfo. kUnsupported names what is missing (no cgroup2 mount; a needed
// controller nowhere).
Result<Layout> DetectLayout();

// Its parts, pure.
struct CgroupMount {
  bool is_v2 = false;
  std::string mount_point;
  std::vector<std::string> super_options;  // v1: the controllers are among them
  std::string root = "/";                  // what of the hierarchy is mounted
  uint64_t id = 0;                         // of the mount
};
// The cgroup mounts in mountinfo's order; lines of other file systems and broken ones are skipped.
std::vector<CgroupMount> ParseCgroupMounts(std::string_view mountinfo);
// Those of this process that no other mount covers: statx(2) at their mount points.
Result<std::vector<CgroupMount>> VisibleCgroupMounts();
// `v2_controllers`: the text of cgroup.controllers at the first cgroup2 mount.
Result<Layout> PlanLayout(const std::vector<CgroupMount>& mounts, std::string_view v2_controllers);

}  // namespace hutch::cgroups
