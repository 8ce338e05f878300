#include "cgroups/tree.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/controllers.h"
#include "cgroups/limits.h"
#include "cgroups/paths.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxCgroupFileBytes = 64 * 1024;
constexpr char kSandboxes[] = "/sandboxes";
constexpr std::string_view kDaemon = "/daemon";
constexpr char kSpawnerPrefix[] = "spawner-";
constexpr char kDefaultParent[] = "/hutch";

// The path of this process in the v2 hierarchy, "/" when it is at the root.
Result<std::string> OwnV2Path() {
  ASSIGN_OR_RETURN(const std::string text, ReadFile("/proc/self/cgroup", kMaxCgroupFileBytes));
  for (const std::string& line : Split(text, '\n'))
    if (line.starts_with("0::")) return line.substr(3);
  return Error{.code = Code::kUnsupported, .what = "/proc/self/cgroup has no v2 line"};
}

bool IsDelegated(const std::string& directory) {
  for (const char* name : {"user.delegate", "trusted.delegate"}) {
    char value[8];
    if (::getxattr(directory.c_str(), name, value, sizeof value) == 1 && value[0] == '1')
      return true;
  }
  return false;
}

// Our own group, or the one above when systemd started us in its "daemon" (DelegateSubgroup=).
std::string DelegatedParent(const std::string& v2_root, const std::string& own) {
  std::string above = own.ends_with(kDaemon) ? own.substr(0, own.size() - kDaemon.size()) : "";
  for (const std::string& path : {own, above})
    if (path.size() > 1 && IsDelegated(v2_root + path)) return path;
  return "";
}

Status CheckParent(const std::string& parent) {
  bool good = parent.size() > 1 && parent[0] == '/';
  for (const std::string& part : Split(parent.substr(good ? 1 : 0), '/'))
    good = good && IsGroupName(part);
  if (good) return OkStatus();
  return Error{.code = Code::kInvalidArgument,
               .what = "cgroup parent \"" + parent + "\" must look like /hutch"};
}

Status MoveSelf(const std::string& group) {
  RETURN_IF_ERROR(MakeDirectories(group, kGroupMode));
  return WriteExisting(group + "/cgroup.procs", "0");
}

Status Enable(const std::string& group, const char* controller) {
  const std::string file = group + "/cgroup.subtree_control";
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxCgroupFileBytes));
  const std::vector<std::string> enabled = Split(Trim(text), ' ');
  // A write, even of what is there, takes the kernel's global cgroup lock.
  if (std::find(enabled.begin(), enabled.end(), controller) != enabled.end()) return OkStatus();
  Status written = WriteExisting(file, std::string("+") + controller);
  if (written) return written;
  Error error = std::move(written).error();
  if (error.sys == ENOENT) {
    error.code = Code::kUnsupported;
    error.hint = "the group above does not hand this controller down";
  }
  if (error.sys == EBUSY)
    error.hint = "processes live in that group: give hutchd one of its own with --cgroup-parent";
  return error;
}

}  // namespace

std::string Tree::GroupPath(const std::string& root, const std::string& id) const {
  return root + parent_ + kSandboxes + (id.empty() ? "" : "/" + id);
}

// Down to <parent>/sandboxes: a group has what its parent's subtree_control gives it. What lies
// above a delegated parent is systemd's.
Status Tree::EnableControllers(bool from_root) {
  std::vector<std::string> groups;
  if (from_root) groups.push_back(layout_.v2_root);
  std::string path = layout_.v2_root;
  for (const std::string& part : Split((parent_ + kSandboxes).substr(1), '/')) {
    path += "/" + part;
    if (from_root || path.size() >= layout_.v2_root.size() + parent_.size()) groups.push_back(path);
  }
  for (const Controller* controller : Controllers()) {
    Status enabled = OkStatus();
    for (const std::string& group : groups)
      if (enabled) enabled = Enable(group, controller->name);
    if (enabled)
      controllers_.emplace_back(controller->name);
    else if (controller->required)
      return enabled;
  }
  return OkStatus();
}

Result<Tree> Tree::Open(const Layout& layout, const TreeConfig& config) {
  Tree tree;
  tree.layout_ = layout;
  ASSIGN_OR_RETURN(const std::string own, OwnV2Path());
  const std::string delegated =
      config.parent.empty() ? DelegatedParent(layout.v2_root, own) : std::string();
  tree.parent_ = !delegated.empty()      ? delegated
                 : config.parent.empty() ? kDefaultParent
                                         : config.parent;
  RETURN_IF_ERROR(CheckParent(tree.parent_));
  RETURN_IF_ERROR(MakeDirectories(tree.GroupPath(layout.v2_root, ""), kGroupMode));
  if (layout.mode == Mode::kV2) {
    // Groups that hand controllers down hold no processes.
    if (own == tree.parent_)
      RETURN_IF_ERROR(MoveSelf(layout.v2_root + tree.parent_ + std::string(kDaemon)));
    RETURN_IF_ERROR(tree.EnableControllers(delegated.empty()));
    return tree;
  }
  for (const auto& [controller, root] : layout.v1_roots) {
    RETURN_IF_ERROR(MakeDirectories(tree.GroupPath(root, ""), kGroupMode));
    tree.controllers_.push_back(controller);
  }
  return tree;
}

