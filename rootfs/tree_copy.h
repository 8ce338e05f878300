// A tree of files copied as it is, overlayfs's marks included, from one file system to another:
// what a stopped sandbox wrote goes to disk and comes back with it. The source is a tenant's in
// shape (names, depth, number), but nothing in it changes meanwhile. Needs root of the host.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"

namespace hutch::rootfs {

enum class CopyBy {
  kHost,       // root of the host
  kContainer,  // root of a container, in its user namespace: owners are what it sees, any of them.
               // Left out is what it may not have: user.* attributes on a tmpfs that keeps none
               // (before Linux 6.6) and file capabilities of another user namespace
};

struct TreeCopy {
  int source = -1;  // directories; `target` is empty
  int target = -1;
  // Owners move by this: an id is from_start + n, n below 65536, and becomes to_start + n.
  uint32_t from_start = 0, to_start = 0;
  CopyBy by = CopyBy::kHost;
  const std::atomic<bool>* cancelled = nullptr;  // may be nullptr; looked at often
};

struct TreeCopied {
  uint64_t files = 0;  // of every kind
  uint64_t bytes = 0;  // of data, without holes
};

// Directories, files with their holes, hard links, symbolic links, FIFOs and whiteouts, with owner,
// mode, times and attributes (user.*, trusted.overlay.*, capabilities and access lists). Sockets
// are left out: nobody listens any more. Two descriptors at any depth. kLimit past kMaxCopyDepth,
// kCorrupt for an owner out of the range or a device, kNoSpace, kKernel, kBadState when cancelled.
Result<TreeCopied> CopyTree(const TreeCopy& copy);

}  // namespace hutch::rootfs
