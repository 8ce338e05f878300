#include "cgroups/paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

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