// The value without looking whether the directories are there.
Result<SandboxGroup> Tree::Describe(const std::string& id) const {
  if (!IsGroupName(id))
    return Error{.code = Code::kInvalidArgument, .what = "cgroup name \"" + id + "\""};
  SandboxGroup group;
  group.id_ = id;
  group.mode_ = layout_.mode;
  group.controllers_ = controllers_;
  group.path_ = GroupPath(layout_.v2_root, id);
  for (const auto& [controller, root] : layout_.v1_roots) {
    const std::string path = GroupPath(root, id);
    const auto same = std::find_if(group.v1_.begin(), group.v1_.end(),
                                   [&](const auto& v1) { return v1.path == path; });
    if (same != group.v1_.end())
      same->controllers.push_back(controller);
    else
      group.v1_.push_back({path, UniqueFd(), {controller}});
  }
  return group;
}

Result<SandboxGroup> Tree::OpenExisting(const std::string& id) const {
  ASSIGN_OR_RETURN(SandboxGroup group, Describe(id));
  bool any = false;
  const auto open = [&](const std::string& path, UniqueFd& fd) {
    auto dir = hutch::Open(path, O_RDONLY | O_DIRECTORY);
    if (!dir) return;
    any = true;
    fd = std::move(*dir);
  };
  open(group.path_, group.dir_);
  open(group.path_ + "/agent", group.agent_dir_);
  open(group.path_ + "/work", group.work_dir_);
  for (SandboxGroup::V1Group& v1 : group.v1_) open(v1.path, v1.dir);
  if (!any) return Error{.code = Code::kNotFound, .what = "no cgroup of " + id};
  return group;
}

Status Tree::MakeGroups(const SandboxGroup& group, std::vector<std::string>* made) const {
  std::vector<std::string> paths = {group.path_, group.path_ + "/agent", group.path_ + "/work"};
  for (const SandboxGroup::V1Group& v1 : group.v1_) paths.push_back(v1.path);
  for (std::string& path : paths) {
    RETURN_IF_ERROR(MakeGroup(path));
    made->push_back(std::move(path));
  }
  return OkStatus();
}

// Controllers go down to work/<process>, for its statistics and memory.oom.group.
Status Tree::SetUp(const SandboxGroup& group) const {
  const auto write = [&](const UniqueFd& dir, const char* place, const char* file,
                         const std::string& value) -> Status {
    return WriteLimit(dir.get(), group.path_ + place, file, value);
  };
  RETURN_IF_ERROR(
      write(group.dir_, "", "cgroup.max.descendants", std::to_string(kMaxSandboxDescendants)));
  RETURN_IF_ERROR(write(group.dir_, "", "cgroup.max.depth", std::to_string(kMaxSandboxDepth)));
  if (layout_.mode == Mode::kHybrid) return OkStatus();
  std::string enable;
  for (const std::string& controller : controllers_)
    enable += (enable.empty() ? "+" : " +") + controller;
  RETURN_IF_ERROR(write(group.dir_, "", "cgroup.subtree_control", enable));
  RETURN_IF_ERROR(write(group.work_dir_, "/work", "cgroup.subtree_control", enable));
  RETURN_IF_ERROR(
      write(group.agent_dir_, "/agent", "memory.max", std::to_string(kAgentMemoryBytes)));
  return write(group.agent_dir_, "/agent", "pids.max", std::to_string(kAgentPids));
}

Result<SandboxGroup> Tree::Create(const std::string& id) const {
  ASSIGN_OR_RETURN(const SandboxGroup described, Describe(id));
  std::vector<std::string> made;
  Status ready = MakeGroups(described, &made);
  auto group = ready ? OpenExisting(id) : Result<SandboxGroup>(std::move(ready).error());
  if (group) {
    ready = SetUp(*group);
    if (ready) return group;
    group = std::move(ready).error();
  }
  // Only what this call made: what was there before may be somebody's.
  for (auto path = made.rbegin(); path != made.rend(); ++path)
    IgnoreError(RemoveGroup(*path), "recovery removes what is left");
  return group;
}

Result<std::vector<std::string>> Tree::List() const {
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ChildGroups(GroupPath(layout_.v2_root, "")));
  for (const auto& [controller, root] : layout_.v1_roots) {
    ASSIGN_OR_RETURN(const std::vector<std::string> more, ChildGroups(GroupPath(root, "")));
    ids.insert(ids.end(), more.begin(), more.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Result<UniqueFd> Tree::CreateSpawnerLeaf() const {
  const std::string parent = layout_.v2_root + parent_;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ChildGroups(parent));
  for (const std::string& name : names)  // those of spawn servers that are gone
    if (name.starts_with(kSpawnerPrefix))
      IgnoreError(RemoveGroup(parent + "/" + name), "busy while its server lives");
  const std::string path = parent + "/" + kSpawnerPrefix + RandomBase32(8);
  RETURN_IF_ERROR(MakeGroup(path));
  return hutch::Open(path, O_RDONLY | O_DIRECTORY);
}

Status Tree::RemoveParents() const {
  std::vector<std::string> roots = {layout_.v2_root};
  for (const auto& [controller, root] : layout_.v1_roots) roots.push_back(root);
  for (const std::string& root : roots) {
    const std::string parent = root + parent_;
    const auto names = ChildGroups(parent);
    if (!names) continue;  // gone: two controllers of one hierarchy, or a second call
    for (const std::string& name : *names) RETURN_IF_ERROR(RemoveGroup(parent + "/" + name));
    RETURN_IF_ERROR(RemoveGroup(parent));
  }
  return OkStatus();
}

}  // namespace hutch::cgroups
