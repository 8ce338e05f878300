// Whole trees: removing and copying them, on descriptors, so that renames meanwhile move the work
// along with the tree and lead nowhere else.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace hutch::files {

struct RemoveOutcome {
  uint64_t removed = 0;
};
// Removes `name` below dir_fd and, where it is a directory, everything in it, whatever the depth.
// Never descends into another mount, and refuses (kBadState) to begin with one. Goes on past what
// it cannot remove and returns the first such error.
Result<RemoveOutcome> RemoveAll(int dir_fd, const std::string& name, const std::string& shown);

struct CopyOutcome {
  uint64_t files = 0, directories = 0, symlinks = 0, bytes = 0;
  uint64_t skipped = 0;  // sockets and devices
};
// Copies `from_name` below from_fd to the new name `to_name` below to_fd: modes, times, symlinks
// as they are, holes as holes; the caller owns what is made. kInvalidArgument beyond
// kMaxTreeDepth. After a failure a part is there: the caller removes it.
Result<CopyOutcome> CopyAll(int from_fd, const std::string& from_name, int to_fd,
                            const std::string& to_name, const std::string& shown);

// Copies a regular file's bytes from its beginning, leaving out its holes, and sets its size.
Status CopyBytes(int from_fd, int to_fd, uint64_t size, const std::string& shown,
                 uint64_t* copied_bytes);

}  // namespace hutch::files
