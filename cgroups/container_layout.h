// Where one container's groups go: the mounted hierarchies, our own place in them, and what
// linux.cgroupsPath means. Of this folder only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cgroups/layout.h"

namespace hutch::cgroups {

// The hierarchies of the host. v1 ones in the order they are mounted, named ones too; each once.
struct Hierarchies {
  struct V1 {
    std::string root;                      // mount point
    std::string mounted;                   // what of the hierarchy is mounted there, "/"
    std::vector<std::string> controllers;  // "memory", "name=systemd"
  };
  std::string v2_root, v2_mounted;
  std::vector<V1> v1;
};
// From /proc/self/mountinfo; kUnsupported without a v2 tree.
Result<Hierarchies> FindHierarchies();
Result<Hierarchies> PlanHierarchies(const std::vector<CgroupMount>& mounts);  // pure

// In /proc/PID/cgroup the path of a hierarchy: of the v2 one for "", else of the v1 one that has
// this controller. "/" where there is none.
std::string OwnPath(std::string_view proc_cgroup, std::string_view controller);
// A path of /proc/PID/cgroup below the mount point that shows `mounted`.
std::string BelowMount(std::string_view path, std::string_view mounted);

// "/a/b" without "." and "..", never above the root; a relative path stays below `base`.
std::string NormalGroupPath(std::string_view path, std::string_view base);

// systemd: linux.cgroupsPath "slice:prefix:name".
struct UnitName {
  std::string slice;  // "system.slice"
  std::string unit;   // "hutch-<id>.scope"
};
// Empty `path`: the default. kInvalidArgument for another form.
Result<UnitName> ParseUnitName(std::string_view path, std::string_view container_id,
                               std::string_view default_slice);
// "a-b.slice" is /a.slice/a-b.slice; "-.slice" is "". kInvalidArgument for what is no slice.
Result<std::string> SlicePath(std::string_view slice);

}  // namespace hutch::cgroups
