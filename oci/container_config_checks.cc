#include "oci/container_config_checks.h"

#include <algorithm>
#include <set>

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

// Two members for one value of the kernel.
Status CheckSysctl(const ContainerConfig& config) {
  const struct {
    const char* sysctl;
    const char* field;
    const std::string& value;
  } names[] = {{"kernel.hostname", "hostname", config.hostname},
               {"kernel.domainname", "domainname", config.domainname}};
  for (const auto& one : names) {
    const auto sysctl = config.linux_.sysctl.find(one.sysctl);
    if (sysctl == config.linux_.sysctl.end() || one.value.empty() || sysctl->second == one.value)
      continue;
    return Contradiction("linux.sysctl", std::string("the sysctl \"") + one.sysctl +
                                             "\" conflicts with the OCI field \"" + one.field +
                                             "\"");
  }
  return OkStatus();
}

Status CheckAbsolute(const char* field, const std::vector<std::string>& paths) {
  const auto relative = std::find_if(
      paths.begin(), paths.end(), [](const std::string& path) { return !path.starts_with("/"); });
  if (relative == paths.end()) return OkStatus();
  return Contradiction(field, "\"" + *relative + "\" is no absolute path");
}

// Whether the kernel takes it for the name of a network device.
bool IsDeviceName(const std::string& name) {
  return !name.empty() && name.size() < 16 && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) > ' ' && c != '/' && c != ':' && c != 0x7f;
         });
}

// In the container the kernel fills in a number for one "%d".
bool IsDeviceNameOrTemplate(const std::string& name) {
  const size_t percent = name.find('%');
  if (percent != std::string::npos &&
      (name.compare(percent, 2, "%d") != 0 || name.find('%', percent + 1) != std::string::npos))
    return false;
  return IsDeviceName(name);
}

Status CheckNetDevices(const std::vector<NetDevice>& devices) {
  std::set<std::string> names;
  for (const NetDevice& device : devices) {
    const std::string field = "linux.netDevices." + device.host_name;
    if (!IsDeviceName(device.host_name) || device.host_name.find('%') != std::string::npos)
      return Contradiction(field, "is no name of a network device");
    if (!device.name.empty() && !IsDeviceNameOrTemplate(device.name))
      return Contradiction(field + ".name",
                           "\"" + device.name + "\" is no name of a network device");
    const std::string& inside = device.name.empty() ? device.host_name : device.name;
    if (inside.find('%') == std::string::npos && !names.insert(inside).second)
      return Contradiction(field + ".name", "\"" + inside + "\" is the name of another one, too");
  }
  return OkStatus();
}

}  // namespace

Status CheckContainerConfig(const ContainerConfig& config) {
  for (const Need& need : kNeeds)
    if (need.asked(config) && FindNamespace(config, need.type) == nullptr)
      return Contradiction(
          need.field, "the container has no " + std::string(need.type) + " namespace of its own");
  RETURN_IF_ERROR(CheckMaps(config));
  RETURN_IF_ERROR(CheckSysctl(config));
  RETURN_IF_ERROR(CheckNetDevices(config.linux_.net_devices));
  RETURN_IF_ERROR(CheckAbsolute("linux.maskedPaths", config.linux_.masked_paths));
  return CheckAbsolute("linux.readonlyPaths", config.linux_.readonly_paths);
}

}  // namespace hutch::oci
