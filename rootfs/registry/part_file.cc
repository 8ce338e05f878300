#include "rootfs/registry/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace hutch::rootfs::registry {
namespace {

constexpr char kSuffix[] = ".part";
constexpr size_t kBlockBytes = 1u << 20;
constexpr int64_t kSecondsPerDay = 86'400;
constexpr size_t kKeyDigits = 16;

// Locked, and still the file of that name: none when somebody has it.
Result<std::optional<UniqueFd>> Lock(const std::string& path, int flags) {
  while (true) {
    ASSIGN_OR_RETURN(UniqueFd fd, Open(path, flags | O_NOFOLLOW, 0600));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::optional<UniqueFd>();
      return SysError(errno, "lock " + path);
    }
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) return SysError(errno, "stat " + path);
    // Whoever had it may have removed it between our opening and our locking.
    if (st.st_nlink != 0) return std::optional<UniqueFd>(std::move(fd));
    if ((flags & O_CREAT) == 0) return std::optional<UniqueFd>();
  }
}

Result<std::string> NameOf(const PartOf& part) {
  ASSIGN_OR_RETURN(const std::string hex, HexOf(part.digest));
  ASSIGN_OR_RETURN(const std::string key,
                   HexOf(DigestOf(part.registry + "\n" + std::to_string(part.size))));
  return hex + "-" + key.substr(0, kKeyDigits) + kSuffix;
}

}  // namespace

Result<std::optional<PartFile>> PartFile::TryLock(const std::string& directory,
                                                  const PartOf& part) {
  ASSIGN_OR_RETURN(const std::string name, NameOf(part));
  std::string path = directory + "/" + name;
  ASSIGN_OR_RETURN(std::optional<UniqueFd> fd, Lock(path, O_RDWR | O_CREAT));
  if (!fd) return std::optional<PartFile>();
  struct stat st {};
  if (::fstat(fd->get(), &st) != 0) return SysError(errno, "stat " + path);
  if (!S_ISREG(st.st_mode)) return Error{.code = Code::kCorrupt, .what = path + " is not a file"};
  return std::optional<PartFile>(
      PartFile(std::move(path), *std::move(fd), static_cast<uint64_t>(st.st_size)));
}

Result<bool> PartFile::HashSome(size_t max_bytes) {
  std::vector<char> block(std::min(kBlockBytes, max_bytes));
  const uint64_t end = std::min(size_, hashed_ + max_bytes);
  while (hashed_ < end) {
    const size_t want = std::min<uint64_t>(block.size(), end - hashed_);
    const ssize_t n = ::pread(fd_.get(), block.data(), want, static_cast<off_t>(hashed_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SysError(errno, "read " + path_);
    if (n == 0) return Error{.code = Code::kCorrupt, .what = path_ + " became shorter"};
    hash_.Add(block.data(), static_cast<size_t>(n));
    hashed_ += static_cast<uint64_t>(n);
  }
  return hashed_ == size_;
}

Status PartFile::Append(std::string_view bytes) {
  CHECK(hashed_ == size_);
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return SysError(errno, "write " + path_);
    const auto written = static_cast<size_t>(n);
    hash_.Add(bytes.data(), written);
    size_ += written;
    hashed_ = size_;
    bytes.remove_prefix(written);
  }
  return OkStatus();
}

Status PartFile::Restart() {
  hashed_ = 0;
  hash_ = Sha256();
  if (size_ == 0) return OkStatus();
  // Locked before it has the name, and swept like any other if it never gets it.
  const std::string fresh = path_ + "." + RandomBase32(16) + kSuffix;
  ASSIGN_OR_RETURN(UniqueFd fd, Open(fresh, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || ::rename(fresh.c_str(), path_.c_str()) != 0) {
    Error error = SysError(errno, "start over with " + path_);
    IgnoreError(RemoveTree(fresh), "swept some day");
    return error;
  }
  fd_ = std::move(fd);
  size_ = 0;
  return OkStatus();
}

Status PartFile::Unlock() {
  return ::flock(fd_.get(), LOCK_UN) == 0 ? OkStatus() : SysError(errno, "unlock " + path_);
}

Status PartFile::Remove() {
  // Somebody has it: they need it, and remove it after that.
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) return OkStatus();
  struct stat ours {};
  if (::fstat(fd_.get(), &ours) != 0) return SysError(errno, "stat " + path_);
  // Else the name is another file's by now: names go with the lock only.
  return ours.st_nlink == 0 ? OkStatus() : RemoveTree(path_);
}

Result<UniqueFd> PartFile::OpenForReading() const {
  return Open("/proc/self/fd/" + std::to_string(fd_.get()), O_RDONLY);
}

Status SweepParts(const std::string& directory, unsigned days) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  for (const std::string& name : names) {
    if (!name.ends_with(kSuffix)) continue;
    const std::string path = directory + "/" + name;
    const auto fd = Lock(path, O_RDWR);
    if (!fd || !*fd) continue;
    struct stat st {};
    if (::fstat((*fd)->get(), &st) != 0) continue;
    if (days != 0 && std::time(nullptr) - st.st_mtime < days * kSecondsPerDay) continue;
    RETURN_IF_ERROR(RemoveTree(path));
  }
  return OkStatus();
}

}  // namespace hutch::rootfs::registry
