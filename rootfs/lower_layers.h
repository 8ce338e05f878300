// What an image's layers show at a path, as overlayfs would merge them: whiteouts and opaque
// directories respected, no link followed, no layer left.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace hutch::rootfs {

enum class FileKind : uint8_t { kFile, kDirectory, kLink, kOther, kWhiteout };
const char* FileKindName(FileKind kind);  // "file", "directory", "symlink", "other"
// kWhiteout for a 0:0 character device; whether that is one, its place decides.
FileKind KindOf(mode_t mode, uint32_t device_major, uint32_t device_minor);

struct LowerEntry {
  FileKind kind;
  uint64_t size_bytes;
  uint32_t mode = 0, uid = 0, gid = 0;  // permissions, and the owner as the layers have it
};

// Not thread-safe: remembers the directory it looked into last.
class LowerLayers {
 public:
  // Owns descriptors of the layers' directories (O_PATH is enough), lowest first.
  explicit LowerLayers(std::vector<UniqueFd> layers);
  // `path` is absolute and normal. Nothing where no layer shows it, or where it cannot be read.
  std::optional<LowerEntry> Find(const std::string& path) const;

 private:
  struct Directory {
    std::string path;           // absolute, "" for the root
    std::vector<UniqueFd> fds;  // merged there, topmost first
  };
  Directory Merge(const std::vector<UniqueFd>& above, const std::string& name) const;

  std::vector<UniqueFd> layers_;  // topmost first
  mutable Directory last_;
};

}  // namespace hutch::rootfs
