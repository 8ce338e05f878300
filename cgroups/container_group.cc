// Making, joining and removing a container's groups.
#include "cgroups/container_group.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/container_layout.h"
#include "cgroups/controllers.h"
#include "cgroups/paths.h"
#include "cgroups/systemd_scope.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxCgroupFileBytes = 64 * 1024;
constexpr int kRemovePatienceMs = 2000;  // what was killed may take a moment to end
constexpr int kMakeTries = 5;            // another container's delete may take a parent away

Result<std::string> ProcCgroup(const std::string& pid) {
  return ReadFile("/proc/" + pid + "/cgroup", kMaxCgroupFileBytes);
}

std::string Above(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

bool NotAllowed(const Error& error) {
  return error.sys == EACCES || error.sys == EPERM || error.sys == EROFS;
}

// v1: a new cpuset is empty, and holds no process as long as it is.
Status FillCpuset(const std::string& group) {
  for (const char* file : {"/cpuset.cpus", "/cpuset.mems"}) {
    ASSIGN_OR_RETURN(const std::string own, ReadFile(group + file, kMaxCgroupFileBytes));
    if (!Trim(own).empty()) continue;
    ASSIGN_OR_RETURN(const std::string above, ReadFile(Above(group) + file, kMaxCgroupFileBytes));
    RETURN_IF_ERROR(WriteExisting(group + file, Trim(above)));
  }
  return OkStatus();
}

enum class Leaf { kNew, kOld };

// mkdir -p of `path` below `root`; calls `each` for every group on the way, the root and the last
// one too. New directories above the last one are added to *made.
template <class Each>
Result<Leaf> MakePath(const std::string& root, const std::string& path,
                      std::vector<std::string>* made, const Each& each) {
  std::string group = root;
  const std::vector<std::string> parts = Split(path.substr(root.size()), '/');
  Leaf leaf = Leaf::kOld;
  RETURN_IF_ERROR(each(group));
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    group += "/" + part;
    const Status fresh = MakeGroup(group);
    if (!fresh && fresh.error().code != Code::kExists) return fresh.error();
    leaf = fresh ? Leaf::kNew : Leaf::kOld;
    if (fresh && group.size() < path.size()) made->push_back(group);
    RETURN_IF_ERROR(each(group));
  }
  return leaf;
}

template <class Each>
Result<Leaf> MakePathAgain(const std::string& root, const std::string& path,
                           std::vector<std::string>* made, const Each& each) {
  for (int tries = 1;; ++tries) {
    auto leaf = MakePath(root, path, made, each);
    if (leaf || leaf.error().sys != ENOENT || tries == kMakeTries) return leaf;
  }
}

// Nobody else's processes: they would get this container's limits, and be killed with it.
Status RefuseInhabited(const std::string& group) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(group + "/cgroup.procs", kMaxCgroupFileBytes));
  if (Trim(text).empty()) return OkStatus();
  return Error{.code = Code::kExists,
               .what = "container's cgroup is not empty: processes live in " + group,
               .field = "linux.cgroupsPath"};
}

Status RemovePatiently(const std::string& path, Status (*remove)(const std::string&)) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kRemovePatienceMs);
  for (int wait_ms = 1;; wait_ms = std::min(wait_ms * 2, 50)) {
    Status removed = remove(path);
    if (removed || removed.error().code != Code::kBadState) return removed;
    if (std::chrono::steady_clock::now() > end) return removed;
    std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
  }
}

Error CannotJoin(Error error, pid_t pid) {
  error.what = "error adding pid " + std::to_string(pid) + " to cgroups: " + error.what;
  if (NotAllowed(error)) error.code = Code::kForbidden;
  return error;
}

Status WritePid(int dir_fd, const std::string& shown, pid_t pid) {
  const Status written = WriteExistingAt(dir_fd, "cgroup.procs", std::to_string(pid));
  if (written) return written;
  return CannotJoin(SysError(written.error().sys, "write " + shown + "/cgroup.procs"), pid);
}

}  // namespace

