// Freezing, killing and listing a container's processes: always through the v2 tree.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "base/pidfd.h"
#include "base/text.h"
#include "cgroups/container_group.h"
#include "cgroups/controllers.h"
#include "cgroups/paths.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxProcsBytes = 4u << 20;
constexpr int kRecheckMs = 10;    // the kernel may hold back a notification that long
constexpr size_t kSpinReads = 8;  // mostly it is frozen within 0.1 ms

Error NoGroup(const std::string& path) {
  return {.code = Code::kNotFound,
          .what = path.empty() ? "this container has no cgroup" : "no cgroup " + path};
}

Error Named(Error error, const std::string& path) {
  error.what = path + ": " + error.what;
  return error;
}

Status AddPids(int dir_fd, std::vector<pid_t>* pids) {
  const auto text = ReadFileAt(dir_fd, "cgroup.procs", kMaxProcsBytes);
  // EOPNOTSUPP: a threaded group, whose processes are listed further up. ENODEV: gone meanwhile.
  if (!text && text.error().sys != EOPNOTSUPP && text.error().sys != ENODEV &&
      text.error().code != Code::kNotFound)
    return text.error();
  if (text)
    for (const std::string& line : Split(Trim(*text), '\n'))
      // 0: a process that this pid namespace cannot see.
      if (const auto pid = ParseUint(line, INT32_MAX); pid && *pid != 0)
        pids->push_back(static_cast<pid_t>(*pid));
  return OkStatus();
}

Result<bool> ReadFrozen(int dir_fd, const std::string& path) {
  const auto frozen = ReadKey(dir_fd, "cgroup.events", "frozen");
  if (frozen) return *frozen == 1;
  return NoGroup(path);
}

Status AwaitFrozen(int dir_fd, const std::string& path, int timeout_ms) {
  ASSIGN_OR_RETURN(const UniqueFd events, OpenAt(dir_fd, "cgroup.events", O_RDONLY));
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (size_t reads = 0;; ++reads) {
    ASSIGN_OR_RETURN(const bool frozen, ReadFrozen(dir_fd, path));
    if (frozen) return OkStatus();
    if (reads < kSpinReads) continue;
    if (std::chrono::steady_clock::now() > end) break;
    pollfd watch = {events.get(), POLLPRI, 0};
    ::poll(&watch, 1, kRecheckMs);
  }
  return Error{.code = Code::kUnavailable,
               .what = "not every process of " + path + " could be frozen within " +
                       std::to_string(timeout_ms) + " ms"};
}

}  // namespace

Status ContainerGroup::Freeze(int timeout_ms) const {
  if (!exists()) return NoGroup(place_.v2_path);
  Status written = WriteExistingAt(v2_dir_.get(), "cgroup.freeze", "1");
  if (!written) return Named(std::move(written).error(), place_.v2_path);
  Status frozen = AwaitFrozen(v2_dir_.get(), place_.v2_path, timeout_ms);
  if (!frozen) IgnoreError(Thaw(), "the first error counts");
  return frozen;
}

// What runs inside may have frozen itself there, where not even SIGKILL ends it.
Status ContainerGroup::ThawV1() const {
  const auto thaw = [](int dir_fd) -> Status {
    Status written = WriteExistingAt(dir_fd, "freezer.state", "THAWED");
    if (!written && (written.error().sys == ENODEV || written.error().sys == ENOENT))
      return OkStatus();
    return written;
  };
  const Home freezer = HomeOf("freezer");
  return freezer.version == 1 ? VisitGroups(freezer.path, {.enter = thaw}) : OkStatus();
}

Status ContainerGroup::Thaw() const {
  if (!exists()) return NoGroup(place_.v2_path);
  RETURN_IF_ERROR(ThawV1());
  Status written = WriteExistingAt(v2_dir_.get(), "cgroup.freeze", "0");
  if (!written) return Named(std::move(written).error(), place_.v2_path);
  return OkStatus();
}

