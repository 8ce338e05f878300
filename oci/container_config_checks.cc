#include "oci/container_config_checks.h"

#include <algorithm>

namespace hutch::oci {
namespace {

Error Contradiction(const std::string& field, const std::string& what) {
  return Error{.code = Code::kInvalidArgument, .what = field + ": " + what, .field = field};
}

const Namespace* FindNamespace(const ContainerConfig& config, const std::string& type) {
  for (const Namespace& one : config.linux_.namespaces)
    if (one.type == type) return &one;
  return nullptr;
}

// A member that would change the host's own namespace when the container has none.
struct Need {
  const char* field;
  const char* type;
  bool (*asked)(const ContainerConfig&);
};
constexpr Need kNeeds[] = {
    {"hostname", "uts", [](const ContainerConfig& c) { return !c.hostname.empty(); }},
    {"domainname", "uts", [](const ContainerConfig& c) { return !c.domainname.empty(); }},
    {"linux.timeOffsets", "time",
     [](const ContainerConfig& c) { return !c.linux_.time_offsets.empty(); }},
    {"linux.uidMappings", "user",
     [](const ContainerConfig& c) { return !c.linux_.uid_mappings.empty(); }},
    {"linux.gidMappings", "user",
     [](const ContainerConfig& c) { return !c.linux_.gid_mappings.empty(); }},
    {"linux.netDevices", "network",
     [](const ContainerConfig& c) { return !c.linux_.net_devices.empty(); }},
};

// Without any the runtime has its own (runtime/container_namespaces.h).
Status CheckMaps(const ContainerConfig& config) {
  const Namespace* user = FindNamespace(config, "user");
  if (user == nullptr || !user->path.empty()) return OkStatus();
  if (config.linux_.uid_mappings.empty() == config.linux_.gid_mappings.empty()) return OkStatus();
  const char* missing =
      config.linux_.uid_mappings.empty() ? "linux.uidMappings" : "linux.gidMappings";
  return Contradiction(missing, "a user namespace needs id mappings of users and of groups");
}

Status CheckAbsolute(const char* field, const std::vector<std::string>& paths) {
  const auto relative = std::find_if(
      paths.begin(), paths.end(), [](const std::string& path) { return !path.starts_with("/"); });
  if (relative == paths.end()) return OkStatus();
  return Contradiction(field, "\"" + *relative + "\" is no absolute path");
}

}  // namespace

Status CheckContainerConfig(const ContainerConfig& config) {
  for (const Need& need : kNeeds)
    if (need.asked(config) && FindNamespace(config, need.type) == nullptr)
      return Contradiction(
          need.field, "the container has no " + std::string(need.type) + " namespace of its own");
  RETURN_IF_ERROR(CheckMaps(config));
  RETURN_IF_ERROR(CheckAbsolute("linux.maskedPaths", config.linux_.masked_paths));
  return CheckAbsolute("linux.readonlyPaths", config.linux_.readonly_paths);
}

}  // namespace hutch::oci
