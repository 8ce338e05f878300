// One sandbox's groups: limits, processes, freezing, killing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/pidfd.h"
#include "base/text.h"
#include "cgroups/controllers.h"
#include "cgroups/paths.h"
#include "cgroups/tree.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxCgroupFileBytes = 64 * 1024;

Error Named(Error error, const std::string& path) {
  error.what = path + ": " + error.what;
  return error;
}

Status WriteControl(int dir_fd, const std::string& path, const char* file, const char* value) {
  Status written = WriteExistingAt(dir_fd, file, value);
  return written ? std::move(written) : Named(std::move(written).error(), path);
}

Status Chown(int dir_fd, const char* file, uid_t uid, const std::string& shown) {
  if (::fchownat(dir_fd, file, uid, static_cast<gid_t>(-1), AT_SYMLINK_NOFOLLOW) == 0)
    return OkStatus();
  return SysError(errno, "chown " + shown + "/" + file);
}

Status KillGroup(int dir_fd, const std::string& path) {
  Status killed = WriteControl(dir_fd, path, "cgroup.kill", "1");
  // ENODEV: removed meanwhile, so nothing lives in it.
  if (!killed && (killed.error().sys == ENODEV || killed.error().code == Code::kNotFound))
    return OkStatus();
  return killed;
}

Result<std::vector<pid_t>> ReadPids(int dir_fd, const std::string& path) {
  auto text = ReadFileAt(dir_fd, "cgroup.procs", kMaxCgroupFileBytes);
  if (!text) return Named(std::move(text).error(), path);
  std::vector<pid_t> pids;
  for (const std::string& line : Split(Trim(*text), '\n'))
    if (const auto pid = ParseUint(line, INT32_MAX)) pids.push_back(static_cast<pid_t>(*pid));
  return pids;
}

Result<bool> ReadEvent(int dir_fd, const std::string& path, const char* key) {
  const auto value = ReadKey(dir_fd, "cgroup.events", key);
  if (!value) return Error{.code = Code::kNotFound, .what = path + "/cgroup.events: no " + key};
  return *value == 1;
}

}  // namespace

Status SandboxGroup::DelegateTo(uid_t uid) {
  owner_ = uid;
  return Chown(dir_.get(), "cgroup.procs", uid, path_);
}

Result<std::vector<UniqueFd>> SandboxGroup::OpenAttachFiles() const {
  std::vector<UniqueFd> files;
  for (const V1Group& v1 : v1_) {
    auto file = OpenAt(v1.dir.get(), "cgroup.procs", O_WRONLY);
    if (!file) return Named(std::move(file).error(), v1.path);
    files.push_back(std::move(*file));
  }
  return files;
}

Status SandboxGroup::CheckLimits(const oci::LinuxResources& resources) const {
  for (const Controller* controller : Controllers()) {
    if (!controller->wanted(resources)) continue;
    RETURN_IF_ERROR(controller->check(resources));
    if (std::find(controllers_.begin(), controllers_.end(), controller->name) == controllers_.end())
      return Error{.code = Code::kUnsupported,
                   .what = std::string("a limit of ") + controller->name +
                           " was asked for, and this host has no " + controller->name +
                           " controller that hutch can use"};
  }
  return OkStatus();
}

Status SandboxGroup::ApplyLimit(const Controller& controller,
                                const oci::LinuxResources& resources) const {
  if (mode_ == Mode::kV2) return controller.apply_v2(work_dir_.get(), path_ + "/work", resources);
  for (const V1Group& v1 : v1_)
    if (std::find(v1.controllers.begin(), v1.controllers.end(), controller.name) !=
        v1.controllers.end())
      return controller.apply_v1(v1.dir.get(), v1.path, resources);
  return Error{.code = Code::kInternal, .what = std::string("no v1 group for ") + controller.name};
}

Status SandboxGroup::ApplyLimits(const oci::LinuxResources& resources) const {
  RETURN_IF_ERROR(CheckLimits(resources));
  for (const Controller* controller : Controllers())
    if (controller->wanted(resources)) RETURN_IF_ERROR(ApplyLimit(*controller, resources));
  return OkStatus();
}

Result<ProcessGroup> SandboxGroup::OpenProcess(const std::string& name) const {
  if (!IsGroupName(name))
    return Error{.code = Code::kInvalidArgument, .what = "cgroup name \"" + name + "\""};
  ProcessGroup group;
  group.name_ = name;
  group.path_ = path_ + "/work/" + name;
  group.mode_ = mode_;
  ASSIGN_OR_RETURN(group.dir_, OpenAt(work_dir_.get(), name, O_RDONLY | O_DIRECTORY));
  return group;
}

Result<ProcessGroup> SandboxGroup::CreateProcess(const std::string& name) const {
  if (!IsGroupName(name))
    return Error{.code = Code::kInvalidArgument, .what = "cgroup name \"" + name + "\""};
  if (::mkdirat(work_dir_.get(), name.c_str(), kGroupMode) != 0)
    return MakeError(errno, path_ + "/work/" + name);
  auto group = OpenProcess(name);
  Status ready = group ? OkStatus() : Status(group.error());
  if (ready && mode_ == Mode::kV2)
    ready = WriteControl(group->fd(), group->path_, "memory.oom.group", "1");
  if (ready && owner_ != 0) ready = Chown(group->fd(), "cgroup.procs", owner_, group->path_);
  if (ready) return group;
  ::unlinkat(work_dir_.get(), name.c_str(), AT_REMOVEDIR);
  return std::move(ready).error();
}

