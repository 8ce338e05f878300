// features, spec.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "base/file.h"
#include "runtime/container_features.h"
#include "tools/hutch_oci_commands.h"

namespace hutch::tools {
namespace {

using oci::Json;

constexpr const char* kSpecCapabilities[] = {"CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"};

Json MountOf(const char* destination, const char* type, const char* source, Json options) {
  return {{"destination", destination}, {"type", type}, {"source", source}, {"options", options}};
}

Json DefaultMounts(bool rootless) {
  Json pts = {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"};
  if (!rootless) pts.push_back("gid=5");
  Json sys = MountOf("/sys", "sysfs", "sysfs", {"nosuid", "noexec", "nodev", "ro"});
  if (rootless) sys = MountOf("/sys", "none", "/sys", {"rbind", "nosuid", "noexec", "nodev", "ro"});
  return {MountOf("/proc", "proc", "proc", Json::array()),
          MountOf("/dev", "tmpfs", "tmpfs", {"nosuid", "strictatime", "mode=755", "size=65536k"}),
          MountOf("/dev/pts", "devpts", "devpts", pts),
          MountOf("/dev/shm", "tmpfs", "shm",
                  {"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}),
          MountOf("/dev/mqueue", "mqueue", "mqueue", {"nosuid", "noexec", "nodev"}),
          sys,
          MountOf("/sys/fs/cgroup", "cgroup", "cgroup",
                  {"nosuid", "noexec", "nodev", "relatime", "ro"})};
}

Json DefaultLinux(bool rootless) {
  Json namespaces = Json::array();
  for (const char* type : {"pid", "network", "ipc", "uts", "mount", "cgroup"})
    if (!rootless || std::string(type) != "network") namespaces.push_back({{"type", type}});
  Json part = {{"maskedPaths",
                {"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                 "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware",
                 "/proc/scsi"}},
               {"readonlyPaths",
                {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}}};
  if (rootless) {
    namespaces.push_back({{"type", "user"}});
    part["uidMappings"] = {{{"containerID", 0}, {"hostID", ::geteuid()}, {"size", 1}}};
    part["gidMappings"] = {{{"containerID", 0}, {"hostID", ::getegid()}, {"size", 1}}};
  } else {
    part["resources"] = {{"devices", {{{"allow", false}, {"access", "rwm"}}}}};
  }
  part["namespaces"] = namespaces;
  return part;
}

Json DefaultConfig(bool rootless) {
  Json caps = Json::array();
  for (const char* name : kSpecCapabilities) caps.push_back(name);
  return {{"ociVersion", runtime::kOciVersion},
          {"process",
           {{"terminal", true},
            {"user", {{"uid", 0}, {"gid", 0}}},
            {"args", {"sh"}},
            {"env",
             {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"}},
            {"cwd", "/"},
            {"capabilities", {{"bounding", caps}, {"effective", caps}, {"permitted", caps}}},
            {"rlimits", {{{"type", "RLIMIT_NOFILE"}, {"hard", 1024}, {"soft", 1024}}}},
            {"noNewPrivileges", true}}},
          {"root", {{"path", "rootfs"}, {"readonly", true}}},
          {"hostname", "hutch"},
          {"mounts", DefaultMounts(rootless)},
          {"linux", DefaultLinux(rootless)}};
}

}  // namespace

OciCommand AddSpec(CLI::App& app, const OciGlobals&) {
  const auto bundle = std::make_shared<std::string>(".");
  const auto rootless = std::make_shared<bool>(false);
  app.add_option("-b,--bundle", *bundle, "where config.json goes");
  app.add_flag("--rootless", *rootless, "for an ordinary user");
  return [bundle, rootless]() -> Result<int> {
    const std::string path = *bundle + "/config.json";
    Result<UniqueFd> file = Open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (!file && file.error().sys == EEXIST)
      return Error{.code = Code::kExists, .what = "File config.json exists. Remove it first"};
    if (!file) return std::move(file).error();
    RETURN_IF_ERROR(WriteAll(file->get(), DefaultConfig(*rootless).dump(2) + "\n"));
    return 0;
  };
}

OciCommand AddFeatures(CLI::App&, const OciGlobals&) {
  return []() -> Result<int> {
    std::printf("%s\n", runtime::ContainerFeatures().dump(2).c_str());
    return 0;
  };
}

}  // namespace hutch::tools
