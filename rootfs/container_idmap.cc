#include "rootfs/container_idmap.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sys_raw.h"

namespace hutch::rootfs {

std::string IdMapText(const std::vector<oci::IdMapping>& maps) {
  std::string text;
  for (const oci::IdMapping& map : maps)
    text += std::to_string(map.container_id) + " " + std::to_string(map.host_id) + " " +
            std::to_string(map.size) + "\n";
  return text;
}

namespace {

Result<UniqueFd> MapAndOpen(pid_t pid, const std::vector<oci::IdMapping>& uids,
                            const std::vector<oci::IdMapping>& gids) {
  const std::string proc = "/proc/" + std::to_string(pid);
  RETURN_IF_ERROR(WriteExisting(proc + "/uid_map", IdMapText(uids)));
  RETURN_IF_ERROR(WriteExisting(proc + "/gid_map", IdMapText(gids)));
  return Open(proc + "/ns/user", O_RDONLY);
}

}  // namespace

Result<UniqueFd> MakeMappingNamespace(const std::vector<oci::IdMapping>& uids,
                                      const std::vector<oci::IdMapping>& gids) {
  if (uids.empty() || gids.empty())
    return Error{.code = Code::kInvalidArgument,
                 .what = "an id-mapped mount needs maps of users and groups",
                 .field = "mounts"};
  clone_args args{};
  args.flags = CLONE_NEWUSER;
  args.exit_signal = SIGCHLD;
  const long pid = sys::Clone3(&args);
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  if (pid < 0) return SysError(static_cast<int>(-pid), "clone a user namespace for a mount");
  Result<UniqueFd> space = MapAndOpen(static_cast<pid_t>(pid), uids, gids);
  ::kill(static_cast<pid_t>(pid), SIGKILL);
  while (::waitpid(static_cast<pid_t>(pid), nullptr, 0) < 0 && errno == EINTR) {
  }
  return space;
}

std::optional<uint32_t> HostId(const std::vector<oci::IdMapping>& maps, uint32_t id) {
  for (const oci::IdMapping& map : maps)
    if (id >= map.container_id && id - map.container_id < map.size)
      return map.host_id + (id - map.container_id);
  return std::nullopt;
}

}  // namespace hutch::rootfs
