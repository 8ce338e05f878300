#include "tools/bench/bundle.h"

#include "base/file.h"

namespace hutch::tools {
namespace {

using oci::Json;

constexpr uint64_t kFirstHostId = 0x6f000000;  // just below hutch's own ids
constexpr uint64_t kIds = 65536;

}  // namespace

Json PlanBundleConfig(const std::string& rootfs, const std::vector<std::string>& argv) {
  const Json id_map = Json::array({{{"containerID", 0}, {"hostID", kFirstHostId}, {"size", kIds}}});
  Json namespaces = Json::array();
  for (const char* type : {"user", "pid", "network", "ipc", "uts", "mount", "cgroup"})
    namespaces.push_back({{"type", type}});
  const Json none = Json::array();
  const Json process = {
      {"terminal", false},
      {"user", {{"uid", 1000}, {"gid", 1000}}},
      {"args", argv},
      {"env", {"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/tmp"}},
      {"cwd", "/"},
      {"capabilities", {{"bounding", none}, {"effective", none}, {"permitted", none}}},
      {"noNewPrivileges", true}};
  const auto mount = [](const char* where, const char* type, std::vector<std::string> options) {
    return Json{{"destination", where}, {"type", type}, {"source", type}, {"options", options}};
  };
  return {
      {"ociVersion", "1.0.2"},
      {"process", process},
      {"root", {{"path", rootfs}, {"readonly", true}}},
      {"hostname", "bench"},
      {"mounts",
       {mount("/proc", "proc", {"nosuid", "noexec", "nodev"}),
        mount("/dev", "tmpfs", {"nosuid", "strictatime", "mode=755", "size=65536k"}),
        mount("/tmp", "tmpfs", {"nosuid", "nodev", "mode=1777"})}},
      {"linux", {{"namespaces", namespaces}, {"uidMappings", id_map}, {"gidMappings", id_map}}}};
}

Status MakeBundle(const std::string& directory, const std::string& rootfs,
                  const std::vector<std::string>& argv) {
  RETURN_IF_ERROR(MakeDirectories(directory, 0755));
  return WriteFileAtomic(directory + "/config.json", oci::PrintJson(PlanBundleConfig(rootfs, argv)),
                         Durability::kMemory);
}

}  // namespace hutch::tools
