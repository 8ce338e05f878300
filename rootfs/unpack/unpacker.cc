#include "rootfs/unpack/unpacker.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/archive_code.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/unpack/entry_files.h"

namespace hutch::rootfs {
namespace {

constexpr std::string_view kWhiteout = ".wh.";
constexpr std::string_view kOpaque = ".wh..wh..opq";
// Metadata of a union file system long gone: carries nothing.
constexpr std::string_view kAufsPrefix = ".wh..wh.";
constexpr mode_t kPermissions = 07777;
constexpr uint32_t kNobody = 65534;
constexpr uint64_t kDiskBlock = 4096;

Error TooLarge(std::string what) { return Error{.code = Code::kTooLarge, .what = std::move(what)}; }

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool KeepXattr(std::string_view name) {
  return name.starts_with("user.") && !name.starts_with("user.overlay.");
}

Status SetXattrs(int fd, archive_entry* entry) {
  const char* name = nullptr;
  const void* value = nullptr;
  size_t size = 0, count = 0;
  archive_entry_xattr_reset(entry);
  while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
    if (name == nullptr || !KeepXattr(name)) continue;
    if (size > kMaxXattrBytes || ++count > kMaxXattrsPerEntry)
      return TooLarge("too many or too large attributes: " + std::string(name));
    // A file system without user attributes keeps the file all the same.
    if (::fsetxattr(fd, name, value, size, 0) != 0 && errno != ENOTSUP)
      return EntryError(errno, "setxattr", name);
  }
  return OkStatus();
}

// Whether a directory above the entry is named like a whiteout.
enum class Above { kFine, kIgnore, kRefuse };
Above LookAbove(const std::string& path) {
  const std::string parent = "/" + ParentOf(path);
  if (parent.find("/" + std::string(kAufsPrefix)) != std::string::npos) return Above::kIgnore;
  return parent.find("/" + std::string(kWhiteout)) == std::string::npos ? Above::kFine
                                                                        : Above::kRefuse;
}

bool IsWhiteout(const char* raw_path) {
  const auto path = NormalEntryPath(raw_path);
  return path && NameOf(*path).starts_with(kWhiteout);
}

uint64_t Blocks(uint64_t bytes) { return (bytes + kDiskBlock - 1) / kDiskBlock * kDiskBlock; }

}  // namespace

Result<std::string> NormalEntryPath(const char* raw) {
  if (raw == nullptr) return BadEntry("", "no readable name");
  const std::string_view text(raw);
  if (text.size() > kMaxEntryPathBytes)
    return TooLarge("an entry's path of " + std::to_string(text.size()) + " bytes");
  std::string path;
  size_t depth = 0;
  for (const std::string& part : Split(text, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") return BadEntry(text, "\"..\" in its path");
    if (part.size() > kMaxEntryNameBytes)
      return TooLarge("an entry's name of " + std::to_string(part.size()) + " bytes");
    if (++depth > kMaxEntryDepth)
      return TooLarge("an entry more than " + std::to_string(kMaxEntryDepth) + " deep");
    path += (path.empty() ? "" : "/") + part;
  }
  return path;
}

Status Unpacker::Run(archive* tar, UnpackCounts* counts) {
  counts_ = counts;
  // For layers that do not mention their root.
  if (kind_ == UnpackKind::kLayer && ::fchmod(root_fd_, 0755) != 0)
    return EntryError(errno, "chmod", "/");
  while (true) {
    archive_entry* entry = nullptr;
    const int rc = archive_read_next_header(tar, &entry);
    if (rc == ARCHIVE_EOF) break;
    if (ArchiveFailed(rc)) {
      const char* text = archive_error_string(tar);
      return Error{.code = Code::kCorrupt,
                   .what = std::string("tar: ") + (text == nullptr ? "unreadable" : text)};
    }
    if (++counts->entries > limits_.entries)
      return TooLarge("more than " + std::to_string(limits_.entries) + " entries");
    RETURN_IF_ERROR(One(tar, entry));
  }
  return FinishDirectories();
}

