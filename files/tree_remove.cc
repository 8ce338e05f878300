#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <set>

#include "base/unique_fd.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/open.h"
#include "files/request.h"
#include "files/tree.h"

namespace hutch::files {
namespace {

using DirHandle = std::unique_ptr<DIR, int (*)(DIR*)>;

bool IsDots(std::string_view name) { return name == "." || name == ".."; }

// Whether `name` is where something is mounted; an unlink of it would fail, after everything below
// it was removed.
bool IsMount(int dir_fd, const char* name) {
  struct statx st {};
  return ::statx(dir_fd, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) == 0 &&
         (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

class Remover {
 public:
  Remover(int top_fd, std::string shown) : top_fd_(top_fd), shown_(std::move(shown)) {}

  // Removes one name. `depth` counts directories below the first.
  void Remove(int dir_fd, const std::string& name, size_t depth) {
    if (::unlinkat(dir_fd, name.c_str(), 0) == 0) return Count();
    if (errno == ENOENT) return;
    if (errno != EISDIR && errno != EPERM) return Failed(errno, dir_fd, name);
    if (::unlinkat(dir_fd, name.c_str(), AT_REMOVEDIR) == 0) return Count();
    if (errno != ENOTEMPTY) return errno == ENOENT ? void() : Failed(errno, dir_fd, name);
    if (depth > kFlattenDepth) return MoveUp(dir_fd, name);
    if (IsMount(dir_fd, name.c_str())) return Failed(EBUSY, dir_fd, name);
    Below(dir_fd, name, depth);
    if (::unlinkat(dir_fd, name.c_str(), AT_REMOVEDIR) == 0) return Count();
    if (errno != ENOENT) Failed(errno, dir_fd, name);
  }

  // Directories that were moved up, until there are none; each may move up others.
  void RemoveMoved() {
    while (!moved_.empty()) {
      const std::string name = std::move(*moved_.begin());
      moved_.erase(moved_.begin());
      Remove(top_fd_, name, 0);
    }
  }

  Result<RemoveOutcome> Outcome() && {
    if (error_) return *std::move(error_);
    return RemoveOutcome{removed_};
  }

 private:
  void Count() { ++removed_; }

  void Below(int dir_fd, const std::string& name, size_t depth) {
    UniqueFd fd(::openat(dir_fd, name.c_str(),
                         O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd.valid()) return errno == ENOENT ? void() : Failed(errno, dir_fd, name);
    // Directories without write permission are what package caches are made of.
    struct stat st {};
    if (::fstat(fd.get(), &st) == 0 && (st.st_mode & 0300) != 0300 && st.st_uid == ::geteuid())
      IgnoreChange(::fchmod(fd.get(), 0700));
    DirHandle dir(::fdopendir(fd.get()), ::closedir);
    if (dir == nullptr) return Failed(errno, dir_fd, name);
    fd.release();
    while (const dirent* entry = ::readdir(dir.get()))
      if (!IsDots(entry->d_name)) Remove(::dirfd(dir.get()), entry->d_name, depth + 1);
  }

  // A tree can be deeper than there are descriptors. What lies too deep is moved to the top and
  // removed from there.
  void MoveUp(int dir_fd, const std::string& name) {
    std::string fresh = TemporaryName();
    if (::renameat2(dir_fd, name.c_str(), top_fd_, fresh.c_str(), RENAME_NOREPLACE) != 0)
      return errno == ENOENT ? void() : Failed(errno, dir_fd, name);
    moved_.insert(std::move(fresh));
  }

  static void IgnoreChange(int) {}  // what follows will say so

  void Failed(int sys, int, const std::string& name) {
    if (!error_) error_ = FileError(sys, "delete", shown_ + " (at \"" + name + "\")");
  }

  int top_fd_;
  std::string shown_;
  uint64_t removed_ = 0;
  std::set<std::string> moved_;
  std::optional<Error> error_;
};

}  // namespace

Result<RemoveOutcome> RemoveAll(int dir_fd, const std::string& name, const std::string& shown) {
  struct stat st {};
  if (::fstatat(dir_fd, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return FileError(errno, "delete", shown);
  if (IsMount(dir_fd, name.c_str())) return FileError(EBUSY, "delete", shown);
  Remover remover(dir_fd, shown);
  remover.Remove(dir_fd, name, 0);
  remover.RemoveMoved();
  return std::move(remover).Outcome();
}

}  // namespace hutch::files
