#include "rootfs/unpack/entry_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <memory>

#include "base/sys_raw.h"

namespace hutch::rootfs {
namespace {

constexpr uint64_t kInside = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
constexpr size_t kShownBytes = 256;

using DirHandle = std::unique_ptr<DIR, int (*)(DIR*)>;

bool IsDots(const char* name) {
  return std::string_view(name) == "." || std::string_view(name) == "..";
}

}  // namespace

Error BadEntry(std::string_view path, const std::string& why) {
  return Error{.code = Code::kInvalidArgument,
               .what = "entry \"" + std::string(path.substr(0, kShownBytes)) + "\": " + why};
}

Error EntryError(int sys, const char* verb, std::string_view path) {
  if (sys == ELOOP || sys == EXDEV || sys == ENOTDIR) {
    Error error = BadEntry(path, "its path leads through something that is no directory");
    error.sys = sys;
    return error;
  }
  return SysError(sys, std::string(verb) + " \"" + std::string(path.substr(0, kShownBytes)) + "\"");
}

Result<UniqueFd> OpenEntry(int dir_fd, const std::string& path, uint64_t flags, uint64_t mode) {
  const int fd = sys::Openat2(dir_fd, path.empty() ? "." : path.c_str(), flags, kInside, mode);
  if (fd < 0) return EntryError(-fd, "open", path);
  return UniqueFd(fd);
}

Status RemoveEntry(int parent_fd, const std::string& name, const std::string& shown) {
  if (::unlinkat(parent_fd, name.c_str(), 0) == 0 || errno == ENOENT) return OkStatus();
  if (errno != EISDIR && errno != EPERM) return EntryError(errno, "replace", shown);
  ASSIGN_OR_RETURN(UniqueFd fd, OpenEntry(parent_fd, name, O_RDONLY | O_DIRECTORY));
  DirHandle dir(::fdopendir(fd.get()), ::closedir);
  if (dir == nullptr) return EntryError(errno, "list", shown);
  const int dir_fd = fd.release();  // closed with dir
  while (const dirent* entry = ::readdir(dir.get())) {
    if (IsDots(entry->d_name)) continue;
    RETURN_IF_ERROR(RemoveEntry(dir_fd, entry->d_name, shown + "/" + entry->d_name));
  }
  if (::unlinkat(parent_fd, name.c_str(), AT_REMOVEDIR) != 0)
    return EntryError(errno, "replace", shown);
  return OkStatus();
}

Status WriteAt(int fd, const void* bytes, size_t size, uint64_t offset, std::string_view shown) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::pwrite(fd, static_cast<const char*>(bytes) + done, size - done,
                               static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return EntryError(errno, "write", shown);
    done += static_cast<size_t>(n);
  }
  return OkStatus();
}

}  // namespace hutch::rootfs
