// One sandbox's groups: limits, processes, freezing, killing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/controllers.h"
#include "cgroups/tree.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxCgroupFileBytes = 64 * 1024;

Status Chown(int dir_fd, const char* file, uid_t uid, const std::string& shown) {
  if (::fchownat(dir_fd, file, uid, static_cast<gid_t>(-1), AT_SYMLINK_NOFOLLOW) == 0)
    return OkStatus();
  return SysError(errno, "chown " + shown + "/" + file);
}

Status KillGroup(int dir_fd) {
  Status killed = WriteExistingAt(dir_fd, "cgroup.kill", "1");
  // ENODEV: removed meanwhile, so nothing lives in it.
  if (!killed && (killed.error().sys == ENODEV || killed.error().code == Code::kNotFound))
    return OkStatus();
  return killed;
}

}  // namespace

Status SandboxGroup::DelegateTo(uid_t uid) {
  owner_ = uid;
  return Chown(dir_.get(), "cgroup.procs", uid, path_);
}

Result<std::vector<UniqueFd>> SandboxGroup::OpenAttachFiles() const {
  std::vector<UniqueFd> files;
  for (const V1Group& v1 : v1_) {
    ASSIGN_OR_RETURN(UniqueFd file, OpenAt(v1.dir.get(), "cgroup.procs", O_WRONLY));
    files.push_back(std::move(file));
  }
  return files;
}

Status SandboxGroup::ApplyLimits(const oci::LinuxResources& resources) const {
  for (const Controller* controller : Controllers()) {
    if (!controller->wanted(resources)) continue;
    const bool there =
        std::find(controllers_.begin(), controllers_.end(), controller->name) != controllers_.end();
    if (!there)
      return Error{.code = Code::kUnsupported,
                   .what = std::string("a ") + controller->name +
                           " limit was asked for and this host has no " + controller->name +
                           " controller that hutch can use"};
    if (mode_ == Mode::kV2) {
      RETURN_IF_ERROR(controller->apply_v2(work_dir_.get(), path_ + "/work", resources));
      continue;
    }
    for (const V1Group& v1 : v1_)
      if (v1.controller == controller->name)
        RETURN_IF_ERROR(controller->apply_v1(v1.dir.get(), v1.path, resources));
  }
  return OkStatus();
}

Result<ProcessGroup> SandboxGroup::OpenProcess(const std::string& name) const {
  ProcessGroup group;
  group.name_ = name;
  group.path_ = path_ + "/work/" + name;
  group.mode_ = mode_;
  ASSIGN_OR_RETURN(group.dir_, OpenAt(work_dir_.get(), name, O_RDONLY | O_DIRECTORY));
  return group;
}

Result<ProcessGroup> SandboxGroup::CreateProcess(const std::string& name) const {
  if (::mkdirat(work_dir_.get(), name.c_str(), 0755) != 0)
    return SysError(errno, "mkdir " + path_ + "/work/" + name);
  auto group = OpenProcess(name);
  Status ready = group ? OkStatus() : Status(group.error());
  if (ready && mode_ == Mode::kV2) ready = WriteExistingAt(group->fd(), "memory.oom.group", "1");
  if (ready && owner_ != 0) ready = Chown(group->fd(), "cgroup.procs", owner_, group->path_);
  if (ready) return group;
  ::unlinkat(work_dir_.get(), name.c_str(), AT_REMOVEDIR);
  return std::move(ready).error();
}

Result<std::vector<pid_t>> SandboxGroup::AgentPids() const {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFileAt(agent_dir_.get(), "cgroup.procs", kMaxCgroupFileBytes));
  std::vector<pid_t> pids;
  for (const std::string& line : Split(Trim(text), '\n'))
    if (const auto pid = ParseUint(line, INT32_MAX)) pids.push_back(static_cast<pid_t>(*pid));
  return pids;
}

Stats SandboxGroup::ReadStats() const {
  Stats stats;
  for (const Controller* controller : Controllers()) {
    if (mode_ == Mode::kV2) controller->stats_v2(work_dir_.get(), stats);
    for (const V1Group& v1 : v1_)
      if (v1.controller == controller->name) controller->stats_v1(v1.dir.get(), stats);
  }
  return stats;
}

Stats ProcessGroup::ReadStats() const {
  Stats stats;
  if (mode_ == Mode::kHybrid) return stats;
  for (const Controller* controller : Controllers()) controller->stats_v2(dir_.get(), stats);
  return stats;
}

Status SandboxGroup::Freeze() const { return WriteExistingAt(dir_.get(), "cgroup.freeze", "1"); }
Status SandboxGroup::Thaw() const { return WriteExistingAt(dir_.get(), "cgroup.freeze", "0"); }

Result<bool> SandboxGroup::Frozen() const {
  const auto frozen = ReadKey(dir_.get(), "cgroup.events", "frozen");
  if (!frozen) return Error{.code = Code::kNotFound, .what = path_ + "/cgroup.events"};
  return *frozen == 1;
}

Status SandboxGroup::Kill() const { return dir_.valid() ? KillGroup(dir_.get()) : OkStatus(); }
Status ProcessGroup::Kill() const { return KillGroup(dir_.get()); }

Result<bool> ProcessGroup::Populated() const {
  const auto populated = ReadKey(dir_.get(), "cgroup.events", "populated");
  if (!populated) return Error{.code = Code::kNotFound, .what = path_ + "/cgroup.events"};
  return *populated == 1;
}

Result<UniqueFd> ProcessGroup::OpenEvents() const {
  return OpenAt(dir_.get(), "cgroup.events", O_RDONLY);
}

}  // namespace hutch::cgroups
