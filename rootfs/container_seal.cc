// The last changes of a container's root: what is taken away from it.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "rootfs/container_mount_options.h"
#include "rootfs/container_mounts.h"

namespace hutch::rootfs {
namespace {

constexpr unsigned kByDescriptors = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;

Status SetReadonly(int tree_fd, const std::string& path) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  const int rc = sys::MountSetattr(tree_fd, "", AT_EMPTY_PATH, &attributes);
  return rc < 0 ? Status(SysError(-rc, "make " + path + " read-only")) : OkStatus();
}

Status Cover(int tree_fd, int target_fd, const std::string& path) {
  const int rc = sys::MoveMount(tree_fd, "", target_fd, "", kByDescriptors);
  return rc < 0 ? Status(SysError(-rc, "cover " + path)) : OkStatus();
}

// Not there: nothing to hide.
Result<UniqueFd> OpenTarget(int root_fd, const std::string& path) {
  ASSIGN_OR_RETURN(const RootedPath place, RootedPath::Make(root_fd, path));
  Result<UniqueFd> target = place.Open(O_PATH);
  if (!target && (target.error().sys == ENOENT || target.error().sys == ENOTDIR ||
                  target.error().sys == EACCES))
    return UniqueFd();
  return target;
}

Status MakeReadonly(int root_fd, const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd target, OpenTarget(root_fd, path));
  if (!target.valid()) return OkStatus();
  const UniqueFd tree(
      sys::OpenTree(target.get(), "", OPEN_TREE_CLONE | AT_EMPTY_PATH | AT_RECURSIVE));
  if (tree.get() < 0) return SysError(-tree.get(), "clone " + path);
  RETURN_IF_ERROR(SetReadonly(tree.get(), path));
  return Cover(tree.get(), target.get(), path);
}

// /dev/null proves to be the null device before anything is hidden behind it (CVE-2025-31133).
Result<UniqueFd> NullClone(int root_fd) {
  ASSIGN_OR_RETURN(const RootedPath place, RootedPath::Make(root_fd, "dev/null", Links::kNone));
  ASSIGN_OR_RETURN(const UniqueFd null, place.Open(O_PATH | O_NOFOLLOW));
  struct stat st;
  if (::fstat(null.get(), &st) != 0) return SysError(errno, "/dev/null");
  if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
    return Error{.code = Code::kForbidden, .what = "/dev/null is not the null device"};
  UniqueFd tree(sys::OpenTree(null.get(), "", OPEN_TREE_CLONE | AT_EMPTY_PATH));
  if (tree.get() < 0) return SysError(-tree.get(), "clone /dev/null");
  return tree;
}

Result<UniqueFd> EmptyDirectory() {
  const UniqueFd fs(sys::Fsopen("tmpfs"));
  if (fs.get() < 0) return SysError(-fs.get(), "tmpfs");
  int rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "nr_inodes", "1", 0);
  if (rc >= 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (rc < 0) return SysError(-rc, "tmpfs");
  UniqueFd tree(sys::Fsmount(
      fs.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  if (tree.get() < 0) return SysError(-tree.get(), "tmpfs");
  return tree;
}

Status Mask(int root_fd, const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd target, OpenTarget(root_fd, path));
  if (!target.valid()) return OkStatus();
  struct stat st;
  if (::fstat(target.get(), &st) != 0) return SysError(errno, path);
  ASSIGN_OR_RETURN(const UniqueFd tree,
                   S_ISDIR(st.st_mode) ? EmptyDirectory() : NullClone(root_fd));
  return Cover(tree.get(), target.get(), path);
}

Status WriteSysctl(int root_fd, const std::string& name, const std::string& value) {
  std::string path = "proc/sys/" + name;
  if (name.find('/') == std::string::npos)
    for (char& c : path)
      if (c == '.') c = '/';
  ASSIGN_OR_RETURN(const RootedPath place, RootedPath::Make(root_fd, path, Links::kNone));
  ASSIGN_OR_RETURN(const UniqueFd file, place.Open(O_WRONLY));
  struct statfs fs;
  if (::fstatfs(file.get(), &fs) != 0 || fs.f_type != PROC_SUPER_MAGIC)
    return Error{.code = Code::kForbidden, .what = "sysctl " + name + ": /proc is no procfs"};
  Status written = WriteAll(file.get(), value);
  if (written) return written;
  Error error = std::move(written).error();
  error.what = "sysctl " + name + ": " + error.what;
  return error;
}

Status SetPropagation(const std::string& word) {
  if (word.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const ContainerMountOptions options, ReadMountOptions({word}, "/"));
  if (options.propagation == 0)
    return Error{.code = Code::kInvalidArgument,
                 .what = "\"" + word + "\" is no propagation",
                 .field = "linux.rootfsPropagation"};
  const unsigned long flags = options.propagation | (options.propagation_all ? MS_REC : 0);
  if (::mount(nullptr, "/", nullptr, flags, nullptr) != 0)
    return SysError(errno, "propagation of the root");
  return OkStatus();
}

}  // namespace

Status SealContainerRoot(PreparedContainerMounts& m) {
  const oci::ContainerLinux& linux_part = m.config->linux_;
  ASSIGN_OR_RETURN(const UniqueFd root, Open("/", O_PATH | O_DIRECTORY));
  for (const auto& [name, value] : linux_part.sysctl)
    RETURN_IF_ERROR(WriteSysctl(root.get(), name, value));
  if (!m.where.own_mounts) return OkStatus();
  for (const std::string& path : linux_part.readonly_paths)
    RETURN_IF_ERROR(MakeReadonly(root.get(), path));
  for (const std::string& path : linux_part.masked_paths) RETURN_IF_ERROR(Mask(root.get(), path));
  RETURN_IF_ERROR(SetPropagation(linux_part.rootfs_propagation));
  return m.config->root.readonly ? SetReadonly(root.get(), "the root") : OkStatus();
}

}  // namespace hutch::rootfs
