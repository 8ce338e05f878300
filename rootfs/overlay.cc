#include "rootfs/overlay.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/sys_raw.h"

namespace hutch::rootfs {
namespace {

Error CallError(int rc, const std::string& what) { return SysError(-rc, what); }

// A detached clone of a layer, shown through the sandbox's id map; never writable through this
// mount.
Result<UniqueFd> IdmapLayer(int layer_fd, int userns_fd) {
  UniqueFd tree(sys::OpenTree(layer_fd, "", OPEN_TREE_CLONE | AT_EMPTY_PATH));
  if (!tree.valid()) return CallError(tree.get(), "open_tree of a layer");
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  attr.userns_fd = static_cast<uint64_t>(userns_fd);
  if (const int rc = sys::MountSetattr(tree.get(), "", AT_EMPTY_PATH, &attr); rc < 0)
    return CallError(rc, "idmap a layer");
  return tree;
}

Status SetFd(int fs, const char* key, int fd) {
  if (const int rc = sys::Fsconfig(fs, FSCONFIG_SET_FD, key, nullptr, fd); rc < 0)
    return CallError(rc, std::string("overlay option ") + key);
  return OkStatus();
}

Status SetString(int fs, const char* key, const std::string& value) {
  if (const int rc = sys::Fsconfig(fs, FSCONFIG_SET_STRING, key, value.c_str(), 0); rc < 0)
    return CallError(rc, std::string("overlay option ") + key);
  return OkStatus();
}

std::string FdPath(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// Layers attached on their own directories in our mount namespace, detached again at the end of the
// scope.
class AttachedLayers {
 public:
  Status Attach(int tree_fd, int layer_fd) {
    const int rc = sys::MoveMount(tree_fd, "", layer_fd, "",
                                  MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
    if (rc < 0) return CallError(rc, "attach a layer");
    fds_.push_back(tree_fd);
    return OkStatus();
  }
  ~AttachedLayers() {
    for (const int fd : fds_) ::umount2(FdPath(fd).c_str(), MNT_DETACH);
  }

 private:
  std::vector<int> fds_;
};

Status SetLayers(int fs, const OverlayRequest& request, const std::vector<UniqueFd>& lowers,
                 AttachedLayers& attached) {
  if (request.passing == LayerPassing::kDescriptors) {
    for (size_t i = lowers.size(); i-- > 0;)
      RETURN_IF_ERROR(SetFd(fs, "lowerdir+", lowers[i].get()));
    if (request.upper_fd < 0) return OkStatus();
    RETURN_IF_ERROR(SetFd(fs, "upperdir", request.upper_fd));
    return SetFd(fs, "workdir", request.work_fd);
  }
  std::string lowerdir;
  for (size_t i = lowers.size(); i-- > 0;) {  // overlayfs wants the topmost first
    RETURN_IF_ERROR(attached.Attach(lowers[i].get(), request.layers[i]));
    lowerdir += (lowerdir.empty() ? "" : ":") + FdPath(lowers[i].get());
  }
  RETURN_IF_ERROR(SetString(fs, "lowerdir", lowerdir));
  if (request.upper_fd < 0) return OkStatus();
  RETURN_IF_ERROR(SetString(fs, "upperdir", FdPath(request.upper_fd)));
  return SetString(fs, "workdir", FdPath(request.work_fd));
}

// An upper that overlayfs cannot use gives a read-only mount and no error (kernel log: "mounting
// read-only").
Status VerifyWritability(int mount_fd, bool writable) {
  struct statvfs fs {};
  if (::fstatvfs(mount_fd, &fs) != 0) return SysError(errno, "fstatvfs of the overlay");
  const bool readonly = (fs.f_flag & ST_RDONLY) != 0;
  if (readonly == !writable) return OkStatus();
  return Error{.code = Code::kKernel,
               .what = writable ? "the kernel mounted the overlay read-only (see its log)"
                                : "the overlay came out writable"};
}

}  // namespace

LayerPassing ProbeLayerPassing() {
  const UniqueFd fs(sys::Fsopen("overlay"));
  const UniqueFd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fs.valid() || !root.valid()) return LayerPassing::kPaths;
  return sys::Fsconfig(fs.get(), FSCONFIG_SET_FD, "lowerdir+", nullptr, root.get()) == 0
             ? LayerPassing::kDescriptors
             : LayerPassing::kPaths;
}

Result<UniqueFd> BuildOverlay(const OverlayRequest& request) {
  std::vector<UniqueFd> lowers;
  for (const int layer : request.layers) {
    ASSIGN_OR_RETURN(UniqueFd lower, IdmapLayer(layer, request.userns_fd));
    lowers.push_back(std::move(lower));
  }
  const UniqueFd fs(sys::Fsopen("overlay"));
  if (!fs.valid()) return CallError(fs.get(), "fsopen overlay");
  AttachedLayers attached;
  // Whatever the kernel's defaults: the upper has to say by itself what changed, for it is looked
  // at and sealed without the overlay.
  if (request.upper_fd >= 0) {
    RETURN_IF_ERROR(SetString(fs.get(), "redirect_dir", "off"));
    RETURN_IF_ERROR(SetString(fs.get(), "metacopy", "off"));
  }
  RETURN_IF_ERROR(SetLayers(fs.get(), request, lowers, attached));
  if (const int rc = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0); rc < 0)
    return CallError(rc, "create the overlay");
  const bool writable = request.upper_fd >= 0;
  const unsigned attributes =
      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (writable ? 0u : MOUNT_ATTR_RDONLY);
  UniqueFd mount(sys::Fsmount(fs.get(), attributes));
  if (!mount.valid()) return CallError(mount.get(), "fsmount overlay");
  RETURN_IF_ERROR(VerifyWritability(mount.get(), writable));
  return mount;
}

}  // namespace hutch::rootfs