// What was asked for, not what has become of it: an exec must not join a group that is being
// frozen, and a stopped container's group has nothing in it to be frozen.
Result<bool> ContainerGroup::Frozen() const {
  if (!exists()) return false;
  auto text = ReadFileAt(v2_dir_.get(), "cgroup.freeze", kMaxProcsBytes);
  if (text) return Trim(*text) == "1";
  if (text.error().sys == ENODEV || text.error().code == Code::kNotFound) return false;
  return Named(std::move(text).error(), place_.v2_path);
}

Status ContainerGroup::Kill() const {
  if (!exists()) return NoGroup(place_.v2_path);
  Status killed = WriteExistingAt(v2_dir_.get(), "cgroup.kill", "1");
  // ENODEV: removed meanwhile, so nothing lives in it.
  if (!killed && (killed.error().sys == ENODEV || killed.error().code == Code::kNotFound))
    return OkStatus();
  if (!killed) return Named(std::move(killed).error(), place_.v2_path);
  return ThawV1();
}

Result<std::vector<pid_t>> ContainerGroup::Pids() const {
  if (!exists()) return NoGroup(place_.v2_path);
  std::vector<pid_t> pids;
  RETURN_IF_ERROR(VisitGroups(place_.v2_path,
                              {.enter = [&pids](int dir_fd) { return AddPids(dir_fd, &pids); }}));
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  return pids;
}

// A pid counts only when it is still listed once its handle is held: then it is not somebody
// else's by now.
Status ContainerGroup::Signal(int signal) const {
  if (signal == SIGKILL) return Kill();
  ASSIGN_OR_RETURN(const std::vector<pid_t> before, Pids());
  std::vector<Pidfd> handles;
  for (const pid_t pid : before)
    if (auto handle = Pidfd::Open(pid)) handles.push_back(std::move(*handle));
  ASSIGN_OR_RETURN(const std::vector<pid_t> after, Pids());
  for (const Pidfd& handle : handles)
    if (std::binary_search(after.begin(), after.end(), handle.pid()))
      RETURN_IF_ERROR(handle.Signal(signal));
  return OkStatus();
}

uint64_t ContainerGroup::OomKills() const {
  const Home memory = HomeOf("memory");
  if (memory.version == 0) return 0;
  return ReadKey(memory.dir_fd, memory.version == 1 ? "memory.oom_control" : "memory.events",
                 "oom_kill")
      .value_or(0);
}

ContainerGroup::Home ContainerGroup::HomeOf(std::string_view controller) const {
  for (const V1Dir& v1 : v1_dirs_)
    if (std::find(v1.controllers.begin(), v1.controllers.end(), controller) != v1.controllers.end())
      return {v1.dir.get(), v1.path, 1};
  if (!exists()) return {};
  // What v2 has under another name is not asked for by the v1 one when there is no v1 hierarchy.
  for (const std::string& name : Split(Trim(ReadText(v2_dir_.get(), "cgroup.controllers")), ' '))
    if (name == controller) return {v2_dir_.get(), place_.v2_path, 2};
  return {};
}

oci::Json PrintGroupPlace(const GroupPlace& place) {
  oci::Json v1 = oci::Json::array();
  for (const GroupPlace::V1& group : place.v1)
    v1.push_back({{"path", group.path}, {"controllers", group.controllers}});
  return {{"v2Path", place.v2_path},
          {"v1", std::move(v1)},
          {"unit", place.unit},
          {"userManager", place.user_manager},
          {"made", place.made}};
}

Result<GroupPlace> ParseGroupPlace(const oci::Json& json) {
  GroupPlace place;
  oci::ObjectReader reader(json, "cgroup");
  reader.String("v2Path", &place.v2_path)
      .String("unit", &place.unit)
      .Bool("userManager", &place.user_manager)
      .Strings("made", &place.made);
  const oci::Json* v1 = reader.Member("v1");
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kIgnore));
  if (v1 == nullptr || !v1->is_array()) return place;
  for (const oci::Json& item : *v1) {
    GroupPlace::V1 group;
    oci::ObjectReader one(item, "cgroup.v1");
    one.String("path", &group.path).Strings("controllers", &group.controllers);
    RETURN_IF_ERROR(one.Done(oci::ObjectReader::Unknown::kIgnore));
    place.v1.push_back(std::move(group));
  }
  return place;
}

}  // namespace hutch::cgroups
