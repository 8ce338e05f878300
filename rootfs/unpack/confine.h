// Shuts hutch-unpack into the directory it writes to, before it reads a byte of the archive. Every
// step must work: an unpacker that is not confined does not unpack.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::rootfs {

// New user (ids 0..65535 mapped to themselves, so that owners on disk are raw), mount, network,
// IPC, UTS and PID namespaces; the directory becomes "/", nosuid, nodev, nothing else is left of
// the host's files; four capabilities (CHOWN, DAC_OVERRIDE, FOWNER, FSETID), no new privileges,
// resource limits, and a filter that lets through what writing files needs. Forks: returns in the
// child that is confined, with the root's descriptor; the parent waits for it and exits with its
// status. Needs CAP_SYS_ADMIN and CAP_SETUID.
Result<UniqueFd> ConfineTo(const std::string& directory, unsigned cpu_seconds);

}  // namespace hutch::rootfs
