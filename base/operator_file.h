// Files of the operator's that decide what sandboxes may do: believed only when nobody else could
// have written them.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace hutch {

enum class Readers { kAnyone, kOwnerOnly };

// Reads a regular file that belongs to root (or to whoever the process runs as) and that nobody
// else may write; with kOwnerOnly nobody else may read it either. The last component may be no
// link. kNotFound, kForbidden (with what to do about it), kTooLarge.
Result<std::string> ReadOperatorFile(const std::string& path, size_t max_bytes, Readers readers);
// The same of a directory: those who may write it could put any file there.
Status CheckOperatorDirectory(const std::string& path);

}  // namespace hutch
