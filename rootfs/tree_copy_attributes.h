// Owner, mode, times and attributes of one file of a tree that is copied (rootfs/tree_copy.h).
#pragma once

#include <sys/stat.h>

#include "rootfs/tree_copy.h"

namespace hutch::rootfs {

// `name` in `directory`, or `directory` itself when it is "". Before the mode: chown takes set-id
// bits and capabilities away.
Status SetOwner(int directory, const char* name, const struct stat& info, const TreeCopy& copy);
Status SetOwnerAndMode(int fd, const struct stat& info, const TreeCopy& copy);
Status SetTimes(int directory, const char* name, const struct stat& info);
// From one open file or directory to the other, after its owner was set.
Status CopyAttributes(int from, int to, const TreeCopy& copy);

}  // namespace hutch::rootfs