// The parent's descriptor, made where missing; consecutive entries mostly share it.
Result<int> Unpacker::ParentFd(const std::string& parent) {
  if (cached_parent_fd_.valid() && cached_parent_ == parent) return cached_parent_fd_.get();
  auto fd = OpenEntry(root_fd_, parent, O_PATH | O_DIRECTORY);
  if (!fd && fd.error().sys != ENOENT) return std::move(fd).error();
  if (!fd) {
    std::string made;
    for (const std::string& part : Split(parent, '/')) {
      ASSIGN_OR_RETURN(const UniqueFd above, OpenEntry(root_fd_, made, O_PATH | O_DIRECTORY));
      if (::mkdirat(above.get(), part.c_str(), 0755) != 0 && errno != EEXIST)
        return EntryError(errno, "mkdir", parent);
      made += (made.empty() ? "" : "/") + part;
    }
    fd = OpenEntry(root_fd_, parent, O_PATH | O_DIRECTORY);
    if (!fd) return std::move(fd).error();
  }
  cached_parent_fd_ = std::move(*fd);
  cached_parent_ = parent;
  return cached_parent_fd_.get();
}

Result<Unpacker::Place> Unpacker::Locate(const char* raw_path) {
  Place place;
  ASSIGN_OR_RETURN(place.path, NormalEntryPath(raw_path));
  if (place.path.empty()) return place;
  place.name = NameOf(place.path);
  if (kind_ == UnpackKind::kLayer && LookAbove(place.path) == Above::kRefuse)
    return BadEntry(place.path, "below a whiteout, which is no directory");
  ASSIGN_OR_RETURN(place.parent_fd, ParentFd(ParentOf(place.path)));
  return place;
}

// Later entries of one archive replace earlier ones, whole directories included.
Status Unpacker::One(archive* tar, archive_entry* entry) {
  const bool is_layer = kind_ == UnpackKind::kLayer;
  const char* raw = archive_entry_pathname(entry);
  if (is_layer && raw != nullptr && LookAbove(raw) == Above::kIgnore) return OkStatus();
  auto located = Locate(raw);
  // umoci writes them where a file takes a directory's place: nothing below it is left to hide.
  if (is_layer && !located && located.error().sys == ENOTDIR && IsWhiteout(raw)) return OkStatus();
  ASSIGN_OR_RETURN(const Place place, std::move(located));
  if (place.path.empty()) return SetRoot(entry);
  if (is_layer && place.name.starts_with(kWhiteout)) return MakeWhiteout(place);
  if (const char* target = archive_entry_hardlink(entry)) return MakeHardLink(place, target);
  switch (archive_entry_filetype(entry)) {
    case AE_IFDIR:
      return MakeDirectory(place, entry);
    case AE_IFREG:
      return MakeFile(tar, place, entry);
    case AE_IFLNK:
    case AE_IFIFO:
      return MakeOther(place, entry);
    default:  // devices, sockets
      ++counts_->dropped;
      return OkStatus();
  }
}

// The root's owner, mode and time count; it cannot be anything but a directory.
Status Unpacker::SetRoot(archive_entry* entry) {
  if (archive_entry_filetype(entry) != AE_IFDIR || archive_entry_hardlink(entry) != nullptr)
    return BadEntry("/", "the root must be a directory");
  return SetOwnerModeTime(-1, ".", Place{"", ".", root_fd_}, entry);
}

