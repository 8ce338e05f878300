#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "rootfs/overlay.h"
#include "rootfs/proc_files.h"

namespace hutch::rootfs {
namespace {

constexpr uint64_t kBytesPerInode = 4096;
constexpr uint64_t kMinInodes = 1024;

Status SetSize(int fs, uint64_t size_bytes) {
  const std::string inodes = std::to_string(std::max(size_bytes / kBytesPerInode, kMinInodes));
  int rc = sys::Fsconfig(fs, FSCONFIG_SET_STRING, "size", std::to_string(size_bytes).c_str(), 0);
  if (rc == 0) rc = sys::Fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", inodes.c_str(), 0);
  if (rc < 0) return SysError(-rc, "size of the scratch file system");
  return OkStatus();
}

}  // namespace

Result<Scratch> Scratch::Make(uint64_t size_bytes) {
  Scratch scratch;
  scratch.fs_.reset(sys::Fsopen("tmpfs"));
  if (!scratch.fs_.valid()) return SysError(-scratch.fs_.get(), "fsopen tmpfs");
  RETURN_IF_ERROR(SetSize(scratch.fs_.get(), size_bytes));
  int rc = sys::Fsconfig(scratch.fs_.get(), FSCONFIG_SET_STRING, "mode", "0755", 0);
  if (rc == 0) rc = sys::Fsconfig(scratch.fs_.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (rc < 0) return SysError(-rc, "create the scratch file system");
  scratch.mount_.reset(sys::Fsmount(scratch.fs_.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
  if (!scratch.mount_.valid()) return SysError(-scratch.mount_.get(), "fsmount tmpfs");
  scratch.size_bytes_ = size_bytes;
  return scratch;
}

Status Scratch::Resize(uint64_t size_bytes) {
  if (size_bytes == size_bytes_) return OkStatus();
  RETURN_IF_ERROR(SetSize(fs_.get(), size_bytes));
  if (const int rc = sys::Fsconfig(fs_.get(), FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0);
      rc < 0)
    return SysError(-rc, "resize the scratch file system");
  size_bytes_ = size_bytes;
  return OkStatus();
}

Status Scratch::MakeDirectories(std::span<const ScratchDirectory> directories,
                                uint32_t host_id_start) const {
  for (const ScratchDirectory& d : directories) {
    if (::mkdirat(mount_.get(), d.name.c_str(), 0700) != 0 && errno != EEXIST)
      return SysError(errno, "make scratch directory " + d.name);
    if (::fchownat(mount_.get(), d.name.c_str(), host_id_start + d.uid, host_id_start + d.gid,
                   AT_SYMLINK_NOFOLLOW) != 0)
      return SysError(errno, "chown scratch directory " + d.name);
    if (::fchmodat(mount_.get(), d.name.c_str(), d.mode, 0) != 0)
      return SysError(errno, "chmod scratch directory " + d.name);
  }
  return OkStatus();
}

Status Scratch::MakeProcFiles() const {
  if (::mkdirat(mount_.get(), kProcFilesDirectory, 0755) != 0 ||
      ::fchmodat(mount_.get(), kProcFilesDirectory, 0711, 0) != 0)
    return SysError(errno, "make the directory of /proc's files");
  ASSIGN_OR_RETURN(const UniqueFd directory, OpenAt(mount_.get(), kProcFilesDirectory, O_RDONLY));
  for (const char* name : kLiveProcFiles) {
    ASSIGN_OR_RETURN(const UniqueFd file,
                     OpenAt(directory.get(), name, O_WRONLY | O_CREAT | O_EXCL, 0444));
    if (::fchmod(file.get(), 0444) != 0) return SysError(errno, std::string("chmod ") + name);
  }
  return OkStatus();
}

Result<UniqueFd> Scratch::OpenDirectory(const std::string& name) const {
  return OpenAt(mount_.get(), name, O_PATH | O_DIRECTORY | O_NOFOLLOW);
}

Status Scratch::AttachTemporarily(const std::string& directory) {
  const int rc =
      sys::MoveMount(mount_.get(), "", AT_FDCWD, directory.c_str(), MOVE_MOUNT_F_EMPTY_PATH);
  if (rc < 0) return SysError(-rc, "attach the scratch file system");
  return OkStatus();
}

Status Scratch::DetachAndClone() {
  UniqueFd clone(sys::OpenTree(mount_.get(), "", OPEN_TREE_CLONE | AT_EMPTY_PATH));
  const std::string path = "/proc/self/fd/" + std::to_string(mount_.get());
  const bool detached = ::umount2(path.c_str(), MNT_DETACH) == 0;
  const int sys = errno;
  if (!clone.valid()) return SysError(-clone.get(), "clone the scratch file system");
  if (!detached) return SysError(sys, "detach the scratch file system");
  mount_ = std::move(clone);
  return OkStatus();
}

}  // namespace hutch::rootfs