bool ContainerGroup::MayGoWithout(const Error& error) const {
  return request_.user == GroupUser::kOrdinary && NotAllowed(error);
}

Result<ContainerGroup> ContainerGroup::Plan(const GroupRequest& request) {
  ContainerGroup group;
  group.request_ = request;
  if (request.manager == GroupManager::kSystemd) {
    RETURN_IF_ERROR(group.PlanScope());
    return group;
  }
  ASSIGN_OR_RETURN(group.found_, FindHierarchies());
  const Hierarchies& found = group.found_;
  ASSIGN_OR_RETURN(const std::string own, ProcCgroup("self"));
  const std::string path =
      request.cgroups_path.empty() ? request.container_id : request.cgroups_path;
  const auto bad = [&](const char* why) {
    return Error{.code = Code::kInvalidArgument,
                 .what = "cgroupsPath \"" + path + "\" " + why,
                 .field = "linux.cgroupsPath"};
  };
  if (path.find('\0') != std::string::npos) return bad("has a NUL byte");
  // v2 beside our own group, which holds processes and so hands nothing down; v1 below it.
  const std::string v2_base = Above(BelowMount(OwnPath(own, ""), found.v2_mounted));
  if (NormalGroupPath(path, v2_base) == "/") return bad("is the root of the hierarchy");
  group.place_.v2_path = found.v2_root + NormalGroupPath(path, v2_base);
  for (const Hierarchies::V1& v1 : found.v1) {
    const std::string base = BelowMount(OwnPath(own, v1.controllers[0]), v1.mounted);
    group.place_.v1.push_back({v1.root + NormalGroupPath(path, base), v1.controllers});
  }
  return group;
}

Result<ContainerGroup> ContainerGroup::Open(const GroupPlace& place) {
  ContainerGroup group;
  group.place_ = place;
  group.request_.manager = place.unit.empty() ? GroupManager::kCgroupfs : GroupManager::kSystemd;
  group.OpenDirectories();
  group.clone_into_ = group.v2_dir_.valid();
  return group;
}

void ContainerGroup::OpenDirectories() {
  v1_dirs_.clear();
  if (!place_.v2_path.empty())
    if (auto dir = hutch::Open(place_.v2_path, O_RDONLY | O_DIRECTORY)) v2_dir_ = std::move(*dir);
  for (const GroupPlace::V1& v1 : place_.v1)
    if (auto dir = hutch::Open(v1.path, O_RDONLY | O_DIRECTORY))
      v1_dirs_.push_back({v1.path, std::move(*dir), v1.controllers});
}

Status ContainerGroup::MakeV2() {
  const bool pure = found_.v1.empty();
  const std::string& path = place_.v2_path;
  const auto prepare = [&](const std::string& group) {
    if (pure && group.size() < path.size()) HandDownControllers(group);
    return OkStatus();
  };
  ASSIGN_OR_RETURN(const Leaf leaf, MakePathAgain(found_.v2_root, path, &place_.made, prepare));
  clone_into_ = leaf == Leaf::kNew;
  if (leaf == Leaf::kNew) return OkStatus();
  RETURN_IF_ERROR(RefuseInhabited(path));
  const auto frozen = ReadFile(path + "/cgroup.freeze", kMaxCgroupFileBytes);
  if (frozen && Trim(*frozen) == "1")
    return Error{.code = Code::kBadState,
                 .what = "container's cgroup unexpectedly frozen: " + path};
  return OkStatus();
}

