// What hutch wants from the host beside its kernel.
#include <grp.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "tools/doctor/check.h"
#include "tools/process.h"

namespace hutch::tools {
namespace {

constexpr uint64_t kFirstHostId = 0x70000000, kLastHostId = 0x7fffffff;
constexpr rlim_t kWantedOpenFiles = 65536;  // the default hard limit inside sandboxes
constexpr uint64_t kLowDiskBytes = uint64_t{1} << 30, kTightDiskBytes = uint64_t{5} << 30;
constexpr int kSilenceLimitMs = 3000;
constexpr const char* kStateDirectory = "/var/lib/hutch";

}  // namespace

std::vector<std::string> OverlappingRanges(const std::string& subid_file) {
  std::vector<std::string> found;
  for (const std::string& line : Split(subid_file, '\n')) {
    const std::vector<std::string> fields = Split(Trim(line), ':');
    if (fields.size() != 3) continue;
    const auto start = ParseUint(fields[1], UINT32_MAX), count = ParseUint(fields[2], UINT32_MAX);
    if (!start || !count || *count == 0) continue;
    if (*start <= kLastHostId && *start + *count - 1 >= kFirstHostId)
      found.emplace_back(Trim(line));
  }
  return found;
}

Finding CheckSubordinateIds(Client&) {
  std::vector<std::string> found;
  for (const char* path : {"/etc/subuid", "/etc/subgid"})
    for (const std::string& line : OverlappingRanges(Setting(path)))
      found.push_back(std::string(path) + " " + line);
  if (found.empty()) return Fine("ids 1879048192 to 2147483647 belong to nobody else");
  return Failure("others use hutch's ids: " + Join(found, ", "),
                 "give these users another range below 1879048192");
}

Finding CheckOpenFiles(Client&) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return Warning("unknown", "");
  const std::string hard =
      limit.rlim_max == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_max);
  if (limit.rlim_max >= kWantedOpenFiles) return Fine(hard);
  return Warning(hard + " in this shell: fewer sandboxes, and lower limits in them",
                 "LimitNOFILE=1048576 in hutchd's unit (the packaged one has it)");
}

Finding CheckResourceCapability(Client&) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2] = {};
  if (sys::Capget(&header, data) < 0) return Warning("unknown", "");
  if ((data[0].effective & 1u << CAP_SYS_RESOURCE) != 0) return Fine("held");
  if (::geteuid() != 0) return Fine("not held by this user; hutchd needs it as root only");
  return Warning("not held: resource limits cannot be raised above those of hutchd",
                 "start hutchd with CAP_SYS_RESOURCE, or with high limits of its own");
}

Finding CheckGroup(Client&) {
  const group* found = ::getgrnam("hutch");
  if (found == nullptr)
    return Warning("no group hutch: only root may use the socket",
                   "systemd-sysusers, or groupadd --system hutch");
  if (::geteuid() == 0) return Fine("exists");
  std::vector<gid_t> groups(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
  const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(0, count)));
  if (std::find(groups.begin(), groups.end(), found->gr_gid) != groups.end())
    return Fine("exists, and you are in it");
  return Warning("you are not in it", "sudo usermod -aG hutch $USER, then log in again");
}

Finding CheckDaemon(Client& client) {
  client.set_silence_limit_ms(kSilenceLimitMs);
  const auto health = client.Get("/v1/health");
  client.set_silence_limit_ms(-1);
  if (health) return Fine("answers on " + client.endpoint().name);
  return Failure(health.error().what, health.error().hint.empty()
                                          ? "journalctl -u hutchd says what it is doing"
                                          : health.error().hint);
}

Finding CheckDebianPackages(Client&) {
  if (ProgramExists("mmdebstrap")) return Fine("mmdebstrap is here");
  return Warning("no mmdebstrap: `hutch image build` cannot work", "apt-get install mmdebstrap");
}

Finding CheckDiskSpace(Client&) {
  const std::string path = PathExists(kStateDirectory) ? kStateDirectory : "/var/lib";
  struct statvfs fs = {};
  if (::statvfs(path.c_str(), &fs) != 0) return Warning("unknown", "");
  const uint64_t free_bytes = uint64_t{fs.f_bavail} * fs.f_frsize;
  const std::string found = FormatSize(free_bytes) + " free for " + kStateDirectory;
  const char* fix = "hutch image rm what is not needed, or give /var/lib/hutch a larger disk";
  if (free_bytes < kLowDiskBytes) return Failure(found, fix);
  if (free_bytes < kTightDiskBytes) return Warning(found, fix);
  return Fine(found);
}

}  // namespace hutch::tools
