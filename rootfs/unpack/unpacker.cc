#include "rootfs/unpack/unpacker.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "base/sys_raw.h"
#include "base/text.h"
#include "rootfs/limits.h"

namespace hutch::rootfs {
namespace {

constexpr uint64_t kInside = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
constexpr char kWhiteout[] = ".wh.";
constexpr char kOpaque[] = ".wh..wh..opq";
constexpr char kAufsPrefix[] =
    ".wh..wh.";  // metadata of a union file system long gone: carries nothing
constexpr mode_t kPermissions = 07777;

Error Bad(const std::string& path, const std::string& why) {
  return Error{.code = Code::kInvalidArgument, .what = "entry \"" + path + "\": " + why};
}

Error Failed(int sys, const char* verb, const std::string& path) {
  Error error = SysError(sys, std::string(verb) + " \"" + path + "\"");
  if (sys == ELOOP || sys == EXDEV || sys == ENOTDIR)
    error = Bad(path, "its path leads through something that is no directory");
  return error;
}

Result<UniqueFd> OpenInside(int dir_fd, const std::string& path, uint64_t flags,
                            uint64_t mode = 0) {
  const int fd = sys::Openat2(dir_fd, path.empty() ? "." : path.c_str(), flags, kInside, mode);
  if (fd < 0) return Failed(-fd, "open", path);
  return UniqueFd(fd);
}

bool KeepXattr(std::string_view name) {
  return name.starts_with("user.") && !name.starts_with("user.overlay.");
}

}  // namespace

Result<std::string> NormalEntryPath(const char* raw) {
  if (raw == nullptr) return Bad("", "no name");
  const std::string_view text(raw);
  if (text.size() > kMaxEntryPathBytes)
    return Error{.code = Code::kTooLarge, .what = "an entry's path is too long"};
  std::string path;
  size_t depth = 0;
  for (const std::string& part : Split(text, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") return Bad(std::string(text), "\"..\" in its path");
    if (part.size() > kMaxEntryNameBytes)
      return Bad(std::string(text.substr(0, 64)), "a name of more than 255 bytes");
    if (++depth > kMaxEntryDepth)
      return Error{.code = Code::kTooLarge, .what = "an entry lies too deep"};
    path += (path.empty() ? "" : "/") + part;
  }
  return path;
}

Status Unpacker::Run(archive* tar, UnpackCounts* counts) {
  counts_ = counts;
  while (true) {
    archive_entry* entry = nullptr;
    const int rc = archive_read_next_header(tar, &entry);
    if (rc == ARCHIVE_EOF) break;
    if (rc < ARCHIVE_WARN)
      return Error{.code = Code::kCorrupt,
                   .what = std::string("tar: ") + archive_error_string(tar)};
    if (++counts->entries > kMaxLayerEntries)
      return Error{.code = Code::kTooLarge,
                   .what = "more than " + std::to_string(kMaxLayerEntries) + " entries"};
    RETURN_IF_ERROR(One(tar, entry));
  }
  return FinishDirectories();
}

// The parent's descriptor, made where missing; consecutive entries mostly share it.
Result<int> Unpacker::ParentFd(const std::string& parent) {
  if (cached_parent_fd_.valid() && cached_parent_ == parent) return cached_parent_fd_.get();
  auto fd = OpenInside(root_fd_, parent, O_PATH | O_DIRECTORY);
  if (!fd && fd.error().sys != ENOENT) return std::move(fd).error();
  if (!fd) {
    std::string made;
    for (const std::string& part : Split(parent, '/')) {
      ASSIGN_OR_RETURN(const UniqueFd above, OpenInside(root_fd_, made, O_PATH | O_DIRECTORY));
      if (::mkdirat(above.get(), part.c_str(), 0755) != 0 && errno != EEXIST)
        return Failed(errno, "mkdir", parent);
      made += (made.empty() ? "" : "/") + part;
    }
    fd = OpenInside(root_fd_, parent, O_PATH | O_DIRECTORY);
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
  const size_t slash = place.path.rfind('/');
  place.name = slash == std::string::npos ? place.path : place.path.substr(slash + 1);
  ASSIGN_OR_RETURN(place.parent_fd,
                   ParentFd(slash == std::string::npos ? "" : place.path.substr(0, slash)));
  return place;
}

// Later entries of one archive replace earlier ones.
Status Unpacker::RemoveExisting(const Place& place) const {
  if (::unlinkat(place.parent_fd, place.name.c_str(), 0) == 0 || errno == ENOENT) return OkStatus();
  if (errno != EISDIR && errno != EPERM) return Failed(errno, "replace", place.path);
  if (::unlinkat(place.parent_fd, place.name.c_str(), AT_REMOVEDIR) == 0) return OkStatus();
  return Bad(place.path, "would replace a directory that is not empty");
}

Status Unpacker::One(archive* tar, archive_entry* entry) {
  ASSIGN_OR_RETURN(const Place place, Locate(archive_entry_pathname(entry)));
  const auto type = archive_entry_filetype(entry);
  if (place.path.empty()) {  // the root: its mode counts, it cannot be anything but a directory
    if (type != AE_IFDIR) return Bad("/", "the root must be a directory");
    return ::fchmodat(root_fd_, ".", archive_entry_perm(entry) & kPermissions, 0) == 0
               ? OkStatus()
               : Failed(errno, "chmod", "/");
  }
  if (mode_ == Mode::kLayer && place.name.starts_with(kWhiteout)) return MakeWhiteout(place);
  if (const char* target = archive_entry_hardlink(entry)) return MakeHardLink(place, target);
  switch (type) {
    case AE_IFDIR:
      RETURN_IF_ERROR(MakeDirectory(place, entry));
      break;
    case AE_IFREG:
      return MakeFile(tar, place, entry);
    case AE_IFLNK:
    case AE_IFIFO:
      RETURN_IF_ERROR(MakeOther(place, entry));
      break;
    default:
      ++counts_->dropped;
      return OkStatus();  // devices, sockets
  }
  return SetOwnerModeTime(place, entry);
}

Status Unpacker::MakeWhiteout(const Place& place) {
  if (place.name == kOpaque) {
    const size_t slash = place.path.rfind('/');
    counts_->opaque.push_back(slash == std::string::npos ? "" : place.path.substr(0, slash));
    return OkStatus();
  }
  if (place.name.starts_with(kAufsPrefix)) return OkStatus();
  const std::string hidden = place.name.substr(sizeof kWhiteout - 1);
  if (hidden.empty() || hidden == "." || hidden == "..")
    return Bad(place.path, "a whiteout of nothing");
  const Place target{place.path, hidden, place.parent_fd};
  // In the same layer what is there wins: the whiteout is about the layers below.
  if (::faccessat(target.parent_fd, hidden.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
    return OkStatus();
  if (::mknodat(target.parent_fd, hidden.c_str(), S_IFCHR, 0) != 0)
    return Failed(errno, "whiteout", place.path);
  return OkStatus();
}

Status Unpacker::MakeDirectory(const Place& place, archive_entry* entry) {
  if (::mkdirat(place.parent_fd, place.name.c_str(), 0700) != 0) {
    struct stat st {};
    if (errno != EEXIST ||
        ::fstatat(place.parent_fd, place.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
      return Failed(errno, "mkdir", place.path);
    if (!S_ISDIR(st.st_mode)) {
      RETURN_IF_ERROR(RemoveExisting(place));
      if (::mkdirat(place.parent_fd, place.name.c_str(), 0700) != 0)
        return Failed(errno, "mkdir", place.path);
    }
  }
  directory_times_.push_back(
      {place.path, {archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)}});
  if (archive_entry_xattr_count(entry) == 0) return OkStatus();
  ASSIGN_OR_RETURN(const UniqueFd fd,
                   OpenInside(place.parent_fd, place.name, O_RDONLY | O_DIRECTORY));
  return SetXattrs(fd.get(), entry);
}

Status Unpacker::MakeFile(archive* tar, const Place& place, archive_entry* entry) {
  constexpr uint64_t kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  auto fd = OpenInside(place.parent_fd, place.name, kNew, 0600);
  if (!fd && fd.error().sys == EEXIST) {
    RETURN_IF_ERROR(RemoveExisting(place));
    fd = OpenInside(place.parent_fd, place.name, kNew, 0600);
  }
  if (!fd) return std::move(fd).error();
  RETURN_IF_ERROR(WriteData(tar, fd->get(), place, entry));
  RETURN_IF_ERROR(SetXattrs(fd->get(), entry));
  fd->reset();
  return SetOwnerModeTime(place, entry);
}

// Blocks go to their offsets and the rest stays a hole.
Status Unpacker::WriteData(archive* tar, int fd, const Place& place, archive_entry* entry) {
  const auto size = static_cast<uint64_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
  counts_->bytes += size;
  if (size > kMaxLayerBytes || counts_->bytes > kMaxLayerBytes)
    return Error{.code = Code::kTooLarge,
                 .what = "more than " + FormatSize(kMaxLayerBytes) + " unpacked"};
  if (size > 0 && ::ftruncate(fd, static_cast<off_t>(size)) != 0)
    return Failed(errno, "size", place.path);
  while (true) {
    const void* block = nullptr;
    size_t length = 0;
    la_int64_t offset = 0;
    const int rc = archive_read_data_block(tar, &block, &length, &offset);
    if (rc == ARCHIVE_EOF) return OkStatus();
    if (rc < ARCHIVE_WARN)
      return Error{.code = Code::kCorrupt,
                   .what = std::string("tar: ") + archive_error_string(tar)};
    if (offset < 0 || static_cast<uint64_t>(offset) + length > size)
      return Bad(place.path, "data past its size");
    for (size_t done = 0; done < length;) {
      const ssize_t n = ::pwrite(fd, static_cast<const char*>(block) + done, length - done,
                                 static_cast<off_t>(offset) + static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Failed(errno, "write", place.path);
      done += static_cast<size_t>(n);
    }
  }
}

// Both ends by parent descriptor and name; nothing is followed, so the link can only be to
// something inside.
Status Unpacker::MakeHardLink(const Place& place, const char* target) {
  ASSIGN_OR_RETURN(const std::string path, NormalEntryPath(target));
  if (path.empty()) return Bad(place.path, "a hard link to the root");
  const size_t slash = path.rfind('/');
  ASSIGN_OR_RETURN(const UniqueFd parent,
                   OpenInside(root_fd_, slash == std::string::npos ? "" : path.substr(0, slash),
                              O_PATH | O_DIRECTORY));
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (path == place.path) return OkStatus();
  struct stat st {};
  if (::fstatat(parent.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode))
    return Bad(place.path, "a hard link to \"" + path + "\", which is not a file of the archive");
  RETURN_IF_ERROR(RemoveExisting(place));
  if (::linkat(parent.get(), name.c_str(), place.parent_fd, place.name.c_str(), 0) != 0)
    return Failed(errno, "link", place.path);
  return OkStatus();
}

Status Unpacker::MakeOther(const Place& place, archive_entry* entry) {
  const bool link = archive_entry_filetype(entry) == AE_IFLNK;
  const char* target = link ? archive_entry_symlink(entry) : nullptr;
  if (link && (target == nullptr || *target == '\0')) return Bad(place.path, "a link to nothing");
  const auto make = [&] {
    return link ? ::symlinkat(target, place.parent_fd, place.name.c_str())
                : ::mkfifoat(place.parent_fd, place.name.c_str(), 0600);
  };
  if (make() == 0) return OkStatus();
  if (errno != EEXIST) return Failed(errno, "make", place.path);
  RETURN_IF_ERROR(RemoveExisting(place));
  return make() == 0 ? OkStatus() : Failed(errno, "make", place.path);
}

Status Unpacker::SetXattrs(int fd, archive_entry* entry) const {
  if (mode_ == Mode::kArchive) return OkStatus();
  const char* name = nullptr;
  const void* value = nullptr;
  size_t size = 0, count = 0;
  archive_entry_xattr_reset(entry);
  while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
    if (name == nullptr || !KeepXattr(name)) continue;
    if (size > kMaxXattrBytes || ++count > kMaxXattrsPerEntry)
      return Bad(name, "too many or too large attributes");
    // A file system without user attributes keeps the file all the same.
    if (::fsetxattr(fd, name, value, size, 0) != 0 && errno != ENOTSUP)
      return Failed(errno, "setxattr", name);
  }
  return OkStatus();
}

// Owner before mode: chown clears the set-id bits.
Status Unpacker::SetOwnerModeTime(const Place& place, archive_entry* entry) const {
  const char* name = place.name.c_str();
  if (mode_ == Mode::kLayer) {
    const la_int64_t uid = archive_entry_uid(entry), gid = archive_entry_gid(entry);
    if (uid < 0 || gid < 0 || uid > kMaxOwnerId || gid > kMaxOwnerId)
      return Bad(place.path, "an owner above 65535");
    if (::fchownat(place.parent_fd, name, static_cast<uid_t>(uid), static_cast<gid_t>(gid),
                   AT_SYMLINK_NOFOLLOW) != 0)
      return Failed(errno, "chown", place.path);
  }
  const auto type = archive_entry_filetype(entry);
  if (type != AE_IFLNK &&
      ::fchmodat(place.parent_fd, name, archive_entry_perm(entry) & kPermissions, 0) != 0)
    return Failed(errno, "chmod", place.path);
  if (type == AE_IFDIR || archive_entry_mtime_is_set(entry) == 0) return OkStatus();
  const timespec mtime{archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)};
  const timespec times[2] = {mtime, mtime};
  return ::utimensat(place.parent_fd, name, times, AT_SYMLINK_NOFOLLOW) == 0
             ? OkStatus()
             : Failed(errno, "utimes", place.path);
}

// Last, deepest first: every entry made in a directory changed its time.
Status Unpacker::FinishDirectories() {
  for (size_t i = directory_times_.size(); i-- > 0;) {
    const DirectoryTime& d = directory_times_[i];
    const auto fd = OpenInside(root_fd_, d.path, O_RDONLY | O_DIRECTORY);
    if (!fd) continue;  // replaced by a later entry
    const timespec times[2] = {d.mtime, d.mtime};
    if (::futimens(fd->get(), times) != 0) return Failed(errno, "utimes", d.path);
  }
  return OkStatus();
}

}  // namespace hutch::rootfs