Status ContainerGroup::MakeV1(Inhabitants inhabitants) {
  std::vector<GroupPlace::V1> kept;
  for (GroupPlace::V1& v1 : place_.v1) {
    const auto root = std::find_if(found_.v1.begin(), found_.v1.end(),
                                   [&](const auto& h) { return h.controllers == v1.controllers; });
    if (root == found_.v1.end()) continue;
    const bool cpuset = v1.controllers[0] == "cpuset";
    const auto prepare = [&](const std::string& group) {
      return cpuset && group != root->root ? FillCpuset(group) : OkStatus();
    };
    const auto leaf = MakePathAgain(root->root, v1.path, &place_.made, prepare);
    if (!leaf && MayGoWithout(leaf.error())) continue;
    if (!leaf) return leaf.error();
    if (*leaf == Leaf::kOld && inhabitants == Inhabitants::kRefused)
      RETURN_IF_ERROR(RefuseInhabited(v1.path));
    kept.push_back(std::move(v1));
  }
  place_.v1 = std::move(kept);
  return OkStatus();
}

Status ContainerGroup::Make() {
  if (request_.manager == GroupManager::kSystemd) return OkStatus();
  const std::string v2_path = place_.v2_path;
  std::vector<GroupPlace::V1> v1 = place_.v1;
  Status made = MakeV2();
  if (!made && MayGoWithout(made.error())) {
    place_.v2_path.clear();
    made = OkStatus();
  }
  if (made) made = MakeV1(Inhabitants::kRefused);
  if (made) {
    OpenDirectories();
    return made;
  }
  // What somebody lives in stays, as does what was there before.
  if (clone_into_) IgnoreError(RemoveGroup(v2_path), "the first error counts");
  if (made.error().code != Code::kExists)
    for (const GroupPlace::V1& group : v1)
      IgnoreError(RemoveGroup(group.path), "the first error counts");
  for (auto path = place_.made.rbegin(); path != place_.made.rend(); ++path)
    IgnoreError(RemoveGroup(*path), "the first error counts");
  place_.made.clear();
  return made;
}

Status ContainerGroup::AttachV1(pid_t pid) const {
  for (const V1Dir& v1 : v1_dirs_) RETURN_IF_ERROR(WritePid(v1.dir.get(), v1.path, pid));
  return OkStatus();
}

Status ContainerGroup::Attach(pid_t pid, BornIn born) {
  if (request_.manager == GroupManager::kSystemd) return StartScope(pid);
  if (born == BornIn::kElsewhere && v2_dir_.valid()) {
    Status joined = WritePid(v2_dir_.get(), place_.v2_path, pid);
    if (!joined && MayGoWithout(joined.error())) {
      // A group that we could make, and that the common ancestor does not let us enter.
      IgnoreError(RemoveGroup(place_.v2_path), "it is empty and costs nothing");
      v2_dir_.reset();
      place_.v2_path.clear();
      joined = OkStatus();
    }
    RETURN_IF_ERROR(joined);
  }
  return AttachV1(pid);
}

// "a/b": that hierarchy's group below the container's; on hybrid hosts of every hierarchy.
Status ContainerGroup::AttachSub(pid_t pid, const std::string& sub) const {
  const size_t colon = sub.find(':');
  const std::string controllers = colon == std::string::npos ? "" : sub.substr(0, colon);
  const std::string path = colon == std::string::npos ? sub : sub.substr(colon + 1);
  for (const std::string& part : Split(path, '/'))
    if (part == "..")
      return Error{.code = Code::kInvalidArgument,
                   .what = "`..` components are not allowed: " + path + " is not a sub cgroup path",
                   .field = "--cgroup"};
  const std::string below = NormalGroupPath(path, "/");
  const auto join = [&](const std::string& group) -> Status {
    const std::string shown = group + (below == "/" ? "" : below);
    const auto dir = hutch::Open(shown, O_RDONLY | O_DIRECTORY);
    if (!dir) return CannotJoin(SysError(dir.error().sys, "open " + shown + "/cgroup.procs"), pid);
    return WritePid(dir->get(), shown, pid);
  };
  if (controllers.empty() && v2_dir_.valid()) RETURN_IF_ERROR(join(place_.v2_path));
  bool any = controllers.empty();
  for (const std::string& name : Split(controllers, ','))
    for (const V1Dir& v1 : v1_dirs_) {
      const bool named =
          std::find(v1.controllers.begin(), v1.controllers.end(), name) != v1.controllers.end();
      if (!controllers.empty() && !named) continue;
      RETURN_IF_ERROR(join(v1.path));
      any = true;
    }
  if (any) return OkStatus();
  return Error{.code = Code::kInvalidArgument,
               .what = "unknown controller " + controllers +
                       ": no cgroup v1 hierarchy of this container has it"};
}

