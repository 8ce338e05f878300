// The file system calls of the unpacker that are more than one call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch::rootfs {

// kInvalidArgument: 'entry "<path>": <why>'.
Error BadEntry(std::string_view path, const std::string& why);
// Of a failed call on an entry. A link or a file on the way is the archive's fault.
Error EntryError(int sys, const char* verb, std::string_view path);

// openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS); "" is the directory itself.
Result<UniqueFd> OpenEntry(int dir_fd, const std::string& path, uint64_t flags, uint64_t mode = 0);
// Removes a file or a whole directory. "Already gone" is success.
Status RemoveEntry(int parent_fd, const std::string& name, const std::string& shown);
// pwrite(2) until all is written.
Status WriteAt(int fd, const void* bytes, size_t size, uint64_t offset, std::string_view shown);

}  // namespace hutch::rootfs
