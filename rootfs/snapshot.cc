// The walk: breadth first, so that a bound that ends it leaves out what lies deep, and one
// descriptor at a time.
#include <fcntl.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/sys_raw.h"
#include "rootfs/changes.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr uint64_t kInside =
    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
constexpr unsigned kWanted =
    STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_MTIME | STATX_CTIME;
constexpr size_t kDirentBytes = 32 * 1024;
constexpr int kOpenAttempts = 3;  // EAGAIN: something was renamed while the path was resolved
constexpr char kSharedMemory[] = "/dev/shm";

struct Dirent {  // linux_dirent64
  uint64_t ino;
  int64_t off;
  uint16_t size;
  uint8_t type;
  char name[];
};

int64_t Nanoseconds(const struct statx_timestamp& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

bool IsDots(const char* name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

}  // namespace

std::vector<TrackedRoot> TrackedRoots(const MountPlan& plan, const std::string& upper_name) {
  std::vector<TrackedRoot> roots;
  for (const MountOp& op : plan.ops) {
    if (op.kind != MountOpKind::kScratchBind) continue;
    const std::string target = "/" + std::string(plan.strings.c_str() + op.target);
    if (target != kSharedMemory)
      roots.push_back({std::string(plan.strings.c_str() + op.source), target, false});
  }
  for (const ScratchDirectory& directory : plan.scratch_directories)
    if (directory.name == upper_name) roots.push_back({upper_name, "/", true});
  return roots;
}

class Walker {
 public:
  Walker(int scratch_fd, std::span<const TrackedRoot> roots)
      : scratch_fd_(scratch_fd), roots_(roots) {}

  Result<Snapshot> Walk() {
    for (const TrackedRoot& root : roots_) AddRoot(root);
    snapshot_.root_count_ = roots_.size();
    // Entries are only ever added behind: the vector is its own queue.
    for (size_t i = 0; i < snapshot_.entries_.size(); ++i)
      if (snapshot_.entries_[i].kind == FileKind::kDirectory) RETURN_IF_ERROR(List(i));
    snapshot_.entries_.shrink_to_fit();
    snapshot_.names_.shrink_to_fit();
    return std::move(snapshot_);
  }

 private:
  using Entry = Snapshot::Entry;

  void AddRoot(const TrackedRoot& root) {
    Entry entry;
    entry.name_at = static_cast<uint32_t>(snapshot_.names_.size());
    entry.name_size = static_cast<uint8_t>(root.source.size());
    entry.parent = UINT32_MAX;
    snapshot_.names_ += root.source;
    snapshot_.entries_.push_back(entry);
    depths_.push_back(0);
  }

  // From the scratch's root down; empty when it is too long to be opened in one go.
  std::string PathOf(size_t index) const {
    std::array<uint32_t, kMaxTrackedDepth + 1> chain;
    size_t count = 0;
    for (auto at = static_cast<uint32_t>(index); at != UINT32_MAX;
         at = snapshot_.entries_[at].parent)
      chain[count++] = at;
    std::string path;
    while (count-- > 0) {
      path += snapshot_.name(snapshot_.entries_[chain[count]]);
      if (count > 0) path += '/';
    }
    return path.size() > kMaxTrackedPathBytes ? std::string() : path;
  }

  bool IsInUpper(size_t index) const {
    while (snapshot_.entries_[index].parent != UINT32_MAX) index = snapshot_.entries_[index].parent;
    return roots_[index].is_upper;
  }

  Status List(size_t index) {
    const std::string path = full_ || depths_[index] >= kMaxTrackedDepth ? "" : PathOf(index);
    if (path.empty()) return Stop();
    UniqueFd fd;
    for (int i = 0; i < kOpenAttempts; ++i) {
      fd.reset(sys::Openat2(scratch_fd_, path.c_str(),
                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME, kInside));
      if (fd.get() != -EAGAIN) break;
    }
    Entry& directory = snapshot_.entries_[index];
    const int err = fd.valid() ? 0 : -fd.release();
    if (err == ENOENT || err == ENOTDIR || err == ELOOP) {  // replaced since it was named
      directory.listed = true;
      return OkStatus();
    }
    if (err != 0 && directory.parent == UINT32_MAX) return SysError(err, "open scratch " + path);
    if (err != 0) return Stop();
    in_upper_ = IsInUpper(index);
    if (in_upper_) directory.opaque = IsOpaque(fd.get());
    return ReadNames(fd.get(), index);
  }

  static bool IsOpaque(int fd) {
    char value = 0;
    return ::fgetxattr(fd, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
  }

  Status Stop() {
    snapshot_.complete_ = false;
    return OkStatus();
  }

  Status ReadNames(int fd, size_t index) {
    const size_t first = snapshot_.entries_.size();
    long got = 0;
    while (!full_ && (got = sys::Raw(SYS_getdents64, fd, buffer_.data(), buffer_.size())) > 0)
      for (long at = 0; at < got;) {
        const auto* dirent = reinterpret_cast<const Dirent*>(buffer_.data() + at);
        at += dirent->size;
        if (!IsDots(dirent->name)) Add(fd, dirent->name, index);
      }
    auto& entries = snapshot_.entries_;
    std::sort(
        entries.begin() + static_cast<ptrdiff_t>(first), entries.end(),
        [this](const Entry& a, const Entry& b) { return snapshot_.name(a) < snapshot_.name(b); });
    // A name that is renamed onto another while we read can be returned twice.
    const auto end = std::unique(
        entries.begin() + static_cast<ptrdiff_t>(first), entries.end(),
        [this](const Entry& a, const Entry& b) { return snapshot_.name(a) == snapshot_.name(b); });
    entries.erase(end, entries.end());
    depths_.resize(entries.size(), static_cast<uint8_t>(depths_[index] + 1));
    Entry& directory = entries[index];
    directory.first_child = static_cast<uint32_t>(first);
    directory.child_count = static_cast<uint32_t>(entries.size() - first);
    directory.listed = !full_ && got == 0;
    if (!directory.listed) return Stop();
    return OkStatus();
  }

  void Add(int directory_fd, const char* name, size_t parent) {
    const size_t name_size = std::strlen(name);
    if (snapshot_.entries_.size() - snapshot_.root_count_ >= kMaxTrackedFiles ||
        snapshot_.names_.size() + name_size > kMaxTrackedNameBytes || name_size > UINT8_MAX) {
      full_ = true;
      return;
    }
    struct statx st {};
    if (sys::Raw(SYS_statx, directory_fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, kWanted,
                 &st) < 0)
      return;  // gone again
    Entry entry;
    entry.ino = st.stx_ino;
    entry.size = st.stx_size;
    entry.mtime_ns = Nanoseconds(st.stx_mtime);
    entry.ctime_ns = Nanoseconds(st.stx_ctime);
    entry.name_at = static_cast<uint32_t>(snapshot_.names_.size());
    entry.name_size = static_cast<uint8_t>(name_size);
    entry.parent = static_cast<uint32_t>(parent);
    entry.mode = st.stx_mode;
    entry.kind = KindOf(st.stx_mode, st.stx_rdev_major, st.stx_rdev_minor);
    // Anyone may make such a device; only overlayfs gives it its meaning.
    if (entry.kind == FileKind::kWhiteout && !in_upper_) entry.kind = FileKind::kOther;
    snapshot_.newest_ctime_ns_ = std::max(snapshot_.newest_ctime_ns_, entry.ctime_ns);
    snapshot_.names_.append(name, name_size);
    snapshot_.entries_.push_back(entry);
  }

  int scratch_fd_;
  std::span<const TrackedRoot> roots_;
  Snapshot snapshot_;
  std::vector<uint8_t> depths_;  // of each entry, below its root
  bool full_ = false, in_upper_ = false;
  alignas(Dirent) std::array<char, kDirentBytes> buffer_;
};
static_assert(kMaxTrackedDepth < UINT8_MAX);

Snapshot Snapshot::OfNothing(size_t root_count) {
  Snapshot nothing;
  nothing.entries_.resize(root_count);
  nothing.root_count_ = root_count;
  for (Entry& root : nothing.entries_) {
    root.parent = UINT32_MAX;
    root.listed = true;
  }
  return nothing;
}

Result<Snapshot> Snapshot::Take(int scratch_fd, std::span<const TrackedRoot> roots) {
  return Walker(scratch_fd, roots).Walk();
}

}  // namespace hutch::rootfs
