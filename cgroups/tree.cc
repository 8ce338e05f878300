#include "cgroups/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "cgroups/controllers.h"
#include "cgroups/limits.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxCgroupFileBytes = 64 * 1024;
constexpr char kSandboxes[] = "/sandboxes";

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

Status MakeGroup(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0) return OkStatus();
  Error error = SysError(errno, "mkdir " + path);
  if (error.sys == EEXIST) error.code = Code::kExists;
  return error;
}

Status RemoveGroup(const std::string& path) {
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return OkStatus();
  Error error = SysError(errno, "rmdir " + path);
  if (error.sys == EBUSY || error.sys == ENOTEMPTY) error.code = Code::kBadState;
  return error;
}

Result<std::vector<std::string>> ChildGroups(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectory(path));
  std::erase_if(names, [&](const std::string& name) {
    struct stat st {};
    return ::lstat((path + "/" + name).c_str(), &st) != 0 || !S_ISDIR(st.st_mode);
  });
  return names;
}

Status MoveSelf(const std::string& group) {
  RETURN_IF_ERROR(MakeDirectories(group, 0755));
  return WriteExisting(group + "/cgroup.procs", "0");
}

}  // namespace

std::string Tree::GroupPath(const std::string& root, const std::string& id) const {
  return root + parent_ + kSandboxes + (id.empty() ? "" : "/" + id);
}

// From the root down to <parent>/sandboxes: a group has what its parent's subtree_control gives it.
Status Tree::EnableControllers() {
  std::vector<std::string> groups = {layout_.v2_root};
  std::string path = layout_.v2_root;
  for (const std::string& part : Split((parent_ + kSandboxes).substr(1), '/'))
    groups.push_back(path += "/" + part);
  for (const Controller* controller : Controllers()) {
    Status enabled = OkStatus();
    for (const std::string& group : groups) {
      enabled =
          WriteExisting(group + "/cgroup.subtree_control", std::string("+") + controller->name);
      if (!enabled) break;
    }
    if (enabled)
      controllers_.emplace_back(controller->name);
    else if (controller->required) {
      Error error = std::move(enabled).error();
      if (error.sys == EBUSY)
        error.hint =
            "processes live in that group: give hutchd a group of its own with --cgroup-parent";
      return error;
    }
  }
  return OkStatus();
}

Result<Tree> Tree::Open(const Layout& layout, const TreeConfig& config) {
  Tree tree;
  tree.layout_ = layout;
  tree.parent_ = config.parent.empty() ? "/hutch" : config.parent;
  if (tree.parent_.size() < 2 || tree.parent_[0] != '/' || tree.parent_.back() == '/' ||
      tree.parent_.find("/..") != std::string::npos)
    return Error{.code = Code::kInvalidArgument,
                 .what = "cgroup parent \"" + tree.parent_ + "\" must look like /hutch"};
  ASSIGN_OR_RETURN(const std::string own, OwnV2Path());
  const bool delegated = own != "/" && IsDelegated(layout.v2_root + own);
  if (config.parent.empty() && delegated)
    tree.parent_ = own.ends_with("/daemon") ? own.substr(0, own.size() - 7) : own;
  RETURN_IF_ERROR(MakeDirectories(tree.GroupPath(layout.v2_root, ""), 0755));
  if (own == tree.parent_) RETURN_IF_ERROR(MoveSelf(layout.v2_root + tree.parent_ + "/daemon"));
  if (layout.mode == Mode::kV2) {
    RETURN_IF_ERROR(tree.EnableControllers());
    return tree;
  }
  for (const auto& [controller, root] : layout.v1_roots) {
    RETURN_IF_ERROR(MakeDirectories(tree.GroupPath(root, ""), 0755));
    tree.controllers_.push_back(controller);
  }
  return tree;
}

// The value without looking whether the directories are there.
Result<SandboxGroup> Tree::Describe(const std::string& id) const {
  if (id.empty() || id.find('/') != std::string::npos || id[0] == '.')
    return Error{.code = Code::kInvalidArgument, .what = "cgroup name \"" + id + "\""};
  SandboxGroup group;
  group.id_ = id;
  group.mode_ = layout_.mode;
  group.controllers_ = controllers_;
  group.path_ = GroupPath(layout_.v2_root, id);
  for (const auto& [controller, root] : layout_.v1_roots)
    group.v1_.push_back({controller, GroupPath(root, id), UniqueFd()});
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

Result<SandboxGroup> Tree::Create(const std::string& id) const {
  ASSIGN_OR_RETURN(const SandboxGroup described, Describe(id));
  RETURN_IF_ERROR(MakeGroup(described.path_));
  Status made = OkStatus();
  for (const char* name : {"/agent", "/work"})
    if (made) made = MakeGroup(described.path_ + name);
  for (const SandboxGroup::V1Group& v1 : described.v1_)
    if (made) made = MakeGroup(v1.path);
  auto group = made ? OpenExisting(id) : Result<SandboxGroup>(std::move(made).error());
  if (group && layout_.mode == Mode::kV2) {
    std::string enable;
    for (const std::string& controller : controllers_)
      enable += (enable.empty() ? "+" : " +") + controller;
    Status ready = WriteExistingAt(group->dir_.get(), "cgroup.subtree_control", enable);
    if (ready) ready = WriteExistingAt(group->work_dir_.get(), "cgroup.subtree_control", enable);
    if (ready)
      ready =
          WriteExistingAt(group->agent_dir_.get(), "memory.max", std::to_string(kAgentMemoryBytes));
    if (ready)
      ready = WriteExistingAt(group->agent_dir_.get(), "pids.max", std::to_string(kAgentPids));
    if (ready)
      ready = WriteExistingAt(group->dir_.get(), "cgroup.max.descendants",
                              std::to_string(kMaxSandboxDescendants));
    if (!ready) group = std::move(ready).error();
  }
  if (group) return group;
  if (auto half = OpenExisting(id)) IgnoreError(half->Remove(), "recovery removes what is left");
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
    if (name.starts_with("spawner-"))
      IgnoreError(RemoveGroup(parent + "/" + name), "busy while its server lives");
  const std::string path = parent + "/spawner-" + RandomBase32(8);
  RETURN_IF_ERROR(MakeGroup(path));
  return hutch::Open(path, O_RDONLY | O_DIRECTORY);
}

Status Tree::RemoveParents() const {
  std::vector<std::string> roots = {layout_.v2_root};
  for (const auto& [controller, root] : layout_.v1_roots) roots.push_back(root);
  for (const std::string& root : roots) {
    const std::string parent = root + parent_;
    if (!PathExists(parent)) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ChildGroups(parent));
    for (const std::string& name : names) RETURN_IF_ERROR(RemoveGroup(parent + "/" + name));
    RETURN_IF_ERROR(RemoveGroup(parent));
  }
  return OkStatus();
}

Status SandboxGroup::Remove() {
  if (PathExists(path_ + "/work")) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ChildGroups(path_ + "/work"));
    for (const std::string& name : names) RETURN_IF_ERROR(RemoveGroup(path_ + "/work/" + name));
  }
  for (const char* name : {"/work", "/agent", ""}) RETURN_IF_ERROR(RemoveGroup(path_ + name));
  for (const V1Group& v1 : v1_) RETURN_IF_ERROR(RemoveGroup(v1.path));
  return OkStatus();
}

Status ProcessGroup::Remove() {
  RETURN_IF_ERROR(RemoveGroup(path_));
  dir_.reset();
  return OkStatus();
}

Result<std::vector<std::string>> SandboxGroup::ListProcesses() const {
  return ChildGroups(path_ + "/work");
}

}  // namespace hutch::cgroups
