#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

namespace hutch {
namespace {

Error OpenError(int sys, const std::string& path) {
  Error error = SysError(sys, "open " + path);
  if (sys == ENOENT) error.code = Code::kNotFound;
  return error;
}

using DirHandle = std::unique_ptr<DIR, int (*)(DIR*)>;

Result<DirHandle> OpenDir(int dir_fd, const std::string& path, const std::string& shown) {
  const int fd = ::openat(dir_fd, path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return OpenError(errno, shown);
  DIR* dir = ::fdopendir(fd);
  if (dir == nullptr) {
    const int sys = errno;
    ::close(fd);
    return SysError(sys, "fdopendir " + shown);
  }
  return DirHandle(dir, ::closedir);
}

bool IsDots(const char* name) {
  return std::string_view(name) == "." || std::string_view(name) == "..";
}

// Removes everything below an open directory of device `dev`; other file systems are refused.
Status RemoveChildren(int parent_fd, const std::string& name, const std::string& shown, dev_t dev) {
  ASSIGN_OR_RETURN(DirHandle dir, OpenDir(parent_fd, name, shown));
  struct stat st {};
  if (::fstat(::dirfd(dir.get()), &st) != 0) return SysError(errno, "stat " + shown);
  if (st.st_dev != dev)
    return Error{.code = Code::kBadState,
                 .what = "will not remove " + shown + ": another file system"};
  ::fchmod(::dirfd(dir.get()), 0700);  // a layer may hold directories without write permission
  while (const dirent* entry = ::readdir(dir.get())) {
    if (IsDots(entry->d_name)) continue;
    if (::unlinkat(::dirfd(dir.get()), entry->d_name, 0) == 0 || errno == ENOENT) continue;
    const std::string child = shown + "/" + entry->d_name;
    if (errno != EISDIR && errno != EPERM) return SysError(errno, "unlink " + child);
    RETURN_IF_ERROR(RemoveChildren(::dirfd(dir.get()), entry->d_name, child, dev));
    if (::unlinkat(::dirfd(dir.get()), entry->d_name, AT_REMOVEDIR) != 0 && errno != ENOENT)
      return SysError(errno, "rmdir " + child);
  }
  return OkStatus();
}

}  // namespace

Result<UniqueFd> OpenAt(int dir_fd, const std::string& path, int flags, mode_t mode) {
  const int fd = ::openat(dir_fd, path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return OpenError(errno, path);
  return UniqueFd(fd);
}

Result<UniqueFd> Open(const std::string& path, int flags, mode_t mode) {
  return OpenAt(AT_FDCWD, path, flags, mode);
}

Result<std::string> ReadAll(int fd, size_t max_bytes) {
  std::string out;
  char buffer[16384];
  while (true) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SysError(errno, "read");
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > max_bytes)
      return Error{.code = Code::kTooLarge,
                   .what = "more than " + std::to_string(max_bytes) + " bytes"};
    out.append(buffer, static_cast<size_t>(n));
  }
}

Result<std::string> ReadFileAt(int dir_fd, const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenAt(dir_fd, path, O_RDONLY));
  auto bytes = ReadAll(fd.get(), max_bytes);
  if (bytes) return bytes;
  Error error = std::move(bytes).error();
  error.what = path + ": " + error.what;
  return error;
}

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  return ReadFileAt(AT_FDCWD, path, max_bytes);
}

Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SysError(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

Status WriteExistingAt(int dir_fd, const std::string& path, std::string_view bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenAt(dir_fd, path, O_WRONLY));
  ssize_t n = -1;
  do n = ::write(fd.get(), bytes.data(), bytes.size());
  while (n < 0 && errno == EINTR);  // a limit of memory in cgroup v1, while pages are reclaimed
  if (n != static_cast<ssize_t>(bytes.size())) {
    const int sys = errno;
    return SysError(sys, "write \"" + std::string(bytes) + "\" to " + path);
  }
  return OkStatus();
}

Status WriteExisting(const std::string& path, std::string_view bytes) {
  return WriteExistingAt(AT_FDCWD, path, bytes);
}

Status SyncFd(int fd, const std::string& shown) {
  if (::fsync(fd) != 0) return SysError(errno, "fsync " + shown);
  return OkStatus();
}

Status SyncPath(const std::string& path, int flags) {
  ASSIGN_OR_RETURN(const UniqueFd fd, Open(path, O_RDONLY | flags));
  return SyncFd(fd.get(), path);
}

Status WriteFileAtomic(const std::string& path, std::string_view bytes, Durability durability) {
  const std::string temporary = path + ".tmp";
  ASSIGN_OR_RETURN(UniqueFd fd, Open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  Status written = WriteAll(fd.get(), bytes);
  if (written && durability == Durability::kDisk && ::fsync(fd.get()) != 0)
    written = SysError(errno, "fsync");
  if (!written) {
    ::unlink(temporary.c_str());
    Error error = std::move(written).error();
    error.what = temporary + ": " + error.what;
    return error;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return SysError(errno, "rename to " + path);
  if (durability == Durability::kDisk) {
    const size_t slash = path.rfind('/');
    return SyncPath(slash == std::string::npos ? "." : path.substr(0, slash + 1), O_DIRECTORY);
  }
  return OkStatus();
}

Status MakeDirectories(const std::string& path, mode_t mode) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST)
      return SysError(errno, "mkdir " + part);
    if (at == std::string::npos) break;
  }
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return SysError(errno, "stat " + path);
  if (!S_ISDIR(st.st_mode))
    return Error{.code = Code::kExists, .what = path + " is not a directory"};
  return OkStatus();
}

Status RemoveTree(const std::string& path) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return OkStatus();
    return SysError(errno, "stat " + path);
  }
  if (S_ISDIR(st.st_mode)) RETURN_IF_ERROR(RemoveChildren(AT_FDCWD, path, path, st.st_dev));
  if (::unlinkat(AT_FDCWD, path.c_str(), S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) != 0 &&
      errno != ENOENT)
    return SysError(errno, "remove " + path);
  return OkStatus();
}

Result<std::vector<std::string>> ListDirectory(const std::string& path) {
  ASSIGN_OR_RETURN(DirHandle dir, OpenDir(AT_FDCWD, path, path));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get()))
    if (!IsDots(entry->d_name)) names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

bool PathExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Result<UniqueFd> Duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return SysError(errno, "duplicate descriptor");
  return UniqueFd(copy);
}

Result<UniqueFd> SealedMemfd(const std::string& name, std::string_view bytes) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return SysError(errno, "memfd_create " + name);
  RETURN_IF_ERROR(WriteAll(fd.get(), bytes));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
    return SysError(errno, "seal memfd " + name);
  return fd;
}

Result<Pipe> MakePipe(int extra_flags) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC | extra_flags) != 0) return SysError(errno, "pipe2");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace hutch
