// Whether a procfs can be given subset=pid after it was mounted. Newer kernels refuse that.
#include "base/sys_raw.h"
#include "rootfs/mount_plan.h"

namespace hutch::rootfs {
namespace {

struct Closing {
  int fd;
  ~Closing() {
    if (fd >= 0) ::close(fd);
  }
};

// On an instance of its own, attached nowhere.
bool Probe() noexcept {
  const Closing fs{sys::Fsopen("proc")};
  if (fs.fd < 0 || sys::Fsconfig(fs.fd, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) < 0) return false;
  const Closing mount{sys::Fsmount(fs.fd, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)};
  if (mount.fd < 0) return false;
  const Closing picked{sys::Fspick(mount.fd, "", FSPICK_CLOEXEC | FSPICK_EMPTY_PATH)};
  return picked.fd >= 0 && sys::Fsconfig(picked.fd, FSCONFIG_SET_STRING, "subset", "pid", 0) >= 0 &&
         sys::Fsconfig(picked.fd, FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0) >= 0;
}

int g_can_seal = -1;  // not asked yet

}  // namespace

bool CanSealProc() noexcept {
  if (g_can_seal < 0) g_can_seal = Probe() ? 1 : 0;
  return g_can_seal == 1;
}

}  // namespace hutch::rootfs
