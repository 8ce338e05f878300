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
  // controller -> mount point, kHybrid only: memory, pids, cpu, and blkio where mounted.
  // Controllers of one combined hierarchy (cpu,cpuacct) have the same mount point.
  std::vector<std::pair<std::string, std::string>> v1_roots;
};

// From /proc/self/mountinfo. kUnsupported names what is missing (no cgroup2 mount; a needed
// controller nowhere).
Result<Layout> DetectLayout();

// The parts of DetectLayout, pure.
struct CgroupMount {
  std::string mount_point;
  std::string root;  // of the hierarchy, "/" unless a part of it is mounted
  bool is_v2 = false;
  std::vector<std::string> controllers;  // v1 only
};
// Lines of other file systems and malformed lines are skipped.
std::vector<CgroupMount> ParseCgroupMounts(std::string_view mountinfo);
// The cgroup2 mount to use: a whole one before a part. nullptr when there is none.
const CgroupMount* ChooseV2(const std::vector<CgroupMount>& mounts);
// `v2_controllers`: cgroup.controllers at the root of ChooseV2's mount.
Result<Layout> PlanLayout(const std::vector<CgroupMount>& mounts, std::string_view v2_controllers);

}  // namespace hutch::cgroups
