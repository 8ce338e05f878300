// Shuts hutch-unpack into the directory it writes to, before it reads a byte of the archive. Every
// step must work: an unpacker that is not confined does not unpack. Landlock alone may be missing,
// for kernels without it.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::rootfs {

// New user (ids 0..65535 mapped to themselves, so that owners on disk are raw), mount, network,
// IPC, UTS, cgroup and PID namespaces; the directory becomes "/", nosuid, nodev, noexec, and
// nothing else is left of the host's files; four capabilities (CHOWN, DAC_OVERRIDE, FOWNER,
// FSETID), no new privileges, resource limits, Landlock, and a filter that lets through what
// writing files needs. Clones: returns in the child that is confined, with the root's descriptor;
// the parent waits for it and exits with its status. Needs CAP_SYS_ADMIN and CAP_SETUID, and one
// thread.
Result<UniqueFd> ConfineTo(const std::string& directory);

}  // namespace hutch::rootfs
