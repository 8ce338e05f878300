// Writes the entries of one layer below a directory: the part of hutch-unpack that runs confined.
// Every name is resolved with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), so an entry that goes
// through a link of the archive's is an error, never a write elsewhere.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rootfs/limits.h"

struct archive;
struct archive_entry;

namespace hutch::rootfs {

// A layer's ".wh." names are removals, and it begins empty. In a tree they are names as any other,
// and what is there already stays where the archive has nothing in its place.
enum class UnpackKind { kLayer, kTree };

struct UnpackLimits {  // tests make them small
  uint64_t entries = kMaxLayerEntries;
  uint64_t bytes = kMaxLayerBytes;
};

struct UnpackCounts {
  uint64_t entries = 0;
  uint64_t bytes = 0;               // logical sizes of files
  uint64_t disk_bytes = 0;          // what they take, in blocks of 4 KiB
  uint64_t dropped = 0;             // device nodes and sockets
  uint64_t remapped = 0;            // owners above kMaxOwnerId
  std::vector<std::string> opaque;  // directories for somebody with the privilege to mark
};

class Unpacker {
 public:
  // Borrows root_fd, for a layer an empty directory. The caller's umask must be 0.
  explicit Unpacker(int root_fd, const UnpackLimits& limits = {},
                    UnpackKind kind = UnpackKind::kLayer)
      : root_fd_(root_fd), limits_(limits), kind_(kind) {}
  // Reads to the end of the tar. kInvalidArgument names the entry; kTooLarge the limit; kCorrupt;
  // kNoSpace. On failure the directory holds whatever was written so far.
  Status Run(archive* tar, UnpackCounts* counts);

 private:
  struct Place {  // where an entry goes
    std::string path, name;
    int parent_fd = -1;  // borrowed from the cache
  };
  Status One(archive* tar, archive_entry* entry);
  Status SetRoot(archive_entry* entry);
  Status MakeWhiteout(const Place& place);
  Status MakeDirectory(const Place& place, archive_entry* entry);
  Status MakeFile(archive* tar, const Place& place, archive_entry* entry);
  Status MakeHardLink(const Place& place, const char* target);
  Status MakeOther(const Place& place, archive_entry* entry);
  Status WriteData(archive* tar, int fd, const Place& place, archive_entry* entry);
  Status SetOwnerModeTime(int fd, const char* name, const Place& place, archive_entry* entry);
  Result<Place> Locate(const char* raw_path);
  Result<int> ParentFd(const std::string& parent);
  Status FinishDirectories();

  struct DirectoryTime {
    std::string path;
    timespec mtime;
  };
  int root_fd_;
  UnpackLimits limits_;
  UnpackKind kind_;
  UnpackCounts* counts_ = nullptr;
  std::string cached_parent_;
  UniqueFd cached_parent_fd_;
  std::vector<DirectoryTime> directory_times_;
};

// "./a//b/" -> "a/b", "/a" -> "a"; "" for the root itself. kInvalidArgument for "..", kTooLarge
// past the limits.
Result<std::string> NormalEntryPath(const char* raw);

}  // namespace hutch::rootfs
