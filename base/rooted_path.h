// The one type for "a path inside an untrusted root". It yields descriptors and nothing else: no
// string that was resolved once and is used again, so symlinks, ".." and renames by whoever owns
// the root have nothing to attack. openat2(2), RESOLVE_IN_ROOT or RESOLVE_BENEATH, always with
// RESOLVE_NO_MAGICLINKS. Linux 5.6.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch {

// How symlinks on the way are treated.
enum class Links {
  kInRoot,   // followed, "/" and ".." stay inside the root (RESOLVE_IN_ROOT): as the container
             // itself would see it
  kBeneath,  // followed, but one that leaves the root is an error (RESOLVE_BENEATH)
  kNone,     // any symlink on the way, last component included, is an error (RESOLVE_BENEATH |
             // RESOLVE_NO_SYMLINKS)
};

class RootedPath {
 public:
  // Borrows root_fd (a directory, O_PATH is enough) for the lifetime of the value. `path` is
  // relative to the root; leading slashes are ignored. kInvalidArgument for an empty path, a NUL
  // byte, or more than PATH_MAX - 1 bytes.
  static Result<RootedPath> Make(int root_fd, std::string path, Links links = Links::kInRoot);

  const std::string& shown() const { return path_; }  // for messages

  // Opens what is there. Flags as open(2), O_CLOEXEC added; O_CREAT is refused (use CreateFile).
  Result<UniqueFd> Open(int flags) const;
  // Opens a directory (O_PATH | O_DIRECTORY).
  Result<UniqueFd> OpenDirectory() const;
  // Opens a regular file O_RDONLY without ever blocking on a FIFO or touching a device: checked by
  // fstat.
  Result<UniqueFd> OpenRegularFile() const;
  // Opens the directory that holds the last component, which is returned in *name ("." and ".." are
  // refused).
  Result<UniqueFd> OpenParent(std::string* name) const;
  // mkdir -p, component by component on descriptors; new ones get `mode` and owner uid:gid. Returns
  // the directory.
  Result<UniqueFd> MakeDirectories(mode_t mode, uid_t uid, gid_t gid) const;
  // O_CREAT | O_EXCL | O_NOFOLLOW below the parent directory.
  Result<UniqueFd> CreateFile(mode_t mode) const;
  // lstat-like: of the last component itself, not of what it points to.
  Result<struct stat> Stat() const;

 private:
  RootedPath(int root_fd, std::string path, Links links)
      : root_fd_(root_fd), path_(std::move(path)), links_(links) {}
  Result<UniqueFd> OpenBelow(const std::string& path, uint64_t flags) const;

  int root_fd_;
  std::string path_;
  Links links_;
};

}  // namespace hutch
