// The listening socket, one daemon per run directory, and what systemd is told.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::daemon {

// flock(2) on <run_dir>/hutchd.lock, held as long as the result. kExists when another daemon holds
// it; kForbidden names what to do.
Result<UniqueFd> LockRunDirectory(const std::string& run_dir);

// Binds, mode 0660 and group `group` where that exists, and replaces a socket nobody listens on
// (the lock tells that ours is the only daemon). kInvalidArgument for a path that is too long or in
// use for something else.
Result<UniqueFd> BindSocket(const std::string& path, const std::string& group);

// Connections accepted from it cannot be sent descriptors (SO_PASSRIGHTS, Linux 6.16). kUnsupported
// before.
Status RefuseDescriptors(int socket_fd);

// One message of sd_notify(3) ("READY=1") to NOTIFY_SOCKET, with a descriptor (borrowed) where one
// is given; nothing without it.
Status NotifySystemd(std::string_view state, int fd = -1);

}  // namespace hutch::daemon
