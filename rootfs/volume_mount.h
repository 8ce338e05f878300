// A volume's file system as mounts: one of hutchd's own for each volume in use, and from it a clone
// for each sandbox. Needs CAP_SYS_ADMIN.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::rootfs {

enum class VolumeAccess { kReadWrite, kReadOnly };

// A detached clone of a volume's mount as a sandbox sees it: owners through the id map of
// `userns_fd`, nosuid and nodev, and read-only where that is asked for. `mount_fd` must be attached
// in our mount namespace: a detached mount cannot be cloned before Linux 6.15.
Result<UniqueFd> CloneVolume(int mount_fd, int userns_fd, VolumeAccess access);

// The ext4 file system in an image file, mounted through a loop device: attached below a directory
// of our own, private mount namespace, and detached by the destructor, which may wait for the disk.
// The file system and the device live on while any sandbox has a clone; mounting the same image
// again finds them: never is there a second device for one image.
class VolumeMount {
 public:
  // `image` is O_RDWR. It is locked (flock(2)) for as long as the device is there, whoever holds
  // that. `directory` is made. A file system that an earlier daemon left frozen is thawed.
  // kUnavailable while something else holds the image (a tool, or a device that is going).
  static Result<VolumeMount> Attach(const std::string& image, const std::string& directory);
  VolumeMount(VolumeMount&& other) noexcept;
  VolumeMount& operator=(VolumeMount&&) = delete;
  ~VolumeMount();

  int fd() const { return mount_.get(); }  // O_PATH of its root
  const std::string& directory() const { return directory_; }

  struct Use {
    uint64_t total_bytes = 0, used_bytes = 0, inodes = 0, inodes_used = 0;
  };
  Result<Use> Measure() const;

  // From Freeze() to Thaw() everything written is in the image and nothing more is; whoever writes
  // waits.
  Status Freeze() const;
  Status Thaw() const;
  // The device takes the image's new size, and the file system the device's. kUnsupported without
  // CAP_SYS_RESOURCE, which the kernel wants for it.
  Status Grow() const;

 private:
  VolumeMount(UniqueFd mount, UniqueFd loop, std::string directory)
      : mount_(std::move(mount)), loop_(std::move(loop)), directory_(std::move(directory)) {}
  Result<UniqueFd> OpenRoot() const;  // for ioctl(2)

  UniqueFd mount_, loop_;
  std::string directory_;
};

// Whether live growth is possible: CAP_SYS_RESOURCE is effective.
bool CanGrowLive();

}  // namespace hutch::rootfs
