// Loop devices: a block device whose bytes are a file's. loop(4). Needs CAP_SYS_ADMIN.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::rootfs {

struct LoopDevice {
  UniqueFd fd;       // while it is open the device stays
  std::string path;  // its node
};

// The device whose file is the one open as `image_fd`: found again, or made. It goes by itself when
// nothing has it open or mounted. The image is locked by the device's own reference to the open
// file, so that a second device, by whomever that keeps to flock(2), is impossible. `image_fd` is
// O_RDWR, and its open file description is the caller's alone. `nodes_dir`: where a node is made
// when /dev lacks it; on a file system that allows devices. kUnavailable while the lock is held by
// something else.
Result<LoopDevice> TakeLoop(int image_fd, const std::string& nodes_dir);

// The same, only if there is one; an invalid descriptor otherwise.
Result<LoopDevice> FindLoop(int image_fd, const std::string& nodes_dir);

}  // namespace hutch::rootfs
