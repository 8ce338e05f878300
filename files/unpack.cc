// Unpacking an archive that arrives into a directory. Nothing is written outside of it, whatever
// names and links the archive has: every path is resolved below the directory's descriptor.
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "base/archive_code.h"
#include "base/rooted_path.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "files/codeset.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/open.h"
#include "files/operations.h"
#include "files/request.h"

namespace hutch::files {
namespace {

using Reader = std::unique_ptr<archive, int (*)(archive*)>;

constexpr mode_t kPermissions = 0777;
constexpr uid_t kKeepUid = static_cast<uid_t>(-1);
constexpr gid_t kKeepGid = static_cast<gid_t>(-1);

Error ArchiveError(archive* from) {
  const char* text = archive_error_string(from);
  return Error{.code = Code::kCorrupt,
               .step = "unpack",
               .what = std::string("archive: ") + (text == nullptr ? "unreadable" : text)};
}

// Without leading slashes and empty components. ".." is refused: no packer of honest trees makes
// it.
Result<std::string> RelativeName(const char* raw) {
  if (raw == nullptr)
    return Error{.code = Code::kCorrupt, .what = "an entry without a readable name"};
  std::vector<std::string> parts;
  for (std::string& part : Split(raw, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..")
      return Error{.code = Code::kForbidden, .what = std::string("an entry named \"..\": ") + raw};
    parts.push_back(std::move(part));
  }
  std::string name = Join(parts, "/");
  if (name.size() > kMaxPathBytes) return FileError(ENAMETOOLONG, "unpack", name);
  return name;
}

class Unpacker {
 public:
  explicit Unpacker(int root_fd) : root_fd_(root_fd) {}

  Status Entry(archive* from, archive_entry* entry) {
    if (++entries_ > kMaxUnpackEntries)
      return Error{.code = Code::kTooLarge,
                   .what = "more than " + std::to_string(kMaxUnpackEntries) + " entries"};
    ASSIGN_OR_RETURN(const std::string name, RelativeName(archive_entry_pathname(entry)));
    if (name.empty()) return OkStatus();  // the directory itself
    if (archive_entry_hardlink(entry) != nullptr) return HardLink(entry, name);
    switch (archive_entry_filetype(entry)) {
      case AE_IFDIR:
        return Directory(entry, name);
      case AE_IFREG:
        return File(from, entry, name);
      case AE_IFLNK:
        return Symlink(entry, name);
      case AE_IFIFO:
        return Fifo(entry, name);
      default:
        return Error{.code = Code::kForbidden,
                     .what = name + " is a device or a socket, which is not unpacked"};
    }
  }

  // Directories get their modes and times last, since filling them needs and changes them.
  Status Finish() {
    for (auto row = directories_.rbegin(); row != directories_.rend(); ++row) {
      ASSIGN_OR_RETURN(const RootedPath path,
                       RootedPath::Make(root_fd_, row->name, Links::kBeneath));
      const auto fd = path.Open(O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK);
      if (!fd) continue;  // replaced by a later entry, or by somebody else
      if (::fchmod(fd->get(), row->mode) != 0) return FileError(errno, "chmod", row->name);
      if (::futimens(fd->get(), row->times) != 0) return FileError(errno, "set times", row->name);
    }
    return OkStatus();
  }

  oci::Json Counts() const {
    return {{"files", files_},
            {"directories", directories_.size()},
            {"symlinks", symlinks_},
            {"hard_links", hard_links_},
            {"bytes", bytes_}};
  }

 private:
  struct DirectoryRow {
    std::string name;
    mode_t mode;
    struct timespec times[2];
  };

  struct Place {
    UniqueFd parent;
    std::string name;
  };

  static void SetTimes(archive_entry* entry, struct timespec* times) {
    times[0] = {.tv_sec = 0, .tv_nsec = UTIME_OMIT};
    times[1] = times[0];
    if (archive_entry_mtime_is_set(entry) != 0)
      times[1] = {.tv_sec = archive_entry_mtime(entry), .tv_nsec = archive_entry_mtime_nsec(entry)};
  }

  // The parent is made where the archive did not say it.
  Result<Place> FindParent(const std::string& name) {
    ASSIGN_OR_RETURN(const RootedPath path, RootedPath::Make(root_fd_, name, Links::kBeneath));
    Place place;
    auto parent = path.OpenParent(&place.name);
    if (!parent && parent.error().sys == ENOENT) {
      ASSIGN_OR_RETURN(const RootedPath above,
                       RootedPath::Make(root_fd_, DirectoryOf(name), Links::kBeneath));
      parent = above.MakeDirectories(0755, kKeepUid, kKeepGid);
    }
    if (!parent) return FileError(parent.error().sys, "unpack", name);
    place.parent = std::move(*parent);
    return place;
  }

  // The same, with whatever stands in the way gone, as tar does; a directory is not.
  Result<Place> MakeRoom(const std::string& name) {
    ASSIGN_OR_RETURN(Place place, FindParent(name));
    if (::unlinkat(place.parent.get(), place.name.c_str(), 0) != 0 && errno != ENOENT)
      return FileError(errno == EPERM ? EISDIR : errno, "unpack", name);
    return place;
  }

  Status Directory(archive_entry* entry, const std::string& name) {
    ASSIGN_OR_RETURN(const Place place, FindParent(name));
    if (::mkdirat(place.parent.get(), place.name.c_str(), 0700) != 0 && errno != EEXIST)
      return FileError(errno, "mkdir", name);
    ASSIGN_OR_RETURN(const RootedPath path, RootedPath::Make(root_fd_, name, Links::kBeneath));
    const auto made = path.OpenDirectory();  // one that was there, or a link to one within
    if (!made) return FileError(made.error().sys, "mkdir", name);
    DirectoryRow row{name, archive_entry_perm(entry) & kPermissions, {}};
    SetTimes(entry, row.times);
    directories_.push_back(std::move(row));
    return OkStatus();
  }

  Status File(archive* from, archive_entry* entry, const std::string& name) {
    ASSIGN_OR_RETURN(const Place place, MakeRoom(name));
    const UniqueFd fd(::openat(place.parent.get(), place.name.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.valid()) return FileError(errno, "create", name);
    RETURN_IF_ERROR(Data(from, fd.get(), name));
    if (archive_entry_size_is_set(entry) != 0 &&
        ::ftruncate(fd.get(), archive_entry_size(entry)) != 0)
      return FileError(errno, "truncate", name);
    if (::fchmod(fd.get(), archive_entry_perm(entry) & kPermissions) != 0)
      return FileError(errno, "chmod", name);
    struct timespec times[2];
    SetTimes(entry, times);
    if (::futimens(fd.get(), times) != 0) return FileError(errno, "set times", name);
    ++files_;
    return OkStatus();
  }

  // Blocks come with their offsets: what lies between them stays a hole.
  Status Data(archive* from, int fd, const std::string& name) {
    while (true) {
      const void* block = nullptr;
      size_t size = 0;
      la_int64_t offset = 0;
      const int rc = archive_read_data_block(from, &block, &size, &offset);
      if (rc == ARCHIVE_EOF) return OkStatus();
      if (ArchiveFailed(rc)) return ArchiveError(from);
      bytes_ += size;
      for (size_t done = 0; done < size;) {
        const ssize_t n = ::pwrite(fd, static_cast<const char*>(block) + done, size - done,
                                   offset + static_cast<la_int64_t>(done));
        if (n < 0) return FileError(errno, "write", name);
        done += static_cast<size_t>(n);
      }
    }
  }

  Status Symlink(archive_entry* entry, const std::string& name) {
    const char* target = archive_entry_symlink(entry);
    if (target == nullptr || *target == '\0')
      return Error{.code = Code::kCorrupt, .what = name + " is a symlink without a target"};
    ASSIGN_OR_RETURN(const Place place, MakeRoom(name));
    if (::symlinkat(target, place.parent.get(), place.name.c_str()) != 0)
      return FileError(errno, "symlink", name);
    ++symlinks_;
    return OkStatus();
  }

  Status HardLink(archive_entry* entry, const std::string& name) {
    ASSIGN_OR_RETURN(const std::string target, RelativeName(archive_entry_hardlink(entry)));
    if (target == name) return OkStatus();
    ASSIGN_OR_RETURN(const RootedPath path, RootedPath::Make(root_fd_, target, Links::kBeneath));
    std::string target_name;
    const auto parent = path.OpenParent(&target_name);
    if (!parent) return FileError(parent.error().sys, "link", target);
    ASSIGN_OR_RETURN(const Place place, MakeRoom(name));
    if (::linkat(parent->get(), target_name.c_str(), place.parent.get(), place.name.c_str(), 0) !=
        0)
      return FileError(errno, "link", name);
    ++hard_links_;
    return OkStatus();
  }

  Status Fifo(archive_entry* entry, const std::string& name) {
    ASSIGN_OR_RETURN(const Place place, MakeRoom(name));
    if (::mkfifoat(place.parent.get(), place.name.c_str(),
                   archive_entry_perm(entry) & kPermissions) != 0)
      return FileError(errno, "mkfifo", name);
    ++files_;
    return OkStatus();
  }

  int root_fd_;
  uint64_t entries_ = 0, files_ = 0, symlinks_ = 0, hard_links_ = 0, bytes_ = 0;
  std::vector<DirectoryRow> directories_;
};

// The bytes that arrive, of which the first are looked at before libarchive gets them.
struct Input {
  int fd;
  std::vector<char> block = std::vector<char>(kCopyBytes);
  size_t held = 0;

  Status Peek() {
    while (held < 4) {
      ASSIGN_OR_RETURN(const size_t n, ReadSome(fd, block.data() + held, block.size() - held));
      if (n == 0) break;
      held += n;
    }
    return OkStatus();
  }
  bool IsZip() const {
    const std::string_view start(block.data(), held);
    return start.starts_with("PK\x03\x04") || start.starts_with("PK\x05\x06");
  }
};

la_ssize_t ReadInput(archive* reader, void* data, const void** buffer) {
  auto* input = static_cast<Input*>(data);
  *buffer = input->block.data();
  if (input->held > 0) return static_cast<la_ssize_t>(std::exchange(input->held, 0));
  const auto n = ReadSome(input->fd, input->block.data(), input->block.size());
  if (n) return static_cast<la_ssize_t>(*n);
  archive_set_error(reader, n.error().sys, "read");
  return -1;
}

// A zip archive has its modes and links in a directory at its end, so all of it must be there
// first: as a nameless file of the directory that it is unpacked into.
Result<UniqueFd> Spool(Input& input, int root_fd) {
  UniqueFd fd(::openat(root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd.valid()) return FileError(errno, "create", "a file for the archive");
  while (input.held > 0) {
    auto status = WriteFully(fd.get(), input.block.data(), input.held);
    if (!status) return FileError(status.error().sys, "write", "the archive");
    ASSIGN_OR_RETURN(input.held, ReadSome(input.fd, input.block.data(), input.block.size()));
  }
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) return FileError(errno, "read", "the archive");
  return fd;
}

struct OpenedArchive {
  UniqueFd spooled;  // must outlive the reader
  Reader reader{archive_read_new(), archive_read_free};
};

// Only the formats that are offered; what the bytes are is looked at, not only what was said.
Result<OpenedArchive> OpenArchive(Input& input, const std::string& format, int root_fd) {
  RETURN_IF_ERROR(input.Peek());
  const bool zip = input.IsZip();
  if (!format.empty() && zip != (format == "zip"))
    return Error{.code = Code::kCorrupt, .what = "the bytes are no " + format};
  OpenedArchive opened;
  archive* reader = opened.reader.get();
  CHECK(reader != nullptr);
  UseCodeset(zip ? Codeset::kUtf8 : Codeset::kAscii);
  int rc = ARCHIVE_FATAL;
  if (zip) {
    ASSIGN_OR_RETURN(opened.spooled, Spool(input, root_fd));
    CHECK(archive_read_support_format_zip_seekable(reader) == ARCHIVE_OK);
    rc = archive_read_open_fd(reader, opened.spooled.get(), kCopyBytes);
  } else {
    CHECK(archive_read_support_format_tar(reader) == ARCHIVE_OK);
    CHECK(archive_read_support_filter_gzip(reader) == ARCHIVE_OK);
    CHECK(archive_read_support_filter_zstd(reader) == ARCHIVE_OK);
    rc = archive_read_open(reader, &input, nullptr, ReadInput, nullptr);
  }
  if (ArchiveFailed(rc)) return ArchiveError(reader);
  return opened;
}

constexpr std::string_view kFormats[] = {"", "tar", "tar.gz", "tar.zst", "zip"};

Status UnpackAll(archive* from, Unpacker& unpacker) {
  while (true) {
    archive_entry* entry = nullptr;
    const int rc = archive_read_next_header(from, &entry);
    if (rc == ARCHIVE_EOF) return unpacker.Finish();
    // A warning is a name that is not ASCII: it comes as it is.
    if (ArchiveFailed(rc)) return ArchiveError(from);
    RETURN_IF_ERROR(unpacker.Entry(from, entry));
  }
}

}  // namespace

Status Unpack(const oci::Json& request, Io& io) {
  std::string path, format, fresh;  // fresh: a name that must not be there yet
  bool parents = false;
  auto reader = Members(request);
  ReadPath(reader, "path", &path);
  reader.String("format", &format).Bool("parents", &parents);
  reader.String("fresh", &fresh, 255);
  RETURN_IF_ERROR(reader.Done(oci::ObjectReader::Unknown::kRefuse));
  if (std::find(std::begin(kFormats), std::end(kFormats), format) == std::end(kFormats))
    return Invalid("\"format\" is none of tar, tar.gz, tar.zst, zip", "format");
  if (parents) RETURN_IF_ERROR(MakeDirectoriesFor(path, 0755));
  const UniqueFd root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return FileError(errno, "open", path);
  struct stat st {};
  if (!fresh.empty() && ::fstatat(root.get(), fresh.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0)
    return FileError(EEXIST, "create", JoinPath(path, fresh));
  Input input{.fd = io.in};
  ASSIGN_OR_RETURN(const OpenedArchive from, OpenArchive(input, format, root.get()));
  Unpacker unpacker(root.get());
  RETURN_IF_ERROR(UnpackAll(from.reader.get(), unpacker));
  // What follows the archive's end is read, so that its sender need not fail.
  while (true) {
    ASSIGN_OR_RETURN(const size_t n, ReadSome(io.in, input.block.data(), input.block.size()));
    if (n == 0) break;
  }
  return io.reply.Ok(unpacker.Counts());
}

}  // namespace hutch::files