Status Unpacker::MakeWhiteout(const Place& place) {
  if (place.name == kOpaque) {
    counts_->opaque.push_back(ParentOf(place.path));
    return OkStatus();
  }
  if (place.name.starts_with(kAufsPrefix)) return OkStatus();
  const std::string hidden = place.name.substr(kWhiteout.size());
  if (hidden.empty() || hidden == "." || hidden == "..")
    return BadEntry(place.path, "a whiteout of nothing");
  if (::mknodat(place.parent_fd, hidden.c_str(), S_IFCHR, 0) == 0) return OkStatus();
  if (errno != EEXIST) return EntryError(errno, "whiteout", place.path);
  // A whiteout is about the layers below. What this layer has stays; a directory hides theirs.
  struct stat st {};
  if (::fstatat(place.parent_fd, hidden.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return EntryError(errno, "stat", place.path);
  const std::string parent = ParentOf(place.path);
  if (S_ISDIR(st.st_mode))
    counts_->opaque.push_back(parent.empty() ? hidden : parent + "/" + hidden);
  return OkStatus();
}

Status Unpacker::MakeDirectory(const Place& place, archive_entry* entry) {
  const char* name = place.name.c_str();
  if (::mkdirat(place.parent_fd, name, 0700) != 0) {
    struct stat st {};
    if (errno != EEXIST || ::fstatat(place.parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
      return EntryError(errno, "mkdir", place.path);
    if (!S_ISDIR(st.st_mode)) {
      if (S_ISCHR(st.st_mode)) counts_->opaque.push_back(place.path);  // its whiteout came first
      RETURN_IF_ERROR(RemoveEntry(place.parent_fd, place.name, place.path));
      if (::mkdirat(place.parent_fd, name, 0700) != 0)
        return EntryError(errno, "mkdir", place.path);
    }
  } else {
    counts_->disk_bytes += kDiskBlock;
  }
  if (archive_entry_xattr_count(entry) > 0) {
    ASSIGN_OR_RETURN(const UniqueFd fd,
                     OpenEntry(place.parent_fd, place.name, O_RDONLY | O_DIRECTORY));
    RETURN_IF_ERROR(SetXattrs(fd.get(), entry));
  }
  return SetOwnerModeTime(-1, name, place, entry);
}

Status Unpacker::MakeFile(archive* tar, const Place& place, archive_entry* entry) {
  constexpr uint64_t kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  auto fd = OpenEntry(place.parent_fd, place.name, kNew, 0600);
  if (!fd && fd.error().sys == EEXIST) {
    RETURN_IF_ERROR(RemoveEntry(place.parent_fd, place.name, place.path));
    fd = OpenEntry(place.parent_fd, place.name, kNew, 0600);
  }
  if (!fd) return std::move(fd).error();
  RETURN_IF_ERROR(WriteData(tar, fd->get(), place, entry));
  if (archive_entry_xattr_count(entry) > 0) RETURN_IF_ERROR(SetXattrs(fd->get(), entry));
  return SetOwnerModeTime(fd->get(), nullptr, place, entry);
}

// Blocks go to their offsets and the rest stays a hole.
Status Unpacker::WriteData(archive* tar, int fd, const Place& place, archive_entry* entry) {
  const auto size = static_cast<uint64_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
  if (size > limits_.bytes || counts_->bytes + size > limits_.bytes)
    return TooLarge("more than " + FormatSize(limits_.bytes) + " unpacked");
  counts_->bytes += size;
  uint64_t end = 0, written = 0;
  while (end < size) {
    const void* block = nullptr;
    size_t length = 0;
    la_int64_t offset = 0;
    const int rc = archive_read_data_block(tar, &block, &length, &offset);
    if (rc == ARCHIVE_EOF) break;
    if (ArchiveFailed(rc))
      return Error{.code = Code::kCorrupt, .what = "tar: \"" + place.path + "\" is cut off"};
    if (offset < 0 || static_cast<uint64_t>(offset) + length > size)
      return BadEntry(place.path, "data past its size");
    RETURN_IF_ERROR(WriteAt(fd, block, length, static_cast<uint64_t>(offset), place.path));
    end = static_cast<uint64_t>(offset) + length;
    written += length;
  }
  counts_->disk_bytes += Blocks(written);
  if (end < size && ::ftruncate(fd, static_cast<off_t>(size)) != 0)
    return EntryError(errno, "size", place.path);
  return OkStatus();
}

// Both ends by parent descriptor and name, and nothing is followed: the link can only be to
// something inside.
Status Unpacker::MakeHardLink(const Place& place, const char* target) {
  ASSIGN_OR_RETURN(const std::string path, NormalEntryPath(target));
  if (path.empty()) return BadEntry(place.path, "a hard link to the root");
  if (path == place.path) return BadEntry(place.path, "a hard link to itself");
  const auto parent = OpenEntry(root_fd_, ParentOf(path), O_PATH | O_DIRECTORY);
  const std::string name = NameOf(path);
  struct stat st {};
  if (!parent || ::fstatat(parent->get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 ||
      S_ISDIR(st.st_mode) || S_ISCHR(st.st_mode))
    return BadEntry(place.path, "a hard link to \"" + path + "\", which is no file of the layer");
  const auto link = [&] {
    return ::linkat(parent->get(), name.c_str(), place.parent_fd, place.name.c_str(), 0);
  };
  if (link() == 0) return OkStatus();
  if (errno != EEXIST) return EntryError(errno, "link", place.path);
  // Not when the target lies below what is replaced: it would go first.
  if (path.starts_with(place.path + "/")) return BadEntry(place.path, "a hard link into itself");
  RETURN_IF_ERROR(RemoveEntry(place.parent_fd, place.name, place.path));
  return link() == 0 ? OkStatus() : EntryError(errno, "link", place.path);
}

Status Unpacker::MakeOther(const Place& place, archive_entry* entry) {
  const bool link = archive_entry_filetype(entry) == AE_IFLNK;
  const char* target = link ? archive_entry_symlink(entry) : nullptr;
  if (link && (target == nullptr || *target == '\0'))
    return BadEntry(place.path, "a link to nothing");
  const char* name = place.name.c_str();
  const auto make = [&] {
    return link ? ::symlinkat(target, place.parent_fd, name)
                : ::mknodat(place.parent_fd, name, S_IFIFO | 0600, 0);
  };
  if (make() != 0) {
    if (errno != EEXIST) return EntryError(errno, "make", place.path);
    RETURN_IF_ERROR(RemoveEntry(place.parent_fd, place.name, place.path));
    if (make() != 0) return EntryError(errno, "make", place.path);
  }
  return SetOwnerModeTime(-1, name, place, entry);
}

// By descriptor for a file, else by name. Owner before mode: chown clears the set-id bits.
Status Unpacker::SetOwnerModeTime(int fd, const char* name, const Place& place,
                                  archive_entry* entry) {
  uint32_t owners[2] = {};
  const la_int64_t wanted[2] = {archive_entry_uid(entry), archive_entry_gid(entry)};
  for (size_t i = 0; i < 2; ++i) {
    if (wanted[i] < 0) return BadEntry(place.path, "a negative owner");
    owners[i] = wanted[i] > kMaxOwnerId ? kNobody : static_cast<uint32_t>(wanted[i]);
    if (wanted[i] > kMaxOwnerId) ++counts_->remapped;
  }
  if ((name == nullptr
           ? ::fchown(fd, owners[0], owners[1])
           : ::fchownat(place.parent_fd, name, owners[0], owners[1], AT_SYMLINK_NOFOLLOW)) != 0)
    return EntryError(errno, "chown", place.path);
  const auto type = archive_entry_filetype(entry);
  const mode_t mode = archive_entry_perm(entry) & kPermissions;
  if (type != AE_IFLNK &&
      (name == nullptr ? ::fchmod(fd, mode) : ::fchmodat(place.parent_fd, name, mode, 0)) != 0)
    return EntryError(errno, "chmod", place.path);
  if (archive_entry_mtime_is_set(entry) == 0) return OkStatus();
  const timespec mtime{archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)};
  if (type == AE_IFDIR) {
    directory_times_.push_back({place.path, mtime});
    return OkStatus();
  }
  const timespec times[2] = {mtime, mtime};
  if ((name == nullptr ? ::futimens(fd, times)
                       : ::utimensat(place.parent_fd, name, times, AT_SYMLINK_NOFOLLOW)) != 0)
    return EntryError(errno, "utimes", place.path);
  return OkStatus();
}

// Last: every entry made in a directory changed its time.
Status Unpacker::FinishDirectories() {
  for (const DirectoryTime& d : directory_times_) {
    const auto fd = OpenEntry(root_fd_, d.path, O_RDONLY | O_DIRECTORY);
    if (!fd) continue;  // replaced by a later entry
    const timespec times[2] = {d.mtime, d.mtime};
    if (::futimens(fd->get(), times) != 0) return EntryError(errno, "utimes", d.path);
  }
  return OkStatus();
}

}  // namespace hutch::rootfs