Status ContainerGroup::AttachExec(pid_t pid, BornIn born, pid_t init_pid,
                                  const std::vector<std::string>& sub) {
  RETURN_IF_ERROR(AttachV1(pid));
  const bool named = std::any_of(sub.begin(), sub.end(), [](const std::string& path) {
    return path.find(':') == std::string::npos;
  });
  if (born == BornIn::kElsewhere && v2_dir_.valid() && !named) {
    Status joined = WritePid(v2_dir_.get(), place_.v2_path, pid);
    // EBUSY, EOPNOTSUPP: it hands controllers down to groups made inside, so it holds nobody.
    if (!joined && (joined.error().sys == EBUSY || joined.error().sys == EOPNOTSUPP)) {
      ASSIGN_OR_RETURN(const Hierarchies found, FindHierarchies());
      ASSIGN_OR_RETURN(const std::string text, ProcCgroup(std::to_string(init_pid)));
      const std::string group = found.v2_root + BelowMount(OwnPath(text, ""), found.v2_mounted);
      if (!group.starts_with(place_.v2_path + "/"))
        return CannotJoin(SysError(joined.error().sys, "the first process left " + place_.v2_path),
                          pid);
      ASSIGN_OR_RETURN(const UniqueFd dir, hutch::Open(group, O_RDONLY | O_DIRECTORY));
      joined = WritePid(dir.get(), group, pid);
    }
    RETURN_IF_ERROR(joined);
  }
  for (const std::string& path : sub) RETURN_IF_ERROR(AttachSub(pid, path));
  return OkStatus();
}

Status ContainerGroup::DelegateTo(uid_t uid) const {
  if (!v2_dir_.valid() || !place_.v1.empty()) return OkStatus();
  std::vector<std::string> names = {"cgroup.procs", "cgroup.threads", "cgroup.subtree_control"};
  if (const auto text = ReadFile("/sys/kernel/cgroup/delegate", kMaxCgroupFileBytes))
    names = Split(Trim(*text), '\n');
  names.emplace_back("");
  for (const std::string& name : names) {
    // cgroupfs has no symlinks; a file of a controller that is not there is no loss.
    const int flags = name.empty() ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW;
    if (::fchownat(v2_dir_.get(), name.c_str(), uid, static_cast<gid_t>(-1), flags) != 0 &&
        errno != ENOENT)
      return SysError(errno, "chown " + place_.v2_path + "/" + name);
  }
  return OkStatus();
}

void ContainerGroup::RemoveIfEmpty() {
  v2_dir_.reset();
  v1_dirs_.clear();
  if (!place_.v2_path.empty())
    IgnoreError(RemovePatiently(place_.v2_path, RemoveGroup), "it is somebody else's then");
  for (const GroupPlace::V1& v1 : place_.v1)
    IgnoreError(RemoveGroup(v1.path), "it is somebody else's then");
}

Status ContainerGroup::Remove() {
  v2_dir_.reset();
  v1_dirs_.clear();
  if (!place_.unit.empty()) RETURN_IF_ERROR(StopUnit(place_.unit, place_.user_manager));
  if (!place_.v2_path.empty()) RETURN_IF_ERROR(RemovePatiently(place_.v2_path, RemoveGroups));
  for (const GroupPlace::V1& v1 : place_.v1)
    RETURN_IF_ERROR(RemovePatiently(v1.path, RemoveGroups));
  for (auto path = place_.made.rbegin(); path != place_.made.rend(); ++path)
    IgnoreError(RemoveGroup(*path), "other containers live there");
  return OkStatus();
}

}  // namespace hutch::cgroups
