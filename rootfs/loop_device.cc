#include "rootfs/loop_device.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <thread>

#include "base/file.h"
#include "base/text.h"

namespace hutch::rootfs {
namespace {

constexpr char kControl[] = "/dev/loop-control";
constexpr char kBlockDevices[] = "/sys/block";
constexpr std::string_view kPrefix = "loop";
constexpr unsigned kLoopMajor = 7;
constexpr uint32_t kBlockBytes = 4096;  // as ext4's: an image is a whole number of them
// Another may take the number first; a device that is going keeps its lock for a moment.
constexpr int kTries = 400;
constexpr std::chrono::milliseconds kPause{5};

Result<UniqueFd> OpenNode(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd fd, Open(path, O_RDWR));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return SysError(errno, "fstat " + path);
  if (!S_ISBLK(st.st_mode) || major(st.st_rdev) != kLoopMajor)
    return Error{.code = Code::kCorrupt, .what = path + " is no loop device"};
  return fd;
}

// The kernel makes nodes where a devtmpfs is mounted; a static /dev may lack them.
Result<LoopDevice> OpenDevice(unsigned number, const std::string& nodes_dir) {
  const std::string name = std::string(kPrefix) + std::to_string(number);
  LoopDevice device{UniqueFd(), "/dev/" + name};
  if (!PathExists(device.path)) {
    device.path = nodes_dir + "/" + name;
    if (::mknod(device.path.c_str(), S_IFBLK | 0600, makedev(kLoopMajor, number)) != 0 &&
        errno != EEXIST)
      return SysError(errno, "mknod " + device.path);
  }
  ASSIGN_OR_RETURN(device.fd, OpenNode(device.path));
  return device;
}

bool Backs(int loop_fd, const struct stat& image) {
  struct loop_info64 info {};
  return ::ioctl(loop_fd, LOOP_GET_STATUS64, &info) == 0 && info.lo_device == image.st_dev &&
         info.lo_inode == image.st_ino;
}

Status Configure(int loop_fd, int image_fd) {
  struct loop_config config {};
  config.fd = static_cast<uint32_t>(image_fd);
  config.block_size = kBlockBytes;
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  if (::ioctl(loop_fd, LOOP_CONFIGURE, &config) == 0) return OkStatus();
  return SysError(errno, "LOOP_CONFIGURE");
}

}  // namespace

Result<LoopDevice> FindLoop(int image_fd, const std::string& nodes_dir) {
  struct stat image {};
  if (::fstat(image_fd, &image) != 0) return SysError(errno, "fstat of an image");
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(kBlockDevices));
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix)) continue;
    if (!PathExists(std::string(kBlockDevices) + "/" + name + "/loop/backing_file")) continue;
    const auto number = ParseUint(name.substr(kPrefix.size()));
    if (!number) continue;
    auto device = OpenDevice(static_cast<unsigned>(*number), nodes_dir);
    if (device && Backs(device->fd.get(), image)) return device;
  }
  return LoopDevice{UniqueFd(), ""};
}

Result<LoopDevice> TakeLoop(int image_fd, const std::string& nodes_dir) {
  const UniqueFd control(::open(kControl, O_RDWR | O_CLOEXEC));
  if (!control.valid()) return SysError(errno, std::string("open ") + kControl);
  for (int i = 0; i < kTries; ++i) {
    ASSIGN_OR_RETURN(LoopDevice found, FindLoop(image_fd, nodes_dir));
    if (found.fd.valid()) return found;
    if (::flock(image_fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return SysError(errno, "lock an image");
      std::this_thread::sleep_for(kPause);
      continue;
    }
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return SysError(errno, "LOOP_CTL_GET_FREE");
    ASSIGN_OR_RETURN(LoopDevice device, OpenDevice(static_cast<unsigned>(number), nodes_dir));
    Status configured = Configure(device.fd.get(), image_fd);
    if (configured.has_value()) return device;
    if (configured.error().sys != EBUSY) return std::move(configured).error();
  }
  return Error{.code = Code::kUnavailable, .what = "the image is held by something else"};
}

}  // namespace hutch::rootfs
