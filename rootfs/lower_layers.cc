#include "rootfs/lower_layers.h"

#include <fcntl.h>
#include <sys/xattr.h>

#include <algorithm>
#include <iterator>

#include "base/sys_raw.h"
#include "base/text.h"

namespace hutch::rootfs {
namespace {

constexpr uint64_t kInside =
    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;

std::optional<struct statx> StatIn(int directory_fd, const std::string& name) {
  struct statx st {};
  const long rc =
      sys::Raw(SYS_statx, directory_fd, name.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st);
  if (rc < 0) return std::nullopt;
  return st;
}

FileKind KindAt(const struct statx& st) {
  return KindOf(st.stx_mode, st.stx_rdev_major, st.stx_rdev_minor);
}

bool IsOpaque(int directory_fd) {
  char value = 0;
  return ::fgetxattr(directory_fd, "trusted.overlay.opaque", &value, 1) == 1 && value == 'y';
}

}  // namespace

const char* FileKindName(FileKind kind) {
  constexpr const char* kNames[] = {"file", "directory", "symlink", "other", "other"};
  return kNames[static_cast<size_t>(kind)];
}

FileKind KindOf(mode_t mode, uint32_t device_major, uint32_t device_minor) {
  if (S_ISREG(mode)) return FileKind::kFile;
  if (S_ISDIR(mode)) return FileKind::kDirectory;
  if (S_ISLNK(mode)) return FileKind::kLink;
  const bool whiteout = S_ISCHR(mode) && device_major == 0 && device_minor == 0;
  return whiteout ? FileKind::kWhiteout : FileKind::kOther;
}

LowerLayers::LowerLayers(std::vector<UniqueFd> layers)
    : layers_(std::make_move_iterator(layers.rbegin()), std::make_move_iterator(layers.rend())) {
  std::erase_if(layers_, [](const UniqueFd& layer) { return !layer.valid(); });
}

// A layer's directory shows through until a layer above it says that it is something else.
LowerLayers::Directory LowerLayers::Merge(const std::vector<UniqueFd>& above,
                                          const std::string& name) const {
  Directory merged;
  for (const UniqueFd& layer : above) {
    const auto st = StatIn(layer.get(), name);
    if (!st) continue;
    if (KindAt(*st) != FileKind::kDirectory) break;
    UniqueFd fd(
        sys::Openat2(layer.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, kInside));
    if (!fd.valid()) break;
    const bool opaque = IsOpaque(fd.get());
    merged.fds.push_back(std::move(fd));
    if (opaque) break;
  }
  return merged;
}

std::optional<LowerEntry> LowerLayers::Find(const std::string& path) const {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::string parent = path.substr(0, slash), name = path.substr(slash + 1);
  if (last_.path != parent) {
    Directory at;
    bool first = true;
    for (const std::string& part : Split(parent, '/')) {
      if (part.empty()) continue;
      at = Merge(first ? layers_ : at.fds, part);
      first = false;
      if (at.fds.empty()) break;
    }
    last_ = std::move(at);
    last_.path = parent;
  }
  for (const UniqueFd& layer : parent.empty() ? layers_ : last_.fds) {
    const auto st = StatIn(layer.get(), name);
    if (!st) continue;
    const FileKind kind = KindAt(*st);
    if (kind == FileKind::kWhiteout) return std::nullopt;
    return LowerEntry{kind, st->stx_size, static_cast<uint32_t>(st->stx_mode & 07777), st->stx_uid,
                      st->stx_gid};
  }
  return std::nullopt;
}

}  // namespace hutch::rootfs
