// One file system object as JSON, and its entity tag.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::files {

// Changes whenever the object is another one or its bytes or metadata changed: device, inode,
// size, and the times of change.
std::string EntityTag(const struct stat& st);

// {"type", "size", "mode", "uid", "gid", "mtime", "etag"}; no path.
oci::Json EntryJson(const struct stat& st);

// The same of `name` below dir_fd (AT_FDCWD, "" for the descriptor itself), with "target" where
// it is a symlink, and `shown` as "path".
Result<oci::Json> EntryAt(int dir_fd, const std::string& name, const std::string& shown);

Result<std::string> ReadLinkAt(int dir_fd, const std::string& name, const std::string& shown);

}  // namespace hutch::files
