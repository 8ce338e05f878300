// Opening, reading and writing whole files through descriptors, for *trusted* paths (cgroupfs, our
// own state, /proc). A path inside a container's or image's root is never opened here: use
// base/rooted_path.h.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hutch {

// open(2)/openat(2) with O_CLOEXEC. The error names the path; code kNotFound for ENOENT.
Result<UniqueFd> Open(const std::string& path, int flags, mode_t mode = 0);
Result<UniqueFd> OpenAt(int dir_fd, const std::string& path, int flags, mode_t mode = 0);

// Reads to the end of the file; kTooLarge when it holds more than max_bytes.
Result<std::string> ReadAll(int fd, size_t max_bytes);
Result<std::string> ReadFile(const std::string& path, size_t max_bytes);
Result<std::string> ReadFileAt(int dir_fd, const std::string& path, size_t max_bytes);

// write(2) until everything is written. For cgroupfs and /proc the text goes in one call.
Status WriteAll(int fd, std::string_view bytes);
// Opens an existing file O_WRONLY and writes `bytes` in one write(2); the error names the file and
// the value.
Status WriteExisting(const std::string& path, std::string_view bytes);
Status WriteExistingAt(int dir_fd, const std::string& path, std::string_view bytes);

enum class Durability { kMemory, kDisk };  // kDisk: fsync of the file and of its directory
// fsync(2); errors name `shown`, or the path.
Status SyncFd(int fd, const std::string& shown);
// `flags` as O_DIRECTORY, for the names in it, or O_NOFOLLOW. kNotFound when it is not there.
Status SyncPath(const std::string& path, int flags);
// Writes a file whole: temporary name, (fsync), rename, (fsync of the directory). Mode 0600.
Status WriteFileAtomic(const std::string& path, std::string_view bytes, Durability durability);

// mkdir -p for our own directories, each new one with `mode`. An existing directory is success.
Status MakeDirectories(const std::string& path, mode_t mode);
// Removes a tree below a trusted parent without following symlinks or crossing into another file
// system. "Already gone" is success.
Status RemoveTree(const std::string& path);
// Names in a directory without "." and "..", sorted.
Result<std::vector<std::string>> ListDirectory(const std::string& path);
bool PathExists(const std::string& path);

// O_PATH | O_CLOEXEC duplicate of a descriptor (fcntl F_DUPFD_CLOEXEC).
Result<UniqueFd> Duplicate(int fd);
// A memfd with MFD_CLOEXEC | MFD_ALLOW_SEALING holding `bytes`, then sealed against every change.
Result<UniqueFd> SealedMemfd(const std::string& name, std::string_view bytes);

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
Result<Pipe> MakePipe(int extra_flags = 0);  // O_CLOEXEC on both ends, plus extra_flags

}  // namespace hutch
