// The last changes of a container's root: what is taken away from it.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/rooted_path.h"
#include "base/sys_raw.h"
#include "rootfs/container_mount_options.h"
#include "rootfs/container_mounts.h"
#include "rootfs/container_sysctl.h"

namespace hutch::rootfs {
namespace {

constexpr unsigned kByDescriptors = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;

Status SetReadonly(int tree_fd, const std::string& path, unsigned depth = 0) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  const int rc = sys::MountSetattr(tree_fd, "", AT_EMPTY_PATH | depth, &attributes);
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
  RETURN_IF_ERROR(SetReadonly(tree.get(), path, AT_RECURSIVE));
  return Cover(tree.get(), target.get(), path);
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

// The first of a kind is attached itself; those after it are clones of what is attached by then.
Status CoverWithCopy(UniqueFd& cover, bool& used, int target_fd, const std::string& path) {
  if (!used) {
    used = true;
    return Cover(cover.get(), target_fd, path);
  }
  const UniqueFd tree(sys::OpenTree(cover.get(), "", OPEN_TREE_CLONE | AT_EMPTY_PATH));
  if (tree.get() < 0) return SysError(-tree.get(), "clone what covers " + path);
  return Cover(tree.get(), target_fd, path);
}

Status MaskAll(PreparedContainerMounts& m, int root_fd) {
  UniqueFd empty;
  bool null_used = false, empty_used = false;
  for (const std::string& path : m.config->linux_.masked_paths) {
    ASSIGN_OR_RETURN(const UniqueFd target, OpenTarget(root_fd, path));
    if (!target.valid()) continue;
    struct stat st {};
    if (::fstat(target.get(), &st) != 0) return SysError(errno, path);
    if (!S_ISDIR(st.st_mode)) {
      RETURN_IF_ERROR(CoverWithCopy(m.null, null_used, target.get(), path));
      continue;
    }
    if (!empty.valid()) {
      ASSIGN_OR_RETURN(empty, EmptyDirectory());
    }
    RETURN_IF_ERROR(CoverWithCopy(empty, empty_used, target.get(), path));
  }
  return OkStatus();
}

Status SetPropagation(const std::string& word) {
  if (word.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const ContainerMountOptions options, ReadMountOptions({word}, "/"));
  if (options.propagation == 0)
    return Error{.code = Code::kInvalidArgument,
                 .what = "\"" + word + "\" is no propagation",
                 .field = "linux.rootfsPropagation"};
  // The other mounts have theirs from when they were made (container_mounts.cc).
  const bool all = options.propagation == MS_UNBINDABLE && options.propagation_all;
  const unsigned long flags = options.propagation | (all ? MS_REC : 0);
  if (::mount(nullptr, "/", nullptr, flags, nullptr) != 0)
    return SysError(errno, "propagation of the root");
  return OkStatus();
}

}  // namespace

Status SealContainerRoot(PreparedContainerMounts& m) {
  const oci::ContainerLinux& linux_part = m.config->linux_;
  ASSIGN_OR_RETURN(const UniqueFd root, Open("/", O_PATH | O_DIRECTORY));
  if (!linux_part.sysctl.empty()) {
    ASSIGN_OR_RETURN(const UniqueFd proc, OpenVerifiedProc(root.get()));
    for (const auto& [name, value] : linux_part.sysctl)
      RETURN_IF_ERROR(WriteSysctl(proc.get(), name, value));
  }
  if (!m.where.own_mounts) return OkStatus();
  for (const std::string& path : linux_part.readonly_paths)
    RETURN_IF_ERROR(MakeReadonly(root.get(), path));
  RETURN_IF_ERROR(MaskAll(m, root.get()));
  if (m.late_readonly_dev) {
    ASSIGN_OR_RETURN(const UniqueFd dev, OpenTarget(root.get(), "/dev"));
    RETURN_IF_ERROR(SetReadonly(dev.get(), "/dev"));
  }
  RETURN_IF_ERROR(SetPropagation(linux_part.rootfs_propagation));
  return m.config->root.readonly ? SetReadonly(root.get(), "the root") : OkStatus();
}

}  // namespace hutch::rootfs
