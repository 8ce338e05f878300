#include "cgroups/paths.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/text.h"

namespace hutch::cgroups {
namespace {

constexpr size_t kMaxControllersBytes = 64 * 1024;

}  // namespace

bool IsGroupName(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Error MakeError(int sys, const std::string& path) {
  Error error = SysError(sys, "mkdir " + path);
  if (sys == EEXIST) error.code = Code::kExists;
  if (sys == EAGAIN) error.code = Code::kLimit;  // cgroup.max.descendants, cgroup.max.depth
  return error;
}

Status MakeGroup(const std::string& path) {
  if (::mkdir(path.c_str(), kGroupMode) == 0) return OkStatus();
  return MakeError(errno, path);
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

namespace {

bool IsGone(int sys) { return sys == ENOENT || sys == ENODEV; }

Result<std::vector<std::string>> ChildrenOf(int dir_fd) {
  std::vector<std::string> names;
  UniqueFd own(::openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const list = own.valid() ? ::fdopendir(own.get()) : nullptr;
  if (list == nullptr) {
    if (IsGone(errno)) return names;
    return SysError(errno, "list groups");
  }
  [[maybe_unused]] const int owned_by_list = own.release();
  while (const dirent* entry = ::readdir(list))
    if (entry->d_type == DT_DIR && std::strcmp(entry->d_name, ".") != 0 &&
        std::strcmp(entry->d_name, "..") != 0)
      names.emplace_back(entry->d_name);
  ::closedir(list);
  return names;
}

}  // namespace

Status VisitGroups(const std::string& path, const GroupVisit& visit) {
  Result<UniqueFd> top = Open(path, O_RDONLY | O_DIRECTORY);
  if (!top) return IsGone(top.error().sys) ? OkStatus() : Status(std::move(top).error());
  UniqueFd at = std::move(*top);
  struct Level {
    std::string name;
    std::vector<std::string> left;
  };
  std::vector<Level> levels;
  std::string name;
  while (true) {
    if (visit.enter) RETURN_IF_ERROR(visit.enter(at.get()));
    ASSIGN_OR_RETURN(std::vector<std::string> children, ChildrenOf(at.get()));
    levels.push_back({std::move(name), std::move(children)});
    // Up to the next one that has a child left, and down into it.
    UniqueFd next;
    while (!next.valid()) {
      Level& level = levels.back();
      if (!level.left.empty()) {
        name = std::move(level.left.back());
        level.left.pop_back();
        next.reset(
            ::openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!next.valid() && !IsGone(errno)) return SysError(errno, "open group " + name);
        continue;
      }
      if (levels.size() == 1) return OkStatus();
      ASSIGN_OR_RETURN(UniqueFd above, OpenAt(at.get(), "..", O_RDONLY | O_DIRECTORY));
      at = std::move(above);
      if (visit.leave) RETURN_IF_ERROR(visit.leave(at.get(), level.name));
      levels.pop_back();
    }
    at = std::move(next);
  }
}

Status RemoveGroups(const std::string& path) {
  const auto remove = [&path](int parent_fd, const std::string& name) -> Status {
    if (::unlinkat(parent_fd, name.c_str(), AT_REMOVEDIR) == 0 || IsGone(errno)) return OkStatus();
    Error error = SysError(errno, "rmdir " + name + " below " + path);
    if (error.sys == EBUSY || error.sys == ENOTEMPTY) error.code = Code::kBadState;
    return error;
  };
  RETURN_IF_ERROR(VisitGroups(path, {.leave = remove}));
  return RemoveGroup(path);
}

void HandDownControllers(const std::string& group) {
  const auto available = ReadFile(group + "/cgroup.controllers", kMaxControllersBytes);
  const auto enabled = ReadFile(group + "/cgroup.subtree_control", kMaxControllersBytes);
  if (!available || !enabled) return;
  const std::vector<std::string> have = Split(Trim(*enabled), ' ');
  std::vector<std::string> want;
  for (const std::string& name : Split(Trim(*available), ' '))
    if (!name.empty() && std::find(have.begin(), have.end(), name) == have.end())
      want.push_back("+" + name);
  if (want.empty()) return;  // a write, even of what is there, takes the kernel's global lock
  if (WriteExisting(group + "/cgroup.subtree_control", Join(want, " "))) return;
  for (const std::string& name : want)
    IgnoreError(WriteExisting(group + "/cgroup.subtree_control", name), "a limit would say so");
}

}  // namespace hutch::cgroups
