// Builds a sandbox's root file system: an overlay of idmapped image layers, as one detached mount.
// Done by the daemon in the initial user namespace (an idmapped layer is refused inside a
// sandbox's); the sandbox only attaches it. Needs CAP_SYS_ADMIN. mount_setattr(2) MOUNT_ATTR_IDMAP
// on overlay layers: Linux 5.19.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::rootfs {

// Names in the scratch file system's root.
inline constexpr char kUpperName[] = "upper";
inline constexpr char kWorkName[] = "work";

// How layers reach overlayfs. kDescriptors: FSCONFIG_SET_FD (Linux 6.13). kPaths: /proc/self/fd
// strings of layers attached for the moment in the daemon's own mount namespace; equal result, for
// older kernels.
enum class LayerPassing { kDescriptors, kPaths };
// Tries kDescriptors once on an empty overlay.
LayerPassing ProbeLayerPassing();

struct OverlayRequest {
  std::span<const int> layers;  // O_PATH directories, lowest first; at least two without an upper
  int userns_fd = -1;           // whose id map the layers are shown through
  int upper_fd = -1;  // both or neither: writable, in one (attached or 6.15+: detached) file system
  int work_fd = -1;
  LayerPassing passing = LayerPassing::kDescriptors;
};

// The detached overlay: nosuid, nodev, read-only without an upper. kKernel names the call; an
// overlay that silently came out read-only is an error, too.
Result<UniqueFd> BuildOverlay(const OverlayRequest& request);

// One writable, bounded, detached tmpfs for everything a sandbox may write.
struct ScratchDirectory {
  std::string name;
  uint32_t mode, uid, gid;  // ids inside the sandbox
};
class Scratch {
 public:
  // nosuid, nodev; `size_bytes` is rounded up to pages by the kernel; one inode per 4 KiB, at least
  // 1024.
  static Result<Scratch> Make(uint64_t size_bytes);
  Status Resize(uint64_t size_bytes);  // fsconfig(FSCONFIG_CMD_RECONFIGURE)
  // mkdirat + chown to host_id_start + id.
  Status MakeDirectories(std::span<const ScratchDirectory> directories,
                         uint32_t host_id_start) const;
  // kProcFilesDirectory with the empty files of kLiveProcFiles, the host's root's: a sandbox can
  // read them where they are bound and write them nowhere.
  Status MakeProcFiles() const;
  Result<UniqueFd> OpenDirectory(const std::string& name) const;
  int mount_fd() const { return mount_.get(); }
  uint64_t size_bytes() const { return size_bytes_; }
  // kPaths: makes mount_fd() a mount attached at `directory` of our own mount namespace for as long
  // as the overlay is being built.
  Status AttachTemporarily(const std::string& directory);
  Status DetachAndClone();

 private:
  UniqueFd fs_;
  UniqueFd mount_;
  uint64_t size_bytes_ = 0;
};

// What is the same for every sandbox; made once, cloned for each. Attached below `directory` in the
// daemon's own (private) mount namespace: a detached mount cannot be cloned before Linux 6.15.
class Templates {
 public:
  Templates() = default;
  Templates(Templates&&) = default;
  Templates& operator=(Templates&&) = default;
  ~Templates();  // detaches them again
  // Call after unshare(CLONE_NEWNS). `skeleton_dir`: on disk, gets the mount points every root has
  // (made or completed).
  static Result<Templates> Make(const std::string& directory, const std::string& skeleton_dir);
  Result<UniqueFd> CloneDev()
      const;  // detached: null zero full random urandom tty, links; read-only, nosuid, noexec
  Result<UniqueFd> CloneMask()
      const;  // detached, read-only: rootfs/proc_files.h says what is in it
  int skeleton_fd() const {
    return skeleton_.get();
  }  // topmost lower layer: /proc, /dev and so on are real directories whatever the image says

 private:
  struct Attached {
    UniqueFd mount;
    std::string path;
  };
  static Result<Attached> Attach(const std::string& path);

  Attached dev_, mask_;
  UniqueFd skeleton_;
};

}  // namespace hutch::rootfs
