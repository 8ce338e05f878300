#include "cgroups/paths.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace hutch::cgroups {

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

}  // namespace hutch::cgroups
