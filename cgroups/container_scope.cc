// A container's groups when systemd makes them: a transient scope, delegated to us.
#include <fcntl.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/container_group.h"
#include "cgroups/container_layout.h"
#include "cgroups/container_limits.h"
#include "cgroups/systemd_scope.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxCgroupFileBytes = 64 * 1024;

// What this runtime sets itself.
constexpr std::string_view kOwnProperties[] = {"Delegate", "PIDs", "Slice", "Description"};

Result<std::vector<UnitProperty>> PropertiesOf(
    const std::map<std::string, std::string>& annotations) {
  std::vector<UnitProperty> properties;
  for (const auto& [key, text] : annotations) {
    if (!key.starts_with(kScopePropertyPrefix)) continue;
    std::string name = key.substr(kScopePropertyPrefix.size());
    if (std::find(std::begin(kOwnProperties), std::end(kOwnProperties), name) !=
        std::end(kOwnProperties))
      return Error{.code = Code::kUnsupported,
                   .what = "annotation " + key + ": the runtime sets this property itself",
                   .field = "annotations"};
    ASSIGN_OR_RETURN(UnitProperty property, ParseUnitProperty(name, text));
    properties.push_back(std::move(property));
  }
  return properties;
}

}  // namespace

Status ContainerGroup::PlanScope() {
  place_.user_manager = request_.user == GroupUser::kOrdinary;
  ASSIGN_OR_RETURN(const UnitName name,
                   ParseUnitName(request_.cgroups_path, request_.container_id,
                                 place_.user_manager ? "user.slice" : "system.slice"));
  place_.unit = name.unit;
  slice_ = name.slice;
  const auto properties = PropertiesOf(request_.annotations);
  if (!properties) return properties.error();
  return CheckSystemd(place_.user_manager);
}

// The scope's path is read back from the process: a user's manager puts its slices below its own
// group. The controllers' v1 hierarchies on hybrid hosts are ours to fill.
Status ContainerGroup::StartScope(pid_t pid) {
  ASSIGN_OR_RETURN(std::vector<UnitProperty> properties, PropertiesOf(request_.annotations));
  RETURN_IF_ERROR(StartUnit({.unit = place_.unit,
                             .slice = slice_,
                             .description = "container " + request_.container_id,
                             .pid = pid,
                             .user_manager = place_.user_manager,
                             .properties = std::move(properties)}));
  ASSIGN_OR_RETURN(found_, FindHierarchies());
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile("/proc/" + std::to_string(pid) + "/cgroup", kMaxCgroupFileBytes));
  std::string path = BelowMount(OwnPath(text, ""), found_.v2_mounted);
  if (!path.ends_with("/" + place_.unit)) path = BelowMount(OwnPath(text, "name=systemd"), "/");
  if (!path.ends_with("/" + place_.unit))
    return Error{.code = Code::kKernel,
                 .what = "systemd: " + place_.unit + " started, and the process is in " + path};
  place_.v2_path = found_.v2_root + path;
  for (const Hierarchies::V1& v1 : found_.v1) place_.v1.push_back({v1.root + path, v1.controllers});
  // On hybrid hosts the directories in the v1 hierarchies, and the v2 one where systemd made none.
  if (!found_.v1.empty()) RETURN_IF_ERROR(MakeV1(Inhabitants::kAllowed));
  OpenDirectories();
  if (!exists())
    return Error{.code = Code::kKernel, .what = "systemd made no group " + place_.v2_path};
  return AttachV1(pid);
}

}  // namespace hutch::cgroups
