// Writes the entries of one tar stream below a directory: the part of hutch-unpack that runs
// confined. Every name is resolved with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), so an entry
// that goes through a link of the archive's is an error, never a write elsewhere.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

struct archive;
struct archive_entry;

namespace hutch::rootfs {

enum class Mode {
  kLayer,    // whiteouts, owners, xattrs: an image layer
  kArchive,  // plain files of an OCI or docker archive, owned by root
};

struct UnpackCounts {
  uint64_t entries = 0;
  uint64_t bytes = 0;    // logical sizes of files
  uint64_t dropped = 0;  // device nodes and sockets
  std::vector<std::string>
      opaque;  // directories to be marked opaque by somebody with the privilege
};

class Unpacker {
 public:
  Unpacker(int root_fd, Mode mode) : root_fd_(root_fd), mode_(mode) {}
  // Reads to the end of the tar. kInvalidArgument names the entry; kTooLarge the limit; kNoSpace.
  Status Run(archive* tar, UnpackCounts* counts);

 private:
  struct Place {  // where an entry goes
    std::string path, name;
    int parent_fd = -1;  // borrowed from the cache
  };
  Status One(archive* tar, archive_entry* entry);
  Status MakeWhiteout(const Place& place);
  Status MakeDirectory(const Place& place, archive_entry* entry);
  Status MakeFile(archive* tar, const Place& place, archive_entry* entry);
  Status MakeHardLink(const Place& place, const char* target);
  Status MakeOther(const Place& place, archive_entry* entry);
  Status WriteData(archive* tar, int fd, const Place& place, archive_entry* entry);
  Status SetXattrs(int fd, archive_entry* entry) const;
  Status SetOwnerModeTime(const Place& place, archive_entry* entry) const;
  Result<Place> Locate(const char* raw_path);
  Result<int> ParentFd(const std::string& parent);
  Status RemoveExisting(const Place& place) const;
  Status FinishDirectories();

  struct DirectoryTime {
    std::string path;
    timespec mtime;
  };
  int root_fd_;
  Mode mode_;
  UnpackCounts* counts_ = nullptr;
  std::string cached_parent_;
  UniqueFd cached_parent_fd_;
  std::vector<DirectoryTime> directory_times_;
};

// "./a//b/" -> "a/b"; "" for the root itself. kInvalidArgument for "..", NUL, and anything past the
// limits.
Result<std::string> NormalEntryPath(const char* raw);

}  // namespace hutch::rootfs
