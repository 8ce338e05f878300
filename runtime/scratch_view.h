// A sandbox's scratch file system as hutchd looks at it while the sandbox runs: which files a
// command changed. The agent keeps a descriptor of it, so that a later hutchd can look again.
#pragma once

#include <string>
#include <vector>

#include "base/pidfd.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "oci/json.h"
#include "rootfs/changes.h"

namespace hutch::runtime {

struct ScratchView {
  UniqueFd fd;  // the file system's root, O_PATH; invalid when it is not known
  std::vector<rootfs::TrackedRoot> roots;
};

// For the state file: which file system it is, and what of it is seen where.
Result<oci::Json> SaveScratch(const ScratchView& view);

// Takes the descriptor that the agent keeps at kScratchFd (pidfd_getfd(2)). The agent is not
// trusted: anything but the root of the very tmpfs that was saved is kCorrupt.
Result<ScratchView> TakeUpScratch(const Pidfd& agent, const oci::Json& saved);

}  // namespace hutch::runtime