Result<std::vector<std::string>> SandboxGroup::ListProcesses() const {
  return ChildGroups(path_ + "/work");
}

Result<std::vector<pid_t>> SandboxGroup::AgentPids() const {
  return ReadPids(agent_dir_.get(), path_ + "/agent");
}

// Before Linux 6.11 a refused fork is counted in the group of the process that forks, since then in
// the group with the limit and those above it.
uint64_t SandboxGroup::RefusedForksOfProcesses() const {
  if (HasFile(work_dir_.get(), "pids.events.local")) return 0;
  const auto names = ListProcesses();
  if (!names) return 0;
  uint64_t sum = 0;
  for (const std::string& name : *names)
    sum += ReadKey(work_dir_.get(), (name + "/pids.events").c_str(), "max").value_or(0);
  return sum;
}

Stats SandboxGroup::ReadStats() const {
  Stats stats;
  if (mode_ == Mode::kV2) {
    for (const Controller* controller : Controllers()) controller->stats_v2(work_dir_.get(), stats);
    stats.pids_limit_hits += RefusedForksOfProcesses();
    return stats;
  }
  kCpuController.stats_v2(work_dir_.get(),
                          stats);  // the v2 tree counts CPU time without controller
  for (const V1Group& v1 : v1_)
    for (const std::string& name : v1.controllers)
      if (const Controller* controller = FindController(name))
        controller->stats_v1(v1.dir.get(), stats);
  return stats;
}

Stats ProcessGroup::ReadStats() const {
  Stats stats;
  if (mode_ == Mode::kHybrid)
    kCpuController.stats_v2(dir_.get(), stats);
  else
    for (const Controller* controller : Controllers()) controller->stats_v2(dir_.get(), stats);
  return stats;
}

Events SandboxGroup::ReadEvents() const {
  Events events;
  if (mode_ == Mode::kV2) {
    events.oom_kills = ReadKey(work_dir_.get(), "memory.events", "oom_kill").value_or(0);
    events.pids_limit_hits =
        ReadKey(work_dir_.get(), "pids.events", "max").value_or(0) + RefusedForksOfProcesses();
    return events;
  }
  for (const V1Group& v1 : v1_)
    for (const std::string& name : v1.controllers) {
      if (name == "memory")
        events.oom_kills = ReadKey(v1.dir.get(), "memory.oom_control", "oom_kill").value_or(0);
      if (name == "pids")
        events.pids_limit_hits = ReadKey(v1.dir.get(), "pids.events", "max").value_or(0);
    }
  return events;
}

Events ProcessGroup::ReadEvents() const {
  if (mode_ == Mode::kHybrid) return {};
  return Events{.oom_kills = ReadKey(dir_.get(), "memory.events", "oom_kill").value_or(0),
                .pids_limit_hits = ReadKey(dir_.get(), "pids.events", "max").value_or(0)};
}

Stats ProcessGroup::ReadUsage() const {
  Stats stats;
  kCpuController.stats_v2(dir_.get(), stats);
  if (mode_ == Mode::kHybrid) return stats;
  stats.memory_peak_bytes = ReadNumber(dir_.get(), "memory.peak");
  if (HasFile(dir_.get(), "io.stat")) kIoController.stats_v2(dir_.get(), stats);
  return stats;
}

// A pid counts only when it is still listed once its handle is held: then it is not somebody
// else's by now.
Status ProcessGroup::Signal(int signal) const {
  ASSIGN_OR_RETURN(const std::vector<pid_t> before, ReadPids(dir_.get(), path_));
  std::vector<Pidfd> handles;
  for (const pid_t pid : before)
    if (auto handle = Pidfd::Open(pid)) handles.push_back(std::move(*handle));
  ASSIGN_OR_RETURN(const std::vector<pid_t> after, ReadPids(dir_.get(), path_));
  bool any = false;
  for (const Pidfd& handle : handles) {
    if (std::find(after.begin(), after.end(), handle.pid()) == after.end()) continue;
    RETURN_IF_ERROR(handle.Signal(signal));
    any = true;
  }
  if (any) return OkStatus();
  return Error{.code = Code::kNotFound, .what = path_ + ": no process is alive"};
}

Status SandboxGroup::Kill() const {
  return dir_.valid() ? KillGroup(dir_.get(), path_) : OkStatus();
}
Status ProcessGroup::Kill() const { return KillGroup(dir_.get(), path_); }
Result<bool> ProcessGroup::Populated() const { return ReadEvent(dir_.get(), path_, "populated"); }

Result<UniqueFd> ProcessGroup::OpenEvents() const {
  auto file = OpenAt(dir_.get(), "cgroup.events", O_RDONLY);
  if (!file) return Named(std::move(file).error(), path_);
  return file;
}

Status ProcessGroup::Remove() {
  RETURN_IF_ERROR(RemoveGroup(path_));
  dir_.reset();
  return OkStatus();
}

Status SandboxGroup::Remove() {
  auto names = ChildGroups(path_ + "/work");
  if (!names && names.error().code != Code::kNotFound) return std::move(names).error();
  if (names)
    for (const std::string& name : *names) RETURN_IF_ERROR(RemoveGroup(path_ + "/work/" + name));
  for (const char* name : {"/work", "/agent", ""}) RETURN_IF_ERROR(RemoveGroup(path_ + name));
  for (const V1Group& v1 : v1_) RETURN_IF_ERROR(RemoveGroup(v1.path));
  return OkStatus();
}

}  // namespace hutch::cgroups
