// What goes wrong with files, as errors and as JSON.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "base/result.h"
#include "oci/json.h"

namespace hutch::files {

// A failed system call on a path: the code by a table of errno values (ENOENT not_found, EACCES
// forbidden, ...), what = "<step> <path>: <strerror>". `step` is a string literal.
Error FileError(int sys, const char* step, std::string_view path);

Error Invalid(std::string what, std::string field = {});

// Why `path` of this st_mode cannot be read or written as a file; success for a regular file.
Status RequireRegular(mode_t mode, std::string_view path);

// "file", "directory", "symlink", "fifo", "socket", "block_device", "char_device".
const char* TypeName(mode_t mode);

// {"code", "message"} and, where they apply, "errno", "step", "field".
oci::Json ErrorJson(const Error& error);

}  // namespace hutch::files
