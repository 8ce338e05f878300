#include "cgroups/container_layout.h"

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/text.h"

namespace hutch::cgroups {
namespace {

constexpr std::string_view kSlice = ".slice";

// Options of a v1 mount that are no controllers.
constexpr std::array<std::string_view, 6> kPlainOptions = {
    "rw", "ro", "xattr", "noprefix", "clone_children", "none"};

bool IsController(std::string_view option) {
  if (option.starts_with("name=")) return true;
  return option.find('=') == std::string_view::npos && !option.empty() &&
         std::find(kPlainOptions.begin(), kPlainOptions.end(), option) == kPlainOptions.end() &&
         !option.starts_with("cpuset_");
}

Error BadUnit(std::string_view path) {
  return {.code = Code::kInvalidArgument,
          .what = "with systemd cgroupsPath is \"slice:prefix:name\", not \"" + std::string(path) +
                  "\"",
          .field = "linux.cgroupsPath"};
}

}  // namespace

Result<Hierarchies> PlanHierarchies(const std::vector<CgroupMount>& mounts) {
  Hierarchies found;
  for (const CgroupMount& mount : mounts) {
    if (mount.is_v2) {
      if (!found.v2_root.empty()) continue;
      found.v2_root = mount.mount_point;
      found.v2_mounted = mount.root;
      continue;
    }
    Hierarchies::V1 v1{mount.mount_point, mount.root, {}};
    for (const std::string& option : mount.super_options)
      if (IsController(option)) v1.controllers.push_back(option);
    const bool again = std::any_of(found.v1.begin(), found.v1.end(), [&](const auto& other) {
      return other.controllers == v1.controllers;
    });
    if (!v1.controllers.empty() && !again) found.v1.push_back(std::move(v1));
  }
  if (!found.v2_root.empty()) return found;
  return Error{.code = Code::kUnsupported,
               .what = "no cgroup v2 file system is mounted: hosts with v1 alone are not supported",
               .hint = "run hutch doctor"};
}

Result<Hierarchies> FindHierarchies() {
  ASSIGN_OR_RETURN(const std::vector<CgroupMount> mounts, VisibleCgroupMounts());
  return PlanHierarchies(mounts);
}

std::string OwnPath(std::string_view proc_cgroup, std::string_view controller) {
  for (const std::string& line : Split(proc_cgroup, '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::vector<std::string> names = Split(line.substr(first + 1, second - first - 1), ',');
    if (std::find(names.begin(), names.end(), controller) != names.end())
      return line.substr(second + 1);
  }
  return "/";
}

std::string BelowMount(std::string_view path, std::string_view mounted) {
  // "/../x": outside of our cgroup namespace, so nothing that we could reach.
  if (path.starts_with("/..")) return "/";
  if (mounted != "/" && path.starts_with(mounted)) path.remove_prefix(mounted.size());
  return NormalGroupPath(path, "/");
}

std::string NormalGroupPath(std::string_view path, std::string_view base) {
  std::vector<std::string> parts;
  const std::string whole =
      path.starts_with('/') ? std::string(path) : std::string(base) + "/" + std::string(path);
  const size_t floor = path.starts_with('/')
                           ? 0
                           : static_cast<size_t>(std::count_if(base.begin(), base.end(),
                                                               [](char c) { return c == '/'; }));
  const size_t least = base == "/" ? 0 : floor;
  for (const std::string& part : Split(whole, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..")
      parts.push_back(part);
    else if (parts.size() > least)
      parts.pop_back();
  }
  return "/" + Join(parts, "/");
}

Result<UnitName> ParseUnitName(std::string_view path, std::string_view container_id,
                               std::string_view default_slice) {
  if (path.empty())
    return UnitName{std::string(default_slice), "hutch-" + std::string(container_id) + ".scope"};
  const std::vector<std::string> parts = Split(path, ':');
  if (parts.size() != 3 || parts[2].empty() || path.find('/') != std::string_view::npos)
    return BadUnit(path);
  if (parts[2].ends_with(kSlice))
    return Error{.code = Code::kUnsupported,
                 .what = "a slice as a container's unit: " + std::string(path),
                 .field = "linux.cgroupsPath"};
  UnitName name{parts[0].empty() ? std::string(default_slice) : parts[0],
                (parts[1].empty() ? "" : parts[1] + "-") + parts[2] + ".scope"};
  const auto slice = SlicePath(name.slice);
  if (!slice) return slice.error();
  return name;
}

Result<std::string> SlicePath(std::string_view slice) {
  if (slice == "-.slice") return std::string();
  const Error bad{.code = Code::kInvalidArgument,
                  .what = "\"" + std::string(slice) + "\" is no name of a slice",
                  .field = "linux.cgroupsPath"};
  if (!slice.ends_with(kSlice) || slice.find('/') != std::string_view::npos) return bad;
  std::string path, name;
  for (const std::string& part : Split(slice.substr(0, slice.size() - kSlice.size()), '-')) {
    if (part.empty()) return bad;
    name += (name.empty() ? "" : "-") + part;
    path += "/" + name + std::string(kSlice);
  }
  return path;
}

}  // namespace hutch::cgroups
