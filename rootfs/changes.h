// Which files a sandbox created, changed and deleted between two moments: two snapshots of its
// scratch file system, compared. Everything here is the tenant's and may change while it is read:
// nothing is followed, the mount is never left, and every dimension is bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rootfs/lower_layers.h"
#include "rootfs/mount_planner.h"

namespace hutch::rootfs {

// One directory of the scratch file system and where a sandbox sees it.
struct TrackedRoot {
  std::string source;     // name in the scratch file system's root
  std::string target;     // absolute; "/" for the upper of a writable root
  bool is_upper = false;  // holds whiteouts and opaque directories of an overlay
};

// What is tracked of a plan: its scratch directories but /dev/shm (shared memory, not files), and
// the upper. The overlay's work directory never is. Pure.
std::vector<TrackedRoot> TrackedRoots(const MountPlan& plan, const std::string& upper_name);

inline bool HasUpper(std::span<const TrackedRoot> roots) {
  return std::any_of(roots.begin(), roots.end(), [](const TrackedRoot& r) { return r.is_upper; });
}

// The file systems of one sandbox at one moment, about 64 bytes an entry and its name. Movable,
// immutable, readable from any thread.
class Snapshot {
 public:
  struct Entry {
    uint64_t ino = 0, size = 0;
    int64_t mtime_ns = 0, ctime_ns = 0;
    uint32_t name_at = 0, parent = 0;
    uint32_t first_child = 0, child_count = 0;  // children lie together, sorted by name
    uint16_t mode = 0;                          // st_mode
    uint8_t name_size = 0;
    FileKind kind = FileKind::kDirectory;
    bool listed = false;  // all of the directory's names are in the snapshot
    bool opaque = false;  // an upper directory that hides what is below it
  };

  Snapshot() = default;
  // Walks the roots breadth first. Borrows `scratch_fd`, the file system's root; needs
  // CAP_DAC_READ_SEARCH. Blocks for about a microsecond an entry. A directory that vanishes
  // meanwhile is empty; kKernel only when a root cannot be opened for another reason.
  static Result<Snapshot> Take(int scratch_fd, std::span<const TrackedRoot> roots);

  // Of so many roots in which there is nothing: what a Diff against it tells is all that was made.
  static Snapshot OfNothing(size_t root_count);

  // False when kMaxTrackedFiles, kMaxTrackedNameBytes, kMaxTrackedDepth or a path's length ended
  // the walk early: some directories are then not `listed`.
  bool complete() const { return complete_; }
  size_t size() const { return entries_.size() - root_count_; }
  size_t memory_bytes() const { return entries_.capacity() * sizeof(Entry) + names_.capacity(); }
  int64_t newest_ctime_ns() const { return newest_ctime_ns_; }

  size_t root_count() const { return root_count_; }
  const Entry& entry(size_t index) const { return entries_[index]; }  // the roots come first
  std::span<const Entry> children(const Entry& directory) const {
    return std::span(entries_).subspan(directory.first_child, directory.child_count);
  }
  std::string_view name(const Entry& entry) const {
    return std::string_view(names_).substr(entry.name_at, entry.name_size);
  }

 private:
  friend class Walker;
  std::vector<Entry> entries_;
  std::string names_;
  size_t root_count_ = 0;
  int64_t newest_ctime_ns_ = 0;
  bool complete_ = true;
};

enum class ChangeAction : uint8_t { kCreated, kModified, kDeleted };
const char* ChangeActionName(ChangeAction action);  // "created", "modified", "deleted"

struct FileChange {
  std::string path;  // absolute, as the sandbox sees it; any bytes but NUL
  ChangeAction action;
  uint64_t size_bytes = 0;  // afterwards; of what is deleted: before
  FileKind kind = FileKind::kFile;
};

struct ChangeSet {
  std::vector<FileChange> changes;  // by path; a directory before what is in it
  bool complete = true;             // false: there may be more; what is listed is true anyway
};

// What became of `before`: both of the same roots. `lower`: the layers below the upper, or nullptr
// without one. Stops with complete = false after `max_changes`.
// A rename is a deletion and a creation. A file is modified when its inode, size, mode, mtime or
// ctime differ: also by chmod, by another hard link to it, or when another file took its place. A
// directory is modified when its mode changed or another one took its place, never because of
// its entries. In the upper: a file over one of the image's is modified, a whiteout a deletion of
// that one path (of a directory: not of each of its files), and a directory that replaced the
// image's is modified; what it hides is not listed.
// Not seen: stores through a shared mapping, which leave the times of a tmpfs alone.
ChangeSet Diff(const Snapshot& before, const Snapshot& after, std::span<const TrackedRoot> roots,
               const LowerLayers* lower, size_t max_changes);

}  // namespace hutch::rootfs
