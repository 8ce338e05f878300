#include <dirent.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "files/channels.h"
#include "files/entry.h"
#include "files/errors.h"
#include "files/limits.h"
#include "files/request.h"
#include "files/tree.h"

namespace hutch::files {
namespace {

using DirHandle = std::unique_ptr<DIR, int (*)(DIR*)>;

constexpr mode_t kPermissions = 0777;

bool IsDots(std::string_view name) { return name == "." || name == ".."; }

// One run of data, with both files' offsets given.
Status CopyRun(int from_fd, int to_fd, off_t offset, off_t end, const std::string& shown) {
  std::vector<char> block;
  while (offset < end) {
    off_t in = offset, out = offset;
    const auto want = static_cast<size_t>(std::min<off_t>(end - offset, 1 << 30));
    ssize_t n = block.empty() ? ::copy_file_range(from_fd, &in, to_fd, &out, want, 0) : -1;
    // Between file systems of different kinds, or where the call is refused, by hand.
    if (n < 0 && (!block.empty() || (errno != ENOSPC && errno != EDQUOT && errno != EIO))) {
      block.resize(kCopyBytes);
      n = ::pread(from_fd, block.data(), std::min(want, block.size()), offset);
      if (n > 0) n = ::pwrite(to_fd, block.data(), static_cast<size_t>(n), offset);
    }
    if (n < 0) return FileError(errno, "copy", shown);
    if (n == 0) return OkStatus();  // it shrank meanwhile
    offset += n;
  }
  return OkStatus();
}

class Copier {
 public:
  explicit Copier(std::string shown) : shown_(std::move(shown)) {}

  Status Entry(int from_fd, const std::string& from, int to_fd, const std::string& to,
               size_t depth) {
    struct stat st {};
    if (::fstatat(from_fd, from.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
      return depth > 0 && errno == ENOENT ? OkStatus() : Status(Failed("stat", from));
    if (S_ISDIR(st.st_mode)) return Directory(from_fd, from, to_fd, to, st, depth);
    if (S_ISREG(st.st_mode)) return File(from_fd, from, to_fd, to);
    if (S_ISLNK(st.st_mode)) return Link(from_fd, from, to_fd, to);
    if (!S_ISFIFO(st.st_mode)) return ++outcome.skipped, OkStatus();
    if (::mkfifoat(to_fd, to.c_str(), st.st_mode & kPermissions) != 0) return Failed("mkfifo", to);
    return ++outcome.files, OkStatus();
  }

  CopyOutcome outcome;

 private:
  Error Failed(const char* step, const std::string& name) {
    return FileError(errno, step, shown_ + " (at \"" + name + "\")");
  }

  Status Link(int from_fd, const std::string& from, int to_fd, const std::string& to) {
    ASSIGN_OR_RETURN(const std::string target, ReadLinkAt(from_fd, from, shown_));
    if (::symlinkat(target.c_str(), to_fd, to.c_str()) != 0) return Failed("symlink", to);
    return ++outcome.symlinks, OkStatus();
  }

  Status File(int from_fd, const std::string& from, int to_fd, const std::string& to) {
    const UniqueFd in(
        ::openat(from_fd, from.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!in.valid()) return Failed("open", from);
    struct stat st {};
    if (::fstat(in.get(), &st) != 0) return Failed("stat", from);
    RETURN_IF_ERROR(RequireRegular(st.st_mode, shown_));
    const UniqueFd out(
        ::openat(to_fd, to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!out.valid()) return Failed("create", to);
    RETURN_IF_ERROR(
        CopyBytes(in.get(), out.get(), static_cast<uint64_t>(st.st_size), shown_, &outcome.bytes));
    ++outcome.files;
    return Metadata(out.get(), st, to);
  }

  Status Metadata(int fd, const struct stat& st, const std::string& name) {
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (::fchmod(fd, st.st_mode & kPermissions) != 0) return Failed("chmod", name);
    if (::futimens(fd, times) != 0) return Failed("set times", name);
    return OkStatus();
  }

  Status Directory(int from_fd, const std::string& from, int to_fd, const std::string& to,
                   const struct stat& st, size_t depth) {
    if (depth >= kMaxTreeDepth) return Invalid(shown_ + " holds too deep a tree");
    if (st.st_dev == made_dev_ && st.st_ino == made_ino_)
      return Invalid(shown_ + " cannot be copied into itself");
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    UniqueFd in(::openat(from_fd, from.c_str(), kFlags));
    if (!in.valid()) return Failed("open", from);
    if (::mkdirat(to_fd, to.c_str(), 0700) != 0) return Failed("mkdir", to);
    const UniqueFd out(::openat(to_fd, to.c_str(), kFlags));
    if (!out.valid()) return Failed("open", to);
    if (depth == 0) RETURN_IF_ERROR(RememberMade(out.get()));
    ++outcome.directories;
    DirHandle dir(::fdopendir(in.get()), ::closedir);
    if (dir == nullptr) return Failed("open", from);
    in.release();
    while (const dirent* entry = ::readdir(dir.get())) {
      if (IsDots(entry->d_name)) continue;
      RETURN_IF_ERROR(
          Entry(::dirfd(dir.get()), entry->d_name, out.get(), entry->d_name, depth + 1));
    }
    return Metadata(out.get(), st, to);  // last: a copy of a read-only directory is filled by now
  }

  Status RememberMade(int fd) {
    struct stat made {};
    if (::fstat(fd, &made) != 0) return Failed("stat", "the copy");
    made_dev_ = made.st_dev;
    made_ino_ = made.st_ino;
    return OkStatus();
  }

  std::string shown_;
  dev_t made_dev_ = 0;
  ino_t made_ino_ = 0;
};

}  // namespace

Status CopyBytes(int from_fd, int to_fd, uint64_t size, const std::string& shown,
                 uint64_t* copied_bytes) {
  const auto whole = static_cast<off_t>(size);
  off_t data = 0;
  while (data < whole) {
    data = ::lseek(from_fd, data, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;  // only a hole is left
    if (data < 0) data = 0;                 // the file system knows no holes
    off_t end = ::lseek(from_fd, data, SEEK_HOLE);
    if (end < 0 || end > whole) end = whole;
    if (data >= end) break;
    RETURN_IF_ERROR(CopyRun(from_fd, to_fd, data, end, shown));
    *copied_bytes += static_cast<uint64_t>(end - data);
    data = end;
  }
  if (::ftruncate(to_fd, whole) != 0) return FileError(errno, "truncate", shown);
  return OkStatus();
}

Result<CopyOutcome> CopyAll(int from_fd, const std::string& from_name, int to_fd,
                            const std::string& to_name, const std::string& shown) {
  Copier copier(shown);
  RETURN_IF_ERROR(copier.Entry(from_fd, from_name, to_fd, to_name, 0));
  return copier.outcome;
}

}  // namespace hutch::files
