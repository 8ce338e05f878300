#include "rootfs/volume_mount.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/statfs.h>

#include "base/file.h"
#include "base/sys_raw.h"
#include "rootfs/loop_device.h"

#ifndef EXT4_IOC_RESIZE_FS
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, __u64)
#endif

namespace hutch::rootfs {
namespace {

constexpr unsigned kAttributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

Error CallError(int rc, const std::string& what) { return SysError(-rc, what); }

// The kernel gives the file system that is mounted already when there is one for the device.
Result<UniqueFd> MountDevice(const std::string& device) {
  const UniqueFd fs(sys::Fsopen("ext4"));
  if (!fs.valid()) return CallError(fs.get(), "fsopen ext4");
  int rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "source", device.c_str(), 0);
  if (rc == 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_STRING, "errors", "remount-ro", 0);
  if (rc == 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_SET_FLAG, "discard", nullptr, 0);
  if (rc == 0) rc = sys::Fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (rc == -EBUSY)
    return Error{.code = Code::kUnavailable,
                 .sys = EBUSY,
                 .what = "the volume's file system has become read-only after an error",
                 .hint = "end the sandboxes that use it; the kernel's log says what happened"};
  if (rc < 0) return CallError(rc, "mount a volume");
  UniqueFd mount(sys::Fsmount(fs.get(), kAttributes));
  if (!mount.valid()) return CallError(mount.get(), "fsmount a volume");
  return mount;
}

}  // namespace

Result<UniqueFd> CloneVolume(int mount_fd, int userns_fd, VolumeAccess access) {
  UniqueFd tree(sys::OpenTree(mount_fd, "", OPEN_TREE_CLONE | AT_EMPTY_PATH));
  if (!tree.valid()) return CallError(tree.get(), "open_tree of a volume");
  struct mount_attr attr {};
  attr.attr_set = MOUNT_ATTR_IDMAP | kAttributes |
                  (access == VolumeAccess::kReadOnly ? uint64_t{MOUNT_ATTR_RDONLY} : 0);
  attr.userns_fd = static_cast<uint64_t>(userns_fd);
  if (const int rc = sys::MountSetattr(tree.get(), "", AT_EMPTY_PATH, &attr); rc < 0)
    return CallError(rc, "idmap a volume");
  return tree;
}

VolumeMount::VolumeMount(VolumeMount&& other) noexcept
    : mount_(std::move(other.mount_)),
      loop_(std::move(other.loop_)),
      directory_(std::exchange(other.directory_, {})) {}

VolumeMount::~VolumeMount() {
  if (!mount_.valid()) return;
  mount_.reset();
  ::umount2(directory_.c_str(), MNT_DETACH);
  ::rmdir(directory_.c_str());
}

Result<VolumeMount> VolumeMount::Attach(const std::string& image, const std::string& directory) {
  ASSIGN_OR_RETURN(const UniqueFd file, Open(image, O_RDWR));
  const std::string nodes = directory.substr(0, directory.rfind('/'));
  ASSIGN_OR_RETURN(LoopDevice device, TakeLoop(file.get(), nodes));
  ASSIGN_OR_RETURN(UniqueFd mount, MountDevice(device.path));
  RETURN_IF_ERROR(MakeDirectories(directory, 0700));
  const int rc =
      sys::MoveMount(mount.get(), "", AT_FDCWD, directory.c_str(), MOVE_MOUNT_F_EMPTY_PATH);
  if (rc < 0) return CallError(rc, "attach a volume");
  VolumeMount attached(std::move(mount), std::move(device.fd), directory);
  IgnoreError(attached.Thaw(), "mostly it is not frozen");
  return attached;
}

Result<VolumeMount::Use> VolumeMount::Measure() const {
  struct statfs fs {};
  if (::fstatfs(mount_.get(), &fs) != 0) return SysError(errno, "statfs of a volume");
  const auto block = static_cast<uint64_t>(fs.f_bsize);
  return Use{.total_bytes = fs.f_blocks * block,
             .used_bytes = (fs.f_blocks - fs.f_bfree) * block,
             .inodes = fs.f_files,
             .inodes_used = fs.f_files - fs.f_ffree};
}

Result<UniqueFd> VolumeMount::OpenRoot() const {
  return OpenAt(mount_.get(), ".", O_RDONLY | O_DIRECTORY);
}

Status VolumeMount::Freeze() const {
  ASSIGN_OR_RETURN(const UniqueFd root, OpenRoot());
  if (::ioctl(root.get(), FIFREEZE, 0) != 0) return SysError(errno, "freeze a volume");
  return OkStatus();
}

Status VolumeMount::Thaw() const {
  ASSIGN_OR_RETURN(const UniqueFd root, OpenRoot());
  if (::ioctl(root.get(), FITHAW, 0) != 0) return SysError(errno, "thaw a volume");
  return OkStatus();
}

Status VolumeMount::Grow() const {
  if (!CanGrowLive())
    return Error{.code = Code::kUnsupported,
                 .what = "the kernel lets a volume in use grow only with CAP_SYS_RESOURCE",
                 .hint = "destroy the sandboxes that use it, then it can grow"};
  if (::ioctl(loop_.get(), LOOP_SET_CAPACITY, 0) != 0) return SysError(errno, "LOOP_SET_CAPACITY");
  uint64_t bytes = 0;
  if (::ioctl(loop_.get(), BLKGETSIZE64, &bytes) != 0) return SysError(errno, "BLKGETSIZE64");
  struct statfs fs {};
  if (::fstatfs(mount_.get(), &fs) != 0) return SysError(errno, "statfs of a volume");
  uint64_t blocks = bytes / static_cast<uint64_t>(fs.f_bsize);
  ASSIGN_OR_RETURN(const UniqueFd root, OpenRoot());
  if (::ioctl(root.get(), EXT4_IOC_RESIZE_FS, &blocks) != 0)
    return SysError(errno, "EXT4_IOC_RESIZE_FS");
  if (::syncfs(root.get()) != 0) return SysError(errno, "sync a volume");
  return OkStatus();
}

bool CanGrowLive() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  return sys::Capget(&header, data) == 0 && (data[0].effective & 1u << CAP_SYS_RESOURCE) != 0;
}

}  // namespace hutch::rootfs
